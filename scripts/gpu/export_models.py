#!/usr/bin/env python3
"""Exports the networks of docs/performance-gpu.md with random weights, batch open, and arrays to run them on.

    scripts/gpu/export_models.py DIR [NAME...]     resnet50, mobilenetv3l, vit_b16, bert_base

Needs torch, timm, transformers, onnxscript. DIR gets NAME.onnx, image1.npy and ids1.npy to run, images8.npy and ids8.npy to calibrate on.
"""
import os
import sys

import numpy as np
import timm
import torch
import transformers


class Bert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.BertModel(transformers.BertConfig(attn_implementation='sdpa'))

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).last_hidden_state


def vision(name):
    return lambda: (timm.create_model(name, pretrained=False).eval(), torch.randn(2, 3, 224, 224), 'image')


MODELS = {
    'resnet50': vision('resnet50'),
    'mobilenetv3l': vision('mobilenetv3_large_100'),
    'vit_b16': vision('vit_base_patch16_224'),
    'bert_base': lambda: (Bert().eval(), torch.randint(0, 30000, (2, 128)), 'input_ids'),
}


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    os.makedirs(folder, exist_ok=True)
    random = np.random.default_rng(0)
    np.save(f'{folder}/image1.npy', random.standard_normal((1, 3, 224, 224), dtype=np.float32))
    np.save(f'{folder}/ids1.npy', random.integers(0, 30000, (1, 128)))
    np.save(f'{folder}/images8.npy', random.standard_normal((8, 3, 224, 224), dtype=np.float32))
    np.save(f'{folder}/ids8.npy', random.integers(0, 30000, (8, 128)))
    for name in names:
        torch.manual_seed(0)
        model, x, wanted = MODELS[name]()
        torch.onnx.export(model, (x,), f'{folder}/{name}.onnx', dynamo=True, opset_version=20, input_names=[wanted],
                          output_names=['output'], dynamic_shapes=({0: torch.export.Dim('batch')},), external_data=False)
        print('exported', name, flush=True)


if __name__ == '__main__':
    main()
