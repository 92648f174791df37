#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training step of GPT-2 124M in JAX: one jitted function with donated state, layers scanned, optax's AdamW."""

import os

import gpt2_file

ARGUMENTS = gpt2_file.arguments()
# Before JAX starts its threads, of which it has as many as it sees processors.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: ARGUMENTS.threads])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402


def norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def main():
    args = ARGUMENTS
    heads, vocabulary, parameters, tokens, targets = gpt2_file.read(args)
    compute = jnp.bfloat16 if args.dtype == "bfloat16" else jnp.float32

    def linear(x, weight, bias):
        return jnp.matmul(x.astype(compute), weight.astype(compute).T, preferred_element_type=jnp.float32) + bias

    def attention(qkv):
        batch, length, channels = qkv.shape
        size = channels // 3 // heads
        q, k, v = (x.reshape(batch, length, heads, size) for x in jnp.split(qkv, 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * size ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(batch, length, -1)

    def loss_of(p):
        x = p["wte"][tokens] + p["wpe"][: tokens.shape[1]]

        def block(x, w):
            h = linear(norm(x, w["ln_1.weight"], w["ln_1.bias"]), w["qkv.weight"], w["qkv.bias"])
            x = x + linear(attention(h), w["proj.weight"], w["proj.bias"])
            h = linear(norm(x, w["ln_2.weight"], w["ln_2.bias"]), w["fc.weight"], w["fc.bias"])
            return x + linear(jax.nn.gelu(h, approximate=True), w["out.weight"], w["out.bias"]), None

        x, _ = jax.lax.scan(block, x, {name: p[name] for name in gpt2_file.BLOCK})
        logits = linear(norm(x, p["ln_f.weight"], p["ln_f.bias"]), p["wte"][:vocabulary], 0.0)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    optimizer = optax.adamw(gpt2_file.RATE, *gpt2_file.BETAS, gpt2_file.EPSILON, weight_decay=gpt2_file.DECAY)

    def update(p, state):
        loss, slopes = jax.value_and_grad(loss_of)(p)
        changes, state = optimizer.update(slopes, state, p)
        return optax.apply_updates(p, changes), state, loss

    update = jax.jit(update, donate_argnums=(0, 1))
    p = {name: jnp.asarray(value) for name, value in parameters.items()}
    held = [p, optimizer.init(p)]

    def step():
        held[0], held[1], loss = update(*held)
        jax.block_until_ready((held, loss))
        return loss

    gpt2_file.report("JAX " + jax.__version__, args, step)


main()
