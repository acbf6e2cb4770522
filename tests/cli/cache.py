"""`pare cache`: lists what is kept, removes by kind and age, and never touches what it does not know."""
import fcntl
import json
import os
import time

from harness import check, finish, pare, workplace

count = 0


def expect(condition, name, *details):
    global count
    count += 1
    return check(condition, name, *details)


def fill(cache):
    def put(path, size=10):
        os.makedirs(os.path.dirname(os.path.join(cache, path)), exist_ok=True)
        with open(os.path.join(cache, path), 'wb') as file:
            file.write(b'x' * size)

    put('onnx-1.22.0-0123456789ab/lib/libonnx.a', 1000)
    put('onnx-1.22.0-0123456789ab/complete', 0)
    put('onnx-1.22.0.tar.gz', 500)
    put('onnx-build.log', 20)
    put('onnx.lock', 0)
    put('onnx-work.Ab12Cd/file')
    put('venv-0123456789ab/bin/python', 30)
    put('photos/holiday.jpg', 4000)
    put('notes.json', 3)
    put('timing of mine.json', 3)  # no timing cache by what is in it
    with open(os.path.join(cache, 'timing-h200.json'), 'w') as file:
        json.dump({'version': 1, 'layers': {}, 'kernels': {}}, file)
    outside = os.path.join(os.path.dirname(cache), 'outside')
    os.makedirs(outside)
    put('../outside/precious', 7)
    os.symlink(outside, os.path.join(cache, 'venv-feedfeedfeed'))  # a link: not ours
    os.symlink(outside, os.path.join(cache, 'onnx-1.22.0-0123456789ab/link'))
    old = time.time() - 40 * 86400
    os.utime(os.path.join(cache, 'onnx-1.22.0.tar.gz'), (old, old))


with workplace() as folder:
    home = os.path.join(folder, 'mit Leerzeichen ä')
    cache, env = os.path.join(home, 'pare'), {'XDG_CACHE_HOME': home}
    nothing = pare('cache', 'show', '--json', env=env)
    expect(nothing.code == 0 and nothing.json()['entries'] == [], 'no folder', nothing.out, nothing.err)
    expect(pare('cache', 'clean', '--all', env=env).code == 0, 'clean without a folder')
    os.makedirs(cache)
    fill(cache)

    shown = pare('cache', 'show', '--json', env=env).json()
    kinds = {entry['name']: entry['kind'] for entry in shown['entries']}
    expect(kinds == {'onnx-1.22.0-0123456789ab': 'library', 'onnx-1.22.0.tar.gz': 'download', 'onnx-build.log': 'log',
                     'onnx.lock': 'lock', 'onnx-work.Ab12Cd': 'unfinished', 'venv-0123456789ab': 'python', 'photos': 'unknown',
                     'notes.json': 'unknown', 'timing of mine.json': 'unknown', 'timing-h200.json': 'timing',
                     'venv-feedfeedfeed': 'unknown'}, 'kinds', kinds)
    sizes = {entry['name']: entry['bytes'] for entry in shown['entries']}
    expect(1000 <= sizes['onnx-1.22.0-0123456789ab'] < 1200 and sizes['photos'] == 4000, 'sizes', sizes)
    ages = {entry['name']: entry['age_days'] for entry in shown['entries']}
    expect(39.9 < ages['onnx-1.22.0.tar.gz'] < 40.1 and ages['photos'] < 1, 'ages', ages)
    text = pare('cache', 'show', env=env).out
    expect(all(name in text for name in kinds) and 'left alone' in text, 'text', text)

    def here():
        return set(os.listdir(cache))

    everything = here()
    for arguments, word in (([], '--all'), (['--kind', 'libary'], 'library'), (['--older-than', '-3'], 'days')):
        bad = pare('cache', 'clean', *arguments, env=env)
        expect(bad.code == 2 and word in bad.err and here() == everything, f'clean {arguments}', bad.code, bad.err)
    dry = pare('cache', 'clean', '--all', '--dry-run', '--json', env=env).json()
    expect(here() == everything and len(dry['removed']) == 6 and dry['dry_run'], 'dry run', dry)
    pare('cache', 'clean', '--older-than', '30', env=env)
    expect(everything - here() == {'onnx-1.22.0.tar.gz'}, 'by age', everything - here())
    pare('cache', 'clean', '--kind', 'log', '--kind', 'timing', env=env)
    expect(everything - here() == {'onnx-1.22.0.tar.gz', 'onnx-build.log', 'timing-h200.json'}, 'by kind', here())
    pare('cache', 'clean', '--kind', 'library', '--older-than', '1', env=env)
    expect('onnx-1.22.0-0123456789ab' in here(), 'both must hold')

    with open(os.path.join(cache, 'onnx.lock')) as lock:  # a build is going on
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = pare('cache', 'clean', '--all', '--json', env=env)
        kept = {row['name']: row['why'] for row in held.json()['kept']}
        expect(held.code == 0 and kept['onnx-1.22.0-0123456789ab'] == 'in use' and 'in use' in held.err and
               'onnx-1.22.0-0123456789ab' in here() and 'venv-0123456789ab' not in here(), 'in use', kept)
    done = pare('cache', 'clean', '--all', '--json', env=env).json()
    expect({row['name'] for row in done['removed']} == {'onnx-1.22.0-0123456789ab', 'onnx-work.Ab12Cd'}, 'the rest', done)
    expect({'onnx.lock', 'photos', 'notes.json', 'timing of mine.json', 'venv-feedfeedfeed'} <= here() and
           not any(name.startswith('onnx-') for name in here()), 'what stays', here())
    expect(os.path.exists(os.path.join(cache, 'photos/holiday.jpg')) and os.path.exists(os.path.join(home, 'outside/precious')),
           'links are not followed')
    lost = pare('cache', 'show', env={'XDG_CACHE_HOME': '', 'HOME': ''})
    expect(lost.code == 5 and 'XDG_CACHE_HOME' in lost.err, 'no home', lost.code, lost.err)
finish(count)
