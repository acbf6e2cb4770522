#!/usr/bin/env python3
"""Float (or quantized) inference of pare beside ONNX Runtime, alternating, on the same input.

    tests/bench/inference_vs_onnxruntime.py [--pare build/release/bin/pare] [--threads 2] [--batches 1,64] MODEL...
    tests/bench/inference_vs_onnxruntime.py --real FOLDER [NAME...]       the real models (REAL below) under FOLDER

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


# name: file, and the shape of each input ("i": whole numbers below 256).
REAL = {
    "detector": ("ocr/ppocrv4_det.onnx", {"x": (1, 3, 640, 640)}),
    "recogniser": ("ocr/ppocrv4_rec.onnx", {"x": (1, 3, 48, 320)}),
    "blazeface": ("blazeface/blazeface_back_256.onnx", {"input:0": (1, 256, 256, 3)}),
    "mlsd": ("mlsd/mlsd_512x512_large.onnx", {"input_image_with_alpha:0": (1, 512, 512, 4)}),
    "silero": ("silero/silero_vad_16k_sequence.onnx", {"input": (100, 576), "h": (1, 1, 128), "c": (1, 1, 128)}),
    "efficientnet": ("efficientnet/efficientnet_lite0.onnx", {"image": (1, 3, 224, 224)}),
    "magika": ("magika/model.onnx", {"bytes": (1, 2048, "i")}),
    "resnet": ("fashion/resnet.onnx", {"image": (64, 1, 28, 28)}),
    "mobilenet": ("fashion/mobilenet.onnx", {"image": (64, 1, 28, 28)}),
    "vit": ("fashion/vit.onnx", {"image": (64, 1, 28, 28)}),
}


def feed_of(shapes, seed=1):
    """Arrays for {name: shape}; numbers like those of pictures and sound, so that outputs are not all saturated."""
    rng = np.random.default_rng(seed)
    feed = {}
    for name, shape in shapes.items():
        if shape[-1] == "i":
            feed[name] = rng.integers(0, 256, shape[:-1]).astype(np.int32)
        else:
            feed[name] = rng.standard_normal(shape).astype(np.float32)
    return feed


def shapes_of(sess, batch):
    spec = sess.get_inputs()[0]
    return {spec.name: tuple([batch] + [d if isinstance(d, int) else 1 for d in spec.shape[1:]])}


def time_peer(sess, feed, iterations):
    sess.run(None, feed)  # warm
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        sess.run(None, feed)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def time_pare(pare, model, feed, threads, iterations):
    command = [pare, "bench", model, "--threads", str(threads), "--iterations", str(iterations), "--json"]
    for name, x in feed.items():
        command += ["--input-shape", f"{name}={'x'.join(map(str, x.shape))}"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["latency_ms"]["median"]


def difference(pare, model, feed, wanted):
    """Largest |pare - ONNX Runtime| over the largest |output|, the worst of all outputs."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        command = [pare, "infer", model, "--save", folder]
        for i, (name, x) in enumerate(feed.items()):
            np.save(os.path.join(folder, f"in_{i}.npy"), x)
            command += ["--input", f"{name}={folder}/in_{i}.npy"]
        subprocess.run(command, check=True, capture_output=True)
        for i, want in enumerate(wanted):
            got = np.load(os.path.join(folder, f"out_{i}.npy"))
            worst = max(worst, float(np.max(np.abs(got - want)) / max(np.max(np.abs(want)), 1e-30)))
    return worst


def compare(label, model, sess, shapes, iterations, args):
    feed = feed_of(shapes)
    off = difference(args.pare, model, feed, sess.run(None, feed))
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(time_pare(args.pare, model, feed, args.threads, iterations))
        theirs.append(time_peer(sess, feed, iterations))
    ratios = sorted(t / o for o, t in zip(ours, theirs))
    batch = next(iter(shapes.values()))[0]
    print(f"{label:28s} {batch:5d} {statistics.median(ours):9.3f} {statistics.median(theirs):9.3f} "
          f"{statistics.median(ratios):9.2f}   {ratios[0]:.2f} .. {ratios[-1]:.2f}    {off:.1e}", flush=True)
    return off <= args.tolerance


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--real", metavar="FOLDER", help="time the real models under it; MODEL names some of them")
    parser.add_argument("--pare", default="build/release/bin/pare")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of the largest output")
    args = parser.parse_args()
    if not args.models and not args.real:
        parser.error("name a model, or --real FOLDER")
    ort.set_default_logger_severity(3)
    print(f"{'model':28s} {'batch':>5s} {'pare ms':>9s} {'ORT ms':>9s} {'ORT/pare':>9s}   {'ratios':15s} difference")
    passed = True
    for model in [] if args.real else args.models:
        sess = session(model, args.threads)
        for batch in (int(b) for b in args.batches.split(",")):
            iterations = max(5, 400 // batch)
            passed &= compare(os.path.basename(model), model, sess, shapes_of(sess, batch), iterations, args)
    for name in (args.models or list(REAL)) if args.real else []:
        path, shapes = REAL[name]
        model = os.path.join(args.real, path)
        sess = session(model, args.threads)
        once = time_peer(sess, feed_of(shapes), 3)
        passed &= compare(name, model, sess, shapes, int(min(200, max(5, 500 / once))), args)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
