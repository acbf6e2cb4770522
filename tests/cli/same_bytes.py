"""The same bytes whatever the batch, the threads, the order of the samples, or the machine that saw which half.

Statistics (pare calibrate, stats merge) and written models (pare quantize, pare run).
"""
import hashlib
import os

import numpy

from harness import CALIBRATION, KEYS, RECIPE, RESNET, SMALL, check, finish, pare, workplace

SAMPLES = 40


def digest(path):
    return hashlib.sha256(open(path, 'rb').read()).hexdigest() if os.path.exists(path) else None


def done(name, *arguments):
    result = pare(*arguments)
    check(result.code == 0, name, result.err)


count = 0
with workplace() as folder:
    images = numpy.load(CALIBRATION)[:SAMPLES]
    numpy.save(folder + '/all.npy', images)
    numpy.save(folder + '/shuffled.npy', images[numpy.random.default_rng(1).permutation(SAMPLES)])
    numpy.save(folder + '/first.npy', images[:13])
    numpy.save(folder + '/second.npy', images[13:])

    def calibrate(name, file, *options):
        out = f'{folder}/{name}.h5'
        done(name, 'calibrate', RESNET, '--data', f'{folder}/{file}.npy:{KEYS}', '-o', out, *options)
        return digest(out)

    wanted = calibrate('batch 64', 'all')
    for name, file, *options in (
            ('batch 1', 'all', '--batch', 1), ('batch 7', 'all', '--batch', 7), ('one thread', 'all', '--threads', 1),
            ('three threads', 'all', '--threads', 3), ('another order', 'shuffled', '--batch', 9)):
        count += 1
        check(calibrate(name, file, *options) == wanted, name, 'the statistics differ')
    for part in ('first', 'second'):
        calibrate(part, part, '--batch', 5)
    for order in (('first', 'second'), ('second', 'first')):
        count += 1
        done('merge', 'stats', 'merge', *(f'{folder}/{part}.h5' for part in order), '-o', folder + '/merged.h5')
        check(digest(folder + '/merged.h5') == wanted, ' + '.join(order), 'the merged statistics differ')

    def quantize(name, *options):
        out = f'{folder}/{name}.onnx'
        done(name, 'quantize', RESNET, '--format', 'int8', '-o', out, *options)
        return digest(out)

    data = f'{CALIBRATION}:{KEYS},samples=32'
    wanted = quantize('model', '--data', data)
    for name, *options in (('batch 3', '--data', data + ',batch=3'), ('one thread', '--data', data, '--threads', 1)):
        count += 1
        check(quantize(name, *options) == wanted, name, 'the models differ')

    def run(name, *options):
        done(name, 'run', RECIPE, '--out', f'{folder}/{name}', *SMALL, *options)
        return digest(f'{folder}/{name}/model.onnx')

    wanted = run('run')
    for name, *options in (('run, batch 5', '--set', 'datasets.calibration.batch=5', '--threads', 1),
                           ('run, other metrics', '--set', 'evaluate.metrics=[top1]', '--set', 'name=other')):
        count += 1
        check(run(name, *options) == wanted, name, 'the models differ')
finish(count)
