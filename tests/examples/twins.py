#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Examples that train, in JAX from the same first values and data: their losses agree to 1e-4.

  twins.py lstm|regression|gan RANKS COMMAND...   runs the example, compares what it tells of its first steps
Weights and data come from Philox4x32-10, as the examples' do, so that nothing passes from one to the other.
"""
import re
import subprocess
import sys

try:
    import numpy as np

    import jax
    import jax.numpy as jnp
except ImportError:
    print("SKIPPED: JAX is not installed (pip install -r scripts/check_stablehlo.txt)", file=sys.stderr)
    sys.exit(77)

LAST = 101  # step that is still compared: float32 sums in another order drift apart
TOLERANCE = 1e-4


def words(seed, stream, first, count):
    """CounterRandom{seed, stream}.bits(first + i): Salmon and others, 2011."""
    index = first // 4 + np.arange((first % 4 + count + 3) // 4, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c = [index & low, index >> np.uint64(32), np.full_like(index, stream), np.zeros_like(index)]
    key = [np.uint64(seed), np.uint64(0)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ key[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, 1).reshape(-1)[first % 4:][:count]


def uniform(seed, stream, count, low=0.0, high=1.0):
    value = (words(seed, stream, 0, count) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    low, high = np.float64(np.float32(low)), np.float64(np.float32(high))
    return (low + (high - low) * value).astype(np.float32)


def normal(seed, stream, count, mean=0.0, deviation=1.0):
    pairs = words(seed, stream, 0, (count + 3) // 4 * 4).astype(np.float64).reshape(-1, 2)  # Box-Muller
    radius, angle = np.sqrt(-2 * np.log((pairs[:, 0] + 0.5) * 2.0**-32)), 2 * np.pi * pairs[:, 1] * 2.0**-32
    value = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:count].astype(np.float32)
    return (mean + np.float64(np.float32(deviation)) * value).astype(np.float32)


def parameters(seed, layers):
    """Of (shape, deviation) by name; deviation 0 and None stand for zeros and ones. Each has a stream of its own."""
    filled = {}
    for stream, (name, (shape, deviation)) in enumerate(layers.items()):
        count = int(np.prod(shape))
        filled[name] = (np.ones(shape, np.float32) if deviation is None
                        else normal(seed, stream, count, 0, deviation).reshape(shape))
    return filled


def linear_of(name, inputs, outputs, deviation, bias=True):
    layer = {name + ".weight": ((outputs, inputs), deviation)}
    return layer | {name + ".bias": ((outputs,), 0.0)} if bias else layer


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p.get(name + ".bias", 0)


def adamw(p, m, v, grads, rate, step, beta1, beta2, clip=0.0):
    if clip > 0:
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
        grads = {name: g * clip / jnp.maximum(norm, clip) for name, g in grads.items()}
    for name, g in grads.items():
        m = m | {name: beta1 * m[name] + (1 - beta1) * g}
        v = v | {name: beta2 * v[name] + (1 - beta2) * g * g}
        change = m[name] / (1 - beta1**step) / (jnp.sqrt(v[name] / (1 - beta2**step)) + 1e-8)
        p = p | {name: p[name] - rate * change}
    return p, m, v


def zeros_like(p):
    return {name: np.zeros_like(value) for name, value in p.items()}


def lstm(_):
    time, batch, hidden = 20, 64, 24
    p = parameters(7, linear_of("input", 2, 4 * hidden, 0.5) | linear_of("recurrent", hidden, 4 * hidden, 0.2, False)
                   | linear_of("head", hidden, 1, 0.2))

    def loss(p, x, y):
        def body(carried, element):
            h, cell = carried
            gates = jnp.split(linear(p, "input", element) + linear(p, "recurrent", h), 4, 1)
            cell = jax.nn.sigmoid(gates[0]) * cell + jax.nn.sigmoid(gates[1]) * jnp.tanh(gates[2])
            return (jax.nn.sigmoid(gates[3]) * jnp.tanh(cell), cell), None
        zero = jnp.zeros((batch, hidden))
        (h, _), _ = jax.lax.scan(body, (zero, zero), x)
        return jnp.mean((linear(p, "head", h) - y) ** 2)

    @jax.jit
    def update(p, m, v, x, y, step):
        value, grads = jax.value_and_grad(loss)(p, x, y)
        return adamw(p, m, v, grads, 0.01 * (1 - step / 751), step, 0.9, 0.99, 1.0) + (value,)

    m, v = zeros_like(p), zeros_like(p)
    for step in range(1, LAST + 1):
        x, y = np.zeros((time, batch, 2), np.float32), np.zeros((batch, 1), np.float32)
        for row in range(batch):
            first, second = (int(word) % 10 for word in words(step, row, 0, 2))
            x[:, row, 0] = uniform(step, row, 2 + time)[2:]
            x[[first, 10 + second], row, 1] = 1
            y[row, 0] = x[first, row, 0] + x[10 + second, row, 0]
        p, m, v, value = update(p, m, v, x, y, step)
        yield step, [value]


def regression(ranks):
    batch, hidden = 64, 32
    p = parameters(3, linear_of("first", 2, hidden, 0.7) | {"scale": ((hidden,), None), "shift": ((hidden,), 0.0)}
                   | linear_of("second", hidden, hidden, 0.2) | linear_of("last", hidden, 1, 0.2))

    def loss(p, x, y):
        h = linear(p, "first", x).reshape(ranks, batch // ranks, hidden)  # each rank normalises by what it sees
        normed = (h - h.mean(1, keepdims=True)) / jnp.sqrt(h.var(1, keepdims=True) + 1e-5)
        normed = normed.reshape(batch, hidden) * p["scale"] + p["shift"]
        return jnp.mean((linear(p, "last", jnp.tanh(linear(p, "second", jnp.tanh(normed)))) - y) ** 2)

    @jax.jit
    def update(p, m, v, x, y, step):
        value, grads = jax.value_and_grad(loss)(p, x, y)
        return adamw(p, m, v, grads, 0.01 * (1 - step / 1201), step, 0.9, 0.95) + (value,)

    m, v = zeros_like(p), zeros_like(p)
    for step in range(1, LAST + 1):
        x = uniform(1, step, 2 * batch, -1, 1).reshape(batch, 2)
        y = uniform(2, step, batch, -0.05, 0.05) + np.sin(2 * x[:, 0]) * x[:, 1]
        p, m, v, value = update(p, m, v, x, y[:, None], step)
        yield step, [value]


def gan(_):
    batch, hidden = 128, 16

    def network_of(name, inputs):
        return (linear_of(name + ".first", inputs, hidden, 0.5) | linear_of(name + ".second", hidden, hidden, 0.3)
                | linear_of(name + ".last", hidden, 1, 0.3))

    def network(p, name, x):
        x = jnp.tanh(linear(p, name + ".first", x))
        return linear(p, name + ".last", jnp.tanh(linear(p, name + ".second", x)))

    def made(p, noise):
        return network(p, "generator", noise)

    def told(p, x):
        return network(p, "discriminator", x)

    def telling(p, noise, real):
        return jnp.mean(jax.nn.softplus(told(p, made(p, noise))) + jax.nn.softplus(-told(p, real)))

    def making(p, noise, real):
        return jnp.mean(jax.nn.softplus(-told(p, made(p, noise))))

    @jax.jit
    def update(p, m, v, noise, real, step):
        values = []
        for loss, trained in (telling, "discriminator"), (making, "generator"):
            value, grads = jax.value_and_grad(loss)(p, noise, real)
            grads = {name: g for name, g in grads.items() if name.startswith(trained)}
            p, m, v = adamw(p, m, v, grads, 0.002, step, 0.5, 0.99)
            values.append(value)
        return p, m, v, values

    p = parameters(5, network_of("generator", 2) | network_of("discriminator", 1))
    m, v = zeros_like(p), zeros_like(p)
    for step in range(1, LAST + 1):
        noise = normal(1, step, 2 * batch).reshape(batch, 2)
        real = normal(2, step, batch, 3, 0.5).reshape(batch, 1)
        p, m, v, values = update(p, m, v, noise, real, step)
        yield step, values


def main():
    name, ranks, *command = sys.argv[1:]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
    if result.returncode != 0:
        print(result.stderr, f"{command} ended with {result.returncode}", sep="\n")
        return 1
    ours = {int(step): [float(value) for value in losses.split()]
            for step, losses in re.findall(r"^step (\d+): loss ([-+.\d ]+)$", result.stderr, re.M)}
    compared, worst = 0, 0.0
    for step, theirs in {"lstm": lstm, "regression": regression, "gan": gan}[name](int(ranks)):
        if step not in ours:
            continue
        compared += 1
        print(f"step {step}: {ours[step]} here, {[float(x) for x in theirs]} in JAX")
        if len(ours[step]) != len(theirs):
            return 1
        worst = max([worst] + [abs(a - float(b)) for a, b in zip(ours[step], theirs)])
    print(f"{name} on {ranks} ranks: losses of {compared} steps differ by at most {worst:.2g}")
    return 0 if compared >= 3 and worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
