"""Why did the gate fail, and which layer is to blame? From the failed run to a recipe that passes, by what is printed.

The model has one layer that 8 bits per tensor cannot hold (walk.planted_culprit); every tool must name it.
"""
import os

from walk import check, done, pare, planted_culprit, step, workplace, write

RECIPE = """version: 1
name: NAME
model: {path: net.onnx}
datasets:
  calibration: {path: calibration.npy}
  test: {path: test.npy, labels: labels.npy}
calibrate: {data: calibration}
quantize:
  method: rtn
  weights: {format: int8, granularity: tensor}
  activations: {format: int8, calibrator: minmax}
evaluate:
  data: test
  metrics: [top1, output_sqnr_db]
  gates: [{metric: top1_drop, max: 0.05}]
"""

with workplace() as folder:
    planted_culprit(folder)
    here = {'cwd': folder}
    write(folder, 'net.yaml', RECIPE.replace('NAME', 'before'))

    # The failed run itself says where to look next.
    step('the gate fails', ['run', 'net.yaml'], 1, 'gate   FAILED', 'least SQNR: mix_out', "pare explain runs/before 'mix_out'",
         'pare bisect net.yaml', **here)
    with open(os.path.join(folder, 'runs', 'before', 'report.md'), encoding='utf-8') as file:
        report = file.read()
    rows = [line for line in report.split('\n') if line.startswith('| ') and '| Gemm |' in line]
    check(rows and 'mix' in rows[0], 'the report lists the worst layer first', report)

    # The layer: by node or by value; its input's range gives the reason.
    for name in ('mix', 'mix_out'):
        step(f'explain {name}', ['explain', 'runs/before', name], 0, "Gemm 'mix'", 'expand_act', 'codes cover', 'minmax', **here)
    step('explain a misspelt layer', ['explain', 'runs/before', 'mxi'], 2, "did you mean 'mix'?", **here)

    # Bisect, with the recipe and without.
    recipe = step('bisect a recipe', ['bisect', 'net.yaml'], 0, 'mix_out in float', "--exclude 'mix_out'", 'ignore: [mix_out]', **here)
    check(recipe.out.count('in float') == 1, 'one layer is to blame', recipe.out)
    small = step('bisect little data', ['bisect', 'net.onnx', '--format', 'int8', '--data', 'calibration.npy'], 0, 'mix_out in float',
                 '128 samples: 96 to calibrate with, 32 to judge', **here)
    check('skip' not in small.err, 'no word that the user has not used', small.err)
    step('more samples than there are', ['bisect', 'net.onnx', '--format', 'int8', '--data', 'calibration.npy', '--samples', '100',
                                         '--judge-samples', '100'], 2, 'the data has 128', '--judge-data', **here)
    step('no format', ['bisect', 'net.onnx', '--data', 'calibration.npy'], 2, '--format', 'recipe', **here)
    step('no data', ['bisect', 'net.onnx', '--format', 'int8'], 2, '--data', 'recipe', **here)
    document = pare('bisect', 'net.yaml', '--json', **here).json()
    check([layer['name'] for layer in document['layers']] == ['mix_out'] and document['reached'], 'bisect --json', document)

    # Sensitivity: the same layer first, with a head over the columns.
    table = step('sensitivity', ['sensitivity', 'net.yaml'], 0, 'layer', 'format', 'output_sqnr_db', **here)
    lines = [line.split()[0] for line in table.out.split('\n')[2:] if line.strip()]
    check(lines and lines[0] == 'mix_out' and set(lines) == {'encoder_out', 'expand_out', 'mix_out', 'logits'}, 'most sensitive first', table.out)
    step('a misspelt --exclude', ['sensitivity', 'net.onnx', '--format', 'int8', '--data', 'calibration.npy', '--exclude', 'mxi'], 0,
         "'mxi'", "did you mean 'mix'?", **here)

    # The remedy, and what it changed.
    write(folder, 'after.yaml', RECIPE.replace('NAME', 'after').replace('  method: rtn', '  method: rtn\n  ignore: [mix_out]'))
    step('the gate passes', ['run', 'after.yaml'], 0, 'gate   passed', absent=('least SQNR',), **here)
    step('compare', ['compare', 'runs/before', 'runs/after'], 0, 'top1', 'mix', 'expand_act', 'failed', 'passed', **here)
    step('explain what stays float', ['explain', 'runs/after', 'mix'], 0, 'float', **here)
done()
