#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tutti_plan says of layouts, beside what train_gpt2 does: memory and time of a step, on threads, on processes of MPI,
and with --link on network namespaces whose cables are slowed down (tc tbf), a rank each. Needs root for a link.

--published compares plans with throughputs that others have published, of GPUs described in examples/clusters. The efficiency of
each kind is that with which one run comes out right, the one that says so; the others are predicted.

For every layout the plan's machine is measured with as many ranks as train (tutti_plan --measure), then the plan is
asked, then the trainer runs. These take turns; the fastest of each counts. Memory is what the node's processes have together,
pages that they share counted once (PSS), at its highest; of nodes behind links each rank's own (RSS), since they share none.
"""
import argparse
import json
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
from trainer_runs import add_arguments, build, fail, prepare_text  # noqa: E402

LEFT_OUT = 3

# What was trained on what, in which layout, and the tokens a second that were published. The first of a cluster sets its efficiency.
# GB of a GPU, and where it is said GB/s between nodes, go into the cluster's description.
MPT = "llm-foundry, scripts/train/benchmarking/README.md"
MEGATRON = "Narayanan et al. 2021 (arXiv 2104.04473), table 1"
TORCHTITAN = "torchtitan at 0413364, docs/performance.md: {} tokens/s a GPU, {}"
FMS = "IBM's fms-fsdp, README: {} tokens/s a GPU, {}, 400 Gbit/s a node"
MPT_7B = "--layers 32 --channels 4096 --heads 32 --vocabulary 50368 --sequence 2048"
LLAMA_7B = "--architecture llama --layers 32 --channels 4096 --heads 32 --hidden 11008 --untied --vocabulary 32000"
LLAMA_70B = "--architecture llama --layers 80 --channels 8192 --heads 64 --kv-heads 8 --hidden 28672 --untied --recompute block"
PUBLISHED = [
    ("MPT-7B, 8 A100 40 GB", "a100", {"memory": 40}, f"{MPT_7B} --batch 12 --recompute block", "d=8,zero=3,micro=4", 29436, MPT),
    ("MPT-7B, 64 A100 40 GB", "a100", {"memory": 40}, f"{MPT_7B} --batch 18 --recompute block", "d=64,zero=3", 234614, MPT),
    ("MPT-7B, 128 A100 40 GB", "a100", {"memory": 40}, f"{MPT_7B} --batch 18 --recompute block", "d=128,zero=3", 463749, MPT),
    ("MPT-70B, 128 A100 40 GB", "a100", {"memory": 40}, "--layers 80 --channels 8192 --heads 64 --vocabulary 50368 --sequence 2048 "
     "--batch 4 --recompute block", "d=128,zero=3", 48194, MPT),
    ("GPT 39.1B, 512 A100 80 GB", "a100", {"memory": 80}, "--layers 48 --channels 8192 --heads 64 --vocabulary 51200 --sequence 2048 "
     "--batch 2 --recompute block", "d=32,t=8,p=2,micro=24", ("megatron", 48, 8192, 1536, 512, 138), MEGATRON),
    ("GPT 76.1B, 1,024 A100 80 GB", "a100", {"memory": 80}, "--layers 60 --channels 10240 --heads 80 --vocabulary 51200 --sequence 2048 "
     "--batch 2 --recompute block", "d=32,t=8,p=4,micro=28", ("megatron", 60, 10240, 1792, 1024, 140), MEGATRON),
    ("Llama 3 8B, 64 A100 80 GB", "a100", {"memory": 80}, "--architecture llama --layers 32 --channels 4096 --heads 32 --kv-heads 8 "
     "--hidden 14336 --untied --vocabulary 128256 --sequence 8192 --batch 1 --recompute pointwise", "d=64,zero=3", 64 * 2973,
     TORCHTITAN.format("2,973", "selective recomputation")),
    ("Llama 3 70B, 64 A100 80 GB", "a100", {"memory": 80}, f"{LLAMA_70B} --vocabulary 128256 --sequence 8192 --batch 1", "d=64,zero=3",
     64 * 331, TORCHTITAN.format("331", "full recomputation")),
    ("Llama 2 13B, 64 A100 80 GB", "a100", {"memory": 80}, "--architecture llama --layers 40 --channels 5120 --heads 40 --hidden 13824 "
     "--untied --vocabulary 32000 --sequence 4096 --batch 2", "d=64,zero=3", 64 * 2162, TORCHTITAN.format("2,162", "no recomputation")),
    ("Llama 2 70B, 64 A100 80 GB", "a100", {"memory": 80}, f"{LLAMA_70B} --vocabulary 32000 --sequence 4096 --batch 2", "d=64,zero=3",
     64 * 353, TORCHTITAN.format("353", "full recomputation")),
    ("Llama 2 7B, 128 A100 80 GB", "a100", {"memory": 80, "between": 50}, f"{LLAMA_7B} --sequence 4096 --batch 2", "d=128,zero=3",
     128 * 3700, FMS.format("3,700", "no recomputation")),
    ("Llama 2 34B, 128 A100 80 GB", "a100", {"memory": 80, "between": 50}, "--architecture llama --layers 48 --channels 8192 --heads 64 "
     "--kv-heads 8 --hidden 22016 --untied --vocabulary 32000 --sequence 4096 --batch 2 --recompute block", "d=128,zero=3", 128 * 700,
     FMS.format("700", "full recomputation")),
    ("LLaMA-7B, taken as 64 A100 80 GB", "a100", {"memory": 80}, f"{LLAMA_7B} --sequence 2048 --batch 4", "d=64,zero=3",
     64 * 1e12 / (82432 * 3600), "Touvron et al. 2023 (arXiv 2302.13971): 82,432 GPU hours, 1.0T tokens"),
    ("MPT-7B, 8 H100", "h100", {"memory": 80}, f"{MPT_7B} --batch 6", "d=8,zero=3", 85144, MPT),
    ("GPT-2 1.5B, 8 H100", "h100", {"memory": 80}, "--model d48 --sequence 1024 --batch 16", "d=8,zero=1,micro=8", 1048576 / 2.80,
     "llm.c, scripts/run_gpt2_1558M.sh: 2.80 s for 1,048,576 tokens"),
]


def published_tokens(value, sequence=2048, vocabulary=51200):
    """Of Megatron's tables, operations a second of a device by its formula (3), which counts recomputation."""
    if not isinstance(value, tuple):
        return value
    _, layers, hidden, batch, devices, tera = value
    step = 96 * batch * sequence * layers * hidden ** 2 * (1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden))
    return batch * sequence / (step / (devices * tera * 1e12))


