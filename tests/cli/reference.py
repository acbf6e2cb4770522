"""docs/reference.md, man pages and shell completion: equal to the program, whole, and accepted by the tools that read them."""
import os
import re
import shutil
import subprocess

from harness import PARE, SOURCE, check, finish, pare, workplace

count = 0


def expect(condition, name, *details):
    global count
    count += 1
    return check(condition, name, *details)


def tool(*command, stdin=None, env=None):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr


# --- docs/reference.md

printed = pare('reference').out
with open(os.path.join(SOURCE, 'docs', 'reference.md'), encoding='utf-8') as file:
    written = file.read()
different = next((f'line {i + 1}:\n  {a}\n  {b}' for i, (a, b) in
                  enumerate(zip(written.split('\n'), printed.split('\n'))) if a != b), 'one is longer')
expect(printed == written, 'docs/reference.md', 'run scripts/reference; the first difference (file, program):', different)
head, inside = 0, False
for line in printed.split('\n'):
    if line.startswith('|'):  # the same number of cells in every row of a table
        cells = len(re.findall(r'(?<!\\)\|', line))
        if not line.startswith('| --- '):
            expect(cells == head or not inside, 'table', line)
        if not inside:
            head = cells
    inside = line.startswith('|')

document = pare('reference', '--json').json()
commands = {command['name']: command for command in document['commands']}
keys = {key['key']: key for key in document['recipe_keys']}
for name, command in commands.items():
    for argument in command['arguments']:
        where = f"pare {name} {argument['names'][-1]}"
        expect(argument['meaning'] or argument['choices'], where, 'says nothing')
        expect(not argument['meaning'].endswith('.'), where, 'ends with a full stop')
        expect('default' not in argument['meaning'], where, 'hides its default:', argument['meaning'])
        for key in filter(None, argument['recipe_key'].split(', ')):
            expect(key in keys, where, f'there is no recipe key {key}')
        # A flag takes what its recipe key takes.
        key = keys.get(argument['recipe_key'])
        if key and key['choices'] and argument['type'] != 'flag' and 'list' not in key['type']:
            expect(set(argument['choices']) <= set(key['choices']) and argument['choices'], where, argument['choices'], key['choices'])
    expect(command['examples'] and all(e.startswith(('pare ' + name, 'source <(pare', ' ', '    ')) for e in command['examples']), name, command['examples'])
expect([c['exit_code'] for c in document['exit_codes']] == [1, 2, 3, 4, 5, 70, 130], 'exit codes', document['exit_codes'])

words = re.findall(r'\w+', next(a['meaning'] for a in commands['eval']['arguments'] if a['names'] == ['--metric']))
for metric in re.search(r"^    'eval:--metric'\) .*words='([^']*)'", pare('completion', 'bash').out, re.M).group(1).split():
    expect(metric in words, 'pare eval --metric', f'help lacks {metric}')

# Every variable that the program asks the environment for is in the list.
listed = {variable['name'] for variable in document['environment']}
for folder in ('engine', 'graphsurgeon', 'datasets', 'calib', 'quant', 'eval', 'recipes', 'cli'):
    for top, _, names in os.walk(os.path.join(SOURCE, folder)):
        for name in names:
            if name.endswith(('.cpp', '.h', '.cu')):
                with open(os.path.join(top, name), encoding='utf-8') as file:
                    for variable in re.findall(r'getenv\("(\w+)"\)', file.read()):
                        expect(variable in listed, 'environment', f'{variable} of {name} is not in engine/base/environment.cpp')

# --- man pages

with workplace() as folder:
    pages = os.path.join(folder, 'man pages', 'man1')
    made = pare('man', pages)
    expect(made.code == 0, 'pare man', made.err)
    files = sorted(os.listdir(pages))
    expect(len(files) == len(commands) + 1 and 'pare.1' in files and 'pare-stats-show.1' in files, 'pare man', files)
    for name in files:
        page = os.path.join(pages, name)
        with open(page, encoding='utf-8') as file:
            text = file.read()
        expect(all(line.isascii() for line in text.split('\n')), name, 'not ASCII')
        if shutil.which('groff'):
            code, out = tool('groff', '-man', '-Tascii', '-ww', '-z', page)
            expect(code == 0 and not out, name, out)
        if shutil.which('mandoc'):
            code, out = tool('mandoc', '-Tlint', '-Wwarning', page)
            expect(code == 0, name, out)
    quantize = open(os.path.join(pages, 'pare-quantize.1'), encoding='utf-8').read()
    for argument in commands['quantize']['arguments']:
        expect(argument['names'][-1].replace('-', '\\-') in quantize, 'pare-quantize.1', argument['names'])
    expect(pare('man', os.path.join(pages, 'pare.1')).code == 5, 'pare man', 'a file in the place of the folder')

