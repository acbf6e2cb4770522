"""Language models block by block: killed at each block and resumed, any threads, any batch: the same bytes.

A tiny Llama of random weights (scripts/synthetic_llama.py); prose-llama too where PARE_SHARED_DIR has it and --real is
given.
"""
import argparse
import os
import signal
import subprocess
import sys
import time

from harness import PARE, SOURCE, check, finish, pare, workplace

sys.path.insert(0, os.path.join(SOURCE, 'scripts'))
import synthetic_llama  # noqa: E402

SHARED = os.environ.get('PARE_SHARED_DIR') or os.path.join(SOURCE, '..', 'shared')
RECIPE = """version: 1
name: blocks
model: {{path: {model}}}
datasets:
  calibration: {{path: {text}, kind: text, window: {window}, samples: {samples}, batch: {batch}}}
calibrate: {{data: calibration, holdout: {holdout}}}
quantize:
  scheme: {scheme}
  method: {method}
  ignore: {ignore}
  blocks: {{inputs: {inputs}, activations: {activations}, memory: {memory}}}
"""
count = 0


def recipe(folder, name, **keys):
    values = dict(model='model', text='text.txt', window=32, samples=6, batch=64, holdout=2, scheme='int4', method='gptq', ignore='[lm_head]',
                  inputs='quantized', activations='float32', memory=64)
    values.update(keys)
    path = os.path.join(folder, name + '.yaml')
    with open(path, 'w') as file:
        file.write(RECIPE.format(**values))
    return path


def model_of(run):
    return {name: open(os.path.join(run, name), 'rb').read() for name in sorted(os.listdir(run))
            if name.startswith('model.onnx')}


def run(folder, name, *options, **keys):
    global count
    count += 1
    out = os.path.join(folder, name)
    result = pare('run', recipe(folder, name, **keys), '--out', out, *options)
    check(result.code == 0, name, result.err)
    return out


