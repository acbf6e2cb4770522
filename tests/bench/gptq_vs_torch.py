#!/usr/bin/env python3
"""GPTQ of one layer: pare against the usual torch implementation (CPU, the same number of threads).

    gptq_vs_torch.py [--bench build/release/tests/bench/layer_file_bench] [--repeats 5] [--threads 2]

Both get the same weight, second moments, scales (amax / 7, groups of 128), order of columns (descending
diagonal, static groups), damping (0.01) and block (128). Runs alternate; the least time of each counts. pare's
time is that of the whole layer (grid, factor, codes, losses); torch's is the factorization and the loop. The
results must agree: same loss within 2 %, nearly all codes the same.

The torch code is the published algorithm as GPTQ, AutoGPTQ and llm-compressor have it: Cholesky, inverse,
upper Cholesky factor of the inverse, a loop over columns inside blocks of 128, one product behind each block.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch


def torch_gptq(weight, gram, scales, group, damp=0.01, block=128):
    w, h = weight.clone(), gram.clone()
    rows, n = w.shape
    dead = torch.diag(h) == 0
    h[dead, dead] = 1
    w[:, dead] = 0
    order = torch.argsort(torch.diag(h), descending=True, stable=True)
    w, h = w[:, order], h[order][:, order]
    h += damp * torch.mean(torch.diag(h)) * torch.eye(n)
    h = torch.linalg.cholesky(h)
    h = torch.cholesky_inverse(h)
    u = torch.linalg.cholesky(h, upper=True)
    q = torch.zeros_like(w)
    of_column = (order // group).tolist()
    for begin in range(0, n, block):
        end = min(begin + block, n)
        part = w[:, begin:end].clone()
        errors = torch.zeros_like(part)
        inverse = u[begin:end, begin:end]
        for i in range(end - begin):
            column = part[:, i]
            scale = scales[:, of_column[begin + i]]
            value = torch.clamp(torch.round(column / scale), -8, 7) * scale
            q[:, begin + i] = value
            error = (column - value) / inverse[i, i]
            part[:, i:] -= error.unsqueeze(1) * inverse[i, i:].unsqueeze(0)
            errors[:, i] = error
        w[:, end:] -= errors @ u[begin:end, end:]
    return q[:, torch.argsort(order)]


def loss(weight, image, gram):
    d = (weight - image).double()
    return float(((d @ gram.double()) * d).sum())


def problem(rows, n, seed):
    """Correlated inputs of different sizes, as layers have them."""
    g = torch.Generator().manual_seed(seed)
    size = torch.exp(torch.randn(n, generator=g))
    mix = torch.randn(n // 4, n, generator=g)
    x = (torch.randn(4 * n, n // 4, generator=g) @ mix / (n // 4) ** 0.5 + torch.randn(4 * n, n, generator=g)) * size
    return torch.randn(rows, n, generator=g) * 0.05, x.T @ x / (4 * n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bench', default='build/release/tests/bench/layer_file_bench')
    parser.add_argument('--repeats', type=int, default=5)
    parser.add_argument('--threads', type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    failed = False
    print('| layer | torch, s | pare, s | ratio | losses | same codes |\n| --- | --- | --- | --- | --- | --- |')
    for rows, n in [(512, 512), (1408, 512), (512, 1408), (2048, 2048)]:
        weight, gram = problem(rows, n, rows + n)
        scales = weight.view(rows, -1, 128).abs().amax(2) / 7
        with tempfile.TemporaryDirectory() as folder:
            np.save(os.path.join(folder, 'a.weight.npy'), weight.numpy())
            np.save(os.path.join(folder, 'a.gram.npy'), gram.numpy())
            times = {'torch': [], 'pare': []}
            for _ in range(args.repeats):
                start = time.perf_counter()
                image = torch_gptq(weight, gram, scales, 128)
                times['torch'].append(time.perf_counter() - start)
                out = subprocess.run([args.bench, folder, 'int4_g128', 'gptq_amax', '1', str(args.threads)], check=True,
                                     stdout=subprocess.PIPE).stdout.decode().splitlines()
                times['pare'].append(json.loads(out[0])['seconds'])
            ours = torch.from_numpy(np.load(os.path.join(folder, 'a.gptq_amax.npy')))
        a, b = loss(weight, image, gram), loss(weight, ours, gram)
        same = float(((image - ours).abs() < 1e-6).float().mean())
        t, p = min(times['torch']), min(times['pare'])
        failed |= abs(a - b) > 0.02 * a or same < 0.9
        print(f'| {rows} x {n} | {t:.3f} | {p:.4f} | {t / p:.1f} | {a:.4g}, {b:.4g} | {same:.4f} |', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
