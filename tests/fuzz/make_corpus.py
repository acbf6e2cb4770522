#!/usr/bin/env python3
"""Writes the first files of the fuzzing corpora: small valid files of every kind that a reader tells apart, and some that
lie. Findings are added to the folders by hand and are not made here.

    python tests/fuzz/make_corpus.py      needs numpy and onnx (scripts/test-venv)
"""
import io
import json
import os
import struct

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'corpus')


def write(target, name, data):
    folder = os.path.join(CORPUS, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), 'wb') as file:
        file.write(data)


def npy(array, **options):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


def npy_with_header(header, data=b''):
    text = header.encode('latin1')
    text += b' ' * (-(len(text) + 11) % 64) + b'\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text + data


def safetensors(header, data=b''):
    text = header.encode()
    return struct.pack('<Q', len(text)) + text + data


def gguf_text(text):
    return struct.pack('<Q', len(text)) + text.encode()


def language_models():
    """Checkpoints: safetensors, GGUF, tokenizer.json, config.json."""
    write('safetensors', 'two.safetensors', safetensors('{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[3,1],"data_offsets":[4,7]}}', bytes(7)))
    write('safetensors', 'overlap.safetensors', safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}', bytes(6)))
    write('safetensors', 'long.safetensors', struct.pack('<Q', 1 << 63) + b'{}')
    write('safetensors', 'large.safetensors', safetensors('{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}}', bytes(8)))
    keys = [('general.architecture', 8, gguf_text('llama')), ('llama.block_count', 4, struct.pack('<I', 1)), ('llama.embedding_length', 4, struct.pack('<I', 32)),
            ('llama.feed_forward_length', 4, struct.pack('<I', 32)), ('llama.attention.head_count', 4, struct.pack('<I', 2)), ('tokenizer.ggml.model', 8, gguf_text('gpt2')),
            ('tokenizer.ggml.tokens', 9, struct.pack('<IQ', 8, 3) + gguf_text('a') + gguf_text('b') + gguf_text('ab')),
            ('tokenizer.ggml.merges', 9, struct.pack('<IQ', 8, 1) + gguf_text('a b')), ('tokenizer.ggml.eos_token_id', 4, struct.pack('<I', 2)), ('llama.rope.freq_base', 6, struct.pack('<f', 1e4))]
    head = b'GGUF' + struct.pack('<IQQ', 3, 1, len(keys)) + b''.join(gguf_text(k) + struct.pack('<I', t) + v for k, t, v in keys)
    head += gguf_text('token_embd.weight') + struct.pack('<IQQIQ', 2, 32, 3, 8, 0)
    write('gguf', 'llama.gguf', head + bytes(-len(head) % 32) + bytes(3 * 34))
    write('gguf', 'many.gguf', b'GGUF' + struct.pack('<IQQ', 3, 1 << 62, 1 << 62))
    write('gguf', 'array.gguf', b'GGUF' + struct.pack('<IQQ', 3, 0, 1) + gguf_text('k') + struct.pack('<IIQ', 9, 8, 1 << 60))
    write('tokenizer', 'bpe.json', rb'{"added_tokens":[{"id":5,"content":"<s>","special":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"Regex":" +"},"content":"_"}]},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+(?!\\S)"},"behavior":"Isolated","invert":false},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","unk_token":"a","byte_fallback":true,"fuse_unk":true,"vocab":{"a":0,"b":1,"ab":2,"<0xFF>":3,"_":4},"merges":[["a","b"]]}}')
    write('tokenizer', 'pieces.json', b'{"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":{"type":"BertProcessing","sep":["c",2],"cls":["a",0]},"decoder":{"type":"WordPiece","prefix":"##"},"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"a":0,"##b":1,"c":2,"[UNK]":3}}}')
    write('tokenizer', 'unigram.json', b'{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"},"decoder":{"type":"Metaspace","replacement":"_"},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["_",-1.5],["a",-2],["b",-3],["ab",-2.5]]}}')
    sizes = '"vocab_size":9,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2'
    for kind in ('llama', 'gemma2', 'gemma3_text', 'qwen3', 'phi3', 'gpt2', 'opt', 'bert'):
        write('config', f'{kind}.json', f'{{"model_type":"{kind}",{sizes},"type_vocab_size":2}}'.encode())
    write('config', 'mixtral.json', f'{{"model_type":"mixtral",{sizes},"num_local_experts":2,"num_experts_per_tok":1,"rope_parameters":{{"rope_type":"yarn","factor":4,"original_max_position_embeddings":16}}}}'.encode())
    write('config', 'windows.json', f'{{"text_config":{{"model_type":"gemma3_text",{sizes},"head_dim":4,"sliding_window":4,"layer_types":["sliding_attention"],"max_position_embeddings":64}}}}'.encode())


