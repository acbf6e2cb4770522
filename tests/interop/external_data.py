#!/usr/bin/env python3
"""ONNX Runtime and onnx.checker read what `pare surgeon externalize` writes; ONNX Runtime's outputs keep every bit.

    tests/interop/external_data.py      finds the program in the variable PARE; models of PARE_SHARED_DIR where it is there

Both forms (one file, a file for each tensor), Constant nodes inside If branches among them (Silero), and the way back.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

SOURCE, SHARED = os.environ['PARE_SOURCE_DIR'], os.environ.get('PARE_SHARED_DIR', '')
MODELS = [  # path, sizes of inputs with symbols
    (os.path.join(SOURCE, 'examples/fashion/resnet.onnx'), {}),
    (os.path.join(SHARED, 'models/silero/silero_vad_v6.onnx'), {'input': [1, 576], 'state': [2, 1, 128], 'sr': []}),
    (os.path.join(SHARED, 'models/ocr/ppocrv4_rec.onnx'), {'x': [1, 3, 48, 320]}),
]


def run(path, sizes):
    session = ort.InferenceSession(path, providers=['CPUExecutionProvider'])
    random, feed = np.random.default_rng(0), {}
    for value in session.get_inputs():
        shape = sizes.get(value.name, [d if isinstance(d, int) else 2 for d in value.shape])
        feed[value.name] = np.array(16000) if value.type == 'tensor(int64)' else random.standard_normal(shape).astype(np.float32)
    return session.run(None, feed)


def main():
    failed, count = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for model, sizes in MODELS:
            if not os.path.exists(model):
                continue
            reference = run(model, sizes)
            out, back = os.path.join(folder, 'out.onnx'), os.path.join(folder, 'back.onnx')
            for form in ['--one-file', '--file-per-tensor']:
                for arguments in [[model, '-o', out, form], [out, '-o', back, '--inline']]:
                    count += 1
                    subprocess.run([os.environ['PARE'], 'surgeon', 'externalize', *arguments, '--quiet'], check=True, stdout=subprocess.DEVNULL)
                    onnx.checker.check_model(arguments[2], full_check=True)
                    same = all(np.array_equal(a, b) for a, b in zip(reference, run(arguments[2], sizes), strict=True))
                    if not same:
                        failed += 1
                        print(f'{os.path.basename(model)} {form}: outputs differ')
    print(f'{count - failed} of {count} files give the same outputs')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
