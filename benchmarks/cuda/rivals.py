#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch does on the same GPU: causal attention by its flash and cuDNN backends, and a training step of GPT-2 124M in
bfloat16, compiled, with flash attention and the fused AdamW.

    rivals.py [--only WORD] [--rounds N] [--json FILE]
    rivals.py --tiny                  on a processor, at sizes that say nothing: does it run?

Rows are {name, rival, value, unit}, with the names of the rows that tutti's benchmarks print. Status 77 without PyTorch or a
GPU.
"""
import argparse
import json
import math
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    print("PyTorch is not there: its attention and its training step are not measured")
    sys.exit(77)

# Batch, heads, tokens, elements of a head: those of attention.cpp.
SHAPES = [(32, 12, 1024, 64), (8, 12, 4096, 64), (16, 16, 1024, 128), (4, 16, 4096, 128)]
TINY = [(2, 2, 32, 64)]


class Clock:
    """Milliseconds of calls: events on a GPU, after a warm-up, the median."""

    def __init__(self, gpu, rounds):
        self.gpu, self.rounds = gpu, rounds

    def median(self, call, warm=5):
        for _ in range(warm):
            call()
        times = []
        for _ in range(self.rounds):
            if self.gpu:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            else:
                begin = time.perf_counter()
                call()
                times.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(times)


class Rows:
    def __init__(self, path):
        self.file = open(path, "w") if path else None

    def write(self, row):
        if self.file:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()  # what is there stays when the time is over

    def add(self, name, rival, value, unit):
        print(f"{name:46} {rival:10} {value:12.4g} {unit}", flush=True)
        self.write({"name": name, "rival": rival, "value": value, "unit": unit})


def measure_attention(rows, clock, device, shapes, only):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {"sdpa_flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    if device == "cpu":
        backends = {"sdpa_flash": SDPBackend.FLASH_ATTENTION}
    for batch, heads, tokens, size in shapes:
        shape = f"_b{batch}_h{heads}_t{tokens}_d{size}"
        if only not in "attention" + shape:
            continue
        # As models have them: heads beside each other in the rows of one projection.
        packed = (torch.rand(batch, tokens, 3, heads, size, device=device, dtype=torch.bfloat16) * 4 - 2)
        q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in packed.unbind(2))
        slope = torch.rand(batch, heads, tokens, size, device=device, dtype=torch.bfloat16) * 2 - 1
        operations = 2.0 * batch * heads * tokens * tokens * size
        exact = None
        for name, backend in backends.items():
            def forward():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)

            def both():
                q.grad = k.grad = v.grad = None
                forward().backward(slope)
            try:
                with sdpa_kernel(backend):
                    with torch.no_grad():
                        result = forward().float()
                        exact = result if exact is None else exact
                        if not (result - exact).norm() <= 0.02 * exact.norm():
                            raise RuntimeError("it computes something else")
                        rows.add("attention_forward" + shape, name, 1e-9 * operations / clock.median(forward), "TFLOP/s")
                    rows.add("attention_both" + shape, name, 3.5e-9 * operations / clock.median(both), "TFLOP/s")
            except RuntimeError as error:
                print(f"attention{shape} by {name} is not measured: {str(error).splitlines()[0]}", flush=True)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, positions, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("proj.weight", "out.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def measure_step(rows, clock, device, batches, only):
    tiny = device == "cpu"
    vocabulary, length, layers, heads, width = (64, 16, 2, 2, 32) if tiny else (50304, 1024, 12, 12, 768)
    for batch in batches:
        name = f"gpt2_124m_step_bf16_b{batch}"
        if only not in name:
            continue
        torch.manual_seed(batch)
        try:
            model = Gpt2(vocabulary, length, layers, heads, width).to(device)
            decayed = [p for p in model.parameters() if p.dim() == 2]
            others = [p for p in model.parameters() if p.dim() != 2]
            optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                          lr=6e-4, betas=(0.9, 0.95), fused=not tiny)
            run = model if tiny else torch.compile(model, dynamic=False)  # a second batch size would make both dynamic
            tokens, targets = (torch.randint(0, vocabulary, (batch, length), device=device) for _ in range(2))
            losses = []

            def step():
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = run(tokens, targets)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.detach())
            value = clock.median(step, warm=8)
            first, last = float(losses[0]), float(losses[-1])
            if not abs(first - math.log(vocabulary)) < 1 or not last < first:
                raise RuntimeError(f"the losses are {first} and {last}")
            rows.add(name, "pytorch", 1e3 * batch * length / value, "tokens/s")
        except RuntimeError as error:  # out of memory is one
            print(f"{name} is not measured: {str(error).splitlines()[0]}", flush=True)
        model = optimizer = run = None
        if not tiny:
            torch._dynamo.reset()
            torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    device = "cpu" if arguments.tiny else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU: its attention and its training step are not measured")
        return 77
    rows = Rows(arguments.json)
    versions = {"pytorch": torch.__version__}
    if device == "cuda":
        versions["cudnn"] = str(torch.backends.cudnn.version())
        torch.backends.cuda.matmul.allow_tf32 = True
    print(versions, flush=True)
    rows.write({"versions": versions})
    clock = Clock(device == "cuda", 2 if arguments.tiny else arguments.rounds)
    measure_attention(rows, clock, device, TINY if arguments.tiny else SHAPES, arguments.only)
    measure_step(rows, clock, device, [2] if arguments.tiny else [32, 64], arguments.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
