#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compressed gradients cost and save: the same short training run with every compressor of train_gpt2 --compress,
one rank a node, as a table of bytes, time and loss.

Nodes are network namespaces with a cable each whose sending end is slowed down to --link by a token bucket (tc tbf), so a
rank's bytes are counted where they leave. --link none trains on this machine as it is, where ranks share memory; bytes
are then those that train_gpt2 computes. Needs root, iproute2 and util-linux for a link.

With --pipeline P the ranks are P stages of a pipeline instead, --link none is the default, and the rows are numbers of micro-batches
of --tokens tokens each: the share of the time in which the busiest stage waits, and the first one, beside (P - 1) / (m + P - 1), which it would be if
stages took equally long and nothing else waited, and tokens a second beside those of one rank.

--all prints all that there is of training on several ranks, one after another, in about an hour: compressors over a link,
pipelines of two stages by every schedule, and layouts (data, tensor, pipeline, ZeRO) beside their plans of memory and time, on this machine and
over links; the plans of published runs at the end. What needs root is left out, and said, without.

A run's first steps are left out of its time: the median of the others counts. Runs take turns, --turns times, each
beginning with another compressor; the fastest turn counts. Losses are of the last validation.
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


def train(args, folder, nodes, words, steps, ranks, tokens):
    """Steps' rows, the start's row, the loss at the end, and the bytes that left a node in a step."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [args.mpiexec, *(nodes.launcher_words(1) if nodes else []), "-n", str(ranks), str(args.build / "examples" / "train_gpt2"),
               "--config", str(ROOT / "examples" / "train_gpt2.json"), "--data", str(args.data / "train.bin"), "--validation-data",
               str(args.data / "validation.bin"), "--steps", str(steps), "--validate-every", str(steps), "--sample-every", "0",
               "--validation-batches", "40", "--checkpoint-every", "0", "--no-final-checkpoint", "--threads", str(args.threads),
               "--total-tokens", str(tokens), "--out", str(out), *args.train.split(), *words]
    of = lambda kind: [row for row in map(json.loads, open(out / "metrics.jsonl")) if row["type"] == kind]
    log = folder / "log"
    with open(log, "w") as text:
        job = subprocess.Popen(command, stdout=text, stderr=subprocess.STDOUT)
    begun, end = (0, 0), time.monotonic() + args.limit
    while job.poll() is None:
        if time.monotonic() > end:
            job.kill()
            fail(f"still running after {args.limit} s: {' '.join(command)}")
        time.sleep(0.05)
        try:  # what was sent before the first steps, the state of all ranks, does not count
            if nodes and not begun[0] and of("step"):
                begun = len(of("step")), nodes.sent()
        except (OSError, json.JSONDecodeError):
            pass
    if job.returncode != 0:
        fail(f"{' '.join(command)}\n{log.read_text()[-2000:]}")
    wire = (nodes.sent() - begun[1]) / (steps - begun[0]) if nodes and begun[0] < steps else 0
    return of("step"), of("start")[0], of("validation")[-1]["loss"], wire


def measure(args, folder, nodes):
    words = args.compress
    best, losses, wire, sent = {}, {}, {}, {}
    for turn in range(args.turns):
        for word in words[turn % len(words):] + words[:turn % len(words)]:
            steps, start, loss, left = train(args, folder, nodes, ["--compress", word], args.steps, args.ranks, args.tokens)
            ms = statistics.median(row["ms"] for row in steps[LEFT_OUT:])
            waits = statistics.median(row["exposed_comm_ms"] for row in steps[LEFT_OUT:])
            if word not in best or ms < best[word][0]:
                best[word] = (ms, waits)
            losses[word], sent[word], wire[word] = loss, start["sent_bytes"], left
            tokens = start["tokens_per_step"]
            print(f"  {word}: {ms:.1f} ms a step, {waits:.1f} of them waiting, loss {loss:.4f}, {start['sent_bytes']} bytes a step", file=sys.stderr)
    where = f"a link of {args.link} between ranks" if nodes else "shared memory between ranks"
    print(f"\n{args.ranks} ranks, {where}, {args.steps} steps of {tokens} tokens, {start['parameters']} parameters, {start['processor']}\n")
    head = ["compress", "bytes a step", "on the wire", "ms a step", "waiting", "tokens/s", "speed", "loss"]
    table = [head, ["---"] * len(head)]
    first = words[0]
    for word in words:
        ms, waits = best[word]
        table.append([word, f"{sent[word]:,}", f"{wire[word]:,.0f}" if nodes else "", f"{ms:.1f}", f"{waits:.1f}", f"{1e3 * tokens / ms:,.0f}",
                      f"{best[first][0] / ms:.2f}", f"{losses[word]:.4f}"])
    for row in table:
        print("| " + " | ".join(row) + " |")
    return 0


def measure_pipeline(args, folder, nodes):
    stages, best = args.pipeline, {}
    counts = [int(word) for word in args.compress]
    for _ in range(args.turns):
        for m in counts:
            for ranks in (1, stages):
                staged = ["--pipeline-parallel", str(stages), "--pipeline-schedule", args.schedule]
                staged += ["--stage-layers", args.stage_layers] if args.stage_layers else []
                words = ["--micro-batches", str(m)] + (staged if ranks > 1 else [])
                steps, start, _, _ = train(args, folder, nodes if ranks > 1 else None, words, args.steps, ranks, args.tokens * m)
                ms = statistics.median(row["ms"] for row in steps[LEFT_OUT:])
                first = statistics.median(row["exposed_comm_ms"] / row["ms"] for row in steps[LEFT_OUT:])
                busiest = statistics.median(1 - row["slowest_ms"] / row["ms"] for row in steps[LEFT_OUT:])
                if (m, ranks) not in best or ms < best[m, ranks][0]:
                    best[m, ranks] = (ms, busiest, first)
                print(f"  {m} micro-batches, {ranks} ranks: {ms:.1f} ms a step, the busiest waits {100 * busiest:.1f} %", file=sys.stderr)
    where = f"a link of {args.link} between stages" if nodes else "shared memory between stages"
    passes = {"interleaved": 2, "zero-bubble": 3}.get(args.schedule, 1)  # of which one is waited for, in a micro-batch
    formula = f"(p - 1) / ({passes if passes > 1 else ''}{' ' if passes > 1 else ''}m + p - 1)"
    print(f"\n{stages} stages, {args.schedule} schedule, layers {args.stage_layers or 'alike'}, {where}, "
          f"{args.steps} steps of m x {args.tokens} tokens, {start['parameters']} parameters, {start['processor']}\n")
    table = [["m", "ms a step", "busiest stage waits", formula, "first stage waits", "tokens/s", "of one rank"], ["---"] * 7]
    for m in counts:
        (ms, busiest, first), (alone, _, _) = best[m, stages], best[m, 1]
        rates = [1e3 * m * args.tokens / time for time in (ms, alone)]
        table.append([str(m), f"{ms:.1f}", f"{100 * busiest:.1f} %", f"{100 * (stages - 1) / (passes * m + stages - 1):.1f} %", f"{100 * first:.1f} %",
                      f"{rates[0]:,.0f}", f"{rates[1]:,.0f}"])
    for row in table:
        print("| " + " | ".join(row) + " |")
    return 0


def everything(args):
    here, linked = pathlib.Path(__file__).resolve().parent, why_not("100mbit")
    common = ["--build", str(args.build), "--mpiexec", args.mpiexec]
    parts = [(f"compressors over a link of {link}", "parallel.py", ["--link", link, "--steps", "60"]) for link in ("100mbit", "1gbit")]
    parts += [(f"a pipeline, {schedule}", "parallel.py", ["--pipeline", "2", "--steps", "14", "--schedule", schedule, "--vocabulary", "512",
               "--train", "--layers 8 --channels 256 --heads 8 --batch 4", "2", "4", "8"]) for schedule in ("1f1b", "gpipe", "interleaved", "zero-bubble")]
    parts += [("layouts on this machine, beside their plans", "plan.py", ["--turns", "1", "--steps", "30"])]
    parts += [(f"layouts over a link of {link}, beside their plans", "plan.py", ["--link", link, "--turns", "1", "--steps", "12", "--runs", "7"])
              for link in ("1gbit", "100mbit")]
    parts += [("plans of published runs", "plan.py", ["--published"])]
    failed = []
    for title, script, words in parts:
        print(f"\n## {title[0].upper()}{title[1:]}\n", flush=True)
        if linked and "--link" in words:
            print(f"left out: {linked}", flush=True)
        elif subprocess.run([sys.executable, str(here / script), *common, *words]).returncode:
            failed.append(title)
    if failed:
        fail(f"these failed: {'; '.join(failed)}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="everything, with sizes of its own")
    parser.add_argument("--link", help="of each node, as tc spells rates (default: 100mbit); none: this machine's memory")
    parser.add_argument("--pipeline", type=int, default=0, help="stages of a pipeline, whose numbers of micro-batches are compared")
    parser.add_argument("--schedule", default="1f1b", help="of the pipeline, as --pipeline-schedule")
    parser.add_argument("--stage-layers", help="as train_gpt2's: balanced, or numbers")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=512, help="of a step, over all ranks")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--train", default="", help="further flags of train_gpt2, as \"--layers 8 --channels 384\"")
    parser.add_argument("--vocabulary", type=int, help="of the tokens (default: prepare_text's)")
    parser.add_argument("--mpiexec", default="mpiexec")
    add_arguments(parser, 1800)
    parser.add_argument("compress", nargs="*",
                        help="values of --compress, those that others are compared with first; with --pipeline numbers of micro-batches")
    args = parser.parse_args()
    if args.all:
        return everything(args)
    args.compress = args.compress or (["1", "2", "4", "8", "16"] if args.pipeline else ["none", "bf16", "int8", "topk:0.01", "powersgd:4"])
    args.link = args.link or ("none" if args.pipeline else "100mbit")
    args.ranks = args.pipeline or args.ranks
    run = measure_pipeline if args.pipeline else measure
    args.build = args.build.resolve()
    args.data = args.build / "data" / f"benchmark_parallel{args.vocabulary or ''}"
    if args.inside:
        nodes = Nodes(args.inside, "10.231.78", args.ranks, 7200, args.link)
        try:
            return run(args, args.inside, nodes)
        finally:
            nodes.end()
    build(args.build, "train_gpt2", "prepare_text")
    prepare_text(args, *(["--vocabulary", str(args.vocabulary)] if args.vocabulary else []))
    with tempfile.TemporaryDirectory(prefix="tutti-parallel-") as folder:
        if args.link == "none":
            return run(args, pathlib.Path(folder), None)
        if why := why_not(args.link):
            fail(f"{why}; --link none does without")
        return subprocess.run(command_inside(__file__, "--inside", folder, *sys.argv[1:])).returncode


if __name__ == "__main__":
    sys.exit(main())
