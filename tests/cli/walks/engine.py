"""An engine for the CPU: build, what runs in which precision and how fast, is it right, again from the cache."""
import filecmp
import json
import os

from walk import LAYOUT, check, done, image_classifier, pare, step, workplace

with workplace() as folder:
    image_classifier(folder)
    here = {'cwd': folder}
    data = f'test.npy:{LAYOUT}'
    step('quantize', ['quantize', 'my.onnx', '--format', 'int8', '--data', 'calibration.npy:' + LAYOUT, '-o', 'int8.onnx'], 0, **here)
    step('no place', ['build', 'my.onnx', '--device', 'cpu'], 2, '-o ENGINE', **here)
    step('plan', ['build', 'int8.onnx', '--device', 'cpu', '--plan-only'], 0, 'stem', 'int8', 'predicted peak', **here)
    step('a precision of GPUs', ['build', 'my.onnx', '--device', 'cpu', '--precision', 'fp16', '-o', 'x.engine'], 4, '--precision', **here)
    step('a dimension that is none', ['build', 'my.onnx', '--device', 'cpu', '--profile', 'batch=1x2x4', '-o', 'x.engine'], 2, "'batch'", 'n', **here)
    step('float', ['build', 'my.onnx', '--device', 'cpu', '-o', 'float.engine'], 0, 'wrote float.engine', **here)

    # From the cache: the same file.
    build = ['build', 'int8.onnx', '--device', 'cpu', '--timing-cache', 'times.json']
    step('a cache that is not there', [*build, '-o', 'x.engine', '--require-cached-tactics'], 4, 'is not in the timing cache', 'without', **here)
    check(not os.path.exists(os.path.join(folder, 'x.engine')), 'a refused build left an engine')
    step('first build', [*build, '-o', 'int8.engine'], 0, ' 0 from the cache', '0 not as requested', **here)
    step('again', [*build, '-o', 'again.engine', '--require-cached-tactics'], 0, '0 layers timed', **here)
    check(filecmp.cmp(os.path.join(folder, 'int8.engine'), os.path.join(folder, 'again.engine'), shallow=False), 'a build from the cache has the same bytes')
    step('another batch', [*build, '-o', 'x.engine', '--batch', '3', '--require-cached-tactics'], 4, 'is not in the timing cache', **here)

    # Layer by layer, and the two beside each other.
    step('inspect', ['inspect', 'int8.engine', '--layers'], 0, 'stem', 'int8 x int8', 'us', **here)
    bench = pare('bench', 'int8.engine', '--iterations', '5', '--profile-layers', '--json', **here).json()
    check(bench['latency_ms']['median'] > 0 and {'stem', 'head'} <= {layer['name'] for layer in bench['layers']}, 'bench by layer', json.dumps(bench)[:600])
    step('compare', ['compare', 'float.engine', 'int8.engine'], 0, 'stem', 'head', 'float32', 'int8 x int8', 'a / b', **here)
    rows = {row['name']: row for row in pare('compare', 'float.engine', 'int8.engine', '--json', **here).json()['engine_layers']}
    check(rows['stem']['realized_a'] == 'float32' and 'int8' in rows['stem']['realized_b'] and rows['stem']['median_us_b'] > 0,
          'compare by layer', rows)
    step('compare with a model', ['compare', 'float.engine', 'my.onnx'], 2, "'my.onnx' is none", **here)

    # Is it right?
    step('verify', ['verify', 'int8.engine', '--reference', 'my.onnx', '--data', data, '--strict-precision'], 0, 'passed', 'logits', **here)
    step('verify fails', ['verify', 'int8.engine', '--reference', 'my.onnx', '--data', data, '--tolerance', '200'], 1, 'FAILED', **here)
    step('verify without data', ['verify', 'int8.engine', '--reference', 'my.onnx'], 2, '--data', **here)
done()
