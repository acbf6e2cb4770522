#!/usr/bin/env python3
"""The peer: the same networks through torch.compile in float16, one captured graph a launch, medians of 200.

    scripts/gpu/torch_compile.py NAME BATCH [NAME BATCH ...]
    scripts/gpu/torch_compile.py --beside MODELS NAME BATCH [NAME BATCH ...]

Prints "torch.compile NAME bBATCH MILLISECONDS". With --beside, builds MODELS/NAME.onnx in float16 as well and times both
in turns, three times each (PARE_GPU_BIN is where pare is). Channels-last for convolution nets, mode
max-autotune-no-cudagraphs is not used: the default mode's kernels are captured by hand, so that both sides pay one launch.
"""
import os
import re
import subprocess
import sys
import tempfile

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export_models import MODELS  # noqa: E402

PARE = os.path.join(os.environ.get('PARE_GPU_BIN', 'build/dev/bin'), 'pare')


def captured(name, batch):
    """A graph of one run, and what it needs to stay alive."""
    torch.manual_seed(0)
    model, x, _ = MODELS[name]()
    model = model.half().cuda()
    x = x[:1].repeat(batch, *[1] * (x.dim() - 1)).cuda()
    if x.is_floating_point():
        x = x.half()
        if name in ('resnet50', 'mobilenetv3l'):
            x, model = x.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    compiled = torch.compile(model)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = compiled(x)
    return graph, (model, x, compiled, out)


def milliseconds(graph):
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(200):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[100]


def pare(*arguments):
    return subprocess.run([PARE, *arguments], check=True, capture_output=True, text=True).stdout


def main():
    arguments = sys.argv[1:]
    models = None
    if arguments[:1] == ['--beside']:
        models, arguments = arguments[1], arguments[2:]
    for name, batch in zip(arguments[::2], map(int, arguments[1::2])):
        graph, alive = captured(name, batch)
        if models is None:
            print(f'torch.compile {name} b{batch} {milliseconds(graph):.4f}', flush=True)
            continue
        with tempfile.TemporaryDirectory() as work:
            engine = os.path.join(work, 'engine')
            pare('build', os.path.join(models, name + '.onnx'), '-o', engine, '--batch', str(batch), '--precision', 'fp16')
            ours, theirs = [], []
            for _ in range(3):
                theirs.append(f'{milliseconds(graph):.4f}')
                ours.append(re.search(r'median ([0-9.]+)', pare('bench', engine)).group(1))
        print(f'{name} b{batch} pare {" ".join(ours)} torch.compile {" ".join(theirs)}', flush=True)
        del alive


if __name__ == '__main__':
    main()
