#!/usr/bin/env python3
"""The rules of the house that a compiler does not check. Standard library only.

    tests/lint/lint.py               check the tree; one line a finding, exit 1 if there are any
    tests/lint/lint.py --self-test   check that every rule fires on a bad sample and not on a good one
    tests/lint/lint.py --list        name the rules

A rule is a function (path, text, tree) -> [(line, message)] in RULES, and has samples in SELF_TEST. The tables at
the top are the only place that says which folder may include which, and which file may include a heavy header.
"""
import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# folder: the folders it may include, besides itself. docs/architecture.md says what each is for.
ENGINE = ['engine/base', 'engine/numeric', 'engine/ir', 'engine/ops', 'engine/run', 'engine/build']
BELOW_QUANT = ENGINE + ['graphsurgeon', 'datasets', 'calib']
QUANT = ['quant/grid', 'quant/rounding', 'quant/placement', 'quant', 'quant/transform']
BELOW_RECIPES = BELOW_QUANT + QUANT + ['eval']
RECIPES = ['recipes/grammar', 'recipes/quantize', 'recipes/blocks', 'recipes/checkpoint', 'recipes/study']
MAY_INCLUDE = {
    'engine/base': [],
    'engine/numeric': ENGINE[:1],
    'engine/ir': ENGINE[:2],
    'engine/ops': ENGINE[:3],
    'engine/run': ENGINE[:4],
    'engine/build': ENGINE[:5],
    'engine/cuda': ENGINE,
    'graphsurgeon': ENGINE,
    'datasets': ENGINE,
    'calib': ENGINE + ['graphsurgeon', 'datasets'],
    'quant/grid': BELOW_QUANT,
    'quant/rounding': BELOW_QUANT + QUANT[:1],
    'quant/placement': BELOW_QUANT + QUANT[:2],
    'quant': BELOW_QUANT + QUANT[:3],
    'quant/transform': BELOW_QUANT + QUANT[:4],
    'eval': ENGINE + ['graphsurgeon', 'datasets'],  # never quant or calib: the judge shares no code with the judged
    'recipes/grammar': BELOW_RECIPES,
    'recipes/quantize': BELOW_RECIPES + RECIPES[:1],
    'recipes/blocks': BELOW_RECIPES + RECIPES[:2],
    'recipes/checkpoint': BELOW_RECIPES + RECIPES[:2],
    'recipes/study': BELOW_RECIPES + RECIPES[:2],
    'recipes': BELOW_RECIPES + RECIPES,
    'cli': BELOW_RECIPES + RECIPES + ['recipes'],
}

# Rooms inside of a folder: the rooms beside it that each may include; '.' is what lies in the folder itself, which may
# include all of its rooms.
ROOMS = {
    'engine/ops/elementwise': ['.'],
    'engine/ops/movement': ['.', 'elementwise'],
    'engine/ops/axis': ['.', 'elementwise'],
    'engine/ops/images': ['.', 'movement', 'axis'],
    'engine/ops/matmul': ['.', 'movement'],
    'engine/ops/conv': ['.', 'matmul'],
    'engine/ops/integer': ['.'],
    'engine/ops/sequence': ['.', 'elementwise', 'axis', 'matmul'],
    'engine/ops/features': ['.'],
    'engine/build/lower': [],
    'engine/build/plan': ['lower'],
    'graphsurgeon/passes': [],
    'graphsurgeon/onnx': ['passes'],
    'graphsurgeon/onnx/raise': [],
    'graphsurgeon/checkpoint': [],
    'graphsurgeon/families': ['checkpoint'],
    'graphsurgeon/gguf': ['checkpoint', 'families'],
    'graphsurgeon/forms': ['.', 'checkpoint', 'gguf'],
    'graphsurgeon/verbs': ['.', 'passes', 'onnx'],
}

