"""A checkpoint by a recipe: what is refused before any work, what the report says of files and methods, whom to blame."""
import json
import os
import random

from walk import check, done, pare, step, workplace, write

from tiny_llama import make_llama

TEXT = 'window=32,samples=8'


def recipe(base, *lines):
    return '\n'.join([f'extends: builtin/{base}', 'version: 1', 'name: r', 'model: {path: llama}', 'datasets:',
                      '  calibration: {path: texts/calibration.txt, window: 32, samples: 8}',
                      '  test: {path: texts/valid.txt, window: 32, samples: 8}', *lines, ''])


def report(folder, run):
    with open(os.path.join(folder, run, 'report.json'), encoding='utf-8') as file:
        return json.load(file)


with workplace() as folder:
    here = {'cwd': folder}
    make_llama(os.path.join(folder, 'llama'))
    os.makedirs(os.path.join(folder, 'texts'))
    draw = random.Random(1)
    for name in ('calibration', 'valid'):
        write(folder, f'texts/{name}.txt', ''.join(draw.choice('ab') for _ in range(4000)))
    tall = 'evaluate: {gates: [{metric: kl, max: 10}]}'

    # What the export cannot hold, and groups that do not divide: before any work, with the key, and nothing is left that must be forced.
    write(folder, 'gguf.yaml', recipe('llm-int4-awq', tall, 'export: {model: gguf}'))
    write(folder, 'group.yaml', recipe('llm-int4-awq', tall, 'quantize: {scheme: W4A16, group_size: 48}'))
    for name, code, words in (('gguf', 4, ('gguf.yaml:9:17', 'gguf cannot hold', 'group_size: 32', 'q4_k')),
                              ('group', 2, ('group.yaml:9:39', 'a group of 48 does not divide its 64 inputs', 'nor those of 13 more layers',
                                            '32 is the largest that does in every layer'))):
        step(f'check {name}', ['recipe', 'check', f'{name}.yaml'], code, *words, **here)
        step(f'dry run {name}', ['run', f'{name}.yaml', '--dry-run'], code, *words, absent=('would run',), **here)
        step(f'run {name}', ['run', f'{name}.yaml'], code, *words, absent=('quantize:',), **here)
    step('quantize refuses the same', ['quantize', 'llama', '--format', 'W4A16', '--group-size', '48', '--export', 'compressed_tensors', '-o', 'q'], 2,
         'nor those of 13 more layers', '32 is the largest', **here)

    # NVFP4: the judged model.onnx and the files are one model, and sizes are those of the files.
    write(folder, 'nv.yaml', recipe('llm-nvfp4', tall))
    step('a foreign folder', ['run', 'nv.yaml', '--out', 'texts'], 2, "holds 'calibration.txt' but no run", **here)
    step('its dry run', ['run', 'nv.yaml', '--out', 'texts', '--dry-run'], 2, "holds 'calibration.txt' but no run", **here)
    check(sorted(os.listdir(os.path.join(folder, 'texts'))) == ['calibration.txt', 'valid.txt'], 'a foreign folder stays as it was')
    step('NVFP4', ['run', 'nv.yaml'], 0, 'forecast: ', 'gate   passed', absent=('integer',), **here)
    said = report(folder, 'runs/r')
    judge = ['--reference', 'llama', '--data', f'texts/valid.txt:{TEXT}', '--metric', 'perplexity,kl', '--json']
    for model in ('runs/r/checkpoint', 'runs/r/model.onnx'):
        metrics = pare('eval', model, *judge, **here).json()['metrics']
        check(metrics['kl'] == said['metrics']['kl'] and metrics['perplexity'] == said['metrics']['perplexity'], f'{model} is what was judged',
              metrics, said['metrics'])
    inspected = pare('inspect', 'runs/r/checkpoint', '--json', **here).json()
    source = pare('inspect', 'llama', '--json', **here).json()
    check(said['sizes']['weight_bytes_before'] == source['weight_bytes'] and said['sizes']['weight_bytes_after'] == inspected['weight_bytes'],
          'sizes of the files', said['sizes'], source['weight_bytes'], inspected['weight_bytes'])
    check(said['provenance']['method'] == 'learned, ranges by minmax', 'the method of the weights', said['provenance'])
    weights = [row for row in said['quantized'] if row['kind'] == 'weight']
    check(weights and all(row['method'] == 'learned' for row in weights), 'how each weight was found', weights[:1])
    inputs = [row for row in said['quantized'] if row['kind'] == 'activation' and row['high'] > 0]
    check(inputs and all(row['low'] == -row['high'] for row in inputs), 'the range of inputs', inputs[:1])
    seen = {row['tensor']: row for row in said['histograms']}
    for row in inputs:  # minmax: codes of both levels reach what calibration saw
        reach = max(-seen[row['tensor']]['least'], seen[row['tensor']]['largest'])
        check(abs(row['high'] / reach - 1) < 1e-5, 'inputs: both levels of scales', row, reach)
    names = [stage['name'] for stage in said['stages']]
    check('forecast' in names, 'the forecast has its time', names)

    # A run's own recipe runs from where it lies.
    step('finished', ['run', 'nv.yaml', '--dry-run'], 2, 'a finished run', '--force', absent=('would run',), **here)
    step('its recipe', ['recipe', 'check', 'runs/r/recipe.yaml'], 0, 'fine', **here)
    step('from its folder', ['run', 'recipe.yaml', '--out', '../again'], 0, 'gate   passed', cwd=os.path.join(folder, 'runs/r'))
    with open(os.path.join(folder, 'runs/r/checkpoint/model.safetensors'), 'rb') as one, open(os.path.join(folder, 'runs/again/checkpoint/model.safetensors'), 'rb') as other:
        check(one.read() == other.read(), 'the same bytes again')

    # A failed gate names the command that finds whom to blame; methods that look at data get it there.
    write(folder, 'awq.yaml', recipe('llm-int4-awq', 'evaluate: {gates: [{metric: kl, max: 1e-9}]}'))
    step('a gate fails', ['run', 'awq.yaml', '--out', 'awq'], 1, 'pare bisect awq.yaml --metric kl --least 1e-09', **here)
    data = report(folder, 'awq')['provenance']
    check(data.get('calibration samples') == '8' and data.get('calibration data hash') and data.get('graph hash') and data['method'] == 'awq',
          'what AWQ looked at', data)
    step('with --set', ['run', 'awq.yaml', '--out', 'set', '--set', 'evaluate.gates.0.max=1e-8'], 1, 'pare bisect set/recipe.yaml --metric kl', **here)
    blame = pare('bisect', 'set/recipe.yaml', '--metric', 'kl', '--least', '1e-9', '--most', '1', '--judge-samples', '4', '--json', **here)
    check(blame.code == 0 and len(blame.json()['layers']) == 1, 'bisect with AWQ', blame.out + blame.err)
    step('sensitivity with AWQ', ['sensitivity', 'awq.yaml', '--judge-samples', '2'], 0, 'most sensitive first', absent=('lm_head',), **here)

    # Words.
    step('a type of GGUF', ['quantize', 'llama', '--format', 'q4_k', '-o', 'x.onnx'], 2, 'a type of GGUF', '--export gguf', **here)
    step('formats', ['ops', '--formats'], 0, 'q4_k', '4.5 bits a weight', 'Names in capitals', **here)
    step('nvfp4', ['quantize', 'llama', '--format', 'nvfp4', '--export', 'compressed_tensors', '-o', 'n'], 0,
         'nvfp4 leaves inputs float; NVFP4 has float4_e2m1fn inputs', 'inputs float', **here)
    step('another case', ['quantize', 'llama', '--format', 'Mxfp4', '--export', 'compressed_tensors', '-o', 'm'], 2, 'leaves inputs float', **here)
    step('ppl', ['eval', 'n', *judge[:4], '--metric', 'ppl'], 2, "did you mean 'perplexity'?", **here)
    step('an option begun', ['quantize', 'llama', '--format', 'int4', '--grou', '32', '-o', 'x.onnx'], 2, 'did you mean --group-size?', **here)
    step('no such text', ['eval', 'n', '--data', 'nothing.txt'], 3, 'nothing.txt', absent=('recipe',), **here)
    write(folder, 'base.yaml', recipe('llm-int4', 'evaluate: {gates: [{metric: kl, max: 1}]}'))
    step('no such base', ['recipe', 'check', 'base.yaml'], 2, "did you mean 'builtin/llm-int4-awq'?", absent=("needs the key",), **here)
    for base, limit in (('llm-nvfp4', '0.03'), ('llm-int4-awq', '0.015')):
        step('init', ['recipe', 'init', f'{base}.yaml', '--model', os.path.join(folder, 'llama'), '--extends', base], 0, **here)
        with open(os.path.join(folder, f'{base}.yaml'), encoding='utf-8') as file:
            text = file.read()
        check(f'max: {limit}' in text and 'relative to this file' not in text, f'init: the gate of {base}', text)
done()
