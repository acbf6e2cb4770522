#!/usr/bin/env python3
"""A Llama checkpoint of random bfloat16 weights, in shards, for measurements of memory and speed: nothing is learned.

  synthetic_llama.py SHAPE FOLDER [--layers N] [--shard-gib 5] [--seed 0]

Shapes: tiny (tests), 1b (Llama 3.2 1B), 8b (Llama 3 8B, 16 GB). The tokenizer has a token a byte, so every text fits.
Weights are cut out of one pool of normal numbers at places that the seed decides.
"""
import argparse
import json
import os
import struct

import numpy

SHAPES = {
    'tiny': dict(hidden=64, intermediate=128, layers=3, heads=4, kv_heads=2, head=16, vocabulary=272, tied=False,
                 positions=256),
    '1b': dict(hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8, head=64, vocabulary=128256, tied=True,
               positions=8192),
    '8b': dict(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, head=128, vocabulary=128256, tied=False,
               positions=8192),
}


def tensors(s, layers):
    """(name, shape, scale) in the order of the model; scale 0: ones."""
    h, q, kv, m = s['hidden'], s['heads'] * s['head'], s['kv_heads'] * s['head'], s['intermediate']
    yield 'model.embed_tokens.weight', (s['vocabulary'], h), 1.0
    for i in range(layers):
        block = f'model.layers.{i}.'
        yield block + 'input_layernorm.weight', (h,), 0
        for name, outs, ins in (('q', q, h), ('k', kv, h), ('v', kv, h), ('o', h, q)):
            yield f'{block}self_attn.{name}_proj.weight', (outs, ins), ins ** -0.5
        yield block + 'post_attention_layernorm.weight', (h,), 0
        for name, outs, ins in (('gate', m, h), ('up', m, h), ('down', h, m)):
            yield f'{block}mlp.{name}_proj.weight', (outs, ins), ins ** -0.5
    yield 'model.norm.weight', (h,), 0
    if not s['tied']:
        yield 'lm_head.weight', (s['vocabulary'], h), h ** -0.5


def bfloat16(values):
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


class Weights:
    POOL = 1 << 24

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.pool = self.random.standard_normal(self.POOL, dtype=numpy.float32)
        self.scaled = {}

    def write(self, file, count, scale):
        if scale == 0:
            file.write(bfloat16(numpy.ones(count)).tobytes())
            return
        if scale not in self.scaled:
            self.scaled[scale] = bfloat16(self.pool * numpy.float32(scale))
        pool = self.scaled[scale]
        while count > 0:
            begin = int(self.random.integers(0, self.POOL // 2))
            part = pool[begin:begin + min(count, self.POOL // 2)]
            file.write(part.tobytes())
            count -= len(part)


def byte_tokenizer():
    # The characters that byte-level BPE has for bytes.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    characters = {b: chr(b) for b in plain}
    characters.update({b: chr(256 + i) for i, b in enumerate(others)})
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    return {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': None,
            'pre_tokenizer': byte_level, 'post_processor': None, 'decoder': byte_level,
            'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                      'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False,
                      'vocab': {characters[b]: b for b in range(256)}, 'merges': []}}


def config(s, layers):
    return {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': s['hidden'],
            'intermediate_size': s['intermediate'], 'num_hidden_layers': layers, 'num_attention_heads': s['heads'],
            'num_key_value_heads': s['kv_heads'], 'head_dim': s['head'], 'vocab_size': s['vocabulary'],
            'max_position_embeddings': s['positions'], 'rms_norm_eps': 1e-05, 'rope_theta': 500000.0, 'hidden_act': 'silu',
            'tie_word_embeddings': s['tied'], 'attention_bias': False, 'mlp_bias': False, 'torch_dtype': 'bfloat16'}


def make(shape, folder, layers=None, shard_bytes=5 << 30, seed=0):
    s = SHAPES[shape]
    layers = layers or s['layers']
    os.makedirs(folder, exist_ok=True)
    shards, size = [[]], 0
    for tensor in tensors(s, layers):
        length = 2 * int(numpy.prod(tensor[1]))
        if shards[-1] and size + length > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += length
    weights, places, total = Weights(seed), {}, 0
    for number, shard in enumerate(shards):
        name = f'model-{number + 1:05d}-of-{len(shards):05d}.safetensors'
        header, offset = {}, 0
        for tensor, dims, _ in shard:
            length = 2 * int(numpy.prod(dims))
            header[tensor] = {'dtype': 'BF16', 'shape': list(dims), 'data_offsets': [offset, offset + length]}
            offset += length
            places[tensor] = name
        text = json.dumps(header, separators=(',', ':')).encode()
        text += b' ' * (-len(text) % 8)
        with open(os.path.join(folder, name), 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text)
            for _, dims, scale in shard:
                weights.write(file, int(numpy.prod(dims)), scale)
        total += offset
    for name, content in (('model.safetensors.index.json', {'metadata': {'total_size': total}, 'weight_map': places}),
                          ('config.json', config(s, layers)), ('tokenizer.json', byte_tokenizer())):
        with open(os.path.join(folder, name), 'w') as file:
            json.dump(content, file)
    return total


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('shape', choices=sorted(SHAPES))
    parser.add_argument('folder')
    parser.add_argument('--layers', type=int)
    parser.add_argument('--shard-gib', type=float, default=5)
    parser.add_argument('--seed', type=int, default=0)
    options = parser.parse_args()
    print(make(options.shape, options.folder, options.layers, int(options.shard_gib * (1 << 30)), options.seed), 'bytes')
