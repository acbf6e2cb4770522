"""The tables of docs/accuracy.md between the marks <!-- accuracy:begin --> and <!-- accuracy:end -->, from files of rows.

    python3 table.py docs/accuracy.md ROWS.jsonl...

One table a task: every format, pare's methods, and the best row of each peer at the same bits. The last column says whether
pare's best SQNR is below the best peer's.
"""
import json
import sys

TITLES = {'resnet': 'ResNet (fashion)', 'mobilenet': 'MobileNet (fashion)', 'vit': 'ViT (fashion)', 'ocr': 'PP-OCRv4 recognizer',
          'efficientnet': 'EfficientNet-Lite0'}
METRICS = {'top1': 'top-1', 'cer': 'character error rate', 'top1_agreement': 'agreement of the largest class'}


def number(row):
    if 'failed' in row:
        return 'failed'
    value = f"{row['value']:.4f}".lstrip('0')
    return f"{value}, {row['sqnr_db']:.2f}"


def best(rows):
    done = [r for r in rows if 'failed' not in r]
    return max(done, key=lambda r: r['sqnr_db']) if done else None


def table(task, rows):
    mine = [r for r in rows if r['tool'] == 'pare']
    forms = list(dict.fromkeys(r['format'] for r in mine + rows if r['tool'] != 'float'))
    methods = list(dict.fromkeys(r['method'] for r in mine))
    original = next((r for r in rows if r['tool'] == 'float'), None)
    lines = [f'### {TITLES[task]}', '',
             f"Float: {METRICS[original['metric']]} {original['value']:.4f}, {original['bytes']:,} bytes." if original else '', '',
             '| format | ' + ' | '.join(methods) + ' | bytes | ONNX Runtime, best | Model Optimizer, best | |',
             '| --- |' + ' --- |' * len(methods) + ' ---: | --- | --- | --- |']
    for form in forms:
        of = {r['method']: r for r in mine if r['format'] == form}
        peers = [best([r for r in rows if r['tool'] == tool and r['format'] == form]) for tool in ('onnxruntime', 'modelopt')]
        top = best(list(of.values()))
        # A 4-bit file twice as large has most weights in float.
        fair = [p for p in peers if p and not (top and form.startswith('INT4') and p['bytes'] > 2 * top['bytes'])]
        rival = best(fair)
        verdict = '' if not top or not rival else 'ahead' if top['sqnr_db'] >= rival['sqnr_db'] else '**behind**'
        cells = [f"**{number(of[m])}**" if top and of.get(m) is top else number(of[m]) if m in of else '' for m in methods]
        lines.append(f"| {form} | " + ' | '.join(cells) + f" | {top['bytes']:,} | " if top else f"| {form} | " + ' | '.join(cells) + ' | | ')
        lines[-1] += ' | '.join((f"{number(p)} ({p['method']})" if p in fair else f"{p['bytes']:,} bytes") if p else '' for p in peers) + f' | {verdict} |'
    ratios = sorted(r['memory_ratio'] for r in mine if r.get('memory_ratio'))
    if ratios:
        lines += ['', f'Memory predicted before the run over that measured: {ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}.']
    return lines


def main():
    path, rows = sys.argv[1], [json.loads(line) for name in sys.argv[2:] for line in open(name, encoding='utf-8')]
    rows = list({(r['task'], r['tool'], r['format'], r['method']): r for r in rows}.values())
    text = []
    for task in TITLES:
        mine = [r for r in rows if r['task'] == task]
        if mine:
            text += table(task, mine) + ['']
    failed = [r for r in rows if 'failed' in r]
    if failed:
        text += ['Rows that failed:', ''] + [f"- {r['task']}, {r['tool']}, {r['format']}, {r['method']}: {r['failed']}" for r in failed] + ['']
    document = open(path, encoding='utf-8').read()
    begin, end = '<!-- accuracy:begin -->', '<!-- accuracy:end -->'
    head, rest = document.split(begin)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(head + begin + '\n' + '\n'.join(text) + end + rest.split(end)[1])


if __name__ == '__main__':
    main()
