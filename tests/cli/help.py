"""Help: every command's fits a screen, shows an example, names recipe keys; version and a quick start."""
import time

from harness import check, finish, pare

MAX_LINES, MAX_LINES_OF_ALL, MAX_COLUMNS = 40, 60, 100
COMMANDS = ['run', 'inspect', 'infer', 'surgeon simplify', 'surgeon extract', 'surgeon set-shape', 'surgeon rename',
            'surgeon prune', 'surgeon convert-precision', 'surgeon strip-weights', 'surgeon restore-weights', 'surgeon diff', 'surgeon externalize',
            'surgeon convert-opset', 'convert', 'calibrate', 'stats show', 'stats merge', 'quantize', 'eval', 'build',
            'bench', 'verify', 'generate',
            'sensitivity', 'search', 'bisect', 'explain', 'compare', 'report', 'recipe list', 'recipe show', 'recipe check', 'recipe schema', 'recipe init', 'ops', 'doctor']

whole = pare('--help')
check(whole.code == 0 and not whole.err, '--help', whole.err)
for command in COMMANDS:
    check(f'  {command} ' in whole.out, '--help', f'{command} is not listed')
    result = pare(*command.split(), '--help')
    lines = result.out.rstrip('\n').split('\n')
    check(result.code == 0 and not result.err, command, result.err)
    check(len(lines) <= MAX_LINES, command, f'{len(lines)} lines')
    check(max(map(len, lines)) <= MAX_COLUMNS, command, max(lines, key=len))
    check(any(line.startswith(f'  pare {command}') and not line.endswith('[options]') for line in lines[3:]) or
          f'  pare {command}\n' in result.out, command, 'no example')
lines = whole.out.rstrip('\n').split('\n')
check(len(lines) <= MAX_LINES_OF_ALL and max(map(len, lines)) <= MAX_COLUMNS, '--help', len(lines))
for command in ('run', 'quantize', 'eval'):
    check('[' in pare(*command.split(), '--help').out, command, 'no recipe keys')

nothing = pare()
check(nothing.code == 2 and 'COMMAND' in nothing.err and not nothing.out, 'no arguments', nothing.out)
version = pare('--version')
check(version.code == 0 and version.out.startswith('pare ') and 'instruction class' in version.out, '--version', version.out)
best = 1e9
for _ in range(5):
    start = time.time()
    pare('--help')
    best = min(best, time.time() - start)
check(best < 0.5, 'start-up', f'{best:.3f} s')
finish(len(COMMANDS) + 4)
