#!/usr/bin/env python3
"""Quantized checkpoints between pare and its peers, both ways (scripts/interop-quantized makes the environment).

    quantized_interop.py PARE MODEL [WORK [KIND...]]

1. The peers' code packs MODEL in every kind of quantized_peers.py; pare dequantizes each (`convert --to float`): every
   weight is the peer's, in every bit, once rounded to the type in which the peer computes.
2. pare converts them among the formats where that is exact; the peers' readers find the values of the first file. Where
   pare refuses, the reason is printed.
3. pare quantizes MODEL (one without a tokenizer: a random Llama) itself and exports every format, by rounding and by methods that look
   at data, layers of two formats, a cache with scales; the peers' readers find what pare reads back.
4. transformers parses every config.json, compressed-tensors every quantization_config, gguf every GGUF file.
5. Logits of tests/golden/quantized with rounded inputs are those of transformers' float32 Llama whose linear layers get
   compressed-tensors' fake quantization of their inputs (not for symmetric dynamic INT8: 127.5 there, 127 in kernels and in pare).
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
# name, arguments of `pare quantize` beside `--export` (without a method: rtn), forms. DATA: a text and a few windows of it.
DATA = '--data'
OWN = [('int4', ['--format', 'int4', '--group-size', '32'], ['compressed_tensors', 'gptq', 'gptq_v2', 'autoawq', 'modelopt']),
       ('int4_asym', ['--format', 'int4', '--group-size', '32', '--asymmetric'],
        ['compressed_tensors', 'gptq_v2', 'autoawq']),
       ('fp8', ['--format', 'FP8_DYNAMIC'], ['compressed_tensors', 'modelopt']),
       ('w8a8', ['--format', 'W8A8'], ['compressed_tensors']),
       ('nvfp4', ['--format', 'nvfp4'], ['compressed_tensors', 'modelopt']),
       ('mxfp4', ['--format', 'mxfp4'], ['compressed_tensors']),
       ('mxfp8', ['--format', 'mxfp8'], ['compressed_tensors', 'modelopt']),
       ('int3', ['--format', 'int3', '--group-size', '32'], ['compressed_tensors', 'gptq']),
       ('int2', ['--format', 'int2', '--group-size', '32'], ['compressed_tensors', 'gptq']),
       ('int8 weights', ['--format', 'int8_weights'], ['compressed_tensors', 'gptq', 'modelopt']),
       ('fp8 block', ['--format', 'FP8_BLOCK'], ['compressed_tensors', 'modelopt']),
       ('int4 of gptq', ['--format', 'int4', '--group-size', '32', '--method', 'gptq', DATA], ['compressed_tensors', 'gptq', 'gptq_v2']),
       ('int4 of awq', ['--format', 'int4', '--asymmetric', '--group-size', '32', '--method', 'awq', DATA],
        ['compressed_tensors', 'autoawq']),
       ('fp8 of smoothquant', ['--format', 'FP8', '--method', 'smoothquant', DATA], ['compressed_tensors', 'modelopt']),
       ('w8a8 static', ['--format', 'int8', '--method', 'smoothquant', DATA], ['compressed_tensors']),
       ('nvfp4 w4a4', ['--format', 'NVFP4', '--method', 'gptq', DATA], ['compressed_tensors', 'modelopt']),
       ('fp8 with a cache', ['--format', 'FP8', '--kv-cache', 'fp8', DATA], ['compressed_tensors', 'modelopt']),
       ('q4_0', ['--format', 'q4_0'], ['gguf']), ('q4_1', ['--format', 'q4_1'], ['gguf']), ('q8_0', ['--format', 'q8_0'], ['gguf']),
       ('q4_k', ['--format', 'q4_k'], ['gguf']), ('int4 groups of 32', ['--format', 'int4', '--group-size', '32'], ['gguf'])]
RECIPE = """version: 1
model: {{path: {model}}}
datasets:
  text: {{path: {text}, kind: text, window: 16, samples: 4}}
calibrate: {{data: text, holdout: 1}}
quantize:
  scheme: {scheme}
  method: search
  ignore: [lm_head]
  {more}
