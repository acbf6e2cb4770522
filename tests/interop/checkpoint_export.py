#!/usr/bin/env python3
"""Checkpoints as ONNX: what `pare convert --to onnx` makes of each family gives in ONNX Runtime what transformers
recorded (tests/golden/families), whole and a token at a time with the cache of keys and values. Quantized checkpoints
(tests/golden/quantized) give as codes what their dequantized weights give, in every bit where no sum has another order."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort

PARE = os.environ['PARE']
FAMILIES = os.path.join(os.environ['PARE_SOURCE_DIR'], 'tests', 'golden', 'families')
QUANTIZED = os.path.join(os.path.dirname(FAMILIES), 'quantized')
# Weights alone, in types that ONNX Runtime computes; the last two sort inputs by group, and multiply them by factors.
KINDS = {'awq': 0, 'ct_w4a16': 0, 'ct_w4a16_asym': 0, 'ct_w8a16': 0, 'gptq_3bit': 0, 'gptq_actorder': 1.8e-4, 'mo_w4a16_awq': 1.8e-4}
TOLERANCE = 1.8e-4  # tests/unit/graphsurgeon/families_test.cpp derives it


def tensors(path):
    data = open(path, 'rb').read()
    length = struct.unpack('<Q', data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    types = {'F32': np.float32, 'I64': np.int64}
    return {k: np.frombuffer(body[v['data_offsets'][0]:v['data_offsets'][1]], types[v['dtype']]).reshape(v['shape'])
            for k, v in header.items() if k != '__metadata__'}


def convert(folder, out, *flags):
    subprocess.run([PARE, 'convert', folder, '-o', out, *flags], check=True, stdout=subprocess.DEVNULL)


def session(folder, out, *flags, options=None):
    convert(folder, out, '--to', 'onnx', *flags)
    return ort.InferenceSession(out, options, providers=['CPUExecutionProvider'])


def quantized(kind, place):
    """ONNX Runtime's optimizer would round the inputs of 4 and 8 bit products: it stays off."""
    folder, floats, options = os.path.join(QUANTIZED, kind), os.path.join(place, 'floats'), ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    shutil.rmtree(floats, ignore_errors=True)
    convert(folder, floats, '--to', 'float')
    feed = {'input_ids': np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 35]], np.int64)}
    codes, plain = (session(f, os.path.join(place, 'm.onnx'), options=options).run(None, feed)[0] for f in (folder, floats))
    return np.abs(codes - plain).max()


def encoder(run, want):
    out = run.run(None, {k: want[k] for k in ('input_ids', 'attention_mask', 'token_type_ids')})[0]
    return np.abs(out - want['last_hidden_state']).max()


def whole(run, want, by_length):
    if by_length:  # longrope turns all of a text by its length: the prefill alone is what was recorded
        return np.abs(run.run(None, {'input_ids': want['input_ids'][:, :12]})[0] - want['prefill']).max()
    out = run.run(None, {'input_ids': want['input_ids']})[0]
    return np.abs(out - np.concatenate([want['prefill'], want['steps']], 1)).max()


def steps(run, want):
    ids, worst = want['input_ids'], 0
    feed = {'input_ids': ids[:, :12]}
    for i in run.get_inputs()[1:]:
        feed[i.name] = np.zeros((2, i.shape[1], 0, i.shape[3]), np.float32)
    names = [o.name for o in run.get_outputs()]
    for t in range(9):
        out = dict(zip(names, run.run(None, feed)))
        worst = max(worst, np.abs(out['logits'] - (want['prefill'] if t == 0 else want['steps'][:, t - 1:t])).max())
        feed = {n.replace('present', 'past_key_values'): out[n] for n in names[1:]}
        feed['input_ids'] = ids[:, 12 + t:13 + t]
    return worst


failures = 0
with tempfile.TemporaryDirectory() as place:
    for name in sorted(os.listdir(FAMILIES)):
        folder = os.path.join(FAMILIES, name)
        if not os.path.isdir(folder):
            continue
        want, out = tensors(os.path.join(folder, 'expected.safetensors')), os.path.join(place, name + '.onnx')
        checks = {'encoder': lambda: encoder(session(folder, out), want)} if 'last_hidden_state' in want else {
            'whole': lambda: whole(session(folder, out), want, name.endswith('longrope')), 'with cache': lambda: steps(session(folder, out, '--with-cache'), want)}
        for what, check in checks.items():
            worst = check()
            failures += not worst < TOLERANCE
            print(f'{"ok    " if worst < TOLERANCE else "FAILED"} {name}, {what}: {worst:.2g}')
    for name, most in KINDS.items():
        worst = quantized(name, place)
        failures += not worst <= most
        print(f'{"ok    " if worst <= most else "FAILED"} quantized {name}: {worst:.2g}')
sys.exit(1 if failures else 0)
