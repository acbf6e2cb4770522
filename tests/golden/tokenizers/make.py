#!/usr/bin/env python3
"""Small tokenizers of every kind, and what the tokenizers library makes of awkward texts.

    tests/golden/tokenizers/make.py            needs the Python package tokenizers

Each NAME.json is a tokenizer.json trained on the licence and on this script; NAME.cases.json holds
[{text, ids, special, decoded}]: ids without and with the tokens of the post-processor, and the text that decode gives.
With PROSE=FOLDER (the models prose-llama and prose-mixtral, and the text valid.txt) it also prints what the test of the
real tokenizers expects: how many tokens, and the SHA-256 of their numbers as 4 bytes, little-endian.
"""
import hashlib
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
TEXTS = [
    '', ' ', '   ', '\n', 'a', 'Hello, world!', ' leading and trailing ', 'two  spaces   three\n\n\nlines\t\ttabs \n x',
    "I'm sure they've said it isn't we'll DON'T he'd", '1234567890 3.14159 1e-5 0x1F ½ ² ٣٤ Ⅷ', 'naïve café Ünïcödé Straße ĲĲ İstanbul ǅ',
    'e\u0301 vs \u00e9; A\u030a vs \u00c5; \u1e9b\u0323 ﬁ ① ㎏', '日本語のテキスト 中文字符。한국어 텍스트', 'مرحبا بالعالم שלום', '🙂👩‍👩‍👧‍👦🇩🇪 emoji', 'a\u00a0b\u2003c\u3000d\u200be\ufeff',
    '\u0000\u0001\u001f\u007f\u0085', '<|endoftext|>', 'x<|endoftext|>y <s>z</s> <mask> a<mask> b', '[CLS] [SEP][PAD] [MASK]ed', 'int main(void) { return x->y[3] << 2; } // ok',
    'http://example.org/a?b=c&d=%20#e_f-g', 'word' * 40, 'ααββγγ ΑΒΓ Σίσυφος ΟΔΟΣ', 'snake_case CamelCase kebab-case UPPER', '\u2581already marked\u2581', '\r\nwindows\r\nlines\r', '"quoted" \'single\' “curly” ‘x’ – — …',
    '\U0001d54f\U0001f9ff \U000e0041', 'ﷺ ﷽ क्षि নি กำ', '...!!!???,,,;;;', 'The quick brown fox jumps over the lazy dog. ' * 3,
]
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


QWEN2 = GPT4.replace(r'\p{N}{1,3}', r'\p{N}')
UPPER, LOWER = r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]', r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def corpus():
    for name in ('LICENSE', 'tests/golden/tokenizers/make.py'):
        yield open(os.path.join(ROOT, name), encoding='utf-8').read()
    yield '\n'.join(TEXTS)


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=420, special_tokens=['<|endoftext|>'], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_tokens([AddedToken('<mask>', lstrip=True, normalized=False), AddedToken('fox', single_word=True)])
    return t


def roberta():
    t = byte_level()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.add_special_tokens(['<s>', '</s>'])
    t.post_processor = processors.RobertaProcessing(('</s>', t.token_to_id('</s>')), ('<s>', t.token_to_id('<s>')))
    return t


def llama3(pattern=GPT4, ignore_merges=True):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), 'isolated'), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=420, special_tokens=['<|begin|>', '<|endoftext|>'], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single='<|begin|> $A', pair='<|begin|> $A <|begin|> $B', special_tokens=[('<|begin|>', 0)])])
    return t


def smollm():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=380, special_tokens=['<|endoftext|>'], show_progress=False))  # some bytes have no token
    return t


def llama2():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token='<unk>'))
    t.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    t.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(' ', 1, 0)])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=560, special_tokens=['<unk>', '<s>', '</s>'] + [f'<0x{i:02X}>' for i in range(256)], limit_alphabet=80, show_progress=False))
    d = json.loads(t.to_str())
    for token in d['added_tokens'][3:]:
        assert token['content'].startswith('<0x')
    d['added_tokens'] = d['added_tokens'][:3]
    t = Tokenizer.from_str(json.dumps(d))
    t.post_processor = processors.TemplateProcessing(single='<s> $A', pair='<s> $A <s> $B', special_tokens=[('<s>', 1)])
    return t


def word_piece(cased=False):
    t = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    t.normalizer = normalizers.BertNormalizer(lowercase=not cased, strip_accents=None)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=500, limit_alphabet=150, special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'], show_progress=False))
    t.post_processor = processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2))
    return t


