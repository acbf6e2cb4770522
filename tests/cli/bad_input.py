"""Bad input: the exit code, what the message says, and that nothing is left behind.

Every case is run as a user would run it. A message must name the thing that is wrong, and say what to do about it. With --json the document on stdout must carry the same error.
"""
import os
import shutil
import signal
import subprocess
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness import (CALIBRATION, FASHION, KEYS, PARE, RECIPE, RESNET, SMALL, TEST_IMAGES, TEST_LABELS, check, finish, pare,
                     workplace)

COUNT = 0


def expect(name, arguments, code, *words, gone=(), env=None):
    """Runs, once plainly and once with --json; `words` must stand in the message, `gone` must not exist after."""
    global COUNT
    COUNT += 1
    plain = pare(*arguments, env=env)
    text = plain.err
    check(plain.code == code, name, f'exit code {plain.code}, not {code}', text)
    for word in words:
        check(word in text, name, f'the message lacks: {word}', text)
    check('terminate called' not in text and 'Traceback' not in text, name, text)
    for path in gone:
        check(not os.path.exists(path), name, f'{path} was left behind')
        folder = os.path.dirname(path) or '.'
        if os.path.isdir(folder):
            left = [f for f in os.listdir(folder) if '.tmp' in f or f.startswith('.pare')]
            check(not left, name, f'temporary files are left: {left}')
    result = pare(*arguments, '--json', env=env)
    try:
        document = result.json()
        error = document['error']
        check(result.code == code, name + ' --json', f'exit code {result.code}')
        check(set(error) - {'others'} == {'code', 'message', 'where', 'hint'}, name + ' --json', error)
        check(error['message'] and error['message'] in text, name + ' --json', error, text)
        for key in ('pare', 'command', 'seconds', 'peak_rss_bytes', 'peak_anonymous_bytes', 'warnings'):
            check(key in document, name + ' --json', f'no key {key}')
    except (ValueError, KeyError, AssertionError) as problem:
        check(env is not None and code == 5, name + ' --json', f'no document: {problem}', result.out)


def engines(folder):
    engine, apart = os.path.join(folder, 'a.engine'), os.path.join(folder, 'apart')
    build = ['build', RESNET, '--device', 'cpu']
    expect('profile', [*build, '-o', engine, '--profile', 'batch=8'], 2, 'NAME=MINxOPTxMAX')
    expect('profile of nothing', [*build, '-o', engine, '--profile', 'bach=1x2x4'], 2, "no input has an open dimension 'bach'", 'batch')
    expect('precision of a CPU engine', [*build, '-o', engine, '--precision', 'fp16'], 4, 'stores float values as fp32')
    expect('architecture', ['build', RESNET, '-o', engine, '--portable', 'hopper'], 2, "'hopper' is no architecture")
    check(not os.path.exists(engine), 'engines', 'a refused build left a file')
    os.mkdir(apart)
    kept = os.path.join(apart, 'a.engine')
    for words in ([*build, '-o', engine, '--profile', 'batch=1x2x4'], [*build, '-o', kept, '--weights-apart']):
        result = pare(*words)
        check(result.code == 0, 'engines', result.err)
    expect('outside of the profile', ['bench', engine, '--batch', '5', '--iterations', '1'], 2, "'batch' is 5, its profile has 1 to 4")
    expect('engine of another device', ['bench', engine, '--device', 'cuda'], 4, 'is an engine for the CPU')
    expect('refit of another graph', ['build', os.path.join(FASHION, 'mobilenet.onnx'), '--refit', engine, '-o', kept], 4, 'engine of another graph')
    expect('contexts', ['bench', engine, '--contexts', '0'], 2, '--contexts counts from 1')
    shutil.move(os.path.join(apart, 'weights'), os.path.join(apart, 'elsewhere'))
    expect('weights missing', ['bench', kept], 3, 'keeps its weights apart', '.weights')
    whole = open(engine, 'rb').read()
    for name, content in (('cut', whole[:-100]), ('changed', whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])):
        path = os.path.join(folder, name + '.engine')
        open(path, 'wb').write(content)
        expect('engine that is ' + name, ['inspect', path], 3, 'the engine file is damaged')


