"""Networks by both of PyTorch's exporters (tests/golden/exporters): quantized on data, and run."""
import os

from harness import SOURCE, check, finish, pare, workplace

import numpy

FOLDER = os.path.join(SOURCE, 'tests', 'golden', 'exporters')
# Inputs by name; the rest of a sample's shape is the golden input's.
INPUTS = {'resnet': ['image'], 'vit': ['image'], 'bert': ['ids', 'mask'], 'lstm': ['x'], 'detector': ['image'], 'decoder': ['ids']}
# dB of the worst output against the float model. Random weights and 8 bits: a plain network reaches some 25 dB, the detector's
# exponential of a size and the softmax of wide scores less.
LEAST = {'resnet': 20, 'vit': 15, 'bert': 15, 'lstm': 20, 'detector': 10, 'decoder': 10}


def sqnr(x, y):
    noise = ((x.astype(float) - y) ** 2).sum()
    return 10 * numpy.log10((x.astype(float) ** 2).sum() / noise) if noise else numpy.inf


count = 0
with workplace() as folder:
    for name, inputs in INPUTS.items():
        golden = numpy.load(os.path.join(FOLDER, name + '.npz'))
        random = numpy.random.default_rng(5)
        arrays = {}
        for i, key in enumerate(inputs):
            one = golden[f'in_{i}']
            shape = (16,) + one.shape[1:]
            if one.dtype == numpy.int64:
                arrays[key] = random.integers(0, 2 if key == 'mask' else 40, shape)
            else:
                arrays[key] = random.standard_normal(shape).astype(one.dtype)
        if 'mask' in arrays:
            arrays['mask'][:, 0] = 1
        data = f'{folder}/{name}.npz'
        numpy.savez(data, **arrays)
        for i, key in enumerate(inputs):
            numpy.save(f'{folder}/{key}.npy', golden[f'in_{i}'])
        for kind in ('script', 'dynamo'):
            count += 1
            model, out, saved = os.path.join(FOLDER, f'{name}-{kind}.onnx'), f'{folder}/{name}-{kind}.onnx', f'{folder}/{name}-{kind}'
            done = pare('quantize', model, '--format', 'int8', '--data', data, '--samples', '12', '-o', out, '--json')
            if not check(done.code == 0, f'{name} {kind}: quantize', done.code, done.err):
                continue
            check(done.json()['audit']['passed'] and done.json()['quantized'], f'{name} {kind}: something is quantized', done.json())
            given = [part for key in inputs for part in ('--input', f'{key}={folder}/{key}.npy')]
            run = pare('infer', out, *given, '--save', saved)
            if not check(run.code == 0, f'{name} {kind}: infer', run.err):
                continue
            worst = min(sqnr(golden[k], numpy.load(f'{saved}/out_{k[4:]}.npy')) for k in golden.files if k.startswith('out_'))
            print(f'{name} {kind}: {worst:.1f} dB')
            check(worst >= LEAST[name], f'{name} {kind}: output', worst)
finish(count)
