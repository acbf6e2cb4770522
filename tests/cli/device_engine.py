"""Engines for a device, on one of plain loops (tests/gpu/plain_device.cpp): everything that pare does around kernels.

What it tunes, keeps, predicts and says; which engines it refuses on another machine; what is bad input. Kernels and
their speed are for a machine with a GPU (scripts/gpu).
"""
import os
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import CALIBRATION, FASHION, KEYS, RECIPE, RESNET, SMALL, check, finish, pare, workplace

MODULE = sys.argv[1]
MOBILENET = os.path.join(FASHION, 'mobilenet.onnx')
DATA = CALIBRATION + ':' + KEYS
COUNT = 0


def step(name, arguments, code=0, *words, **device):
    """Runs on a device with these settings; `words` must stand in what is printed."""
    global COUNT
    COUNT += 1
    env = {'PARE_CUDA_MODULE': MODULE, **{'PARE_PLAIN_' + key.upper(): str(value) for key, value in device.items()}}
    result = pare(*arguments, env=env)
    text = result.out + result.err
    check(result.code == code, name, f'exit code {result.code}, not {code}', text[-1500:])
    for word in words:
        check(word in text, name, f'this is not said: {word}', text[-1500:])
    return result


def document(name, arguments, code=0, **device):
    return step(name, [*arguments, '--json'], code, **device).json()


def same(a, b, name):
    check(open(a, 'rb').read() == open(b, 'rb').read(), name, f'{a} and {b} differ')


def built_and_built_again():
    build = ['build', RESNET, '--device', 'cuda', '--timing-cache', 't.json']
    step('nothing is in the cache', [*build, '-o', 'x.engine', '--require-cached-tactics'], 4, 'is not in the timing cache', 'without')
    check(not os.path.exists('x.engine'), 'a refused build leaves nothing')
    first = document('build', [*build, '-o', 'a.engine'])
    check(first['kernels'] == 23 and first['fused'] == 23, 'build', first['kernels'])
    check(first['tactics']['timed'] == 23 and first['tactics']['from_cache'] == 0, 'build', first['tactics'])
    memory = first['memory']
    check(memory['predicted_peak'] == memory['measured_peak'] > 0, 'memory is predicted', memory)
    check(first['largest_batch'] > 1000, 'the largest batch', first['largest_batch'])
    again = document('build from the cache', [*build, '-o', 'b.engine', '--require-cached-tactics'])
    check(again['tactics']['timed'] == 0, 'build from the cache', again['tactics'])
    same('a.engine', 'b.engine', 'a build from the cache is the same file')
    step('another batch', [*build, '-o', 'x.engine', '--batch', '3', '--require-cached-tactics'], 4, 'is not in the timing cache')
    step('verify', ['verify', 'a.engine', '--reference', RESNET, '--data', DATA, '--samples', '4', '--strict-precision'], 0, 'passed')
    # 2^-11 relative error of what is stored, 21 layers: far above 30 dB, below what no engine reaches.
    step('a tolerance that nothing meets', ['verify', 'a.engine', '--reference', RESNET, '--data', DATA, '--samples', '4', '--tolerance', '150'], 1, 'FAILED')
    layers = document('inspect', ['inspect', 'a.engine'])['layers']
    check(len(layers) == 23 and all(l['kernel'] == 'plain' and l['requested'] == l['realized'] == 'float16' for l in layers), 'inspect', layers[0])
    step('inspect for people', ['inspect', 'a.engine'], 0, '4.3 %', 'float16', 'plain', 'conv', '/13/Gemm')
    step('an engine is no model', ['eval', 'a.engine', '--data', DATA], 4, 'is an engine, no model', 'pare verify')
    step('contexts', ['bench', 'a.engine', '--contexts', '4', '--iterations', '2'], 0, 'the same bits')
    step('another shape', ['bench', 'a.engine', '--batch', '2', '--iterations', '1'], 2, '[2,1,28,28]', 'built for [1,1,28,28] alone')


