"""What the command-line tests share: running pare as a user does, and checks that say what went wrong."""
import json
import os
import re
import subprocess
import sys
import tempfile

PARE = os.environ.get('PARE') or sys.exit('set PARE to the program')
SOURCE = os.environ.get('PARE_SOURCE_DIR') or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FASHION = os.path.join(SOURCE, 'examples', 'fashion')
RESNET = os.path.join(FASHION, 'resnet.onnx')
CHECKPOINT = os.path.join(SOURCE, 'tests', 'golden', 'families', 'llama')
RECIPE = os.path.join(FASHION, 'resnet-int8.yaml')
KEYS = 'layout=nhwc_to_nchw,scale=1/255,mean=0.2860,std=0.3530'
CALIBRATION = os.path.join(FASHION, 'fashion_calibration_images.npy')
TEST_IMAGES = os.path.join(FASHION, 'fashion_test_images.npy')
TEST_LABELS = os.path.join(FASHION, 'fashion_test_labels.npy')
# The recipe with little data: a run of two seconds.
SMALL = ['--set', 'datasets.calibration.samples=48', '--set', 'calibrate.holdout=16', '--set', 'datasets.test.samples=64',
         '--set', 'evaluate.layer_samples=8', '--set', 'evaluate.gates=[]']


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        """The one document on stdout."""
        assert self.out.endswith('\n'), 'no newline at the end of the document'
        return json.loads(self.out)


def pare(*arguments, env=None, cwd=None, timeout=600):
    merged = dict(os.environ, **(env or {}))
    done = subprocess.run([PARE, *map(str, arguments)], capture_output=True, env=merged, cwd=cwd, timeout=timeout)
    result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
    if result.code in (2, 3, 4, 5):
        for error in re.findall(r'^pare: (?!warning).*(?:\n(?!pare: ).*)*', result.err, re.M):
            check('\n  ' in error, 'an error says what to do', *arguments, error)
    return result


FAILURES = []


def check(condition, name, *details):
    if condition:
        return True
    FAILURES.append(name)
    print('FAILED', name)
    for detail in details:
        print('   ', str(detail)[:2000].replace('\n', '\n    '))
    return False


def finish(count):
    print(f'{count} checks, {len(FAILURES)} failed')
    sys.exit(1 if FAILURES else 0)


def workplace():
    return tempfile.TemporaryDirectory(prefix='pare-cli-')
