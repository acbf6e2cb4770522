"""Magika's input out of files: every second file by path (of at least 64 bytes) calibrates, the others test.

1,024 bytes from the front (leading white space stripped from the first 4,096 bytes, padded behind), then 1,024 from the
end (trailing white space stripped from the last 4,096, padded in front), as int32; 256 is padding.
"""
import argparse
import os

import numpy as np

HALF, BLOCK, PADDING = 1024, 4096, 256


def features(data):
    front = data[:BLOCK].lstrip()[:HALF]
    back = data[-BLOCK:].rstrip()[-HALF:]
    row = np.full(2 * HALF, PADDING, np.int32)
    row[:len(front)] = np.frombuffer(front, np.uint8)
    row[2 * HALF - len(back):] = np.frombuffer(back, np.uint8)
    return row


def files(folders):
    for folder in folders:
        for root, below, names in os.walk(folder):
            below[:] = sorted(name for name in below if not name.startswith('.') and name != 'build')
            for name in sorted(names):
                path = os.path.join(root, name)
                if os.path.isfile(path) and os.path.getsize(path) >= 64:
                    yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--calibration', required=True)
    parser.add_argument('--test', required=True)
    parser.add_argument('folders', nargs='+')
    args = parser.parse_args()
    rows = []
    for path in files(args.folders):
        with open(path, 'rb') as file:
            rows.append(features(file.read()))
    if len(rows) < 2:
        raise SystemExit('there are no files in these folders')
    for path, part in ((args.calibration, rows[0::2]), (args.test, rows[1::2])):
        np.save(path, np.stack(part))
        print(f'{path}: {len(part)} files')


if __name__ == '__main__':
    main()
