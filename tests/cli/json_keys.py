"""docs/json.md against the program: every key that is printed stands there, every key that stands there is printed."""
import os
import re
import sys

from harness import CALIBRATION, CHECKPOINT, FASHION, KEYS, RECIPE, RESNET, SMALL, SOURCE, TEST_IMAGES, TEST_LABELS, check, finish, pare, workplace

import numpy

# Only printed when something goes wrong that these runs cannot bring about.
NEVER_SEEN = {'audit.mismatches[].tensor', 'audit.mismatches[].what', 'left[].node', 'left[].why', 'nonfinite[].name', 'nonfinite[].nan', 'nonfinite[].inf', 'error.code', 'error.message', 'error.where', 'error.hint', 'error.others[].code', 'error.others[].message', 'error.others[].where', 'error.others[].hint'}

# What only a machine with a GPU prints, or one with the module of plain loops (the argument).
MODULE = sys.argv[1] if len(sys.argv) > 1 else None
GPU_ONLY = ()
if MODULE is None:
    NEVER_SEEN |= {'largest_batch', 'device_runs'}
    GPU_ONLY = ('tactics.', 'first_load.', 'realized_mismatches[]', 'profile[]')


def documented():
    text = open(os.path.join(SOURCE, 'docs', 'json.md')).read()
    return set(re.findall(r'^\| `([^`]+)` \|', text, re.M))


def paths(value, path=''):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f'{path}.{key}' if path else key)
        if not value and path:
            yield path + '.*'
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from paths(item, path + '[]')
    else:
        yield path


def match(path, keys):
    """The documented key that covers a printed path, or None. `a.*` covers everything below a."""
    if path in keys:
        return path
    parts = path.split('.')
    for n in range(len(parts) - 1, 0, -1):
        if '.'.join(parts[:n]) + '.*' in keys:
            return '.'.join(parts[:n]) + '.*'
    return None


