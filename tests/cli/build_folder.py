"""A build folder with a space and a letter beyond ASCII in its path: what CMake learns of HDF5 by compiling there (h5cc, a script,
fails) is found otherwise, and a program links. The whole build is not repeated: cmake/hdf5.cmake and what it names are."""
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ['PARE_SOURCE_DIR']
PROJECT = f"""cmake_minimum_required(VERSION 3.22)
project(hdf5_alone C CXX)
include({SOURCE}/cmake/hdf5.cmake)
add_executable(opens opens.c)
set_target_properties(opens PROPERTIES LINKER_LANGUAGE CXX)
target_include_directories(opens PRIVATE ${{HDF5_C_INCLUDE_DIRS}})
target_link_libraries(opens ${{PARE_HDF5}})
"""
PROGRAM = '#include <hdf5.h>\nint main(void) { return H5open() < 0 || !H5Zfilter_avail(H5Z_FILTER_DEFLATE); }\n'


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{" ".join(command)}\nexited with {done.returncode}:\n{done.stdout}{done.stderr}')


with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, 'zwei Gänge')
    os.mkdir(source)
    os.symlink(os.path.join(SOURCE, 'datasets'), os.path.join(source, 'datasets'))
    for name, text in (('CMakeLists.txt', PROJECT), ('opens.c', PROGRAM)):
        with open(os.path.join(source, name), 'w', encoding='utf-8') as file:
            file.write(text)
    build = os.path.join(source, 'build')
    run('cmake', '-G', 'Ninja', '-S', source, '-B', build)
    run('cmake', '--build', build)
    run(os.path.join(build, 'opens'))
print('1 passed, 0 failed')
