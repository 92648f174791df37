# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the rivals' scripts share: the model file and the token file of the step benchmark as numpy arrays, and how steps
are counted and printed."""

import argparse
import json
import pathlib
import time

import numpy

NAMES = ["wte", "wpe", "ln_1.weight", "ln_1.bias", "qkv.weight", "qkv.bias", "proj.weight", "proj.bias", "ln_2.weight",
         "ln_2.bias", "fc.weight", "fc.bias", "out.weight", "out.bias", "ln_f.weight", "ln_f.bias"]
BLOCK = NAMES[2:14]
DECAY = 0.0
BETAS = (0.9, 0.999)
EPSILON = 1e-8
RATE = 1e-4


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="with gpt2_124M.bin and train.bin")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    return parser.parse_args()


def read(args):
    """(heads, vocabulary, parameters by name: those of blocks stacked; tokens, targets)."""
    raw = (args.folder / "gpt2_124M.bin").read_bytes()
    header = numpy.frombuffer(raw, numpy.int32, 256)
    positions, vocabulary, layers, heads, c, padded = (int(x) for x in header[2:8])
    shapes = {"wte": (padded, c), "wpe": (positions, c), "ln_1.weight": (layers, c), "ln_1.bias": (layers, c),
              "qkv.weight": (layers, 3 * c, c), "qkv.bias": (layers, 3 * c), "proj.weight": (layers, c, c),
              "proj.bias": (layers, c), "ln_2.weight": (layers, c), "ln_2.bias": (layers, c),
              "fc.weight": (layers, 4 * c, c), "fc.bias": (layers, 4 * c), "out.weight": (layers, c, 4 * c),
              "out.bias": (layers, c), "ln_f.weight": (c,), "ln_f.bias": (c,)}
    at, parameters = 1024, {}
    for name in NAMES:
        count = int(numpy.prod(shapes[name]))
        parameters[name] = numpy.frombuffer(raw, numpy.float32, count, at).reshape(shapes[name]).copy()
        at += 4 * count
    shard = numpy.frombuffer((args.folder / "train.bin").read_bytes(), numpy.uint16, offset=1024)
    count = args.batch * args.sequence
    tokens = shard[:count].astype(numpy.int64).reshape(args.batch, args.sequence)
    targets = shard[1:count + 1].astype(numpy.int64).reshape(args.batch, args.sequence)
    return heads, vocabulary, parameters, tokens, targets


def report(version, args, step):
    """Runs step() -> loss as often as asked, and prints a line of JSON for each."""
    print(json.dumps({"version": version}), flush=True)
    for _ in range(args.steps):
        begin = time.perf_counter()
        loss = float(step())
        print(json.dumps({"ms": 1e3 * (time.perf_counter() - begin), "loss": loss}), flush=True)
