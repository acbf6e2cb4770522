#!/usr/bin/env python3
"""Quantized checkpoints between pare and its peers, both ways (scripts/interop-quantized makes the environment).

    quantized_interop.py PARE MODEL [WORK [KIND...]]

1. The peers' code packs MODEL in every kind of quantized_peers.py; pare dequantizes each (`convert --to float`): every
   weight is the peer's, in every bit, once rounded to the type in which the peer computes.
2. pare converts them among the formats where that is exact; the peers' readers find the values of the first file. Where
   pare refuses, the reason is printed.
3. pare quantizes MODEL itself and exports every format; the peers' readers find what pare reads back.
4. transformers parses every config.json, compressed-tensors every quantization_config, gguf every GGUF file.
5. Logits of tests/golden/quantized with rounded inputs are those of transformers' float32 Llama whose linear layers get
   compressed-tensors' fake quantization of their inputs (not for dynamic INT8: 127.5 there, 127 in kernels and in pare).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

import torch
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import quantized_peers as peers  # noqa: E402

FORMATS = ['compressed_tensors', 'autoawq', 'gptq', 'gptq_v2', 'modelopt', 'gguf']
# name: arguments of `pare quantize`; `--export` goes with it
OWN = [('int4', ['--format', 'int4', '--group-size', '32'], ['compressed_tensors', 'gptq', 'gptq_v2', 'autoawq', 'modelopt']),
       ('int4_asym', ['--format', 'int4', '--group-size', '32', '--asymmetric'],
        ['compressed_tensors', 'gptq_v2', 'autoawq']),
       ('fp8', ['--format', 'FP8_DYNAMIC'], ['compressed_tensors', 'modelopt']),
       ('w8a8', ['--format', 'W8A8'], ['compressed_tensors']),
       ('nvfp4', ['--format', 'nvfp4'], ['compressed_tensors', 'modelopt']),
       ('mxfp4', ['--format', 'mxfp4'], ['compressed_tensors']),
       ('mxfp8', ['--format', 'mxfp8'], ['compressed_tensors', 'modelopt'])]
good, bad, refused, skipped = [], [], [], []


def note(what, problem=None):
    (bad if problem else good).append(what)
    print(('FAILED ' if problem else 'ok     ') + what + (': ' + problem if problem else ''), flush=True)


def pare(*args):
    done = subprocess.run([PARE, *args], capture_output=True, text=True)
    return done.returncode, (done.stderr or done.stdout).strip()


def ours(folder, out):
    """The weights as pare dequantizes them, float32."""
    shutil.rmtree(out, ignore_errors=True)
    code, text = pare('convert', folder, '-o', out, '--to', 'float', '--quiet')
    if code != 0:
        raise RuntimeError('pare convert --to float: ' + text)
    return peers.load_model(out)[1]


def compare(what, theirs, floats):
    """theirs: {weight: tensor in the peer's type}."""
    if not theirs:
        return note(what, 'the peer found no quantized layer')
    for key, tensor in theirs.items():
        mine = floats[key]
        if mine.dtype != torch.float32 or not torch.equal(mine.to(tensor.dtype), tensor):
            same = (mine.to(tensor.dtype) == tensor).float().mean().item()
            return note(what, f'{key}: {same:.4%} of the values are equal')
    note(f'{what}: {len(theirs)} layers equal in {tensor.dtype}')


def read_gguf(path):
    import gguf
    import numpy as np
    names = {'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj',
             'attn_output': 'self_attn.o_proj', 'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj',
             'ffn_down': 'mlp.down_proj'}
    reader = gguf.GGUFReader(path)
    heads = {part: int(reader.fields['llama.attention.' + key].contents()) for part, key in
             (('attn_q', 'head_count'), ('attn_k', 'head_count_kv'))}
    out = {}
    for tensor in reader.tensors:
        parts = tensor.name.split('.')
        if parts[0] != 'blk' or parts[2] not in names or parts[-1] != 'weight':
            continue
        if tensor.tensor_type.name in ('F32', 'F16', 'BF16'):
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if parts[2] in heads:  # neighbours turn together in the file, halves in transformers
            n = heads[parts[2]]
            values = values.reshape(n, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        out[f'model.layers.{parts[1]}.{names[parts[2]]}.weight'] = torch.from_numpy(np.ascontiguousarray(values))
    return out


def parse_configs(what, folder):
    import transformers
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        quantization = config.quantization_config
        if not isinstance(quantization, dict):
            quantization = quantization.to_dict()
        from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
        method = quantization['quant_method']
        if method in AUTO_QUANTIZATION_CONFIG_MAPPING:
            AUTO_QUANTIZATION_CONFIG_MAPPING[method].from_dict(dict(quantization))
            note(f'{what}: transformers parses its config ({method})')
        else:
            note(f'{what}: transformers reads config.json (it has no class for {method})')
    except Exception as error:  # noqa: BLE001
        note(f'{what}: transformers parses its config', f'{type(error).__name__}: {error}')


def peer_reads(what, folder, floats):
    try:
        compare(what, read_gguf(folder) if folder.endswith('.gguf') else peers.read(folder), floats)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc(limit=-2)
        note(what, f'{type(error).__name__}: {error}')
    if not folder.endswith('.gguf'):
        parse_configs(what, folder)


def convert(kind, folder, floats, work):
    for form in FORMATS:
        if form == 'gguf' and not os.path.exists(os.path.join(folder, 'tokenizer.json')):
            continue
        out = os.path.join(work, 'converted.gguf' if form == 'gguf' else 'converted')
        shutil.rmtree(out, ignore_errors=True)
        if os.path.exists(out):
            os.remove(out)
        code, text = pare('convert', folder, '-o', out, '--to', form, '--quiet')
        if code == 4:
            refused.append(f'{kind} -> {form}')
            print(f'no     {kind} -> {form}: {text.splitlines()[0]}', flush=True)
        elif code != 0:
            note(f'{kind} -> {form}', text)
        else:
            peer_reads(f'{kind} -> {form}', out, floats)


def rounded_inputs(kind, work):
    import numpy as np
    import transformers
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp
    folder = os.path.join(HERE, '..', 'golden', 'quantized', kind)
    config, stored = peers.load_model(folder)
    groups = QuantizationConfig(**{k: v for k, v in config.pop('quantization_config').items()
                                   if k in ('config_groups', 'format', 'ignore', 'quant_method')}).config_groups
    args = groups['group_0'].input_activations
    ids = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 35]], np.int64)
    np.save(work + '/ids.npy', ids)
    code, text = pare('convert', folder, '-o', work + '/inputs.onnx', '--to', 'onnx', '--quiet')
    code2, text2 = pare('infer', work + '/inputs.onnx', '--input', f'input_ids={work}/ids.npy', '--save', work + '/out', '--quiet')
    if code or code2:
        return note(f'{kind}: rounded inputs', text + text2)
    mine = np.load(work + '/out/out_0.npy')
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**config, 'dtype': 'float32'})).float().eval()
    model.load_state_dict({k: v.float() for k, v in ours(folder, work + '/floats').items()})

    def hook(name):
        def quantize(module, inputs):
            global_scale = stored.get(name + '.input_global_scale')
            if args.dynamic:
                scale, zero = compute_dynamic_scales_and_zp(value=inputs[0], args=args, module=module, global_scale=global_scale)
            else:
                scale, zero = stored[name + '.input_scale'], stored.get(name + '.input_zero_point')
            return (fake_quantize(x=inputs[0], scale=scale.float(), zero_point=zero, args=args, global_scale=global_scale),)
        return quantize

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != 'lm_head':
            module.register_forward_pre_hook(hook(name))
    with torch.no_grad():
        theirs = model(torch.from_numpy(ids)).logits.numpy()
    worst = float(np.abs(mine - theirs).max())
    # Sums in another order, as in tests/unit/graphsurgeon/families_test.cpp; a rule that differs gives 0.05 and more.
    note(f'{kind}: rounded inputs, logits within {worst:.2g}', None if worst < 1.8e-4 else 'not the same')