language_models()


def quantized():
    """Quantized checkpoints: one module, its config in the metadata."""
    bytes_of = {'I32': 4, 'I64': 8, 'I8': 1, 'U8': 1, 'F16': 2, 'BF16': 2, 'F32': 4, 'F8_E4M3': 1}
    fill = {'F16': b'\x00\x3c', 'BF16': b'\x80\x3f', 'F32': b'\x00\x00\x80\x3f', 'F8_E4M3': b'\x38', 'U8': b'\x7f'}

    def file(name, tensors, quantization, key='config'):
        header, data = {'__metadata__': {key: json.dumps({'quantization': quantization} if key == 'modelopt' else
                                                         {'quantization_config': quantization})}}, b''
        for part, (kind, shape, *values) in tensors.items():
            size = bytes_of[kind] * int(np.prod(shape, dtype=np.int64))
            raw = np.array(values[0], {'I64': '<i8', 'I32': '<i4'}[kind]).tobytes() if values else fill.get(kind, b'\x53') * size
            header['m.q_proj.' + part] = {'dtype': kind, 'shape': shape, 'data_offsets': [len(data), len(data) + size]}
            data += raw[:size]
        write('quantized', name + '.safetensors', safetensors(json.dumps(header), data))

    def ct(form, weights, inputs=None):
        return {'quant_method': 'compressed-tensors', 'format': form,
                'config_groups': {'group_0': {'targets': ['Linear'], 'weights': weights, 'input_activations': inputs}}}

    int4 = dict(num_bits=4, type='int', strategy='group', group_size=4, symmetric=False)
    file('ct_int4', {'weight_packed': ('I32', [4, 1]), 'weight_scale': ('BF16', [4, 2]), 'weight_shape': ('I64', [2], [4, 8]),
                     'weight_zero_point': ('I32', [1, 2])}, ct('pack-quantized', int4))
    file('ct_int3_order', {'weight_packed': ('I32', [4, 1]), 'weight_scale': ('F16', [4, 2]), 'weight_shape': ('I64', [2], [4, 8]),
                           'weight_g_idx': ('I32', [8], [0, 1, 1, 0, 0, 1, 1, 0])},
         ct('pack-quantized', dict(int4, num_bits=3, symmetric=True, actorder='group')))
    file('ct_int8', {'weight': ('I8', [4, 8]), 'weight_scale': ('F32', [4, 1]), 'input_scale': ('F32', [1])},
         ct('int-quantized', dict(num_bits=8, type='int', strategy='channel'), dict(num_bits=8, type='int', strategy='tensor')))
    file('ct_nvfp4', {'weight_packed': ('U8', [4, 8]), 'weight_scale': ('F8_E4M3', [4, 1]), 'weight_global_scale': ('F32', [1])},
         ct('nvfp4-pack-quantized', dict(num_bits=4, type='float', strategy='tensor_group', group_size=16)))
    file('ct_mxfp8', {'weight': ('F8_E4M3', [4, 32]), 'weight_scale': ('U8', [4, 1])},
         ct('mxfp8-quantized', dict(num_bits=8, type='float', strategy='group', group_size=32)))
    mixed = ct('mixed-precision', int4)
    mixed['config_groups']['group_1'] = {'targets': ['re:.*q_proj'], 'format': 'float-quantized',
                                         'weights': dict(num_bits=8, type='float', strategy='tensor')}
    file('ct_mixed', {'weight': ('F8_E4M3', [4, 8]), 'weight_scale': ('BF16', [1])}, mixed)
    file('awq', {'qweight': ('I32', [8, 1]), 'qzeros': ('I32', [2, 1]), 'scales': ('F16', [2, 8])},
         {'quant_method': 'awq', 'bits': 4, 'group_size': 4, 'zero_point': True, 'version': 'gemm'})
    file('gptq', {'qweight': ('I32', [1, 8]), 'qzeros': ('I32', [2, 1]), 'scales': ('F16', [2, 8]),
                  'g_idx': ('I32', [8], [0, 1, 0, 1, 0, 1, 0, 1])},
         {'quant_method': 'gptq', 'bits': 4, 'group_size': 4, 'sym': False, 'dynamic': {'-:x': {}, '+:.*k_proj': {'bits': 8}}})
    file('fp8', {'weight': ('F8_E4M3', [4, 8]), 'weight_scale_inv': ('F32', [2, 2])},
         {'quant_method': 'fp8', 'weight_block_size': [2, 4]})
    file('mo_int4', {'weight': ('U8', [2, 8]), 'weight_scale': ('F32', [4, 2]), 'pre_quant_scale': ('F32', [8])},
         {'quant_algo': 'W4A16_AWQ', 'group_size': 4}, 'modelopt')
    file('mo_nvfp4', {'weight': ('U8', [4, 8]), 'weight_scale': ('F8_E4M3', [4, 1]), 'weight_scale_2': ('F32', []),
                      'input_scale': ('F32', [])},
         {'quant_algo': 'MIXED_PRECISION', 'kv_cache_quant_algo': 'FP8',
          'quantized_layers': {'m.q_proj': {'quant_algo': 'NVFP4', 'group_size': 16}}}, 'modelopt')


