#!/usr/bin/env python3
"""GGUF files and the values of its block formats, by the gguf package.

    tests/golden/gguf/make.py            needs gguf, numpy and safetensors

blocks.json: for each block format the SHA-256 of the float32 values that the package makes of 1,000 blocks of random
bytes (those of splitmix64 from seed 7 + the type's number; the exponents of fp16 fields are kept below 16, so that
all are finite). llama3.gguf: the model tests/golden/families/llama3 with the rows of q and k in GGUF's order and
Llama 3's factors as rope_freqs.weight. The other models of tests/golden/families by their names. tokenizer_NAME.gguf: tokenizers of tests/golden/tokenizers.
"""
import hashlib
import json
import os

import gguf
import numpy as np
from safetensors import safe_open

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.dirname(HERE)
HALVES = {'Q4_0': [0], 'Q4_1': [0, 2], 'Q5_0': [0], 'Q5_1': [0, 2], 'Q8_0': [0], 'Q2_K': [80, 82], 'Q3_K': [108],
          'Q4_K': [0, 2], 'Q5_K': [0, 2], 'Q6_K': [208], 'MXFP4': []}
FAMILIES = {'qwen2': 'qwen2', 'qwen3': 'qwen3', 'qwen2_moe': 'qwen2moe', 'qwen3_moe': 'qwen3moe', 'mixtral': 'llama', 'gemma': 'gemma', 'gemma2': 'gemma2',
            'gemma3': 'gemma3', 'gemma3_scaled': 'gemma3', 'phi3': 'phi3', 'phi3_longrope': 'phi3'}
MASK = (1 << 64) - 1


def random_bytes(seed, count):
    out, state = bytearray(), seed
    while len(out) < count:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        out += (z ^ (z >> 31)).to_bytes(8, 'little')
    return np.frombuffer(bytes(out[:count]), np.uint8).copy()


def blocks():
    golden = {}
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        data = random_bytes(7 + kind, 1000 * size).reshape(1000, size)
        for at in halves:
            data[:, at + 1] &= 0xBF
        values = np.ascontiguousarray(gguf.dequantize(data, kind), np.float32)
        assert not np.isnan(values).any() and values.size == 1000 * gguf.GGML_QUANT_SIZES[kind][0]
        golden[name] = hashlib.sha256(values.tobytes()).hexdigest()
    with open(os.path.join(HERE, 'blocks.json'), 'w') as file:
        json.dump(golden, file, indent=1)
        file.write('\n')


