#!/usr/bin/env python3
"""Quantizes the models of examples/fashion with the program and holds each result to onnxruntime_agrees.py.

    tests/interop/written_models.py [MODEL...]      finds the program in the variable PARE; needs examples/fashion
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FASHION = os.path.join(os.path.dirname(os.path.dirname(HERE)), 'examples', 'fashion')
DATA = 'layout=nhwc_to_nchw,scale=1/255,mean=0.286,std=0.353'


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(f'exit {done.returncode}: {" ".join(command)}\n{done.stdout}')
    return done


def main():
    program = os.environ['PARE']
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for model in sys.argv[1:] or ['resnet', 'mobilenet', 'vit']:
            source = os.path.join(FASHION, model + '.onnx')
            for scheme in ['int8', 'fp8']:
                output = os.path.join(folder, f'{model}-{scheme}.onnx')
                images = os.path.join(FASHION, 'fashion_calibration_images.npy')
                written = run(program, 'quantize', source, '--format', scheme, '--data', f'{images}:{DATA}', '--samples', '64',
                              '--method', 'search', '--calibrator', 'mse', '-o', output, '--quiet')
                agrees = written.returncode == 0 and run(
                    sys.executable, os.path.join(HERE, 'onnxruntime_agrees.py'), output, source, '--pare', program,
                    '--images', '300', '--skip-optimized')
                if not agrees or agrees.returncode != 0:
                    failed.append(f'{model} {scheme}')
                else:
                    print(f'{model} {scheme}: {agrees.stdout.strip()}')
    print(f'failed: {", ".join(failed)}' if failed else 'every model agrees')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
