#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a slow link costs a federated run: a shepherd and workers, each in a network namespace of its own, train the same model
over cables as fast as this machine, and over cables slowed down to --link in both directions (tc tbf). Needs root.

Without a link to wait for, workers train all the time. What is printed of each run: tokens a second, bytes, and the share of the
time in which workers did inner steps. Speeds differ where something else uses the processors, shares do not, so shares are what
the last column compares. Flags that are not its own are the shepherd's; without any: the settings that
docs/guides/federate.md recommends for slow links.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from network_nodes import Nodes, command_inside, slow_down, why_not  # noqa: E402
from trainer_runs import add_arguments, build, fail, prepare_text  # noqa: E402

RECOMMENDED = ["--inner-steps", "120", "--fragments", "3", "--outer-bits", "int4", "--chunk", "65536"]


def start(args, nodes, number, name, command):
    log = open(args.folder / name, "w")
    within = ["nsenter", "--net", "--target", str(nodes.processes[number].pid)]
    return subprocess.Popen(within + [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL)


def run(args, nodes, words):
    """Rows of outer steps, of which the first are left out: workers measure themselves, and fetch the parameters."""
    out = args.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    key = args.folder / "key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    programs, port = args.build / "examples", 8080
    shepherd = start(args, nodes, 0, "shepherd.log", [
        programs / "tutti_shepherd", "--host", nodes.addresses[0], "--port", port, "--key", key, "--data", args.data, "--out", out,
        "--workers", args.workers, "--batch", args.batch, "--sequence", args.sequence, "--steps", 10 ** 6, "--threads", 1,
        "--heartbeat", 2, "--lost-after", 30, *words])
    everybody = [shepherd] + [
        start(args, nodes, number, f"worker{number}.log", [programs / "tutti_worker", "--connect", f"{nodes.addresses[0]}:{port}",
              "--key", key, "--data", args.data, "--threads", 1]) for number in range(1, args.workers + 1)]
    end = time.monotonic() + args.limit
    rows = []
    try:
        while len(rows) < args.left_out + args.rounds:
            time.sleep(0.5)
            if time.monotonic() > end:
                fail(f"only {len(rows)} outer steps in {args.limit} s: take a smaller model, or more time (--limit)")
            for process in everybody:
                if process.poll() is not None:
                    fail("\n".join((args.folder / name).read_text()[-1500:] for name in ["shepherd.log", "worker1.log"]))
            text = (out / "metrics.jsonl").read_text() if (out / "metrics.jsonl").exists() else ""
            rows = [row for row in map(json.loads, text[:text.rfind("\n") + 1].splitlines()) if row["type"] == "outer_step"]
    finally:
        for process in everybody:
            if process.poll() is None:
                process.kill()
            process.wait()
    return rows[:args.left_out + args.rounds]


def measure(args, nodes, words):
    rows = run(args, nodes, words)
    first, rest = rows[args.left_out - 1], rows[args.left_out:]
    seconds = sum(row["seconds"] for row in rest)
    tokens = (rest[-1]["samples"] - first["samples"]) * args.sequence
    share = sum(row["training_seconds"] for row in rest) / seconds / args.workers
    traffic = [(rest[-1][way] - first[way]) / args.workers / len(rest) / 1e6 for way in ("bytes_sent", "bytes_received")]
    return tokens / seconds, share, seconds / len(rest), traffic, rest[-1]["loss"]


def inside(args, words):
    rates = [None, args.link]
    shares = {}
    print(f"{args.workers} workers, batch {args.batch} x {args.sequence}, {' '.join(words)}\n")
    print("| link | tokens/s | seconds a round | MB to, from a worker a round | workers train | of the unlinked |\n"
          "| --- | --- | --- | --- | --- | --- |", flush=True)
    nodes = Nodes(args.folder, "10.231.79", args.workers + 1, 2 * args.limit + 60)
    for rate in rates:
        if rate is not None:
            for number, node in enumerate(nodes.processes):
                subprocess.run(slow_down(f"port{number}", rate), check=True)
                subprocess.run(["nsenter", "--net", "--target", str(node.pid), *slow_down(f"cable{number}", rate)], check=True)
        speed, share, seconds, (down, up), loss = measure(args, nodes, words)
        shares[rate] = share
        print(f"| {rate or 'none'} | {speed:,.0f} | {seconds:.1f} | {down:.2f}, {up:.2f} | {100 * share:.1f} % | "
              f"{100 * share / shares[None]:.1f} % |", flush=True)
    nodes.end()
    return 0 if shares[args.link] >= args.least * shares[None] else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="10mbit", help="of every node, as tc spells rates")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4, help="outer steps that are measured")
    parser.add_argument("--left-out", type=int, default=2, help="before them")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--least", type=float, default=0.9, help="share of the unlinked run that is to be kept")
    add_arguments(parser, 1800)
    args, words = parser.parse_known_args()
    words = words or RECOMMENDED
    args.build = args.build.resolve()
    args.data = args.build / "data" / "benchmark_federate"
    if args.inside:
        args.folder = args.inside
        return inside(args, words)
    if args.left_out < 1:
        parser.error("--left-out must be at least 1")
    if why := why_not(args.link):
        fail(why)
    build(args.build, "tutti_shepherd", "tutti_worker", "prepare_text")
    prepare_text(args)
    with tempfile.TemporaryDirectory(prefix="tutti_federate_") as folder:
        return subprocess.run(command_inside(__file__, *sys.argv[1:], "--inside", folder), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
