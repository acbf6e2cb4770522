#!/usr/bin/env python3
"""The peer: the same networks through torch.compile in float16, one captured graph a launch, medians of 100.

    scripts/gpu/torch_compile.py NAME BATCH [NAME BATCH ...]

Prints "torch.compile NAME bBATCH MILLISECONDS". Channels-last for convolution nets, mode max-autotune-no-cudagraphs is
not used: the default mode's kernels are captured by hand, so that both sides pay one launch.
"""
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export_models import MODELS  # noqa: E402


def main():
    pairs = list(zip(sys.argv[1::2], map(int, sys.argv[2::2])))
    for name, batch in pairs:
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
                compiled(x)
            for _ in range(20):
                graph.replay()
            torch.cuda.synchronize()
            times = []
            for _ in range(100):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
        print(f'torch.compile {name} b{batch} {sorted(times)[50]:.4f}', flush=True)


if __name__ == '__main__':
    main()
