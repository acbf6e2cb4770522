"""Walks docs/tour.md: its links and functions, its commands and what they print, and the tensor it follows.

A block of commands: a line that begins with $ is run from the root of the checkout, with `runs/` in a temporary folder.
The lines below it must be printed in that order; `...` stands for any lines, and without it nothing else may be printed.
Numbers may differ by 0.2 % (last digits depend on the instruction class; long ones are cut in the text).
"""
import json
import os
import re
import shlex
import subprocess

from harness import PARE, SOURCE, check, finish, pare, workplace

TOUR = os.path.join(SOURCE, 'docs', 'tour.md')
TENSOR, WEIGHT = '/2/Relu_output_0', '3.c1.weight'
NUMBER = re.compile(r'(?<![\w.])-?\d+\.\d+(?:e-?\d+)?(?![\w.]\d)')
TOLERANCE = 0.002
COUNT = 0


def links(text):
    """Every link leads to a file; every `function` beside it stands in that file as a word."""
    global COUNT
    named = 0
    for label, target, rest in re.findall(r'\[([^\]\n]+)\]\(([^)\s]+)\)((?::?[,\s]*`[^`]+`)*)', text):
        COUNT += 1
        path = os.path.normpath(os.path.join(os.path.dirname(TOUR), target))
        if not check(os.path.isfile(path), 'link', f'{target} leads nowhere'):
            continue
        check('/' not in label or os.path.relpath(path, SOURCE) == label, 'link', f'[{label}] leads to {target}')
        source = open(path, encoding='utf-8').read()
        if not rest.startswith(':'):
            continue
        for function in re.findall(r'`([^`]+)`', rest):
            named += 1
            check(re.search(r'(?<!\w)' + re.escape(function) + r'(?!\w)', source), 'function', f'{target} has no {function}')
    check(named > 40, 'functions', f'only {named} functions are named: was the form of the page changed?')
    COUNT += named


def same(wanted, printed):
    """Equal but for spaces and the last digits of numbers with a point."""
    if NUMBER.sub('#', wanted).split() != NUMBER.sub('#', printed).split():
        return False
    for a, b in zip(NUMBER.findall(wanted), NUMBER.findall(printed)):
        if abs(float(a) - float(b)) > TOLERANCE * abs(float(a)) + 1e-12:
            return False
    return True


def compare(command, wanted, printed):
    """The wanted lines in their order; gaps only at `...`."""
    at, gap = 0, False
    for line in wanted:
        if line.strip() == '...':
            gap = True
            continue
        here = [i for i in range(at, len(printed) if gap else min(at + 1, len(printed))) if same(line, printed[i])]
        if not check(here, command, f'not printed: {line}', 'printed:', *printed[at:at + 30]):
            return
        at, gap = here[0] + 1, False
    check(gap or at == len(printed), command, 'printed beyond what the page shows:', *printed[at:at + 5])


def commands(text, folder):
    global COUNT
    for block in re.findall(r'^```\n(\$ .*?)^```', text, re.M | re.S):
        for part in re.split(r'^\$ ', block, flags=re.M)[1:]:
            command, *wanted = part.rstrip('\n').split('\n')
            COUNT += 1
            words = [w.replace('runs/', folder + '/') if w.startswith('runs/') else w for w in shlex.split(command)]
            words[0] = {'pare': PARE, 'grep': 'grep'}[words[0]]
            done = subprocess.run(words, capture_output=True, cwd=SOURCE, timeout=600)
            check(done.returncode == 0, command, f'exit code {done.returncode}', done.stderr.decode())
            printed = [line for line in done.stdout.decode().replace(folder + '/', 'runs/').split('\n') if line.strip()]
            compare(command, wanted, printed)


def follow(text, folder):
    """The tensor's range: the same in the statistics, in report.json, in report.md, in the page and in the written file."""
    global COUNT
    COUNT += 6
    run = os.path.join(folder, 'tour')
    methods = pare('stats', 'show', run + '/statistics.h5', '--tensor', TENSOR, '--json').json()
    ranges = {m['method']: m for m in methods['ranges']}
    report = json.load(open(run + '/report.json'))
    rows = {row['tensor']: row for row in report['quantized']}
    high, low = rows[TENSOR]['high'], rows[TENSOR]['low']
    check(abs(high - ranges['mse']['high']) <= 1e-6 * high, 'range', ranges['mse'], rows[TENSOR])
    check(abs(low + high * 128 / 127) <= 1e-6 * high, 'range: the lowest code', rows[TENSOR])
    check(ranges['mse']['mse'] == min(m['mse'] for m in ranges.values()), 'range: least error', ranges)
    line = f'| {TENSOR} | activation | int8, tensor | [{low:.4g}, {high:.4g}] | mse |'.replace('_', '\\_')
    check(line in open(run + '/report.md').read(), 'report.md', f'no line: {line}')
    check(rows[WEIGHT]['scales'] == 32 and TENSOR in text and WEIGHT in text, 'weight', rows[WEIGHT])
    import onnx
    from onnx import numpy_helper
    constants = {i.name: i for i in onnx.load(run + '/model.onnx').graph.initializer}
    scale = float(numpy_helper.to_array(constants[TENSOR + '_scale']))
    check(abs(scale * 127 - high) <= 1e-6 * high, 'the scale in the file', scale, high)


with open(TOUR, encoding='utf-8') as page, workplace() as place:
    whole = page.read()
    links(whole)
    commands(whole, place)
    follow(whole, place)
finish(COUNT)
