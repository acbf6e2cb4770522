#!/usr/bin/env python3
"""A small image network, random weights, whose layers take every kernel of maps: what the slow tools of scripts/gpu/check look at.

    scripts/gpu/maps_model.py DIR     needs onnx; DIR gets maps.onnx and maps.npy to calibrate on

Maps are 16x16; streams and strips, which take turns, begin at a batch of 67.
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(1)
weights, nodes = [], []


def weight(name, *sizes):
    values = random.standard_normal(sizes) / np.sqrt(np.prod(sizes[1:]) if len(sizes) > 1 else 10)
    weights.append(numpy_helper.from_array(values.astype(np.float32), name))
    return name


def node(kind, inputs, name, **attributes):
    nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
    return name


def conv(x, name, inputs, outputs, size, group=1):
    return node('Conv', [x, weight(name + '_w', outputs, inputs // group, size, size), weight(name + '_b', outputs)],
                name, kernel_shape=[size, size], pads=[size // 2] * 4, group=group)


def relu(x):
    return node('Relu', [x], x + '_relu')


def main():
    folder = sys.argv[1]
    x = relu(conv('image', 'first', 3, 32, 3))
    x = relu(conv(x, 'channels', 32, 32, 3, group=32))
    shortcut = conv(x, 'shortcut', 32, 64, 1)
    y = relu(conv(x, 'wide', 32, 64, 1))
    y = relu(conv(y, 'square', 64, 64, 3))
    x = relu(node('Add', [conv(y, 'last', 64, 64, 1), shortcut], 'sum'))
    y = relu(conv(x, 'narrow', 64, 32, 1))
    y = relu(conv(y, 'square2', 32, 32, 3))
    x = relu(node('Add', [conv(y, 'last2', 32, 64, 1), x], 'sum2'))
    x = node('MaxPool', [x], 'largest', kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = node('Flatten', [node('GlobalAveragePool', [x], 'mean')], 'flat')
    node('Gemm', [x, weight('head_w', 16, 64), weight('head_b', 16)], 'head', transB=1)
    image = helper.make_tensor_value_info('image', TensorProto.FLOAT, ['batch', 3, 16, 16])
    head = helper.make_tensor_value_info('head', TensorProto.FLOAT, ['batch', 16])
    model = helper.make_model(helper.make_graph(nodes, 'maps', [image], [head], weights),
                              opset_imports=[helper.make_opsetid('', 20)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, folder + '/maps.onnx')
    np.save(folder + '/maps.npy', random.standard_normal((8, 3, 16, 16)).astype(np.float32))


if __name__ == '__main__':
    main()
