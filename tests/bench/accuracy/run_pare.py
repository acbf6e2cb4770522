"""What pare makes of a task: one `pare run` a row, one JSON line each, as run_peer.py prints them.

    SHARED=DIR python3 run_pare.py PARE OUT.jsonl [TASK...]    ROWS=text: only rows whose 'format method' holds it

Rows that OUT.jsonl has already are not measured again. The recipe is the one of examples/ with its quantize section and gates replaced. Metrics are of fake quantization.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from tasks import SHARED, Fashion, append, has, tasks

GROUPS = {'resnet': (128, 64, 32), 'vit': (64, 32)}  # what divides all layers; for the other models pare fits its own
FEWER = 2000  # test images that plain rounding is judged by
METHODS = ('auto', 'rtn')  # what a user gets without a choice, and the plain rounding; methods.py compares the others


def group_size(group):
    return {'group_size': group} if group else {}


def rows(task):
    groups = GROUPS.get(task.name, (None,))
    for method in METHODS:
        calibrator = 'minmax' if method == 'rtn' else 'auto'
        yield 'W8A8 symmetric', method, {'scheme': 'int8', 'activations': {'calibrator': calibrator}}
        yield 'W8A8 uint8', method, {'scheme': 'uint8', 'activations': {'calibrator': calibrator}}
        yield 'W8A16', method, {'scheme': 'int8', 'activations': {'format': 'int16', 'calibrator': calibrator}}
        yield 'FP8', method, {'scheme': 'fp8', 'activations': {'calibrator': calibrator}}
        yield 'W4A8', method, {'scheme': 'w4a8', 'activations': {'calibrator': calibrator}, **group_size(groups[-1])}
        yield 'INT8 weights', method, {'scheme': 'int8_weights'}
        for group in groups:
            for symmetric in (True, False):
                yield (f'INT4{f" g{group}" if group else ""} {"sym" if symmetric else "asym"}', method,
                       {'scheme': 'int4', **group_size(group), 'weights': {'symmetric': symmetric}})
        for scheme in ('nvfp4', 'mxfp4', 'mxfp8', 'nvfp4_w4a4', 'mxfp4_w4a4', 'mxfp8_w8a8'):
            yield scheme.upper().replace('_', ' '), method, {'scheme': scheme}


def recipe_of(task, quantize):
    """The text of the task's recipe with another quantize section, without gates, paths absolute."""
    folder = os.path.dirname(os.path.abspath(task.recipe))
    blocks = re.split(r'^(?=\w)', open(task.recipe, encoding='utf-8').read(), flags=re.M)
    kept = [block for block in blocks if not re.match(r'quantize:|report:', block)]
    text = ''.join(re.sub(r'^  gates:.*\n(?:    .*\n)*', '', block, flags=re.M) if block.startswith('evaluate:') else block for block in kept)
    text = re.sub(r'((?:path|labels): )([\w.]+\.(?:onnx|npy))', lambda m: m[1] + os.path.join(folder, m[2]), text)
    text = re.sub(r'^evaluate:\n', 'evaluate:\n  arithmetic: fake\n  layer_samples: 64\n', text, flags=re.M)
    text = re.sub(r'^  layer_samples: 32\n', '', text, flags=re.M)
    text = re.sub(r'^extends:.*\n', 'surgery: [simplify]\nexport: {model: qdq_onnx}\n', text, flags=re.M)
    return text + 'quantize: ' + json.dumps({'target': 'pare', **quantize}) + '\nreport: [json]\n'


def measure(pare, task, form, method, quantize, place):
    fewer = method == 'rtn' and isinstance(task, Fashion)
    row = {'task': task.name, 'tool': 'pare', 'format': form, 'method': method, 'metric': task.metric}
    recipe, folder = os.path.join(place, 'recipe.yaml'), os.path.join(place, 'run')
    text = recipe_of(task, {**quantize, 'method': method})
    with open(recipe, 'w', encoding='utf-8') as file:
        file.write(text)
    done = subprocess.run([pare, 'run', recipe, '--out', folder, '--force', '--json', '--quiet',
                           *(['--set', f'SHARED={SHARED}'] if '${SHARED}' in text else []),
                           *(['--set', f'datasets.test.samples={FEWER}'] if fewer else [])],
                          capture_output=True, text=True)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return {**row, 'failed': done.stderr.strip()[-200:]}
    if 'error' in result:
        return {**row, 'failed': f"{result['error']['message']} ({result['error'].get('where', '')})"}
    memory = next((p for p in result['predictions'] if p['what'] == 'most memory allocated'), None)
    models = [a for a in result['artefacts'] if '.onnx' in a['path']]
    if fewer:
        row['samples'] = FEWER
    return {**row, 'value': result['metrics'][task.metric], 'sqnr_db': round(result['metrics']['output_sqnr_db'], 2),
            'bytes': sum(a['bytes'] for a in models), 'seconds': round(result['seconds'], 1),
            'peak_mib': result['peak_rss_bytes'] >> 20,
            'memory_ratio': round(memory['predicted'] / memory['measured'], 3) if memory else None}


def main():
    pare, out, only = sys.argv[1], sys.argv[2], os.environ.get('ROWS', '')
    version = subprocess.run([pare, '--version'], capture_output=True, text=True).stdout.split('\n')[0]
    for task in tasks(sys.argv[3:]):
        for form, method, quantize in rows(task):
            if only not in f'{form} {method}' or has(out, task.name, 'pare', form, method):
                continue
            with tempfile.TemporaryDirectory() as place:
                append(out, {**measure(pare, task, form, method, quantize, place), 'version': version})


if __name__ == '__main__':
    main()
