#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times whole training steps of a GPT-2, this library beside its rivals, in one run.

Contenders take turns (A B C A B C ...), every turn is a process of a few steps from the same weights on the same
tokens; its first step is left out, the median over all other steps of all turns counts. The first losses must agree
before anything is reported.

A rival is given by path and skipped loudly when absent:
  --llmc PATH     llm.c's train_gpt2.c, which is built here with this run's batch and sequence (both are constants in it)
                  by gcc -Ofast -march=native -fopenmp; or a program built so
  --torch PYTHON  an interpreter that has PyTorch (Debian: python3-torch, then /usr/bin/python3)
  --jax PYTHON    an interpreter that has JAX and optax (pip install jax optax)
The scripts of the last two are in benchmarks/rivals. Both, and this library, also run with products in bfloat16.

Memory is the largest resident set of a turn's process; a rank of MPI counts alone.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading


class Failed(Exception):
    pass


class Turn:
    """What one process did: milliseconds and losses of its steps, megabytes, milliseconds in which a rank waited, and
    the share of the multiply-add rate, measured by the same process, that went into the model's products."""

    def __init__(self, ms, losses, mb, waits=(), mfu=()):
        self.ms, self.losses, self.mb, self.waits, self.mfu = ms, losses, mb, list(waits), list(mfu)