export: {{model: {form}}}
"""
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


NAMES = {'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj', 'attn_output': 'self_attn.o_proj',
         'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj', 'ffn_down': 'mlp.down_proj'}


def read_gguf(path):
    import gguf
    import numpy as np
    reader = gguf.GGUFReader(path)
    heads = {part: int(reader.fields['llama.attention.' + key].contents()) for part, key in
             (('attn_q', 'head_count'), ('attn_k', 'head_count_kv'))}
    out = {}
    for tensor in reader.tensors:
        parts = tensor.name.split('.')
        if parts[0] != 'blk' or parts[2] not in NAMES or parts[-1] != 'weight':
            continue
        if tensor.tensor_type.name in ('F32', 'F16', 'BF16'):
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if parts[2] in heads:  # neighbours turn together in the file, halves in transformers
            n = heads[parts[2]]
            values = values.reshape(n, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        out[f'model.layers.{parts[1]}.{NAMES[parts[2]]}.weight'] = torch.from_numpy(np.ascontiguousarray(values))
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


def rounded_inputs(kind, folder, work, ids=(3, 1, 4, 1, 5, 9, 2, 6, 5, 35)):
    import numpy as np
    import transformers
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp
    config, stored = peers.load_model(folder)
    groups = QuantizationConfig(**{k: v for k, v in config.pop('quantization_config').items()
                                   if k in ('config_groups', 'format', 'ignore', 'quant_method')}).config_groups
    args = groups['group_0'].input_activations
    ids = np.array([ids], np.int64)
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


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path):
        os.remove(path)


def own(what, code, text, out, work):
    """What pare wrote: the peer finds what pare reads back."""
    if code != 0:
        return note(what, text)
    try:
        if out.endswith('.gguf'):
            return own_gguf(what, out, work)
        peer_reads(what, out, ours(out, os.path.join(work, 'floats')))
        if 'cache' in what:
            scales = {k: float(v) for k, v in peers.load_model(out)[1].items() if k.endswith(('k_scale', 'v_scale'))}
            note(f'{what}: {len(scales)} scales of the cache', None if scales and all(v > 0 for v in scales.values()) else str(scales))
    except Exception as error:  # noqa: BLE001
        note(what, f'{type(error).__name__}: {error}')


def of_own(model, work):
    """The model, where it has a tokenizer, which GGUF and data need; else a random Llama of sizes that every format takes."""
    if os.path.exists(os.path.join(model, 'tokenizer.json')):
        return model
    sys.path.insert(0, os.path.join(HERE, '..', '..', 'scripts'))
    import synthetic_llama
    synthetic_llama.SHAPES['interop'] = dict(hidden=256, intermediate=512, layers=1, heads=4, kv_heads=2, head=64, vocabulary=272,
                                             tied=False, positions=64)
    synthetic_llama.make('interop', os.path.join(work, 'random'))
    return os.path.join(work, 'random')


def own_gguf(what, path, work):
    """Blocks as gguf dequantizes them: the weights of the graph that pare makes of the file."""
    import onnx
    import gguf
    import numpy as np
    graph = os.path.join(work, 'gguf.onnx')
    code, text = pare('convert', path, '-o', graph, '--to', 'onnx', '--quiet')
    if code != 0:
        return note(what, text)
    mine = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(graph).graph.initializer}
    same, kinds = 0, set()
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split('.')
        if parts[0] != 'blk' or parts[2] not in NAMES or tensor.tensor_type.name in ('F32', 'F16', 'BF16'):
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        key = f'model.layers.{parts[1]}.{NAMES[parts[2]]}.weight'
        if not np.array_equal(np.ascontiguousarray(mine[key].T).view(np.uint32), np.ascontiguousarray(values).view(np.uint32)):
            return note(what, f'{tensor.name} ({tensor.tensor_type.name}) differs')
        same += 1
        kinds.add(tensor.tensor_type.name)
    note(f'{what}: {same} layers equal in float32 ({", ".join(sorted(kinds))})', None if same else 'no layer')


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
    own_model = of_own(model, work)
    sample = os.path.join(work, 'text.txt')
    with open(sample, 'w', encoding='utf-8') as file:
        file.write('abba ab ba ' * 40)
    for name, arguments, forms in [] if sys.argv[4:] else OWN:
        given = [word for a in arguments for word in ([a, f'{sample}:window=16,samples=4'] if a == DATA else [a])]
        if '--method' not in given and not name.startswith('q'):
            given += ['--method', 'rtn']
        for form in forms:
            out = os.path.join(work, 'own.gguf' if form == 'gguf' else 'own')
            remove(out)
            code, text = pare('quantize', own_model, *given, '--export', form, '-o', out, '--quiet')
            own(f'pare quantize {name} as {form}', code, text, out, work)
    attention = 'rules: [{match: {name: "re:.*self_attn.*"}, %s}]'
    zeros = os.path.join(work, 'zeros', 'checkpoint')
    for name, form, scheme, more in [] if sys.argv[4:] else [
            ('mixed', 'compressed_tensors', 'nvfp4', attention % 'weights: {format: fp8, granularity: channel}'),
            ('mixed', 'modelopt', 'FP8', attention % 'weights: {format: nvfp4}, activations: {format: none}'),
            ('zeros', 'compressed_tensors', 'W8A8', 'activations: {symmetric: false}')]:
        recipe, run = os.path.join(work, name + '.yaml'), os.path.join(work, name)
        with open(recipe, 'w', encoding='utf-8') as file:
            file.write(RECIPE.format(model=own_model, text=sample, scheme=scheme, more=more, form=form))
        remove(run)
        code, text = pare('run', recipe, '--out', run, '--quiet')
        own(f'pare run, {scheme} {name} as {form}', code, text, os.path.join(run, 'checkpoint'), work)
    inputs = [(kind, os.path.join(HERE, '..', 'golden', 'quantized', kind), ())
              for kind in ('ct_w8a8_asym', 'ct_fp8', 'ct_fp8_dynamic', 'ct_fp8_block', 'ct_nvfp4')]
    if os.path.exists(zeros):
        # compressed-tensors adds the zero point and then rounds, vLLM's kernels and pare round first: they differ where a value
        # lies half-way between two codes. Here none does.
        inputs.append(('W8A8 with zero points per token, written by pare', zeros, ((3, 4, 5, 9, 2, 6, 5, 35),)))
    for kind, folder, ids in inputs:
        try:
            rounded_inputs(kind, folder, work, *ids)
        except Exception as error:  # noqa: BLE001
            note(f'{kind}: rounded inputs', f'{type(error).__name__}: {error}')
    print(f'{len(good)} equal, {len(refused)} refused as not exact, {len(skipped)} skipped, {len(bad)} failed')
    for what in bad:
        print('failed: ' + what)
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
