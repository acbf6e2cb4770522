"""Which weight method helps where: output SQNR of the model, and of its layers one by one, for each method alone.

    SHARED=DIR python3 methods.py PARE OUT.jsonl [ROW...]     ROW: a key of ROWS; SAMPLES=N images to judge by (2,000)

One JSON line a (row, method); what OUT.jsonl has is not measured again. Printed at the end as the table of
docs/accuracy.md: SQNR of the output in dB, and the layer that gains most over `rtn` with its gain. A layer's figure is
that of the report's table "Weight methods", by the moments of its input; a method that leaves codes alone has none.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.normpath(os.path.join(HERE, '..', '..', '..', 'examples'))
SAMPLES = int(os.environ.get('SAMPLES', 2000))
WEIGHTS = ['rtn', 'search', 'gptq', 'learned', 'awq', 'equalize', 'low_rank', 'bias correction', 'auto']
STATIC = ['rtn', 'search', 'gptq', 'learned', 'awq', 'smoothquant', 'equalize', 'low_rank', 'bias correction', 'auto']

# name: (recipe, quantize section, methods)
ROWS = {
    'vit INT4 g32': ('fashion/vit-int8.yaml', {'scheme': 'int4', 'group_size': 32}, WEIGHTS),
    'vit INT4 g128': ('fashion/vit-int8.yaml', {'scheme': 'int4', 'group_size': 64}, WEIGHTS),
    'vit NVFP4': ('fashion/vit-int8.yaml', {'scheme': 'nvfp4'}, WEIGHTS),
    'vit MXFP4': ('fashion/vit-int8.yaml', {'scheme': 'mxfp4'}, WEIGHTS),
    'vit INT8': ('fashion/vit-int8.yaml', {'scheme': 'int8', 'activations': {'calibrator': 'mse'}}, STATIC),
    'vit FP8': ('fashion/vit-fp8.yaml', {'scheme': 'fp8', 'activations': {'calibrator': 'mse'}}, STATIC),
    'resnet INT4 g32': ('fashion/resnet-int8.yaml', {'scheme': 'int4', 'group_size': 32}, WEIGHTS),
    'resnet INT8': ('fashion/resnet-int8.yaml', {'scheme': 'int8', 'activations': {'calibrator': 'mse'}}, STATIC),
    'mobilenet INT8': ('fashion/mobilenet-int8.yaml', {'scheme': 'int8', 'activations': {'calibrator': 'mse'}}, STATIC),
    'mobilenet FP8': ('fashion/mobilenet-fp8.yaml', {'scheme': 'fp8', 'activations': {'calibrator': 'mse'}}, STATIC),
    'efficientnet INT8': ('efficientnet/lite0-int8.yaml', {'scheme': 'int8', 'activations': {'calibrator': 'mse'}},
                          ['rtn', 'search', 'smoothquant', 'equalize', 'bias correction', 'auto']),
    'ocr INT8': ('ocr/recognizer-int8.yaml', {'scheme': 'int8', 'activations': {'calibrator': 'mse'}},
                 ['rtn', 'search', 'smoothquant', 'equalize', 'bias correction', 'auto']),
    'ocr INT4 g32': ('ocr/recognizer-int8.yaml', {'scheme': 'int4', 'group_size': 32}, WEIGHTS),
}


def recipe_text(path, quantize):
    """The recipe with another quantize section, without gates, paths absolute; only output_sqnr_db is computed."""
    folder = os.path.dirname(path)
    blocks = re.split(r'^(?=\w)', open(path, encoding='utf-8').read(), flags=re.M)
    text = ''.join(b for b in blocks if not re.match(r'quantize:|report:|evaluate:', b))
    data = re.search(r'^evaluate:\n  data: (\w+)|^evaluate:.*?data: (\w+)', ''.join(blocks), flags=re.M | re.S)
    text = re.sub(r'((?:path|labels): )([\w.]+\.(?:onnx|npy))', lambda m: m[1] + os.path.join(folder, m[2]), text)
    text = re.sub(r'^extends:.*\n', 'surgery: [simplify]\nexport: {model: qdq_onnx}\n', text, flags=re.M)
    name = data[1] or data[2]
    return (text + 'quantize: ' + json.dumps({'target': 'pare', **quantize}) + '\nreport: [json]\n' +
            f'evaluate: {{data: {name}, metrics: [output_sqnr_db], arithmetic: fake, layer_samples: 0}}\n'), name


def measure(pare, name, method):
    path, section, _ = ROWS[name]
    section = dict(section)
    section['method'] = 'search' if method == 'bias correction' else method
    if method == 'bias correction':
        section['bias_correction'] = True
    with tempfile.TemporaryDirectory() as place:
        text, data = recipe_text(os.path.join(EXAMPLES, path), section)
        recipe, folder = os.path.join(place, 'recipe.yaml'), os.path.join(place, 'run')
        open(recipe, 'w', encoding='utf-8').write(text)
        more = ['--set', f'SHARED={os.environ.get("SHARED", "")}'] if '${SHARED}' in text else []
        if 'fashion' in path:
            more += ['--set', f'datasets.{data}.samples={SAMPLES}']
        done = subprocess.run([pare, 'run', recipe, '--out', folder, '--force', '--json', '--quiet', *more],
                              capture_output=True, text=True)
        row = {'row': name, 'method': method}
        try:
            result = json.loads(done.stdout)
            if 'error' in result:
                return {**row, 'failed': result['error']['message']}
            report = json.load(open(os.path.join(folder, 'report.json'), encoding='utf-8'))
        except (ValueError, OSError):
            return {**row, 'failed': done.stderr.strip()[-300:]}
    layers = {}
    for table in report.get('tables', []):
        if table['title'] == 'Weight methods':
            layers = {r[0]: float(r[2]) for r in table['rows'] if r[2] not in ('-', '')}
    return {**row, 'sqnr_db': result['metrics']['output_sqnr_db'], 'seconds': round(result['seconds'], 1),
            'method_text': result.get('method', ''), 'layers': layers,
            'tables': [t for t in report.get('tables', []) if t['title'] in ('Candidates', 'Scaled channels')]}


def main():
    pare, out, wanted = sys.argv[1], sys.argv[2], sys.argv[3:] or list(ROWS)
    known = [json.loads(line) for line in open(out, encoding='utf-8')] if os.path.exists(out) else []
    for name in wanted:
        for method in ROWS[name][2]:
            if any(r['row'] == name and r['method'] == method for r in known):
                continue
            known.append(measure(pare, name, method))
            with open(out, 'a', encoding='utf-8') as file:
                file.write(json.dumps(known[-1]) + '\n')
            print(name, method, known[-1].get('sqnr_db', known[-1].get('failed')), known[-1].get('seconds'), flush=True)
    print('| model, format | ' + ' | '.join(STATIC) + ' |')
    for name in wanted:
        rows = {r['method']: r for r in known if r['row'] == name}
        print(f'| {name} | ' + ' | '.join(f"{rows[m]['sqnr_db']:.2f}" if m in rows and 'sqnr_db' in rows[m] else ''
                                          for m in STATIC) + ' |')
    for name in wanted:
        rows = {r['method']: r for r in known if r['row'] == name and 'sqnr_db' in r}
        base = rows.get('search', {}).get('layers', {})
        for method, row in rows.items():
            gains = [(v - base[k], k) for k, v in row['layers'].items() if k in base]
            if method != 'search' and gains:
                print(f'| {name} | {method} | {max(gains)[1]} | {max(gains)[0]:+.2f} |')


main()