def watched(command, timeout, stop=None, **options):
    """Output of a command and its peak memory in MB. A line for which `stop` is true ends it. Errors: Failed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, **options)

    def kill():  # Popen.kill would reap the process, and with it the count of its memory
        os.kill(process.pid, signal.SIGKILL)

    alarm = threading.Timer(timeout, kill)
    alarm.start()
    text, stopped = [], False
    try:
        for line in process.stdout:
            text.append(line)
            stopped = stop is not None and stop(line)
            if stopped:
                kill()
                break
    except BaseException:
        kill()
        raise
    finally:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        alarm.cancel()
        process.stdout.close()
    if not stopped and process.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}\nended with {process.returncode}:\n{''.join(text)[-4000:]}")
    return "".join(text), usage.ru_maxrss / 1024


def run_ours(args, folder, ranks, threads, backend, steps, dtype="float32", recompute="none"):
    """One process, or one MPI job."""
    out = tempfile.mkdtemp(dir=folder)
    command = [str(args.trainer), "--model", str(folder / "gpt2_124M.bin"), "--data", str(folder / "train.bin"),
               "--batch", str(args.batch // ranks), "--sequence", str(args.sequence), "--steps", str(steps),
               "--learning-rate", "1e-4", "--schedule", "constant", "--weight-decay", "0", "--beta2", "0.999",
               "--clip", "0", "--threads", str(threads), "--backend", backend, "--validate-every", "0",
               "--checkpoint-every", "0", "--no-final-checkpoint", "--compute", dtype, "--recompute", recompute, "--out", out]
    if backend == "mpi":
        command = [args.mpiexec, "-n", str(ranks)] + command
    else:
        command += ["--ranks", str(ranks)]  # without it there is one for each processor
    _, mb = watched(command, 1800)
    events = [json.loads(line) for line in open(pathlib.Path(out) / "metrics.jsonl")]
    shutil.rmtree(out)
    rows = [event for event in events if event["type"] == "step"]
    # A launcher's own memory says nothing about its ranks'.
    return Turn([row["ms"] for row in rows], [row["loss"] for row in rows], None if backend == "mpi" else mb,
                [row.get("exposed_comm_ms", 0) for row in rows], [row["mfu"] for row in rows])


# What keeps each library on AVX2, for `--isa avx2`.
AVX2_ALONE = {"TUTTI_ISA": "avx2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "ATEN_CPU_CAPABILITY": "avx2",
              "DNNL_MAX_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}

LLMC_STEP = re.compile(r"step (\d+): train loss ([0-9.]+) \(took ([0-9.]+) ms\)")


def build_llmc(args, folder):
    """The program itself, or train_gpt2.c compiled with the batch and the sequence of this run."""
    if args.llmc.suffix != ".c":
        return args.llmc
    source = args.llmc.read_text()
    for name, value in [("B", args.batch), ("T", args.sequence)]:
        source, found = re.subn(rf"\bint {name} = \d+;", f"int {name} = {value};", source)
        if found != 1:
            raise Failed(f"{args.llmc}: 'int {name} = ...;' is there {found} times, not once; give a program instead")
    source = re.sub(r"\bint val_num_batches = \d+;", "int val_num_batches = 1;", source)  # not timed here
    (folder / "train_gpt2.c").write_text(source)
    program = folder / "train_gpt2"
    machine = "x86-64-v3" if args.isa == "avx2" else "native"
    built = subprocess.run(["gcc", "-Ofast", f"-march={machine}", "-fopenmp", "-DOMP", f"-I{args.llmc.parent}",
                            folder / "train_gpt2.c", "-o", program, "-lm"], capture_output=True, text=True)
    if built.returncode != 0:
        raise Failed(f"{args.llmc} does not compile:\n{built.stderr[-2000:]}")
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    args.versions.add(f"llm.c's train_gpt2.c by {compiler}, -Ofast -march={machine} -fopenmp")
    return program


def run_llmc(args, folder, steps):
    """llm.c reads fixed paths and knows no flags: it gets a folder of its own and is ended after `steps` steps."""
    times, losses = [], []

    def stop(line):
        found = LLMC_STEP.search(line)
        if found:
            losses.append(float(found.group(2)))
            times.append(float(found.group(3)))
        return len(times) == steps

    # Into a pipe C writes whole blocks, of which some twenty steps make one: by lines.
    _, mb = watched(["stdbuf", "-oL", str(args.llmc)], 3600, stop, cwd=folder / "llmc",
                    env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    if len(times) < steps:
        raise Failed(f"{args.llmc} stopped after {len(times)} of {steps} steps")
    return Turn(times, losses, mb)


def run_script(args, folder, interpreter, script, dtype, steps):
    command = [str(interpreter), str(pathlib.Path(__file__).resolve().parent / "rivals" / script), "--folder", str(folder),
               "--batch", str(args.batch), "--sequence", str(args.sequence), "--steps", str(steps), "--threads",
               str(args.threads), "--dtype", dtype]
    text, mb = watched(command, 1800, env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    head, *rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    args.versions.add(head["version"])
    return Turn([row["ms"] for row in rows], [row["loss"] for row in rows], mb)


def prepare(args, folder):
    subprocess.run([str(args.make_inputs), "--out", str(folder), "--batch", str(args.batch), "--sequence",
                    str(args.sequence)], check=True)
    data = folder / "llmc" / "dev" / "data" / "tinyshakespeare"
    data.mkdir(parents=True)
    (folder / "llmc" / "gpt2_124M.bin").symlink_to(folder / "gpt2_124M.bin")
    (data / "tiny_shakespeare_train.bin").symlink_to(folder / "train.bin")
    (data / "tiny_shakespeare_val.bin").symlink_to(folder / "validation.bin")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "build",
                        help="configured build folder; what is missing in it is built")
    parser.add_argument("--llmc", type=pathlib.Path, default=os.environ.get("TUTTI_LLMC"), help="llm.c's train_gpt2.c or train_gpt2")
    parser.add_argument("--torch", type=pathlib.Path, default=os.environ.get("TUTTI_TORCH"), help="python with PyTorch")
    parser.add_argument("--jax", type=pathlib.Path, default=os.environ.get("TUTTI_JAX"), help="python with JAX and optax")
    parser.add_argument("--mpiexec", default=next((name for name in ("mpiexec.mpich", "mpiexec.hydra", "mpiexec") if shutil.which(name)), "mpiexec"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="per turn, the first of which is not counted")
    parser.add_argument("--isa", choices=["avx2"], help="keep all contenders on AVX2 on a processor that has more; llm.c as source only")
    parser.add_argument("--recompute", action="store_true", help="tutti also with --recompute pointwise and block")
    parser.add_argument("--only", metavar="WORDS", help="contenders whose names contain one of these, separated by commas")
    parser.add_argument("--json", type=pathlib.Path, help="file for rows {name, ours, rival, ratio, unit}")
    args = parser.parse_args()
    if args.steps < 2 or args.rounds < 1:
        parser.error("--steps must be at least 2, of which the first does not count, and --rounds at least 1")
    if args.isa == "avx2":
        os.environ.update(AVX2_ALONE)
    if subprocess.run(["ninja", "-C", str(args.build), "examples/train_gpt2", "benchmarks/step_inputs", "benchmarks/peaks"], stdout=subprocess.DEVNULL).returncode != 0:
        raise Failed(f"building in {args.build} failed; run ninja there to see why")
    args.trainer = args.build / "examples" / "train_gpt2"
    args.make_inputs = args.build / "benchmarks" / "step_inputs"

    contenders = {
        "tutti 1 process x %d threads" % args.threads: lambda f: run_ours(args, f, 1, args.threads, "threads", args.steps),
        "tutti mpi %d ranks x 1 thread" % args.threads: lambda f: run_ours(args, f, args.threads, 1, "mpi", args.steps),
    }
    names = list(contenders)
    if shutil.which(args.mpiexec) is None or args.batch % args.threads:
        why = f"no {args.mpiexec} here" if args.batch % args.threads == 0 else f"a batch of {args.batch} cannot be shared by {args.threads} ranks"
        print(f"SKIPPED: {why}, so nothing over MPI is measured", file=sys.stderr)
        del contenders[names[1]]
    if args.llmc is None or not pathlib.Path(args.llmc).is_file():
        print("SKIPPED: llm.c is not measured; give --llmc PATH (or TUTTI_LLMC) to its train_gpt2.c", file=sys.stderr)
    else:
        args.llmc = pathlib.Path(args.llmc).resolve()
        contenders["llm.c"] = lambda f: run_llmc(args, f, args.steps)
    narrow = "tutti bfloat16"
    contenders[narrow] = lambda f: run_ours(args, f, 1, args.threads, "threads", args.steps, "bfloat16")
    for policy in ["pointwise", "block"] if args.recompute else []:
        contenders[f"tutti recompute {policy}"] = lambda f, p=policy: run_ours(args, f, 1, args.threads, "threads", args.steps, recompute=p)
    for rival, interpreter, script in [("PyTorch", args.torch, "step_torch.py"), ("JAX", args.jax, "step_jax.py")]:
        if interpreter is None or shutil.which(interpreter) is None:
            print(f"SKIPPED: {rival} is not measured; give --{script[5:-3]} PYTHON, an interpreter that has it", file=sys.stderr)
            continue
        for dtype in ["float32", "bfloat16"]:
            contenders[f"{rival} {dtype}"] = lambda f, i=interpreter, s=script, d=dtype: run_script(args, f, i, s, d, args.steps)
    args.versions = set()
    if args.only:
        words = args.only.split(",")
        contenders = {name: run for name, run in contenders.items() if any(word in name for word in words)}
        if not contenders:
            raise Failed(f"no contender's name contains one of {args.only}")

    # The machine, and what it can do now.
    print(subprocess.run([str(args.build / "benchmarks" / "peaks"), "--head", "--threads", str(args.threads)], check=True,
                         capture_output=True, text=True).stdout, end="")
    print(f"GPT-2 124M, B {args.batch} T {args.sequence}, {args.rounds} rounds of {args.steps} steps")
    times = {name: [] for name in contenders}
    losses, memory, utilisation = {}, {}, {}
    with tempfile.TemporaryDirectory(prefix="tutti-step-") as folder:
        folder = pathlib.Path(folder)
        prepare(args, folder)
        if "llm.c" in contenders:
            args.llmc = build_llmc(args, folder)
        for turn in range(args.rounds):
            for name, run in contenders.items():
                took = run(folder)
                times[name] += took.ms[1:]
                losses.setdefault(name, took.losses)
                if took.mb is not None:
                    memory[name] = max(took.mb, memory.get(name, 0))
                utilisation.setdefault(name, []).extend(took.mfu[1:])
                note = f"  {took.mb:6.0f} MB" if took.mb is not None else f"  rank waits {statistics.median(took.waits[1:]):.1f} ms"
                print(f"  round {turn + 1}  {name:32} median {statistics.median(took.ms[1:]):8.1f} ms  first loss {took.losses[0]:.6f}{note}", flush=True)

    first, reference = next((name, loss[0]) for name, loss in losses.items())
    for name, loss in losses.items():
        if abs(loss[0] - reference) > (2e-3 if "bfloat16" in name + first else 1e-4) * max(1.0, abs(reference)):
            print(f"FAILED: first loss of {name} is {loss[0]}, of {first} {reference}", file=sys.stderr)
            return 1

    median = {name: statistics.median(values) for name, values in times.items()}
    rows = []
    def compare(what, ours, rival):
        if ours in median and rival in median:
            rows.append({"name": f"step 124M B{args.batch} T{args.sequence} {what}", "ours": median[ours],
                         "rival": median[rival], "ratio": median[rival] / median[ours], "unit": "ms"})
    compare("vs llm.c", names[0], "llm.c")
    compare("vs PyTorch", names[0], "PyTorch float32")
    compare("vs JAX", names[0], "JAX float32")
    compare("mpi ranks vs threads", names[1], names[0])
    compare("bfloat16 vs own float32", narrow, names[0])
    for policy in ["pointwise", "block"]:
        compare(f"none vs recompute {policy}", names[0], f"tutti recompute {policy}")
    compare("bfloat16 vs llm.c", narrow, "llm.c")
    compare("bfloat16 vs PyTorch's", narrow, "PyTorch bfloat16")
    compare("bfloat16 vs JAX's", narrow, "JAX bfloat16")
    for what, ours, rival in [("memory vs llm.c", names[0], "llm.c"), ("memory vs PyTorch", names[0], "PyTorch float32"),
                              ("memory vs JAX", names[0], "JAX float32"), ("memory of bfloat16", narrow, names[0]),
                              ("memory of none vs recompute pointwise", names[0], "tutti recompute pointwise"),
                              ("memory of none vs recompute block", names[0], "tutti recompute block")]:
        if ours in memory and rival in memory:
            rows.append({"name": f"step 124M B{args.batch} T{args.sequence} {what}", "ours": memory[ours],
                         "rival": memory[rival], "ratio": memory[rival] / memory[ours], "unit": "MB"})
    for name, values in utilisation.items():
        if values:
            rows.append({"name": f"step 124M B{args.batch} T{args.sequence} MFU of {name}", "ours": statistics.median(values),
                         "rival": None, "ratio": None, "unit": "of the multiply-add rate"})
    if args.versions:
        print("rivals: " + ", ".join(sorted(args.versions)))
    print()
    for row in rows:
        if row["rival"] is None:
            print(f"{row['name']:60} {row['ours']:.3f} {row['unit']}")
        else:
            print(f"{row['name']:44} ours {row['ours']:8.1f} {row['unit']}  rival {row['rival']:8.1f} {row['unit']}  ratio {row['ratio']:.2f}x")
    if args.json:
        args.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
