"""What is wrong with language models, their texts and their disks: exit code, what, where, and what to do, each from the program itself."""
import json
import os
import shutil
import struct

from harness import CHECKPOINT, check, finish, pare, workplace
from tiny_llama import make_llama

count = 0


def expect(name, arguments, code, *words, env=None):
    global count
    count += 1
    result = pare(*arguments, env=env)
    text = result.err
    if check(result.code == code, f'{name}: exit code {code}', result.code, text):
        for word in words:
            check(word in text, f'{name} says', word, text)


def header_of(path):
    with open(path, 'rb') as file:
        length, = struct.unpack('<Q', file.read(8))
        return json.loads(file.read(length)), file.read()


def write(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text) if length is None else length) + text + data)


def change_json(path, **keys):
    with open(path, encoding='utf-8') as file:
        content = json.load(file)
    content.update(keys)
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(content, file)


with workplace() as folder:
    good = make_llama(os.path.join(folder, 'good'))
    counted = 0

    def copy(source=good):
        global counted
        counted += 1
        to = os.path.join(folder, f'copy{counted}')
        shutil.copytree(source, to)
        return to, os.path.join(to, 'model.safetensors')

    # The files of weights.
    for length in (1 << 63, (1 << 64) - 1, 101 << 20):
        model, file = copy()
        write(file, *header_of(file), length=length)
        expect(f'a header of {length} bytes', ['inspect', model], 3, 'model.safetensors', f'header is longer than the file: {length} bytes',
               'download it again')
    model, file = copy()
    header, data = header_of(file)
    write(file, header, data[:-100])
    expect('a file that is cut off', ['inspect', model], 3, 'outside the file', str(len(data) - 100), 'download it again')
    model, file = copy()
    header, data = header_of(file)
    first, second = sorted(header, key=lambda name: header[name]['data_offsets'])[:2]
    begin, end = header[second]['data_offsets']
    header[second]['data_offsets'] = [begin - 2, end - 2]
    write(file, header, data)
    expect('tensors that overlap', ['inspect', model], 3, first, second, 'overlap', 'download it again')
    model, file = copy()
    header, data = header_of(file)
    header[second]['dtype'] = 'F6_E9'
    write(file, header, data)
    expect('an unknown type', ['inspect', model], 4, 'F6_E9', f"model.safetensors: tensor '{second}'", 'BF16')
    text = os.path.join(folder, 'text.txt')
    with open(text, 'w', encoding='utf-8') as output:
        output.write('ab' * 300)
    # NaN, in weights that get codes (alone, or sharing a scale), and in those that stay float: norms, the head, a row of the embedding
    # that no text reaches. Every way of reading names and counts them, and leaves nothing behind.
    for damaged in ('model.layers.1.mlp.up_proj.weight', 'model.layers.0.input_layernorm.weight', 'lm_head.weight',
                    'model.embed_tokens.weight'):
        model, file = copy()
        header, data = header_of(file)
        begin, _ = header[damaged]['data_offsets']
        begin += 60 * 64 * 2 if 'embed' in damaged else 0
        write(file, header, data[:begin] + b'\xc0\x7f\xc0\x7f\x80\xff' + data[begin + 6:])
        ct, small = ['--export', 'compressed_tensors', '-o', model + '-out'], ['--group-size', '32']
        few = ['--data', text + ':window=32,samples=2']
        for command in (['eval', model, '--data', text + ':window=32'], ['generate', model, '--prompt', 'ab'],
                        ['convert', model, '--to', 'onnx', '-o', model + '-out'],
                        ['quantize', model, '--format', 'W4A16', *small, *ct],
                        ['quantize', model, '--format', 'W4A16', *small, '--method', 'rtn', '--parity', *ct],
                        ['quantize', model, '--format', 'FP8_BLOCK', *ct], ['quantize', model, '--format', 'nvfp4', *ct],
                        ['quantize', model, '--format', 'q8_0', '--export', 'gguf', '-o', model + '-out'],
                        ['quantize', model, '--format', 'int4', *small, '--method', 'gptq', *few, *ct],
                        ['quantize', model, '--format', 'int4', *small, '--method', 'gptq', '--blocks', 'quantized', *few, *ct]):
            expect('NaN in a weight, ' + ' '.join(command[::2]), command, 3, f"'{damaged}' has 2 NaN and 1 infinite")
            check(not os.path.exists(model + '-out'), f'NaN in {damaged} leaves nothing')
        expect('NaN in a weight', ['inspect', model, '--verify-data'], 3, damaged, '2 NaN', '1 inf')

    # Shards.
    sharded, file = copy()
    header, data = header_of(file)
    names = sorted(header, key=lambda name: header[name]['data_offsets'])
    for number, part in enumerate((names[:5], names[5:])):
        begin, end = header[part[0]]['data_offsets'][0], header[part[-1]]['data_offsets'][1]
        moved = {name: {**header[name], 'data_offsets': [at - begin for at in header[name]['data_offsets']]} for name in part}
        write(os.path.join(sharded, f'model-0000{number + 1}-of-00002.safetensors'), moved, data[begin:end])
    os.remove(file)
    index = {name: f'model-0000{1 + (i >= 5)}-of-00002.safetensors' for i, name in enumerate(names)}
    path = os.path.join(sharded, 'model.safetensors.index.json')
    with open(path, 'w', encoding='utf-8') as output:
        json.dump({'metadata': {}, 'weight_map': index}, output)
    count += 1
    check(pare('inspect', sharded).code == 0, 'shards that are right')
    model, _ = copy(sharded)
    change_json(os.path.join(model, 'model.safetensors.index.json'), weight_map={**index, names[0]: index[names[-1]]})
    expect('the wrong shard in the index', ['inspect', model], 3, names[0], 'it is in model-00001-of-00002.safetensors')
    model, _ = copy(sharded)
    os.remove(os.path.join(model, 'model-00002-of-00002.safetensors'))
    expect('a missing shard', ['inspect', model], 3, 'model-00002-of-00002.safetensors is missing')
    os.remove(os.path.join(model, 'model.safetensors.index.json'))
    expect('a missing shard without an index', ['inspect', model], 3, 'one of 2 shards')

    # config.json and tokenizer.json.
    model, _ = copy()
    change_json(os.path.join(model, 'config.json'), vocab_size=4000)
    expect('a vocabulary larger than the embedding', ['eval', model, '--data', text + ':window=32'], 3,
           "'model.embed_tokens.weight' is [96,64]", 'by the config it is [4000,64]')
    model, _ = copy()
    change_json(os.path.join(model, 'tokenizer.json'), model={'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'ab': 2000}, 'merges': [['a', 'b']]})
    expect('a token beyond the embedding', ['eval', model, '--data', text + ':window=32'], 3, '2000', 'embedding has 96 rows')
    expect('a token beyond the embedding, going on with a text', ['generate', model, '--prompt', 'ab'], 3, 'tokenizer.json', "2000 ('ab')",
           'embedding has 96 rows')
    model, _ = copy()
    change_json(os.path.join(model, 'config.json'), model_type='lama')
    expect('an unknown family', ['inspect', model], 4, "'lama'", 'Qwen 3', 'Gemma 2', 'nearest by its weights is Llama')
    model, _ = copy()
    change_json(os.path.join(model, 'tokenizer.json'), pre_tokenizer={'type': 'Shouting'})
    expect('a tokenizer with an unknown step', ['eval', model, '--data', text + ':window=32'], 4, "'Shouting'", 'tokenizer.json')

    # Chat templates.
    model, _ = copy()
    for source, code, *words in (("{{ messages[0]['content'] | shout }}", 4, "chat_template.jinja: chat template: line 1: the filter 'shout'"),
                                 ("{% import 'x' as y %}", 4, "the tag 'import'"), ("{{ 'a'.zfill(4) }}", 4, "the method 'zfill'"),
                                 ("{{ cycler(1) }}", 4, "the function 'cycler'"), ("{{ raise_exception('no') }}", 2, 'refuses these messages: no')):
        with open(os.path.join(model, 'chat_template.jinja'), 'w', encoding='utf-8') as file:
            file.write(source)
        expect('the template ' + source, ['generate', model, '--chat', '--prompt', 'ab'], code, *words)
    os.remove(os.path.join(model, 'chat_template.jinja'))
    with open(os.path.join(model, 'tokenizer_config.json'), 'w', encoding='utf-8') as file:
        json.dump({'chat_template': '{{ x | shout }}'}, file)
    expect('a template of the config', ['generate', model, '--chat', '--prompt', 'ab'], 4, "tokenizer_config.json: chat template: line 1")

    # Texts and contexts.
    expect('a window beyond the context', ['eval', good, '--data', text + ':window=100'], 2, '100 tokens', "the model's 64 positions")
    expect('a prompt beyond the context', ['generate', good, '--prompt', 'a' * 70], 2, '70 tokens', '64')
    short = os.path.join(folder, 'short.txt')
    with open(short, 'w', encoding='utf-8') as output:
        output.write('abab')
    quantize = ['quantize', good, '--format', 'int4', '--group-size', '32', '--method', 'gptq', '--export', 'compressed_tensors']
    for name, more in (('', []), (', block by block', ['--blocks', 'quantized'])):
        out = os.path.join(folder, 'short-out')
        expect('a calibration text shorter than one window' + name, [*quantize, *more, '--data', short + ':window=32', '-o', out], 2,
               'short.txt', '2 tokens, and one window takes 32')
        check(not os.path.exists(out), 'a short text leaves nothing')
    expect('a text without a tokenizer', ['eval', CHECKPOINT, '--data', text + ':window=32'], 3, 'tokenizer')

    # A disk that is full in the middle of a shard: of the second of many, of a GGUF file, of a block's file.
    plain = ['quantize', good, '--format', 'W8A16']
    for name, command, room in (
            ('a shard', [*plain, '--export', 'compressed_tensors', '--shard-size', '20000', '-o'], '30000'),
            ('a GGUF file', ['quantize', good, '--format', 'q8_0', '--export', 'gguf', '-o'], '30000'),
            ('a block', [*quantize, '--blocks', 'quantized', '--data', text + ':window=32,samples=2', '-o'], '10000')):
        out = os.path.join(folder, 'full', name.replace(' ', '-'))
        os.makedirs(os.path.dirname(out), exist_ok=True)
        expect('a full disk in ' + name, [*command, out], 5, 'No space left', env={'PARE_TEST_DISK_FULL_AFTER': room})
        check(not os.path.isfile(out) and (not os.path.isdir(out) or not os.listdir(out)), f'a full disk in {name} leaves nothing')
        check(not [n for n in os.listdir(os.path.dirname(out)) if n.startswith('.')], f'a full disk in {name} leaves no temporaries',
              os.listdir(os.path.dirname(out)))

finish(count)