def unigram(bytes_too=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(' {2,}'), ' ')])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first' if bytes_too else 'always')
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme='first')]) if bytes_too else decoders.Metaspace()
    special = ['<pad>', '</s>', '<unk>'] + ([f'<0x{i:02X}>' for i in range(256)] if bytes_too else [])
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=500 if bytes_too else 300, special_tokens=special, unk_token='<unk>', shrinking_factor=0.6, show_progress=False))
    d = json.loads(t.to_str())
    d['added_tokens'] = d['added_tokens'][:3]
    d['model']['byte_fallback'] = bytes_too
    t = Tokenizer.from_str(json.dumps(d))
    t.post_processor = processors.TemplateProcessing(single='$A </s>', pair='$A </s> $B </s>', special_tokens=[('</s>', 1)])
    return t


def qwen2():
    t = llama3(QWEN2, False)
    t.normalizer = normalizers.NFC()
    return t


def gemma():
    """Spaces become marks, the text is cut behind none of them, bytes stand for what has no token."""
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token='<unk>'))
    t.normalizer = normalizers.Replace(' ', '▁')
    t.pre_tokenizer = pre_tokenizers.Split(' ', 'merged_with_previous')
    t.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=560, special_tokens=['<pad>', '<eos>', '<bos>', '<unk>'] + [f'<0x{i:02X}>' for i in range(256)], limit_alphabet=80, show_progress=False))
    d = json.loads(t.to_str())
    d['added_tokens'] = d['added_tokens'][:4]
    t = Tokenizer.from_str(json.dumps(d))
    t.add_tokens([AddedToken('\n\n', normalized=False), AddedToken('▁▁▁', normalized=False)])
    t.post_processor = processors.TemplateProcessing(single='<bos> $A', pair='<bos> $A <bos> $B', special_tokens=[('<bos>', 2)])
    return t


def unigram_plain():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Replace(Regex(' {2,}'), ' ')
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='always')
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=300, special_tokens=['<pad>', '</s>', '<unk>'], unk_token='<unk>', shrinking_factor=0.6, show_progress=False))
    t.post_processor = processors.TemplateProcessing(single='$A </s>', pair='$A </s> $B </s>', special_tokens=[('</s>', 1)])
    return t


def words(kind):
    t = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    t.normalizer = {'a': normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]), 'b': normalizers.NFC(), 'c': normalizers.NFKD()}[kind]
    t.pre_tokenizer = {'a': pre_tokenizers.Whitespace(), 'b': pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation('merged_with_previous'), pre_tokenizers.Digits(False)]),
                       'c': pre_tokenizers.Sequence([pre_tokenizers.Split(' ', 'merged_with_next'), pre_tokenizers.Split(Regex('[aeiou]+'), 'contiguous'), pre_tokenizers.CharDelimiterSplit('-')])}[kind]
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=400, limit_alphabet=200, special_tokens=['[PAD]', '[UNK]'], show_progress=False))
    return t


MAKERS = {'qwen2': qwen2, 'tekken': lambda: llama3(TEKKEN), 'gpt4o': lambda: llama3(GPT4O, False), 'gemma': gemma, 'unigram_plain': unigram_plain, 'byte_level': byte_level, 'roberta': roberta, 'llama3': llama3, 'smollm': smollm, 'llama2': llama2, 'bert': word_piece,
          'bert_cased': lambda: word_piece(True), 'unigram': unigram, 'unigram_bytes': lambda: unigram(True),
          'words_a': lambda: words('a'), 'words_b': lambda: words('b'), 'words_c': lambda: words('c')}


def save(path, value):
    with open(os.path.join(HERE, path), 'w', encoding='utf-8') as file:
        json.dump(value, file, ensure_ascii=True, separators=(',', ':'))
        file.write('\n')


for name in sys.argv[1:] or MAKERS:
    tokenizer = MAKERS[name]()
    save(f'{name}.json', json.loads(tokenizer.to_str()))
    cases = []
    for text in TEXTS:
        plain, special = tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text, add_special_tokens=True).ids
        cases.append({'text': text, 'ids': plain, 'special': special, 'decoded': tokenizer.decode(plain, skip_special_tokens=True)})
    save(f'{name}.cases.json', cases)
    print(name, tokenizer.get_vocab_size(), sum(len(c['ids']) for c in cases))

if 'PROSE' in os.environ:
    folder = os.environ['PROSE']
    text = open(os.path.join(folder, 'data/prose/valid.txt'), encoding='utf-8', newline='').read()
    for name in ('prose-llama', 'prose-mixtral'):
        ids = Tokenizer.from_file(os.path.join(folder, 'models', name, 'tokenizer.json')).encode(text, add_special_tokens=False).ids
        print(name, len(ids), hashlib.sha256(b''.join(i.to_bytes(4, 'little') for i in ids)).hexdigest())
