#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models in plain jax.numpy as StableHLO modules, with what JAX makes of them.

  export_jax.py FOLDER            writes NAME.mlir and NAME.safetensors (arguments, loss, gradients) for every model
  export_jax.py --trains PROGRAM  train_gpt2 trains a GPT, of layers written out, for 20 steps, as AdamW in JAX does
The files in tests/graph/jax are those of the first form, `export_jax.py tests/graph/jax`; the tests read them without JAX.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np

    import jax
    import jax.export
    import jax.numpy as jnp
    from jax import lax
except ImportError:
    print("SKIPPED: JAX is not installed (pip install -r scripts/check_stablehlo.txt)", file=sys.stderr)
    sys.exit(77)

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS, BATCH, SEQUENCE = 16, 8, 8, 2, 2, 2, 6


def norm(x, gamma, beta):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta


def block(p, x):
    batch, tokens, width = x.shape
    q, k, v = jnp.split(norm(x, p["gamma_1"], p["beta_1"]) @ p["qkv"], 3, -1)
    q, k, v = [a.reshape(batch, tokens, HEADS, width // HEADS) for a in (q, k, v)]
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(width // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v).reshape(batch, tokens, width)
    x = x + mixed @ p["proj"]
    return x + jax.nn.gelu(norm(x, p["gamma_2"], p["beta_2"]) @ p["fc"]) @ p["out"]


def cross_entropy(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def gpt_layers(params, tokens, targets):
    """Layers one after another; rows by indices."""
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[1]]
    for p in params["blocks"]:
        x = block(p, x)
    return cross_entropy(norm(x, params["gamma"], params["beta"]) @ params["wte"].T, targets)


def gpt_scan(params, tokens, targets):
    """Layers stacked, by lax.scan."""
    x = jnp.take(params["wte"], tokens, axis=0) + params["wpe"][: tokens.shape[1]]
    x, _ = lax.scan(lambda x, p: (block(p, x), None), x, params["blocks"])
    return cross_entropy(norm(x, params["gamma"], params["beta"]) @ params["wte"].T, targets)


def mixture(params, tokens, targets):
    """What else modules hold: loops with outputs, branches, masks and tables of the program, scatter, argmax."""
    positions = np.arange(SEQUENCE)[:, None] / 10000 ** (np.arange(WIDTH) / WIDTH)
    table = jnp.asarray(np.where(np.arange(WIDTH) % 2 == 0, np.sin(positions), np.cos(positions)).astype(np.float32))
    x = params["wte"][tokens] + table
    _, states = lax.scan(lambda h, e: (jnp.tanh(e @ params["mix"] + 0.5 * h),) * 2, jnp.zeros((BATCH, WIDTH)), x.swapaxes(0, 1))
    h = states.swapaxes(0, 1)
    scores = jnp.where(np.tril(np.ones((SEQUENCE, SEQUENCE), bool)), h @ h.swapaxes(1, 2), -1e9)
    h = jax.nn.softmax(scores, -1) @ h + jnp.cumsum(h, 1) / SEQUENCE
    h = lax.fori_loop(0, 3, lambda i, y: y * 0.9 + jnp.sin(y) * (i + 1) / 8, h)
    best = jnp.argmax(h, -1)
    h = h + jax.nn.one_hot(best, WIDTH) * h + jax.nn.softplus(h) - jnp.log1p(jnp.abs(h) ** 1.5) + jnp.expm1(-h * h)
    h = h.at[:, 0].add(params["first"])
    h = lax.cond(h.sum() > 0, lambda y: y * 2, lambda y: y / 2, h)
    h = jnp.flip(jnp.clip(h, -3, 3), 1) + jnp.roll(h, 1, 1) + jnp.prod(1 + 0.1 * h, -1, keepdims=True)
    h = h + jnp.maximum(h, 0) + jnp.round(h) + jnp.floor(h) + jnp.mod(h, 2.0) + jnp.min(h, axis=1, keepdims=True)
    return cross_entropy(jax.nn.gelu(h, approximate=False) @ params["wte"].T, targets)


def leaf(rng, shape, deviation=0.5, mean=0.0):
    return (mean + deviation * rng.standard_normal(shape)).astype(np.float32)


def parameters(rng, stacked):
    def layer(*head):
        sizes = {"qkv": (WIDTH, 3 * WIDTH), "proj": (WIDTH, WIDTH), "fc": (WIDTH, 2 * WIDTH), "out": (2 * WIDTH, WIDTH)}
        made = {name: leaf(rng, head + size) for name, size in sizes.items()}
        for i in (1, 2):
            made[f"gamma_{i}"], made[f"beta_{i}"] = leaf(rng, head + (WIDTH,), 0.2, 1), leaf(rng, head + (WIDTH,), 0.2)
        return made

    return {
        "wte": leaf(rng, (VOCABULARY, WIDTH)),
        "wpe": leaf(rng, (POSITIONS, WIDTH)),
        "gamma": leaf(rng, (WIDTH,), 0.2, 1),
        "beta": leaf(rng, (WIDTH,), 0.2),
        "blocks": layer(LAYERS) if stacked else [layer()],
    }


def models():
    rng = np.random.default_rng(1)
    yield "gpt", gpt_scan, parameters(rng, True)
    yield "mixture", mixture, {"wte": leaf(rng, (VOCABULARY, WIDTH)), "mix": leaf(rng, (WIDTH, WIDTH)), "first": leaf(rng, (WIDTH,))}


def name_of(path):
    return "params" + jax.tree_util.keystr(path)


def text_of(function, *arguments):
    """With the names of arguments, without the lines of this file."""
    text = jax.jit(function).lower(*arguments).as_text(debug_info=True)
    text = re.sub(r"^#loc.*\n", "", text, flags=re.M)
    return re.sub(r' loc\((?:#loc\d*|unknown)\)', "", text)


def write_safetensors(path, tensors):
    header, at, data = {}, 0, b""
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        kind = {"float32": "F32", "int32": "I32"}[str(value.dtype)]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
        data += value.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def flattened(tree, prefix=""):
    return {prefix + name_of(path): np.asarray(x) for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]}


def adamw(function, params, batches, rate=1e-2, decay=0.1, clip=1.0):
    """Losses of steps with decoupled decay of matrices, gradients clipped to a common norm."""
    m = jax.tree.map(jnp.zeros_like, params)
    v = jax.tree.map(jnp.zeros_like, params)
    losses = []
    step = jax.jit(jax.value_and_grad(function))
    for t, (tokens, targets) in enumerate(batches, 1):
        loss, g = step(params, tokens, targets)
        losses.append(float(loss))
        length = math.sqrt(sum(float((x.astype(jnp.float32) ** 2).sum()) for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x * (clip / max(length, clip)), g)
        m = jax.tree.map(lambda a, x: 0.9 * a + 0.1 * x, m, g)
        v = jax.tree.map(lambda a, x: 0.95 * a + 0.05 * x * x, v, g)
        params = jax.tree.map(
            lambda p, a, b: p - rate * (a / (1 - 0.9**t) / (jnp.sqrt(b / (1 - 0.95**t)) + 1e-8) + (decay if p.ndim > 1 else 0.0) * p), params, m, v)
    return losses


def record(folder):
    rng = np.random.default_rng(2)
    tokens, targets = [rng.integers(0, VOCABULARY, (BATCH, SEQUENCE)).astype(np.int32) for _ in range(2)]
    for name, function, params in models():
        # Operation by operation: fused, XLA finds other minima than those that it differentiates.
        loss, gradients = jax.value_and_grad(function)(params, tokens, targets)
        with open(os.path.join(folder, name + ".mlir"), "w") as out:
            out.write(text_of(function, params, tokens, targets))
        write_safetensors(
            os.path.join(folder, name + ".safetensors"),
            {**flattened(params), "tokens": tokens, "targets": targets, "loss": np.asarray(loss)}
            | flattened(gradients, "gradient.")
            | ({"losses": np.array(adamw(function, params, [(tokens, targets)] * 20), np.float32)} if name == "gpt" else {}),
        )
        print(f"{name}: loss {float(loss):.7f}")


def trains(program):
    """The losses of --model FILE.mlir are those of AdamW in JAX on the same batches."""
    rng = np.random.default_rng(3)
    params = parameters(rng, False)
    shape = jax.ShapeDtypeStruct((BATCH, SEQUENCE), jnp.int32)
    with tempfile.TemporaryDirectory(prefix="tutti-jax-") as folder:
        path = lambda name: os.path.join(folder, name)
        with open(path("gpt.mlir"), "w") as out:
            out.write(str(jax.export.export(jax.jit(gpt_layers))(params, shape, shape).mlir_module()))
        write_safetensors(path("gpt.safetensors"), flattened(params))
        # One batch is all the data: the order of its rows changes no mean.
        count = BATCH * SEQUENCE
        text = rng.integers(0, VOCABULARY, count + 1).astype(np.uint16)
        with open(path("train.bin"), "wb") as out:
            out.write(struct.pack("<256i", 20240520, 1, count + 1, *[0] * 253) + text.tobytes())
        command = [program, "--model", path("gpt.mlir"), "--data", path("train.bin"), "--vocabulary", str(VOCABULARY), "--steps", "20",
                   "--learning-rate", "1e-2", "--schedule", "constant", "--warmup", "0", "--weight-decay", "0.1", "--clip", "1", "--threads", "1",
                   "--backend", "threads", "--out", path("run")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        with open(os.path.join(path("run"), "metrics.jsonl")) as lines:
            found = [row["loss"] for row in map(json.loads, lines) if row["type"] == "step"]
    tokens, targets = [text[i : i + count].reshape(BATCH, SEQUENCE).astype(np.int32) for i in (0, 1)]
    wanted = adamw(gpt_layers, params, [(tokens, targets)] * 20)
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, wanted))
    print(f"20 steps from {wanted[0]:.4f} to {wanted[-1]:.4f}: within {worst:.1e} of JAX")
    if len(found) != 20 or worst > 1e-4:
        sys.exit(f"losses differ:\n{found}\n{wanted}")


def main():
    if len(sys.argv) == 2:
        record(sys.argv[1])
    elif len(sys.argv) == 3 and sys.argv[1] == "--trains":
        trains(sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
