"""Models of one operator of com.microsoft or ai.onnx.ml each, with inputs and what ONNX Runtime makes of them, in the form of ONNX's backend
suite (tests/conformance runs them). Run by hand with the Python of scripts/test-venv:

    python tests/golden/make_microsoft.py [--check]

--check compares ONNX Runtime's results with the files that are there and writes nothing."""
import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).parent / 'microsoft'
MS = 'com.microsoft'
F, I32, I64 = np.float32, np.int32, np.int64


class Constant:
    """An input that is an initializer."""

    def __init__(self, array):
        self.array = np.asarray(array)


def floats(seed, *shape, scale=1.0):
    return (np.random.RandomState(seed).standard_normal(shape) * scale).astype(F)


def codes(seed, dtype, *shape):
    info = np.iinfo(dtype)
    return np.random.RandomState(seed).randint(info.min, info.max + 1, shape).astype(dtype)


def u8(value):
    return Constant(np.array(value, np.uint8))


def i8(value):
    return Constant(np.array(value, np.int8))


def scale(value):
    return Constant(np.array(value, F))


CASES = []


def case(name, op, inputs, attrs=None, outputs=1, atol=1e-5, rtol=1e-4, domain=MS):
    """outputs: how many, or a list of flags (False: left out)."""
    CASES.append((name, op, inputs, attrs or {}, [True] * outputs if isinstance(outputs, int) else outputs, atol, rtol, domain))


