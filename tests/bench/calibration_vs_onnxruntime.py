#!/usr/bin/env python3
"""Calibration to written model: pare beside ONNX Runtime's static quantization, in the same run, alternating.

    tests/bench/calibration_vs_onnxruntime.py [--pare build/release/bin/pare] [--rounds 3] [--samples 512] [RECIPE...]

pare runs the recipe until its model is written (all calibration methods from one pass); what its candidates cost to score on
held-out samples is printed apart. ONNX Runtime does its pre-processing and then entropy calibration of the same images
(--peer-method minmax, percentile for the others). Time is wall time, memory the peak resident size of the process.
Needs numpy, onnx and onnxruntime (scripts/test-venv).
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def images(path, count):
    import numpy as np
    x = np.load(path)[:count].astype(np.float32) / 255
    return ((x - np.float32(0.2860)) / np.float32(0.3530)).transpose(0, 3, 1, 2).copy()


def peer(model, data, samples, method, out):
    """One ONNX Runtime quantization in this process; prints a JSON line."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            x = images(data, samples)
            self.batches = iter([{"image": x[i:i + 64]} for i in range(0, len(x), 64)])

        def get_next(self):
            return next(self.batches, None)

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        prepared = os.path.join(folder, "prepared.onnx")
        quant_pre_process(model, prepared)
        methods = {"entropy": CalibrationMethod.Entropy, "minmax": CalibrationMethod.MinMax,
                   "percentile": CalibrationMethod.Percentile}
        extra = {"ActivationSymmetric": True, "WeightSymmetric": True}
        if method == "percentile":
            extra["CalibPercentile"] = 99.99
        quantize_static(prepared, out, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
                        calibrate_method=methods[method], extra_options=extra)
    print(json.dumps({"seconds": time.perf_counter() - start,
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def run_pare(pare, recipe, samples, folder):
    out = subprocess.run([pare, "run", recipe, "--out", folder, "--force", "--until", "quantize", "--json", "--threads", "2",
                          "--set", f"datasets.calibration.samples={samples}"], capture_output=True, text=True, check=False)
    doc = json.loads(out.stdout)
    if "error" in doc:
        sys.exit(f"pare failed: {doc['error']['message']}")
    return doc


def timings(doc):
    """Shares of stages that are timed apart, by name."""
    return {t["what"]: t["seconds"] for t in doc.get("timings", [])}


def main():
    root = os.environ.get("PARE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    fashion = os.path.join(root, "examples", "fashion")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recipes", nargs="*", default=[os.path.join(fashion, f"{m}-int8.yaml")
                                                        for m in ("resnet", "mobilenet", "vit")])
    parser.add_argument("--pare", default=os.path.join(root, "build/release/bin/pare"))
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-method", default="entropy", choices=["entropy", "minmax", "percentile"])
    parser.add_argument("--peer", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        model, data, samples, method, out = args.peer
        return peer(model, data, int(samples), method, out)
    data = os.path.join(fashion, "fashion_calibration_images.npy")
    print(f"{'recipe':20s} {'pare s':>8s} {'scoring s':>9s} {'ORT s':>8s} {'ORT/pare':>9s} {'pare MiB':>9s} {'ORT MiB':>9s}")
    for recipe in args.recipes:
        name = os.path.basename(recipe).removesuffix(".yaml")
        model = os.path.join(fashion, name.split("-")[0] + ".onnx")
        ours, theirs, scoring, our_mem, their_mem = [], [], [], [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(args.rounds):
                doc = run_pare(args.pare, recipe, args.samples, os.path.join(folder, "run"))
                seconds = {s["name"]: s["seconds"] for s in doc["stages"]}
                drift = timings(doc).get("quantize: scoring candidates", 0.0)
                ours.append(sum(seconds.values()) - drift)
                scoring.append(drift)
                our_mem.append(doc["peak_rss_bytes"] / 2**20)
                out = subprocess.run([sys.executable, os.path.abspath(__file__), "--peer", model, data, str(args.samples),
                                      args.peer_method, os.path.join(folder, "peer.onnx")],
                                     check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1]
                row = json.loads(out)
                theirs.append(row["seconds"])
                their_mem.append(row["peak_mib"])
        med = statistics.median
        print(f"{name:20s} {med(ours):8.2f} {med(scoring):9.2f} {med(theirs):8.2f} "
              f"{med([t / o for o, t in zip(ours, theirs)]):9.1f} {max(our_mem):9.0f} {max(their_mem):9.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
