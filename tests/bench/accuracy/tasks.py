"""The models that docs/accuracy.md is about: their data as the recipes of examples/ read them, and their metrics.

A task gives calibration feeds, test feeds with labels, and judges outputs against those of the float model. The
peers of this folder are run on exactly these arrays; pare reads the same files by its recipe.
"""
import json
import os

import numpy as np

SHARED = os.environ.get('SHARED', '')
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'examples')


def shared(*parts):
    return os.path.join(SHARED, *parts)


def sqnr(reference, candidate):
    """dB of the worst output, all samples together."""
    worst = np.inf
    for k in range(len(reference[0])):
        r = np.concatenate([x[k].ravel() for x in reference]).astype(np.float64)
        c = np.concatenate([x[k].ravel() for x in candidate]).astype(np.float64)
        worst = min(worst, 10 * np.log10((r ** 2).sum() / max(((r - c) ** 2).sum(), 1e-300)))
    return worst


class Fashion:
    """Fashion-MNIST: 512 calibration images, 10,000 test images, top-1."""
    metric = 'top1'
    calibration_batch = 64

    def __init__(self, name):
        self.name = name
        self.model = os.path.join(EXAMPLES, 'fashion', f'{name}.onnx')
        self.recipe = os.path.join(EXAMPLES, 'fashion', f'{name}-int8.yaml')

    @staticmethod
    def images(name):
        raw = np.load(os.path.join(EXAMPLES, 'fashion', f'fashion_{name}_images.npy'))
        return ((raw.astype(np.float32) / 255 - np.float32(.2860)) / np.float32(.3530)).transpose(0, 3, 1, 2)

    def feeds(self, part):
        images = self.images('calibration' if part == 'calibration' else 'test')
        for i in range(0, 512 if part == 'calibration' else len(images), 64):
            yield {'image': np.ascontiguousarray(images[i:i + 64])}

    def judge(self, reference, outputs):
        labels = np.load(os.path.join(EXAMPLES, 'fashion', 'fashion_test_labels.npy')).ravel()
        return float(np.mean(np.concatenate([x[0].argmax(1) for x in outputs]) == labels))


class Ocr:
    """PP-OCRv4's recognizer: lines 0-99 calibrate, 100-499 judge, each cut to its width; character error rate."""
    name, metric = 'ocr', 'cer'
    calibration_batch = 1

    def __init__(self):
        self.model = shared('models', 'ocr', 'ppocrv4_rec.onnx')
        self.recipe = os.path.join(EXAMPLES, 'ocr', 'recognizer-int8.yaml')

    @staticmethod
    def labels():
        return json.load(open(shared('data', 'ocr_lines', 'labels.json')))

    def feeds(self, part):
        images, labels = np.load(shared('data', 'ocr_lines', 'images.npy'), mmap_mode='r'), self.labels()
        for i in range(*((0, 100) if part == 'calibration' else (100, 500))):
            x = images[i, :, :labels['width'][i]].astype(np.float32) * np.float32(1 / 255)
            yield {'x': ((x - np.float32(.5)) / np.float32(.5)).transpose(2, 0, 1)[None].copy()}

    def judge(self, reference, outputs):
        alphabet = [''] + open(shared('models', 'ocr', 'ppocr_keys_v1.txt'), encoding='utf-8').read().splitlines() + [' ']
        errors = count = 0
        for (probabilities,), text in zip(outputs, self.labels()['text'][100:500]):
            best = probabilities[0].argmax(1)
            got = ''.join(alphabet[c] for i, c in enumerate(best) if c and (i == 0 or best[i - 1] != c)).replace(' ', '')
            errors += distance(text.replace(' ', ''), got)
            count += len(text.replace(' ', ''))
        return errors / count


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row, before = [i + 1], row
        for j, y in enumerate(b):
            row.append(min(before[j + 1] + 1, row[j] + 1, before[j] + (x != y)))
    return row[-1]


class EfficientNet:
    """EfficientNet-Lite0 on 48 + 64 photos; the share of them with the float model's class."""
    name, metric = 'efficientnet', 'top1_agreement'
    calibration_batch = 1
    mean, std = np.float32([.485, .456, .406]), np.float32([.229, .224, .225])

    def __init__(self):
        self.model = shared('models', 'efficientnet', 'efficientnet_lite0.onnx')
        self.recipe = os.path.join(EXAMPLES, 'efficientnet', 'lite0-int8.yaml')

    def feeds(self, part):
        from PIL import Image
        folder = shared('data', 'photos', part)
        for name in sorted(os.listdir(folder)):
            image = Image.open(os.path.join(folder, name)).convert('RGB').resize((224, 224), Image.BILINEAR)
            x = (np.asarray(image, np.float32) / 255 - self.mean) / self.std
            yield {'image': x.transpose(2, 0, 1)[None].copy()}

    def judge(self, reference, outputs):
        return float(np.mean([x[0].argmax() == y[0].argmax() for x, y in zip(reference, outputs)]))


def has(out, task, tool, form, method):
    """Whether the file of rows has this one."""
    if not os.path.exists(out):
        return False
    with open(out, encoding='utf-8') as file:
        rows = [json.loads(line) for line in file]
    return any((r['task'], r['tool'], r['format'], r['method']) == (task, tool, form, method) for r in rows)


def append(out, row):
    print(json.dumps(row), flush=True)
    with open(out, 'a', encoding='utf-8') as file:
        file.write(json.dumps(row) + '\n')


def tasks(names):
    everything = {'resnet': lambda: Fashion('resnet'), 'mobilenet': lambda: Fashion('mobilenet'), 'vit': lambda: Fashion('vit'),
                  'ocr': Ocr, 'efficientnet': EfficientNet}
    return [everything[name]() for name in (names or everything)]
