#!/usr/bin/env python3
"""Models that `pare surgeon` changed, run by ONNX Runtime beside the originals.

    tests/interop/surgery_models.py [MODEL...]      finds the program in the variable PARE; needs examples/fashion

float16 (inputs and outputs kept, and changed too), recognition of standard operators where ONNX Runtime has them, and stripped and
restored weights. Exit 1 when outputs differ by more than stated.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

FASHION = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), 'examples', 'fashion')


def run(path, images):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    if session.get_inputs()[0].type == 'tensor(float16)':
        images = images.astype(np.float16)
    return session.run(None, {session.get_inputs()[0].name: images})[0].astype(np.float64)


def sqnr(x, y):
    noise = ((x - y) ** 2).sum()
    return 10 * np.log10((x ** 2).sum() / noise) if noise else np.inf


def exported(program):
    """Standard operators recognized in both of PyTorch's exporters' files: Attention, RotaryEmbedding, RMSNormalization, Swish ..."""
    failed, golden = [], os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'golden', 'exporters')
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(f[:-5] for f in os.listdir(golden) if f.endswith('.onnx')):
            out, arrays = os.path.join(folder, name + '.onnx'), np.load(os.path.join(golden, name.split('-')[0] + '.npz'))
            done = subprocess.run([program, 'surgeon', 'simplify', os.path.join(golden, name + '.onnx'), '--recognize', '-o', out, '--quiet'],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            worst = -np.inf
            try:
                session = onnxruntime.InferenceSession(out, providers=['CPUExecutionProvider'])
                outputs = session.run(None, {v.name: arrays[f'in_{i}'] for i, v in enumerate(session.get_inputs())})
                worst = min(sqnr(arrays[f'out_{i}'].astype(np.float64), y) for i, y in enumerate(outputs))
            except Exception as error:  # ONNX Runtime refuses the file
                print(error, done.stdout)
            if not worst >= 90:  # float32, some thirty layers
                failed.append(name)
            print(f'{name} recognized: {worst:.1f} dB')
    return failed


def main():
    program, failed = os.environ['PARE'], []
    pixels = np.load(os.path.join(FASHION, 'fashion_test_images.npy'))[:64]
    images = ((pixels.astype(np.float32) / 255 - 0.286) / 0.353).transpose(0, 3, 1, 2).copy()
    data = os.path.join(FASHION, 'fashion_calibration_images.npy') + ':layout=nhwc_to_nchw,scale=1/255,mean=0.286,std=0.353'
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or ['resnet', 'mobilenet', 'vit']:
            source, out, skeleton = os.path.join(FASHION, name + '.onnx'), os.path.join(folder, 'out.onnx'), os.path.join(folder, 'bare.onnx')
            reference = run(source, images)
            # dB that must be reached: float16 rounds to 2^-11 some dozen times in a row.
            cases = [('float16', 45, [['convert-precision', source, '--to', 'float16', '--data', data, '-o', out]]),
                     ('float16 with its inputs', 45, [['convert-precision', source, '--to', 'float16', '--convert-io', '--data', data, '-o', out]]),
                     ('recognized', 100, [['simplify', source, '--recognize', '-o', out]]),
                     ('restored', np.inf, [['strip-weights', source, '-o', skeleton], ['restore-weights', skeleton, '--from', source, '-o', out]])]
            for what, least, commands in cases:
                for command in commands:
                    done = subprocess.run([program, 'surgeon', *command, '--quiet'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    if done.returncode:
                        print(f'exit {done.returncode}: {command}\n{done.stdout}')
                try:
                    reached = sqnr(reference, run(out, images))
                except Exception as error:  # ONNX Runtime refuses the file
                    print(error)
                    reached = -np.inf
                if done.returncode or not reached >= least:
                    failed.append(f'{name} {what}')
                print(f'{name} {what}: {reached:.1f} dB')
    if not sys.argv[1:]:
        failed += exported(program)
    print(f'failed: {", ".join(failed)}' if failed else 'every model agrees')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
