"""A recipe with fifteen mistakes becomes a right one by what `pare recipe check` says, and nothing else.

Each round applies exactly what the messages suggest; the check must name every mistake that its stage can see at once:
first those of the text, then names that refer to nothing and files that are missing, then data that does not fit.
"""
import json
import os
import re

from walk import check, done, image_classifier, pare, step, workplace, write

WRONG = """version: 1
name: my model/int8
extends: builtin/int-8
model: my.onx
dataset:
  calib: {path: calibration.npy, layout: nhwc-to-nchw, scale: 1/255, sample: 48}
  test: {path: test.npy, label: labels.npy}
calibrate: {data: calibration}
quantize:
  weights: {format: int8, granularity: per_channel}
  activations: {format: int8, calibrator: entropie}
  ignore: [heead]
evaluate:
  data: tests
  metrics: [top-1, sqnr]
  gates:
    - {metric: top1_drop, max: 0.5%}
report: [html, junit, pdf]
"""


def mend(text, *pairs):
    for wrong, right in pairs:
        assert wrong in text, wrong
        text = text.replace(wrong, right)
    return text


with workplace() as folder:
    image_classifier(folder)

    def look(name, text, code, *words):
        write(folder, 'my.yaml', text)
        return step(name, ['recipe', 'check', 'my.yaml'], code, *words, cwd=folder)

    text = WRONG
    first = look('the text', text, 2, 'my.yaml:3:10', "did you mean 'builtin/int8'?", 'my.yaml:4:8', '{path: my.onx}',
                 'my.yaml:5:1', "did you mean 'datasets'?", 'my.yaml:10:40', "did you mean 'channel'?", 'my.yaml:11:43',
                 "did you mean 'entropy'?", 'my.yaml:17:32', '0.005', 'my.yaml:18:23', 'json, html, markdown, junit')
    lines = [int(n) for n in re.findall(r'my.yaml:(\d+):', first.err)]
    check(lines == sorted(lines), 'mistakes in the order of the text', lines)
    run = step('a run says the same', ['run', 'my.yaml'], 2, cwd=folder)
    check(run.err == first.err, 'a run says the same', run.err)
    check(not os.path.exists(os.path.join(folder, 'runs')), 'nothing was begun')
    document = pare('recipe', 'check', 'my.yaml', '--json', cwd=folder).json()
    listed = [document['error'], *document['error']['others']]
    check(len(listed) == 7 and all(e['where'] and e['hint'] for e in listed), '--json lists them', json.dumps(listed))

    text = mend(text, ('int-8', 'int8'), ('model: my.onx', 'model: {path: my.onx}'), ('dataset:', 'datasets:'),
                ('per_channel', 'channel'), ('entropie', 'entropy'), ('0.5%', '0.005'), (', pdf', ''))
    look('inside the data sets', text, 2, "did you mean 'samples'?", "did you mean 'labels'?", "did you mean 'nhwc_to_nchw'?")

    text = mend(text, ('sample:', 'samples:'), ('label:', 'labels:'), ('nhwc-to-nchw', 'nhwc_to_nchw'))
    look('names and files', text, 2, "letters, digits, '-', '_' and '.'", "'./my.onx' does not exist",
         "'calibration' names no data set", 'there is: calib, test', "did you mean 'test'?", "did you mean 'top1'?",
         "did you mean 'output_sqnr_db'?")

    text = mend(text, ('my model/int8', 'my-int8'), ('my.onx', 'my.onnx'), ('calib:', 'calibration:'), ('tests', 'test'),
                ('top-1', 'top1'), (' sqnr', ' output_sqnr_db'))
    look('what the data is', text, 2, 'my.yaml:7:9', "data set 'test'", 'layout: nhwc_to_nchw, scale: 1/255')

    text = mend(text, ('path: test.npy,', 'path: test.npy, layout: nhwc_to_nchw, scale: 1/255,'))
    look('a layer that is not there', text, 0, "'heead'", "did you mean 'head'?", 'fine')

    text = mend(text, ('heead', 'head'))
    right = look('right', text, 0, 'fine')
    check('warning' not in right.err, 'right', right.err)
    step('it runs', ['run', 'my.yaml', '--out', 'run'], 0, 'top1', 'gate   passed', cwd=folder)
    with open(os.path.join(folder, 'run', 'report.json'), encoding='utf-8') as file:
        report = json.load(file)
    check(any('head' in row['tensor'] for row in report['skipped']), 'the layer stays float', report['skipped'])
done()