def usage(folder):
    expect('misspelt command', ['quantise', 'x'], 2, "there is no command `pare quantise`", 'did you mean `pare quantize`?')
    expect('second word missing', ['stats'], 2, 'needs a second word', 'pare stats show')
    expect('second word misspelt', ['stats', 'sohw', 'x'], 2, 'did you mean `pare stats show`?')
    expect('misspelt flag', ['quantize', RESNET, '--fromat', 'int8', '-o', 'x'], 2, 'unknown option --fromat',
           'did you mean --format?')
    expect('missing argument', ['inspect'], 2, 'MODEL is missing', 'pare inspect MODEL')
    expect('extra argument', ['inspect', RESNET, 'more'], 2, "unexpected argument 'more'")
    expect('no number', ['bench', RESNET, '--batch', 'many'], 2, '--batch')
    expect('threads', ['inspect', RESNET, '--threads', '-1'], 2, '--threads -1 makes no sense')
    expect('device', ['inspect', RESNET, '--device', 'gpu'], 2, "'gpu' is no device")
    expect('isa', ['inspect', RESNET, '--isa', 'avx'], 2, 'avx2')
    expect('shard size', ['quantize', RESNET, '--format', 'int8', '--shard-size=-5', '-o', 'x'], 2, 'is below 0', '5 GiB')
    expect('scheme', ['quantize', RESNET, '--format', 'int88', '-o', 'x'], 2, "unknown scheme 'int88'", "'int8'")
    expect('gate', ['eval', RESNET, '--data', f'{TEST_IMAGES}:labels={TEST_LABELS},{KEYS}', '--gate', 'top1<0.5'], 2,
           'is no gate', 'METRIC<=NUMBER')
    expect('gate that cannot be computed', ['eval', RESNET, '--data', f'{TEST_IMAGES}:labels={TEST_LABELS},{KEYS}', '--samples', '8',
                                 '--gate', 'kl<=0.5'], 2, 'metric kl needs text')
    expect('drop without reference', ['eval', RESNET, '--data', f'{TEST_IMAGES}:labels={TEST_LABELS},{KEYS}', '--samples',
                                      '8', '--gate', 'top1_drop<=0.5'], 2, 'has nothing to be measured from', 'reference')
    expect('metric', ['eval', RESNET, '--data', f'{TEST_IMAGES}:{KEYS}', '--metric', 'topl'], 2, "no metric 'topl'",
           "did you mean 'top1'?")
    data = f'{TEST_IMAGES}:labels={TEST_LABELS},{KEYS}'
    expect('a second word behind an option of words', ['eval', RESNET, '--data', data, '--metric', 'top1', 'top5'], 2,
           "unexpected argument 'top5'", '--metric top1,top5, or --metric top1 --metric top5')
    expect('a second value behind an option', ['eval', RESNET, '--data', data, '--gate', 'top1>=0', 'top5>=0'], 2,
           'once for each: --gate top1>=0 --gate top5>=0')
    expect('one of several words', ['cache', 'clean', '--kind', 'log,pyton'], 2, "--kind cannot be 'pyton'", "did you mean 'python'?")
    expect('no word behind a comma', ['eval', RESNET, '--data', data, '--metric', 'top1,'], 2, "'top1,' has nothing in front of a comma")
    joined = pare('eval', RESNET, '--data', data, '--samples', '8', '--metric', 'top1,top5', '--json')
    twice = pare('eval', RESNET, '--data', data, '--samples', '8', '--metric', 'top1', '--metric', 'top5', '--json')
    check(joined.code == 0 and list(joined.json()['metrics']) == list(twice.json()['metrics']), 'words joined by commas', joined.err)
    expect('metric that compares', ['eval', RESNET, '--data', f'{TEST_IMAGES}:{KEYS}', '--metric', 'embedding_cosine'], 2,
           'embedding_cosine compares with a reference')
    engines(folder)
    out = os.path.join(folder, 'none.onnx')
    expect('an option that is no number', ['cache', 'clean', '--older-than', 'x'], 2, '--older-than', "cannot be 'x'", 'a number')
    expect('a number out of range', ['quantize', RESNET, '--format', 'int8', '--samples', '1e99', '-o', out], 2, '--samples', "'1e99'", 'a number')
    expect('group that does not divide', ['quantize', os.path.join(FASHION, 'vit.onnx'), '--format', 'int4', '--group-size', '100', '-o', out], 2,
           "layer 'node_MatMul", 'a group of 100 does not divide its 192 inputs', '96 is the largest that does', gone=[out])
    expect('group of a format with blocks', ['quantize', RESNET, '--format', 'nvfp4', '--group-size', '32', '-o', out], 2, 'have 16 values, not 32',
           gone=[out])
    expect('zero points for TensorRT', ['quantize', RESNET, '--format', 'int4', '--asymmetric', '--target', 'tensorrt', '-o', out], 4,
           'TensorRT has no zero points', gone=[out])
    expect('export that cannot hold the format', ['quantize', RESNET, '--format', 'nvfp4', '--export', 'matmul_nbits', '-o', out], 2,
           'matmul_nbits holds weights of 2, 4 or 8 bits', gone=[out])
    expect('no calibration data', ['quantize', RESNET, '--format', 'int8', '-o', out], 2, 'there is no calibration data',
           '--data or --stats', gone=[out])
    model = os.path.join(folder, 'model.onnx')
    shutil.copy(RESNET, model)
    expect('output over the input', ['quantize', model, '--format', 'int8', '--data', f'{CALIBRATION}:{KEYS}', '-o', model], 2,
           'would take the place of what is read', '-o')
    check(open(model, 'rb').read() == open(RESNET, 'rb').read(), 'output over the input', 'the model was changed')
    expect('output over the data', ['calibrate', RESNET, '--data', f'{CALIBRATION}:{KEYS}', '-o', CALIBRATION], 2, 'what is read')
    expect('a recipe as data', ['eval', RESNET, '--data', RECIPE], 2, 'this is a whole recipe', 'one data set')
    expect('no folder to write into', ['quantize', RESNET, '--format', 'int8', '--data', f'{CALIBRATION}:{KEYS}', '-o',
                                       os.path.join(folder, 'no', 'q.onnx')], 5, 'there is no folder')
    expect('no such input', ['infer', RESNET, '--input', f'imag={TEST_IMAGES}'], 2, "no input 'imag'", "'image'")
    expect('no array', ['infer', RESNET], 2, "no array for input 'image'", '--input image=FILE.npy')


