"""What language models are worth, by the program, against what PyTorch and transformers have recorded of them.

prose-llama and prose-mixtral with the texts of PARE_SHARED_DIR; SmolLM2 (GGUF) and MiniLM where PARE_PACKAGES names the folder that
models/fetch_packages.py filled. The tests of the folders look closer: token for token, logits, hidden states."""
import json
import os

from harness import SOURCE, check, finish, pare, workplace

SHARED = os.environ.get('PARE_SHARED_DIR') or os.path.join(SOURCE, '..', 'shared')
PACKAGES = os.environ.get('PARE_PACKAGES')
VALID = os.path.join(SHARED, 'data', 'prose', 'valid.txt')
count = 0


def evaluated(*arguments):
    global count
    count += 1
    result = pare('eval', *arguments, '--json')
    check(result.code == 0, arguments, result.err)
    return result.json()


def close(name, value, wanted, tolerance):
    global count
    count += 1
    print(f'{name}: {value:.6f}, recorded {wanted:.6f}')
    check(abs(value - wanted) <= tolerance, name, value, wanted)


def read(*parts):
    with open(os.path.join(SHARED, *parts), encoding='utf-8') as file:
        return json.load(file)


def prose():
    for name, record in (('prose-llama', 'reference_perplexity.json'), ('prose-mixtral', 'reference.json')):
        wanted = read('models', name, record)
        model = os.path.join(SHARED, 'models', name)
        report = evaluated(model, '--data', VALID + ':window=512')
        check(report['samples'] == wanted['windows'], name + ': windows', report['samples'])
        close(name, report['metrics']['perplexity'], wanted['perplexity'], 1e-3)
        few = [evaluated(model, '--data', VALID + ':window=512,samples=3,batch=' + batch, '--threads', threads)['metrics']['perplexity']
               for threads, batch in (('1', '1'), ('2', '3'))]
        check(few[0] == few[1], name + ': threads and batches', few)


def smollm2(place):
    global count
    model, wanted = os.path.join(PACKAGES, 'smollm2', 'SmolLM2-135M-Instruct.Q4_1.gguf'), read('expected', 'packages', 'smollm2', 'smollm2.json')
    text = os.path.join(place, 'valid.txt')
    with open(VALID, encoding='utf-8') as source, open(text, 'w', encoding='utf-8') as file:
        file.write(source.read()[:20000])
    metrics = evaluated(model, '--data', text + ':window=512')['metrics']
    close('SmolLM2', metrics['perplexity'], wanted['perplexity']['perplexity'], 1e-5 * 42)
    for prompt in wanted['generation']['prompts']:
        count += 1
        tokens = len(prompt['continuation'])
        result = pare('generate', model, '--prompt', prompt['prompt'], '--max-tokens', tokens, '--json').json()
        check(result['tokens'] == prompt['continuation'][:len(result['tokens'])] and result['tokens'], 'SmolLM2: ' + prompt['prompt'], result)


# Of 200 sentences: the mean cosine of embeddings, weights rounded to nearest, as sentence-transformers' model has it with the same rounding.
def minilm(place):
    global count
    model, drift = os.path.join(PACKAGES, 'minilm'), read('expected', 'packages', 'minilm', 'minilm.json')['drift']
    text = os.path.join(place, 'sentences.jsonl')
    with open(text, 'w', encoding='utf-8') as file:
        for sentence in drift['sentences']:
            file.write(json.dumps({'text': sentence}) + '\n')
    for known, scheme in (('INT8 weights, symmetric, one scale an output row, absmax/127', ['--format', 'int8_weights']),
                          ('INT4 weights, symmetric, groups of 32 along the input, absmax/7, codes -8..7', ['--format', 'int4', '--group-size', '32'])):
        count += 1
        out = os.path.join(place, scheme[1])
        result = pare('quantize', model, *scheme, '--method', 'rtn', '--export', 'compressed_tensors', '-o', out)
        check(result.code == 0, scheme, result.err)
        report = evaluated(out, '--reference', model, '--data', text + ':join=lines,window=256', '--metric', 'embedding_cosine')
        # Recorded to six places.
        close('MiniLM, ' + scheme[1], report['metrics']['embedding_cosine'], drift['known'][known]['mean_cosine'], 1e-6)


if not os.path.exists(VALID):
    print(f'skipped: no models at {SHARED}')
    finish(0)
prose()
if PACKAGES:
    with workplace() as folder:
        minilm(folder)
        smollm2(folder)
finish(count)
