"""A long run is interrupted, killed and taken up again: what is printed to go on, and the same bytes at the end."""
import os
import signal
import subprocess
import time

from walk import PARE, check, done, pare, step, workplace

from harness import RECIPE, SMALL

FILES = ('model.onnx', 'statistics.h5', 'recipe.yaml')


def content(run):
    return {name: open(os.path.join(run, name), 'rb').read() for name in FILES}


def stopped(arguments, folder, run, how, behind):
    """Starts pare and sends it a signal as soon as `behind` stands in the run's journal."""
    process = subprocess.Popen([PARE, *arguments, '--out', run], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = os.path.join(folder, run, 'journal.jsonl')
    for _ in range(6000):
        if process.poll() is not None:
            break
        if os.path.exists(journal) and behind in open(journal, encoding='utf-8').read():
            process.send_signal(how)
            break
        time.sleep(0.01)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


with workplace() as folder:
    recipe = ['run', RECIPE, *SMALL]
    here = {'cwd': folder}
    step('in one go', [*recipe, '--out', 'whole'], 0, **here)

    # Ctrl-C: exit code 130, and the message says how to go on.
    code, out, err = stopped(recipe, folder, 'cut', signal.SIGINT, '"calibrate"')
    check(code == 130, 'interrupted: exit code', code, err)
    check('--resume' in err and 'cut' in err, 'interrupted: how to go on', err)
    step('as if nothing had been', [*recipe, '--out', 'cut'], 2, '--resume', '--force', **here)
    step('with another recipe', [*recipe, '--out', 'cut', '--resume', '--set', 'datasets.test.samples=32'], 2, 'datasets.test.samples (64, now 32)', **here)
    step('go on', [*recipe, '--out', 'cut', '--resume'], 0, absent=('calibrate: collect',), **here)

    # kill -9 while it quantizes.
    code, out, err = stopped(recipe, folder, 'killed', signal.SIGKILL, '"calibrate"')
    check(code == -signal.SIGKILL, 'killed', code, err)
    step('go on after a kill', [*recipe, '--out', 'killed', '--resume'], 0, **here)
    for run in ('cut', 'killed'):
        check(content(os.path.join(folder, run)) == content(os.path.join(folder, 'whole')), f'{run}: the same bytes')
    step('nothing left to do', [*recipe, '--out', 'cut', '--resume'], 0, 'audit  passed', absent=('evaluate: ',), **here)

    # Killed before anything was done: the folder is no obstacle.
    process = subprocess.Popen([PARE, *recipe[:2], *SMALL, '--set', 'datasets.calibration.samples=4000', '--out', 'long'], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.kill()
    process.communicate()
    check(pare('run', RECIPE, *SMALL, '--out', 'long', '--force', **here).code == 0, 'a run that was killed at once can be begun again')
done()
