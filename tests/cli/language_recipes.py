"""Language models to checkpoints by recipe, end to end on a tiny Llama of random weights: the built-in recipes, FP8 in blocks
of 128x128, a calibrated KV cache, errors weighed by what they do to predictions, low-rank products beside quantized inputs. A
written checkpoint is opened as a model again, and its divergence from the float model must be the one that the run reported
for the graph it wrote beside it.
"""
import json
import os
import re
import shutil
import sys

from harness import SOURCE, check, finish, pare, workplace

sys.path.insert(0, os.path.join(SOURCE, 'scripts'))
import synthetic_llama  # noqa: E402

# Two blocks of 128 wide and three high, heads of 64.
synthetic_llama.SHAPES['blocks'] = dict(hidden=256, intermediate=384, layers=2, heads=4, kv_heads=2, head=64, vocabulary=272,
                                        tied=False, positions=256)
RECIPE = """version: 1
{extends}
model: {{path: model}}
datasets:
  calibration: {{path: text.txt, kind: text, window: 32, samples: 6}}
  test: {{path: text.txt, kind: text, window: 32, skip: 6, samples: 4}}
{rest}
"""
REST = """surgery: [simplify]
calibrate: {{data: calibration}}
quantize:
  scheme: {scheme}
  method: {method}
  ignore: [lm_head]
  activations: {{calibrator: minmax}}
  {more}
evaluate: {{data: test, metrics: [kl], layer_samples: 1, arithmetic: fake}}
export: {{model: {export}}}
"""
count = 0


def recipe(folder, name, builtin='', export='compressed_tensors', scheme='FP8_BLOCK', method='gptq', more=''):
    path = os.path.join(folder, name + '.yaml')
    with open(path, 'w') as file:
        rest = '' if builtin else REST.format(scheme=scheme, method=method, more=more, export=export)
        file.write(RECIPE.format(extends=f'extends: builtin/{builtin}' if builtin else '', rest=rest))
    return path


def run(folder, name, *options, code=0, says='', **keys):
    global count
    count += 1
    out = os.path.join(folder, name)
    result = pare('run', recipe(folder, name, **keys), '--out', out, *options)
    check(result.code == code and says in result.err, name, result.code, result.err)
    if code == 0 and os.path.isdir(os.path.join(out, 'checkpoint')):  # what to do with it, in words that run
        check(f'pare generate {out}/checkpoint --prompt' in result.out and f'vllm serve {out}/checkpoint' in result.out, name, result.out)
    report = os.path.join(out, 'report.json')
    return out, json.load(open(report)) if os.path.exists(report) and code == 0 else {}


def divergence(folder, checkpoint):
    result = pare('eval', checkpoint, '--reference', os.path.join(folder, 'model'), '--data',
                  os.path.join(folder, 'text.txt') + ':window=32,skip=6,samples=4', '--metric', 'kl', '--json')
    check(result.code == 0, checkpoint, result.err)
    return result.json()['metrics']['kl'] if result.code == 0 else float('nan')


def same_as_reported(folder, name, out, report):
    """The same codes and scales in the same products; only the order of some sums may differ."""
    found, said = divergence(folder, os.path.join(out, 'checkpoint')), report['metrics']['kl']
    check(abs(found - said) <= 1e-3 * said + 1e-9 and said > 0, name, f'the checkpoint gives {found}, the run said {said}')


def config_of(out):
    return json.load(open(os.path.join(out, 'checkpoint', 'config.json')))['quantization_config']


def tensors_of(checkpoint):
    with open(os.path.join(checkpoint, 'model.safetensors'), 'rb') as file:
        size = int.from_bytes(file.read(8), 'little')
        return json.loads(file.read(size))


