"""Quantized checkpoints as a user meets them: inspect, convert between formats and to ONNX, and what is refused."""
import json
import os
import shutil

from harness import SOURCE, check, finish, pare, workplace

GOLDEN = os.path.join(SOURCE, 'tests', 'golden', 'quantized')


def kind(name):
    return os.path.join(GOLDEN, name)


def changed(folder, name, **keys):
    """A copy whose quantization_config has other keys."""
    out = os.path.join(folder, 'changed')
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(kind(name), out)
    config = json.load(open(out + '/config.json'))
    config['quantization_config'].update(keys)
    json.dump(config, open(out + '/config.json', 'w'))
    return out


def inspects(folder):
    shown = pare('inspect', kind('ct_w4a16'), '--layers', '--json')
    check(shown.code == 0, 'inspect', shown.err)
    said = shown.json()['quantization']
    check(said['method'] == 'compressed-tensors' and said['layers'] == 7, 'inspect', said)
    # 4 bits, a bfloat16 for 32 of them, weight_shape's 16 bytes
    check(4.5 < said['bits_per_weight'] < 4.6, 'bits per weight', said['bits_per_weight'])
    check(said['kinds'][0]['format'] == 'int4, groups of 32, scales bfloat16; inputs float', 'kind', said['kinds'])
    check({layer['group'] for layer in said['layer_list']} == {32}, 'layers', said['layer_list'])
    # embedding and head 40x64, q, o 64x64, k, v 32x64, three of 64x96, three norms
    check(shown.json()['parameters'] == 2 * 40 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96 + 3 * 64, 'parameters', shown.out)
    cache = pare('inspect', kind('mo_fp8'))
    check('KV cache float8_e4m3fn' in cache.out, 'inspect: KV cache', cache.out)
    finite = pare('inspect', kind('gptq_actorder'), '--verify-data')
    check(finite.code == 0 and 'all weights are finite' in finite.out, 'verify-data', finite.out, finite.err)


def converts(folder):
    out = folder + '/ct'
    done = pare('convert', kind('awq'), '-o', out, '--to', 'compressed_tensors', '--json')
    check(done.code == 0 and done.json()['compared'] == 7, 'awq to compressed-tensors', done.err)
    config = json.load(open(out + '/config.json'))['quantization_config']
    check(config['quant_method'] == 'compressed-tensors' and config['format'] == 'pack-quantized', 'config', config)
    back = pare('convert', out, '-o', folder + '/awq', '--to', 'autoawq')
    check(back.code == 0, 'and back', back.err)
    first, second = (open(os.path.join(f, 'model.safetensors'), 'rb').read() for f in (kind('awq'), folder + '/awq'))
    check(len(first) == len(second), 'and back: as long as before')
    twice = pare('convert', kind('awq'), '-o', out, '--to', 'gptq')
    check(twice.code == 2 and 'holds a model already' in twice.err, 'into a model', twice.err)
    refused = pare('convert', kind('gptq_3bit'), '-o', folder + '/mo', '--to', 'modelopt')
    check(refused.code == 4 and 'down_proj' in refused.err and 'int3' in refused.err, 'not exact', refused.err)
    check(not os.path.exists(folder + '/mo/config.json'), 'not exact: nothing is written')
    floats = pare('convert', kind('gptq'), '-o', folder + '/floats', '--to', 'float')
    check(floats.code == 0, 'floats', floats.err)
    check('quantization_config' not in json.load(open(folder + '/floats/config.json')), 'floats: config')
    plain = pare('convert', folder + '/floats', '-o', folder + '/x', '--to', 'gptq')
    check(plain.code == 2 and 'not quantized' in plain.err, 'a float checkpoint', plain.err)
    again = pare('quantize', kind('fp8_block'), '--format', 'int4', '--group-size', '32', '--method', 'rtn', '--export',
                 'compressed_tensors', '-o', folder + '/again')
    check(again.code == 0 and '7 tensors read back' in again.out, 'a quantized checkpoint is quantized anew', again.out, again.err)
    experts = pare('quantize', os.path.join(SOURCE, 'tests/golden/families/mixtral'), '--format', 'int8_weights', '--method',
                   'rtn', '--export', 'compressed_tensors', '-o', folder + '/experts', '--json')
    check(experts.code == 0, 'a mixture of experts', experts.err)
    why = {one['tensor'].rsplit('.', 1)[-1]: one['why'] for one in experts.json()['skipped']}
    check(why == {'gate': 'it chooses experts', 'lm_head': 'the head stays float unless export.head (--quantize-head) asks for it'},
          'why layers of experts stay float', why)
    onnx = pare('convert', kind('ct_w4a16_asym'), '-o', folder + '/m.onnx', '--to', 'onnx')
    check(onnx.code == 0, 'to ONNX', onnx.err)
    shown = pare('inspect', folder + '/m.onnx', '--json')
    check(shown.json()['ops']['DequantizeLinear'] == 7, 'to ONNX: codes stay codes', shown.out)


def refuses(folder):
    for keys, code, words in (({'quant_method': 'bitsandbytes'}, 4, ('bitsandbytes', 'compressed-tensors, awq, gptq')),
                              ({'version': 'gemv'}, 4, ('gemv', 'gemm')), ({'bits': 3}, 4, ('3 bits',)),
                              ({'group_size': 40}, 3, ('groups of 40', 'down_proj')), ({'bits': 'four'}, 3, ('bits',))):
        result = pare('inspect', changed(folder, 'awq', **keys))
        check(result.code == code and all(word in result.err for word in words), f'awq with {keys}', result.err)


with workplace() as place:
    for part in (inspects, converts, refuses):
        sub = os.path.join(place, part.__name__)
        os.mkdir(sub)
        part(sub)
finish(3)