def quantized_cases():
    x = floats(1, 2, 3, 4)
    case('quantize_u8', 'QuantizeLinear', [x, scale(0.05), u8(128)], atol=0)
    case('quantize_axis_i8', 'QuantizeLinear', [x, scale([.02, .03, .05]), i8([0, 1, -3])], {'axis': 1}, atol=0)
    case('quantize_u16', 'QuantizeLinear', [x, scale(1e-4), Constant(np.array(32768, np.uint16))], atol=0)
    case('dequantize_i8', 'DequantizeLinear', [codes(2, np.int8, 2, 3, 4), scale(0.05), i8(-7)])
    case('dequantize_axis_u8', 'DequantizeLinear', [codes(2, np.uint8, 2, 3), scale([.5, .25, 2]), u8([0, 128, 255])], {'axis': 1})
    case('dequantize_i32', 'DequantizeLinear', [codes(2, np.int32, 2, 3), scale(2e-9)])
    a, b = codes(3, np.uint8, 2, 3, 5), codes(4, np.uint8, 3, 1)
    sa, sb = codes(3, np.int8, 2, 3, 5), codes(4, np.int8, 2, 3, 5)
    # ONNX Runtime's own integer arithmetic rounds some sums to the neighbouring code.
    case('qlinear_add_u8', 'QLinearAdd', [a, scale(.02), u8(120), b, scale(.03), u8(10), scale(.04), u8(99)], atol=1, rtol=0)
    case('qlinear_add_s8', 'QLinearAdd', [sa, scale(.02), i8(-3), sb, scale(.03), i8(10), scale(.04), i8(5)], atol=1, rtol=0)
    case('qlinear_mul_u8', 'QLinearMul', [a, scale(.02), u8(120), b, scale(.03), u8(10), scale(.04), u8(99)], atol=1, rtol=0)
    case('qlinear_sigmoid', 'QLinearSigmoid', [a, scale(.05), u8(128), scale(1 / 256), u8(0)], atol=1, rtol=0)
    case('qlinear_leaky_relu', 'QLinearLeakyRelu', [sa, scale(.05), i8(3), scale(.04), i8(-9)], {'alpha': .2}, atol=1, rtol=0)
    case('qlinear_softmax', 'QLinearSoftmax', [a, scale(.03), u8(128), scale(1 / 256), u8(0)], {'opset': 13, 'axis': -1}, atol=1, rtol=0)
    case('qlinear_softmax_12', 'QLinearSoftmax', [a, scale(.03), u8(128), scale(1 / 256), u8(0)], {'opset': 12, 'axis': 1}, atol=1, rtol=0)
    case('qlinear_concat', 'QLinearConcat', [scale(.05), u8(9), a, scale(.02), u8(120), codes(8, np.uint8, 2, 1, 5), scale(.05), u8(9)],
         {'axis': 1}, atol=1, rtol=0)
    image = codes(5, np.uint8, 1, 3, 6, 5)
    case('qlinear_global_average_pool', 'QLinearGlobalAveragePool', [image, scale(.02), u8(100), scale(.01), u8(120)], atol=1, rtol=0)
    case('qlinear_average_pool', 'QLinearAveragePool', [image, scale(.02), u8(100), scale(.02), u8(120)],
         {'kernel_shape': [3, 2], 'strides': [2, 1], 'pads': [1, 0, 1, 1]}, atol=1, rtol=0)
    case('qlinear_where', 'QLinearWhere', [np.array([[True], [False], [True]]), a[0], scale(.02), u8(120), a[1], scale(.04), u8(7),
                                           scale(.04), u8(100)], atol=1, rtol=0)
    case('nhwc_max_pool', 'NhwcMaxPool', [codes(6, np.uint8, 1, 5, 6, 3)], {'kernel_shape': [2, 3], 'strides': [2, 2], 'pads': [0, 1, 1, 0]}, atol=0)
    m, w = codes(7, np.uint8, 4, 6), codes(8, np.int8, 6, 5)
    bias = Constant(np.array([100, -2000, 5, 0, 999], I32))
    case('qgemm', 'QGemm', [m, scale(.02), u8(128), Constant(w), scale(.01), i8(0), bias, scale(.05), u8(128)], atol=1, rtol=0)
    case('qgemm_float', 'QGemm', [m, scale(.02), u8(128), Constant(w.T.copy()), scale([.01, .02, .03, .01, .02]), i8([0] * 5), bias],
         {'transB': 1})
    case('dynamic_quantize_matmul', 'DynamicQuantizeMatMul', [floats(9, 2, 4, 6), Constant(w), scale(.01), i8(3), Constant(floats(10, 5))],
         atol=1e-4)
    case('dynamic_quantize_matmul_columns', 'DynamicQuantizeMatMul', [floats(9, 4, 6), Constant(w), scale([.01, .02, .03, .01, .02]), None, None],
         atol=1e-4)
    case('matmul_integer_to_float', 'MatMulIntegerToFloat', [m, Constant(w), scale(.02), scale([.01, .02, .03, .01, .02]), u8(120), i8([1, 2, 3, -4, 5]),
                                                             Constant(floats(10, 5))])


def packed(values, bits):
    """[..., n] codes into bytes along the last axis, the first in the low bits."""
    per = 8 // bits
    padded = np.concatenate([values, np.zeros(values.shape[:-1] + (-values.shape[-1] % per,), values.dtype)], -1)
    parts = padded.reshape(padded.shape[:-1] + (-1, per)).astype(np.uint32)
    return sum(parts[..., i] << (bits * i) for i in range(per)).astype(np.uint8)