def save(path, array):
    numpy.save(path, array)
    return path


def data(folder):
    out, stats = os.path.join(folder, 'out.onnx'), os.path.join(folder, 'out.h5')

    def calibrate(name, path, keys, code, *words):
        expect(name, ['calibrate', RESNET, '--data', f'{path}:{keys}' if keys else path, '-o', stats], code, *words,
               gone=[stats])

    images = numpy.load(CALIBRATION)[:32]
    calibrate('no such data', os.path.join(folder, 'nothing.npy'), KEYS, 3, 'nothing.npy')
    calibrate('raw pixels without layout', save(folder + '/raw.npy', images), '', 2, 'layout', 'scale')
    calibrate('wrong size', save(folder + '/size.npy', images[:, :20]), KEYS, 2, '20', '28')
    calibrate('wrong layout', save(folder + '/layout.npy', images), KEYS.replace('nhwc_to_nchw', 'nchw'), 2, '28,28,1',
              '1,28,28', 'layout is nhwc_to_nchw')
    calibrate('wrong rank', save(folder + '/rank.npy', images.reshape(-1)), KEYS, 2)
    calibrate('complex', save(folder + '/complex.npy', images.astype(numpy.complex64)), KEYS, 4, 'complex')
    calibrate('objects', save(folder + '/objects.npy', numpy.array([{}, {}], dtype=object)), KEYS, 4, 'object')
    calibrate('misspelt key', CALIBRATION, KEYS.replace('scale', 'scael'), 2, 'scael', "did you mean 'scale'?")
    calibrate('no fraction', CALIBRATION, KEYS.replace('1/255', '1/0'), 2, 'scale')
    calibrate('zero std', CALIBRATION, KEYS.replace('std=0.3530', 'std=0'), 2, 'std')
    calibrate('all zeros', save(folder + '/zeros.npy', numpy.zeros((16, 1, 28, 28), numpy.float32)), '', 2, 'zero')
    calibrate('empty', save(folder + '/none.npy', images[:0]), KEYS, 2)
    nan = ((images / 255 - 0.286) / 0.353).astype(numpy.float32).transpose(0, 3, 1, 2)
    nan[3, 0, 5, 5], nan[4, 0, 1, 1] = numpy.nan, numpy.inf
    calibrate('NaN in images', save(folder + '/nan.npy', nan), '', 3, 'NaN')
    labels = save(folder + '/labels.npy', numpy.zeros(5, numpy.int64))
    expect('labels of another length', ['eval', RESNET, '--data', f'{TEST_IMAGES}:labels={labels},{KEYS}'], 2, '5', '10000')
    whole = open(CALIBRATION, 'rb').read()
    for name, content in {
        'empty file': b'', 'truncated header': whole[:40], 'truncated data': whole[:5000], 'random': os.urandom(5000),
        'claims 10 GB': whole[:10] + whole[10:128].replace(b'(4096, 28, 28, 1)', b'(13000000,28,28,1)'[:17].ljust(17)) + whole[128:999],
    }.items():
        path = os.path.join(folder, name.replace(' ', '_') + '.npy')
        open(path, 'wb').write(content)
        calibrate('npy: ' + name, path, KEYS, 3)
    expect('statistics that are none', ['stats', 'show', RESNET], 3, '`pare calibrate` writes')


