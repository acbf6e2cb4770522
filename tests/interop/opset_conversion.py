#!/usr/bin/env python3
"""onnx.checker accepts what `pare surgeon convert-opset` writes, and ONNX Runtime computes the same with it.

    tests/interop/opset_conversion.py      finds the program in the variable PARE; models of PARE_SHARED_DIR where it is there

The graphs differ where operators were replaced (Gelu, LayerNormalization), so outputs may differ by float32 rounding: at most
1e-5 of the largest value and 1e-5.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx

from external_data import MODELS, SOURCE, run

OPSETS = {'resnet': [11, 13, 25], 'vit': [11, 13, 17, 25], 'silero_vad_v6': [13, 21], 'ppocrv4_rec': [9, 17, 21]}


def main():
    failed, count = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for model, sizes in MODELS + [(os.path.join(SOURCE, 'examples/fashion/vit.onnx'), {})]:
            if not os.path.exists(model):
                continue
            name = os.path.splitext(os.path.basename(model))[0]
            reference = run(model, sizes)
            for opset in OPSETS[name]:
                count += 1
                out = os.path.join(folder, f'{name}_{opset}.onnx')
                subprocess.run([os.environ['PARE'], 'surgeon', 'convert-opset', model, '--opset', str(opset), '-o', out, '--quiet'], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                onnx.checker.check_model(out, full_check=True)
                assert onnx.load(out).opset_import[0].version == opset
                for a, b in zip(reference, run(out, sizes), strict=True):
                    if not np.allclose(a, b, rtol=0, atol=1e-5 * max(1.0, float(np.max(np.abs(a))))):
                        failed += 1
                        print(f'{name} at opset {opset}: outputs differ by {np.max(np.abs(a - b))}')
    print(f'{count} files, {failed} outputs differ')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
