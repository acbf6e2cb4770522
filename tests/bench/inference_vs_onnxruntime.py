#!/usr/bin/env python3
"""Float (or quantized) inference of pare beside ONNX Runtime, alternating, on the same input.

    tests/bench/inference_vs_onnxruntime.py [--pare build/release/bin/pare] [--threads 2] [--batches 1,64] MODEL...

One line a model and batch: medians of the rounds, their ratio, and the largest difference of the outputs. A round
times both programs, so a noisy machine disturbs both; the ratio is what counts. The answer is checked first: outputs
that differ by more than the tolerance end the run with exit 1.
Needs numpy and onnxruntime (scripts/test-venv makes an environment that has them).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort


def session(path, threads, optimize=True):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def input_of(sess, batch, seed=1):
    spec = sess.get_inputs()[0]
    dims = [batch] + [d if isinstance(d, int) else 1 for d in spec.shape[1:]]
    return spec.name, np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def time_peer(sess, feed, iterations):
    sess.run(None, feed)
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        sess.run(None, feed)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def time_pare(pare, model, batch, threads, iterations):
    out = subprocess.run([pare, "bench", model, "--batch", str(batch), "--threads", str(threads), "--iterations",
                          str(iterations), "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["latency_ms"]["median"]


def difference(pare, model, name, x, want):
    """Largest |pare - ONNX Runtime| over the largest |output|."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(os.path.join(folder, "x.npy"), x)
        subprocess.run([pare, "infer", model, "--input", f"{name}={folder}/x.npy", "--save", folder], check=True,
                       capture_output=True)
        got = np.load(os.path.join(folder, "out_0.npy"))
    return float(np.max(np.abs(got - want)) / max(np.max(np.abs(want)), 1e-30))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--pare", default="build/release/bin/pare")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of the largest output")
    args = parser.parse_args()
    print(f"{'model':28s} {'batch':>5s} {'pare ms':>9s} {'ORT ms':>9s} {'ORT/pare':>9s}   {'ratios':15s} difference")
    failed = False
    for model in args.models:
        sess = session(model, args.threads)
        for batch in (int(b) for b in args.batches.split(",")):
            name, x = input_of(sess, batch)
            off = difference(args.pare, model, name, x, sess.run(None, {name: x})[0])
            failed |= not off <= args.tolerance
            iterations = max(5, 400 // batch)
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(time_pare(args.pare, model, batch, args.threads, iterations))
                theirs.append(time_peer(sess, {name: x}, iterations))
            ratios = sorted(t / o for o, t in zip(ours, theirs))
            print(f"{os.path.basename(model):28s} {batch:5d} {statistics.median(ours):9.3f} {statistics.median(theirs):9.3f} "
                  f"{statistics.median(ratios):9.2f}   {ratios[0]:.2f} .. {ratios[-1]:.2f}    {off:.1e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
