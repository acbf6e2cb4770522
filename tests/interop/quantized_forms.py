#!/usr/bin/env python3
"""`pare convert --to qdq|qoperator` on models that ONNX Runtime's own tool quantized: ONNX Runtime runs both forms.

    tests/interop/quantized_forms.py      finds the program in the variable PARE; models of examples/fashion

Graph optimizations of ONNX Runtime are off, so QDQ is computed in float and QOperator in integers: a sum that lies on an edge
between two codes may fall to either side, and later layers amplify that. All codes inside the model are compared: 99.9 %
may differ by at most one step, and 198 of 200 images must get the same class. The form that comes back after two
conversions must compute what the first did, bit by bit, where both are QDQ. Also QAT import: `pare quantize` keeps the scales of a model that is
quantized in part and adds what is missing.
"""
import logging
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SOURCE = os.environ['PARE_SOURCE_DIR']
FASHION = os.path.join(SOURCE, 'examples', 'fashion')
DATA = 'layout=nhwc_to_nchw,scale=1/255,mean=0.286,std=0.353'


def images(count):
    raw = np.load(os.path.join(FASHION, 'fashion_calibration_images.npy'))[:count]
    return ((raw.reshape(len(raw), 28, 28, 1) / 255 - 0.286) / 0.353).astype(np.float32).transpose(0, 3, 1, 2)


class Reader(CalibrationDataReader):
    def __init__(self, name, count):
        self.rows = iter([{name: x[None]} for x in images(count)])

    def get_next(self):
        return next(self.rows, None)


def session(model):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])


def logits(path, x):
    s = session(path)
    return s.run(None, {s.get_inputs()[0].name: x})[0]


def convert(path, out, form):
    done = subprocess.run([os.environ['PARE'], 'convert', path, '-o', out, '--to', form, '--quiet'], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    onnx.checker.check_model(out)
    return done.stdout


def code_values(path, x):
    """All 8-bit values between nodes, by name."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    known = {o.name for o in model.graph.output}
    names = [o for n in model.graph.node if n.op_type in ('QuantizeLinear',) or n.op_type.startswith('QLinear') or n.op_type == 'QGemm'
             for o in n.output if o not in known]
    for name in names:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    s = session(model.SerializeToString())
    return dict(zip(names, s.run(names, {s.get_inputs()[0].name: x})))


def compare(name, a, b, x, failures, exact=False):
    """Shares of equal and of neighbouring codes of the tensors that both files have."""
    first, second = code_values(a, x), code_values(b, x)
    shared = [n for n in first if n in second]
    equal = near = total = 0
    worst = 0
    for n in shared:
        step = np.abs(first[n].astype(int) - second[n].astype(int))
        equal += int((step == 0).sum())
        near += int((step <= 1).sum())
        total += step.size
        worst = max(worst, int(step.max()))
    agree = float(np.mean(logits(a, x).argmax(1) == logits(b, x).argmax(1)))
    print(f'{name}: {len(shared)} tensors, {equal / total:.4%} equal codes, {near / total:.4%} within one step, worst {worst}, same class {agree:.1%}')
    if not shared or near / total < 0.999 or agree < 0.99 or (exact and equal != total):
        failures.append(name)


def qat(folder, model, failures):
    """Half of the model has Q/DQ by ONNX Runtime; pare keeps them bit by bit and adds the rest."""
    graph = onnx.load(model).graph
    convs = [n.name for n in graph.node if n.op_type in ('Conv', 'Gemm')]
    half, out = os.path.join(folder, 'half.onnx'), os.path.join(folder, 'whole.onnx')
    quantize_static(model, half, Reader('image', 32), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QInt8,
                    weight_type=QuantType.QInt8, nodes_to_quantize=convs[:len(convs) // 2], extra_options={'ActivationSymmetric': True})
    calibration = os.path.join(FASHION, 'fashion_calibration_images.npy')
    done = subprocess.run([os.environ['PARE'], 'quantize', half, '--format', 'int8', '--data', f'{calibration}:{DATA}', '--samples', '64', '-o', out, '--quiet'],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr)
        failures.append('qat')
        return

    def scales(path):
        g = onnx.load(path).graph
        constants = {t.name: onnx.numpy_helper.to_array(t) for t in g.initializer}
        return [constants[n.input[1]].tobytes() for n in g.node if n.op_type in ('QuantizeLinear', 'DequantizeLinear') and n.input[1] in constants]

    before, after = scales(half), scales(out)
    lost = [s for s in set(before) if s not in set(after)]
    x = images(200)
    agree = float(np.mean(logits(out, x).argmax(1) == logits(model, x).argmax(1)))
    print(f'qat: {len(before)} scales before, {len(after)} after, {len(lost)} lost, same class as float {agree:.1%}')
    if lost or len(after) <= len(before) or agree < 0.97:
        failures.append('qat')


def main():
    logging.disable(logging.WARNING)  # of the quantization tool
    failures = []
    x = images(200)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(FASHION, 'resnet.onnx')
        for form, other in [(QuantFormat.QOperator, 'qdq'), (QuantFormat.QDQ, 'qoperator')]:
            for kind, per_channel in [(QuantType.QUInt8, False), (QuantType.QInt8, True)]:
                name = f'{form.name} {kind.name}{" per channel" if per_channel else ""} to {other}'
                source, out, back = (os.path.join(folder, f'{n}.onnx') for n in ('source', 'out', 'back'))
                quantize_static(model, source, Reader('image', 32), quant_format=form, per_channel=per_channel, activation_type=kind, weight_type=QuantType.QInt8)
                convert(source, out, other)
                compare(name, source, out, x, failures)
                convert(out, back, 'qoperator' if other == 'qdq' else 'qdq')
                compare(name + ' and back', source, back, x, failures, exact=other == 'qoperator')
        qat(folder, model, failures)
    for name in failures:
        print('failed:', name)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