def make_stats(folder):
    path = os.path.join(folder, 'good.h5')
    if not os.path.exists(path):
        done = pare('calibrate', RESNET, '--data', f'{CALIBRATION}:{KEYS}', '--samples', '16', '-o', path)
        check(done.code == 0, 'making statistics', done.err)
    return path


def stale(folder):
    out = os.path.join(folder, 'stale.onnx')
    expect('stale statistics', ['quantize', os.path.join(FASHION, 'mobilenet.onnx'), '--format', 'int8', '-o', out,
                                '--stats', make_stats(folder)], 2, gone=[out])
    # The same network with one weight changed: another revision, and its statistics are others.
    revised = onnx.load(RESNET)
    weight = next(t for t in revised.graph.initializer if len(t.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] += 1
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    path = os.path.join(folder, 'revised.onnx')
    onnx.save(revised, path)
    expect('statistics of another revision', ['quantize', path, '--format', 'int8', '-o', out, '--stats', make_stats(folder)],
           2, 'made from another model', 'good.h5', 'calibrate again', gone=[out])
    statistics = os.path.join(folder, 'conv.h5')
    done = pare('calibrate', RESNET, '--data', f'{CALIBRATION}:{KEYS}', '--samples', '4', '--as-is', '-o', statistics)
    check(done.code == 0, 'statistics of the model as it is', done.err)
    expect('statistics of the model before simplifying', ['quantize', RESNET, '--format', 'int8', '-o', out, '--stats', statistics],
           2, 'made from another model', gone=[out])
    merged = os.path.join(folder, 'merged.h5')
    expect('the same data twice', ['stats', 'merge', make_stats(folder), make_stats(folder), '-o', merged], 2, gone=[merged])


def caches(folder):
    out = os.path.join(folder, 'from_cache.onnx')
    for name, lines, words in (('NaN', 'image: 7fc00000', ['line 2', "'image' is NaN"]),
                               ('negative', 'image: bc010a14', ['line 2', 'negative']),
                               ('twice', 'image: 3c010a14\nimage: 3c010a14', ['line 3', 'has a scale already']),
                               ('no number', 'image 3c010a14', ['line 2'])):
        path = os.path.join(folder, 'bad.cache')
        open(path, 'w').write('TRT-8601-EntropyCalibration2\n' + lines + '\n')
        expect('calibration cache: ' + name, ['quantize', RESNET, '--format', 'int8', '-o', out, '--stats', path], 3, *words,
               'bad.cache', gone=[out])
    open(path, 'w').write('TRT-8601-EntropyCalibration2\nimage: 3c010a14\n')
    expect('calibration cache for uint8', ['quantize', RESNET, '--format', 'uint8', '-o', out, '--stats', path], 2,
           'symmetric', gone=[out])


def models(folder):
    out = os.path.join(folder, 'model-out.onnx')
    whole = open(RESNET, 'rb').read()
    for name, content in {
        'empty': b'', 'truncated': whole[:100000], 'random': os.urandom(4000), 'text': b'not a model\n' * 50,
        # A length-delimited field (graph) that claims 10 GB.
        'claims 10 GB': b'\x08\x08\x3a' + b'\x80\x80\x80\x80\x28' + whole[:200],
    }.items():
        path = os.path.join(folder, name.replace(' ', '_') + '.onnx')
        open(path, 'wb').write(content)
        expect('onnx: ' + name, ['surgeon', 'simplify', path, '-o', out], 3, os.path.basename(path), gone=[out])
    expect('no model', ['inspect', os.path.join(folder, 'nothing.onnx')], 3, 'nothing.onnx')
    expect('a folder', ['inspect', folder], 3)
    x = helper.make_tensor_value_info('x', TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info('y', TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph([helper.make_node('Frobnicate', ['x'], ['y'], name='strange', domain='com.example')], 'g', [x], [y])
    path = os.path.join(folder, 'unknown.onnx')
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17), helper.make_opsetid('com.example', 1)]), path)
    np_path = os.path.join(folder, 'x.npy')
    numpy.save(np_path, numpy.zeros((1, 4), numpy.float32))
    expect('unknown op', ['infer', path, '--input', f'x={np_path}'], 4, 'Frobnicate')
    kept = os.path.join(folder, 'kept.onnx')
    result = pare('surgeon', 'simplify', path, '-o', kept)
    check(result.code == 0 and onnx.load(kept).graph.node[0].op_type == 'Frobnicate', 'a custom operator survives', result.err)
    expect('unwritable', ['surgeon', 'simplify', RESNET, '-o', os.path.join(folder, 'no', 'folder', 'x.onnx')], 5)