def other_machines():
    bench = ['bench', 'a.engine', '--iterations', '1']
    step('another architecture', bench, 4, 'was built for sm_90a (plain loops), this is sm_80', 'build it on this machine', architecture='sm_80')
    step('another version', bench, 0, 'was timed with loops 1, this machine has 2', version='2')
    # 5.7 MB of weights, 150 kB of activations.
    step('memory at load', bench, 5, 'MB are free', 'not even one sample fits', memory=1000000)
    step('memory at build', ['build', RESNET, '--device', 'cuda', '-o', 'x.engine', '--batch', '64'], 5, 'at batch 64', 'the largest batch that fits is about', memory=8000000)
    check(not os.path.exists('x.engine'), 'a refused build leaves nothing')
    result = pare('build', RESNET, '--device', 'cuda', '-o', 'x.engine', env={'PARE_CUDA_MODULE': os.path.abspath('none.so')})
    check(result.code == 5 and 'does not exist' in result.err and 'pare doctor' in result.err, 'no module', result.err)
    real = os.path.join(os.path.dirname(MODULE), 'pare_cuda.so')
    if os.path.exists(real) and pare('doctor', '--require', 'cuda', env={'PARE_CUDA_MODULE': real}).code != 0:  # on a machine without a driver
        for command in (['build', RESNET, '--device', 'cuda', '-o', 'x.engine'], bench):
            result = pare(*command, env={'PARE_CUDA_MODULE': real})
            check(result.code == 5 and 'libcuda.so.1' in result.err and 'install the NVIDIA driver' in result.err, 'no driver', result.code, result.err)


def profiles():
    build = ['build', RESNET, '--device', 'cuda', '-o', 'p.engine', '--profile', 'batch=1x2x8']
    made = document('profile', build)
    check([row['sizes']['batch'] for row in made['profile']] == [1, 2, 8], 'profile', made['profile'])
    peaks = [row['predicted_peak'] for row in made['profile']]
    check(peaks[0] < peaks[1] < peaks[2], 'each end of the profile is predicted', peaks)
    step('not prepared', ['bench', 'p.engine', '--batch', '5', '--iterations', '1'], 0, 'a plan for a shape that was not prepared')
    check(document('the least', ['bench', 'p.engine', '--batch', '1', '--iterations', '1'])['batch'] == 1, 'batch 1 is no default')
    check(document('the optimum', ['bench', 'p.engine', '--iterations', '1'])['batch'] == 2, 'the optimum is the default')
    step('outside of the profile', ['bench', 'p.engine', '--batch', '9', '--iterations', '1'], 2, "'batch' is 9, its profile has 1 to 8")
    # Weights are there already; what batch 5 needs beside them is not.
    step('the end needs too much', [*build[:-1], 'batch=1x2x4096'], 5, 'at batch 4096', 'the largest batch that fits is about', memory=20000000)
    step('refit of a profile', ['build', RESNET, '-o', 'pr.engine', '--refit', 'p.engine'], 0, 'with the tactics of p.engine')
    same('p.engine', 'pr.engine', 'a profile refitted with the same weights')
    step('in another precision', ['build', RESNET, '-o', 'x.engine', '--refit', 'p.engine', '--precision', 'fp32'], 4, 'it stores values as float16')
    step('build at batch 3', ['build', RESNET, '--device', 'cuda', '-o', 'three.engine', '--batch', '3', '--precision', 'bf16'])
    step('refit has its batch and precision', ['build', RESNET, '-o', 'threer.engine', '--refit', 'three.engine'])
    same('three.engine', 'threer.engine', 'batch 3 refitted with the same weights')


def weights_and_refit():
    os.mkdir('apart')
    for batch in ('1', '4'):
        step('apart ' + batch, ['build', RESNET, '--device', 'cuda', '-o', f'apart/{batch}.engine', '--batch', batch, '--weights-apart'])
    files = os.listdir('apart/weights')
    check(os.path.getsize('apart/1.engine') < 500000 and len(files) > 10, 'weights lie apart', os.path.getsize('apart/1.engine'), files)
    step('apart, run', ['bench', 'apart/4.engine', '--iterations', '1'])
    damaged = os.path.join('apart', 'weights', sorted(files)[0])
    kept = open(damaged, 'rb').read()
    open(damaged, 'wb').write(kept[:-1] + bytes([kept[-1] ^ 1]))
    step('weights changed', ['bench', 'apart/1.engine', '--iterations', '1'], 3, sorted(files)[0][:16])
    open(damaged, 'wb').write(kept)
    os.remove(damaged)
    step('weights missing', ['bench', 'apart/1.engine', '--iterations', '1'], 3, 'keeps its weights apart', sorted(files)[0][:16])
    step('refit', ['build', RESNET, '-o', 'r.engine', '--refit', 'a.engine'], 0, 'with the tactics of a.engine')
    same('a.engine', 'r.engine', 'refitted with the same weights')
    model = onnx.load(RESNET)
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.ndim == 4:
            weight.CopyFrom(numpy_helper.from_array((values * numpy.float32(1.125)).astype(numpy.float32), weight.name))
    model.metadata_props.add(key='pare.recipe', value='0123abcd')
    onnx.save(model, 'other.onnx')
    step('refit with other weights', ['build', 'other.onnx', '-o', 'o.engine', '--refit', 'a.engine'])
    check(document('inspect', ['inspect', 'o.engine'])['recipe'] == '0123abcd', 'the recipe of the model')
    verify = ['verify', 'o.engine', '--data', DATA, '--samples', '4', '--tolerance', '40', '--reference']
    step('the new weights are in it', [*verify, 'other.onnx'], 0, 'passed')
    step('the old ones are not', [*verify, RESNET], 1, 'FAILED')
    step('refit by another graph', ['build', MOBILENET, '-o', 'x.engine', '--refit', 'a.engine'], 4, 'is of another graph', '23 layers, the model 45')


