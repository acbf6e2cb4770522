"""A checkpoint of its own: small, and of sizes that every format takes."""
import json
import os
import struct

import numpy as np


def make_llama(folder, tied=False):
    """A random Llama of two layers whose sizes every format takes, bfloat16."""
    hidden, inter, vocabulary, kv = 64, 128, 96, 32
    config = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': hidden,
              'intermediate_size': inter, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2,
              'vocab_size': vocabulary, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
              'hidden_act': 'silu', 'tie_word_embeddings': tied, 'torch_dtype': 'bfloat16', 'bos_token_id': 0}
    random = np.random.default_rng(3)
    tensors = {'model.embed_tokens.weight': (vocabulary, hidden), 'model.norm.weight': (hidden,)}
    if not tied:
        tensors['lm_head.weight'] = (vocabulary, hidden)
    for i in range(2):
        block = f'model.layers.{i}.'
        tensors |= {block + 'input_layernorm.weight': (hidden,), block + 'post_attention_layernorm.weight': (hidden,),
                    block + 'self_attn.q_proj.weight': (hidden, hidden), block + 'self_attn.k_proj.weight': (kv, hidden),
                    block + 'self_attn.v_proj.weight': (kv, hidden), block + 'self_attn.o_proj.weight': (hidden, hidden),
                    block + 'mlp.gate_proj.weight': (inter, hidden), block + 'mlp.up_proj.weight': (inter, hidden),
                    block + 'mlp.down_proj.weight': (hidden, inter)}
    header, data = {}, b''
    for name, shape in tensors.items():
        values = (np.ones(shape) if len(shape) == 1 else random.normal(0, 0.1, shape)).astype(np.float32)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {'dtype': 'BF16', 'shape': list(shape), 'data_offsets': [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    os.makedirs(folder)
    with open(os.path.join(folder, 'model.safetensors'), 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data)
    for name, content in {
            'config.json': config, 'generation_config.json': {'bos_token_id': 0},
            'tokenizer.json': {'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'ab': 2}, 'merges': [['a', 'b']]},
                               'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True},
                               'decoder': {'type': 'ByteLevel'}, 'added_tokens': []}}.items():
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
            json.dump(content, file)
    with open(os.path.join(folder, 'LICENSE'), 'w', encoding='utf-8') as file:
        file.write('free\n')
    return folder