def recipes(folder):
    def write(name, text):
        path = os.path.join(folder, name)
        open(path, 'w').write(text)
        return path

    good = open(RECIPE).read().replace('path: ', 'path: ' + FASHION + '/').replace('labels: ', 'labels: ' + FASHION + '/')
    run = os.path.join(folder, 'run')
    path = write('misspelt.yaml', good.replace('quantize:', 'quantise:'))
    line = [i for i, text in enumerate(open(path).read().split('\n'), 1) if text.startswith('quantise')][0]
    expect('misspelt key', ['run', path, '--out', run], 2, "unknown key 'quantise'", f'misspelt.yaml:{line}:1',
           "did you mean 'quantize'?", gone=[run])
    path = write('missing.yaml', good.replace('resnet.onnx}', 'resnot.onnx}'))
    expect('missing file', ['run', path, '--out', run], 3, 'resnot.onnx', 'missing.yaml:', gone=[run])
    path = write('gate.yaml', good.replace('metric: top1_drop', 'metric: kl'))
    expect('gate not computed', ['run', path, '--out', run], 2, 'a gate on kl, but kl is not computed', 'gate.yaml:', gone=[run])
    expect('set', ['run', RECIPE, '--out', run, '--set', 'evaluate.gates.7.max=1'], 2, 'no index into a list', gone=[run])
    expect('no recipe', ['run', os.path.join(folder, 'nothing.yaml')], 3, 'nothing.yaml')
    expect('no YAML', ['run', RESNET], 3, 'is it the right file?')
    expect('stage', ['run', RECIPE, '--out', run, '--until', 'quantise'], 2, "did you mean 'quantize'?")
    path = write('scheme.yaml', 'version: 1\nmodel: {path: %s}\nquantize: {scheme: mxfp4, target: tensorrt}\n' % RESNET)
    expect('scheme that the target lacks', ['run', path, '--out', run], 4, 'target tensorrt cannot hold weights in float4_e2m1fn', gone=[run])
    expect('a folder that is no run', ['run', RECIPE, '--out', FASHION], 2, 'but no run')


def disk(folder):
    out = os.path.join(folder, 'full.onnx')
    expect('full disk', ['surgeon', 'simplify', RESNET, '-o', out], 5, 'full.onnx', gone=[out],
           env={'PARE_TEST_DISK_FULL_AFTER': '100000'})
    run = os.path.join(folder, 'full-run')
    expect_code = pare('run', RECIPE, '--out', run, *SMALL, env={'PARE_TEST_DISK_FULL_AFTER': '2000000'})
    check(expect_code.code == 5, 'run: full disk', expect_code.err)
    again = pare('run', RECIPE, '--out', run, *SMALL, '--resume')
    check(again.code == 0, 'run: resumed after a full disk', again.err)


def folders(folder):
    """Two runs into one folder; interruption; finished and unfinished runs."""
    global COUNT
    COUNT += 8
    run = os.path.join(folder, 'twice')
    log = open(os.path.join(folder, 'first.log'), 'w')
    first = subprocess.Popen([PARE, 'run', RECIPE, '--out', run], stdout=log, stderr=log)
    deadline = time.time() + 60
    while not os.path.exists(os.path.join(run, 'journal.jsonl')) and time.time() < deadline and first.poll() is None:
        time.sleep(0.01)
    second = pare('run', RECIPE, '--out', run)
    check(second.code == 2 and 'another run works in this folder' in second.err, 'two runs into one folder', second.err)
    forced = pare('run', RECIPE, '--out', run, '--force')
    check(forced.code == 2, 'two runs into one folder, forced', forced.err)
    first.send_signal(signal.SIGINT)
    check(first.wait(60) == 130, 'interrupted', first.returncode, open(log.name).read())
    plain = pare('run', RECIPE, '--out', run)
    check(plain.code == 2 and '--resume' in plain.err, 'unfinished run', plain.err)
    other = pare('run', RECIPE, '--out', run, '--resume', *SMALL)
    check(other.code == 2 and 'another recipe' in other.err, 'resumed with another recipe', other.err)
    done = pare('run', RECIPE, '--out', run, '--force', *SMALL)
    check(done.code == 0, 'forced', done.err)
    finished = pare('run', RECIPE, '--out', run, *SMALL)
    check(finished.code == 2 and '--force' in finished.err, 'finished run', finished.err)
    shown = pare('run', RECIPE, '--out', run, *SMALL, '--resume', '--json')
    check(shown.code == 0 and all(s['resumed'] for s in shown.json()['stages']), 'a finished run is shown again', shown.err)