# --- completion

CASES = [  # the line up to the cursor, words that must be offered, words that must not be
    ('pare qu', ['quantize'], ['run']),
    ('pare ', ['run', 'stats', 'cache', '--json'], ['show']),
    ('pare stats ', ['show', 'merge', 'export-trt-cache'], ['run', '--json']),
    ('pare stats sh', ['show'], ['merge']),
    ('pare quantize --me', ['--method'], ['--format']),
    ('pare quantize m.onnx --method ', ['rtn', 'gptq', 'auto'], ['int8']),
    ('pare quantize m.onnx --method=g', ['gptq'], ['rtn', '--group-size']),
    ('pare quantize --format nv', ['nvfp4', 'nvfp4_w4a4'], ['int8']),
    ('pare --device cpu quantize --target ', ['tensorrt', 'onnxruntime', 'pare'], []),
    ('pare quantize --rotate --ta', ['--target'], ['--method']),
    ('pare eval --metric to', ['top1', 'top5'], ['kl']),
    ('pare surgeon simplify --without ', ['fold_constants'], []),
    ('pare inspect mo', ['model one.onnx', 'models'], ['notes.txt']),
    ('pare infer models/a.onnx --input image=mo', ['model one.onnx'], []),
    ('pare run --out mo', ['models'], ['model one.onnx']),
    ('pare recipe show builtin/int8', ['builtin/int8', 'builtin/int8-weights'], ['builtin/fp8']),
    ('pare completion ', ['bash', 'zsh', 'fish'], []),
    ('pare --log-level w', ['warn'], ['info']),
    ('pare nonsense --', [], ['--method']),
]
PROBE = r'''
source "$1"
line=$2
read -r -a COMP_WORDS <<<"${line//=/ = }"
[ "${line: -1}" = ' ' ] && COMP_WORDS+=('')
[ "${line: -1}" = '=' ] && true
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
_pare pare
printf '%s\n' "${COMPREPLY[@]}"
'''
with workplace() as folder:
    scripts = {}
    for shell in ('bash', 'zsh', 'fish'):
        scripts[shell] = os.path.join(folder, 'pare.' + shell)
        with open(scripts[shell], 'w', encoding='utf-8') as file:
            file.write(pare('completion', shell).out)
        if shutil.which(shell):
            code, out = tool(shell, '-n', scripts[shell])
            expect(code == 0 and not out, f'{shell} -n', out)
    place = os.path.join(folder, 'place')
    os.makedirs(os.path.join(place, 'models'))
    for name in ('model one.onnx', 'notes.txt'):
        open(os.path.join(place, name), 'w').close()
    for line, wanted, refused in CASES:
        done = subprocess.run(['bash', '-c', PROBE, 'probe', scripts['bash'], line], capture_output=True, text=True, cwd=place)
        offered = done.stdout.split('\n')
        expect(not done.stderr, f'bash: {line}', done.stderr)
        expect(all(word in offered for word in wanted), f'bash: {line}', 'lacks', wanted, offered)
        expect(not any(word in offered for word in refused), f'bash: {line}', 'should not offer', refused, offered)
        if shutil.which('fish') and '=' not in line and 'model' not in str(wanted):
            home = dict(os.environ, HOME=folder, XDG_CONFIG_HOME=folder, XDG_DATA_HOME=folder)
            code, out = tool('fish', '-c', f'source {scripts["fish"]}; complete -C "{line}"', env=home)
            offered = [row.split('\t')[0].rstrip('/') for row in out.split('\n')]
            expect(all(word in offered for word in wanted if not word.startswith('--json')), f'fish: {line}', 'lacks', wanted, offered)
    # Every option of every command is offered by bash.
    for name, command in commands.items():
        done = subprocess.run(['bash', '-c', PROBE, 'probe', scripts['bash'], f'pare {name} -'], capture_output=True, text=True)
        names = {n for a in command['arguments'] if not a['positional'] for n in a['names']}
        expect(names <= set(done.stdout.split('\n')), f'bash: pare {name} -', names - set(done.stdout.split('\n')))
expect(pare('completion', 'tcsh').code == 2, 'completion tcsh')
finish(count)