with workplace() as folder:
    synthetic_llama.make('blocks', os.path.join(folder, 'model'), shard_bytes=10_000_000)
    with open(os.path.join(folder, 'text.txt'), 'w') as file:
        file.write('The quick brown fox jumps over the lazy dog, and %d sheep look on. ' * 40 % tuple(range(40)))

    # The built-in recipe alone says how to begin, in words that run.
    alone = pare('run', 'builtin/llm-fp8', cwd=folder)
    check(alone.code == 2 and '`pare recipe init FILE --model MODEL --extends builtin/llm-fp8`' in alone.err, 'alone', alone.err)
    begun = pare('recipe', 'init', 'begun.yaml', '--model', 'model', '--extends', 'builtin/llm-fp8', cwd=folder)
    check(begun.code == 0, 'begun', begun.err)
    count += 2

    # What vLLM reads of each: nothing is left to do by hand.
    for name, form in (('llm-fp8', 'float-quantized'), ('llm-w8a8', 'int-quantized'), ('llm-int4-awq', 'pack-quantized'),
                       ('llm-nvfp4', 'nvfp4-pack-quantized')):
        # The gates are for models that have learned something.
        out, report = run(folder, name, '--set', 'evaluate.gates=[{metric: kl, max: 10}]', builtin=name)
        if report:
            check(config_of(out)['format'] == form, name, config_of(out))
            check(config_of(out)['ignore'] == ['lm_head'], name, config_of(out)['ignore'])
            if name == 'llm-w8a8':
                group = config_of(out)['config_groups']['group_0']
                check(group['input_activations']['symmetric'] is False and group['weights']['symmetric'], name, group)
            check(report['gates'][0]['metric'] == 'kl' and report['audit']['passed'], name, report['gates'])
            same_as_reported(folder, name, out, report)
            said = pare('generate', os.path.join(out, 'checkpoint'), '--prompt', 'The quick', '--max-tokens', '4', '--json')
            check(said.code == 0 and len(said.json()['tokens']) > 0, name, said.err)

    # Squares of 128x128, by a method that looks at data; weights alone and beside rounded inputs.
    for name, keys in (('square', {}), ('square-learned', {'method': 'learned', 'more': 'inputs: quantized'}),
                       ('square-weights', {'scheme': 'fp8_weights', 'more': 'weights: {granularity: block}'})):
        out, report = run(folder, name, **keys)
        if report:
            weights = config_of(out)['config_groups']['group_0']['weights']
            check(weights['strategy'] == 'block' and weights['block_structure'] == [128, 128], name, weights)
            inputs = config_of(out)['config_groups']['group_0']['input_activations']
            check((inputs is None) if keys.get('scheme') else inputs['group_size'] == 128 and inputs['dynamic'], name, inputs)
            scale = tensors_of(os.path.join(out, 'checkpoint'))['model.layers.0.mlp.up_proj.weight_scale']
            check(scale['shape'] == [3, 2], name, scale)
            same_as_reported(folder, name, out, report)

    # A scale and a zero point a token, which a checkpoint can say; scales of blocks by least error, which it cannot.
    zeros = ('--set', 'quantize.activations.symmetric=false')
    symmetric, (out, report) = run(folder, 'tokens', scheme='W8A8')[1], run(folder, 'tokens-zeros', *zeros, scheme='W8A8')
    if report:
        inputs = config_of(out)['config_groups']['group_0']['input_activations']
        check(inputs['strategy'] == 'token' and inputs['dynamic'] and not inputs['symmetric'], 'tokens-zeros', inputs)
        same_as_reported(folder, 'tokens-zeros', out, report)
        check(report['metrics']['kl'] < symmetric['metrics']['kl'], 'tokens-zeros', report['metrics'], symmetric['metrics'])
    fitted = ('--set', 'quantize.activations.search=mse')
    amax, mse = (run(folder, name, *more, scheme='mxfp4_w4a4', export='qdq_onnx')[1] for name, more in (('amax', ()), ('mse', fitted)))
    check(amax and mse and mse['metrics']['kl'] != amax['metrics']['kl'], 'search: mse', amax.get('metrics'), mse.get('metrics'))
    run(folder, 'mse-checkpoint', *fitted, scheme='mxfp4_w4a4', code=2, says='least error')

    # What errors do to predictions: other codes than by layer outputs, the same for any number of threads, and said before.
    files = {}
    for name, options, keys in (('layer', (), {}), ('model-1', ('--threads', '1'), {'more': 'objective: model'}),
                                ('model-2', ('--threads', '2'), {'more': 'objective: model'}),
                                ('model-learned', (), {'more': 'objective: model', 'method': 'learned'})):
        out, report = run(folder, name, *options, scheme='W4A16', **{'method': 'gptq', **keys})
        if report:
            with open(os.path.join(out, 'checkpoint', 'model.safetensors'), 'rb') as file:
                files[name] = file.read()
            same_as_reported(folder, name, out, report)
    check(files['model-1'] == files['model-2'] != files['layer'] and files['model-learned'] != files['model-1'], 'objective: model')
    run(folder, 'model-blocks', scheme='W4A16', more='objective: model\n  blocks: {inputs: quantized}', code=4, says='objective')

    # The cache: scales in both spellings, and what it costs is seen.
    float_cache = run(folder, 'float-cache', scheme='W8A16')[1]
    for export, key in (('compressed_tensors', 'self_attn.k_scale'), ('modelopt', 'self_attn.k_proj.k_scale')):
        name = 'cache-' + export
        out, report = run(folder, name, scheme='W8A16', export=export, more='kv_cache: fp8')
        if report:
            names = tensors_of(os.path.join(out, 'checkpoint'))
            check(sum(one.endswith(key) for one in names) == 2, name, sorted(names))
            check(f'model.layers.1.{key}' in names, name, sorted(names))
            same_as_reported(folder, name, out, report)
            check(report['metrics']['kl'] > float_cache['metrics']['kl'], name, 'rounding the cache costs nothing')
            shown = pare('inspect', os.path.join(out, 'checkpoint'))
            check('KV cache float8_e4m3fn' in shown.out, name, shown.out)
    blocks, report = run(folder, 'cache-blocks', scheme='W8A16', more='kv_cache: fp8\n  blocks: {inputs: quantized}')
    if report:
        same_as_reported(folder, 'cache-blocks', blocks, report)
    run(folder, 'cache-awq', scheme='int4', export='autoawq', more='kv_cache: fp8', code=4, says='KV cache')
    direct = pare('quantize', os.path.join(folder, 'model'), '--format', 'W8A16', '--kv-cache', 'fp8', '--export',
                  'compressed_tensors', '-o', os.path.join(folder, 'direct'))
    check(direct.code == 2 and '--kv-cache' in direct.err, 'a cache without data', direct.code, direct.err)

    # Products of low rank: fitted again for quantized inputs, in a graph; no tensor of a checkpoint holds them.
    plain = run(folder, 'plain', scheme='nvfp4_w4a4', method='gptq', export='qdq_onnx')[1]
    for name, more in (('low-rank', 'rank: 16'), ('low-rank-inputs', 'rank: 16\n  inputs: quantized')):
        report = run(folder, name, scheme='nvfp4_w4a4', method='low_rank', export='qdq_onnx', more=more)[1]
        if report and plain:
            check(report['metrics']['kl'] < plain['metrics']['kl'], name, report['metrics'], plain['metrics'])
    run(folder, 'low-rank-checkpoint', scheme='nvfp4_w4a4', method='low_rank', code=2, says='low_rank')

    # Experts: how many tokens reached each, twice as many in all as there are; one that none reached is said, and gets codes without data.
    experts = os.path.join(folder, 'experts')
    shutil.copytree(os.path.join(SOURCE, 'tests', 'golden', 'families', 'mixtral'), experts)
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True}
    with open(os.path.join(experts, 'tokenizer.json'), 'w') as file:
        json.dump({'model': {'type': 'BPE', 'vocab': {chr(c): c - 87 for c in range(97, 123)}, 'merges': []}, 'pre_tokenizer': byte_level,
                   'decoder': {'type': 'ByteLevel'}, 'added_tokens': []}, file)
    for name, text, tokens in (('all', 'thequickbrownfoxjumpsoverthelazydog' * 4, 64), ('few', 'aaaaaaaaaaaaaaaaaaaaaaaa', 8)):
        count += 1
        with open(os.path.join(folder, 'words.txt'), 'w') as file:
            file.write(text)
        result = pare('quantize', experts, '--format', 'int4', '--group-size', '8', '--method', 'gptq', '--export', 'compressed_tensors', '-o',
                      os.path.join(folder, 'experts-' + name), '--data', os.path.join(folder, 'words.txt') + f':window={tokens // 2},samples=2',
                      '--json')
        check(result.code == 0, 'experts', result.err)
        document = result.json()
        rows = [row for table in document['tables'] if table['title'] == 'Tokens of experts' for row in table['rows']]
        reached = [(re.match(r'model.layers.0..*experts.(\d).w1.weight', row[0]), row) for row in rows]
        reached = {int(m[1]): int(row[1]) for m, row in reached if m}
        # One sentence a reason, however many experts there are.
        if name == 'all':
            check(len(reached) == 4 and sum(reached.values()) == 2 * tokens, 'experts: two of four for each token', rows)
            check(len([w for w in document['warnings'] if 'reached by fewer tokens than inputs' in w]) == 1, 'experts with few tokens', document['warnings'])
        else:
            for words in ('reached by no token, so the nearest codes', 'because gptq needs second moments'):
                unseen = [w for w in document['warnings'] if 'layers.0.' in w and 'w1.weight' in w and ' more: ' in w and words in w]
                check(len(unseen) == 1, 'experts that no token reached', document['warnings'])

    # GPTQ's orders of columns: three files, groups where they were in each.
    files = {}
    for order in ('natural', 'diagonal', 'group_aware'):
        out, report = run(folder, 'order-' + order, scheme='int4', more='column_order: ' + order, export='gptq')
        if report:
            same_as_reported(folder, order, out, report)
            files[order] = open(os.path.join(out, 'checkpoint', 'model.safetensors'), 'rb').read()
    check(len(set(files.values())) == 3, 'orders', 'two of them give the same file')
    default = run(folder, 'order-default', scheme='int4', more='act_order: true', export='gptq')[0]
    check(open(os.path.join(default, 'checkpoint', 'model.safetensors'), 'rb').read() == files.get('diagonal'), 'act_order', 'is not the diagonal')
    run(folder, 'order-twice', scheme='int4', more='column_order: natural\n  act_order: true', code=2, says="'act_order' says the order already")
    run(folder, 'order-rtn', scheme='int4', method='rtn', more='column_order: natural', code=2, says='has no meaning for method rtn')

    # Model Optimizer's search, and auto over blocks by their measured output.
    for name, more in (('hessian', {'method': 'local_hessian'}), ('auto', {'method': 'auto', 'more': 'blocks: {inputs: quantized}'})):
        out, report = run(folder, name, scheme='nvfp4', **more)
        if report:
            same_as_reported(folder, name, out, report)
finish(count)
