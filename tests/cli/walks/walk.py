"""What the walks of a new user share: small models and data of the user's own, and the checks of ../harness.py.

A walk does what README and `--help` tell, in the order in which a person would, and asks for what that person must see
to go on: the exit code, the name of the layer or key, the suggestion, the next command. It never asks for whole texts.
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import FAILURES, PARE, Result, check, pare, workplace  # noqa: E402  (the path comes first)

COUNT = 0
LAYOUT = 'layout=nhwc_to_nchw,scale=1/255'


def step(name, arguments, code, *words, absent=(), **how):
    """Runs pare as a user does. `words` must stand in what it prints, `absent` must not."""
    global COUNT
    COUNT += 1
    result = pare(*arguments, **how)
    text = result.out + result.err
    check(result.code == code, name, f'exit code {result.code}, not {code}', text)
    for word in words:
        check(word in text, name, f'the user does not see: {word}', text)
    for word in absent:
        check(word not in text, name, f'the user sees: {word}', text)
    return result


def done():
    print(f'{COUNT} steps, {len(FAILURES)} checks failed')
    sys.exit(1 if FAILURES else 0)


def save(path, nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
                              [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)


def image_classifier(folder):
    """my.onnx: two convolutions and a Gemm over pictures of 16x16; calibration.npy, test.npy (uint8, channels last) and
    labels.npy, which are what the float model says, so that its top-1 is 1."""
    random = np.random.default_rng(0)

    def weight(*shape):
        return random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))

    weights = {'stem.weight': weight(8, 3, 3, 3), 'stem.bias': random.normal(size=8) * 0.1,
               'block.weight': weight(16, 8, 3, 3), 'block.bias': random.normal(size=16) * 0.1,
               'head.weight': weight(6, 16) * 20, 'head.bias': np.zeros(6)}
    save(os.path.join(folder, 'my.onnx'), [
        helper.make_node('Conv', ['pixels', 'stem.weight', 'stem.bias'], ['a'], name='stem', pads=[1] * 4, kernel_shape=[3, 3]),
        helper.make_node('Relu', ['a'], ['b'], name='stem_relu'),
        helper.make_node('Conv', ['b', 'block.weight', 'block.bias'], ['c'], name='block', pads=[1] * 4, strides=[2, 2], kernel_shape=[3, 3]),
        helper.make_node('Relu', ['c'], ['d'], name='block_relu'),
        helper.make_node('GlobalAveragePool', ['d'], ['e'], name='pool'),
        helper.make_node('Flatten', ['e'], ['f'], name='flat'),
        helper.make_node('Gemm', ['f', 'head.weight', 'head.bias'], ['logits'], name='head', transB=1)],
        [('pixels', ['n', 3, 16, 16])], [('logits', ['n', 6])], weights)
    np.save(os.path.join(folder, 'calibration.npy'), random.integers(0, 256, (64, 16, 16, 3), np.uint8))
    images = random.integers(0, 256, (64, 16, 16, 3), np.uint8)
    np.save(os.path.join(folder, 'test.npy'), images)
    label_by_model(folder, 'my.onnx', images.astype(np.float32).transpose(0, 3, 1, 2) * np.float32(1 / 255), 'pixels')


def label_by_model(folder, model, inputs, name):
    """labels.npy: the classes that `model` gives the arrays."""
    np.save(os.path.join(folder, 'x.npy'), np.ascontiguousarray(inputs))
    result = pare('infer', model, '--input', f'{name}=x.npy', '--save', 'o', cwd=folder)
    assert result.code == 0, result.err
    np.save(os.path.join(folder, 'labels.npy'), np.load(os.path.join(folder, 'o', 'out_0.npy')).argmax(1))


def planted_culprit(folder):
    """net.onnx: four Gemms of which `mix` cannot be 8 bits per tensor, since one of its inputs is 800 and the others 1."""
    random = np.random.default_rng(1)
    nodes, weights, value = [], {}, 'features'
    for name, outputs, inputs in (('encoder', 32, 16), ('expand', 32, 32), ('mix', 32, 32), ('head', 8, 32)):
        w = random.normal(size=(outputs, inputs)) / np.sqrt(inputs) * 1.4
        b = random.normal(size=outputs) * 0.1
        if name == 'expand':
            b[5] = 800
        if name == 'mix':
            b -= w[:, 5] * 800
        weights |= {name + '.weight': w, name + '.bias': b}
        out = 'logits' if name == 'head' else name + '_out'
        nodes.append(helper.make_node('Gemm', [value, name + '.weight', name + '.bias'], [out], name=name, transB=1))
        value = out
        if name != 'head':
            nodes.append(helper.make_node('Relu', [out], [name + '_act'], name=name + '_relu'))
            value = name + '_act'
    save(os.path.join(folder, 'net.onnx'), nodes, [('features', ['n', 16])], [('logits', ['n', 8])], weights)
    np.save(os.path.join(folder, 'calibration.npy'), random.normal(size=(128, 16)).astype(np.float32))
    test = random.normal(size=(256, 16)).astype(np.float32)
    np.save(os.path.join(folder, 'test.npy'), test)
    label_by_model(folder, 'net.onnx', test, 'features')


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    return path
