#!/usr/bin/env python3
"""ONNX Runtime loads what pare wrote and computes the same.

    tests/interop/onnxruntime_agrees.py QUANTIZED.onnx FLOAT.onnx [--pare build/release/bin/pare] [--images N]

Checks, and exits 1 if one fails:
  - onnx.checker with full_check passes
  - with ONNX Runtime's graph optimizations off, the number of images whose class differs from pare's is at most
    5 in 10,000 (rounded up for fewer images)
  - the SQNR between the two runtimes is at least --margin-db (8) above the model's own quantization SQNR, or at least
    --enough-db (40): on the ViT, INT8 with an error of its own of 38.8 dB, the runtimes agree to 49.4 dB
Why not more: every float implementation rounds its sums a little differently, a code that lies on an edge then becomes
its neighbour, and each layer passes that on to many codes of the next. On the fashion ResNet one code of 1.6 million in
the second layer differs between the two runtimes, and one in a hundred in the last: 52 dB. ONNX Runtime agrees with
itself (optimizations off, and basic) to 41.5 dB there.
With its optimizations on it fuses integer kernels, which saturate on processors without VNNI; that figure is printed,
not judged. Images are those of Fashion-MNIST in examples/fashion.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort


def sqnr(reference, other):
    reference = reference.astype(np.float64)
    noise = np.sum((reference - other) ** 2)
    return math.inf if noise == 0 else 10 * math.log10(np.sum(reference**2) / noise)


def peer(path, x, optimize):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: x[i:i + 100]})[0] for i in range(0, len(x), 100)])


def pare(program, path, x):
    """Runs in slices, as a user would feed files; `infer` takes any batch."""
    outputs = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(0, len(x), 500):
            np.save(os.path.join(folder, "x.npy"), x[i:i + 500])
            subprocess.run([program, "infer", path, "--input", f"image={folder}/x.npy", "--save", folder, "--quiet"],
                           check=True, capture_output=True)
            outputs.append(np.load(os.path.join(folder, "out_0.npy")))
    return np.concatenate(outputs)


def main():
    root = os.environ.get("PARE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("quantized")
    parser.add_argument("float")
    parser.add_argument("--pare", default=os.path.join(root, "build/release/bin/pare"))
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--margin-db", type=float, default=8)
    parser.add_argument("--enough-db", type=float, default=40)
    parser.add_argument("--skip-optimized", action="store_true", help="do not run the peer's fused kernels")
    args = parser.parse_args()

    onnx.checker.check_model(args.quantized, full_check=True)
    fashion = os.path.join(root, "examples", "fashion")
    x = np.load(os.path.join(fashion, "fashion_test_images.npy"))[:args.images].astype(np.float32) / 255
    x = ((x - np.float32(0.2860)) / np.float32(0.3530)).transpose(0, 3, 1, 2).copy()
    labels = np.load(os.path.join(fashion, "fashion_test_labels.npy"))[:args.images]

    exact = peer(args.float, x, True)
    ours = pare(args.pare, args.quantized, x)
    theirs = peer(args.quantized, x, False)
    differ = int(np.sum(ours.argmax(1) != theirs.argmax(1)))
    own, between = sqnr(exact, ours), sqnr(theirs, ours)
    result = {"images": args.images, "top1_pare": float(np.mean(ours.argmax(1) == labels)),
              "top1_peer": float(np.mean(theirs.argmax(1) == labels)), "classes_that_differ": differ,
              "quantization_sqnr_db": own, "between_runtimes_sqnr_db": between}
    if not args.skip_optimized:
        fused = peer(args.quantized, x, True)
        result |= {"top1_peer_optimized": float(np.mean(fused.argmax(1) == labels)),
                   "peer_optimized_sqnr_db": sqnr(exact, fused)}
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}))
    allowed = math.ceil(5 * args.images / 10000)
    failures = []
    if differ > allowed:
        failures.append(f"{differ} images differ in their class, {allowed} allowed")
    wanted = min(own + args.margin_db, args.enough_db)
    if between < wanted:
        failures.append(f"the runtimes agree to {between:.1f} dB, {wanted:.1f} wanted")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
