"""Places that are not as they should be: names with spaces and letters beyond ASCII, a locale without UTF-8, folders that
cannot be written to, a cache that another version of pare has filled. Each says what is wrong, or simply works."""
import json
import os
import shutil

from walk import LAYOUT, check, done, image_classifier, pare, step, workplace, write

ASCII = {'LC_ALL': 'C', 'LANG': 'C', 'LANGUAGE': 'C'}


def everything(folder, env):
    """All kinds of commands with names as people have them; every file is named relative to the folder."""
    here = {'cwd': folder, 'env': env}
    data = f'Daten für Kalibrierung.npy:{LAYOUT}'
    step('inspect', ['inspect', 'mein Modell ü.onnx'], 0, 'mein Modell ü.onnx', **here)
    step('init', ['recipe', 'init', 'mein Rezept.yaml', '--model', 'mein Modell ü.onnx'], 0, **here)
    write(folder, 'r.yaml', 'version: 1\nextends: builtin/int8\nname: prüfung\nmodel: {path: "mein Modell ü.onnx"}\ndatasets:\n'
          '  calibration: {path: "Daten für Kalibrierung.npy", layout: nhwc_to_nchw, scale: 1/255}\n'
          '  test: {path: test.npy, labels: labels.npy, layout: nhwc_to_nchw, scale: 1/255}\n')
    step('a name that can be no folder', ['recipe', 'check', 'r.yaml'], 2, 'prüfung', 'letters', **here)
    step('a recipe', ['run', 'r.yaml', '--set', 'name=x', '--out', 'Lauf 1 – ß'], 0, 'Lauf 1 – ß/model.onnx', **here)
    step('explain', ['explain', 'Lauf 1 – ß', 'stem'], 0, "'stem'", **here)
    step('quantize', ['quantize', 'mein Modell ü.onnx', '--format', 'int8', '--data', data, '-o', 'aus gabe/klein ü.onnx'], 0, 'klein ü.onnx', **here)
    step('eval', ['eval', 'aus gabe/klein ü.onnx', '--reference', 'mein Modell ü.onnx', '--data', f'test.npy:{LAYOUT},labels=labels.npy',
                  '--report', 'aus gabe/Bericht'], 0, 'aus gabe/Bericht', **here)
    step('build', ['build', 'aus gabe/klein ü.onnx', '--device', 'cpu', '-o', 'aus gabe/é.engine'], 0, **here)
    step('bench', ['bench', 'aus gabe/é.engine', '--iterations', '2'], 0, **here)
    step('a file that is not there', ['inspect', 'größe.onnx'], 3, 'größe.onnx', **here)
    document = pare('inspect', 'mein Modell ü.onnx', '--json', **here)
    check(document.code == 0 and document.json()['format'] == 'onnx', 'JSON stays UTF-8')


with workplace() as base:
    folder = os.path.join(base, 'Ordner mit Leerzeichen – ąß 数')
    os.makedirs(os.path.join(folder, 'aus gabe'))
    image_classifier(folder)
    os.rename(os.path.join(folder, 'my.onnx'), os.path.join(folder, 'mein Modell ü.onnx'))
    os.rename(os.path.join(folder, 'calibration.npy'), os.path.join(folder, 'Daten für Kalibrierung.npy'))
    everything(folder, {})
    first = open(os.path.join(folder, 'Lauf 1 – ß', 'model.onnx'), 'rb').read()
    for name in ('Lauf 1 – ß', 'mein Rezept.yaml', 'aus gabe'):
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    os.mkdir(os.path.join(folder, 'aus gabe'))
    everything(folder, ASCII)
    check(open(os.path.join(folder, 'Lauf 1 – ß', 'model.onnx'), 'rb').read() == first, 'the same bytes in a locale without UTF-8')

# Where nothing can be written: /sys and /proc take no files, not even from root. A container may lack the first.
with workplace() as folder:
    readonly = next(place for place in ('/sys', '/proc') if os.path.ismount(place))
    image_classifier(folder)
    model, data = os.path.join(folder, 'my.onnx'), os.path.join(folder, 'calibration.npy') + ':' + LAYOUT
    here = {'cwd': folder}
    step('init', ['recipe', 'init', 'my.yaml', '--model', 'my.onnx'], 0, **here)
    recipe = os.path.join(folder, 'my.yaml')
    step('a read-only working folder', ['run', recipe], 5, 'runs', '--out', cwd=readonly)
    step('--out elsewhere', ['run', recipe, '--out', os.path.join(folder, 'run')], 0, cwd=readonly)
    step('looking needs no writing', ['inspect', model], 0, cwd=readonly)
    step('a recipe into it', ['recipe', 'init', 'my.yaml', '--model', model], 5, 'my.yaml', cwd=readonly)
    for name, arguments in {
            'a model': ['quantize', model, '--format', 'int8_weights', '-o', readonly + '/q.onnx'],
            'statistics': ['calibrate', model, '--data', data, '-o', readonly + '/s.h5'],
            'an engine': ['build', model, '--device', 'cpu', '-o', readonly + '/e.engine'],
            'a simplified model': ['surgeon', 'simplify', model, '-o', readonly + '/s.onnx'],
            'outputs': ['infer', model, '--input', f'pixels={folder}/x.npy', '--save', readonly + '/out']}.items():
        step('unwritable: ' + name, arguments, 5, readonly + '/', **here)
    step('a run below a file', ['run', 'my.yaml', '--out', 'my.onnx/run'], 5, 'my.onnx', **here)
    step('a folder that is not there', ['quantize', 'my.onnx', '--format', 'int8_weights', '-o', 'no/q.onnx'], 5, "'no'", **here)
    left = [name for name in os.listdir(folder) if name.startswith('.') or '.tmp' in name]
    check(not left, 'temporary files are left', left)

    # Two versions of pare on one cache: what the other has timed is neither used nor lost.
    build = ['build', 'my.onnx', '--device', 'cpu', '--timing-cache', 'times.json']
    step('fill a cache', [*build, '-o', 'a.engine'], 0, ' 0 from the cache', **here)
    cache = os.path.join(folder, 'times.json')
    version = pare('--version').out.split()[1]
    text = open(cache, encoding='utf-8').read()
    check(f'pare {version} ' in text, 'the cache says which version has timed', text[:300])
    other = text.replace(f'pare {version} ', 'pare 0.0.7 ')
    write(folder, 'times.json', other)
    step('a cache of another version', [*build, '-o', 'b.engine'], 0, ' 0 from the cache', **here)
    both = open(cache, encoding='utf-8').read()
    check('pare 0.0.7 ' in both and f'pare {version} ' in both, 'a cache keeps the entries of both versions')
    step('and again', [*build, '-o', 'c.engine', '--require-cached-tactics'], 0, '0 layers timed', **here)
    write(folder, 'times.json', text[:len(text) // 2])
    step('a cache that was cut off', [*build, '-o', 'd.engine'], 3, 'times.json', **here)

    # A run that another version has begun is not gone on with.
    step('a run, half done', ['run', 'my.yaml', '--out', 'half', '--until', 'calibrate'], 0, '--resume', **here)
    journal = os.path.join(folder, 'half', 'journal.jsonl')
    lines = open(journal, encoding='utf-8').read().split('\n')
    header = json.loads(lines[0])
    header = {key: ('0' * len(value) if key == 'fingerprint' else value) for key, value in header.items()}
    write(folder, os.path.join('half', 'journal.jsonl'), '\n'.join([json.dumps(header), *lines[1:]]))
    step('a run of another version', ['run', 'my.yaml', '--out', 'half', '--resume'], 2, 'version', '--force', **here)
done()
