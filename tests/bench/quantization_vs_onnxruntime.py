"""What ONNX Runtime's static quantization makes of the models of examples/, with the same data as the recipes: the peer's
column of docs/accuracy.md.

    python3 tests/bench/quantization_vs_onnxruntime.py SHARED [MODEL...]

SHARED holds models and data as the recipes say. Needs onnxruntime, onnx, numpy, and pillow for the photos. For each model
the float original, then every calibration method (min-max, percentile, entropy) with symmetric INT8 and with UINT8
activations, weights INT8 per channel, quant_pre_process before. Models below opset 13 are converted to 17 first: what the
peer writes for them is not loaded by itself. METHODS=MinMax of the environment leaves the slow ones out.
"""
import json
import os
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

warnings.filterwarnings('ignore')
SHARED = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)


def path(*parts):
    return os.path.join(SHARED, *parts)


def photos(part, shape, transform):
    from PIL import Image
    for name in sorted(os.listdir(path('data', 'photos', part))):
        image = Image.open(path('data', 'photos', part, name)).convert('RGB')
        if image.size != shape:
            image = image.resize(shape, Image.BILINEAR)
        yield transform(np.asarray(image, np.float32))[None]


def ocr(part):
    images = np.load(path('data', 'ocr_lines', 'images.npy'), mmap_mode='r')
    labels = json.load(open(path('data', 'ocr_lines', 'labels.json')))
    for i in range(*((0, 100) if part == 'calibration' else (100, 500))):
        x = (images[i, :, :labels['width'][i]].astype(np.float32) * np.float32(1 / 255) - np.float32(.5)) / np.float32(.5)
        yield {'x': x.transpose(2, 0, 1)[None].copy()}, labels['text'][i]


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row, before = [i + 1], row
        for j, y in enumerate(b):
            row.append(min(before[j + 1] + 1, row[j] + 1, before[j] + (x != y)))
    return row[-1]


def cer(results, labels):
    alphabet = [''] + open(path('models', 'ocr', 'ppocr_keys_v1.txt'), encoding='utf-8').read().splitlines() + [' ']
    errors = count = 0
    for (probabilities,), text in zip(results, labels):
        best = probabilities[0].argmax(1)
        got = ''.join(alphabet[c] for i, c in enumerate(best) if c and (i == 0 or best[i - 1] != c)).replace(' ', '')
        errors += distance(text.replace(' ', ''), got)
        count += len(text.replace(' ', ''))
    return errors / count


def silero(part):
    for name in sorted(os.listdir(path('data', 'audio'))):
        if not name.endswith('.npy') or name.startswith('cards') != (part == 'calibration'):
            continue
        pcm = np.load(path('data', 'audio', name)).astype(np.float32) / 32768
        count = len(pcm) // 512
        padded = np.concatenate([np.zeros(64, np.float32), pcm])
        frames = np.stack([padded[512 * i:512 * i + 576] for i in range(count)])
        yield {'input': frames, 'h': np.zeros((1, 1, 128), np.float32), 'c': np.zeros((1, 1, 128), np.float32)}, None


