"""`pare quantize CHECKPOINT --export FORMAT`: what is written, what reads it back, what is refused."""
import json
import os
import struct

from harness import CHECKPOINT, check, finish, pare, workplace
from tiny_llama import make_llama

import numpy as np

count = 0


def expect(code, *arguments, says='', env=None):
    global count
    count += 1
    result = pare(*arguments, env=env)
    check(result.code == code, f'{arguments} exit code', result.code, result.err)
    check(says in result.out + result.err, f'{arguments} says', says, result.out, result.err)
    return result


def read(folder, name='config.json'):
    with open(os.path.join(folder, name), encoding='utf-8') as file:
        return json.load(file)


# scheme, format, more arguments, what quantization_config must say
CASES = [
    ('W4A16', 'compressed_tensors', ['--group-size', '32'], {'quant_method': 'compressed-tensors', 'format': 'pack-quantized'}),
    ('W4A16', 'compressed_tensors', ['--group-size', '32', '--asymmetric', '--method', 'rtn'], {'format': 'pack-quantized'}),
    ('W4A16', 'compressed_tensors', ['--group-size', '32', '--parity'], {'format': 'pack-quantized'}),
    ('W8A16', 'compressed_tensors', [], {'format': 'pack-quantized'}),
    ('int3', 'compressed_tensors', ['--group-size', '32'], {'format': 'pack-quantized'}),
    ('int2', 'compressed_tensors', ['--group-size', '32'], {'format': 'pack-quantized'}),
    ('W8A8', 'compressed_tensors', [], {'format': 'int-quantized'}),
    ('FP8_DYNAMIC', 'compressed_tensors', [], {'format': 'float-quantized'}),
    ('FP8_DYNAMIC', 'compressed_tensors', ['--parity'], {'format': 'float-quantized'}),
    ('FP8_BLOCK', 'compressed_tensors', [], {'format': 'float-quantized'}),
    ('NVFP4A16', 'compressed_tensors', [], {'format': 'nvfp4-pack-quantized'}),
    ('NVFP4A16', 'compressed_tensors', ['--parity'], {'format': 'nvfp4-pack-quantized'}),
    ('MXFP4A16', 'compressed_tensors', [], {'format': 'mxfp4-pack-quantized'}),
    ('MXFP4A16', 'compressed_tensors', ['--parity'], {'format': 'mxfp4-pack-quantized'}),
    ('MXFP8', 'compressed_tensors', [], {'format': 'mxfp8-quantized'}),
    ('int4', 'autoawq', ['--group-size', '32', '--asymmetric'], {'quant_method': 'awq', 'zero_point': True}),
    ('int4', 'autoawq', ['--group-size', '32'], {'quant_method': 'awq', 'zero_point': False}),
    ('int4', 'gptq', ['--group-size', '32'], {'quant_method': 'gptq', 'checkpoint_format': 'gptq', 'sym': True}),
    ('int4', 'gptq_v2', ['--group-size', '32', '--asymmetric'], {'checkpoint_format': 'gptq_v2', 'sym': False}),
    ('int3', 'gptq', ['--group-size', '32'], {'bits': 3}),
    ('int8_weights', 'gptq', [], {'bits': 8, 'group_size': -1}),
    ('nvfp4', 'modelopt', [], {'quant_method': 'modelopt', 'quant_algo': 'W4A16_NVFP4'}),
    ('int4', 'modelopt', ['--group-size', '32'], {'quant_algo': 'W4A16_AWQ', 'group_size': 32}),
    ('mxfp8', 'modelopt', [], {'quant_algo': 'MXFP8'}),
    ('FP8_DYNAMIC', 'modelopt', [], {'quant_algo': 'FP8_PER_CHANNEL_PER_TOKEN'}),
    ('int8_weights', 'modelopt', [], {'quant_algo': 'W8A16'}),
]

