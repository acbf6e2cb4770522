#!/usr/bin/env python3
"""`pare surgeon simplify` beside onnxslim and onnxsim on real models: nodes left, seconds, outputs.

    tests/bench/simplify_vs_others.py PARE MODEL.onnx...     needs a Python with onnxslim, onnxsim and onnxruntime
    [--repeats N]                                            (pip install onnxslim==0.1.98 onnxsim==0.8.1 onnxruntime)

Nodes: of all graphs, Constant nodes left out. Seconds: whole processes from start to written file, alternating, the median of
the repeats; `pare` compares outputs on generated inputs in that time, the others are asked to leave their check out. Outputs of
what pare wrote are held against the original's by ONNX Runtime on inputs from N(0,1). Exit 1 when they differ by more than 1e-3 of the
largest value, when pare leaves more nodes than the better of the two, or takes longer than the faster of the two.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime


def count(graph):
    n = 0
    for node in graph.node:
        n += node.op_type != 'Constant'
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                n += count(attribute.g)
    return n


SLIM = 'import sys, onnxslim, onnx; onnx.save(onnxslim.slim(sys.argv[1]), sys.argv[2])'
SIM = 'import sys, onnxsim, onnx; onnx.save(onnxsim.simplify(sys.argv[1], check_n=0)[0], sys.argv[2])'


def commands(pare, model, folder):
    return {
        'pare': [pare, 'surgeon', 'simplify', model, '-o', f'{folder}/pare.onnx', '--quiet'],
        'onnxslim': [sys.executable, '-c', SLIM, model, f'{folder}/onnxslim.onnx'],
        'onnxsim': [sys.executable, '-c', SIM, model, f'{folder}/onnxsim.onnx'],
    }


def make(value, random, size, name):
    dims = [d if isinstance(d, int) and d > 0 else None for d in value.shape]
    shape = [d or (1 if i == 0 else size) for i, d in enumerate(dims)]
    if 'silero' in name:
        shape = {'input': [1, 576], 'state': [2, 1, 128], 'h': [1, 1, 128], 'c': [1, 1, 128]}.get(value.name, shape)
    kind = value.type
    if kind == 'tensor(int64)':
        return np.full(shape, 16000, np.int64) if value.name == 'sr' else random.integers(0, 2, shape)
    if kind == 'tensor(int32)':
        return random.integers(0, 2, shape).astype(np.int32)
    if kind == 'tensor(bool)':
        return random.integers(0, 2, shape).astype(bool)
    return random.standard_normal(shape).astype({'tensor(double)': np.float64, 'tensor(float16)': np.float16}.get(kind, np.float32))


def difference(first, second, name):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    a, b = (onnxruntime.InferenceSession(p, options, providers=['CPUExecutionProvider']) for p in (first, second))
    why = ''
    for size in (64, 320, 8, 576, 2048):
        random = np.random.default_rng(1)
        feeds = {v.name: make(v, random, size, name) for v in a.get_inputs()}
        try:
            x = a.run(None, feeds)
        except Exception as error:  # another size then
            why = str(error)
            continue
        worst = 0.0
        for p, q in zip(x, b.run(None, feeds)):
            if p.dtype.kind == 'f':
                worst = max(worst, float(np.abs(p - q).max() / max(np.abs(p).max(), 1e-30)) if p.size else 0.0)
            elif not np.array_equal(p, q):
                worst = np.inf
        return worst
    return f'not run: {why[:80]}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('pare')
    parser.add_argument('models', nargs='+')
    parser.add_argument('--repeats', type=int, default=3)
    arguments = parser.parse_args()
    failed = []
    print('| model | nodes | pare | onnxslim | onnxsim | pare s | onnxslim s | onnxsim s | outputs differ by |')
    print('| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |')
    for model in arguments.models:
        name = os.path.basename(model)
        with tempfile.TemporaryDirectory() as folder:
            seconds = {k: [] for k in commands('', '', '')}
            broken = set()
            for _ in range(arguments.repeats):
                for tool, command in commands(arguments.pare, model, folder).items():
                    if tool in broken:
                        continue
                    start = time.time()
                    done = subprocess.run(command, capture_output=True)
                    seconds[tool].append(time.time() - start)
                    if done.returncode != 0 or not os.path.exists(f'{folder}/{tool}.onnx'):
                        broken.add(tool)
                        if tool == 'pare':
                            print(done.stderr.decode())
            nodes = {t: count(onnx.load(f'{folder}/{t}.onnx').graph) if t not in broken else None for t in seconds}
            median = {t: statistics.median(seconds[t]) if t not in broken else None for t in seconds}
            worst = difference(model, f'{folder}/pare.onnx', name) if 'pare' not in broken else 'failed'
        show = lambda v, f: '-' if v is None else format(v, f)
        print(f'| {name} | {count(onnx.load(model).graph)} | ' + ' | '.join(show(nodes[t], 'd') for t in nodes) + ' | ' +
              ' | '.join(show(median[t], '.2f') for t in median) + f' | {worst if isinstance(worst, str) else format(worst, ".1e")} |', flush=True)
        others = [nodes[t] for t in ('onnxslim', 'onnxsim') if nodes[t] is not None]
        times = [median[t] for t in ('onnxslim', 'onnxsim') if median[t] is not None]
        if nodes['pare'] is None or isinstance(worst, str) or worst > 1e-3:
            failed.append(f'{name}: outputs')
        elif others and nodes['pare'] > min(others):
            failed.append(f'{name}: {nodes["pare"]} nodes')
        elif times and median['pare'] > min(times):
            failed.append(f'{name}: {median["pare"]:.2f} s')
    print('failed: ' + ', '.join(failed) if failed else 'at most as many nodes, in less time, with the same outputs')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