def weight_cases():
    for bits in (2, 4, 8):
        for k, n, block, zero in ((64, 3, 16, 'packed'), (40, 4, 16, None), (48, 3, 16, 'float')):
            if zero == 'float' and bits != 4:
                continue
            blocks = -(-k // block)
            values = np.random.RandomState(bits).randint(0, 1 << bits, (n, blocks, block))
            attrs = {'K': k, 'N': n, 'bits': bits, 'block_size': block}
            scales = Constant(np.abs(floats(11, n, blocks)) + F(.1))
            zeros = None
            if zero == 'packed':
                zeros = Constant(packed(np.random.RandomState(5).randint(0, 1 << bits, (n, blocks)), bits))
            if zero == 'float':
                zeros = Constant(floats(12, n, blocks) + F(8))
            case(f'matmul_{bits}bits_{k}_{zero}', 'MatMulNBits', [floats(13, 2, 3, k), Constant(packed(values, bits)), scales, zeros], attrs, atol=1e-3)
    values = np.random.RandomState(4).randint(0, 16, (3, 2, 16))
    case('matmul_4bits_bias', 'MatMulNBits', [floats(13, 2, 32), Constant(packed(values, 4)), Constant(floats(11, 3, 2)), None, None, Constant(floats(14, 3))],
         {'K': 32, 'N': 3, 'bits': 4, 'block_size': 16}, atol=1e-3)
    data = np.random.RandomState(6).randint(0, 16, (7, 32))
    ids = np.array([[1, 6], [0, 1]], I64)
    case('gather_block_quantized', 'GatherBlockQuantized', [Constant(packed(data, 4)), ids, Constant(floats(15, 7, 2)),
                                                            Constant(packed(np.random.RandomState(7).randint(0, 16, (7, 2)), 4))],
         {'bits': 4, 'block_size': 16, 'gather_axis': 0, 'quantize_axis': 1})
    case('gather_block_quantized_default_zero', 'GatherBlockQuantized', [Constant(packed(data, 4)), ids, Constant(floats(15, 7, 2))],
         {'bits': 4, 'block_size': 16, 'gather_axis': 0, 'quantize_axis': 1})


def layer_cases():
    x, h = floats(20, 2, 3, 8, scale=2), floats(21, 2, 3, 8)
    g, b, c = (Constant(floats(s, 8)) for s in (22, 23, 24))
    case('gelu', 'Gelu', [x])
    case('fast_gelu', 'FastGelu', [x], atol=1e-4)
    case('fast_gelu_bias', 'FastGelu', [x, c], atol=1e-4)
    case('bias_gelu', 'BiasGelu', [x, c])
    case('quick_gelu', 'QuickGelu', [x])
    case('quick_gelu_alpha', 'QuickGelu', [x], {'alpha': -.5})
    case('simplified_layer_norm', 'SimplifiedLayerNormalization', [x, g], {'epsilon': 1e-3}, domain='')
    case('skip_layer_norm', 'SkipLayerNormalization', [x, h, g, b, c], {'epsilon': 1e-3}, [True, False, False, True])
    case('skip_layer_norm_plain', 'SkipLayerNormalization', [x, h, g])
    case('skip_layer_norm_broadcast', 'SkipLayerNormalization', [x, h[0], g, b])
    case('skip_simplified_layer_norm', 'SkipSimplifiedLayerNormalization', [x, h, g, c], {'epsilon': 1e-3}, [True, False, False, True])
    tables = [Constant(floats(s, n, 8)) for s, n in ((25, 11), (26, 5), (27, 2))]
    ids = np.array([[1, 10, 3], [0, 2, 2]], I32)
    segments = np.array([[0, 0, 1], [1, 1, 1]], I32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], I32)
    case('embed_layer_norm', 'EmbedLayerNormalization', [ids, segments, *tables, g, b, mask], {'epsilon': 1e-3}, 2)
    case('embed_layer_norm_positions', 'EmbedLayerNormalization', [ids, None, tables[0], tables[1], None, g, b, None, np.array([[4, 0, 1]], I32)],
         {}, [True, True, True])
    a, m = floats(30, 2, 3, 4), floats(31, 2, 5, 4)
    case('fused_matmul', 'FusedMatMul', [a, m], {'transB': 1, 'alpha': .5})
    case('fused_matmul_a', 'FusedMatMul', [a, floats(32, 3, 6)], {'transA': 1})
    case('fused_matmul_batch', 'FusedMatMul', [floats(33, 3, 2, 4), m], {'transBatchA': 1, 'transB': 1, 'alpha': 2.})
    case('transpose_matmul', 'TransposeMatMul', [a, m], {'transB': 1})
    case('fused_gemm', 'FusedGemm', [a[0], floats(34, 4, 5), floats(35, 5)], {'activation': 'LeakyRelu', 'activation_alpha': .3, 'alpha': 2., 'beta': .5})
    image, kernel = floats(36, 1, 3, 6, 6), Constant(floats(37, 4, 3, 3, 3))
    case('fused_conv_relu', 'FusedConv', [image, kernel, Constant(floats(38, 4))], {'activation': 'Relu', 'pads': [1, 1, 1, 1]})
    case('fused_conv_sum', 'FusedConv', [image, kernel, Constant(floats(38, 4)), floats(39, 1, 4, 4, 4)], {'activation': 'Relu'})
    case('fused_conv_clip', 'FusedConv', [image, kernel], {'activation': 'Clip', 'activation_params': [-1., 2.]})


