#!/usr/bin/env python3
"""Float evaluation of a Llama checkpoint: `pare eval` beside PyTorch's float32, the same windows and threads.

    perplexity_vs_torch.py CHECKPOINT TEXT [--pare build/release/bin/pare] [--windows 84] [--rounds 3] [--threads 2]
                           [--ids ids.json]

Runs alternate; medians. Both must find the same perplexity (to 1e-3). pare's time is that of the whole command,
loading and tokenizing included; torch's that of the model alone. The rate of the
machine is that of torch.mm in float32 (2048 cubed) in the same rounds, and the share says what both reach of it: the
products of a window are 2 * 512 * (all linear weights), attention's left out for both.

The torch model is the plain one: F.linear, F.scaled_dot_product_attention, rotary halves; weights bf16 -> float32.
It needs torch and numpy; the token ids come from the tokenizers package, or from --ids (a JSON list).
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F


def read_safetensors(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header, data = json.loads(file.read(size)), file.read()
        for key, entry in header.items():
            if key == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            dtype = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}[entry["dtype"]]
            raw = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype)
            tensors[key] = raw.reshape(entry["shape"]).float()
    return tensors


class Llama:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            self.c = json.load(file)
        self.w = read_safetensors(folder)
        c, size = self.c, self.c["head_dim"]
        inverse = 1.0 / (c["rope_theta"] ** (torch.arange(0, size, 2).float() / size))
        angles = torch.outer(torch.arange(c["max_position_embeddings"]).float(), inverse)
        self.cos, self.sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def linear_weights(self):
        return sum(v.numel() for k, v in self.w.items() if v.dim() == 2 and "embed_tokens" not in k)

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w[name + ".weight"]

    def rotate(self, x):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        n = x.shape[-2]
        return x * self.cos[:n] + turned * self.sin[:n]

    def __call__(self, ids):
        c, w, n = self.c, self.w, len(ids)
        heads, kv, size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        x = w["model.embed_tokens.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            y = self.norm(x, p + "input_layernorm")
            q, k, v = (F.linear(y, w[f"{p}self_attn.{m}_proj.weight"]).view(n, h, size).transpose(0, 1)
                       for m, h in (("q", heads), ("k", kv), ("v", kv)))
            q, k = self.rotate(q), self.rotate(k)
            k, v = (t.repeat_interleave(heads // kv, 0) for t in (k, v))
            y = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            x = x + F.linear(y.transpose(0, 1).reshape(n, heads * size), w[p + "self_attn.o_proj.weight"])
            y = self.norm(x, p + "post_attention_layernorm")
            y = F.silu(F.linear(y, w[p + "mlp.gate_proj.weight"])) * F.linear(y, w[p + "mlp.up_proj.weight"])
            x = x + F.linear(y, w[p + "mlp.down_proj.weight"])
        return F.linear(self.norm(x, "model.norm"), w["lm_head.weight"])


def run_torch(model, windows):
    total, count = 0.0, 0
    wall, processor = time.time(), time.process_time()
    with torch.inference_mode():
        for window in windows:
            logits = model(window)
            total += F.cross_entropy(logits[:-1], window[1:], reduction="sum").item()
            count += len(window) - 1
    return {"wall": time.time() - wall, "processor": time.process_time() - processor,
            "perplexity": float(torch.exp(torch.tensor(total / count, dtype=torch.float64)))}


def run_pare(pare, checkpoint, text, threads):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.time()
    out = subprocess.run([pare, "eval", checkpoint, "--data", f"{text}:window=512", "--threads", str(threads), "--json"],
                         capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": time.time() - wall,
            "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "perplexity": json.loads(out)["metrics"]["perplexity"]}


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("text")
    parser.add_argument("--pare", default="build/release/bin/pare")
    parser.add_argument("--windows", type=int, default=84)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ids")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with open(args.text, newline="") as file:
        text = file.read()
    if args.ids:
        with open(args.ids) as file:
            ids = json.load(file)
    else:
        from tokenizers import Tokenizer
        ids = Tokenizer.from_file(os.path.join(args.checkpoint, "tokenizer.json")).encode(
            text, add_special_tokens=False).ids
    windows = [torch.tensor(ids[i:i + 512]) for i in range(0, len(ids) - 511, 512)][:args.windows]
    model = Llama(args.checkpoint)
    flop = 2 * 512 * model.linear_weights() * len(windows)
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    rows = {"pare": [], "torch": [], "gemm": []}
    with tempfile.TemporaryDirectory() as folder:
        # A part of the text that has just so many windows: cut where the tokens of both agree.
        cut = os.path.join(folder, "text.txt")
        low, high = 0, len(text)
        if len(windows) * 512 + 512 <= len(ids):
            high = int(len(text) * (len(windows) + 0.5) * 512 / len(ids))
        with open(cut, "w", newline="") as file:
            file.write(text[low:high])
        for _ in range(args.rounds):
            rows["pare"].append(run_pare(args.pare, args.checkpoint, cut, args.threads))
            rows["torch"].append(run_torch(model, windows))
            wall, processor = time.time(), time.process_time()
            for _ in range(3):
                torch.mm(a, b)
            rows["gemm"].append({"wall": time.time() - wall, "processor": time.process_time() - processor})
    if abs(rows["pare"][0]["perplexity"] - rows["torch"][0]["perplexity"]) > 1e-3:
        sys.exit(f"perplexities differ: {rows['pare'][0]['perplexity']} and {rows['torch'][0]['perplexity']}")
    result = {"windows": len(windows), "perplexity": rows["pare"][0]["perplexity"], "threads": args.threads}
    for clock in ("wall", "processor"):
        rate = 3 * 2 * 2048**3 / median([r[clock] for r in rows["gemm"]])
        result[clock] = {who: {"seconds": round(median([r[clock] for r in rows[who]]), 2),
                               "share_of_gemm": round(flop / median([r[clock] for r in rows[who]]) / rate, 2)}
                         for who in ("pare", "torch")}
        result[clock]["gemm_gflop_per_s"] = round(rate * 1e-9, 1)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
