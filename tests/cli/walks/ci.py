"""A model and arrays of one's own to INT8 with a gate, as a CI job does it: exit codes, report.md, JUnit, JSON."""
import json
import os
import xml.etree.ElementTree as xml

from walk import LAYOUT, check, done, image_classifier, pare, step, workplace


def junit(folder, run):
    root = xml.parse(os.path.join(folder, run, 'junit.xml')).getroot()
    return int(root.get('tests')), int(root.get('failures')), int(root.get('errors')), root


with workplace() as folder:
    image_classifier(folder)
    here = {'cwd': folder}

    # The first recipe, as README has it. What the tool writes must be right but for the user's own numbers.
    step('init', ['recipe', 'init', 'my.yaml', '--model', 'my.onnx'], 0, 'pare recipe check my.yaml', **here)
    step('init twice', ['recipe', 'init', 'my.yaml', '--model', 'my.onnx'], 2, '--force', **here)
    step('init without its model', ['recipe', 'init', 'n.yaml', '--model', 'nothing.onnx'], 3, 'nothing.onnx', **here)
    check(not os.path.exists(os.path.join(folder, 'n.yaml')), 'init without its model wrote a recipe')
    step('check', ['recipe', 'check', 'my.yaml'], 0, 'fine', **here)
    step('dry run', ['run', 'my.yaml', '--dry-run'], 0, 'quantize', 'evaluate', 'runs/my', **here)

    # The job that passes.
    step('pass', ['run', 'my.yaml', '--out', 'quantized'], 0, 'gate   passed', 'audit  passed', 'quantized/model.onnx', **here)
    tests, failures, errors, _ = junit(folder, 'quantized')
    check((tests, failures, errors) == (2, 0, 0), 'JUnit of a pass', tests, failures, errors)
    with open(os.path.join(folder, 'quantized', 'report.md'), encoding='utf-8') as file:
        check('passed' in file.readline(), 'report.md begins with the verdict')
    step('again', ['run', 'my.yaml', '--out', 'quantized'], 2, '--force', **here)

    # The job that fails: exit code 1, and everything a person needs to see why.
    failed = step('fail', ['run', 'my.yaml', '--out', 'failed', '--set', 'evaluate.gates.0.max=-1'], 1, 'gate   FAILED', 'top1_drop <= -1',
                  'pare explain failed', **here)
    tests, failures, errors, root = junit(folder, 'failed')
    check((tests, failures, errors) == (2, 1, 0), 'JUnit of a failure', tests, failures, errors)
    message = root.find('.//failure').get('message')
    check('top1_drop' in message and '-1' in message, 'JUnit says which gate and limit', message)
    for name in ('report.html', 'report.json', 'report.md', 'junit.xml', 'model.onnx'):
        check(os.path.exists(os.path.join(folder, 'failed', name)), f'{name} of a failed run')
    document = pare('run', 'my.yaml', '--out', 'json', '--set', 'evaluate.gates.0.max=-1', '--json', **here)
    check(document.code == 1, 'exit code with --json', document.code)
    document = document.json()
    gate = document['gates'][0]
    check(document['passed'] is False and gate['metric'] == 'top1_drop' and gate['passed'] is False and gate['limit'] == -1,
          'JSON says which gate', json.dumps(document['gates']))

    # Mistakes of the job, each with its own code.
    step('no data', ['run', 'my.yaml', '--out', 'x', '--set', 'datasets.test.path=nothing.npy'], 3, 'nothing.npy', **here)
    step('no such gate', ['run', 'my.yaml', '--out', 'x', '--set', 'evaluate.gates.0.metric=top1drop'], 2, "did you mean 'top1_drop'?", **here)
    check(not os.path.exists(os.path.join(folder, 'x')), 'a refused run leaves no folder')

    # The same without a recipe.
    data = 'calibration.npy:' + LAYOUT
    step('raw pixels', ['quantize', 'my.onnx', '--format', 'int8', '--data', 'calibration.npy', '-o', 'q.onnx'], 2, 'layout=nhwc_to_nchw',
         'scale=1/255', **here)
    step('no data', ['quantize', 'my.onnx', '--format', 'int8', '-o', 'q.onnx'], 2, '--data', "'int8_weights'", **here)
    step('quantize', ['quantize', 'my.onnx', '--format', 'int8', '--data', data, '-o', 'q.onnx'], 0, 'audit: passed', **here)
    judged = ['eval', 'q.onnx', '--reference', 'my.onnx', '--data', f'test.npy:{LAYOUT},labels=labels.npy']
    step('eval', [*judged, '--gate', 'top1_drop<=0.05', '--report', 'rep'], 0, 'gate   passed', 'rep/report.html', **here)
    step('eval fails', [*judged, '--gate', 'output_sqnr_db>=200'], 1, 'gate   FAILED', **here)
    step('misspelt gate', [*judged, '--gate', 'top1drop<=0.05'], 2, "did you mean 'top1_drop'?", **here)
    step('per cent', [*judged, '--gate', 'top1_drop<=5%'], 2, 'top1_drop<=0.05', **here)
    step('no labels', ['eval', 'q.onnx', '--reference', 'my.onnx', '--data', 'test.npy:' + LAYOUT, '--gate', 'top1_drop<=0.05'], 2, 'labels=', **here)
    step('no reference', ['eval', 'q.onnx', '--data', f'test.npy:{LAYOUT},labels=labels.npy', '--gate', 'top1_drop<=0.05'], 2, '--reference', **here)
    step('a drop of a comparison', [*judged, '--gate', 'max_abs_drop<=1'], 2, 'max_abs already compares', **here)
done()