def attention_cases():
    x = floats(40, 2, 4, 12)
    w, b = Constant(floats(41, 12, 24, scale=.5)), Constant(floats(42, 24))
    case('attention', 'Attention', [x, w, b], {'num_heads': 2})
    case('attention_mask', 'Attention', [x, w, b, np.array([[1, 1, 0, 0], [1, 1, 1, 1]], I32)], {'num_heads': 2})
    case('attention_lengths', 'Attention', [x, w, b, np.array([2, 4], I32)], {'num_heads': 2})
    case('attention_mask_3d', 'Attention', [x, w, b, np.random.RandomState(1).randint(0, 2, (2, 4, 4)).astype(I32)], {'num_heads': 2})
    case('attention_past', 'Attention', [x, w, b, None, floats(43, 2, 2, 2, 3, 4)], {'num_heads': 2, 'unidirectional': 1}, 2)
    case('attention_bias', 'Attention', [x, w, b, None, None, floats(44, 1, 2, 4, 4)], {'num_heads': 2})
    case('attention_sizes', 'Attention', [x, Constant(floats(41, 12, 28)), Constant(floats(42, 28))], {'num_heads': 2, 'qkv_hidden_sizes': [8, 8, 12]})
    q, k, v = floats(45, 2, 3, 8), floats(46, 2, 5, 8), floats(47, 2, 5, 8)
    case('multi_head', 'MultiHeadAttention', [q, k, v], {'num_heads': 2, 'scale': .3})
    case('multi_head_bias_mask', 'MultiHeadAttention', [q, k, v, Constant(floats(48, 24)), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], I32)], {'num_heads': 2})
    case('multi_head_lengths', 'MultiHeadAttention', [q, k, v, None, np.array([2, 5], I32), floats(49, 1, 1, 3, 5)], {'num_heads': 4})
    case('multi_head_past', 'MultiHeadAttention', [q, floats(46, 2, 3, 8), floats(47, 2, 3, 8), None, None, None, floats(50, 2, 2, 2, 4), floats(51, 2, 2, 2, 4)],
         {'num_heads': 2, 'unidirectional': 1}, 3)
    case('q_attention', 'QAttention', [codes(52, np.uint8, 2, 4, 12), Constant(codes(53, np.int8, 12, 24)), b, scale(.02), scale(.01), None, u8(128), i8(0)],
         {'num_heads': 2}, atol=1e-3)
    angle = np.outer(np.arange(16), 1 / 100 ** (np.arange(2) / 2)).astype(F)
    cos, sin = Constant(np.cos(angle)), Constant(np.sin(angle))
    case('rotary', 'RotaryEmbedding', [x, np.array([[0, 1, 2, 3], [5, 6, 7, 9]], I64), cos, sin])
    case('rotary_offset_4d', 'RotaryEmbedding', [floats(54, 2, 3, 4, 4), np.array([3], I64), cos, sin], {'interleaved': 1})
    case('rotary_part', 'RotaryEmbedding', [floats(55, 1, 4, 16), np.array([2], I64), cos, sin], {'num_heads': 2, 'rotary_embedding_dim': 4})
    hidden, kv = 4 * 16, 2 * 16
    table = np.outer(np.arange(32), 1 / 100 ** (np.arange(8) / 8)).astype(F)
    cos, sin = Constant(np.cos(table)), Constant(np.sin(table))
    q, k, v = floats(56, 2, 3, hidden), floats(57, 2, 3, kv), floats(58, 2, 3, kv)
    heads = {'num_heads': 4, 'kv_num_heads': 2}
    total = Constant(np.array(3, I32))
    case('gqa_prompt', 'GroupQueryAttention', [q, k, v, None, None, np.array([2, 2], I32), total], heads, 3)
    case('gqa_prompt_padded', 'GroupQueryAttention', [q, k, v, None, None, np.array([2, 1], I32), total], heads, 3)
    case('gqa_rotary', 'GroupQueryAttention', [q, k, v, None, None, np.array([2, 2], I32), total, cos, sin], {**heads, 'do_rotary': 1}, 3)
    past = [floats(59, 2, 2, 5, 16), floats(60, 2, 2, 5, 16)]
    one = [floats(61, 2, 1, hidden), floats(62, 2, 1, kv), floats(63, 2, 1, kv)]
    case('gqa_step', 'GroupQueryAttention', [*one, *past, np.array([5, 5], I32), Constant(np.array(6, I32)), cos, sin], {**heads, 'do_rotary': 1}, 3)
    case('gqa_step_ragged', 'GroupQueryAttention', [*one, *past, np.array([5, 3], I32), Constant(np.array(6, I32)), cos, sin],
         {**heads, 'do_rotary': 1, 'rotary_interleaved': 1}, 3)
    case('gqa_packed_window', 'GroupQueryAttention', [floats(64, 1, 6, hidden + 2 * kv), None, None, None, None, np.array([5], I32), Constant(np.array(6, I32)), cos, sin],
         {**heads, 'do_rotary': 1, 'local_window_size': 2, 'softcap': 5.}, 3)
    case('gqa_buffer', 'GroupQueryAttention', [*one, *past, np.array([2, 3], I32), Constant(np.array(4, I32)), cos, sin], {**heads, 'scale': .2, 'do_rotary': 1}, 3)
    case('gqa_bias_sink', 'GroupQueryAttention', [q, k, v, None, None, np.array([2, 2], I32), total, None, None, None, floats(65, 2, 4, 3, 3), Constant(floats(66, 4))], heads, 3)


