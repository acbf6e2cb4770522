"""The verbs of `pare surgeon` as a user sees them: what is printed, what is written, exit codes."""
import os

from harness import FASHION, RECIPE, RESNET, check, finish, pare, workplace

import numpy

VIT = os.path.join(FASHION, 'vit.onnx')
count = 0


def expect(code, *arguments, says=''):
    """Runs pare surgeon; the code must be that, and the text (of either stream) must hold `says`."""
    global count
    count += 1
    result = pare('surgeon', *arguments)
    check(result.code == code, f'{arguments} exit code', result.code, result.err)
    check(says in result.out + result.err, f'{arguments} says', says, result.out, result.err)
    return result


with workplace() as folder:
    out = os.path.join(folder, 'out.onnx')

    # Nothing is written without a name, nor with --dry-run.
    expect(2, 'extract', RESNET, '--outputs', '/2/Relu_output_0', says='--dry-run')
    expect(0, 'extract', RESNET, '--outputs', '/2/Relu_output_0', '-o', out, '--dry-run', says='became 3')
    check(not os.path.exists(out), 'dry run', 'a file was written')
    expect(2, 'prune', RESNET, '--drop', 'logits', '--dry-run', says='no output would be left')
    expect(2, 'rename', RESNET, '--value', 'image=logits', '--dry-run', says='two values')
    expect(2, 'extract', RESNET, '--outputs', '/2/Relu_output_1', '--dry-run', says="did you mean '/2/Relu_output_0'?")
    expect(2, 'set-shape', RESNET, '--input-shape', 'image=1,3,28,28', '--dry-run', says='do not fit the model')
    expect(2, 'set-shape', RESNET, '--dim', 'btach=1', '--dry-run', says="did you mean 'batch'?")
    expect(2, 'convert-precision', RESNET, '--to', 'float8', '--dry-run', says='float16 or bfloat16')
    expect(2, 'simplify', RESNET, '--without', 'fold_pads', says="did you mean 'fold_pad'?")
    expect(2, 'simplify', says='MODEL is missing')
    expect(3, 'diff', RESNET, os.path.join(folder, 'nothing.onnx'), says='nothing.onnx')
    expect(2, 'extract', RESNET, '--outputs', '/2/Relu_output_0', '-o', RESNET, says='take the place')

    listed = expect(0, 'simplify', '--list-passes').out
    for name in ('fold_batch_normalization', 'merge_equal_nodes', 'recognize_attention'):
        check(name in listed, '--list-passes', name)

    # A part of a model computes what the whole does there.
    expect(0, 'extract', RESNET, '--outputs', '/2/Relu_output_0', '-o', out, says='became 3')
    image = numpy.random.default_rng(0).standard_normal((2, 1, 28, 28)).astype(numpy.float32)
    numpy.save(folder + '/x.npy', image)
    expect(0, 'extract', RESNET, '--inputs', '/2/Relu_output_0', '-o', folder + '/rest.onnx')
    pare('infer', out, '--input', f'image={folder}/x.npy', '--save', folder + '/a')
    pare('infer', folder + '/rest.onnx', '--input', f'/2/Relu_output_0={folder}/a/out_0.npy', '--save', folder + '/b')
    pare('infer', RESNET, '--input', f'image={folder}/x.npy', '--save', folder + '/c')
    first, second = (numpy.load(f'{folder}/{d}/out_0.npy') for d in 'bc')
    check(numpy.allclose(first, second, rtol=1e-5, atol=1e-5), 'two parts', abs(first - second).max())

    # Names, sizes.
    expect(0, 'rename', RESNET, '--input', 'image=pixels', '--value', 're:/([0-9]+)/(.*)=block$1.$2', '-o', out, says='pixels')
    expect(1, 'diff', RESNET, out, says='differences')
    expect(0, 'diff', RESNET, out, '--ignore-names', says='are the same')
    expect(0, 'set-shape', RESNET, '--dim', 'batch=4', '-o', out, says='[4,1,28,28]')
    expect(1, 'diff', RESNET, out, says='[batch,1,28,28]')

    # Weights out and back, into another model, and what does not fit.
    skeleton = folder + '/skeleton.onnx'
    expect(0, 'strip-weights', RESNET, '-o', skeleton, says='taken out')
    check(os.path.getsize(skeleton) < os.path.getsize(RESNET) / 20, 'skeleton', os.path.getsize(skeleton))
    expect(0, 'restore-weights', skeleton, '--from', RESNET, '--same', '-o', out, says='0 of them others')
    expect(0, 'diff', RESNET, out, says='are the same')
    expect(3, 'restore-weights', skeleton, '--from', VIT, '-o', out, says='no tensor')
    expect(2, 'strip-weights', skeleton, '-o', out, says='stripped already')
    expect(2, 'restore-weights', RESNET, '--from', RESNET, '-o', out, says='has not been stripped')
    weights = {w['name']: w for w in pare('surgeon', 'strip-weights', RESNET, '--dry-run', '--json').json()['weights']}
    check(len(weights) >= 20, 'weights', len(weights))

    # 16 bits.
    for kind in ('float16', 'bfloat16'):
        result = pare('surgeon', 'convert-precision', RESNET, '--to', kind, '-o', out, '--json')
        document = result.json()
        check(result.code == 0 and document['casts'] <= 2, kind, document.get('casts'), result.err)
        check(document['output_sqnr_db'] > (50 if kind == 'float16' else 30), kind, document['output_sqnr_db'])
        check(document['weight_bytes_after'] * 2 <= document['weight_bytes_before'] + 8, kind, document)

    # Nothing is to blame where nothing is wrong; a tolerance that rounding passes blames a fold.
    expect(0, 'simplify', RESNET, '--bisect', says='none of')
    expect(1, 'simplify', RESNET, '--bisect', '--tolerance', '1e-12', says='fold_batch_normalization')
    # Passes are left out by a recipe too.
    for passes, code, says in (('fold_pad', 0, ''), ('fold_pads', 2, 'fold_pad')):
        count += 1
        result = pare('run', RECIPE, '--out', folder + '/run', '--dry-run', '--set', f'surgery_without=[{passes}]')
        check(result.code == code and says in result.err, f'surgery_without {passes}', result.code, result.err)
finish(count)
