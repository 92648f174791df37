#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tutti_plan says of layouts, beside what train_gpt2 does: memory and time of a step, on threads, on processes of MPI,
and with --link on network namespaces whose cables are slowed down (tc tbf), a rank each. Needs root for a link.

For every layout the plan's machine is measured with as many ranks as train (tutti_plan --measure), then the plan is
asked, then the trainer runs. These take turns; the fastest of each counts. Memory is what the node's processes have together,
pages that they share counted once (PSS), at its highest.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from network_nodes import Nodes, command_inside, why_not  # noqa: E402

LEFT_OUT = 3


def fail(why):
    sys.exit(f"FAILED: {why}")


def memory_of(out):
    """Bytes of all processes that were started with this folder."""
    total = 0
    for process in pathlib.Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
            if str(out).encode() in words and words[0].endswith(b"train_gpt2"):
                total += sum(int(line.split()[1]) for line in open(process / "smaps_rollup") if line.startswith("Pss:"))
        except OSError:
            pass
    return total * 1024


def run(args, command, out=None):
    """Its output, and the most memory that it had."""
    log, most, end = args.folder / "log", 0, time.monotonic() + args.limit
    with open(log, "w") as text:
        job = subprocess.Popen([str(word) for word in command], stdout=text, stderr=subprocess.STDOUT)
    while job.poll() is None:
        if time.monotonic() > end:
            job.kill()
            fail(f"still running after {args.limit} s: {' '.join(map(str, command))}")
        time.sleep(0.1)
        most = max(most, memory_of(out) if out else 0)
    if job.returncode != 0:
        fail(f"{' '.join(map(str, command))}\n{log.read_text()[-2000:]}")
    return log.read_text(), most


def start_words(args, nodes, program, ranks, backend):
    program = args.build / "examples" / program
    if backend == "threads":
        return [program, "--backend", "threads", "--ranks", ranks]
    return [args.mpiexec, *(nodes.launcher_words(1) if nodes else []), "-n", ranks, program, "--backend", "mpi"]


def compare(args, nodes, backend, layout):
    ranks = 1
    for part in layout.split(","):
        key, value = part.split("=")
        ranks *= int(value) if key in "dt" else 1
    words = dict(part.split("=") for part in layout.split(","))
    model = ["--layers", args.layers, "--channels", args.channels, "--heads", args.heads, "--batch", args.batch,
             "--sequence", args.sequence, "--threads", args.threads]
    machine, out = args.folder / "machine.json", args.folder / "out"
    plans, times, memories = [], [], []
    for _ in range(args.turns):
        run(args, start_words(args, nodes, "tutti_plan", ranks, backend) + [*model, "--vocabulary", args.vocabulary,
            "--measure", machine, "--layout", layout, "--runs", args.runs])
        if args.given and nodes:  # the link as it was made, not as it was found
            description = json.loads(machine.read_text())
            description["between"] = {"mbit_s": float(args.link.removesuffix("mbit").removesuffix("gbit")) *
                                      (1000 if args.link.endswith("gbit") else 1), "latency_us": 50}
            machine.write_text(json.dumps(description))
        text, _ = run(args, [args.build / "examples" / "tutti_plan", *model, "--vocabulary", args.vocabulary, "--cluster", machine,
                             "--layout", layout, "--json"])
        plans.append(json.loads(text))
        shutil.rmtree(out, ignore_errors=True)
        _, memory = run(args, start_words(args, nodes, "train_gpt2", ranks, backend) + [*model, "--data", args.data / "train.bin",
            "--tokenizer", args.data / "tokenizer.json", "--steps", args.steps, "--no-final-checkpoint", "--sample-every", 0, "--out", out,
            "--tensor-parallel", words.get("t", 1), "--zero", words.get("zero", 0)], out)
        rows = [row for row in map(json.loads, open(out / "metrics.jsonl")) if row["type"] == "step"]
        steps = sorted(row["ms"] for row in rows[LEFT_OUT:])
        times.append(statistics.mean(steps[:(len(steps) + 1) // 2]))
        memories.append(memory)
    plan = min(plans, key=lambda one: one["seconds"])
    said, found = 1e3 * plan["seconds"], min(times)
    said_memory, found_memory = plan["memory"] * ranks, statistics.median(memories)
    return [f"{backend}{' ' + args.link if nodes else ''}", layout, f"{said:.1f}", f"{found:.1f}", f"{100 * (said / found - 1):+.1f} %",
            f"{said_memory / 1e6:.0f}", f"{found_memory / 1e6:.0f}", f"{100 * (said_memory / found_memory - 1):+.1f} %"]


def measure(args, nodes):
    head = ["ranks", "layout", "ms planned", "measured", "", "MB planned", "measured", ""]
    table = [head, ["---"] * len(head)]
    for backend in ["mpi"] if nodes else args.backend.split(","):
        for layout in args.layout:
            table.append(compare(args, nodes, backend, layout))
            print("| " + " | ".join(table[-1]) + " |", file=sys.stderr)
    print("\n" + "\n".join("| " + " | ".join(row) + " |" for row in table))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="none", help="of each node, as tc spells rates; none: this machine's memory")
    parser.add_argument("--given", action="store_true", help="plan with the link's rate, not with the one that was measured over it")
    parser.add_argument("--backend", default="threads,mpi")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--runs", type=int, default=16, help="of each measurement")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    for name, size in {"layers": 4, "channels": 256, "heads": 8, "batch": 4, "sequence": 128, "vocabulary": 1024}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--limit", type=int, default=900, help="seconds that one run may take")
    parser.add_argument("--text", type=pathlib.Path, default="/usr/share/dictd/jargon.dict.dz", help="what is learned")
    parser.add_argument("--build", type=pathlib.Path, default=os.environ.get("TUTTI_BUILD", ROOT / "build"),
                        help="configured build folder; what is missing in it is built")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--inside", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("layout", nargs="*", help="as d=2,t=1")
    args = parser.parse_args()
    args.layout = args.layout or ["d=1,t=1", "d=2,t=1", "d=1,t=2", "d=2,t=1,zero=1", "d=4,t=1", "d=2,t=2", "d=1,t=4", "d=4,t=1,zero=1"]
    args.build = args.build.resolve()
    args.data = args.build / "data" / "benchmark_plan"
    if args.inside:
        args.folder = args.inside
        nodes = Nodes(args.inside, "10.231.79", 4, 7200, args.link)
        try:
            return measure(args, nodes)
        finally:
            nodes.end()
    programs = ["examples/train_gpt2", "examples/prepare_text", "examples/tutti_plan"]
    if subprocess.run(["ninja", "-C", str(args.build), *programs], stdout=subprocess.DEVNULL).returncode != 0:
        fail(f"building in {args.build} failed; run ninja there to see why")
    if not args.text.exists():
        fail(f"{args.text} is not there (Debian: dict-jargon); give another --text")
    args.data.parent.mkdir(exist_ok=True)
    subprocess.run([str(args.build / "examples" / "prepare_text"), "--input", str(args.text), "--out", str(args.data), "--vocabulary",
                    str(args.vocabulary)], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="tutti-plan-") as folder:
        args.folder = pathlib.Path(folder)
        if args.link == "none":
            return measure(args, None)
        if why := why_not(args.link):
            fail(f"{why}; --link none does without")
        return subprocess.run(command_inside(__file__, "--inside", folder, *sys.argv[1:])).returncode


if __name__ == "__main__":
    sys.exit(main())
