#!/usr/bin/env python3
"""Tiny random Llama models, quantized by the code of the peers (tests/interop/quantized_peers.py), with the SHA-256 of
every weight as the peer dequantizes it.

    tests/golden/quantized/make.py [NAME...]         in the environment of scripts/interop-quantized (its --python prints it)
    tests/golden/quantized/make.py --model FOLDER    the float model alone

Each folder gets config.json, model.safetensors, for Model Optimizer hf_quant_config.json, and expected.json: {weight:
[type in which the peer computes, SHA-256 of its bytes]}. tests/unit/graphsurgeon/quantized_read_test.cpp compares.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'interop'))
import quantized_peers as peers  # noqa: E402


def tiny(folder):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                      bos_token_id=0, eos_token_id=1, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config)
    for p in model.parameters():
        if p.dim() == 2:
            p.data = torch.randn(p.shape) * 0.08
            p.data[torch.rand(p.shape) > .99] *= 6  # outliers
        else:
            p.data = 1 + 0.1 * torch.randn(p.shape)
    model.to(torch.bfloat16).save_pretrained(folder)


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ['--model']:
        return tiny(sys.argv[2])
    with tempfile.TemporaryDirectory() as source:
        tiny(source)
        for name in sys.argv[1:] or peers.KINDS:
            out = os.path.join(HERE, name)
            shutil.rmtree(out, ignore_errors=True)
            peers.make(source, HERE, [name])
            if os.path.exists(os.path.join(out, 'generation_config.json')):
                os.remove(os.path.join(out, 'generation_config.json'))
            json.dump(peers.digests(peers.read(out)), open(os.path.join(out, 'expected.json'), 'w'), indent=1)
            print(name)


if __name__ == '__main__':
    main()
