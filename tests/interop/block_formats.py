#!/usr/bin/env python3
"""Weights and activations in every format of `pare quantize`: other programs load the files and compute the same.

    tests/interop/block_formats.py      finds the program in the variable PARE

Integers, INT4 and UINT4 in groups (a short last one too), FP8: ONNX Runtime, graph optimizations off. MatMulNBits: ONNX Runtime.
NVFP4, MXFP4, MXFP8: the reference evaluator of onnx. Files pass onnx.checker with full_check. Weights are compared exactly where
one operator computes them; outputs to 100 dB where weights alone are quantized (only the order of sums differs), and to 40 dB where
activations are (a value on the edge of two codes may fall to either side).
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_dequantize_linear import DequantizeLinear_23
from onnx.reference.ops.op_quantize_linear import QuantizeLinear_23


class DequantizeLinear(DequantizeLinear_23):
    """onnx 1.22 takes version 21, without output_dtype, for opset 24. Powers of two are widened."""
    op_domain = ''

    def _run(self, x, scale, *zero, axis=1, block_size=0, output_dtype=None):
        return super()._run(x, scale.astype(np.float32), *zero, axis=axis, block_size=block_size, output_dtype=output_dtype)


class QuantizeLinear(QuantizeLinear_23):
    op_domain = ''

    def _run(self, x, scale, *zero, axis=1, saturate=True, block_size=0, output_dtype=None, precision=None):
        return super()._run(x, scale.astype(np.float32), *zero, axis=axis, saturate=saturate, block_size=block_size,
                            output_dtype=output_dtype, precision=precision)


def sqnr(reference, other):
    reference = reference.astype(np.float64)
    noise = np.sum((reference - other) ** 2)
    return np.inf if noise == 0 else 10 * np.log10(np.sum(reference ** 2) / noise)


def model(path, width=130):
    """MatMul, Relu, Gemm and a convolution of 32 channels: blocks along every axis, and the last of 130 inputs short."""
    r = np.random.default_rng(5)

    def weight(name, *shape):
        return numpy_helper.from_array((r.standard_t(5, shape) * 0.1).astype(np.float32), name)

    nodes = [helper.make_node('Conv', ['x', 'wc', 'bc'], ['c'], pads=[1, 1, 1, 1], name='conv'),
             helper.make_node('GlobalAveragePool', ['c'], ['p']), helper.make_node('Flatten', ['p'], ['f']),
             helper.make_node('MatMul', ['f', 'wm'], ['m'], name='product'), helper.make_node('Relu', ['m'], ['a']),
             helper.make_node('Gemm', ['a', 'wg', 'bg'], ['y'], transB=1, name='last')]
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['n', 32, 6, 6])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', 24])],
                              [weight('wc', 64, 32, 3, 3), weight('bc', 64), weight('wm', 64, width), weight('wg', 24, width), weight('bg', 24)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)


def pare(*arguments):
    done = subprocess.run([os.environ['PARE'], *arguments, '--quiet'], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f'{arguments}: {done.stderr}')


def ours(path, x, folder):
    np.save(f'{folder}/x.npy', x)
    pare('infer', path, '--input', f'x={folder}/x.npy', '--save', folder)
    return np.load(f'{folder}/out_0.npy')


def theirs(path, x, runtime):
    if runtime == 'reference':
        return ReferenceEvaluator(onnx.load(path), new_ops=[DequantizeLinear, QuantizeLinear]).run(None, {'x': x})[0]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=['CPUExecutionProvider']).run(None, {'x': x})[0]


ORT, REF = 'onnxruntime', 'reference'
CASES = [  # scheme, further arguments, who judges, dB
    ('int8', [], ORT, 40), ('uint8', [], ORT, 40), ('a16w8', [], ORT, 40), ('fp8', [], ORT, 40), ('w4a8', [], ORT, 40),
    ('int4', [], ORT, 100), ('int4', ['--group-size', '16', '--exclude', 'last'], ORT, 100), ('uint4', [], ORT, 100), ('int3', [], ORT, 100),
    ('int2', [], ORT, 100), ('int8_weights', [], ORT, 100), ('fp8_weights', [], ORT, 100),
    ('int4', ['--export', 'matmul_nbits'], ORT, 100), ('uint4', ['--export', 'matmul_nbits'], ORT, 100),
    ('int2', ['--export', 'matmul_nbits'], ORT, 100), ('int8_weights', ['--export', 'matmul_nbits'], ORT, 100),
    ('int4', ['--group-size', '16', '--exclude', 'last', '--asymmetric', '--export', 'matmul_nbits'], ORT, 100),
    ('nvfp4', [], REF, 100), ('mxfp4', [], REF, 100), ('mxfp8', [], REF, 100),
    ('nvfp4_w4a4', [], REF, 40), ('mxfp4_w4a4', [], REF, 40), ('mxfp8_w8a8', [], REF, 40), ('nvfp4_fp8', [], REF, 40)]


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        source, out = f'{folder}/float.onnx', f'{folder}/out.onnx'
        model(source)
        r = np.random.default_rng(7)
        x = r.standard_normal((4, 32, 6, 6)).astype(np.float32)
        np.save(f'{folder}/calibration.npy', r.standard_normal((16, 32, 6, 6)).astype(np.float32))
        exact = theirs(source, x, ORT)
        for scheme, more, runtime, wanted in CASES:
            name = ' '.join([scheme, *more])
            try:
                pare('quantize', source, '--format', scheme, '--method', 'rtn', '--calibrator', 'minmax', '-o', out,
                     '--data', f'{folder}/calibration.npy', *more)
                onnx.checker.check_model(out, full_check=True)
                a, b = ours(out, x, folder), theirs(out, x, runtime)
            except Exception as error:  # any of three programs
                print(f'{name}: {error}')
                failures.append(name)
                continue
            between = sqnr(b, a)
            print(f'{name}: {between:.1f} dB between pare and {runtime}, {sqnr(exact, a):.1f} dB of its own')
            if between < wanted:
                failures.append(name)
    for name in failures:
        print('failed:', name)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