# (what is included in <> or "", the files that may, why)
FENCED = [
    (r'CLI/', ['cli/args.cpp', 'cli/app.cpp'], '4 s of compile time a file'),
    (r'Eigen/|unsupported/Eigen/', ['quant/rounding/linalg.cpp'], '3 s and more a file'),
    (r'onnx/|google/protobuf/', ['graphsurgeon/onnx/*.cpp', 'graphsurgeon/onnx/*.h', 'tests/unit/graphsurgeon/*.cpp'],
     'only graphsurgeon/onnx knows protobuf'),
    (r'hdf5\.h|H5', ['datasets/hdf5*.cpp', 'calib/statistics_file.cpp', 'tests/unit/datasets/*.cpp'],
     'the C library is not hardened'),
    (r'nlohmann/json_fwd\.hpp', ['engine/base/json_fwd.h'], 'one place knows the rules of JSON'),
    (r'nlohmann/', ['engine/base/json.h', 'engine/base/json_fwd.h'], 'one place knows the rules of JSON'),
    (r'engine/base/json\.h', ['*.cpp'], 'headers include json_fwd.h'),
    (r'yaml-cpp/', ['recipes/grammar/yaml_parse.cpp'], 'one walker checks duplicate and unknown keys'),
    (r'dnnl|oneapi/', [], 'its results depend on batch and threads: docs/dependencies.md'),
    (r'jpeglib\.h|png\.h', ['datasets/*.cpp', 'tests/unit/datasets/*.cpp'], 'images are read by datasets'),
    (r'pcre2\.h', ['datasets/text/pattern_pcre2.cpp'], 'a machine without it builds a stub'),
    (r'utf8proc\.h', ['datasets/text/unicode_forms_utf8proc.cpp'], 'a machine without it builds a stub'),
    (r'zlib\.h', ['datasets/*.cpp', 'tests/unit/datasets/*.cpp'], 'archives are read by datasets'),
    (r'openssl/', ['engine/base/sha256.cpp', 'engine/base/sha1.cpp'], 'hashes are made by engine/base/sha256.h'),
    (r'filesystem$', ['engine/base/paths.cpp', 'tests/*.cpp'], 'use engine/base/paths.h'),
    (r'iostream$|regex$|ranges$', ['tests/*.cpp', 'engine/base/name_pattern.cpp'], 'compile time; use fmt and plain loops'),
    (r'format$|source_location$|expected$', [], 'gcc 12 or clang 14 lack it'),
    (r'immintrin\.h|x86intrin\.h', ['*.cpp', '*_simd.h', 'engine/ops/simd.h'], 'vector code stays in kernels'),
]

CODE = ('.cpp', '.h', '.inc', '.cu', '.cuh')
TEXT = CODE + ('.py', '.sh', '.cmake', '.yaml', '.yml', '.md', '.txt')
SKIP_FOLDERS = {'.git', 'build', 'runs', '.carry', '__pycache__', 'corpus'}
REFUSE_LINES, REVIEW_LINES = 800, 400
CLANG_FORMAT = '14'


def is_code(path):
    return path.endswith(CODE)


def in_library(path):
    return is_code(path) and path.split('/')[0] not in ('cli', 'examples', 'tests')


def folder_of(path):
    """The row of MAY_INCLUDE that a path belongs to, or None."""
    parts = path.split('/')
    for key in ('/'.join(parts[:2]), parts[0]):
        if key in MAY_INCLUDE:
            return key
    return None