def words(*values):
    return np.array(values, dtype=object)


def tree(op, seed, features, targets, depth=3, trees=3, **attrs):
    """Full trees with random splits; the votes of classifiers go to `targets`."""
    rng = np.random.RandomState(seed)
    side = 'class' if op == 'TreeEnsembleClassifier' else 'target'
    out = {f'nodes_{k}': [] for k in ('treeids', 'nodeids', 'featureids', 'values', 'modes', 'truenodeids', 'falsenodeids', 'missing_value_tracks_true')}
    out.update({f'{side}_{k}': [] for k in ('treeids', 'nodeids', 'ids', 'weights')})
    modes = ['BRANCH_LEQ', 'BRANCH_LT', 'BRANCH_GTE', 'BRANCH_GT']
    for t in range(trees):
        for n in range(2 ** (depth + 1) - 1):
            leaf = n >= 2 ** depth - 1
            row = {'treeids': t, 'nodeids': n, 'featureids': 0 if leaf else int(rng.randint(features)), 'values': 0. if leaf else float(rng.randn()),
                   'modes': 'LEAF' if leaf else modes[t % 4], 'truenodeids': 0 if leaf else 2 * n + 1, 'falsenodeids': 0 if leaf else 2 * n + 2,
                   'missing_value_tracks_true': int(rng.randint(2))}
            for key, value in row.items():
                out[f'nodes_{key}'].append(value)
            for target in targets if leaf else ():
                weight = abs(rng.randn()) if attrs.get('post_transform') == 'POSITIVE' else rng.randn()
                for key, value in {'treeids': t, 'nodeids': n, 'ids': target, 'weights': float(weight)}.items():
                    out[f'{side}_{key}'].append(value)
    out.update(attrs)
    if out.get('post_transform') == 'POSITIVE':
        out['post_transform'] = 'NONE'
        out[f'{side}_weights'] = [w / 3 for w in out[f'{side}_weights']]
    return out