def published(args):
    efficiency = {}
    print("| run | layout | published, tokens/s | planned | | source |\n| --- | --- | --- | --- | --- | --- |")
    for name, cluster, machine_said, words, layout, said, source in PUBLISHED:
        description = json.loads((ROOT / "examples" / "clusters" / f"{cluster}.json").read_text())
        ranks = 1
        for part in layout.split(","):
            ranks *= int(part.split("=")[1]) if part[0] in "dtp" and part[1] == "=" else 1
        description["nodes"] = max(1, ranks // 8)
        description["device"]["memory_gbyte"] = machine_said["memory"]
        if (cluster, machine_said["memory"]) == ("a100", 40):
            description["device"]["memory_gbyte_s"] = 1555
        if "between" in machine_said:
            description["between"]["gbyte_s"] = machine_said["between"]

        def plan(share):
            description["device"]["efficiency"] = share
            machine = args.folder / "machine.json"
            machine.write_text(json.dumps(description))
            text, _ = run(args, [args.build / "examples" / "tutti_plan", "--cluster", machine, "--compute", "bfloat16", *words.split(),
                                 "--layout", layout, "--json"])
            return json.loads(text)["tokens_per_second"]

        target, first = published_tokens(said), cluster not in efficiency
        if first:
            low, high = 0.1, 1.0
            for _ in range(16):
                middle = (low + high) / 2
                low, high = (middle, high) if plan(middle) < target else (low, middle)
            efficiency[cluster] = low
        found = plan(efficiency[cluster])
        note = f"sets the efficiency, {efficiency[cluster]:.3f}" if first else f"{100 * (found / target - 1):+.1f} %"
        print(f"| {name} | `{layout}` | {target:,.0f} | {found:,.0f} | {note} | {source} |", flush=True)
    return 0


def memory_of(out, share):
    """Bytes of all processes that were started with this folder. `share`: of pages that several have, each its part."""
    total = 0
    for process in pathlib.Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
            if str(out).encode() in words and words[0].endswith(b"train_gpt2"):
                total += sum(int(line.split()[1]) for line in open(process / "smaps_rollup") if line.startswith("Pss:" if share else "Rss:"))
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
        most = max(most, memory_of(out, args.link == "none") if out else 0)
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
        ranks *= int(value) if key in "dtp" else 1
    words = dict(part.split("=") for part in layout.split(","))
    micro = int(words.get("micro", 1))
    model = ["--layers", args.layers, "--channels", args.channels, "--heads", args.heads, "--batch", args.batch // micro,
             "--sequence", args.sequence, "--threads", args.threads]
    stages = ["--pipeline-parallel", words["p"], "--pipeline-schedule", words.get("schedule", "1f1b")] if "p" in words else []
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
            "--tensor-parallel", words.get("t", 1), "--zero", words.get("zero", 0), "--micro-batches", micro, *stages], out)
        rows = [row for row in map(json.loads, open(out / "metrics.jsonl")) if row["type"] == "step"]
        steps = sorted(row["ms"] for row in rows[LEFT_OUT:])
        times.append(statistics.mean(steps[:(len(steps) + 3) // 4]))  # as a measurement's runs: something else goes on as well
        memories.append(memory)
    plan = min(plans, key=lambda one: one["seconds"])
    said, found = 1e3 * plan["seconds"], min(times)
    said_memory, found_memory = plan["memory_of_all"], statistics.median(memories)
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
    parser.add_argument("--published", action="store_true", help="compare with published runs instead")
    parser.add_argument("--backend", default="threads,mpi")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--runs", type=int, default=16, help="of each measurement")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    for name, size in {"layers": 4, "channels": 256, "heads": 8, "batch": 4, "sequence": 128, "vocabulary": 1024}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--mpiexec", default="mpiexec")
    add_arguments(parser, 900)
    parser.add_argument("layout", nargs="*", help="as d=2,t=1")
    args = parser.parse_args()
    args.layout = args.layout or ["d=1,t=1", "d=2,t=1", "d=1,t=2", "d=2,t=1,zero=1", "d=4,t=1", "d=2,t=2", "d=1,t=4", "d=4,t=1,zero=1",
                                  "d=4,t=1,zero=2", "d=4,t=1,zero=3", "d=2,t=2,zero=1", "d=2,t=2,zero=3", "d=1,t=1,p=2,micro=4", "d=2,t=1,p=2,micro=4",
                                  "d=1,t=1,p=4,micro=4", "d=2,t=1,p=2,zero=1,micro=4", "d=2,t=1,p=2,zero=3,micro=4", "d=1,t=2,p=2,micro=4"]
    args.build = args.build.resolve()
    args.data = args.build / "data" / "benchmark_plan"
    if args.inside:
        args.folder = args.inside
        nodes = Nodes(args.inside, "10.231.79", 4, 7200, args.link)
        try:
            return measure(args, nodes)
        finally:
            nodes.end()
    build(args.build, *(["tutti_plan"] if args.published else ["train_gpt2", "prepare_text", "tutti_plan"]))
    if args.published:
        with tempfile.TemporaryDirectory(prefix="tutti-plan-") as folder:
            args.folder = pathlib.Path(folder)
            return published(args)
    prepare_text(args, "--vocabulary", str(args.vocabulary))
    with tempfile.TemporaryDirectory(prefix="tutti-plan-") as folder:
        args.folder = pathlib.Path(folder)
        if args.link == "none":
            return measure(args, None)
        if why := why_not(args.link):
            fail(f"{why}; --link none does without")
        return subprocess.run(command_inside(__file__, "--inside", folder, *sys.argv[1:])).returncode


if __name__ == "__main__":
    sys.exit(main())