def broken_images(folder):
    """NaN in images: refused, named, by the forecast already; with the thresholds of the recipe raised, counted and let pass."""
    global COUNT
    COUNT += 3
    images = ((numpy.load(CALIBRATION)[:64] / 255 - 0.286) / 0.353).astype(numpy.float32).transpose(0, 3, 1, 2)
    images[5, 0, 3, 3] = numpy.nan
    numpy.save(folder + '/nan.npy', images)
    text = open(RECIPE).read().replace('path: ', 'path: ' + FASHION + '/').replace('labels: ', 'labels: ' + FASHION + '/')
    line = [part for part in text.split('\n') if part.strip().startswith('calibration:')][0]
    text = text.replace(line, '  calibration: {path: %s/nan.npy, samples: 48}' % folder)
    path = os.path.join(folder, 'nan.yaml')
    open(path, 'w').write(text)
    run = os.path.join(folder, 'nan')
    refused = pare('run', path, '--out', run)
    check(refused.code == 3 and 'NaN' in refused.err and 'nan.npy' in refused.err, 'NaN in a run', refused.err)
    with open(os.path.join(run, 'junit.xml'), encoding='utf-8') as file:
        report = file.read()
    check('errors="1"' in report and 'name="forecast"' in report and 'nan.npy' in report, 'NaN in a run: JUnit', report)
    # The data of the evaluation too are met first by the forecast, before any stage has them.
    labels = os.path.join(folder, 'labels.npy')
    numpy.save(labels, numpy.load(TEST_LABELS)[:64])
    text = open(RECIPE).read().replace('path: ', 'path: ' + FASHION + '/')
    line = [part for part in text.split('\n') if part.strip().startswith('test:')][0]
    early_path = os.path.join(folder, 'early.yaml')
    open(early_path, 'w').write(text.replace(line, '  test: {path: %s/nan.npy, labels: %s}' % (folder, labels)))
    early = pare('run', early_path, '--out', run, '--force', *SMALL)
    check(early.code == 3 and 'nan.npy' in early.err, 'NaN in the evaluation', early.err)
    check('name="forecast"' in open(os.path.join(run, 'junit.xml'), encoding='utf-8').read(), 'NaN in the evaluation: JUnit')
    passed = pare('run', path, '--out', run, '--force', *SMALL[2:], '--set', 'datasets.calibration.max_nonfinite=1', '--set',
                  'calibrate.max_nonfinite=0.1', '--json')
    check(passed.code == 0, 'NaN let pass', passed.err)
    check(any('NaN' in warning for warning in passed.json()['warnings']), 'NaN let pass: reported', passed.out[-500:])


def gates(folder):
    """A gate that fails: exit code 1, everything else as ever."""
    global COUNT
    COUNT += 1
    run = os.path.join(folder, 'gate')
    result = pare('run', RECIPE, '--out', run, *SMALL[:-2], '--set', 'evaluate.gates.0.max=-1', '--json')
    check(result.code == 1, 'gate', result.err)
    document = result.json()
    check(not document['gates'][0]['passed'] and 'error' not in document, 'gate', document['gates'])
    for name in ('report.json', 'report.html', 'report.md', 'junit.xml', 'model.onnx', 'statistics.h5', 'recipe.yaml'):
        check(os.path.exists(os.path.join(run, name)), 'gate', f'no {name}')
    check('failures="1"' in open(os.path.join(run, 'junit.xml')).read(), 'gate in JUnit')


with workplace() as place:
    for part in (usage, data, stale, caches, models, recipes, disk, folders, broken_images, gates):
        sub = os.path.join(place, part.__name__)
        os.mkdir(sub)
        part(sub)
finish(COUNT)
