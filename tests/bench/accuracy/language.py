"""Language-model rows of docs/accuracy.md: which schemes and methods are measured, and their table.

    python3 language.py jobs [PART...]                 jobs for language_bench, most wanted first
    python3 language.py table docs/accuracy.md ROWS... the table between <!-- language:begin --> and <!-- language:end -->

KL(float || quantized) in nats a scored token, over all 84 windows of 512 tokens; three disjoint parts of 128 windows of the
calibration text where a method looks at data. Rows of fewer windows say how many and decide nothing. Peers and goals were
measured once by the protocol of docs/text.md.
"""
import json
import sys

# scheme of language_bench, title, best peers (KL), goal
SCHEMES = [
    ('int4_g128_asym', 'INT4 g128, zero points', 'GPTQ .00622, AutoRound .00583', .0055),
    ('int4_g128', 'INT4 g128', 'GPTQ .00762, AutoRound .00598', .0055),
    ('int4_g64', 'INT4 g64', '', None),
    ('int4_g64_asym', 'INT4 g64, zero points', '', None),
    ('int4_g32', 'INT4 g32', 'GPTQ .00552, AutoRound .00463', .0043),
    ('int4_g32_asym', 'INT4 g32, zero points', 'RTN .00591', .0043),
    ('int3_g128_asym', 'INT3 g128, zero points', 'GPTQ .0293, AutoRound .0225', .020),
    ('int2_g64_asym', 'INT2 g64, zero points', 'AutoRound .0950', .085),
    ('nvfp4', 'NVFP4 weights', 'RTN .0080, sweep .0059', .0042),
    ('nvfp4_w4a4', 'NVFP4 W4A4', 'RTN .0217, GPTQ .0194', .0150),
    ('nvfp4_w4a4/fitted', "NVFP4 W4A4, activations' scales by least error", 'RTN .0217, GPTQ .0194', .0150),
    ('nvfp4_w4a4/low_rank', 'NVFP4 W4A4 with products of rank 32', 'SVDQuant .0103', .0090),
    ('mxfp4', 'MXFP4 weights', '.0114', .0075),
    ('mxfp4_w4a4', 'MXFP4 W4A4', '.0417', .030),
    ('mxfp4_w4a4/fitted', "MXFP4 W4A4, activations' scales by least error", '.0417', .030),
    ('mxfp8', 'MXFP8 weights', '.00061', None),
    ('mxfp8_w8a8', 'MXFP8 W8A8', '.00178', .0014),
    ('mxfp8_w8a8/fitted', "MXFP8 W8A8, activations' scales by least error", '.00178', .0014),
    ('fp8_tensor', 'FP8 W8A8, tensor', '.00177', .0014),
    ('fp8_channel', 'FP8 W8A8, channel, static', '.00177', .0014),
    ('fp8_dynamic', 'FP8 W8A8, channel, per token', '.00166', .0014),
    ('fp8_block', 'FP8 W8A8, blocks of 128x128, per 128 of a token', '', None),
    ('w8a8_dynamic', 'INT8 W8A8, per token', '.00073', .0006),
    ('w8a8_dynamic/zeros', 'INT8 W8A8, per token, zero points', '.00073', .0006),
    ('w8a8_static', 'INT8 W8A8, static', 'SmoothQuant .0041', .0020),
    ('w8a8_static/percentile', 'INT8 W8A8, static, ranges of 99.999 %', 'SmoothQuant .0041', .0020),
    ('w4a8', 'W4A8, INT8 per token', '.0143', .0075),
]
WINDOWS = 128  # of a part
COLUMNS = [('rtn', 'RTN'), ('search', 'search'), ('local_hessian', 'local Hessian'), ('awq', 'AWQ'), ('gptq', 'GPTQ'),
           ('smooth', 'SmoothQuant, GPTQ'), ('learned', 'learned'), ('auto', 'learned, quantized inputs'),
           ('model', "learned, model's predictions"), ('damped', 'the same, output_damp 1'),
           ('low_rank', 'low rank')]
