#!/usr/bin/env python3
"""What ggml makes of floats: encoded.json.

    tests/golden/gguf/make_encode.py            needs gguf and numpy

For each type the SHA-256 of the bytes of 1,000 blocks: Q4_0, Q4_1 and Q8_0 by the gguf package, Q4_K by the steps of
quantize_row_q4_K_ref (ggml-quants.c) written out in numpy's float32. Values: int16 numbers of splitmix64 (make.py,
seed 11) times 2^-13; every tenth block of 32 is zeros, every seventh non-negative.
"""
import hashlib
import json
import os

import gguf
import numpy as np

from make import random_bytes

HERE = os.path.dirname(os.path.abspath(__file__))
F = np.float32


def values(count):
    x = random_bytes(11, 2 * count).view(np.int16).astype(F) * F(2.0 ** -13)
    runs = x.reshape(-1, 32)
    for i in range(len(runs)):
        if i % 10 == 9:
            runs[i] = 0
        elif i % 7 == 6:
            runs[i] = np.abs(runs[i])
    return x


def fit(x, w):
    """Scale, minus the minimum and codes of 32 values; sums one after the other, as in C."""
    def total(terms):
        s = F(0)
        for t in terms:
            s = F(s + t)
        return s
    low, high = F(min(x.min(), F(0))), F(x.max())
    sum_w, sum_x = total(w), total(w * x)
    if low == high:
        return F(0), F(-low), np.zeros(32, np.int64)

    def codes(inverse):
        return np.clip(np.rint(F(inverse) * (x - low)), 0, 15).astype(np.int64)

    def error(scale, offset, q):
        d = scale * q.astype(F) + offset - x
        return total(w * (d * d))
    first = F(F(15) / F(high - low))
    scale, offset, best_q = F(F(1) / first), low, codes(first)
    best = error(scale, offset, best_q)
    for step in range(21):
        inverse = F(F(F(F(-1) + F(F(0.1) * F(step))) + F(15)) / F(high - low))
        q = codes(inverse)
        l = q.astype(F)
        sum_l, sum_l2, sum_xl = total(w * l), total(w * l * l), total(w * l * x)
        d = F(F(sum_w * sum_l2) - F(sum_l * sum_l))
        if not d > 0:
            continue
        s = F(F(F(sum_w * sum_xl) - F(sum_x * sum_l)) / d)
        m = F(F(F(sum_l2 * sum_x) - F(sum_l * sum_xl)) / d)
        if m > 0:
            m, s = F(0), F(sum_xl / sum_l2)
        e = error(s, m, q)
        if e < best:
            best, scale, offset, best_q = e, s, m, q
    return scale, F(-offset), best_q


def q4_k(x):
    out = bytearray()
    for block in x.reshape(-1, 256):
        runs, fits = block.reshape(8, 32), []
        for run in runs:
            s = F(0)
            for v in run:
                s = F(s + F(v * v))
            fits.append(fit(run, F(np.sqrt(F(s / F(32)))) + np.abs(run)))
        scales, mins = np.array([f[0] for f in fits], F), np.array([f[1] for f in fits], F)
        top_s, top_m = F(max(scales.max(), 0)), F(max(mins.max(), 0))
        inv_s = F(F(63) / top_s) if top_s > 0 else F(0)
        inv_m = F(F(63) / top_m) if top_m > 0 else F(0)
        d, dmin = np.float16(F(top_s / F(63))), np.float16(F(top_m / F(63)))
        ls = np.minimum(63, np.rint(inv_s * scales)).astype(np.int64)
        lm = np.minimum(63, np.rint(inv_m * mins)).astype(np.int64)
        packed = np.zeros(12, np.int64)
        for j in range(8):
            if j < 4:
                packed[j], packed[j + 4] = ls[j], lm[j]
            else:
                packed[j + 4] = (ls[j] & 15) | (lm[j] & 15) << 4
                packed[j - 4] |= (ls[j] >> 4) << 6
                packed[j] |= (lm[j] >> 4) << 6
        q = np.array([f[2] for f in fits])
        for j in range(8):
            step, base = F(F(d) * F(ls[j])), F(F(dmin) * F(lm[j]))
            if step != 0:
                q[j] = np.clip(np.rint((runs[j] + base) / step), 0, 15)
        nibbles = q.reshape(4, 2, 32)
        out += d.tobytes() + dmin.tobytes() + packed.astype(np.uint8).tobytes()
        out += (nibbles[:, 0] | nibbles[:, 1] << 4).astype(np.uint8).tobytes()
    return bytes(out)


def main():
    golden = {}
    for name in ('Q4_0', 'Q4_1', 'Q8_0'):
        kind = gguf.GGMLQuantizationType[name]
        golden[name] = hashlib.sha256(gguf.quants.quantize(values(32000), kind).tobytes()).hexdigest()
    golden['Q4_K'] = hashlib.sha256(q4_k(values(256000))).hexdigest()
    with open(os.path.join(HERE, 'encoded.json'), 'w', encoding='utf-8') as file:
        json.dump(golden, file, indent=1)
        file.write('\n')


if __name__ == '__main__':
    main()