def damage():
    whole = open('a.engine', 'rb').read()
    for name, data in (('cut short', whole[:len(whole) // 2]), ('one bit', whole[:5000] + bytes([whole[5000] ^ 4]) + whole[5001:]),
                       ('no header', whole[:10]), ('empty', b''), ('another format', b'PAREENG2' + whole[8:])):
        open('damaged.engine', 'wb').write(data)
        step(name, ['bench', 'damaged.engine', '--iterations', '1'], 3, 'damaged.engine')


def portable():
    step('portable', ['build', MOBILENET, '-o', 'q.engine', '--portable', 'sm_80,sm_90a'], 0, 'for any of sm_80 sm_90a')
    first = document('first load', ['bench', 'q.engine', '--iterations', '1'])['first_load']
    check(first['timed'] == 45 and first['from_cache'] == 0, 'the first load times', first)
    second = document('second load', ['bench', 'q.engine', '--iterations', '1'])['first_load']
    check(second['timed'] == 0 and second['from_cache'] == 45, 'the second does not', second)
    step('of the same generation', ['bench', 'q.engine', '--iterations', '1'], 0, architecture='sm_86')
    step('of none', ['bench', 'q.engine', '--iterations', '1'], 4, 'has kernels for sm_80 sm_90a, this is sm_120', '--portable sm_120', architecture='sm_120')
    step('verified', ['verify', 'q.engine', '--reference', MOBILENET, '--data', DATA, '--samples', '4'], 0, 'passed')
    os.remove('q.engine.tactics')
    os.mkdir('q.engine.tactics')
    step('tactics that cannot be kept', ['bench', 'q.engine', '--iterations', '1'], 0, 'q.engine.tactics')


def precision():
    step('quantize', ['quantize', RESNET, '--format', 'int8', '--method', 'rtn', '--samples', '32', '--data', DATA, '-o', 'int8.onnx'])
    verify = ['verify', 'i.engine', '--reference', 'int8.onnx', '--data', DATA, '--samples', '4']
    build = ['build', 'int8.onnx', '--device', 'cuda', '-o', 'i.engine']
    made = document('int8', build)
    check(len(document('inspect', ['inspect', 'i.engine'])['data']) == 64, 'the data that it was calibrated on')
    check(sum(l['realized'] == 'int8' for l in made['layers']) == 21, 'int8 where it is faster', made['layers'][1])
    step('as asked', [*verify, '--strict-precision'], 0, 'passed')
    step('not faster: float', build, 0, '21 layers with Q/DQ, 21 not as requested', 'faster so: 1.0 us instead of 3.0', slow='int8')
    step('the same choice from the cache', [*build[:-1], 'j.engine', '--timing-cache', 'i.json'], slow='int8')
    step('and again', [*build[:-1], 'k.engine', '--timing-cache', 'i.json', '--require-cached-tactics'], 0, '0 layers timed', slow='int8')
    same('j.engine', 'k.engine', 'the choice of precision from the cache')
    step('is not strict', [*verify, '--strict-precision'], 1, '21 layers run in another precision than requested')
    step('but right', verify, 0, 'passed')
    step('forced', [*build, '--precision', 'int8'], 0, '21 layers with Q/DQ, 0 not as requested', slow='int8')
    # uint8 weights: no kernel has them.
    rng = numpy.random.default_rng(0)
    scale, zero = numpy.float32(0.02), numpy.uint8(128)
    constants = {'ws': scale, 'wz': zero, 'xs': numpy.float32(0.03), 'xz': numpy.int8(0), 'w': rng.integers(0, 256, (64, 32), dtype=numpy.uint8)}
    nodes = [helper.make_node('DequantizeLinear', ['w', 'ws', 'wz'], ['wf']), helper.make_node('QuantizeLinear', ['x', 'xs', 'xz'], ['xq']),
             helper.make_node('DequantizeLinear', ['xq', 'xs', 'xz'], ['xf']), helper.make_node('MatMul', ['xf', 'wf'], ['y'], name='product')]
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['n', 64])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', 32])],
                              [numpy_helper.from_array(numpy.asarray(v), k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), 'unsigned.onnx')
    step('no kernel', ['build', 'unsigned.onnx', '--device', 'cuda', '-o', 'u.engine', '--precision', 'int8'], 0, '1 not as requested', 'product was asked for')
    numpy.save('x.npy', rng.standard_normal((1, 64), dtype=numpy.float32))
    step('no kernel is not strict', ['verify', 'u.engine', '--reference', 'unsigned.onnx', '--input', 'x=x.npy', '--strict-precision'], 1, '1 layer')


def sessions():
    calibrate = ['calibrate', MOBILENET, '--data', DATA, '--samples', '12']
    step('on the CPU', [*calibrate, '-o', 'cpu.h5'])
    for batch in ('12', '5'):
        made = document('on the device', [*calibrate, '--batch', batch, '--device', 'cuda', '-o', batch + '.h5'])
        check(made['device_runs'] == -(-12 // int(batch)) and not made['warnings'], 'every batch ran there', made['device_runs'], made['warnings'])
    same('12.h5', '5.h5', 'statistics of two batch sizes')
    lists = [document('stats', ['stats', 'show', f + '.h5'])['list'] for f in ('cpu', '12')]
    check([t['name'] for t in lists[0]] == [t['name'] for t in lists[1]], 'the same tensors')
    for a, b in zip(*lists):
        # At most (n + 2) 2^-24 of the sum of magnitudes a layer, n <= 960 here, 45 layers: 45 * 962 * 6e-8 = 2.6e-3 at the very worst;
        # random signs take the square root of both counts.
        room = 1e-4 * max(abs(a['min']), abs(a['max']))
        check(abs(a['min'] - b['min']) <= room and abs(a['max'] - b['max']) <= room and a['values'] == b['values'], 'ranges of ' + a['name'], a, b)
    labelled = os.path.join(FASHION, 'fashion_test_images.npy') + ':labels=' + os.path.join(FASHION, 'fashion_test_labels.npy') + ',' + KEYS
    both = [document('eval', ['eval', MOBILENET, '--data', labelled, '--samples', '40', '--device', device])['metrics'] for device in ('cpu', 'cuda')]
    check(both[0]['top1'] == both[1]['top1'], 'eval', *both)
    step('more than there is', [*calibrate, '--batch', '12', '--device', 'cuda', '-o', 'x.h5'], 5, 'at batch 12', memory=5000000)


def of_a_recipe():
    run = ['run', RECIPE, *SMALL, '--set', 'quantize.method=rtn', '--set', 'quantize.activations.calibrator=minmax', '--out', 'run']
    profile = ['--set', 'build.profiles.batch=1x2x4']
    step('no such device', [*run, '--set', 'build.device=tpu'], 2, "'tpu' is no device", 'cuda:N')
    step('no such profile', [*run, '--set', 'build.profiles.batch=4x2x1'], 2, 'build.profiles.batch')
    step('a run without an engine', [*run, '--device', 'cuda'], 4, 'build: {device: cuda}')
    result = pare(*run, '--set', 'build.device=cuda', env={'PARE_CUDA_MODULE': os.path.abspath('none.so')})
    check(result.code == 5 and 'does not exist' in result.err, 'no module', result.err)
    for device, extra, named in (('cpu', [], 'cpu'), ('cuda', ['--set', 'build.timing_cache=' + os.path.abspath('run.json')], 'plain loops')):
        made = document('build: ' + device, [*run, '--force', '--set', 'build.device=' + device, *profile, *extra])
        check([s['name'] for s in made['stages']][-2:] == ['build', 'report'], 'stages', made['stages'])
        check('model.engine' in [a['path'] for a in made['artefacts']], 'artefacts', made['artefacts'])
        table = [t for t in made['tables'] if t['title'] == 'Engine']
        check(len(table) == 1 and named in table[0]['note'] and len(table[0]['rows']) > 15, 'the table of layers', table)
        engine = document('inspect', ['inspect', 'run/model.engine'])
        check(named in engine['device'] and len(engine['data']) == 64, 'the engine and its data', engine['device'])
        verify = ['verify', 'run/model.engine', '--reference', 'run/model.onnx', '--data', DATA, '--samples', '4', '--strict-precision']
        step('verify: ' + device, verify, 0, 'passed')
    step('finished is finished', [*run, '--resume', '--set', 'build.device=cuda', *profile, *extra], 0, 'model.engine')
    check(os.path.getsize('run.json') > 1000, 'the timing cache')
    step('from the cache', [*run, '--force', '--set', 'build.device=cuda', *profile, *extra, '--set', 'build.require_cached_tactics=true'])


with workplace() as folder:
    os.chdir(folder)
    built_and_built_again()
    other_machines()
    profiles()
    weights_and_refit()
    damage()
    portable()
    precision()
    sessions()
    of_a_recipe()
finish(COUNT)
