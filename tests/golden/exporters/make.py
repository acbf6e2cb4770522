"""Writes the fixtures of this folder: small networks with random weights, exported by both of PyTorch's exporters, with
inputs and what ONNX Runtime computes from them. Run by hand; the tests only read what it wrote.

    python -m venv V && V/bin/pip install torch==2.11.0 onnxscript onnx onnxruntime numpy
    V/bin/python tests/golden/exporters/make.py

NAME-script.onnx comes from the TorchScript exporter, NAME-dynamo.onnx from the newer one. NAME.npz holds in_0.. and out_0..,
the outputs of the script file by ONNX Runtime with graph optimizations off. The weights are random numbers made here: no licence.
"""
import os
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.c2, self.b2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)) if cin != cout else nn.Identity()

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.down(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.body = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.body(x), 1), 1))


class Norm(nn.Module):
    """Layer normalization as people write it by hand."""

    def __init__(self, d):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.g * ((x - u) / torch.sqrt(s + 1e-6)) + self.b


class VitBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.out(a)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Vit(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 8, 8)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 17, d))
        self.blocks = nn.Sequential(VitBlock(d, 2), VitBlock(d, 2))
        self.norm, self.head = Norm(d), nn.Linear(d, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class BertLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.size = heads, d // heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.n1, self.n2 = Norm(d), nn.LayerNorm(d, eps=1e-12)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (self.size ** 0.5)
        probabilities = torch.softmax(scores + mask, -1)
        a = torch.matmul(probabilities, v).permute(0, 2, 1, 3).contiguous()
        x = self.n1(x + self.o(a.view(x.shape[0], x.shape[1], -1)))
        h = self.up(x)
        return self.n2(x + self.down(h * 0.5 * (1.0 + torch.erf(h / 2 ** 0.5))))


class Bert(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.word, self.place, self.kind = nn.Embedding(50, d), nn.Embedding(32, d), nn.Embedding(2, d)
        self.norm, self.layers, self.pool = nn.LayerNorm(d), nn.ModuleList([BertLayer(d, 2), BertLayer(d, 2)]), nn.Linear(d, d)

    def forward(self, ids, mask):
        n = ids.shape[1]
        x = self.norm(self.word(ids) + self.place(torch.arange(n)[None]) + self.kind(torch.zeros_like(ids)))
        m = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, m)
        return x, torch.tanh(self.pool(x[:, 0]))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
        self.gru, self.head = nn.GRU(24, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        y, _ = self.lstm(x)
        y, h = self.gru(y)
        return self.head(y), h


class ConvSilu(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.c, self.b = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.silu(self.b(self.c(x)))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = ConvSilu(3, 8, 2), ConvSilu(8, 12, 2), ConvSilu(12, 16, 2)
        self.side, self.mix = nn.Conv2d(16, 12, 1), ConvSilu(24, 12)
        self.heads = nn.ModuleList([nn.Conv2d(12, 7, 1), nn.Conv2d(16, 7, 1)])

    def decode(self, x, stride):
        b, _, h, w = x.shape
        x = x.permute(0, 2, 3, 1)
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing='ij')
        grid = torch.stack([xs, ys], -1).to(x.dtype)
        centre = (torch.sigmoid(x[..., 0:2]) * 2 - 0.5 + grid) * stride
        size = torch.exp(x[..., 2:4]) * stride
        score = torch.sigmoid(x[..., 4:5]) * torch.softmax(x[..., 5:], -1)
        return torch.cat([centre - size / 2, centre + size / 2, score], -1).reshape(b, -1, 6)

    def forward(self, x):
        p2 = self.c2(self.c1(x))
        p3 = self.c3(F.mish(p2))
        up = F.interpolate(F.hardswish(self.side(p3)), scale_factor=2.0, mode='nearest')
        p2 = self.mix(torch.cat([F.pad(p2, (0, 0, 0, 0)), up], 1))
        return torch.cat([self.decode(self.heads[0](p2), 4), self.decode(self.heads[1](p3), 8)], 1)


class Rms(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.g * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotate(x):
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


class DecoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.size = heads, d // heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.n1, self.n2 = Rms(d), Rms(d)
        self.gate, self.up, self.down = nn.Linear(d, 24, bias=False), nn.Linear(d, 24, bias=False), nn.Linear(24, d, bias=False)

    def forward(self, x, cos, sin, mask):
        b, n, d = x.shape
        h = self.n1(x)
        q, k, v = (f(h).view(b, n, self.heads, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        a = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * self.size ** -0.5 + mask, -1)
        x = x + self.o(torch.matmul(a, v).transpose(1, 2).reshape(b, n, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * F.gelu(self.up(h), approximate='tanh'))


class Decoder(nn.Module):
    def __init__(self, d=16, heads=2, length=12):
        super().__init__()
        self.word, self.norm, self.head = nn.Embedding(40, d), Rms(d), nn.Linear(d, 40, bias=False)
        self.layers = nn.ModuleList([DecoderLayer(d, heads), DecoderLayer(d, heads)])
        angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(0, d // heads, 2).float() / (d // heads)))
        angles = torch.cat([angles, angles], -1)[None, None]
        self.register_buffer('cos', angles.cos())
        self.register_buffer('sin', angles.sin())
        self.register_buffer('mask', torch.full((length, length), -1e4).triu(1)[None, None])

    def forward(self, ids):
        x = self.word(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


def networks():
    g = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 50, (2, 9), generator=g)
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    picture = torch.randn(2, 3, 32, 32, generator=g)
    b = {0: 'batch'}
    yield 'resnet', ResNet(), (picture,), ['image'], ['logits'], {'image': b, 'logits': b}
    yield 'vit', Vit(), (picture,), ['image'], ['logits'], {'image': b, 'logits': b}
    bn = {0: 'batch', 1: 'length'}
    yield 'bert', Bert(), (ids, mask), ['ids', 'mask'], ['hidden', 'pooled'], {'ids': bn, 'mask': bn, 'hidden': bn, 'pooled': b}
    yield 'lstm', Lstm(), (torch.randn(2, 6, 8, generator=g),), ['x'], ['y', 'h'], None
    yield 'detector', Detector(), (picture,), ['image'], ['boxes'], {'image': b, 'boxes': b}
    yield 'decoder', Decoder(), (torch.randint(0, 40, (2, 12), generator=g),), ['ids'], ['logits'], {'ids': b, 'logits': b}


def spread(network):
    """Parameters and statistics that no pass can take for neutral."""
    g = torch.Generator().manual_seed(11)
    for name, p in list(network.named_parameters()) + list(network.named_buffers()):
        if not p.dtype.is_floating_point or name in ('cos', 'sin', 'mask'):
            continue
        with torch.no_grad():
            if 'running_var' in name:
                p.copy_(torch.rand(p.shape, generator=g) + 0.5)
            elif p.dim() == 1:
                p.copy_(torch.randn(p.shape, generator=g) * 0.2 + (1.0 if name.endswith(('.g', 'weight')) else 0.0))
            else:
                p.copy_(torch.randn(p.shape, generator=g) / max(p[0].numel(), 1) ** 0.5)


def export(network, inputs, path, names, outputs, axes, dynamo):
    options = dict(input_names=names, output_names=outputs)
    if dynamo:
        shapes = None if axes is None else tuple({i: torch.export.Dim.DYNAMIC for i in axes[n]} for n in names)
        program = torch.onnx.export(network, inputs, dynamo=True, opset_version=18, dynamic_shapes=shapes, verbose=False, **options)
        model = program.model_proto
        for node in list(model.graph.node) + [n for f in model.functions for n in f.node]:
            node.ClearField('metadata_props')  # stack traces of this machine
            node.ClearField('doc_string')
        for value in list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output):
            value.ClearField('metadata_props')
        model.graph.ClearField('metadata_props')
        onnx.save(model, path)
    else:
        torch.onnx.export(network, inputs, path, dynamo=False, opset_version=14, dynamic_axes=axes, do_constant_folding=False, **options)
        model = onnx.load(path)
        model.graph.ClearField('doc_string')
        onnx.save(model, path)


def run(path, names, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    feeds = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)}
    return session.run(None, feeds)


def main():
    warnings.filterwarnings('ignore')
    for name, network, inputs, names, outputs, axes in networks():
        torch.manual_seed(3)
        spread(network)
        network.eval()
        results = {}
        for kind in ('script', 'dynamo'):
            path = os.path.join(HERE, f'{name}-{kind}.onnx')
            export(network, inputs, path, names, outputs, axes, kind == 'dynamo')
            results[kind] = run(path, names, inputs)
            model = onnx.load(path)
            print(name, kind, 'opset', model.opset_import[0].version, len(model.graph.node), 'nodes', os.path.getsize(path), 'bytes')
        for a, b in zip(results['script'], results['dynamo']):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        arrays = {f'in_{i}': x.numpy() for i, x in enumerate(inputs)}
        arrays.update({f'out_{i}': y for i, y in enumerate(results['script'])})
        np.savez(os.path.join(HERE, name + '.npz'), **arrays)


if __name__ == '__main__':
    sys.exit(main())