def kill_at(path, out, block, resume):
    """Runs until that block has been written, then kills; False when the run was over before."""
    process = subprocess.Popen([PARE, 'run', path, '--out', out, *(['--resume'] if resume else [])],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mark = os.path.join(out, 'layers', f'block-{block:04d}')
    while process.poll() is None and not os.path.exists(mark):
        time.sleep(0.002)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def same_bytes(folder, blocks, **keys):
    """One run in peace; one that is killed behind every block; threads and batches."""
    global count
    good = model_of(run(folder, 'good', **keys))
    check(good, 'good', 'no model was written')
    path, out, kills = recipe(folder, 'good', **keys), os.path.join(folder, 'killed'), 0
    for block in range(blocks):
        if not kill_at(path, out, block, block > 0):
            break
        kills += 1
        count += 1
        check(os.path.exists(os.path.join(out, 'layers', f'block-{block:04d}')), f'killed at block {block}', 'it is gone')
        finals = [name for name in os.listdir(out) if name == 'model.onnx']
        check(not finals or block + 1 == blocks, f'killed at block {block}', f'{finals} is there already')
    check(kills + 1 >= blocks, 'kills', f'{kills} of {blocks}')
    result = pare('run', path, '--out', out, '--resume')
    count += 1
    check(result.code == 0, 'resume', result.err)
    check(model_of(out) == good, 'killed at every block', 'the models differ')
    for name, more, options in (('one thread', {}, ['--threads', '1']), ('batch 1', {'batch': 1}, []),
                                ('batch 2', {'batch': 2}, ['--threads', '1']), ('batch 7', {'batch': 7}, ['--threads', '2'])):
        # The recipe's hash stands in the model; the batch is part of it.
        mine = model_of(run(folder, name.replace(' ', ''), *options, **{**keys, **more}))
        if 'batch' in more:
            mine, wanted = strip(mine), strip(good)
        else:
            wanted = good
        check(mine == wanted, name, 'the models differ')


def strip(files):
    """Without the hash of the recipe in the metadata."""
    out = {}
    for name, content in files.items():
        at = content.find(b'pare.recipe')
        out[name] = content if at < 0 else content[:at + 11] + content[at + 11 + 80:]
    return out


parser = argparse.ArgumentParser()
parser.add_argument('--real', action='store_true')
options = parser.parse_args()
with workplace() as folder:
    synthetic_llama.make('tiny', os.path.join(folder, 'model'), shard_bytes=100_000)
    with open(os.path.join(folder, 'text.txt'), 'w') as file:
        file.write('The quick brown fox jumps over the lazy dog, and %d sheep look on. ' * 40 % tuple(range(40)))
    if options.real:
        prose = os.path.join(SHARED, 'models', 'prose-llama')
        same_bytes(folder, 9, model=prose, text=os.path.join(SHARED, 'data', 'prose', 'calibration.txt'), samples=4)
        finish(count)
    same_bytes(folder, 4)

    # Other ways of holding activations: in a file the same bytes, in bfloat16 and from float blocks others.
    base = model_of(run(folder, 'peace'))
    spilled = run(folder, 'spilled', memory=0)
    check(strip(model_of(spilled)) == strip(base), 'spilled', 'the models differ')
    report = open(os.path.join(spilled, 'report.json')).read()
    check('in a file' in report, 'spilled', 'the report does not say where activations were')
    for name, more in (('halves', {'activations': 'bfloat16'}), ('float', {'inputs': 'float'})):
        check(strip(model_of(run(folder, name, **more))) != strip(base), name, 'the models are the same')

    # Activations are quantized too, with each block's own statistics; every method goes through.
    for name, more in (('w8a8', {'scheme': 'int8', 'method': 'smoothquant'}), ('awq', {'method': 'awq'}),
                       ('auto', {'method': 'auto', 'scheme': 'nvfp4'})):
        first = run(folder, name, **more)
        again = run(folder, name + '-again', '--threads', '1', **more)
        check(model_of(first) == model_of(again), name, 'one thread gives another model')

    # pare quantize does the same without a folder.
    out = os.path.join(folder, 'direct.onnx')
    result = pare('quantize', os.path.join(folder, 'model'), '--format', 'int4', '--method', 'gptq', '--blocks', 'quantized',
                  '--data', os.path.join(folder, 'text.txt') + ':window=32,samples=6', '--exclude', 'lm_head', '-o', out)
    check(result.code == 0 and os.path.exists(out), 'quantize', result.err)
    check(not [n for n in os.listdir(folder) if n.startswith('.direct')], 'quantize', 'something was left behind')
    count += 1

    # As a quantized checkpoint, which is a model again.
    out = os.path.join(folder, 'packed')
    result = pare('quantize', os.path.join(folder, 'model'), '--format', 'int4', '--group-size', '32', '--method', 'gptq',
                  '--blocks', 'quantized', '--data', os.path.join(folder, 'text.txt') + ':window=32,samples=6', '--export',
                  'compressed_tensors', '-o', out)
    check(result.code == 0 and os.path.exists(os.path.join(out, 'config.json')), 'checkpoint', result.err)
    check(pare('inspect', out).code == 0, 'checkpoint', 'it does not open')
    count += 1

    # Memory as it was foreseen, where one thing or another takes most: a wide head that stays float takes none, one that gets
    # codes takes most of all; wide layers, whose matrices do.
    for name, shape, more in (('wide', dict(hidden=256, intermediate=512, vocabulary=65536, tied=True), {}),
                              ('wide-head', dict(hidden=256, intermediate=512, vocabulary=65536, tied=True), {'ignore': '[]'}),
                              ('deep', dict(hidden=512, intermediate=3072, vocabulary=4096, tied=False), {})):
        synthetic_llama.SHAPES[name] = dict(layers=2, heads=4, kv_heads=2, head=64, positions=256, **shape)
        synthetic_llama.make(name, os.path.join(folder, name + '-model'))
        out = os.path.join(folder, name)
        result = pare('run', recipe(folder, name, model=name + '-model', window=128, samples=6, **more), '--out', out, '--json')
        check(result.code == 0, name, result.err)
        memory = next(p for p in result.json()['predictions'] if p['what'] == 'most memory allocated')
        ratio = memory['predicted'] / memory['measured']
        print(f"{name}: predicted {memory['predicted'] / 1e6:.0f} MB, measured {memory['measured'] / 1e6:.0f} MB, ratio {ratio:.2f}")
        check(0.75 < ratio < 1.3, f'{name}: memory foreseen', memory)
        count += 2
        if name == 'wide':  # the head as float32 alone would be 67 MB
            check(memory['measured'] < 130e6, f'{name}: a float head is never widened', memory)

    # What cannot be.
    with open(os.path.join(folder, 'short.txt'), 'w') as file:
        file.write('Too short.')
    for name, code, words, keys in (('short', 2, 'window', {'text': 'short.txt'}),
                                    ('words', 2, 'quantized', {'inputs': 'quantised'})):
        count += 1
        result = pare('run', recipe(folder, name, **keys), '--out', os.path.join(folder, name))
        check(result.code == code and words in result.err, name, result.code, result.err)
    count += 1
    result = pare('quantize', os.path.join(SOURCE, 'examples', 'fashion', 'resnet.onnx'), '--format', 'int4', '--method',
                  'gptq', '--blocks', 'float', '-o', out)
    check(result.code == 2 and '--data' in result.err, 'no data', result.err)
finish(count)