def boxes(outputs):
    found = []
    for scores, raw, stride in ((outputs[0], outputs[2], 16), (outputs[1], outputs[3], 32)):
        side, count = 256 // stride, scores.shape[1]
        each = count // (side * side)
        for i in range(count):
            score = 1 / (1 + np.exp(-float(scores[0, i, 0]))) if scores[0, i, 0] > -50 else 0
            if score >= 0.5:
                x, y = (i % (each * side) // each + .5) * stride, (i // (each * side) + .5) * stride
                cx, cy, w, h = raw[0, i, :4] + [x, y, 0, 0]
                found.append((score, cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2))
    kept = []
    for box in sorted(found, key=lambda b: -b[0]):
        if all(iou(box, other) <= 0.3 for other in kept):
            kept.append(box)
    return kept


def iou(a, b):
    w, h = min(a[3], b[3]) - max(a[1], b[1]), min(a[4], b[4]) - max(a[2], b[2])
    if w <= 0 or h <= 0:
        return 0
    area = [max(0, c[3] - c[1]) * max(0, c[4] - c[2]) for c in (a, b)]
    return w * h / (sum(area) - w * h)


def box_agreement(reference, candidate):
    pairs = total = 0
    for r, c in zip(reference, candidate):
        a, b = boxes(r), boxes(c)
        near = sorted(((iou(x, y), i, j) for i, x in enumerate(a) for j, y in enumerate(b) if iou(x, y) >= 0.5), reverse=True)
        taken = set()
        for _, i, j in near:
            if ('a', i) not in taken and ('b', j) not in taken:
                taken |= {('a', i), ('b', j)}
                pairs += 1
        total += len(a) + len(b)
    return 2 * pairs / total if total else 1


def sqnr(reference, candidate):
    worst = np.inf
    for k in range(len(reference[0])):
        r = np.concatenate([x[k].ravel() for x in reference]).astype(np.float64)
        c = np.concatenate([x[k].ravel() for x in candidate]).astype(np.float64)
        worst = min(worst, 10 * np.log10((r ** 2).sum() / max(((r - c) ** 2).sum(), 1e-300)))
    return worst


MEAN, STD = np.float32([.485, .456, .406]), np.float32([.229, .224, .225])
MODELS = {
    'ocr': ('ocr/ppocrv4_rec.onnx', ocr, lambda r, c, labels: ('cer', cer(c, labels))),
    'silero': ('silero/silero_vad_16k_sequence.onnx', silero,
               lambda r, c, _: ('frame_agreement', np.mean(np.concatenate([(x[0] > .5) == (y[0] > .5) for x, y in zip(r, c)])))),
    'blazeface': ('blazeface/blazeface_back_256.onnx',
                  lambda part: (({'input:0': x}, None) for x in photos(part, (256, 256), lambda x: x / np.float32(127.5) - 1)),
                  lambda r, c, _: ('box_agreement', box_agreement(r, c))),
    'efficientnet': ('efficientnet/efficientnet_lite0.onnx',
                     lambda part: (({'image': x}, None) for x in photos(part, (224, 224), lambda x: ((x / 255 - MEAN) / STD)
                                                                        .transpose(2, 0, 1).copy())),
                     lambda r, c, _: ('top1_agreement', np.mean([x[0].argmax() == y[0].argmax() for x, y in zip(r, c)]))),
    'mlsd': ('mlsd/mlsd_512x512_large.onnx',
             lambda part: (({'input_image_with_alpha:0': np.concatenate([x, np.ones_like(x[..., :1])], 3)}, None)
                           for i, x in enumerate(photos(part, (512, 512), lambda x: x)) if i < 32),
             lambda r, c, _: ('output_cosine', min(np.mean([float((x[k] * y[k]).sum() / np.linalg.norm(x[k]) / np.linalg.norm(y[k]))
                                                            for x, y in zip(r, c)]) for k in range(2)))),
}


class Reader(CalibrationDataReader):
    def __init__(self, items):
        self.items = iter(items)

    def get_next(self):
        return next(self.items, None)


def run(model, inputs, states):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs() if output.name not in states]
    return [session.run(names, x) for x in inputs]


def main():
    for name in sys.argv[2:] or MODELS:
        file, data, judge = MODELS[name]
        test = list(data('test'))
        inputs, labels = [x for x, _ in test], [label for _, label in test]
        states = ('hn', 'cn') if name == 'silero' else ()
        reference = run(path('models', file), inputs, states)
        print(name, 'float', *judge(reference, reference, labels), flush=True)
        with tempfile.TemporaryDirectory() as place:
            source, prepared, out = os.path.join(place, 'source.onnx'), os.path.join(place, 'prepared.onnx'), os.path.join(place, 'out.onnx')
            model = onnx.load(path('models', file))
            if next(opset.version for opset in model.opset_import if not opset.domain) < 13:
                model = onnx.version_converter.convert_version(model, 17)
            onnx.save(model, source)
            try:
                quant_pre_process(source, prepared, skip_symbolic_shape=True)
            except Exception as error:  # what the peer cannot do is part of the answer
                print(name, 'quant_pre_process failed:', str(error)[:200])
                prepared = source
            for method in (CalibrationMethod.MinMax, CalibrationMethod.Percentile, CalibrationMethod.Entropy):
                if method.name not in os.environ.get('METHODS', method.name):
                    continue
                for kind, symmetric in ((QuantType.QInt8, True), (QuantType.QUInt8, False)):
                    what = f'{method.name} {"symmetric INT8" if symmetric else "UINT8"}'
                    try:
                        quantize_static(prepared, out, Reader(x for x, _ in data('calibration')), quant_format=QuantFormat.QDQ,
                                        per_channel=True, activation_type=kind, weight_type=QuantType.QInt8,
                                        calibrate_method=method, extra_options={'ActivationSymmetric': symmetric})
                        candidate = run(out, inputs, states)
                        print(name, what, *judge(reference, candidate, labels), f'SQNR {sqnr(reference, candidate):.2f} dB', flush=True)
                    except Exception as error:
                        print(name, what, 'failed:', str(error).splitlines()[0][:200], flush=True)


main()
