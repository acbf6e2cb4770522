"""What a peer makes of a task: quantizes with it, runs its file, prints one JSON line a row.

    SHARED=DIR python3 run_peer.py (onnxruntime|modelopt) OUT.jsonl [TASK...]

Rows: {task, tool, version, format, method, metric, value, sqnr_db, bytes, seconds, peak_mib} or {..., failed}. Files are
run by ONNX Runtime with its graph optimizations off: the arithmetic of the Q/DQ file as it stands. Every row is made in a
process of its own, so that its peak memory is its own.
"""
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime as ort

from tasks import append, has, sqnr, tasks

warnings.filterwarnings('ignore')


def run(model, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    return [session.run(None, x) for x in feeds]


class Reader:
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def prepared(task, place, opset=17):
    from onnxruntime.quantization.shape_inference import quant_pre_process
    source, out = os.path.join(place, 'source.onnx'), os.path.join(place, 'prepared.onnx')
    model = onnx.load(task.model)
    if next(o.version for o in model.opset_import if not o.domain) < 13:
        model = onnx.version_converter.convert_version(model, opset)  # what it writes for older ones is not loaded by itself
    onnx.save(model, source)
    try:
        quant_pre_process(source, out, skip_symbolic_shape=True)
        return out
    except Exception:
        return source


def ort_static(task, place, out, activation, symmetric, weight, method):
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    quantize_static(prepared(task, place), out, Reader(task.feeds('calibration')), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=getattr(QuantType, activation), weight_type=getattr(QuantType, weight),
                    calibrate_method=getattr(CalibrationMethod, method), extra_options={'ActivationSymmetric': symmetric})


def ort_nbits(task, place, out, bits, block, symmetric, algorithm):
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits
    from onnxruntime.quantization import QuantFormat
    model = onnx.load(prepared(task, place))
    config = {
        'rtn': lambda: nbits.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, quant_format=QuantFormat.QDQ, bits=bits),
        'hqq': lambda: nbits.HQQWeightOnlyQuantConfig(block_size=block, bits=bits, quant_format=QuantFormat.QDQ),
    }[algorithm]()
    quantizer = nbits.MatMulNBitsQuantizer(model, algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(out)


def modelopt(task, place, out, mode, method, **more):
    from modelopt.onnx.quantization import quantize
    feeds = list(task.feeds('calibration'))
    name = next(iter(feeds[0]))
    data = {name: np.concatenate([x[name] for x in feeds])}
    quantize(prepared(task, place), quantize_mode=mode, calibration_data=data, calibration_method=method, output_path=out,
             calibration_eps=['cpu'], high_precision_dtype='fp32', log_level='ERROR', **more)


def rows(tool):
    if tool == 'onnxruntime':
        for method in ('MinMax', 'Percentile', 'Entropy'):
            for activation, symmetric in (('QInt8', True), ('QUInt8', False)):
                yield f'W8A8 {"symmetric" if symmetric else "uint8"}', method.lower(), ort_static, (activation, symmetric, 'QInt8', method)
        yield 'W8A16', 'minmax', ort_static, ('QInt16', True, 'QInt8', 'MinMax')
        yield 'FP8', 'distribution', ort_static, ('QFLOAT8E4M3FN', True, 'QFLOAT8E4M3FN', 'Distribution')
        for block in (128, 64, 32):
            for symmetric in (True, False):
                yield f'INT4 g{block} {"sym" if symmetric else "asym"}', 'rtn', ort_nbits, (4, block, symmetric, 'rtn')
            yield f'INT4 g{block} asym', 'hqq', ort_nbits, (4, block, False, 'hqq')
    else:
        yield 'W8A8 symmetric', 'max', modelopt, ('int8', 'max')
        yield 'W8A8 symmetric', 'entropy', modelopt, ('int8', 'entropy')
        yield 'FP8', 'max', modelopt, ('fp8', 'max')
        yield 'INT4 g128 sym', 'rtn_dq', modelopt, ('int4', 'rtn_dq')
        for block in (64, 32):
            yield f'INT4 g{block} sym', 'rtn_dq', modelopt_block, (block, 'rtn_dq')
        yield 'INT4 g128 sym', 'awq_clip', modelopt, ('int4', 'awq_clip')


def modelopt_block(task, place, out, block, method):
    modelopt(task, place, out, 'int4', method, block_size=block)


def measure(task, tool, form, method, function, arguments, reference, pipe):
    row = {'task': task.name, 'tool': tool, 'format': form, 'method': method, 'metric': task.metric}
    start = time.time()
    try:
        with tempfile.TemporaryDirectory() as place:
            out = os.path.join(place, 'out.onnx')
            sys.stdout = open(os.devnull, 'w')
            function(task, place, out, *arguments)
            sys.stdout = sys.__stdout__
            row['seconds'] = round(time.time() - start, 1)
            row['peak_mib'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            row['bytes'] = sum(os.path.getsize(os.path.join(place, f)) for f in os.listdir(place) if f.startswith('out.onnx'))
            outputs = run(out, task.feeds('test'))
            row['value'], row['sqnr_db'] = task.judge(reference, outputs), round(float(sqnr(reference, outputs)), 2)
    except BaseException as error:  # what the peer cannot do is part of the answer
        lines = str(error).strip().splitlines()
        row['failed'] = f'{type(error).__name__}: {lines[0][:160] if lines else ""}'
    pipe.send(row)


def main():
    tool = sys.argv[1]
    version = ort.__version__ if tool == 'onnxruntime' else __import__('modelopt').__version__
    out, only = sys.argv[2], os.environ.get('ROWS', '')
    for task in tasks(sys.argv[3:]):
        reference = run(task.model, task.feeds('test'))
        if tool == 'onnxruntime' and not has(out, task.name, 'float', '', ''):
            append(out, {'task': task.name, 'tool': 'float', 'format': '', 'method': '', 'metric': task.metric,
                         'value': task.judge(reference, reference), 'bytes': os.path.getsize(task.model)})
        for form, method, function, arguments in rows(tool):
            if only not in f'{form} {method}' or has(out, task.name, tool, form, method):
                continue
            here, there = multiprocessing.Pipe()
            child = multiprocessing.get_context('fork').Process(target=measure, args=(task, tool, form, method, function, arguments, reference, there))
            child.start()
            there.close()
            try:
                row = here.recv()
            except EOFError:
                row = {'task': task.name, 'tool': tool, 'format': form, 'method': method, 'failed': 'the process died'}
            child.join()
            append(out, {**row, 'version': version})


if __name__ == '__main__':
    main()
