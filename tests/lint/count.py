#!/usr/bin/env python3
"""The tree in numbers: files, lines, largest files, include arrows between folders. Standard library only.

    tests/lint/count.py [FOLDER]    of this tree, or of another checkout

An arrow is a folder with code that includes a header of another one; folders are taken one by one, rooms too.
"""
import collections
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = ('.cpp', '.h', '.inc', '.cu', '.cuh')
SKIP = {'.git', 'build', 'runs', '.carry', '__pycache__'}
TOP = ('cli', 'recipes', 'eval', 'quant', 'calib', 'graphsurgeon', 'datasets', 'engine')


def tree():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in SKIP or (f == 'build' and folder != ROOT)]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(CODE) and not os.path.islink(path):
                yield os.path.relpath(path, ROOT), open(path, encoding='utf-8', errors='replace').read()


files = dict(tree())
for title, chosen in (('program', [f for f in files if f.split('/')[0] in TOP]), ('tests', [f for f in files if f.startswith('tests/')])):
    lines = sorted(files[f].count('\n') for f in chosen)
    print(f'{title}: {len(lines)} files of C++, {sum(lines)} lines; a file: median {lines[len(lines) // 2]}, '
          f'90 % below {lines[len(lines) * 9 // 10]}, most {lines[-1]}; {sum(n > 400 for n in lines)} above 400')
arrows = collections.Counter()
for path, text in files.items():
    if path.split('/')[0] in TOP:
        for name in re.findall(r'^#include "([^"]+)"', text, re.M):
            if os.path.dirname(name) != os.path.dirname(path):
                arrows[os.path.dirname(path), os.path.dirname(name)] += 1
folders = {folder for pair in arrows for folder in pair}
whole = {(a.split('/')[0], b.split('/')[0]) for a, b in arrows}
both = sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)
print(f'arrows between folders: {len(arrows)} between {len(folders)} ({sum(arrows.values())} includes), '
      f'{sum(a != b for a, b in whole)} between the {len(TOP)} at the top; both ways: {len(both)}')
for a, b in both:
    print(f'  {a} and {b}: {arrows[a, b]} and {arrows[b, a]}')
sizes = collections.Counter(os.path.dirname(f) for f in files if f.split('/')[0] in TOP)
print('folders with most files: ' + ', '.join(f'{f} {n}' for f, n in sizes.most_common(8)))
program = [f for f in files if f.split('/')[0] in TOP]
print('longest files: ' + ', '.join(f'{f} {files[f].count(chr(10))}' for f in sorted(program, key=lambda f: -files[f].count('\n'))[:10]))