def ml_cases():
    ml = 'ai.onnx.ml'
    x = floats(70, 5, 3)
    case('ml_scaler', 'Scaler', [x], {'offset': [1., 2., 3.], 'scale': [.5, 2., -1.]}, domain=ml)
    case('ml_scaler_one_i64', 'Scaler', [np.array([[1, 2, -3]], I64)], {'offset': [1.], 'scale': [.5]}, domain=ml)
    for norm in ('MAX', 'L1', 'L2'):
        case(f'ml_normalizer_{norm.lower()}', 'Normalizer', [x], {'norm': norm}, domain=ml)
    holes = x.copy()
    holes[1, 2] = holes[0, 0] = np.nan
    case('ml_imputer', 'Imputer', [holes], {'imputed_value_floats': [1., 2., 3.], 'replaced_value_float': float('nan')}, domain=ml)
    case('ml_imputer_i64', 'Imputer', [np.array([[1, -7, 2]], I64)], {'imputed_value_int64s': [5], 'replaced_value_int64': -7}, domain=ml)
    case('ml_binarizer', 'Binarizer', [x], {'threshold': .25}, domain=ml)
    case('ml_array_feature', 'ArrayFeatureExtractor', [x, np.array([2, 0, 2], I64)], domain=ml)
    case('ml_one_hot', 'OneHotEncoder', [np.array([3, 1, 9], I64)], {'cats_int64s': [1, 2, 3], 'zeros': 1}, domain=ml)
    case('ml_one_hot_strings', 'OneHotEncoder', [words('b', 'a', '?')], {'cats_strings': ['a', 'b'], 'zeros': 1}, domain=ml)
    case('ml_label_floats', 'LabelEncoder', [np.array([1.5, np.nan, 0.], F)], {'keys_floats': [1.5, float('nan')], 'values_strings': ['x', 'nan']}, domain=ml)
    case('ml_label_int_float', 'LabelEncoder', [np.array([3, 4], I64)], {'keys_int64s': [3], 'values_floats': [.5], 'default_float': 9.}, domain=ml)
    case('ml_category_mapper', 'CategoryMapper', [words('b', 'z')], {'cats_strings': ['a', 'b'], 'cats_int64s': [10, 20], 'default_int64': 7}, domain=ml)
    case('ml_category_mapper_back', 'CategoryMapper', [np.array([10, 11], I64)], {'cats_strings': ['a', 'b'], 'cats_int64s': [10, 20]}, domain=ml)
    case('ml_feature_vectorizer', 'FeatureVectorizer', [x, floats(71, 5, 2)], {'inputdimensions': [3, 2]}, domain=ml)
    weights = [float(v) for v in floats(72, 6)]
    case('ml_linear_regressor', 'LinearRegressor', [x], {'coefficients': weights, 'intercepts': [1., -1.], 'targets': 2}, domain=ml)
    for transform in ('NONE', 'SOFTMAX', 'LOGISTIC', 'SOFTMAX_ZERO'):
        case(f'ml_linear_classifier_{transform.lower()}', 'LinearClassifier', [x], {'coefficients': weights, 'intercepts': [.1, -.1], 'multi_class': 1,
             'classlabels_ints': [7, 9], 'post_transform': transform}, 2, domain=ml)
    for transform in ('NONE', 'LOGISTIC'):
        case(f'ml_linear_classifier_one_{transform.lower()}', 'LinearClassifier', [x], {'coefficients': weights[:3], 'intercepts': [.1],
             'classlabels_strings': ['no', 'yes'], 'post_transform': transform}, 2, domain=ml)
    gaps = floats(73, 9, 3)
    gaps[2, 1] = gaps[5, 0] = np.nan
    for aggregate in ('SUM', 'AVERAGE', 'MIN', 'MAX'):
        case(f'ml_tree_regressor_{aggregate.lower()}', 'TreeEnsembleRegressor', [gaps], tree('TreeEnsembleRegressor', 1, 3, [0, 1], n_targets=2,
             aggregate_function=aggregate, base_values=[.5, -.5]), domain=ml)
    for transform in ('NONE', 'SOFTMAX', 'LOGISTIC'):
        case(f'ml_tree_classifier_{transform.lower()}', 'TreeEnsembleClassifier', [gaps], tree('TreeEnsembleClassifier', 2, 3, [0, 1, 2],
             classlabels_strings=['a', 'b', 'c'], post_transform=transform), 2, domain=ml)
    for transform in ('NONE', 'LOGISTIC', 'POSITIVE'):
        case(f'ml_tree_binary_{transform.lower()}', 'TreeEnsembleClassifier', [gaps], tree('TreeEnsembleClassifier', 3, 3, [0], classlabels_int64s=[4, 5],
             post_transform=transform), 2, domain=ml)