quantized()


def npz(compressed, **arrays):
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def make_npy():
    for dtype in ('uint8', 'int8', 'int64', 'float16', 'float32', 'float64', 'bool'):
        write('npy', f'{dtype}.npy', npy(np.arange(6).reshape(2, 3).astype(dtype)))
    write('npy', 'fortran.npy', npy(np.asfortranarray(np.arange(6, dtype='int32').reshape(2, 3))))
    write('npy', 'scalar.npy', npy(np.float32(1.5)))
    write('npy', 'empty.npy', npy(np.zeros((0, 3), 'float32')))
    write('npy', 'big_endian.npy', npy(np.arange(3, dtype='>f4')))
    write('npy', 'version2.npy', npy(np.arange(3, dtype='float32'), version=(2, 0)))
    write('npy', 'object.npy', npy(np.array([{}], dtype=object), allow_pickle=True))
    write('npy', 'huge.npy', npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2684354560,), }", b'1234'))
    write('npy', 'overflow.npy', npy_with_header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"))
    write('npy', 'negative.npy', npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"))
    arrays = {'image': np.arange(12, dtype='float32').reshape(3, 4), 'label': np.array([1, 2], 'int64')}
    write('npy', 'stored.npz', npz(False, **arrays))
    write('npy', 'deflated.npz', npz(True, **arrays))


def model(nodes, inputs, outputs, initializers=(), opset=17, functions=(), extra_opsets=(), **options):
    graph = h.make_graph(nodes, 'g', inputs, outputs, list(initializers))
    opsets = [h.make_opsetid('', opset)] + [h.make_opsetid(d, v) for d, v in extra_opsets]
    return h.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8, **options).SerializeToString()


def value(name, shape, dtype=T.FLOAT):
    return h.make_tensor_value_info(name, dtype, shape)


def weights(name, shape, dtype=T.FLOAT, raw=True):
    array = np.arange(int(np.prod(shape)), dtype='float32').reshape(shape)
    if raw:
        return onnx.numpy_helper.from_array(array.astype(h.tensor_dtype_to_np_dtype(dtype)), name)
    return h.make_tensor(name, dtype, shape, array.flatten())


def make_onnx():
    x, y = value('x', ['n', 1, 4, 4]), value('y', ['n', 2, 2, 2])
    conv = h.make_node('Conv', ['x', 'w', 'b'], ['c'], name='conv', kernel_shape=[3, 3])
    relu = h.make_node('Relu', ['c'], ['y'])
    write('onnx', 'conv.onnx', model([conv, relu], [x], [y], [weights('w', (2, 1, 3, 3)), weights('b', (2,))]))
    write('onnx', 'conv_not_raw.onnx',
          model([conv, relu], [x], [y], [weights('w', (2, 1, 3, 3), raw=False), weights('b', (2,), raw=False)]))
    constant = h.make_node('Constant', [], ['k'], value=weights('', (4,)))
    write('onnx', 'constant_opset9.onnx',
          model([constant, h.make_node('Add', ['x', 'k'], ['y'])], [value('x', [1, 4])], [value('y', [1, 4])], opset=9))
    then = h.make_graph([h.make_node('Relu', ['x'], ['t'])], 'then', [], [value('t', [2])])
    other = h.make_graph([h.make_node('Neg', ['x'], ['e'])], 'else', [], [value('e', [2])])
    write('onnx', 'if.onnx', model([h.make_node('If', ['c'], ['y'], then_branch=then, else_branch=other)],
                                   [value('c', [], T.BOOL), value('x', [2])], [value('y', [2])]))
    function = h.make_function('local', 'Twice', ['a'], ['b'], [h.make_node('Add', ['a', 'a'], ['b'])],
                               [h.make_opsetid('', 17)])
    write('onnx', 'function.onnx', model([h.make_node('Twice', ['x'], ['y'], domain='local')], [value('x', [2])],
                                         [value('y', [2])], functions=[function], extra_opsets=[('local', 1)]))
    write('onnx', 'qdq.onnx', model(
        [h.make_node('QuantizeLinear', ['x', 's', 'z'], ['q']), h.make_node('DequantizeLinear', ['q', 's', 'z'], ['y'])],
        [value('x', [2])], [value('y', [2])],
        [weights('s', ()), h.make_tensor('z', T.FLOAT8E4M3FN, [], [0])], opset=21))
    write('onnx', 'reshape.onnx', model(
        [h.make_node('Shape', ['x'], ['s']), h.make_node('Gather', ['s', 'i'], ['d']),
         h.make_node('Concat', ['d', 'm'], ['t'], axis=0), h.make_node('Reshape', ['x', 't'], ['y'])],
        [value('x', ['n', 2, 3])], [value('y', ['n', 6])],
        [h.make_tensor('i', T.INT64, [1], [0]), h.make_tensor('m', T.INT64, [1], [-1])]))
    write('onnx', 'gelu_opset20.onnx', model([h.make_node('Gelu', ['x'], ['y'])], [value('x', [2])], [value('y', [2])],
                                             opset=20))
    write('onnx', 'unknown_op.onnx', model([h.make_node('Frobnicate', ['x'], ['y'], name='odd')], [value('x', [2])],
                                           [value('y', [2])]))
    # Lies: a tensor larger than its bytes, a cycle, an external file outside the folder, an empty graph.
    wide = weights('w', (2, 1, 3, 3))
    wide.dims[0] = 1 << 40
    write('onnx', 'huge_dims.onnx', model([conv, relu], [x], [y], [wide, weights('b', (2,))]))
    write('onnx', 'cycle.onnx', model([h.make_node('Relu', ['a'], ['b']), h.make_node('Relu', ['b'], ['a'])],
                                      [value('x', [2])], [value('a', [2])]))
    outside = onnx.TensorProto(name='w', data_type=T.FLOAT, dims=[2], data_location=T.EXTERNAL)
    outside.external_data.add(key='location', value='../../etc/passwd')
    write('onnx', 'outside.onnx', model([h.make_node('Add', ['x', 'w'], ['y'])], [value('x', [2])], [value('y', [2])],
                                        [outside]))
    write('onnx', 'empty_graph.onnx', model([], [], []))
    # What is odd but means something.
    add, xy = h.make_node('Add', ['x', 'w'], ['y']), ([value('x', [2])], [value('y', [2])])
    sparse = onnx.load_from_string(model([add], *xy))
    sparse.graph.sparse_initializer.append(h.make_sparse_tensor(
        h.make_tensor('w', T.FLOAT, [1], [3.0]), h.make_tensor('', T.INT64, [1], [1]), [2]))
    write('onnx', 'sparse.onnx', sparse.SerializeToString())
    write('onnx', 'unsorted.onnx', model([h.make_node('Relu', ['a'], ['y']), h.make_node('Neg', ['x'], ['a'])], *xy))
    preset = h.make_function('local', 'Shift', ['a'], ['b'], [
        onnx.parser.parse_node('c = Constant <value_float: float = @by> ()'), h.make_node('Add', ['a', 'c'], ['b'])],
        [h.make_opsetid('', 17)], attributes=[], attribute_protos=[h.make_attribute('by', 2.0)])
    write('onnx', 'function_preset.onnx', model([h.make_node('Shift', ['x'], ['y'], domain='local')], *xy, functions=[preset],
                                                extra_opsets=[('local', 1)]))
    write('onnx', 'custom_domain.onnx', model([h.make_node('Odd', ['x', '', 'w'], ['y'], domain='acme', k=3)], *xy, [weights('w', (2,))],
                                              extra_opsets=[('acme', 2)]))
    codes = [weights('q', (2, 2), T.INT8), h.make_tensor('s', T.FLOAT, [], [0.5]), h.make_tensor('z', T.INT8, [], [0])]
    write('onnx', 'qlinear.onnx', model([h.make_node('QLinearMatMul', ['x', 's', 'z', 'q', 's', 'z', 's', 'z'], ['y'])],
                                        [value('x', [1, 2], T.INT8)], [value('y', [1, 2], T.INT8)], codes))
    training = onnx.load_from_string(model([add], *xy, [weights('w', (2,))]))
    training.training_info.add().algorithm.name = 't'
    write('onnx', 'training.onnx', training.SerializeToString())


if __name__ == '__main__':
    make_npy()
    make_onnx()
