"""Language-model rows of docs/accuracy.md: which schemes and methods are measured, and their table.

    python3 language.py jobs [PART...]                 jobs for language_bench, most wanted first
    python3 language.py table docs/accuracy.md ROWS... the table between <!-- language:begin --> and <!-- language:end -->

KL(float || quantized) in nats a scored token, over all 84 windows of 512 tokens; three disjoint parts of 128 windows of the
calibration text where a method looks at data. Rows of fewer windows say how many and decide nothing. Peers and goals were
measured once by the protocol of docs/text.md.
"""
import json
import sys

# scheme of language_bench, title, best peers (KL), goal, auto's options
SCHEMES = [
    ('int4_g128_asym', 'INT4 g128, zero points', 'GPTQ .00622, AutoRound .00583', .0055, ''),
    ('int4_g128', 'INT4 g128', 'GPTQ .00762, AutoRound .00598', .0055, ''),
    ('int4_g64', 'INT4 g64', '', None, ''),
    ('int4_g64_asym', 'INT4 g64, zero points', '', None, ''),
    ('int4_g32', 'INT4 g32', 'GPTQ .00552, AutoRound .00463', .0043, ''),
    ('int4_g32_asym', 'INT4 g32, zero points', 'RTN .00591', .0043, ''),
    ('int3_g128_asym', 'INT3 g128, zero points', 'GPTQ .0293, AutoRound .0225', .020, ''),
    ('int2_g64_asym', 'INT2 g64, zero points', 'AutoRound .0950', .085, ''),
    ('nvfp4', 'NVFP4 weights', 'RTN .0080, sweep .0059', .0042, ''),
    ('nvfp4_w4a4', 'NVFP4 W4A4', 'RTN .0217, GPTQ .0194', .0150, ''),
    ('mxfp4', 'MXFP4 weights', '.0114', .0075, ''),
    ('mxfp4_w4a4', 'MXFP4 W4A4', '.0417', .030, ''),
    ('mxfp8', 'MXFP8 weights', '.00061', None, ''),
    ('mxfp8_w8a8', 'MXFP8 W8A8', '.00178', .0014, ''),
    ('fp8_tensor', 'FP8 W8A8, tensor', '.00177', .0014, ''),
    ('fp8_channel', 'FP8 W8A8, channel, static', '.00177', .0014, ''),
    ('fp8_dynamic', 'FP8 W8A8, channel, per token', '.00166', .0014, ''),
    ('fp8_block', 'FP8 W8A8, blocks of 128x128, per 128 of a token', '', None, ''),
    ('w8a8_dynamic', 'INT8 W8A8, per token', '.00073', .0006, ',scaling=smoothquant'),
    ('w8a8_static', 'INT8 W8A8, static', 'SmoothQuant .0041', .0020, ',scaling=smoothquant'),
    ('w4a8', 'W4A8, INT8 per token', '.0143', .0075, ''),
]
WINDOWS = 128  # of a part
COLUMNS = [('rtn', 'RTN'), ('search', 'search'), ('awq', 'AWQ'), ('gptq', 'GPTQ'), ('learned', 'learned'),
           ('auto', 'learned, quantized inputs'), ('low_rank', 'low rank, quantized inputs')]


def job(scheme, column, options, part):
    at = f'part={part}'
    if column in ('rtn', 'search'):
        return f'{scheme}:{column}' + (f':{at}' if part != 1 else '')
    if column == 'auto':
        return f'{scheme}:learned:inputs{options},{at}'
    if column == 'low_rank':
        return f'{scheme}:low_rank:inputs,{at}'
    return f'{scheme}:{column}:{at}'


def jobs(parts):
    wanted = []
    for part in parts:
        for scheme, _, _, goal, options in SCHEMES:
            wanted.append((0 if goal else 1, part, job(scheme, 'auto', options, part)))
            if scheme == 'nvfp4_w4a4':
                wanted.append((0, part, job(scheme, 'low_rank', '', part)))
            for column in ('gptq', 'awq', 'learned'):
                wanted.append((3 if part == 1 else 4, part, job(scheme, column, '', part)))
            if part == 1:
                wanted += [(2, part, job(scheme, column, '', part)) for column in ('rtn', 'search')]
    return [text for _, _, text in sorted(wanted, key=lambda w: (w[0], w[1]))]


def column_of(row):
    options = row['job'].split(':')[2].split(',') if row['job'].count(':') > 1 else []
    known = [o for o in options if o != 'inputs' and not o.startswith(('part=', 'fit='))]
    if row['method'] == 'low_rank':
        return 'low_rank' if 'inputs' in options and not known else None
    if row['method'] == 'learned' and 'inputs' in options:
        mine = next((s[4] for s in SCHEMES if s[0] == row['scheme']), '')
        return 'auto' if known == [o for o in mine.split(',') if o] else None
    return row['method'] if not known and 'inputs' not in options else None


def number(value):
    return f'{value:.5f}'.lstrip('0') if value < .01 else f'{value:.4f}'.lstrip('0')


def shown(row):
    few = row['fit'] != WINDOWS and row['method'] not in ('rtn', 'search')
    return number(row['kl']) + (f" ({row['fit']} windows)" if few else '')


def table(path, rows):
    cells = {}
    for row in sorted(rows, key=lambda r: r['fit']):  # the most windows last: they stay
        column = column_of(row)
        if column:
            cells.setdefault((row['scheme'], column), {})[row['part']] = row
    lines = ['| scheme | ' + ' | '.join(title for _, title in COLUMNS) + ' | peers | goal | |',
             '| --- |' + ' --- |' * len(COLUMNS) + ' --- | ---: | --- |']
    for scheme, title, peers, goal, _ in SCHEMES:
        if not any(key[0] == scheme for key in cells):
            continue
        texts, best = [], None
        for column, _ in COLUMNS:
            of = cells.get((scheme, column), {})
            texts.append(' / '.join(shown(of[p]) if p in of else '-' for p in (1, 2, 3)) if of and column not in ('rtn', 'search')
                         else number(next(iter(of.values()))['kl']) if of else '')
            if len(of) == 3 and all(r['fit'] == WINDOWS for r in of.values()):
                worst = max(r['kl'] for r in of.values())
                best = worst if best is None else min(best, worst)
        verdict = '' if goal is None or best is None else 'met' if best <= goal else '**missed**'
        lines.append(f'| {title} | ' + ' | '.join(texts) + f" | {peers} | {number(goal) if goal else ''} | {verdict} |")
    document = open(path, encoding='utf-8').read()
    begin, end = '<!-- language:begin -->', '<!-- language:end -->'
    head, rest = document.split(begin)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(head + begin + '\n' + '\n'.join(lines) + '\n' + end + rest.split(end)[1])


if __name__ == '__main__':
    if sys.argv[1:2] == ['jobs']:
        print('\n'.join(jobs([int(p) for p in sys.argv[2:]] or [1, 2, 3])))
    else:
        table(sys.argv[2], [json.loads(line) for name in sys.argv[3:] for line in open(name, encoding='utf-8') if line.startswith('{')])