def build(op, inputs, attrs, outputs, domain):
    names, graph_inputs, initializers, feeds = [], [], [], {}
    for i, value in enumerate(inputs):
        if value is None:
            names.append('')
            continue
        names.append(f'in_{i}')
        if isinstance(value, Constant):
            initializers.append(numpy_helper.from_array(value.array, names[-1]))
        else:
            feeds[names[-1]] = value
            graph_inputs.append(helper.make_tensor_value_info(names[-1], tensor_type(value), value.shape))
    while names and not names[-1]:
        names.pop()
    out_names = [f'out_{i}' if wanted else '' for i, wanted in enumerate(outputs)]
    node = helper.make_node(op, names, out_names, domain=domain, **attrs)
    made = [onnx.ValueInfoProto(name=n) for n in out_names if n]
    graph = helper.make_graph([node], op, graph_inputs, made, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 21), helper.make_opsetid(MS, 1), helper.make_opsetid('ai.onnx.ml', 4)], ir_version=10)
    return model, feeds


def tensor_type(array):
    return onnx.TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])
    return session.run(None, feeds)


def typed(model, results):
    for info, result in zip(model.graph.output, results):
        info.CopyFrom(helper.make_tensor_value_info(info.name, tensor_type(result), result.shape))


def main():
    for family in (quantized_cases, weight_cases, layer_cases, attention_cases, ml_cases):
        family()
    check, wrong = '--check' in sys.argv, 0
    if not check:
        shutil.rmtree(ROOT, ignore_errors=True)
    for name, op, inputs, attrs, outputs, atol, rtol, domain in CASES:
        model, feeds = build(op, inputs, attrs, outputs, domain)
        try:
            results = run(model, feeds)
        except Exception as error:  # pylint: disable=broad-except
            print(f'{name}: {str(error)[:300]}')
            wrong += 1
            continue
        folder = ROOT / f'test_{name}'
        data = folder / 'test_data_set_0'
        if check:
            for i, result in enumerate(results):
                want = numpy_helper.to_array(onnx.TensorProto.FromString((data / f'output_{i}.pb').read_bytes()))
                if want.dtype == object:
                    assert [str(v) for v in result.flat] == [v.decode() if isinstance(v, bytes) else v for v in want.flat], name
                    continue
                np.testing.assert_allclose(result.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=name)
            continue
        typed(model, results)
        data.mkdir(parents=True)
        (folder / 'model.onnx').write_bytes(model.SerializeToString())
        (folder / 'data.json').write_text(json.dumps({'rtol': rtol, 'atol': atol}) + '\n')
        for i, value in enumerate(feeds.values()):
            (data / f'input_{i}.pb').write_bytes(numpy_helper.from_array(value, f'in_{i}').SerializeToString())
        for i, value in enumerate(results):
            (data / f'output_{i}.pb').write_bytes(numpy_helper.from_array(value, f'out_{i}').SerializeToString())
    print(f'{len(CASES)} models, {wrong} that ONNX Runtime {onnxruntime.__version__} does not run')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
