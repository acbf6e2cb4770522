"""The recipes of examples/ whose models lie beside the checkout, each run as its first lines say (with fewer samples where
the whole would take minutes). Skipped, with a word, where the models are absent."""
import os
import subprocess
import sys

from harness import SOURCE, check, finish, pare, workplace

SHARED = os.environ.get('PARE_SHARED_DIR') or os.path.join(SOURCE, '..', 'shared')
FEW = ['--set', 'evaluate.layer_samples=0', '--set', 'quantize.method=search', '--set',
       'quantize.activations.calibrator=minmax']

# recipe, options, whether its gates hold, and what must come out: name -> (least, largest)
CASES = [
    ('ocr/recognizer-int8', ['--set', 'evaluate.layer_samples=0'], True, {'cer': (0, 0.0099)}),
    ('silero/sequence-int8', [], True, {'frame_agreement': (0.98, 1), 'max_abs': (0, 1)}),
    ('silero/v6-int8', [], True, {'frame_agreement': (0.99, 1), 'max_abs': (0, 1)}),
    ('blazeface/blazeface-int8', ['--set', 'evaluate.layer_samples=0'], True, {'box_agreement': (0.85, 1)}),
    ('efficientnet/lite0-int8', [*FEW, '--set', 'datasets.test.samples=8'], None,
     {'top1_agreement': (0.5, 1), 'output_sqnr_db': (10, 60)}),
    ('mlsd/mlsd-int8', [*FEW, '--set', 'datasets.calibration.samples=4', '--set', 'datasets.test.samples=2'], None,
     {'output_cosine': (0.3, 1)}),
    ('magika/magika-int8', [*FEW, '--set', 'datasets.test.samples=32'], None, {'top1_agreement': (0.9, 1)}),
]


def main():
    if not os.path.exists(os.path.join(SHARED, 'models', 'README.md')):
        print(f'skipped: no models at {SHARED}')
        return
    count = 0
    with workplace() as place:
        arrays = [os.path.join(place, name) for name in ('calibration.npy', 'test.npy')]
        subprocess.run([sys.executable, os.path.join(SOURCE, 'examples', 'magika', 'features.py'), '--calibration', arrays[0],
                        '--test', arrays[1], os.path.join(SOURCE, 'docs'), os.path.join(SOURCE, 'cli'),
                        os.path.join(SOURCE, 'tests')], check=True, stdout=subprocess.DEVNULL)
        for name, options, gates, wanted in CASES:
            more = ['--set', f'CALIBRATION={arrays[0]}', '--set', f'TEST={arrays[1]}'] if 'magika' in name else []
            result = pare('run', os.path.join(SOURCE, 'examples', name + '.yaml'), '--set', f'SHARED={SHARED}', *more,
                          *options, '--out', os.path.join(place, name.replace('/', '-')), '--json')
            count += 1
            if not check(result.code == 0 if gates else result.code in (0, 1), f'{name}: exit code', result.err):
                continue
            document = result.json()
            check(document['audit']['passed'], f'{name}: audit')
            for metric, (least, largest) in wanted.items():
                count += 1
                value = document['metrics'][metric]
                check(least <= value <= largest, f'{name}: {metric}', value)
            if 'cer' in wanted:
                count += 1
                float_rate = document['reference']['cer']
                check(abs(float_rate - 35 / 5072) < 1e-12, f'{name}: the float model makes 35 errors', float_rate)
                count += 1
                # Within 10 characters of 5,072: integer kernels that are fed with ever new widths compute the same.
                integer = document['metrics_integer']['cer']
                check(abs(integer - document['metrics']['cer']) < 0.002, f'{name}: integer kernels', integer)
    finish(count)


main()
