"""`cmake --install`: the prefix may be moved and may have any name, find_package(pare) works from it, and nothing in it
names the folders where it was built.

  install_test.py BUILD_FOLDER        (a build with -DPARE_SDK=ON)
"""
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ['PARE_SOURCE_DIR']
MODEL = os.path.join(SOURCE, 'examples/fashion/resnet.onnx')


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f'{" ".join(command)}\nexited with {done.returncode}:\n{done.stdout}{done.stderr}')
    return done.stdout


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        first, prefix = os.path.join(folder, 'first'), os.path.join(folder, 'moved über prefix')
        run('cmake', '--install', build, '--prefix', first)
        shutil.move(first, prefix)
        pare = os.path.join(prefix, 'bin/pare')
        version = open(os.path.join(SOURCE, 'VERSION')).read().strip()
        assert version in run(pare, '--version'), run(pare, '--version')
        if os.path.exists(os.path.join(build, 'lib/pare_cuda.so')):  # found from the new place, whether a GPU is there or not
            doctor = run(pare, 'doctor', env={**os.environ, 'PATH': '/usr/bin:/bin'})
            assert 'pare_cuda.so is neither' not in doctor, doctor
        for name in ('graphsurgeon/load.h', 'engine/run/session.h', 'quant/placement/placement.h'):
            assert os.path.exists(os.path.join(prefix, 'include/pare', name)), name
        for path in (pare, *(os.path.join(top, name) for top, _, names in os.walk(os.path.join(prefix, 'lib')) for name in names
                             if name.endswith('.cmake'))):
            with open(path, 'rb') as file:
                assert os.path.abspath(build).encode() not in file.read(), f'{path} names the folder of the build'

        other = os.path.join(folder, 'program')
        run('cmake', '-G', 'Ninja', '-S', os.path.join(SOURCE, 'examples/library'), '-B', other, f'-DCMAKE_PREFIX_PATH={prefix}')
        run('cmake', '--build', other)
        program = os.path.join(other, 'run_model')
        assert run(program, MODEL).strip() == '[1,10]', run(program, MODEL)
        missing = subprocess.run([program, 'nothing.onnx'], capture_output=True, text=True)
        assert missing.returncode == 3 and 'nothing.onnx' in missing.stderr, missing
    print('1 passed, 0 failed')


main()