with workplace() as folder:
    model = make_llama(os.path.join(folder, 'llama'))
    for i, (scheme, form, more, says) in enumerate(CASES):
        out = os.path.join(folder, f'out{i}')
        result = expect(0, 'quantize', model, '--format', scheme, '--export', form, '-o', out, '--json', *more).json()
        name = f'{scheme} {form} {more}'
        check(result['audit'] == {'passed': True, 'tensors': 14, 'mismatches': []}, name + ' audit', result['audit'])
        check(len(result['quantized']) == 14 and [s['tensor'] for s in result['skipped']] == ['lm_head'], name, result)
        check(result['weight_bytes_after'] < result['weight_bytes_before'], name + ' is smaller')
        config = read(out)
        for key, value in says.items():
            check(config['quantization_config'].get(key) == value, f'{name}: {key}', config['quantization_config'])
        check(config['hidden_size'] == 64 and config['tie_word_embeddings'] is False, name + ' config')
        check({'LICENSE', 'tokenizer.json', 'generation_config.json'} <= set(os.listdir(out)), name + ' companions')
        check(not [f for f in os.listdir(out) if f.startswith('.')], name + ' left temporaries')
        expect(0, 'inspect', out)

    # The same bytes with one thread and with two; plain rounding and search differ.
    files = {}
    for arguments in (['--threads', '1'], ['--threads', '2'], ['--threads', '2', '--method', 'rtn']):
        out = os.path.join(folder, 'threads' + '-'.join(arguments))
        expect(0, 'quantize', model, '--format', 'int4', '--group-size', '32', '--export', 'gptq', '-o', out, *arguments)
        with open(os.path.join(out, 'model.safetensors'), 'rb') as file:
            files[' '.join(arguments)] = file.read()
    one, two, rtn = files.values()
    check(one == two, 'threads change no bit')
    check(two != rtn, 'a search differs from plain rounding')

    # Shards, an index, and the head on demand; tied to the embedding, it gets codes of its own.
    out = os.path.join(folder, 'shards')
    expect(0, 'quantize', model, '--format', 'W4A16', '--group-size', '32', '--export', 'compressed_tensors', '-o', out,
           '--shard-size', '20000', '--quantize-head')
    index = read(out, 'model.safetensors.index.json')
    check('lm_head.weight_packed' in index['weight_map'], 'head', index)
    check(len(set(index['weight_map'].values())) > 2, 'shards', index)
    tied = make_llama(os.path.join(folder, 'tied'), tied=True)
    out = os.path.join(folder, 'tied-out')
    expect(0, 'quantize', tied, '--format', 'W4A16', '--group-size', '32', '--export', 'compressed_tensors', '-o', out)
    check(read(out)['tie_word_embeddings'] is True, 'tied stays tied')
    out = os.path.join(folder, 'untied')
    expect(0, 'quantize', tied, '--format', 'W4A16', '--group-size', '32', '--export', 'compressed_tensors', '-o', out,
           '--quantize-head')
    check(read(out)['tie_word_embeddings'] is False, 'a head with codes is no embedding')

    # GGUF: ggml's own types, and codes of our search.
    for scheme, more in (('q4_0', []), ('q4_1', []), ('q8_0', []), ('q4_k', []), ('int4', ['--group-size', '32']),
                         ('int8_weights', ['--group-size', '32']), ('mxfp4', [])):
        out = os.path.join(folder, f'{scheme}{len(more)}.gguf')
        result = expect(0, 'quantize', model, '--format', scheme, '--export', 'gguf', '-o', out, '--json', *more).json()
        check(result['audit']['passed'] and result['audit']['tensors'] >= 14, f'gguf {scheme}', result['audit'])
        expect(0, 'inspect', out, says='llama')

    # Methods that look at activations, and scales of inputs that do not change: from the plan of the graph.
    text = os.path.join(folder, 'text.txt')
    random = np.random.default_rng(5)
    with open(text, 'w', encoding='utf-8') as file:
        file.write('\n'.join(''.join(random.choice(['a', 'b', 'ab'], 60)) for _ in range(100)))
    data = ['--data', text + ':kind=text,window=32,stride=32,bos=none,join=whole', '--samples', '8']
    for i, (scheme, form, more, tensors) in enumerate([
            ('int4', 'gptq', ['--group-size', '32', '--method', 'gptq'], ['g_idx']),
            ('int4', 'compressed_tensors', ['--group-size', '32', '--method', 'awq'], ['weight_packed']),
            ('int8', 'compressed_tensors', ['--method', 'smoothquant'], ['weight', 'input_scale']),
            ('FP8', 'modelopt', [], ['weight_scale', 'input_scale']),
            ('NVFP4', 'modelopt', ['--method', 'search'], ['weight_scale_2', 'input_scale']),
            ('NVFP4', 'compressed_tensors', ['--method', 'search'], ['weight_global_scale', 'input_global_scale'])]):
        out = os.path.join(folder, f'plan{i}')
        result = expect(0, 'quantize', model, '--format', scheme, '--export', form, '-o', out, '--json', *more, *data).json()
        check(result['audit'] == {'passed': True, 'tensors': 14, 'mismatches': []}, f'{scheme} {form} audit', result['audit'])
        with open(os.path.join(out, 'model.safetensors'), 'rb') as file:
            length, = struct.unpack('<Q', file.read(8))
            names = json.loads(file.read(length))
        for tensor in tensors:
            check(f'model.layers.1.mlp.down_proj.{tensor}' in names, f'{scheme} {form}: {tensor}', sorted(names)[:20])
    expect(2, 'quantize', model, '--format', 'int4', '--method', 'low_rank', '--export', 'gptq', '-o',
           os.path.join(folder, 'low'), *data, says='low_rank')
    recipe = os.path.join(folder, 'recipe.yaml')
    with open(recipe, 'w', encoding='utf-8') as file:
        file.write(f"""version: 1
name: llama-gptq
model: {{path: llama}}
datasets:
  text: {{path: text.txt, kind: text, window: 32, stride: 32, bos: none, join: whole, samples: 8}}
calibrate: {{data: text, holdout: 8}}
quantize: {{scheme: int4, group_size: 32, method: gptq}}
export: {{model: gptq_v2, head: true}}
""")
    expect(0, 'run', recipe, '--out', os.path.join(folder, 'run'))
    config = read(os.path.join(folder, 'run', 'checkpoint'))
    check(config['quantization_config']['checkpoint_format'] == 'gptq_v2' and config['quantization_config']['lm_head'],
          'recipe', config)

    # What a format cannot hold is refused before anything is written.
    out = os.path.join(folder, 'refused')
    expect(4, 'quantize', model, '--format', 'nvfp4', '--export', 'autoawq', '-o', out,
           says='these can: compressed_tensors, modelopt')
    expect(4, 'quantize', model, '--format', 'W4A16', '--export', 'gguf', '-o', out, says='--group-size 32')
    expect(2, 'quantize', model, '--format', 'FP8', '--export', 'compressed_tensors', '-o', out, says='--data')
    check(not os.path.exists(out), 'nothing was written')
    expect(2, 'quantize', model, '--format', 'W4A16', '--export', 'compressed_tensors', '-o', model,
           says='holds a model already')
    expect(4, 'quantize', CHECKPOINT, '--format', 'int4', '--export', 'gptq', '-o', out, says='cannot hold this')
    # A disk that is full in the middle of a shard.
    result = expect(5, 'quantize', model, '--format', 'W8A16', '--export', 'compressed_tensors', '-o', out,
                    env={'PARE_TEST_DISK_FULL_AFTER': '30000'}, says='No space left')
    check(not os.path.exists(out) or os.listdir(out) == [], 'a full disk leaves nothing')

finish(count)