def without_comments(text):
    """The code with comments and the insides of strings blanked; lines stay where they are."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        found = match.group(0)
        if found.startswith("'") and match.start() > 0 and text[match.start() - 1].isalnum():
            return found  # a digit separator: 1'000
        return '""' + '\n' * found.count('\n') if found[0] in '"R' else '\n' * found.count('\n')

    return pattern.sub(blank, text)


def matches(pattern, text, message):
    return [(text.count('\n', 0, m.start()) + 1, message.format(m.group(0).strip()))
            for m in re.finditer(pattern, text)]


def includes(text):
    for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
        yield text.count('\n', 0, m.start()) + 1, m.group(1), m.group(2)


def rule_include_direction(path, text, tree):
    if not is_code(path):
        return []
    findings = []
    own = folder_of(path)
    for line, quote, name in includes(text):
        target = folder_of(name)
        if quote == '"' and name not in tree:
            findings.append((line, f'"{name}" is not a path from the root of the tree'))
        elif own and target and target != own and target not in MAY_INCLUDE[own]:
            findings.append((line, f'{own} may not include {target} ("{name}")'))
        elif own and name.startswith('tests/'):
            findings.append((line, f'{own} may not include tests ("{name}")'))
        room, other = os.path.dirname(path), os.path.dirname(name)
        if room in ROOMS and room != other and other in (os.path.dirname(room), *ROOMS) and \
                os.path.dirname(room) in (other, os.path.dirname(other)) and \
                ('.' if os.path.dirname(room) == other else os.path.basename(other)) not in ROOMS[room]:
            findings.append((line, f'{room} may not include {other} ("{name}")'))
    return findings


def rule_fenced_header(path, text, tree):
    if not is_code(path):
        return []
    findings = []
    for line, _, name in includes(text):
        for pattern, allowed, why in FENCED:
            if re.match(pattern, name):
                if not any(fnmatch.fnmatch(path, a) for a in allowed):
                    findings.append((line, f'<{name}> is fenced ({why}); allowed in: {", ".join(allowed) or "no file"}'))
                break
    return findings


def rule_file_length(path, text, tree):
    lines = text.count('\n')
    if not path.endswith(CODE + ('.py', '.cmake')) or lines <= REFUSE_LINES:
        return []
    return [(lines, f'{lines} lines, more than {REFUSE_LINES}: split it')]


def rule_library_prints_or_exits(path, text, tree):
    if not in_library(path):
        return []
    pattern = (r'\bstd::(cout|cerr|clog)\b|(?<![\w.>])(?:std::|::)?(printf|fprintf|puts|putchar|perror|exit|abort|'
               r'quick_exit|terminate|assert)\s*\(|\bfmt::print\b')
    return matches(pattern, without_comments(text), '{}: a library throws Error; it never prints, aborts or exits')


def rule_bare_json_dump(path, text, tree):
    if not is_code(path) or path == 'engine/base/json.cpp':
        return []
    return matches(r'(?:\.|->)dump\s*\(', without_comments(text), '{}: use pare::dump of engine/base/json.h')


def rule_tab(path, text, tree):
    if not path.endswith(TEXT):
        return []
    return matches(r'\t', text, 'a tab')


def rule_trailing_space(path, text, tree):
    if not path.endswith(TEXT):
        return []
    return matches(r'[ \r]+\n', text, 'space at the end of the line')


def rule_not_in_cmake(path, text, tree):
    if not path.endswith(('.cpp', '.cu')):
        return []
    folder = os.path.dirname(path)
    while True:
        lists = tree.get(os.path.join(folder, 'CMakeLists.txt'), '')
        name = os.path.relpath(path, folder or '.')
        # "a.cpp", or a pare_fuzz_target(a ...) that stands for a_fuzz.cpp
        if re.search(r'(?<![\w/.])' + re.escape(name) + r'(?![\w.])', lists):
            return []
        if name.endswith('_fuzz.cpp') and re.search(r'pare_fuzz_target\(' + re.escape(name[:-9]) + r'\b', lists):
            return []
        if not folder:
            return [(1, 'is in no CMakeLists.txt of its folder or of those above')]
        folder = os.path.dirname(folder)


def rule_pragma_once(path, text, tree):
    if not path.endswith(('.h', '.cuh')) or re.search(r'^#pragma once$', text, re.M):
        return []
    return [(1, 'a header without #pragma once')]


def rule_fast_math(path, text, tree):
    if not path.endswith(('CMakeLists.txt', '.cmake')):
        return []
    code = re.sub(r'#[^\n]*', '', text)
    return matches(r'-f(fast-math|associative-math|unsafe-math-optimizations|reciprocal-math|finite-math-only)|'
                   r'-ffp-contract=(fast|on)|-Ofast|--use_fast_math', code, '{} changes results')


# What a build looks for: the package that scripts/install-deps must install for it, or None where a machine may lack it.
PACKAGE_OF = {
    'benchmark': 'libbenchmark-dev', 'CLI11': 'libcli11-dev', 'Eigen3': 'libeigen3-dev', 'fmt': 'libfmt-dev',
    'GTest': 'libgtest-dev', 'HDF5': 'libhdf5-dev', 'JPEG': 'libjpeg-dev', 'nlohmann_json': 'nlohmann-json3-dev',
    'OpenSSL': 'libssl-dev', 'PNG': 'libpng-dev', 'Protobuf': 'libprotobuf-dev', 'Python3': 'python3',
    'yaml-cpp': 'libyaml-cpp-dev', 'ZLIB': 'zlib1g-dev', 'Threads': None, 'pare': None,
}


def rule_package_installed(path, text, tree):
    if not path.endswith(('CMakeLists.txt', '.cmake')):
        return []
    findings = []
    for m in re.finditer(r'^\s*find_package\(([\w-]+)', text, re.M):
        line, package = text.count('\n', 0, m.start()) + 1, PACKAGE_OF.get(m.group(1), '')
        if package == '':
            findings.append((line, f'{m.group(1)} has no package in PACKAGE_OF of tests/lint/lint.py'))
        elif package and not re.search(r'(?<![\w-])' + re.escape(package) + r'(?![\w-])', tree.get('scripts/install-deps', '')):
            findings.append((line, f'scripts/install-deps does not install {package}'))
    return findings


# Where a mistake in what was asked for is found: the command line, the recipe, the data.
ASKED = ('cli/', 'recipes/', 'datasets/', 'calib/', 'quant/', 'graphsurgeon/verbs/')


def rule_usage_error_without_hint(path, text, tree):
    if not path.endswith('.cpp') or not path.startswith(ASKED):
        return []
    findings = []
    code = without_comments(text)
    for m in re.finditer(r'\b(?:fail|make_error)\(\s*ErrorCode::kUsage\b', code):
        statement = code[m.start():code.find(';', m.end())]
        # A variable gets its hint in the lines below.
        named = re.search(r'Error (\w+) =\s*$|return\s*$', code[:m.start()])
        later = code[m.start():m.start() + 900] if named else ''
        if '.hint(' not in statement and '.hint(' not in later:
            findings.append((code.count('\n', 0, m.start()) + 1, 'an error of usage says what to do: make_error(...).hint("...")'))
    return findings


def rule_unfinished_mark(path, text, tree):
    if not is_code(path):
        return []
    return matches(r'\b(TODO|FIXME|XXX)\b', text, '{}: finish it, or say in words what is left out and why')


RULES = {name[5:].replace('_', '-'): function for name, function in sorted(globals().items())
         if name.startswith('rule_')}

# rule: (path, text, other files of the tree) that must fire, then that must not.
SELF_TEST = {
    'include-direction': (
        [('engine/ir/a.cpp', '#include "engine/ops/b.h"\n', {'engine/ops/b.h': ''}),
         ('eval/a.cpp', '#include "quant/b.h"\n', {'quant/b.h': ''}),
         ('datasets/a.h', '#include "graphsurgeon/b.h"\n', {'graphsurgeon/b.h': ''}),
         ('quant/a.cpp', '#include "b.h"\n', {'quant/b.h': ''}),
         ('calib/a.cpp', '#include "tests/unit/b.h"\n', {'tests/unit/b.h': ''}),
         ('engine/ops/axis/a.cpp', '#include "engine/ops/conv/b.h"\n', {'engine/ops/conv/b.h': ''}),
         ('graphsurgeon/onnx/a.cpp', '#include "graphsurgeon/b.h"\n', {'graphsurgeon/b.h': ''})],
        [('engine/ops/conv/a.cpp', '#include "engine/ops/matmul/b.h"\n#include "engine/ops/c.h"\n',
          {'engine/ops/matmul/b.h': '', 'engine/ops/c.h': ''}),
         ('engine/ops/a.cpp', '#include "engine/ops/conv/b.h"\n', {'engine/ops/conv/b.h': ''}),
         ('engine/ops/a.cpp', '#include "engine/ir/b.h"\n#include <vector>\n', {'engine/ir/b.h': ''}),
         ('tests/unit/a.cpp', '#include "quant/b.h"\n', {'quant/b.h': ''}),
         ('recipes/a.cpp', '#include "eval/b.h"\n', {'eval/b.h': ''})]),
    'fenced-header': (
        [('cli/cmd_run.cpp', '#include <CLI/CLI.hpp>\n', {}),
         ('quant/rounding/gptq.cpp', '#  include <Eigen/Dense>\n', {}),
         ('recipes/a.h', '#include "engine/base/json.h"\n', {}),
         ('engine/base/tensor.h', '#include <filesystem>\n', {}),
         ('engine/base/a.cpp', '#include <format>\n', {}),
         ('graphsurgeon/a.cpp', '#include <onnx/onnx_pb.h>\n', {})],
        [('cli/args.cpp', '#include <CLI/CLI.hpp>\n', {}),
         ('graphsurgeon/onnx/reader.cpp', '#include <onnx/onnx_pb.h>\n', {}),
         ('recipes/a.cpp', '#include "engine/base/json.h"\n', {}),
         ('engine/base/a.cpp', '#include <fmt/format.h>\n', {})]),
    'file-length': (
        [('engine/base/a.cpp', 'x\n' * 801, {}), ('tests/a.py', 'x\n' * 801, {})],
        [('engine/base/a.cpp', 'x\n' * 800, {}), ('README.md', 'x\n' * 801, {})]),
    'library-prints-or-exits': (
        [('quant/a.cpp', 'std::cout << 1;\n', {}), ('eval/a.cpp', 'printf("x");\n', {}),
         ('calib/a.cpp', 'if (x) std::abort();\n', {}), ('engine/run/a.cpp', '  ::exit(1);\n', {}),
         ('recipes/a.cpp', 'fmt::print("x");\n', {}), ('engine/ops/a.cpp', 'assert(x);\n', {})],
        [('cli/main.cpp', 'fmt::print("x"); exit(1);\n', {}),
         ('quant/a.cpp', '// exit(1)\nconst char* s = "exit(1) /*"; log.exit(1); static_assert(x); snprintf(b, 1, "");\n',
          {}),
         ('datasets/a.cpp', '::_exit(0);  // of a child process\n', {})]),
    'bare-json-dump': (
        [('recipes/a.cpp', 'return value.dump();\n', {}), ('cli/a.cpp', 'x->dump (2);\n', {})],
        [('engine/base/json.cpp', 'value.dump(2)\n', {}), ('cli/a.cpp', 'dump(value); // value.dump()\n', {})]),
    'tab': ([('docs/a.md', 'a\tb\n', {})], [('docs/a.md', 'a b\n', {}), ('a.bin', '\t', {})]),
    'trailing-space': ([('docs/a.md', 'a \n', {}), ('a.py', 'a\r\n', {})], [('docs/a.md', 'a\n', {})]),
    'not-in-cmake': (
        [('engine/base/a.cpp', '', {'engine/base/CMakeLists.txt': 'add_library(x ab.cpp a.cpp.in)'}),
         ('tests/fuzz/npy_fuzz.cpp', '', {'tests/fuzz/CMakeLists.txt': 'pare_fuzz_target(npyx)'})],
        [('engine/base/a.cpp', '', {'engine/base/CMakeLists.txt': 'add_library(x\n  a.cpp)'}),
         ('engine/ops/onednn/a.cpp', '', {'engine/ops/CMakeLists.txt': 'onednn/a.cpp'}),
         ('tests/fuzz/npy_fuzz.cpp', '', {'tests/fuzz/CMakeLists.txt': 'pare_fuzz_target(npy LIBS x)'})]),
    'package-installed': (
        [('quant/CMakeLists.txt', 'find_package(Eigen3 REQUIRED)\n', {'scripts/install-deps': 'libeigen3-dev-x cmake'}),
         ('a/CMakeLists.txt', '  find_package(Unheard)\n', {'scripts/install-deps': ''})],
        [('quant/CMakeLists.txt', 'find_package(Eigen3 REQUIRED)\n', {'scripts/install-deps': 'cmake libeigen3-dev\n'}),
         ('CMakeLists.txt', 'find_package(Threads REQUIRED)\n', {})]),
    'pragma-once': ([('a.h', 'int x;\n', {})], [('a.h', '// x\n#pragma once\n', {}), ('a.cpp', '', {})]),
    'fast-math': (
        [('CMakeLists.txt', 'add_compile_options(-ffast-math)\n', {}), ('cmake/a.cmake', 'x(-ffp-contract=fast)\n', {})],
        [('CMakeLists.txt', '# -ffast-math is refused\nadd_compile_options(-ffp-contract=off)\n', {})]),
    'usage-error-without-hint': (
        [('cli/a.cpp', 'fail(ErrorCode::kUsage, "x; {}", 1);\n', {}),
         ('datasets/a.cpp', 'throw make_error(ErrorCode::kUsage, "x")\n    .at(path);\n', {})],
        [('cli/a.cpp', 'throw make_error(ErrorCode::kUsage, "x;")\n    .hint("y");\n', {}),
         ('recipes/a.cpp', 'Error error = make_error(ErrorCode::kUsage, "x");\nerror.hint("y");\n', {}),
         ('engine/a.cpp', 'fail(ErrorCode::kUsage, "x");\n', {}), ('cli/b.cpp', 'fail(ErrorCode::kBadFile, "x");\n', {})]),
    'unfinished-mark': ([('engine/base/a.cpp', '// TODO: later\n', {})], [('engine/base/a.cpp', '// done\n', {})]),
}


def load_tree():
    tree = {}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders
                      if f not in SKIP_FOLDERS or (f == 'build' and folder != ROOT)]  # engine/build is ours
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if path.endswith(TEXT) or path == 'scripts/install-deps':
                with open(os.path.join(ROOT, path), encoding='utf-8', newline='') as file:
                    tree[path] = file.read()
    return tree


def check_format(tree):
    """Findings of the pinned clang-format. Another version formats differently, so it is refused."""
    tool = shutil.which('clang-format-' + CLANG_FORMAT) or shutil.which('clang-format')
    if tool is None:
        return [f'clang-format {CLANG_FORMAT} is not installed (scripts/install-deps installs it)']
    version = subprocess.run([tool, '--version'], capture_output=True, text=True).stdout
    if not re.search(r'version ' + CLANG_FORMAT + r'\.', version):
        return [f'clang-format {CLANG_FORMAT} is needed, found: {version.strip()}']
    files = sorted(path for path in tree if is_code(path))
    run = subprocess.run([tool, '--dry-run', '--Werror', '--ferror-limit=1'] + files, cwd=ROOT, capture_output=True,
                         text=True)
    badly = sorted(set(re.findall(r'^(\S+?):\d+:\d+: error', run.stderr, re.M)))
    if run.returncode != 0 and not badly:
        return [f'clang-format failed: {run.stderr[:500]}']
    return [f'{path}: [format] run {os.path.basename(tool)} -i on it' for path in badly]


def check_tree(tree):
    findings = []
    for path, text in sorted(tree.items()):
        for name, rule in RULES.items():
            findings += [f'{path}:{line}: [{name}] {message}' for line, message in rule(path, text, tree)]
    return findings


def self_test():
    passed, failed = 0, []
    for name, rule in RULES.items():
        bad, good = SELF_TEST.get(name, ([], []))
        if not bad or not good:
            failed.append(f'{name}: needs samples that fire and samples that do not')
        for samples, wanted in ((bad, True), (good, False)):
            for path, text, others in samples:
                fired = bool(rule(path, text, {path: text, **others}))
                if fired == wanted:
                    passed += 1
                else:
                    failed.append(f'{name}: {"does not fire" if wanted else "fires"} on {path}: {text[:60]!r}')
    for line in failed:
        print(line)
    print(f'{passed} passed, {len(failed)} failed')
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--self-test', action='store_true')
    parser.add_argument('--list', action='store_true')
    arguments = parser.parse_args()
    if arguments.list:
        print('\n'.join(['format'] + list(RULES)))
        return 0
    if arguments.self_test:
        return self_test()
    tree = load_tree()
    findings = check_format(tree) + check_tree(tree)
    for finding in findings:
        print(finding)
    long_files = [(text.count('\n'), path) for path, text in tree.items()
                  if is_code(path) and text.count('\n') > REVIEW_LINES]
    for lines, path in sorted(long_files, reverse=True):
        print(f'note: {path} has {lines} lines; above {REVIEW_LINES} it is worth a look')
    print(f'{len(tree)} files checked, {len(findings)} findings')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main())
