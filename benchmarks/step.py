#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times whole training steps of a GPT-2, this library beside its rivals, in one run.

Contenders take turns (A B C A B C ...), every turn is a process of a few steps from the same weights on the same
tokens; its first step is left out, the median over all other steps of all turns counts. The first losses must agree
before anything is reported.

A rival is given by path and skipped loudly when absent:
  --llmc PATH     llm.c's CPU trainer, built e.g. with gcc -Ofast -march=native -fopenmp train_gpt2.c -lm
  --torch PYTHON  an interpreter that has PyTorch (Debian: python3-torch, then /usr/bin/python3)
  --jax PYTHON    an interpreter that has JAX and optax (pip install jax optax)
The scripts of the last two are in benchmarks/rivals. Both, and this library, also run with products in bfloat16.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile


def processor():
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


class Failed(Exception):
    pass


def run_ours(args, folder, ranks, threads, backend, steps, dtype="float32"):
    """Milliseconds and losses of each step of one process (or one MPI job)."""
    out = tempfile.mkdtemp(dir=folder)
    if args.batch % ranks:
        raise Failed(f"--batch {args.batch} cannot be shared by {ranks} ranks")
    command = [str(args.trainer), "--model", str(folder / "gpt2_124M.bin"), "--data", str(folder / "train.bin"),
               "--batch", str(args.batch // ranks), "--sequence", str(args.sequence), "--steps", str(steps),
               "--learning-rate", "1e-4", "--schedule", "constant", "--weight-decay", "0", "--beta2", "0.999",
               "--clip", "0", "--threads", str(threads), "--backend", backend, "--validate-every", "0",
               "--checkpoint-every", "0", "--no-final-checkpoint", "--compute", dtype, "--out", out]
    if backend == "mpi":
        command = [args.mpiexec, "-n", str(ranks)] + command
    else:
        command += ["--ranks", str(ranks)]  # without it there is one for each processor
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    events = [json.loads(line) for line in open(pathlib.Path(out) / "metrics.jsonl")]
    shutil.rmtree(out)
    rows = [event for event in events if event["type"] == "step"]
    return [row["ms"] for row in rows], [row["loss"] for row in rows], [row.get("exposed_comm_ms", 0) for row in rows]


LLMC_STEP = re.compile(r"step (\d+): train loss ([0-9.]+) \(took ([0-9.]+) ms\)")


def run_llmc(args, folder, steps):
    """llm.c reads fixed paths and knows no flags: it gets a folder of its own and is ended after `steps` steps."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    process = subprocess.Popen([str(args.llmc)], cwd=folder / "llmc", env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, bufsize=1)
    times, losses, text = [], [], []
    try:
        for line in process.stdout:
            text.append(line)
            found = LLMC_STEP.search(line)
            if found:
                losses.append(float(found.group(2)))
                times.append(float(found.group(3)))
                if len(times) == steps:
                    break
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if len(times) < steps:
        raise Failed(f"{args.llmc} stopped after {len(times)} of {steps} steps:\n{''.join(text)[-2000:]}")
    return times, losses, []


def run_script(args, folder, interpreter, script, dtype, steps):
    command = [str(interpreter), str(pathlib.Path(__file__).resolve().parent / "rivals" / script), "--folder", str(folder),
               "--batch", str(args.batch), "--sequence", str(args.sequence), "--steps", str(steps), "--threads",
               str(args.threads), "--dtype", dtype]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900,
                          env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    head, *rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    args.versions.add(head["version"])
    return [row["ms"] for row in rows], [row["loss"] for row in rows], []


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
    parser.add_argument("--llmc", type=pathlib.Path, default=os.environ.get("TUTTI_LLMC"), help="llm.c's train_gpt2")
    parser.add_argument("--torch", type=pathlib.Path, default=os.environ.get("TUTTI_TORCH"), help="python with PyTorch")
    parser.add_argument("--jax", type=pathlib.Path, default=os.environ.get("TUTTI_JAX"), help="python with JAX and optax")
    parser.add_argument("--mpiexec", default=next((name for name in ("mpiexec.mpich", "mpiexec.hydra", "mpiexec") if shutil.which(name)), "mpiexec"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="per turn, the first of which is not counted")
    parser.add_argument("--json", type=pathlib.Path, help="file for rows {name, ours, rival, ratio, unit}")
    args = parser.parse_args()
    if subprocess.run(["ninja", "-C", str(args.build), "examples/train_gpt2", "benchmarks/step_inputs"], stdout=subprocess.DEVNULL).returncode != 0:
        raise Failed(f"building in {args.build} failed; run ninja there to see why")
    args.trainer = args.build / "examples" / "train_gpt2"
    args.make_inputs = args.build / "benchmarks" / "step_inputs"

    contenders = {
        "tutti 1 process x %d threads" % args.threads: lambda f: run_ours(args, f, 1, args.threads, "threads", args.steps),
        "tutti mpi %d ranks x 1 thread" % args.threads: lambda f: run_ours(args, f, args.threads, 1, "mpi", args.steps),
    }
    names = list(contenders)
    if shutil.which(args.mpiexec) is None:
        print(f"SKIPPED: no {args.mpiexec} here, so nothing over MPI is measured", file=sys.stderr)
        del contenders[names[1]]
    if args.llmc is None or not pathlib.Path(args.llmc).is_file():
        print("SKIPPED: llm.c is not measured; give --llmc PATH (or TUTTI_LLMC) to its train_gpt2", file=sys.stderr)
    else:
        args.llmc = pathlib.Path(args.llmc).resolve()
        contenders["llm.c"] = lambda f: run_llmc(args, f, args.steps)
    narrow = "tutti bfloat16"
    contenders[narrow] = lambda f: run_ours(args, f, 1, args.threads, "threads", args.steps, "bfloat16")
    for rival, interpreter, script in [("PyTorch", args.torch, "step_torch.py"), ("JAX", args.jax, "step_jax.py")]:
        if interpreter is None or shutil.which(interpreter) is None:
            print(f"SKIPPED: {rival} is not measured; give --{script[5:-3]} PYTHON, an interpreter that has it", file=sys.stderr)
            continue
        for dtype in ["float32", "bfloat16"]:
            contenders[f"{rival} {dtype}"] = lambda f, i=interpreter, s=script, d=dtype: run_script(args, f, i, s, d, args.steps)
    args.versions = set()

    print(f"{processor()}, GPT-2 124M, B {args.batch} T {args.sequence}, {args.rounds} rounds of {args.steps} steps")
    times = {name: [] for name in contenders}
    losses = {}
    with tempfile.TemporaryDirectory(prefix="tutti-step-") as folder:
        folder = pathlib.Path(folder)
        prepare(args, folder)
        for turn in range(args.rounds):
            for name, run in contenders.items():
                ms, loss, exposed = run(folder)
                times[name] += ms[1:]
                losses.setdefault(name, loss)
                note = f"  rank waits {statistics.median(exposed[1:]):.1f} ms" if exposed and "mpi" in name else ""
                print(f"  round {turn + 1}  {name:32} median {statistics.median(ms[1:]):8.1f} ms  first loss {loss[0]:.6f}{note}", flush=True)

    reference = losses[names[0]][0]
    for name, loss in losses.items():
        if abs(loss[0] - reference) > (2e-3 if "bfloat16" in name else 1e-4) * max(1.0, abs(reference)):
            print(f"FAILED: first loss of {name} is {loss[0]}, of {names[0]} {reference}", file=sys.stderr)
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
    compare("bfloat16 vs llm.c", narrow, "llm.c")
    compare("bfloat16 vs PyTorch's", narrow, "PyTorch bfloat16")
    compare("bfloat16 vs JAX's", narrow, "JAX bfloat16")
    if args.versions:
        print("rivals: " + ", ".join(sorted(args.versions)))
    print()
    for row in rows:
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
