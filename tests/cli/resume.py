"""kill -9 at random moments of `pare run`, each followed by --resume: the same bytes in the end.

  resume.py [--kills N] [--full] [--seed S]

Compared with a run that was left in peace: model.onnx, statistics.h5 and recipe.yaml byte by byte, report.json without
the keys that docs/json.md calls volatile. After every kill no file under its final name may be partial. --full takes
the example's whole recipe (minutes a run); by default it has little data.
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import time

from harness import PARE, RECIPE, SMALL, SOURCE, check, finish, pare, workplace

SAME = ('model.onnx', 'statistics.h5', 'recipe.yaml')


def volatile_keys():
    text = open(os.path.join(SOURCE, 'docs', 'json.md')).read()
    return set(re.findall(r'^\| `([^`]+)` \| \*\*volatile\*\*', text, re.M))


def without(value, keys, path=''):
    if isinstance(value, dict):
        return {k: without(v, keys, f'{path}.{k}' if path else k) for k, v in value.items()
                if (f'{path}.{k}' if path else k) not in keys}
    if isinstance(value, list):
        return [without(v, keys, path + '[]') for v in value]
    return value


def content(folder, name):
    path = os.path.join(folder, name)
    return open(path, 'rb').read() if os.path.exists(path) else None


def compare(folder, good, name, complete):
    for file in SAME:
        mine = content(folder, file)
        if mine is None and not complete:
            continue
        check(mine == content(good, file), name, f'{file} differs' if mine is not None else f'{file} is missing')
    for file in ('report.json', 'report.html', 'junit.xml', 'report.md'):
        text = content(folder, file)
        if text is None:
            check(not complete, name, f'{file} is missing')
        elif file == 'report.json':
            keys = volatile_keys()
            mine, wanted = (without(json.loads(t), keys) for t in (text, content(good, file)))
            check(mine == wanted, name, 'report.json differs', *[f'{k}: {mine.get(k)} / {wanted.get(k)}' for k in wanted
                                                                 if mine.get(k) != wanted.get(k)])
        elif file == 'report.html':
            check(text.endswith(b'</html>\n'), name, 'report.html is cut short')


parser = argparse.ArgumentParser()
parser.add_argument('--kills', type=int, default=10)
parser.add_argument('--full', action='store_true')
parser.add_argument('--seed', type=int, default=int(time.time()))
options = parser.parse_args()
random.seed(options.seed)
print('seed', options.seed)
extra = [] if options.full else SMALL
with workplace() as place:
    good = os.path.join(place, 'good')
    start = time.time()
    reference = pare('run', RECIPE, '--out', good, *extra)
    length = time.time() - start
    check(reference.code in (0, 1), 'reference', reference.err)
    again = os.path.join(place, 'again')
    pare('run', RECIPE, '--out', again, *extra, '--threads', '1')
    compare(again, good, 'one thread', True)
    for kill in range(options.kills):
        folder = os.path.join(place, f'killed{kill}')
        resume, moments = [], []
        for _ in range(random.choice((1, 1, 2, 3))):  # some runs are killed again and again
            moment = random.uniform(0.02, length)
            process = subprocess.Popen([PARE, 'run', RECIPE, '--out', folder, *extra, *resume], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            moments.append(round(moment, 2))
            resume = ['--resume']
            if os.path.isdir(folder):
                compare(folder, good, f'after the kill at {moments}', False)
        end = pare('run', RECIPE, '--out', folder, *extra, '--resume')
        name = f'killed at {moments} of {length:.2f} s'
        check(end.code == reference.code, name, f'exit code {end.code}', end.err)
        compare(folder, good, name, True)
        left = [f for f in os.listdir(folder) + os.listdir(os.path.join(folder, 'stages')) if 'tmp' in f]
        check(not left, name, left)
finish(options.kills)
