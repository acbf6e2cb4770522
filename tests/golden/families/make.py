#!/usr/bin/env python3
"""Tiny random models of every family, and what transformers computes with them in float32.

    tests/golden/families/make.py [NAME...]     needs torch, transformers and safetensors

Each folder gets config.json, model.safetensors (bfloat16) and expected.safetensors: input_ids [2, 20], the logits
of the first 12 tokens in one call (`prefill`), and of eight further ones, each in a call of its own with the cache of
keys and values (`steps` [2, 8, vocabulary]). Encoders: attention_mask, token_type_ids and last_hidden_state.
tests/unit/graphsurgeon/families_test.cpp compares.
"""
import copy
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
PREFILL, STEPS = 12, 8

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=0)
LLAMA3 = {'rope_type': 'llama3', 'rope_theta': 5000.0, 'factor': 4.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
          'original_max_position_embeddings': 16}
YARN = {'rope_type': 'yarn', 'rope_theta': 5000.0, 'factor': 4.0, 'original_max_position_embeddings': 16}
LINEAR = {'rope_type': 'linear', 'rope_theta': 5000.0, 'factor': 4.0}
DYNAMIC = {'rope_type': 'dynamic', 'rope_theta': 5000.0, 'factor': 4.0}
# The prefill and four steps turn by the short factors, the last four steps by the long ones.
LONGROPE = {'rope_type': 'longrope', 'rope_theta': 5000.0, 'partial_rotary_factor': 1.0, 'short_factor': [1.0, 1.25, 1.5, 2.0],
            'long_factor': [1.5, 2.0, 4.0, 7.0], 'original_max_position_embeddings': 16}
GEMMA3_ROPE = {'full_attention': {'rope_type': 'linear', 'factor': 8.0, 'rope_theta': 1e6},
               'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4}}
MODELS = {
    'llama': ('Llama', dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    'llama3': ('Llama', dict(tie_word_embeddings=True, rope_parameters=LLAMA3)),
    'llama_yarn': ('Llama', dict(tie_word_embeddings=True, rope_parameters=YARN)),
    'llama_linear': ('Llama', dict(tie_word_embeddings=True, rope_parameters=LINEAR)),
    'llama_dynamic': ('Llama', dict(tie_word_embeddings=True, rope_parameters=DYNAMIC)),
    'mistral': ('Mistral', dict(sliding_window=6, head_dim=12)),
    'qwen2': ('Qwen2', dict()),
    'qwen2_window': ('Qwen2', dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    'qwen3': ('Qwen3', dict(head_dim=12)),
    'gemma': ('Gemma', dict(head_dim=12)),
    'gemma2': ('Gemma2', dict(head_dim=12, sliding_window=6, query_pre_attn_scalar=20)),
    'gemma3': ('Gemma3', dict(head_dim=12, sliding_window=6, query_pre_attn_scalar=20, num_hidden_layers=3,
                              layer_types=['sliding_attention', 'sliding_attention', 'full_attention'])),
    'gemma3_scaled': ('Gemma3', dict(head_dim=12, sliding_window=6, query_pre_attn_scalar=12, num_hidden_layers=3, rope_parameters=GEMMA3_ROPE,
                                     layer_types=['sliding_attention', 'sliding_attention', 'full_attention'])),
    'phi3_longrope': ('Phi3', dict(rope_parameters=LONGROPE, original_max_position_embeddings=16)),
    'phi3': ('Phi3', dict(partial_rotary_factor=0.5)),
    'mixtral': ('Mixtral', dict(num_local_experts=4, num_experts_per_tok=2)),
    'qwen2_moe': ('Qwen2Moe', dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                   shared_expert_intermediate_size=28, decoder_sparse_step=1)),
    'qwen3_moe': ('Qwen3Moe', dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, head_dim=12,
                                   norm_topk_prob=True, mlp_only_layers=[1])),
    'gpt2': ('GPT2', dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    'opt': ('OPT', dict(ffn_dim=40)),
    'opt_350m': ('OPT', dict(ffn_dim=40, do_layer_norm_before=False, word_embed_proj_dim=20)),
    'bert': ('Bert', dict()),
}


def config_of(kind, extra):
    name = {'Gemma3': 'Gemma3TextConfig'}.get(kind, kind + 'Config')
    sizes = {k: v for k, v in SIZES.items() if not (kind == 'GPT2' and k not in ('vocab_size', 'bos_token_id', 'eos_token_id', 'pad_token_id'))}
    return getattr(transformers, name)(**{**sizes, **extra}, attn_implementation='eager')


def make(name):
    kind, extra = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    encoder = kind == 'Bert'
    config = config_of(kind, extra)
    cls = getattr(transformers, {'Bert': 'BertModel', 'GPT2': 'GPT2LMHeadModel'}.get(kind, kind + 'ForCausalLM'))
    model = cls(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():  # larger than the usual start, so that attention has something to choose
            p.copy_((torch.randn_like(p) * 0.25 + (0 if p.dim() > 1 else 0.5 * ('norm' in key.lower() or 'ln_' in key))).bfloat16().float())
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)  # a copy: frequencies would be rounded too
    if os.path.exists(os.path.join(folder, 'generation_config.json')):
        os.remove(os.path.join(folder, 'generation_config.json'))
    ids = torch.randint(2, SIZES['vocab_size'], (2, PREFILL + STEPS))
    expected = {'input_ids': ids}
    with torch.no_grad():
        if encoder:
            mask = torch.ones_like(ids)
            mask[1, 13:] = 0
            types = torch.zeros_like(ids)
            types[:, 9:] = 1
            expected |= {'attention_mask': mask, 'token_type_ids': types,
                         'last_hidden_state': model(ids, attention_mask=mask, token_type_ids=types).last_hidden_state}
        else:
            out = model(ids[:, :PREFILL], use_cache=True)
            expected['prefill'] = out.logits
            past, steps = out.past_key_values, []
            for i in range(PREFILL, PREFILL + STEPS):
                out = model(ids[:, i:i + 1], past_key_values=past, use_cache=True)
                past = out.past_key_values
                steps.append(out.logits)
            expected['steps'] = torch.cat(steps, 1)
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(folder, 'expected.safetensors'))
    print(name, {k: tuple(v.shape) for k, v in expected.items()}, float(expected.get('steps', torch.zeros(1)).abs().max()))


for wanted in sys.argv[1:] or MODELS:
    make(wanted)
