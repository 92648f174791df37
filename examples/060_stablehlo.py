#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains with what 060_stablehlo wrote: 060_stablehlo.py step jax, or step iree with step.vmfb beside the others."""
import json
import sys

import numpy as np

path, compiler = sys.argv[1:3]
ports = json.load(open(path + ".json"))
arguments, results = ports["arguments"], ports["results"]

if compiler == "jax":
    import jax
    import jax.extend.backend
    from jaxlib import xla_client

    client = jax.extend.backend.get_backend("cpu")
    program = client.compile_and_load(open(path + ".mlir").read(), client.devices()[:1], xla_client.CompileOptions())

    def place(value):
        return jax.device_put(value)

    def run(values):
        return program.execute(values)

    def number(value):
        return float(value)
else:
    import iree.runtime as iree

    config = iree.Config("local-task")
    module = iree.load_vm_module(iree.VmModule.mmap(config.vm_instance, path + ".vmfb"), config)

    def place(value):
        return iree.asdevicearray(config.device, value)

    def run(values):
        return module["main"](*values)

    def number(value):
        return float(value.to_host())

# Parameters and states, as they begin.
stored, values = np.fromfile(path + ".values", np.float32), []
for port in arguments:
    if port["role"] in ("parameter", "state"):
        size = int(np.prod(port["shape"]))
        values.append(place(stored[:size].reshape(port["shape"])))
        stored = stored[size:]

text = np.frombuffer(b"the cat sat on the mat, and the dog sat on the cat. " * 20, np.uint8).astype(np.int32)
random = np.random.default_rng(1)
for step in range(1, 41):
    starts = random.integers(0, len(text) - 65, 8)
    given = {
        "tokens": np.stack([text[i:i + 64] for i in starts]),
        "targets": np.stack([text[i + 1:i + 65] for i in starts]),
        "learning_rate": np.float32(3e-3),
        "correction1": np.float32(1 - 0.9**step),
        "correction2": np.float32(1 - 0.95**step),
    }
    found = run(values + [place(given[port["name"]]) for port in arguments if port["role"] in ("input", "scalar")])
    for port, value in zip(results, found):
        if port["role"] == "update":  # what it was is gone: the module may have written over it
            values[port["argument"]] = value
        elif port["name"] == "loss" and step % 10 == 0:
            print(f"step {step}: loss {number(value):.4f}")