# Options of a job that make another scheme of it.
VARIANTS = {'zeros': 'zeros', 'fitted': 'fitted', 'cal=percentile(99.999)': 'percentile'}
OPTIONS = {'smooth': ('gptq', ['scaling=smoothquant']), 'auto': ('learned', ['inputs']), 'model': ('learned', ['model']), 'damped': ('learned', ['model', 'odamp=1'])}


def job(scheme, column, part):
    method, options = OPTIONS.get(column, (column, []))
    scheme, *names = scheme.split('/')
    options = options + [option for option, name in VARIANTS.items() if name in names]
    if column in ('rtn', 'search') and options:
        return f'{scheme}:{column}:' + ','.join(options + ([f'part={part}'] if part != 1 else []))
    if column in ('rtn', 'search'):
        return f'{scheme}:{column}' + (f':part={part}' if part != 1 else '')
    return f'{scheme}:{method}:' + ','.join(options + [f'part={part}'])


def jobs(parts):
    wanted = []
    for part in parts:
        for scheme, _, _, goal in SCHEMES:
            if scheme.endswith('/low_rank'):
                continue  # another scheme's column
            wanted += [(0 if goal else 1, part, job(scheme, column, part)) for column in ('damped', 'model')]
            if scheme == 'nvfp4_w4a4':
                wanted.append((0, part, job(scheme, 'low_rank', part)))
            if scheme.startswith('w8a8'):
                wanted.append((0, part, job(scheme, 'smooth', part)))
            for column in ('gptq', 'learned', 'awq', 'auto'):
                wanted.append((3 if part == 1 else 4, part, job(scheme, column, part)))
            if part == 1:
                wanted += [(2, part, job(scheme, column, part)) for column in ('rtn', 'search', 'local_hessian')]
    return ['together'] + [text for _, _, text in sorted(wanted, key=lambda w: (w[0], w[1]))]


def place_of(row):
    """(scheme, column) of the table, or None."""
    options = row['job'].split(':')[2].split(',') if row['job'].count(':') > 1 else []
    known = [o for o in options if not o.startswith(('part=', 'fit=')) and o not in VARIANTS]
    scheme = '/'.join([row['scheme']] + [name for option, name in VARIANTS.items() if option in options])
    column = row['method'] if not known else next((c for c, (method, of) in OPTIONS.items() if method == row['method'] and of == known), None)
    if column is None:
        return None
    return (scheme + '/low_rank' if column == 'low_rank' else scheme), column


def number(value):
    return f'{value:.5f}'.lstrip('0') if value < .01 else f'{value:.4f}'.lstrip('0')


def shown(row):
    few = row['fit'] != WINDOWS and row['method'] not in ('rtn', 'search')
    return number(row['kl']) + (f" ({row['fit']} windows)" if few else '')


def judged(measured, goal):
    """Methods by (largest KL of the parts, parts): met by one on all three, missed by all, or not known yet."""
    if goal is None or not measured:
        return ''
    below = [parts for worst, parts in measured if worst <= goal]
    if not below:
        return '**missed**'
    most = max(below, key=len)
    return 'met' if len(most) == 3 else 'below on ' + ', '.join(f'part {p}' for p in most) + ' alone'


def table(path, rows):
    cells = {}
    for row in sorted(rows, key=lambda r: r['fit']):  # the most windows last: they stay
        place = place_of(row)
        if place:
            cells.setdefault(place, {})[row['part']] = row
    lines = ['| scheme | ' + ' | '.join(title for _, title in COLUMNS) + ' | peers | goal | |',
             '| --- |' + ' --- |' * len(COLUMNS) + ' --- | ---: | --- |']
    for scheme, title, peers, goal in SCHEMES:
        if not any(key[0] == scheme for key in cells):
            continue
        texts, measured = [], []
        for column, _ in COLUMNS:
            of = cells.get((scheme, column), {})
            texts.append(' / '.join(shown(of[p]) if p in of else '-' for p in (1, 2, 3)) if of and column not in ('rtn', 'search')
                         else number(next(iter(of.values()))['kl']) if of else '')
            full = {p: r['kl'] for p, r in of.items() if r['fit'] == WINDOWS}
            if full:
                measured.append((max(full.values()), (1, 2, 3) if column in ('rtn', 'search') else tuple(sorted(full))))
        verdict = judged(measured, goal)
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