def main():
    global PARE
    PARE, model = sys.argv[1:3]
    work = sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp()
    torch.set_num_threads(1)
    for kind in sys.argv[4:] or peers.KINDS:
        folder = os.path.join(work, 'peer')
        shutil.rmtree(folder, ignore_errors=True)
        try:
            peers.make(model, work, [kind])
            os.rename(os.path.join(work, kind), folder)
            theirs = peers.read(folder)
            floats = ours(folder, os.path.join(work, 'floats'))
            compare(f'peer {kind} -> pare', theirs, floats)
            convert(kind, folder, floats, work)
        except ImportError as error:  # modelopt is large, and optional
            print(f'no     peer {kind}: {error}', flush=True)
            skipped.append(kind)
        except Exception as error:  # noqa: BLE001
            note(f'peer {kind}', f'{type(error).__name__}: {error}')
    for name, arguments, forms in OWN:
        for form in forms:
            out = os.path.join(work, 'own')
            shutil.rmtree(out, ignore_errors=True)
            code, text = pare('quantize', model, *arguments, '--method', 'rtn', '--export', form, '-o', out, '--quiet')
            what = f'pare quantize {name} as {form}'
            if code != 0:
                note(what, text)
                continue
            try:
                peer_reads(what, out, ours(out, os.path.join(work, 'floats')))
            except Exception as error:  # noqa: BLE001
                note(what, f'{type(error).__name__}: {error}')
    for kind in ('ct_w8a8_asym', 'ct_fp8', 'ct_fp8_dynamic', 'ct_fp8_block', 'ct_nvfp4'):
        try:
            rounded_inputs(kind, work)
        except Exception as error:  # noqa: BLE001
            note(f'{kind}: rounded inputs', f'{type(error).__name__}: {error}')
    print(f'{len(good)} equal, {len(refused)} refused as not exact, {len(skipped)} skipped, {len(bad)} failed')
    for what in bad:
        print('failed: ' + what)
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
