"""A checkpoint to NVFP4 and INT4 in the form that vLLM reads (compressed-tensors), with proof: read back, KL, a text."""
import json
import os
import random

from walk import check, done, image_classifier, pare, step, workplace, write

from tiny_llama import make_llama

with workplace() as folder:
    here = {'cwd': folder}
    make_llama(os.path.join(folder, 'llama'))
    image_classifier(folder)
    draw = random.Random(1)
    write(folder, 'valid.txt', ''.join(draw.choice('ab') for _ in range(4000)))
    write(folder, 'calibration.txt', ''.join(draw.choice('ab') for _ in range(4000)))

    step('inspect', ['inspect', 'llama'], 0, 'Llama', '2 layers', **here)
    step('which formats', ['ops', '--formats'], 0, 'nvfp4', 'W4A16', 'NVFP4A16', **here)
    step('the help', ['quantize', '--help'], 0, '--export', 'compressed_tensors', **here)

    # What a person types first, and what they are told.
    quantize = ['quantize', 'llama', '--format']
    step('no export', [*quantize, 'int4', '-o', 'out'], 2, '--export compressed_tensors', 'out.onnx', **here)
    step('the name of the reader', [*quantize, 'int4', '--export', 'vllm', '-o', 'out'], 2, '--export', "did you mean 'compressed_tensors'?", **here)
    step('a misspelt export', [*quantize, 'int4', '--export', 'compresed_tensors', '-o', 'out'], 2, "did you mean 'compressed_tensors'?", **here)
    step('a misspelt format', [*quantize, 'NVFP4A61', '--export', 'compressed_tensors', '-o', 'out'], 2, "did you mean 'NVFP4A16'?", **here)
    step('activations without data', [*quantize, 'NVFP4', '--export', 'compressed_tensors', '-o', 'out'], 2, '--data', "'NVFP4A16'", **here)
    export = ['--export', 'compressed_tensors', '-o', 'out']
    step('a file of the folder', ['quantize', 'llama/model.safetensors', '--format', 'int4', *export], 2, 'name the folder: llama', **here)
    step('an ONNX model', ['quantize', 'my.onnx', '--format', 'int4', *export], 2, 'qdq_onnx', **here)
    step('a folder that is not there', ['quantize', 'lama', '--format', 'int4', *export], 3, "'lama'", **here)
    step('a method that needs data', [*quantize, 'int4', '--method', 'gptq', *export], 2, '--data', **here)
    check(not os.path.exists(os.path.join(folder, 'out')), 'what was refused left a folder')

    # NVFP4 (weights) and INT4, each read back in every bit when it is written.
    step('NVFP4', [*quantize, 'nvfp4', '--export', 'compressed_tensors', '-o', 'nvfp4'], 0, '14 layers quantized', 'audit: passed', **here)
    step('INT4', [*quantize, 'int4', '--group-size', '32', '--export', 'compressed_tensors', '-o', 'int4'], 0, 'audit: passed', **here)
    step('over it', [*quantize, 'int4', '--group-size', '32', '--export', 'compressed_tensors', '-o', 'int4'], 2, 'another folder', **here)
    for name, form in (('nvfp4', 'nvfp4-pack-quantized'), ('int4', 'pack-quantized')):
        with open(os.path.join(folder, name, 'config.json'), encoding='utf-8') as file:
            config = json.load(file)['quantization_config']
        group = next(iter(config['config_groups'].values()))
        check(config['quant_method'] == 'compressed-tensors' and group['format'] == form and group['targets'] == ['Linear'] and
              config['ignore'] == ['lm_head'], f'{name}: config.json as vLLM reads it', json.dumps(config))
        for beside in ('tokenizer.json', 'generation_config.json', 'LICENSE'):
            check(os.path.exists(os.path.join(folder, name, beside)), f'{name}: {beside} travels along')
        step(f'inspect {name}', ['inspect', name], 0, 'compressed-tensors', '14 layers', 'bits', **here)

        # The proof, and a gate on it.
        judge = ['eval', name, '--reference', 'llama', '--data', 'valid.txt:window=32,samples=8']
        step(f'KL of {name}', [*judge, '--gate', 'kl<=10', '--report', name + '-report'], 0, 'kl', 'perplexity', 'token_agreement', 'gate   passed', **here)
        step(f'a gate that {name} misses', [*judge, '--metric', 'kl', '--gate', 'kl<=0'], 1, 'gate   FAILED', **here)
        step(f'{name} talks', ['generate', name, '--prompt', 'ab', '--max-tokens', '3'], 0, **here)
    step('a drop of KL', ['eval', 'int4', '--reference', 'llama', '--data', 'valid.txt:window=32,samples=8', '--gate', 'kl_drop<=1'], 2,
         'already compares', 'kl', absent=('evaluating',), **here)
    step('no such text', ['eval', 'int4', '--reference', 'llama', '--data', 'valid.text'], 3, 'valid.text', **here)

    # As a recipe: `recipe init` knows that the model reads text.
    step('init', ['recipe', 'init', 'llm.yaml', '--model', 'llama'], 0, **here)
    with open(os.path.join(folder, 'llm.yaml'), encoding='utf-8') as file:
        text = file.read()
    check('kl' in text and '.txt' in text and 'compressed_tensors' in text and 'nhwc' not in text, 'a recipe for text', text)
    step('check', ['recipe', 'check', 'llm.yaml'], 3, 'test.txt', absent=("calibration.txt' does not",), **here)
    document = pare('quantize', 'llama', '--format', 'nvfp4', '--export', 'compressed_tensors', '-o', 'j', '--json', **here).json()
    check(document['audit']['passed'] if 'passed' in document['audit'] else not document['audit']['mismatches'], '--json says the audit', document['audit'])
done()
