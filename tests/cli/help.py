"""Help: every command's fits a screen, shows an example, names recipe keys; families of commands; the version."""
from harness import check, finish, pare

MAX_LINES, MAX_COLUMNS = 40, 100

COMMANDS = [command['name'] for command in pare('reference', '--json').json()['commands']]
whole = pare('--help')
check(whole.code == 0 and not whole.err, '--help', whole.err)
check(len(COMMANDS) > 40 and 'surgeon restore-weights' in COMMANDS and 'cache clean' in COMMANDS, 'commands', COMMANDS)
for command in COMMANDS:
    first, _, second = command.partition(' ')
    check(f'\n  {first} ' in whole.out and (second or first) in whole.out, '--help', f'{command} is not listed')
    if second:
        family = pare(first, '--help')
        check(family.code == 0 and f'  pare {command} ' in family.out, f'{first} --help', family.out)
    result = pare(*command.split(), '--help')
    lines = result.out.rstrip('\n').split('\n')
    check(result.code == 0 and not result.err, command, result.err)
    check(len(lines) <= MAX_LINES, command, f'{len(lines)} lines')
    check(max(map(len, lines)) <= MAX_COLUMNS, command, max(lines, key=len))
    check(any((line.startswith(f'  pare {command}') or f'<(pare {command}' in line) and not line.endswith('[options]') for line in lines[3:]) or
          f'  pare {command}\n' in result.out, command, 'no example')
lines = whole.out.rstrip('\n').split('\n')
check(len(lines) <= 58 and max(map(len, lines)) <= MAX_COLUMNS, '--help', len(lines), max(lines, key=len))
for command in ('run', 'quantize', 'eval'):
    check('[' in pare(*command.split(), '--help').out, command, 'no recipe keys')

for group, word in (('surgeon', 'surgeon extract'), ('recipe', 'recipe init'), ('stats', 'stats merge')):
    result = pare(group, '--help')
    check(result.code == 0 and word in result.out and not result.err, f'{group} --help', result.out, result.err)
check(pare('help', 'quantize').out == pare('quantize', '--help').out, 'help quantize')
check(pare('help').out == whole.out, 'help')
nothing = pare()
check(nothing.code == 2 and 'COMMAND' in nothing.err and not nothing.out, 'no arguments', nothing.out)
version = pare('--version')
check(version.code == 0 and version.out.startswith('pare ') and 'instruction class' in version.out, '--version', version.out)
finish(len(COMMANDS) + 8)
