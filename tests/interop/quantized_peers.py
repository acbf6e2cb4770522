#!/usr/bin/env python3
"""Quantized checkpoints by the code of their peers: made, and read back into floats.

    quantized_peers.py make MODEL OUT [NAME...]    MODEL (a float checkpoint) in every format of KINDS: OUT/NAME
    quantized_peers.py read DIR OUT.safetensors    the weights of every quantized layer, in the type in which the peer
                                                   computes them

compressed-tensors: its own compressors and decompressors. AutoAWQ and GPTQ: the packers of the packages' sources
(AWQ_SOURCE and GPTQ_SOURCE name the unpacked archives: they do not install without a GPU), reading: AutoAWQ's
dequantize_gemm, and for GPTQ a plain reader written from the published layout (NumPy), since the package has only GPU
kernels. Model Optimizer: its qtensor classes where modelopt is installed, else plain NumPy by the published layout; fp8
blocks: plain, as transformers' finegrained_fp8 multiplies. GGUF: the gguf package.
"""
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import types

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

torch.manual_seed(0)
LINEAR = re.compile(r'.*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)$')


# --- files

def load_model(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith('.safetensors') and name != 'expected.safetensors':
            tensors.update(load_file(os.path.join(folder, name)))
    return json.load(open(os.path.join(folder, 'config.json'))), tensors


def save_model(folder, config, tensors, source, extra=None):
    os.makedirs(folder, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(folder, 'model.safetensors'), {'format': 'pt'})
    json.dump(config, open(os.path.join(folder, 'config.json'), 'w'), indent=1)
    for name, content in (extra or {}).items():
        json.dump(content, open(os.path.join(folder, name), 'w'), indent=1)
    for name in ('tokenizer.json', 'tokenizer_config.json', 'generation_config.json'):
        if os.path.exists(os.path.join(source, name)):
            shutil.copy(os.path.join(source, name), folder)


# --- compressed-tensors

def ct_parts():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    return BaseCompressor, QuantizationArgs, QuantizationScheme


INT4 = dict(num_bits=4, type='int', strategy='group', group_size=32, symmetric=True)
FP8 = dict(num_bits=8, type='float', symmetric=True)
NVFP4 = dict(num_bits=4, type='float', strategy='tensor_group', group_size=16, symmetric=True,
             scale_dtype='torch.float8_e4m3fn')
TOKEN8 = dict(num_bits=8, type='int', strategy='token', dynamic=True, symmetric=True)
CT = {  # name: (format, weights, inputs)
    'ct_w4a16': ('pack-quantized', INT4, None),
    'ct_w4a16_asym': ('pack-quantized', {**INT4, 'symmetric': False}, None),
    'ct_w3a16': ('pack-quantized', {**INT4, 'num_bits': 3}, None),
    'ct_w8a16': ('pack-quantized', {**INT4, 'num_bits': 8, 'strategy': 'channel', 'group_size': None}, None),
    'ct_w8a8': ('int-quantized', dict(num_bits=8, type='int', strategy='channel', symmetric=True), TOKEN8),
    'ct_w8a8_asym': ('int-quantized', dict(num_bits=8, type='int', strategy='channel', symmetric=False),
                     dict(num_bits=8, type='int', strategy='tensor', dynamic=False, symmetric=False)),
    'ct_fp8': ('float-quantized', {**FP8, 'strategy': 'tensor'}, {**FP8, 'strategy': 'tensor', 'dynamic': False}),
    'ct_fp8_dynamic': ('float-quantized', {**FP8, 'strategy': 'channel'}, {**FP8, 'strategy': 'token', 'dynamic': True}),
    'ct_fp8_block': ('float-quantized', {**FP8, 'strategy': 'block', 'block_structure': [32, 32]},
                     {**FP8, 'strategy': 'group', 'group_size': 32, 'dynamic': True}),
    'ct_nvfp4a16': ('nvfp4-pack-quantized', NVFP4, None),
    'ct_nvfp4': ('nvfp4-pack-quantized', NVFP4, {**NVFP4, 'dynamic': 'local'}),
    'ct_mxfp4': ('mxfp4-pack-quantized', dict(num_bits=4, type='float', strategy='group', group_size=32, symmetric=True,
                                              scale_dtype='torch.uint8'), None),
    'ct_mxfp8': ('mxfp8-quantized', {**FP8, 'strategy': 'group', 'group_size': 32, 'scale_dtype': 'torch.uint8'}, None),
}


def ct_qparams(weight, args):
    """Scale and zero point by the package's own functions."""
    from compressed_tensors.quantization.utils import calculate_qparams
    w, strategy = weight, args.strategy
    if strategy in ('group', 'tensor_group'):
        w = weight.reshape(weight.shape[0], -1, args.group_size)
        low, high = w.amin(-1), w.amax(-1)
    elif strategy == 'channel':
        low, high = w.amin(-1, keepdim=True), w.amax(-1, keepdim=True)
    elif strategy == 'block':
        rows, cols = args.block_structure
        o, i = -(-w.shape[0] // rows), -(-w.shape[1] // cols)
        padded = torch.zeros(o * rows, i * cols, dtype=w.dtype)
        padded[:w.shape[0], :w.shape[1]] = w
        blocks = padded.reshape(o, rows, i, cols).transpose(1, 2).reshape(o, i, -1)
        low, high = blocks.amin(-1), blocks.amax(-1)
    else:
        low, high = w.amin().reshape(1), w.amax().reshape(1)
    global_scale = None
    if strategy == 'tensor_group':
        from compressed_tensors.quantization.utils import generate_gparam
        global_scale = generate_gparam(weight.amin().reshape(1), weight.amax().reshape(1))
    scale, zero = calculate_qparams(low, high, args, global_scale=global_scale)
    return scale, zero, global_scale


def make_ct(name, config, tensors):
    BaseCompressor, Args, Scheme = ct_parts()
    fmt, weights, inputs = CT[name]
    scheme = Scheme(targets=['Linear'], weights=Args(**weights), input_activations=Args(**inputs) if inputs else None,
                    format=fmt)
    compressor = BaseCompressor.get_value_from_registry(fmt)
    out = {}
    for key, tensor in tensors.items():
        module = key[:-len('.weight')]
        if not (key.endswith('.weight') and LINEAR.match(module)):
            out[key] = tensor
            continue
        scale, zero, global_scale = ct_qparams(tensor, scheme.weights)
        state = {'weight': tensor, 'weight_scale': scale}
        if not scheme.weights.symmetric or fmt == 'pack-quantized':
            state['weight_zero_point'] = zero
        if global_scale is not None:
            state['weight_global_scale'] = global_scale
        for part, value in compressor.compress(state, scheme).items():
            out[f'{module}.{part}'] = value
        if inputs and inputs.get('dynamic') is False:
            out[f'{module}.input_scale'] = torch.tensor([0.0123], dtype=torch.bfloat16)
            if not inputs['symmetric']:
                out[f'{module}.input_zero_point'] = torch.tensor([-7], dtype=torch.int8)
        if inputs and inputs.get('dynamic') == 'local':
            out[f'{module}.input_global_scale'] = torch.tensor([512.0])
    from compressed_tensors.quantization import QuantizationConfig
    quantization = QuantizationConfig(config_groups={'group_0': scheme}, format=fmt, ignore=['lm_head'],
                                      quantization_status='compressed')
    config['quantization_config'] = json.loads(quantization.model_dump_json())
    return out


def read_ct(config, tensors):
    """By the package: config through its own class, then the decompressor of each module's format."""
    BaseCompressor, _, _ = ct_parts()
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.utils.match import match_name
    raw = {k: v for k, v in config['quantization_config'].items()
           if k in ('config_groups', 'format', 'ignore', 'kv_cache_scheme', 'quantization_status', 'quant_method')}
    quantization = QuantizationConfig(**raw)
    out = {}
    for module, state in modules_of(tensors, ('weight_packed', 'weight_scale')).items():
        scheme = next((s for exact in (True, False) for s in quantization.config_groups.values()
                       if any(match_name(module, t) if exact else t == 'Linear' for t in s.targets)), None)
        assert scheme is not None, module
        fmt = scheme.format or quantization.format
        result = BaseCompressor.get_value_from_registry(getattr(fmt, 'value', fmt)).decompress(dict(state), scheme)
        out[module + '.weight'] = result['weight']
    return out


def modules_of(tensors, marks):
    found = {}
    for key in tensors:
        module, _, part = key.rpartition('.')
        if part in marks:
            found.setdefault(module, {})
    for key, tensor in tensors.items():
        module, _, part = key.rpartition('.')
        if module in found:
            found[module][part] = tensor
    return found


# --- AutoAWQ and AutoGPTQ

def source_module(root, name, stubs=()):
    """A module of an unpacked package by its file, with stubs for what needs a GPU."""
    for stub, members in stubs:
        if stub not in sys.modules:
            sys.modules[stub] = types.ModuleType(stub)
        for member, value in members.items():
            setattr(sys.modules[stub], member, value)
    spec = importlib.util.spec_from_file_location(name.replace('/', '_'), os.path.join(root, name + '.py'))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def awq_code():
    root = os.environ['AWQ_SOURCE']
    packing = source_module(root, 'awq/utils/packing_utils')
    empty = types.ModuleType
    sys.modules.setdefault('awq', empty('awq'))
    gemm = source_module(root, 'awq/modules/linear/gemm', [
        ('awq', {}), ('awq.utils', {}), ('awq.utils.module', {'try_import': lambda _: (None, 'no kernels')}),
        ('awq.utils.utils', {'get_best_device': lambda: 'cpu'}),
        ('awq.utils.packing_utils', {'dequantize_gemm': packing.dequantize_gemm})])
    return packing, gemm


def asym_groups(weight, bits, group, sym):
    w = weight.float().reshape(weight.shape[0], -1, group)
    if sym:
        zero = torch.full(w.shape[:2], float(2 ** (bits - 1)))
        scale = w.abs().amax(-1).clamp(min=1e-5) / (2 ** (bits - 1) - 1)
    else:
        low, high = w.amin(-1).clamp(max=0), w.amax(-1).clamp(min=0)
        scale = (high - low).clamp(min=1e-5) / (2 ** bits - 1)
        zero = (-low / scale).round().clamp(1, 2 ** bits - 1)
    return scale.half().float(), zero  # [out, groups]


def on_grid(weight, scale, zero, bits, group):
    """The packers take floats that lie on the grid already."""
    s, z = scale.repeat_interleave(group, 1), zero.repeat_interleave(group, 1)
    q = (weight.float() / s).round().add(z).clamp(0, 2 ** bits - 1)
    return ((q - z) * s)


def make_awq(config, tensors, sym=False):
    _, gemm = awq_code()
    out, group = {}, 32
    for key, tensor in tensors.items():
        module = key[:-len('.weight')]
        if not (key.endswith('.weight') and LINEAR.match(module)):
            out[key] = tensor.half() if tensor.is_floating_point() else tensor
            continue
        scale, zero = asym_groups(tensor, 4, group, sym)
        linear = torch.nn.Linear(tensor.shape[1], tensor.shape[0], bias=False)
        linear.weight.data = on_grid(tensor, scale, zero, 4, group)
        packed = gemm.WQLinear_GEMM.from_linear(linear, 4, group, scales=scale.t().contiguous(), zeros=zero.t().contiguous())
        for part in ('qweight', 'qzeros', 'scales'):
            out[f'{module}.{part}'] = getattr(packed, part)
    config['quantization_config'] = {'quant_method': 'awq', 'bits': 4, 'group_size': group, 'zero_point': not sym,
                                     'version': 'gemm', 'modules_to_not_convert': None}
    return out


def read_awq(config, tensors):
    packing, _ = awq_code()
    quantization = config['quantization_config']
    out = {}
    for module, state in modules_of(tensors, ('qweight',)).items():
        group = quantization['group_size'] if quantization['group_size'] > 0 else state['qweight'].shape[0]
        weight = packing.dequantize_gemm(state['qweight'], state['qzeros'], state['scales'], 4, group)
        out[module + '.weight'] = weight.t()
    return out


def make_gptq(config, tensors, bits=4, act_order=False, v2=False, sym=True):
    old = source_module(os.environ['GPTQ_SOURCE'], 'auto_gptq/nn_modules/qlinear/qlinear_cuda_old')
    new = source_module(os.environ['GPTQ_SOURCE'], 'auto_gptq/nn_modules/qlinear/qlinear_cuda')
    out, group = {}, 32
    for key, tensor in tensors.items():
        module = key[:-len('.weight')]
        if not (key.endswith('.weight') and LINEAR.match(module)):
            out[key] = tensor.half() if tensor.is_floating_point() else tensor
            continue
        order = torch.randperm(tensor.shape[1]) if act_order else torch.arange(tensor.shape[1])
        g_idx = torch.empty(tensor.shape[1], dtype=torch.int32)
        g_idx[order] = (torch.arange(tensor.shape[1]) // group).int()
        scale, zero = asym_groups(tensor[:, order], bits, group, sym)
        grid = torch.empty_like(tensor, dtype=torch.float32)
        grid[:, order] = on_grid(tensor[:, order], scale, zero, bits, group)
        linear = torch.nn.Linear(tensor.shape[1], tensor.shape[0], bias=False)
        linear.weight.data = grid
        code = new if act_order else old
        packed = code.QuantLinear(bits, group, tensor.shape[1], tensor.shape[0], False, weight_dtype=torch.float16)
        packed.pack(linear, scale.clone(), zero.clone(), g_idx)
        out[f'{module}.qweight'] = packed.qweight
        out[f'{module}.qzeros'] = packed.qzeros
        if v2:  # GPTQModel: the word of version 1 plus 1 in every field
            ones = sum(1 << (bits * i) for i in range(32 // bits))
            words = (packed.qzeros.numpy().view(np.uint32).astype(np.uint64) + ones).astype(np.uint32).view(np.int32)
            out[f'{module}.qzeros'] = torch.from_numpy(words)
        out[f'{module}.scales'] = packed.scales.half()
        out[f'{module}.g_idx'] = g_idx
    config['quantization_config'] = {'quant_method': 'gptq', 'bits': bits, 'group_size': group, 'desc_act': act_order,
                                     'sym': sym, 'checkpoint_format': 'gptq_v2' if v2 else 'gptq', 'true_sequential': True,
                                     'damp_percent': 0.01, 'lm_head': False}
    return out


def stream(words, bits, count):
    """`count` codes a row of a little-endian stream of bits over 32-bit words [rows, words]."""
    bytes_ = np.ascontiguousarray(words).view(np.uint32).astype('<u4').view(np.uint8)
    flags = np.unpackbits(bytes_, axis=1, bitorder='little')[:, :count * bits].reshape(words.shape[0], count, bits)
    return (flags * (1 << np.arange(bits))).sum(-1).astype(np.int32)


def read_gptq(config, tensors):
    quantization = config['quantization_config']
    bits, out = quantization['bits'], {}
    for module, state in modules_of(tensors, ('qweight',)).items():
        qweight, qzeros = state['qweight'].numpy(), state['qzeros'].numpy()
        outs = qweight.shape[1]
        ins = qweight.shape[0] * 32 // bits
        codes = stream(qweight.T, bits, ins)  # [outs, ins]
        zeros = stream(qzeros, bits, outs)    # [groups, outs]
        if quantization.get('checkpoint_format', 'gptq') == 'gptq':
            zeros = zeros + 1
        g_idx = state['g_idx'].numpy() if 'g_idx' in state else np.arange(ins) // quantization['group_size']
        scales = state['scales'].numpy()
        weight = (codes - zeros[g_idx].T).astype(scales.dtype) * scales[g_idx].T
        out[module + '.weight'] = torch.from_numpy(weight)
    return out


# --- Model Optimizer, fp8

def make_modelopt(name, config, tensors):
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP8QTensor, NVFP4QTensor
    algo = {'mo_fp8': 'FP8', 'mo_nvfp4': 'NVFP4', 'mo_mxfp8': 'MXFP8', 'mo_w4a16_awq': 'W4A16_AWQ',
            'mo_mixed': 'MIXED_PRECISION'}[name]
    out, layers = {}, {}
    for key, tensor in tensors.items():
        module = key[:-len('.weight')]
        if not (key.endswith('.weight') and LINEAR.match(module)):
            out[key] = tensor
            continue
        own = algo
        if algo == 'MIXED_PRECISION':
            own = 'FP8' if 'self_attn' in module else 'NVFP4'
            layers[module] = {'quant_algo': own, **({'group_size': 16} if own == 'NVFP4' else {})}
        if own == 'FP8':
            quantized, scale = FP8QTensor.quantize(tensor.float())
            out[key], out[module + '.weight_scale'] = quantized._quantized_data, scale.float().reshape(())
            out[module + '.input_scale'] = torch.tensor(0.0123)
        elif own == 'NVFP4':
            quantized, scale, scale2 = NVFP4QTensor.quantize(tensor.float(), 16)
            out[key], out[module + '.weight_scale'] = quantized._quantized_data, scale
            out[module + '.weight_scale_2'] = scale2.float().reshape(())
            out[module + '.input_scale'] = torch.tensor(1 / 512)
        elif own == 'MXFP8':
            quantized, scale = MXFP8QTensor.quantize(tensor)
            out[key], out[module + '.weight_scale'] = quantized._quantized_data, scale
        else:
            from modelopt.torch.export.quant_utils import pack_int4_in_uint8
            scale = tensor.float().reshape(tensor.shape[0], -1, 32).abs().amax(-1) / 7
            out[key], out[module + '.weight_scale'] = pack_int4_in_uint8(tensor.float(), scale, 32), scale
            out[module + '.pre_quant_scale'] = torch.rand(tensor.shape[1]) + 0.5
    kv = 'FP8' if name == 'mo_fp8' else None
    details = {'quant_algo': algo, 'kv_cache_quant_algo': kv, 'exclude_modules': ['lm_head']}
    if kv:
        for module in sorted({k.split('.k_proj.')[0] for k in tensors if '.k_proj.' in k}):
            out[module + '.k_proj.k_scale'] = torch.tensor(0.05)
            out[module + '.v_proj.v_scale'] = torch.tensor(0.04)
    if layers:
        details['quantized_layers'] = layers
    elif algo in ('NVFP4', 'MXFP8', 'W4A16_AWQ'):
        details['group_size'] = {'NVFP4': 16, 'MXFP8': 32, 'W4A16_AWQ': 32}[algo]
    if algo == 'W4A16_AWQ':
        details.update(has_zero_point=False, pre_quant_scale=True)
    whole = {'producer': {'name': 'modelopt', 'version': '0.47.0'}, 'quantization': details}
    from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
    config['quantization_config'] = convert_hf_quant_config_format(whole)
    return out, {'hf_quant_config.json': whole}


def e2m1(packed):
    table = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
    table = np.concatenate([table, -table])
    packed = packed.numpy()
    return np.stack([table[packed & 15], table[packed >> 4]], -1).reshape(packed.shape[0], -1)


def read_modelopt(config, tensors):
    out = {}
    for module, state in modules_of(tensors, ('weight_scale',)).items():
        weight, scale = state['weight'], state['weight_scale']
        if 'weight_scale_2' in state:
            steps = scale.float() * state['weight_scale_2']
            values = torch.from_numpy(e2m1(weight)) * steps.repeat_interleave(weight.shape[1] * 2 // steps.shape[1], 1)
        elif weight.dtype == torch.uint8 and scale.dtype == torch.uint8:
            values = torch.from_numpy(e2m1(weight)) * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
        elif weight.dtype == torch.uint8:  # pairs of output rows
            low, high = (weight & 15).to(torch.int32), (weight >> 4).to(torch.int32)
            codes = torch.stack([low, high], 1).reshape(-1, weight.shape[1])
            codes = codes - 16 * (codes >= 8).int()
            values = codes.float() * scale.float().repeat_interleave(codes.shape[1] // scale.shape[1], 1)
            if 'pre_quant_scale' in state:
                values = values * state['pre_quant_scale'].float()
        elif scale.dtype == torch.uint8:
            values = weight.float() * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
        elif scale.dim() == 4:
            values = weight.float() * scale.float().reshape(scale.shape[0], scale.shape[2]).repeat_interleave(128, 0)[
                :weight.shape[0]].repeat_interleave(128, 1)[:, :weight.shape[1]]
        else:
            values = weight.float() * scale.float().reshape(-1, 1)
        out[module + '.weight'] = values
    return out


def make_fp8(config, tensors):
    out, block = {}, 32
    for key, tensor in tensors.items():
        module = key[:-len('.weight')]
        if not (key.endswith('.weight') and LINEAR.match(module)):
            out[key] = tensor
            continue
        o, i = -(-tensor.shape[0] // block), -(-tensor.shape[1] // block)
        padded = torch.zeros(o * block, i * block)
        padded[:tensor.shape[0], :tensor.shape[1]] = tensor.float()
        blocks = padded.reshape(o, block, i, block)
        scale = blocks.abs().amax((1, 3)) / 448
        codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
        out[key] = codes.view(torch.uint8).reshape(o * block, i * block)[:tensor.shape[0], :tensor.shape[1]].contiguous().view(
            torch.float8_e4m3fn)
        out[module + '.weight_scale_inv'] = scale
    config['quantization_config'] = {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic',
                                     'weight_block_size': [block, block]}
    return out


def read_fp8(config, tensors):
    rows, cols = config['quantization_config']['weight_block_size']
    out = {}
    for module, state in modules_of(tensors, ('weight_scale_inv',)).items():
        weight = state['weight'].float()
        steps = state['weight_scale_inv'].repeat_interleave(rows, 0)[:weight.shape[0]]
        out[module + '.weight'] = weight * steps.repeat_interleave(cols, 1)[:, :weight.shape[1]]
    return out


# ---

KINDS = list(CT) + ['awq', 'awq_sym', 'gptq', 'gptq_asym', 'gptq_v2', 'gptq_actorder', 'gptq_3bit', 'gptq_8bit', 'mo_fp8',
                    'mo_nvfp4', 'mo_mxfp8', 'mo_w4a16_awq', 'mo_mixed', 'fp8_block']
GPTQ = {'gptq': {}, 'gptq_asym': dict(sym=False), 'gptq_v2': dict(v2=True), 'gptq_actorder': dict(act_order=True),
        'gptq_3bit': dict(bits=3), 'gptq_8bit': dict(bits=8)}


def make(model, out, names):
    for name in names or KINDS:
        torch.manual_seed(1)
        config, tensors = load_model(model)
        extra = None
        if name in CT:
            made = make_ct(name, config, tensors)
        elif name.startswith('awq'):
            made = make_awq(config, tensors, sym=name == 'awq_sym')
        elif name in GPTQ:
            made = make_gptq(config, tensors, **GPTQ[name])
        elif name == 'fp8_block':
            made = make_fp8(config, tensors)
        else:
            made, extra = make_modelopt(name, config, tensors)
        save_model(os.path.join(out, name), config, made, model, extra)


def read(folder):
    config, tensors = load_model(folder)
    method = config.get('quantization_config', {}).get('quant_method')
    if os.path.exists(os.path.join(folder, 'hf_quant_config.json')):
        method = 'modelopt'
    return {'compressed-tensors': read_ct, 'awq': read_awq, 'gptq': read_gptq, 'modelopt': read_modelopt,
            'fp8': read_fp8}[method](config, tensors)


def digests(weights):
    """{weight: [type, SHA-256 of its bytes]}: what the unit tests compare with."""
    out = {}
    for key in sorted(weights):
        w = weights[key].contiguous()
        out[key] = [str(w.dtype).replace('torch.', ''), hashlib.sha256(w.view(torch.uint8).numpy().tobytes()).hexdigest()]
    return out


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ('make', 'read'):
        sys.exit(__doc__)
    if sys.argv[1] == 'make':
        make(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        save_file({k: v.contiguous() for k, v in read(sys.argv[2]).items()}, sys.argv[3])


if __name__ == '__main__':
    main()
