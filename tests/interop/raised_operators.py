"""What reading made of operators of com.microsoft and ai.onnx.ml, written again in standard ones: ONNX Runtime computes the same
as it did with its own operators (tests/golden/microsoft)."""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def tensor(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def check(folder, written):
    subprocess.run([os.environ['PARE'], 'surgeon', 'simplify', str(folder / 'model.onnx'), '-o', written], check=True, capture_output=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(written, options, providers=['CPUExecutionProvider'])
    data = folder / 'test_data_set_0'
    feeds = {value.name: tensor(data / f'input_{i}.pb') for i, value in enumerate(session.get_inputs())}
    for i, got in enumerate(session.run(None, feeds)):
        want = tensor(data / f'output_{i}.pb')
        if want.dtype == object:
            assert [str(v) for v in got.flat] == [v.decode() if isinstance(v, bytes) else str(v) for v in want.flat]
            continue
        # Codes may be neighbours; float results of dynamically quantized products differ by the rounding of a scale.
        atol = 1 if want.dtype in (np.uint8, np.int8) else 2e-3
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-3, atol=atol)


def main():
    root = pathlib.Path(os.environ['PARE_SOURCE_DIR']) / 'tests' / 'golden' / 'microsoft'
    folders, wrong = sorted(root.iterdir()), 0
    with tempfile.TemporaryDirectory() as temporary:
        for folder in folders:
            try:
                check(folder, temporary + '/written.onnx')
            except Exception as error:  # pylint: disable=broad-except
                print(f'{folder.name}: {str(error)[:400]}')
                wrong += 1
    print(f'{len(folders)} models, {wrong} of them wrong')
    return 1 if wrong or len(folders) < 100 else 0


if __name__ == '__main__':
    sys.exit(main())