def commands(folder):
    stats, parts, out = folder + '/all.h5', [folder + '/a.h5', folder + '/b.h5'], folder + '/int8.onnx'
    images = numpy.load(CALIBRATION)
    numpy.save(folder + '/a.npy', images[:8])
    numpy.save(folder + '/b.npy', images[8:20])
    array = ((images[:2] / 255 - 0.286) / 0.353).astype(numpy.float32).transpose(0, 3, 1, 2)
    numpy.save(folder + '/x.npy', array)
    numpy.save(folder + '/one.npy', array[:1])
    data = f'{CALIBRATION}:{KEYS},samples=64'
    yield ['run', RECIPE, '--out', folder + '/run', *SMALL[:-2], '--set', 'evaluate.metrics=[top1, output_sqnr_db, clipping_rate]']
    yield ['run', RECIPE, '--out', folder + '/dry', '--dry-run']
    yield ['report', folder + '/run']
    yield ['sensitivity', RESNET, '--format', 'int8', '--ops', 'Gemm', '--data', f'{CALIBRATION}:{KEYS}', '--samples', '16', '--judge-samples', '8']
    yield ['search', RESNET, '--formats', 'int8', '--formats', 'float', '--ops', 'Gemm', '--data', f'{CALIBRATION}:{KEYS}', '--samples', '16', '--judge-samples', '8', '--points', '2']
    yield ['bisect', RESNET, '--format', 'int8', '--ops', 'Gemm', '--data', f'{CALIBRATION}:{KEYS}', '--samples', '16', '--judge-samples', '8', '--least', '200']
    yield ['explain', folder + '/run', 'logits']
    yield ['run', RECIPE, '--out', folder + '/other', *SMALL, '--set', 'quantize.scheme=fp8', '--set', 'quantize.method=rtn',
           '--set', 'quantize.weights.format=fp8', '--set', 'quantize.activations.format=fp8']
    yield ['compare', folder + '/run', folder + '/other']
    yield ['inspect', RESNET, '--layers']
    yield ['inspect', CHECKPOINT, '--layers', '--verify-data']
    quantized = os.path.join(SOURCE, 'tests', 'golden', 'quantized', 'ct_w8a8')
    yield ['inspect', quantized, '--layers']
    yield ['convert', quantized, '-o', folder + '/checkpoint', '--to', 'compressed_tensors']
    yield ['generate', os.path.join(SOURCE, 'tests', 'golden', 'generate'), '--prompt', 'abc', '--max-tokens', '3']
    yield ['generate', os.path.join(SOURCE, 'tests', 'golden', 'generate'), '--chat', '--system', 'x', '--prompt', 'abc', '--max-tokens', '3']
    yield ['infer', RESNET, '--input', f'image={folder}/x.npy']
    yield ['surgeon', 'simplify', RESNET, '-o', folder + '/small.onnx']
    yield ['surgeon', 'convert-opset', os.path.join(FASHION, 'vit.onnx'), '--opset', '11', '-o', folder + '/older.onnx']
    yield ['surgeon', 'externalize', RESNET, '-o', folder + '/outside.onnx']
    yield ['surgeon', 'simplify', '--list-passes']
    yield ['surgeon', 'simplify', RESNET, '--bisect', '--tolerance', '1e-9']
    yield ['surgeon', 'extract', RESNET, '--inputs', '/2/Relu_output_0', '-o', folder + '/part.onnx']
    yield ['surgeon', 'prune', RESNET, '--keep', 'logits', '--dry-run']
    yield ['surgeon', 'set-shape', RESNET, '--dim', 'batch=2', '--dry-run']
    yield ['surgeon', 'rename', RESNET, '--input', 'image=pixels', '--dry-run']
    yield ['surgeon', 'convert-precision', RESNET, '--to', 'float16', '--block', 'Gemm', '-o', folder + '/half.onnx']
    yield ['surgeon', 'strip-weights', RESNET, '-o', folder + '/skeleton.onnx']
    yield ['surgeon', 'restore-weights', folder + '/skeleton.onnx', '--from', RESNET, '-o', folder + '/whole.onnx']
    yield ['surgeon', 'diff', RESNET, folder + '/small.onnx']
    for part in 'ab':
        yield ['calibrate', RESNET, '--data', f'{folder}/{part}.npy:{KEYS}', '-o', f'{folder}/{part}.h5']
    yield ['stats', 'merge', *parts, '-o', stats]
    yield ['stats', 'show', stats]
    yield ['stats', 'show', stats, '--tensor', 'image']
    yield ['stats', 'export-trt-cache', stats, '-o', folder + '/int8.cache']
    text = open(folder + '/int8.cache').read() + 'of another model: 3c010a14\n'
    open(folder + '/more.cache', 'w').write(text)
    yield ['quantize', RESNET, '--format', 'int8', '-o', out, '--stats', folder + '/more.cache']
    yield ['quantize', RESNET, '--format', 'int8', '-o', out, '--stats', stats]
    yield ['quantize', RESNET, '--format', 'int8', '-o', out, '--data', data, '--ops', 'Conv']
    yield ['quantize', CHECKPOINT, '--format', 'W4A16', '--group-size', '8', '--export', 'compressed_tensors', '-o', folder + '/codes']
    yield ['convert', out, '-o', folder + '/codes.onnx', '--to', 'qoperator']
    yield ['eval', out, '--reference', RESNET, '--data', f'{TEST_IMAGES}:labels={TEST_LABELS},{KEYS},samples=32', '--gate',
           'top1_drop<=1', '--report', folder + '/report']
    yield ['bench', RESNET, '--iterations', '2', '--profile-layers']
    yield ['build', RESNET, '--plan-only', '--profile', 'batch=1x2x4']
    engine = folder + '/resnet.engine'
    yield ['build', out, '-o', engine, '--device', 'cpu', '--profile', 'batch=1x2x4', '--weights-apart']
    yield ['inspect', engine]
    yield ['compare', engine, engine]
    yield ['bench', engine, '--iterations', '2', '--profile-layers', '--contexts', '2']
    yield ['verify', engine, '--reference', out, '--data', data, '--samples', '8']
    yield ['recipe', 'list']
    yield ['recipe', 'show', 'builtin/int8']
    yield ['recipe', 'check', RECIPE]
    yield ['recipe', 'schema']
    yield ['recipe', 'init', folder + '/r.yaml', '--model', RESNET]
    yield ['ops']
    yield ['ops', '--formats']
    yield ['doctor']
    os.environ['XDG_CACHE_HOME'] = folder + '/cache'
    os.makedirs(folder + '/cache/pare')
    for name in ('onnx-build.log', 'photo.jpg'):
        open(folder + '/cache/pare/' + name, 'w').close()
    yield ['cache', 'show']
    yield ['cache', 'clean', '--all', '--dry-run']
    yield ['reference']
    yield ['completion', 'bash']
    yield ['man', folder + '/man']
    yield ['--version']
    if MODULE is None:
        return
    os.environ.update(PARE_CUDA_MODULE=MODULE, PARE_PLAIN_SLOW='int8')
    there = ['--device', 'cuda']
    yield ['build', RESNET, *there, '-o', folder + '/g.engine', '--profile', 'batch=1x2x4', '--timing-cache', folder + '/g.json']
    yield ['bench', folder + '/g.engine', '--iterations', '2', '--profile-layers', '--contexts', '2']
    yield ['inspect', folder + '/g.engine']
    yield ['build', out, *there, '-o', folder + '/g8.engine']
    yield ['verify', folder + '/g8.engine', '--reference', out, '--input', f'image={folder}/one.npy', '--strict-precision']
    yield ['build', RESNET, '-o', folder + '/gp.engine', '--portable', 'sm_90a']
    yield ['bench', folder + '/gp.engine', '--iterations', '2']
    yield ['build', RESNET, '-o', folder + '/gr.engine', '--refit', folder + '/g.engine']
    yield ['calibrate', RESNET, '--data', data, '--samples', '4', '-o', folder + '/g.h5', *there]


keys, seen, count = documented(), set(), 0
with workplace() as folder:
    for command in commands(folder):
        count += 1
        name = ' '.join(command[:2])
        result = pare(*command, '--json')
        if not check(result.code in (0, 1), name, result.code, result.err):
            continue
        document = result.json()
        check(list(document)[:2] == ['pare', 'command'], name, 'pare and command come first')
        for path in paths(document):
            found = match(path, keys)
            if found is None and not path.endswith('.*'):  # an empty list or object may have any documented form
                inner = [k for k in keys if k.startswith(path + '[]') or k.startswith(path + '.')]
                found = inner[0] if inner else None
                if inner:
                    continue
            check(found is not None or path.endswith('.*'), name, f'prints `{path}`, which docs/json.md does not have')
            seen.add(found)
    missing = {k for k in keys - seen - NEVER_SEEN if not k.startswith(('metadata.', 'metrics_integer.') + GPU_ONLY)}
    check(not missing, 'docs/json.md', f'never printed: {sorted(missing)}')
finish(count)
