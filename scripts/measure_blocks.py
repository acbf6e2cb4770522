#!/usr/bin/env python3
"""What large language models cost pare: time, rate and RssAnon, on checkpoints of random weights (synthetic_llama.py).

  PARE=build/release/bin/pare scripts/measure_blocks.py FOLDER [inspect] [rtn] [solve] [--shape 8b] [--layers N] [--keep]

inspect   opening the sharded checkpoint, best of five
rtn       plain rounding and scale search straight from the mapped files, one thread: GB/s of bfloat16 input
solve     GPTQ and AWQ block by block, 16 windows of 512 (--shape 1b; --layers 3 measures three and projects the rest)

Not a test: the 8B shape writes 16 GB below FOLDER, and 5 GB a format.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time

import synthetic_llama

PARE = os.environ.get('PARE') or sys.exit('set PARE to the program')
TEXT = 'The quick brown fox jumps over the lazy dog, and %d sheep look on.\n'


def measured(*arguments, limit=None):
    """Seconds, processor seconds, most RssAnon in bytes, output."""
    start, most, text = time.time(), 0, ''
    process = subprocess.Popen([PARE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None:
        try:
            with open(f'/proc/{process.pid}/status') as file:
                for line in file:
                    if line.startswith('RssAnon'):
                        most = max(most, int(line.split()[1]) * 1024)
        except OSError:
            pass
        if limit and time.time() - start > limit:
            process.kill()
        time.sleep(0.01)
    text = process.stdout.read()
    usage = os.times()
    return time.time() - start, usage.children_user + usage.children_system, most, process.returncode, text


def show(what, seconds, processor, most, code, text, size):
    rate = f', {size / processor / 1e9:.2f} GB/s a core ({size / seconds / 1e9:.2f} by the clock)' if size else ''
    print(f'{what}: {seconds:.1f} s, {processor:.1f} s of processor, RssAnon at most {most / 1e6:.0f} MB{rate}', flush=True)
    if code != 0:
        print(text[-2000:], flush=True)


parser = argparse.ArgumentParser()
parser.add_argument('folder')
parser.add_argument('what', nargs='*', default=['inspect', 'rtn'])
parser.add_argument('--shape', default='8b', choices=sorted(synthetic_llama.SHAPES))
parser.add_argument('--layers', type=int)
parser.add_argument('--formats', default='fp8_weights:rtn,int4:rtn,nvfp4:rtn,nvfp4:search')
parser.add_argument('--export', default='compressed_tensors')
parser.add_argument('--keep', action='store_true')
options = parser.parse_args()
model = os.path.join(options.folder, f'llama-{options.shape}-{options.layers or "all"}')
if not os.path.exists(os.path.join(model, 'tokenizer.json')):
    print(synthetic_llama.make(options.shape, model, options.layers), 'bytes written')
size = sum(os.path.getsize(os.path.join(model, name)) for name in os.listdir(model) if name.endswith('.safetensors'))
if 'inspect' in options.what:
    best = min(measured('inspect', model)[0] for _ in range(5))
    print(f'inspect of {size / 1e9:.1f} GB: {best * 1e3:.0f} ms')
spent = 0.0
if 'rtn' in options.what:
    for pair in options.formats.split(','):
        scheme, method = pair.split(':')
        out = os.path.join(options.folder, f'out-{scheme}-{method}')
        shutil.rmtree(out, ignore_errors=True)
        before = os.times()
        seconds, processor, most, code, text = measured('quantize', model, '--format', scheme, '--method', method, '--export',
                                                        options.export, '-o', out, '--threads', 1)
        processor -= before.children_user + before.children_system
        show(f'{scheme} {method}', seconds, processor, most, code, text, size)
        shutil.rmtree(out, ignore_errors=True)
if 'solve' in options.what:
    text = os.path.join(options.folder, 'text.txt')
    with open(text, 'w') as file:
        file.write(''.join(TEXT % i for i in range(400)))
    for method in ('gptq', 'awq'):
        out = os.path.join(options.folder, f'out-{method}.onnx')
        seconds, processor, most, code, output = measured(
            'quantize', model, '--format', 'int4', '--method', method, '--blocks', 'quantized', '--exclude', 'lm_head',
            '--data', f'{text}:window=512,samples=16', '-o', out)
        show(f'{method}, 16 windows of 512', seconds, 0, most, code, output, 0)
        print(output)
        for name in os.listdir(options.folder):
            if name.startswith(f'out-{method}.onnx'):
                os.remove(os.path.join(options.folder, name))
if not options.keep:
    shutil.rmtree(model)