def llama():
    folder = os.path.join(GOLDEN, 'families', 'llama3')
    config = json.load(open(os.path.join(folder, 'config.json')))
    heads, kv, size = config['num_attention_heads'], config['num_key_value_heads'], config['hidden_size'] // config['num_attention_heads']
    w = gguf.GGUFWriter(os.path.join(HERE, 'llama3.gguf'), 'llama')
    w.add_block_count(config['num_hidden_layers'])
    w.add_context_length(config['max_position_embeddings'])
    w.add_embedding_length(config['hidden_size'])
    w.add_feed_forward_length(config['intermediate_size'])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(config['rms_norm_eps'])
    rope = config['rope_parameters']
    w.add_rope_freq_base(rope['rope_theta'])
    w.add_rope_dimension_count(size)
    factors = []
    for i in range(size // 2):
        f = 1 / rope['rope_theta'] ** (2 * i / size)
        length, old = 2 * np.pi / f, rope['original_max_position_embeddings']
        if length < old / rope['high_freq_factor']:
            factors.append(1.0)
        elif length > old / rope['low_freq_factor']:
            factors.append(rope['factor'])
        else:
            mix = (old / length - rope['low_freq_factor']) / (rope['high_freq_factor'] - rope['low_freq_factor'])
            factors.append(1 / ((1 - mix) / rope['factor'] + mix))
    w.add_tensor('rope_freqs.weight', np.array(factors, np.float32))
    names = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight'}
    parts = {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k',
             'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}
    with safe_open(os.path.join(folder, 'model.safetensors'), 'pt') as tensors:
        for name in tensors.keys():
            value = tensors.get_tensor(name).float().numpy()
            target = names.get(name)
            if target is None:
                _, _, layer, part = name.split('.', 3)
                part = parts[part[:-len('.weight')]]
                target = f'blk.{layer}.{part}.weight'
                if part in ('attn_q', 'attn_k'):
                    n = heads if part == 'attn_q' else kv
                    value = value.reshape(n, 2, size // 2, -1).swapaxes(1, 2).reshape(value.shape)
            if value.ndim == 1:
                w.add_tensor(target, value)
            else:  # bfloat16 holds them exactly
                bits = (value.view(np.uint32) >> 16).astype(np.uint16)
                assert ((bits.astype(np.uint32) << 16).view(np.float32) == value).all()
                w.add_tensor(target, bits.view(np.uint8).reshape(value.shape[0], -1), raw_dtype=gguf.GGMLQuantizationType.BF16)
    finish(w)


def save(w, target, value):
    """Matrices as bfloat16, which holds them exactly; vectors as float32."""
    if value.ndim == 1:
        return w.add_tensor(target, value)
    bits = (value.view(np.uint32) >> 16).astype(np.uint16)
    assert ((bits.astype(np.uint32) << 16).view(np.float32) == value).all()
    w.add_tensor(target, bits.view(np.uint8).reshape(*value.shape[:-1], -1), raw_dtype=gguf.GGMLQuantizationType.BF16)


def family(name, arch):
    """As convert_hf_to_gguf.py of llama.cpp does it; names by the package's own table."""
    folder = os.path.join(GOLDEN, 'families', name)
    config = json.load(open(os.path.join(folder, 'config.json')))
    heads, kv, layers = config['num_attention_heads'], config['num_key_value_heads'], config['num_hidden_layers']
    size = config.get('head_dim') or config['hidden_size'] // heads
    w = gguf.GGUFWriter(os.path.join(HERE, name + '.gguf'), arch)
    w.add_block_count(layers)
    w.add_context_length(config['max_position_embeddings'])
    w.add_embedding_length(config['hidden_size'])
    w.add_feed_forward_length(config['intermediate_size'])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(size)
    w.add_value_length(size)
    w.add_layer_norm_rms_eps(config['rms_norm_eps'])
    rope = config['rope_parameters']
    local = rope.get('sliding_attention')
    rope = rope.get('full_attention', rope)
    w.add_rope_freq_base(rope['rope_theta'])
    if local and local['rope_theta'] != 10000:
        raise SystemExit('GGUF has no local base')
    if rope['rope_type'] == 'linear':
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope['factor'])
    if arch == 'phi3':
        w.add_rope_dimension_count(int(rope.get('partial_rotary_factor', 1.0) * size))
    if rope['rope_type'] == 'longrope':
        w.add_rope_scaling_orig_ctx_len(rope['original_max_position_embeddings'])
        scale = config['max_position_embeddings'] / rope['original_max_position_embeddings']
        w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(scale) / np.log(rope['original_max_position_embeddings']))))
        for which in ('long', 'short'):
            w.add_tensor(f'rope_factors_{which}.weight', np.array(rope[which + '_factor'], np.float32))
    if config.get('sliding_window') and (config.get('use_sliding_window', True)):
        w.add_sliding_window(config['sliding_window'])
    if arch == 'gemma3':
        w.add_sliding_window_pattern([t == 'sliding_attention' for t in config['layer_types']])
    if arch == 'gemma2':
        w.add_attn_logit_softcapping(config['attn_logit_softcapping'])
        w.add_final_logit_softcapping(config['final_logit_softcapping'])
    experts = config.get('num_local_experts', config.get('num_experts', 0))
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(config['num_experts_per_tok'])
        if 'moe_intermediate_size' in config:
            w.add_expert_feed_forward_length(config['moe_intermediate_size'])
        if 'shared_expert_intermediate_size' in config:
            w.add_expert_shared_feed_forward_length(config['shared_expert_intermediate_size'])
    table = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], layers)
    plain = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, layers)  # layers without experts, which the fixture has
    stacks = {}
    with safe_open(os.path.join(folder, 'model.safetensors'), 'pt') as tensors:
        for key in sorted(tensors.keys()):
            value = tensors.get_tensor(key).float().numpy()
            if arch.startswith('gemma') and key.endswith('norm.weight'):
                value = value + 1
            if arch == 'llama' and key.endswith(('q_proj.weight', 'k_proj.weight')):
                n = heads if key.endswith('q_proj.weight') else kv
                value = value.reshape(n, 2, size // 2, -1).swapaxes(1, 2).reshape(value.shape)
            parts = key.split('.')
            if 'experts' in parts:
                number = int(parts.pop(parts.index('experts') + 1))
                stacks.setdefault('.'.join(parts), {})[number] = value
                continue
            target = table.get_name(key, try_suffixes=('.weight', '.bias')) or plain.get_name(key, try_suffixes=('.weight', '.bias'))
            if target == 'output.weight' and arch.startswith('gemma'):
                continue
            assert target is not None, key
            save(w, target, np.ascontiguousarray(value))
    for key, stack in stacks.items():
        save(w, table.get_name(key, try_suffixes=('.weight',)), np.stack([stack[i] for i in range(len(stack))]))
    finish(w)


def tokenizer(name, model, pre=None, bos=None):
    t = json.load(open(os.path.join(GOLDEN, 'tokenizers', name + '.json')))
    vocab = sorted(t['model']['vocab'].items(), key=lambda item: item[1])
    pieces = [piece for piece, _ in vocab]
    special = {a['content'] for a in t['added_tokens']}
    w = gguf.GGUFWriter(os.path.join(HERE, 'tokenizer_' + name + '.gguf'), 'llama')
    w.add_tokenizer_model(model)
    w.add_token_list(pieces)
    w.add_token_types([3 if p in special else 6 if p.startswith('<0x') else 1 for p in pieces])
    if bos is not None:
        w.add_bos_token_id(bos)
        w.add_add_bos_token(True)
    if pre:
        w.add_tokenizer_pre(pre)
        w.add_token_merges([' '.join(m) for m in t['model']['merges']])
    else:
        rank = {''.join(m): i for i, m in reversed(list(enumerate(t['model']['merges'])))}
        w.add_token_scores([float(-rank.get(p, -1)) for p in pieces])
        w.add_unk_token_id(0)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
    finish(w)


def other_tokenizers():
    """WordPiece and Unigram; a sentence-piece mark in front of the words of the former, as convert_hf_to_gguf.py writes it."""
    t = json.load(open(os.path.join(GOLDEN, 'tokenizers', 'bert.json')))
    pieces = [p for p, _ in sorted(t['model']['vocab'].items(), key=lambda item: item[1])]
    w = gguf.GGUFWriter(os.path.join(HERE, 'tokenizer_bert.gguf'), 'bert')
    w.add_tokenizer_model('bert')
    w.add_token_list([p if p[0] == '[' and p[-1] == ']' else p[2:] if p.startswith('##') else '\u2581' + p for p in pieces])
    special = {a['content'] for a in t['added_tokens']}
    w.add_token_types([3 if p in special else 1 for p in pieces])
    w.add_unk_token_id(pieces.index('[UNK]'))
    w.add_sep_token_id(pieces.index('[SEP]'))
    w.add_bos_token_id(pieces.index('[CLS]'))
    finish(w)
    t = json.load(open(os.path.join(GOLDEN, 'tokenizers', 'unigram_plain.json')))
    vocab = t['model']['vocab']
    w = gguf.GGUFWriter(os.path.join(HERE, 'tokenizer_unigram_plain.gguf'), 't5')
    w.add_tokenizer_model('t5')
    w.add_token_list([p for p, _ in vocab])
    w.add_token_scores([s for _, s in vocab])
    special = {a['content'] for a in t['added_tokens']}
    w.add_token_types([3 if p in special else 1 for p, _ in vocab])
    w.add_unk_token_id(t['model']['unk_id'])
    w.add_eos_token_id(1)
    w.add_add_space_prefix(True)
    w.add_remove_extra_whitespaces(True)
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


blocks()
llama()
for name, arch in FAMILIES.items():
    family(name, arch)
tokenizer('smollm', 'gpt2', 'smollm')
tokenizer('llama2', 'llama')
tokenizer('llama3', 'gpt2', 'llama-bpe', 0)
tokenizer('qwen2', 'gpt2', 'qwen2', 0)
tokenizer('tekken', 'gpt2', 'tekken', 0)
tokenizer('gpt4o', 'gpt2', 'gpt-4o', 0)
other_tokenizers()
