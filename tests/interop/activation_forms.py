#!/usr/bin/env python3
"""Activations in every form that ONNX Runtime takes: it loads what pare writes, and agrees.

    tests/interop/activation_forms.py      finds the program in the variable PARE; models of examples/fashion

Static INT16, UINT16 and E5M2 activations, dynamic UINT8 (DynamicQuantizeLinear), dynamic INT8 and E4M3 per token, and the
dynamic form as MatMulInteger and ConvInteger (`pare convert --to qoperator`). ONNX Runtime computes with optimizations off, and
(integers) on; pare computes the same file by `pare infer`. Two implementations differ where a value lies on the edge between two
codes, so logits are compared by SQNR: 16 bits 60 dB, 8 bits 30 dB, three mantissa bits 20 dB, and the model must be as near
to the float one as to within 3 dB in both.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

SOURCE = os.environ['PARE_SOURCE_DIR']
FASHION = os.path.join(SOURCE, 'examples', 'fashion')
DATA = os.path.join(FASHION, 'fashion_calibration_images.npy') + ':layout=nhwc_to_nchw,scale=1/255,mean=0.286,std=0.353'
COUNT = 64


def pare(*arguments):
    done = subprocess.run([os.environ['PARE'], *arguments, '--json'], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    if done.returncode != 0:
        raise RuntimeError(f"{arguments}: {document.get('error', document)}")
    return document


def infer(model, x, folder):
    np.save(folder + '/x.npy', x)
    name = onnx.load(model, load_external_data=False).graph.input[0].name
    pare('infer', model, '--input', f'{name}={folder}/x.npy', '--save', folder + '/out')
    return np.load(folder + '/out/out_0.npy')


def runtime(model, x, optimized):
    options = ort.SessionOptions()
    options.graph_optimization_level = (ort.GraphOptimizationLevel.ORT_ENABLE_ALL if optimized
                                        else ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def sqnr(a, b):
    noise = float(((a.astype(np.float64) - b) ** 2).sum())
    return 10 * np.log10(float((a.astype(np.float64) ** 2).sum()) / max(noise, 1e-30))


def main():
    raw = np.load(os.path.join(FASHION, 'fashion_test_images.npy'))[:COUNT]
    x = ((raw.reshape(COUNT, 28, 28, 1) / 255 - 0.286) / 0.353).astype(np.float32).transpose(0, 3, 1, 2).copy()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        statistics = {}
        for model in ('resnet', 'vit'):
            statistics[model] = f'{folder}/{model}.h5'
            pare('calibrate', f'{FASHION}/{model}.onnx', '--data', DATA, '--samples', '64', '-o', statistics[model])
        rules = {'int16': ['--format', 'a16w8', '--calibrator', 'minmax'],
                 'uint16': ['--format', 'a16w8', '--asymmetric', '--calibrator', 'minmax'],
                 'uint8 dynamic': ['--format', 'uint8_dynamic'],
                 'int8 per token': ['--format', 'int8_dynamic'],
                 'fp8 per token': ['--format', 'fp8_dynamic']}
        least = {'int16': 60, 'uint16': 60, 'uint8 dynamic': 30, 'int8 per token': 30, 'fp8 per token': 20}
        for model in ('resnet', 'vit'):
            reference = runtime(f'{FASHION}/{model}.onnx', x, False)
            for name, arguments in rules.items():
                if model == 'resnet' and name == 'fp8 per token':
                    continue  # its one product is too small for FP8, and convolutions have no tokens
                path = f'{folder}/{model}.onnx'
                static = ['--stats', statistics[model]] if '16' in name else []
                pare('quantize', f'{FASHION}/{model}.onnx', *arguments, '--method', 'search', '--target', 'onnxruntime', *static,
                     '-o', path)
                onnx.checker.check_model(path)
                mine, theirs = infer(path, x, folder), runtime(path, x, False)
                agree, own, other = sqnr(theirs, mine), sqnr(reference, mine), sqnr(reference, theirs)
                print(f'{model} {name}: runtimes agree to {agree:.1f} dB; against float {own:.1f} and {other:.1f} dB', flush=True)
                if agree < least[name] or abs(own - other) > 3 or own < 15:
                    failures.append(f'{model} {name}')
                if name != 'uint8 dynamic':
                    continue
                integer = f'{folder}/integer.onnx'
                converted = pare('convert', path, '-o', integer, '--to', 'qoperator')['converted']
                onnx.checker.check_model(integer)
                ops = {n.op_type for n in onnx.load(integer).graph.node}
                for optimized in (False, True):
                    codes = runtime(integer, x, optimized)
                    agree = sqnr(theirs, codes)
                    print(f'{model} as integers ({converted}), optimizations {"on" if optimized else "off"}: {agree:.1f} dB '
                          f'to the Q/DQ form, {sqnr(reference, codes):.1f} dB to float', flush=True)
                    if agree < least[name]:
                        failures.append(f'{model} integers {optimized}')
                own = sqnr(theirs, infer(integer, x, folder))
                print(f'{model} as integers in pare: {own:.1f} dB')
                if own < least[name] or not {'MatMulInteger', 'ConvInteger'} & ops:
                    failures.append(f'{model} integers in pare')
    for failure in failures:
        print('FAILED:', failure)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
