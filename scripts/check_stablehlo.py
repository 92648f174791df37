#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the StableHLO modules that tests/graph/stablehlo_files.cpp writes in JAX and IREE, and compares.

usage: check_stablehlo.py FOLDER [--only WORD] [--backend jax|iree|targets]...

Small graphs are compared with what the library's interpreter computes, training steps, 20 of each, with the losses of
its executor. IREE then compiles training steps for processors and GPUs that need not be here (targets), which tells
whether it can, and nothing of what they would give there. `./tutti check --iree` makes the folder and a Python that has
both compilers."""
import argparse
import concurrent.futures
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ml_dtypes
import numpy as np

# Where IREE's compiler refuses a module that XLA takes: the case, and words of its message. Anything else is a failure,
# and so is a case here that IREE takes.
IREE_REFUSES = {
    "functions_float64": "undefined symbol",  # tanh, sine, cosine
}

# Training steps that IREE is to compile for every target of targets.json, and where it cannot, with words of its message.
# As above: anything else is a failure, and so is success.
COMPILED_FOR_TARGETS = ("train_gpt2", "train_llama", "example_gpt2")
IREE_CANNOT_TARGET = {
    # 3.13 knows targets up to sm_89. What it makes is PTX, which drivers of newer GPUs take.
    ("cuda:sm_90", "train_gpt2"): "missing GPU target in #hal.executable.target",
    ("cuda:sm_90", "train_llama"): "missing GPU target in #hal.executable.target",
    ("cuda:sm_90", "example_gpt2"): "missing GPU target in #hal.executable.target",
    ("metal-spirv", "example_gpt2"): "failed to legalize operation 'memref.alloc'",
}
MOST_SECONDS = 600  # of one compilation, with the machine shared


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


class Jax:
    name = "JAX"

    def __init__(self, folder):
        import jax
        import jax.extend.backend
        from jaxlib import xla_client
        jax.config.update("jax_enable_x64", True)
        self.jax, self.xla, self.client = jax, xla_client, jax.extend.backend.get_backend("cpu")
        self.version = importlib.metadata.version("jax") + ", jaxlib " + importlib.metadata.version("jaxlib")

    def compile(self, text, ranks):
        options = self.xla.CompileOptions()
        options.num_replicas = ranks
        options.device_assignment = self.xla.DeviceAssignment.create(np.arange(ranks).reshape(ranks, 1))
        devices = self.client.devices()[:ranks]
        return self.client.compile_and_load(text, devices, options), devices

    def run(self, compiled, arguments):
        """`arguments` of every rank; the results likewise."""
        program, devices = compiled
        # Arrays that are told to be the same everywhere, and are not: what replicas hold is theirs to know.
        mesh = self.jax.sharding.Mesh(np.array(devices), ("rank",))
        everywhere = self.jax.sharding.NamedSharding(mesh, self.jax.sharding.PartitionSpec())
        placed = [self.jax.make_array_from_single_device_arrays(
            values[0].shape, everywhere, [self.jax.device_put(*pair) for pair in zip(values, devices)])
            for values in zip(*arguments)]
        found = program.execute_sharded(placed).disassemble_into_single_device_arrays()
        return [[np.asarray(values[rank]) for values in found] for rank in range(len(devices))]


class Iree:
    name = "IREE"

    def __init__(self, folder):
        import iree.compiler
        import iree.runtime
        self.compiler, self.runtime = iree.compiler, iree.runtime
        self.config = iree.runtime.Config("local-sync")
        self.flags = json.loads((folder / "targets.json").read_text())["llvm-cpu"]
        self.version = (importlib.metadata.version("iree-base-compiler") + ", runtime " +
                        importlib.metadata.version("iree-base-runtime"))

    def compile(self, text, ranks):
        # It computes float64 in float32, for want of functions in it, unless arguments or results are float64.
        signature = text[text.index("func.func"):text.index("{\n", text.index("func.func"))]
        wide = ["--iree-input-demote-f64-to-f32=false"] if "f64>" in signature else []
        binary = self.compiler.compile_str(text, extra_args=self.flags + wide)
        module = self.runtime.VmModule.copy_buffer(self.config.vm_instance, binary)
        return self.runtime.load_vm_module(module, self.config)

    def run(self, compiled, arguments):
        found = compiled["main"](*[self.runtime.asdevicearray(self.config.device, value) for value in arguments[0]])
        found = found if isinstance(found, (tuple, list)) else [found]
        return [[value.to_host() for value in found]]


class Case:
    def __init__(self, folder, entry):
        self.folder, self.entry, self.name = folder, entry, entry["name"]
        self.text = (folder / (self.name + ".mlir")).read_text()
        ports = json.loads((folder / (self.name + ".json")).read_text())
        self.arguments, self.results = ports["arguments"], ports["results"]

    def read(self, data, at, port):
        dtype, count = dtype_of(port["dtype"]), int(np.prod(port["shape"]))
        value = np.frombuffer(data, dtype, count, at).reshape(port["shape"])
        return value, at + count * dtype.itemsize

    def read_list(self, suffix, ports, times=1):
        data, at, lists = (self.folder / (self.name + suffix)).read_bytes(), 0, []
        for _ in range(times):
            values = []
            for port in ports:
                value, at = self.read(data, at, port)
                values.append(value)
            lists.append(values)
        assert at == len(data), f"{self.name}{suffix} has {len(data)} bytes, not {at}"
        return lists


def difference(port, got, want, tolerance):
    """Largest difference, relative to the largest magnitude; an error in words, or None."""
    where = port["name"]
    if list(got.shape) != port["shape"]:
        return 0, f"{where} has shape {list(got.shape)}, not {port['shape']}"
    if port["dtype"] == "bool":  # some runtimes have bytes for them
        got = got.astype(bool)
    if got.dtype != dtype_of(port["dtype"]):
        return 0, f"{where} is {got.dtype}, not {port['dtype']}"
    if got.size == 0:
        return 0, None
    floating = "float" in port["dtype"]
    got = got.astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if same.all():
        return 0, None
    with np.errstate(all="ignore"):
        off = np.where(same, 0, np.abs(got - want))
    off = np.where(np.isnan(off), np.inf, off)
    finite = want[np.isfinite(want)]
    scale = max(np.abs(finite).max() if finite.size else 0, 1e-3)
    i = np.unravel_index(np.argmax(off), off.shape)
    relative = off[i] / scale
    if not floating or relative > tolerance:
        return relative, f"{where}{list(map(int, i))} is {got[i]}, not {want[i]} ({relative:.2g})"
    return relative, None


def run_graph(backend, case, compiled):
    ranks = case.entry["ranks"]
    arguments = case.read_list(".arguments", case.arguments, ranks)
    wanted = case.read_list(".results", [dict(port, dtype="float64") for port in case.results], ranks)
    found = backend.run(compiled, arguments)
    worst, errors = 0, []
    for rank in range(ranks):
        assert len(found[rank]) == len(case.results), f"{len(found[rank])} results, not {len(case.results)}"
        for port, got, want in zip(case.results, found[rank], wanted[rank]):
            relative, error = difference(port, got, want, case.entry["tolerance"])
            worst = max(worst, relative)
            if error:
                errors.append(error if ranks == 1 else f"rank {rank}: {error}")
    return worst, errors


def run_training(backend, case, compiled):
    """New values of parameters and states go in again; losses and gradient norms of every step are compared, and
    what parameters and states are in the end."""
    ranks, steps = case.entry["ranks"], case.entry["steps"]
    kept = [i for i, port in enumerate(case.arguments) if port["role"] in ("parameter", "state")]
    given = [i for i, port in enumerate(case.arguments) if port["role"] in ("input", "scalar")]
    initial = dict(zip(kept, case.read_list(".arguments", [case.arguments[i] for i in kept])[0]))
    batches = case.read_list(".steps", [case.arguments[i] for i in given], steps * ranks)
    values = [dict(initial) for _ in range(ranks)]
    names = [port["name"] for port in case.results]
    worst, errors = 0, []
    for step, wanted in enumerate(case.entry["losses"]):
        for rank in range(ranks):
            values[rank].update(zip(given, batches[step * ranks + rank]))
        found = backend.run(compiled, [[own[i] for i in range(len(case.arguments))] for own in values])
        for rank in range(ranks):
            for name, want in zip(("loss", "grad_norm"), wanted):
                got = float(found[rank][names.index(name)])
                relative = abs(got - want) / abs(want)
                worst = max(worst, relative)
                if not relative <= case.entry["tolerance"]:
                    errors.append(f"{name} of step {step}, rank {rank}, is {got:.9g}, not {want:.9g} ({relative:.2g})")
            for port, value in zip(case.results, found[rank]):
                if port["role"] == "update":
                    values[rank][port["argument"]] = value
    first, last = case.entry["losses"][0][0], case.entry["losses"][-1][0]
    if not last < 0.9 * first:
        errors.append(f"nothing was learned: the loss went from {first} to {last}")
    updates = [port for port in case.results if port["role"] == "update"]
    finally_ = case.read_list(".results", [dict(port, dtype="float64") for port in updates])[0]
    for port, want in zip(updates, finally_):
        # A bias of keys moves no loss: its gradient is what rounding leaves, of which AdamW makes whole steps.
        if port["name"].endswith("qkv.bias"):
            continue
        for own in values:
            _, error = difference(port, own[port["argument"]], want, 20 * case.entry["tolerance"])
            if error:
                errors.append("in the end " + error)
    return worst, errors


def require_sight(backend, folder):
    """Ends the check where it does not see that a module is wrong."""
    changes = {"edges_float32": ('"stablehlo.floor"', '"stablehlo.ceil"'), "random_bits": ("3528531795", "3528531796"),
               "conversions_float32": ("#stablehlo<comparison_direction GE>", "#stablehlo<comparison_direction GT>"),
               "gpt_block": ("dense<2> : tensor<i32>", "dense<1> : tensor<i32>")}
    for name, (from_, to) in changes.items():
        case = Case(folder, {"name": name, "ranks": 1, "tolerance": 1e-4})
        assert from_ in case.text, f"{name} has no {from_} any more"
        if not run_graph(backend, case, backend.compile(case.text.replace(from_, to), 1))[1]:
            sys.exit(f"{backend.name} with {to} for {from_} in {name} gives what is expected: this check sees nothing")


def check_with(backend, folder, entries):
    """The number of modules that are wrong."""
    require_sight(backend, folder)
    begin, count, failed, refused, most = time.time(), 0, 0, 0, {}
    # One process of IREE's runtime is one rank.
    cases = [Case(folder, entry) for entry in entries
             if backend.name in entry.get("for", [backend.name]) and (entry["ranks"] == 1 or backend.name == "JAX")]
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    compiling = [pool.submit(backend.compile, case.text, case.entry["ranks"]) for case in cases]
    for case, compiled in zip(cases, compiling):
        entry = case.entry
        refusal = IREE_REFUSES.get(case.name) if backend.name == "IREE" else None
        worst, errors = 0, []
        try:
            run = run_training if entry["kind"] == "training" else run_graph
            worst, errors = run(backend, case, compiled.result())
            if refusal:
                errors = ["is no longer refused: take it off the list in this script"]
        except Exception as error:  # of a compiler: its message is the finding
            lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
            if refusal and refusal in str(error):
                refused += 1
            else:
                errors = [lines[0][:300]]
        count += 1
        failed += bool(errors)
        most[entry["kind"]] = max(most.get(entry["kind"], 0), worst / entry["tolerance"])
        if errors:
            print(f"{backend.name:5} {case.name}: {len(errors)} wrong", flush=True)
        elif entry["kind"] == "training":
            print(f"{backend.name:5} {case.name}: {entry['steps']} steps, losses {entry['losses'][0][0]:.4f} to "
                  f"{entry['losses'][-1][0]:.4f}, within {worst:.2g}", flush=True)
        for error in errors[:8]:
            print("        " + error, flush=True)
    share = ", ".join(f"{kind} {value:.0%}" for kind, value in most.items())
    print(f"{backend.name} {backend.version}: {count} modules in {time.time() - begin:.0f} s, {len(entries) - count} not "
          f"for it, {refused} refused as expected; differences as a share of what is allowed: {share}", flush=True)
    return failed


def compile_for(folder, name, target, flags):
    """Seconds, bytes of the module, and the compiler's first complaint, for one module and target."""
    # The program itself: a compilation that never ends is ended.
    import iree.compiler.tools.binaries as binaries
    begin = time.time()
    with tempfile.TemporaryDirectory() as made:
        output = pathlib.Path(made) / "module.vmfb"
        command = [binaries.find_tool("iree-compile"), *flags, str(folder / (name + ".mlir")), "-o", str(output)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return time.time() - begin, 0, f"no end after {MOST_SECONDS} s"
        lines = done.stderr.splitlines()
        complaint = next((line for line in lines if "error:" in line), (lines or ["no message"])[-1])
        size = output.stat().st_size if output.exists() else 0
    if done.returncode == 0:
        complaint = None if size > 0 else "it left no module"
    elif done.returncode < 0:
        complaint = f"ended by signal {-done.returncode}: {complaint}"
    return time.time() - begin, size, complaint


def check_targets(folder, only):
    """The number of targets for which IREE does something else than it is known to."""
    begin, failed, refused = time.time(), 0, 0
    targets = json.loads((folder / "targets.json").read_text())
    names = [name for name in COMPILED_FOR_TARGETS if only in name]
    version = importlib.metadata.version("iree-base-compiler")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiling = {(target, name): pool.submit(compile_for, folder, name, target, flags)
                     for target, flags in targets.items() for name in names}
        for (target, name), outcome in compiling.items():
            seconds, size, complaint = outcome.result()
            known = IREE_CANNOT_TARGET.get((target, name))
            if complaint is None:
                told = f"compiled in {seconds:.0f} s, {size / 1024:.0f} KiB"
                if known:
                    failed += 1
                    told += ", which it could not before: take it off the list in this script"
            elif known and known in complaint:
                refused += 1
                told = f"IREE {version} cannot, as is known: {complaint[:200]}"
            else:
                failed += 1
                told = f"FAILED: {complaint[:300]}"
            print(f"      {target:13} {name}: {told}", flush=True)
    print(f"IREE {version}: {len(names)} training steps for {len(targets)} targets in {time.time() - begin:.0f} s, "
          f"{refused} refused as expected, {failed} otherwise", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--backend", action="append", choices=["jax", "iree", "targets"])
    options = parser.parse_args()
    entries = [entry for entry in json.loads((options.folder / "cases.json").read_text()) if options.only in entry["name"]]
    if not entries:
        sys.exit(f"no case of {options.folder} has '{options.only}' in its name")
    failed = 0
    for name in options.backend or ["jax", "iree", "targets"]:
        if name == "targets":
            failed += check_targets(options.folder, options.only)
        else:
            failed += check_with({"jax": Jax, "iree": Iree}[name](options.folder), options.folder, entries)
    if failed:
        sys.exit(f"{failed} modules are wrong")
    print("all StableHLO modules agree")


if __name__ == "__main__":
    main()
