#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the trainer as its users do and checks what it promises: the same losses in every layout, resuming to the bit,
leaving when asked, ending when a rank is killed, and a sentence for everything impossible.

  trainer.py CASE --trainer PATH --generator PATH [--mpiexec PATH]
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SIZES = ["--layers", "2", "--channels", "32", "--heads", "4", "--sequence", "32", "--vocabulary", "61", "--learning-rate", "3e-3",
         "--warmup", "3", "--threads", "1", "--validate-every", "0"]
LIMIT = 60  # seconds that any one run may take
SENTENCES = "the cat sat on the mat.\n\nthe dog sat on the cat.\n\n" * 300  # a text to learn a tokenizer of


def fail(text):
    raise AssertionError(text)


def check(condition, text):
    if not condition:
        fail(text)


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.write_shard(folder / "train.bin", 6000, 1)
        self.write_shard(folder / "validation.bin", 500, 2)

    @staticmethod
    def write_shard(path, count, seed):
        """Tokens with some order in them, in llm.c's format."""
        draw, tokens = random.Random(seed), [0]
        while len(tokens) < count:
            tokens.append((tokens[-1] * 7 + 3) % 61 if draw.random() < 0.7 else draw.randrange(61))
        path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *tokens))

    def command(self, backend, ranks, out, extra):
        words = [self.args.trainer, *SIZES, "--data", str(self.folder / "train.bin"), "--out", str(out), "--backend", backend, *extra]
        if backend == "mpi":
            return [self.args.mpiexec, "-n", str(ranks), *words]
        return [*words, "--ranks", str(ranks)]

    def start(self, backend, ranks, out, *extra):
        return subprocess.Popen(self.command(backend, ranks, out, extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def run(self, backend, ranks, out, *extra, code=0):
        process = self.start(backend, ranks, out, *extra)
        return self.finish(process, code)

    def finish(self, process, code=0):
        try:
            text, errors = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, errors = process.communicate()
            fail(f"still running after {LIMIT} s:\n{text[-3000:]}\n{errors[-3000:]}")
        if code is not None:
            check(process.returncode == code, f"{process.args}\nexit code {process.returncode}, expected {code}\n{text[-3000:]}\n{errors[-3000:]}")
        return text, errors

    def metrics(self, out, kind="step"):
        return [row for row in map(json.loads, open(out / "metrics.jsonl")) if row["type"] == kind]

    def losses(self, out):
        return [row["loss"] for row in self.metrics(out)]

    def wait_for_step(self, process, out, step):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            try:
                if len(self.losses(out)) >= step:
                    return
            except (OSError, json.JSONDecodeError):
                pass
            if process.poll() is not None:
                fail(f"ended before step {step}:\n{process.communicate()}")
            time.sleep(0.01)
        fail(f"step {step} was not reached")

    def backends(self):
        return ["threads", "mpi"] if self.args.mpiexec else ["threads"]

    def parameters(self, out, step):
        return (out / "checkpoints" / f"step_{step:08}" / "parameters.safetensors").read_bytes()


def close(a, b, bound):
    check(len(a) == len(b), f"{len(a)} and {len(b)} losses")
    errors = [abs(x - y) / abs(x) for x, y in zip(a, b)]
    worst = max(errors)
    check(all(error <= bound for error in errors), f"losses differ by {worst:.2e}, more than {bound:.0e}:\n{a}\n{b}")
    return worst


def case_layouts(bench):
    """Losses over 20 steps agree to 1e-5 for 1, 2 and 4 ranks on every backend; two runs of one layout are equal bit for bit."""
    reference = None
    for backend in bench.backends():
        for ranks in (1, 2, 4):
            out = bench.folder / f"{backend}{ranks}"
            bench.run(backend, ranks, out, "--batch", str(8 // ranks), "--steps", "20")
            losses = bench.losses(out)
            check(losses[-1] < losses[0] - 0.3, f"nothing was learned: {losses}")
            reference = reference or losses
            print(f"  {backend} {ranks} ranks: within {close(reference, losses, 1e-5):.1e}")
        again = bench.folder / f"{backend}-again"
        bench.run(backend, 4, again, "--batch", "2", "--steps", "20")
        check(bench.losses(again) == losses, "two runs of one layout have other losses")
        check(bench.parameters(again, 20) == bench.parameters(out, 20), "two runs of one layout have other parameters")


def case_shares(bench):
    """--rank-shares: any shares give the losses of even ones to 1e-5, resumed to the bit, measured ones too; what cannot be is refused."""
    even = bench.folder / "even"
    bench.run("threads", 2, even, "--batch", "4", "--steps", "12", "--schedule", "constant")
    reference = bench.losses(even)
    for backend in bench.backends():
        for ranks, shares, told in ((2, "3,1", "8 sequences shared by 2 ranks: 6, 2"), (3, "1,2,1", "8 sequences shared by 3 ranks: 2, 4, 2"),
                                    (2, "auto", "")):
            out = bench.folder / f"{backend}-{ranks}-{shares}"
            batch = ("--batch", "3", "--total-tokens", "256", "--sync-freq", "1") if ranks == 3 else ("--batch", "4")
            words = (*batch, "--rank-shares", shares, "--schedule", "constant")
            text, _ = bench.run(backend, ranks, out, *words, "--steps", "12")
            check(told in text, text)
            print(f"  {backend}, {ranks} ranks, {shares}: within {close(reference, bench.losses(out), 1e-5):.1e}")
            parts = bench.folder / f"{backend}-{ranks}-{shares}-parts"
            bench.run(backend, ranks, parts, *words, "--steps", "6")
            if shares == "auto":  # measured as the whole run has; the checkpoint keeps it
                saved = next(parts.glob("**/checkpoint.json"))
                facts = json.loads(saved.read_text())
                check(len(facts["rank_shares"]) == 2 and max(facts["rank_shares"]) == 1, facts)
                again = bench.folder / f"{backend}-auto-again"
                shutil.copytree(parts, again)
                for one in (parts, again):
                    bench.run(backend, ranks, one, "--resume", "latest", "--steps", "12")
                check(bench.parameters(parts, 12) == bench.parameters(again, 12), "the shares of a checkpoint were measured anew")
            else:
                bench.run(backend, ranks, parts, "--resume", "latest", "--steps", "12")
                check(bench.parameters(parts, 12) == bench.parameters(out, 12), "a resumed run has other parameters")
    if "mpi" in bench.backends():  # one rank is slow while its speed is measured, and the run goes on with what was measured
        slow = bench.folder / "slow"
        words = bench.command("threads", 1, slow, ("--batch", "8", "--rank-shares", "auto", "--schedule", "constant"))
        words = [word if word != "threads" else "mpi" for word in words[:-2]]
        uneven = [bench.args.mpiexec, "-n", "1", *words, "--steps", "6", ":", "-n", "1", "-env", "TUTTI_ISA", "scalar", *words, "--steps", "6"]
        process = subprocess.Popen(uneven, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        text, _ = bench.finish(process)
        told = re.search(r"16 sequences shared by 2 ranks: (\d+), (\d+)", text)
        check(told and int(told[1]) > int(told[2]), text)
        text, _ = bench.run("mpi", 2, slow, "--batch", "8", "--resume", "latest", "--steps", "12")
        check(told[0] in text, text)
        print(f"  a slow rank: {told[0]}")
        text, _ = bench.run("mpi", 2, slow, "--batch", "8", "--resume", "latest", "--steps", "14", "--rank-shares", "even")
        check("batch 8 x 2 ranks" in text, text)
    # A checkpoint's shares are of as many ranks: with others all get as many.
    text, errors = bench.run("threads", 4, bench.folder / "threads-2-3,1-parts", "--resume", "6", "--steps", "12", "--batch", "2")
    check("--rank-shares 3,1 has 2 numbers, and 4 ranks share out a batch: all get as many" in text + errors, text + errors)
    mesh = bench.folder / "mesh"
    bench.run("threads", 4, mesh, "--batch", "4", "--steps", "12", "--tensor-parallel", "2", "--rank-shares", "1,3", "--schedule", "constant")
    print(f"  4 ranks, tensor parallel: within {close(reference, bench.losses(mesh), 1e-5):.1e}")
    for wrong, why in (("1,2,3", "3 numbers, and 2 ranks"), ("fast", "even, auto, or a number"), ("0,1", "above 0")):
        _, error = bench.run("threads", 2, bench.folder / "wrong", "--rank-shares", wrong, "--steps", "1", code=1)
        check(why in error, error)


def case_threads(bench):
    """The number of threads of a rank changes nothing, bit for bit."""
    outs = []
    for threads in ("1", "2", "3"):
        outs.append(bench.folder / f"t{threads}")
        bench.run("threads", 1, outs[-1], "--batch", "4", "--steps", "6", "--threads", threads)
    for out in outs[1:]:
        check(bench.parameters(out, 6) == bench.parameters(outs[0], 6), f"{out.name} has other parameters than {outs[0].name}")


def case_replicas(bench):
    """Ranks of a node have one copy of parameters and moments and share its updates: the same losses as with a copy each, on one node and on two, resumed, and where memory cannot be shared."""
    flags = ("--batch", "2", "--steps", "10", "--clip", "0")
    for backend in bench.backends():
        own, together = bench.folder / f"{backend}-own", bench.folder / f"{backend}-together"
        text, _ = bench.run(backend, 4, own, *flags, "--replicas-per-rank")
        check("one copy" not in text, text)
        text, _ = bench.run(backend, 4, together, *flags)
        check("of which the node's 4 ranks share one copy and its updates" in text, text)
        check(bench.losses(own) == bench.losses(together), f"{backend}: other losses:\n{bench.losses(own)}\n{bench.losses(together)}")
        check(bench.parameters(own, 10) == bench.parameters(together, 10), f"{backend}: other parameters")
        moments = [(out / "checkpoints" / "step_00000010" / "optimizer.safetensors").read_bytes() for out in (own, together)]
        check(moments[0] == moments[1], f"{backend}: other moments")
        bench.run(backend, 4, together, "--resume", "latest", "--steps", "14")
        bench.run(backend, 4, own, "--resume", "latest", "--steps", "14", "--replicas-per-rank")
        check(bench.losses(own)[10:] == bench.losses(together)[10:], f"{backend}: other losses after resuming")
        clipped = bench.folder / f"{backend}-clipped"
        bench.run(backend, 4, clipped, "--batch", "2", "--steps", "10", "--clip", "0.5")
        bench.run(backend, 4, clipped.with_suffix(".own"), "--batch", "2", "--steps", "10", "--clip", "0.5", "--replicas-per-rank")
        print(f"  {backend}, clipped: within {close(bench.losses(clipped), bench.losses(clipped.with_suffix('.own')), 1e-5):.1e}")
    if not bench.args.mpiexec:
        return
    for name, value, shares in [("NODE_RANKS", "2", "2 ranks share one copy"), ("NODE_SHARED", "off", None)]:
        os.environ["TUTTI_MPI_" + name] = value
        try:
            out = bench.folder / name
            text, _ = bench.run("mpi", 4, out, *flags)
            bench.run("mpi", 4, out.with_suffix(".own"), *flags, "--replicas-per-rank")
        finally:
            del os.environ["TUTTI_MPI_" + name]
        check((shares or "a rank: ") in text and (shares is not None or "one copy" not in text), text)
        check(bench.losses(out) == bench.losses(out.with_suffix(".own")), f"{name}: other losses")
        check(bench.parameters(out, 10) == bench.parameters(out.with_suffix(".own"), 10), f"{name}: other parameters")


def case_compute(bench):
    """--compute bfloat16 learns nearly as float32 does, on any layout the same; a resumed run goes on in it; where there is no instruction for it, the run says so."""
    flags = ("--batch", "4", "--steps", "12")
    exact, rounded, ranks = (bench.folder / name for name in ("exact", "rounded", "ranks"))
    bench.run("threads", 1, exact, *flags)
    text, _ = bench.run("threads", 1, rounded, *flags, "--compute", "bfloat16")
    check("products" in text and "bfloat16" in text, text)
    check(bench.losses(exact) != bench.losses(rounded), "bfloat16 changes nothing")
    print(f"  within {close(bench.losses(exact), bench.losses(rounded), 1e-2):.1e}")
    bench.run("threads", 2, ranks, "--batch", "2", "--steps", "12", "--compute", "bfloat16")
    print(f"  2 ranks: within {close(bench.losses(rounded), bench.losses(ranks), 1e-4):.1e}")
    parts = bench.folder / "parts"
    bench.run("threads", 1, parts, *flags[:2], "--steps", "6", "--schedule", "constant", "--compute", "bfloat16")
    text, _ = bench.run("threads", 1, parts, "--resume", "latest", "--steps", "8")
    check("bfloat16" in text, text)
    old = os.environ.get("TUTTI_ISA")
    os.environ["TUTTI_ISA"] = "scalar"
    try:
        text, _ = bench.run("threads", 1, bench.folder / "scalar", *flags, "--compute", "bfloat16")
    finally:
        os.environ.pop("TUTTI_ISA") if old is None else os.environ.__setitem__("TUTTI_ISA", old)
    check("scalar has no instruction for bfloat16" in text, text)
    print(f"  scalar: within {close(bench.losses(rounded), bench.losses(bench.folder / 'scalar'), 1e-2):.1e}")
    _, errors = bench.run("threads", 1, bench.folder / "none", *flags, "--compute", "float16", code=None)
    check("--compute float16: use float32 or bfloat16" in errors, errors)


def case_recompute(bench):
    """--recompute learns the same bits in less memory, says what it does, and a resumed run may choose anew."""
    flags, said, memory = ("--batch", "4", "--steps", "8"), {}, {}
    for policy in ("none", "pointwise", "block"):
        said[policy], _ = bench.run("threads", 1, bench.folder / policy, *flags, "--recompute", policy)
        number, unit = re.search(r"([0-9.]+) (\w+) activations and gradients", said[policy]).groups()
        memory[policy] = float(number) * {"kB": 1e3, "MB": 1e6}[unit]
        check(bench.losses(bench.folder / policy) == bench.losses(bench.folder / "none"), f"{policy}: other losses")
        check(bench.parameters(bench.folder / policy, 8) == bench.parameters(bench.folder / "none", 8), f"{policy}: other parameters")
    check(memory["none"] > memory["pointwise"] > memory["block"], str(memory))
    check("nothing" in said["none"] and "norms, GELU" in said["pointwise"] and "every block" in said["block"], said["block"])
    parts = bench.folder / "parts"
    bench.run("threads", 1, parts, *flags[:2], "--steps", "5", "--schedule", "constant", "--recompute", "block")
    text, _ = bench.run("threads", 1, parts, "--resume", "latest", "--steps", "8")
    check("nothing" in text and "on resume: recompute" not in text, text)
    bench.run("threads", 1, bench.folder / "constant", *flags, "--schedule", "constant")
    check(bench.losses(parts) == bench.losses(bench.folder / "constant"), "resumed: other losses")


def case_dry_run(bench):
    """--dry-run says memory, traffic and time of the step that the flags mean, and leaves nothing behind."""
    for flags in ((), ("--tensor-parallel", "2"), ("--zero", "1", "--sync-freq", "2")):
        out = bench.folder / "dry"
        text, _ = bench.run("threads", 2, out, "--batch", "2", "--steps", "5", "--dry-run", *flags)
        for part in ("dry run: ", "memory ", "traffic ", "step ", "tokens/s", "5 steps of "):
            check(part in text, f"the dry run does not say {part}:\n{text}")
        check(not out.exists(), "a dry run wrote something")
    _, errors = bench.run("threads", 2, bench.folder / "dry", "--dry-run", "--algorithm", "diloco", code=1)
    check("--dry-run plans steps that average gradients" in errors, errors)


def case_profile(bench):
    """--profile prints where the time went and keeps a trace of the last step for every rank."""
    for ranks in (1, 2):
        out = bench.folder / f"profile{ranks}"
        text, _ = bench.run("threads", ranks, out, "--batch", "4", "--steps", "5", "--profile")
        for part in ("GFLOP/s", "% roof", "gemm", "attention_gradient", "adamw", "gpt2.hpp"):
            check(part in text, f"the profile does not say {part}:\n{text}")
        total = float(next(line for line in text.splitlines() if line.startswith("all ")).split()[2])
        steps = sorted(row["ms"] for row in bench.metrics(out))
        check(total < 1.5 * sum(steps) / len(steps), f"{total} ms of operations in a step of {steps} ms")
        for rank in range(ranks):
            trace = json.loads((out / f"trace_rank_{rank:04}.json").read_text())["traceEvents"]
            check(len(trace) > 20 and all(event["pid"] == rank and event["dur"] >= 0 for event in trace), str(trace)[:500])
            ranges = [event for event in trace if event.get("cat") == "range"]
            check({"layer 0", "layer 1", "update"} <= {event["name"] for event in ranges}, str(ranges))
            trace = trace[len(ranges):]
            check(all(any(event["ts"] == step["ts"] for step in trace) for event in ranges), "a range begins with no step")
            ends = [event["ts"] + event["dur"] for event in trace]
            check(all(event["ts"] >= end - 0.01 for event, end in zip(trace[1:], ends)), "steps overlap")
    text, _ = bench.run("threads", 1, bench.folder / "micro", "--batch", "2", "--sync-freq", "4", "--steps", "3", "--profile")
    for part in ("first micro-step:", "each of the 2 micro-steps between:", "last micro-step, with the update:", "trace of the last micro-step"):
        check(part in text, f"the profile does not say {part}:\n{text}")
    check(len([line for line in text.splitlines() if line.startswith("all ")]) == 3, text)
    text, _ = bench.run("threads", 1, bench.folder / "one", "--batch", "2", "--steps", "1", "--profile")
    check("of the only step" in text, text)
    text, _ = bench.run("threads", 1, bench.folder / "without", "--batch", "4", "--steps", "2")
    check("% roof" not in text and not (bench.folder / "without" / "trace_rank_0000.json").exists(), text)


def case_accumulation(bench):
    """--sync-freq N is N-fold accumulation bit for bit, and close to the whole batch at once."""
    runs = {"sync2": ["--batch", "2", "--sync-freq", "2"], "total2": ["--batch", "2", "--total-tokens", "256"],
            "sync4": ["--batch", "1", "--sync-freq", "4"], "whole": ["--batch", "4"]}
    for name, flags in runs.items():
        bench.run("threads", 2, bench.folder / name, *flags, "--steps", "8")
    check(bench.parameters(bench.folder / "sync2", 8) != b"", "no parameters")
    # Two ranks x 2 rows x 2 micro-steps of 32 tokens are 256 tokens.
    check(bench.losses(bench.folder / "sync2") == bench.losses(bench.folder / "total2"), "--sync-freq 2 and --total-tokens 256 differ")
    check(bench.parameters(bench.folder / "sync2", 8) == bench.parameters(bench.folder / "total2", 8), "their parameters differ")
    close(bench.losses(bench.folder / "whole"), bench.losses(bench.folder / "sync4"), 1e-5)
    close(bench.losses(bench.folder / "whole"), bench.losses(bench.folder / "sync2"), 1e-5)


def case_resume(bench):
    """SIGTERM checkpoints and leaves with 0; resuming gives the losses of an uninterrupted run bit for bit, also twice, and where checkpoints are written beside training."""
    for backend in bench.backends():
        whole, part = bench.folder / f"{backend}-whole", bench.folder / f"{backend}-part"
        flags = ["--batch", "2", "--steps", "400", "--validation-data", str(bench.folder / "validation.bin")]
        bench.run(backend, 2, whole, *flags)
        for stop in (signal.SIGTERM, signal.SIGINT):
            done = len(bench.losses(part)) if part.exists() else 0
            process = bench.start(backend, 2, part, *flags, "--checkpoint-every", "20", "--async-checkpoint", *(["--resume", "latest"] if done else []))
            bench.wait_for_step(process, part, done + 5)
            os.kill(process.pid, stop)
            text, errors = bench.finish(process)
            check(errors.count("stopping after this step") == 1, f"the signal was answered {errors.count('stopping after')} times:\n{errors}")
            check(bench.metrics(part, "end")[0]["reason"] == stop.name, str(bench.metrics(part, "end")))
            check("stopped by" in text, f"no word about the stop:\n{text[-2000:]}")
        stopped = len(bench.losses(part))
        check(stopped < 400, "the run was over before it was stopped")
        bench.run(backend, 2, part, "--resume", "latest", "--async-checkpoint")
        kept = [row["step"] for row in bench.metrics(part, "checkpoint")]
        check(kept == sorted(set(kept)) and stopped in kept and kept[-1] == 400 and len(kept) > 3, f"checkpoints of steps {kept}")
        check(bench.losses(part) == bench.losses(whole), f"{backend}: losses differ from the uninterrupted run's")
        check(bench.parameters(part, 400) == bench.parameters(whole, 400), "parameters differ")
        steps = [row["step"] for row in bench.metrics(part)]
        check(steps == list(range(1, 401)), f"the history has gaps or repeats: {steps}")
        ends = [row["loss"] for row in bench.metrics(part, "validation")]
        check(ends[-1] == bench.metrics(whole, "validation")[-1]["loss"], "validation differs")
        print(f"  {backend}: stopped twice by step {stopped}, then equal to the uninterrupted run")


def case_optimizers(bench):
    """--optimizer sgd and muon learn, the same on one rank and two, resume to the bit, also from ranks that kept a copy each; the state of another optimizer is refused; --groups names parameters that learn otherwise."""
    steps = ("--steps", "10", "--schedule", "constant")
    for name, rate, flags in ("sgd", "0.3", ("--nesterov", "--momentum", "0.8")), ("muon", "3e-3", ("--weight-decay", "0.2")):
        flags = ("--optimizer", name, "--learning-rate", rate, *flags)
        alone = bench.folder / f"{name}1"
        text, _ = bench.run("threads", 1, alone, "--batch", "4", *flags, *steps)
        check({"sgd": "SGD, Nesterov momentum 0.8", "muon": "Muon, Nesterov momentum 0.95"}[name] in text and "WARNING: shared" not in text, text)
        check(bench.losses(alone)[-1] < bench.losses(alone)[0] - 0.1, f"nothing was learned: {bench.losses(alone)}")
        for backend in bench.backends():
            two, own, parts = (bench.folder / f"{name}-{backend}-{what}" for what in ("two", "own", "parts"))
            text, _ = bench.run(backend, 2, two, "--batch", "2", *flags, *steps)
            check(("share one copy" in text) == (name == "muon") and "WARNING: shared" not in text, text)
            print(f"  {name}, {backend}, 2 ranks: within {close(bench.losses(alone), bench.losses(two), 1e-5):.1e}")
            bench.run(backend, 2, own, "--batch", "2", *flags, *steps, "--replicas-per-rank")
            check(bench.parameters(own, 10) == bench.parameters(two, 10), f"{name}: other parameters with a copy for every rank")
            bench.run(backend, 2, parts, "--batch", "2", *flags, "--steps", "5", *steps[2:])
            bench.run(backend, 2, parts, "--resume", "latest", "--steps", "10", "--learning-rate", rate)
            check(bench.losses(parts) == bench.losses(two), f"{name}, {backend}: other losses after resuming")
            check(bench.parameters(parts, 10) == bench.parameters(two, 10), f"{name}, {backend}: other parameters after resuming")
    for other in ("adamw", "muon"):
        _, errors = bench.run("threads", 1, bench.folder / "sgd1", "--resume", "latest", "--steps", "12", "--optimizer", other, code=None)
        check(f"--optimizer {other}: the checkpoint" in errors and "was trained with sgd" in errors, errors)
    _, errors = bench.run("threads", 2, bench.folder / "none", "--groups", "wet:frozen", "--steps", "2", code=None)
    check("no parameter is named 'wet'" in errors and "There are: wte, wpe, blocks.ln_1.weight" in errors, errors)
    groups, same = bench.folder / "groups", bench.folder / "same"
    text, _ = bench.run("threads", 1, groups, "--batch", "4", "--groups", "blocks.*:frozen;*:decay=0,rate=0.5", "--steps", "4")
    check("groups blocks.*:frozen" in text, text)
    bench.run("threads", 1, same, "--batch", "4", "--groups", "blocks.*:frozen", "--weight-decay", "0", "--learning-rate", "1.5e-3", "--steps", "4")
    check(close(bench.losses(groups), bench.losses(same), 1e-6) < 1e-6, "half the rate is not half the rate")
    _, errors = bench.run("threads", 1, groups, "--resume", "latest", "--steps", "6", "--groups", "wte:frozen", code=None)
    check("holds no 'm.blocks." in errors, errors)
    plain = bench.folder / "plain"
    bench.run("threads", 1, plain, "--batch", "4", "--optimizer", "sgd", "--momentum", "0", "--steps", "2")
    _, errors = bench.run("threads", 1, plain, "--resume", "latest", "--steps", "4", "--momentum", "0.9", code=None)
    check("holds no 'velocity." in errors, errors)


def case_compress(bench):
    """--compress: every compressor learns on one rank and several, resumes to the bit, and goes on with other ranks, with another compressor
    or without one; the bytes of a step are in metrics.jsonl."""
    steps = ("--steps", "20", "--total-tokens", "256", "--schedule", "constant")
    plain = bench.folder / "plain"
    bench.run("threads", 2, plain, "--batch", "4", *steps)
    exact, sent = bench.losses(plain), {"none": bench.metrics(plain, "start")[0]["sent_bytes"]}
    for name, share, worse in ("bf16", 0.51, 0.02), ("int8", 0.4, 0.02), ("topk:0.1", 0.4, 0.4), ("powersgd:4", 0.6, 0.4):
        for backend in bench.backends():
            out, parts = bench.folder / f"{name}-{backend}", bench.folder / f"{name}-{backend}-parts"
            text, _ = bench.run(backend, 2, out, "--batch", "2", *steps, "--compress", name, "--checkpoint-every", "10")
            check("gradients averaged every step, sent " in text and "with error feedback" in text, text)
            start = bench.metrics(out, "start")[0]
            check(start["compress"] == name and start["sent_bytes"] <= share * sent["none"], f"{start} beside {sent}")
            losses = bench.losses(out)
            check(losses[-1] < losses[0] - 0.2 and losses[-1] < exact[-1] + worse, f"{name}: {losses}, exactly {exact}")
            bench.run(backend, 2, parts, "--batch", "2", *steps, "--compress", name, "--steps", "10")
            bench.run(backend, 2, parts, "--resume", "latest", "--steps", "20")
            check(bench.losses(parts) == losses and bench.parameters(parts, 20) == bench.parameters(out, 20), f"{name}, {backend}: other bits after resuming")
            for ranks in (1, 4):
                other = bench.folder / f"{name}-{backend}-{ranks}"
                shutil.copytree(out, other)
                bench.run(backend, ranks, other, "--resume", "10", "--batch", "2")
                check(bench.losses(other)[-1] < exact[-1] + worse, f"{name} on {ranks} ranks: {bench.losses(other)}")
            print(f"  {name}, {backend}: {start['sent_bytes']} bytes of {sent['none']}, loss {losses[-1]:.4f} beside {exact[-1]:.4f}")
    for before, after in ("plain", "powersgd:4"), ("int8-threads", "none"), ("powersgd:4-threads", "powersgd:2"):
        out = bench.folder / f"{before}-then-{after}"
        shutil.copytree(bench.folder / before, out)
        text, _ = bench.run("threads", 2, out, "--resume", "latest", "--steps", "24", "--compress", after)
        check(f'-> "{after}"' in text and bench.losses(out)[-1] < exact[0] - 0.2, text)
    for flags, said in ((("--compress", "fp4"), "use none, bf16, int8, topk:SHARE or powersgd:RANK"),
                        (("--compress", "int8", "--algorithm", "diloco"), "is of --algorithm ddp"),
                        (("--compress", "int8", "--tensor-parallel", "2"), "is not with --tensor-parallel 2")):
        _, errors = bench.run("threads", 2, bench.folder / "none", *flags, code=None)
        check(said in errors, errors)


def alone(bench, steps, held_out):
    """Ranks that do not share --out: the first one writes for all, which is said."""
    folders = [bench.folder / "node0", bench.folder / "node1"]
    for folder in folders:
        (folder / "run").mkdir(parents=True)
    rank = bench.command("threads", 1, pathlib.Path("run"), ("--batch", "4", *steps, *held_out, "--zero", "3"))[:-2]
    rank[rank.index("--backend") + 1] = "mpi"
    process = subprocess.Popen([bench.args.mpiexec, "-n", "1", "-wdir", str(folders[0]), *rank, ":", "-n", "1", "-wdir", str(folders[1]), *rank],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    text, _ = bench.finish(process)
    check(text.count("not all ranks can write to run: the first one writes checkpoints for all") == 1, text)
    shared = bench.folder / "together"
    bench.run("mpi", 2, shared, "--batch", "4", *steps, *held_out, "--zero", "3")
    check(bench.parameters(folders[0] / "run", 20) == bench.parameters(shared, 20), "other bytes where the first rank writes for all")
    check(not (folders[1] / "run" / "checkpoints").exists(), "the second rank wrote a checkpoint")
    print("  mpi: ranks without a folder in common: the first one writes, the same bytes")


def case_zero(bench):
    """--zero 1: losses within 1e-6 of those of ranks that have all moments, resumed to the bit; checkpoints hold whole moments, with which any
    layout goes on. --zero 2 and 3: parameters and gradients in parts too, losses within 1e-5."""
    steps = ("--steps", "20", "--total-tokens", "256", "--schedule", "constant", "--checkpoint-every", "10")
    for backend in bench.backends():
        for ranks in (2, 4):
            for flags in ((), ("--optimizer", "muon"), ("--compress", "powersgd:4")):
                name = "-".join([backend, str(ranks), *flags])
                plain, shared, parts = (bench.folder / f"{name}-{what}" for what in ("plain", "shared", "parts"))
                text, _ = bench.run(backend, ranks, plain, "--batch", "2", *steps, *flags, "--replicas-per-rank")
                bench.run(backend, ranks, shared, "--batch", "2", *steps, *flags, "--zero", "1")
                worst = close(bench.losses(plain), bench.losses(shared), 1e-6)
                bench.run(backend, ranks, parts, "--batch", "2", "--steps", "10", *steps[2:], *flags, "--zero", "1")
                bench.run(backend, ranks, parts, "--resume", "latest", "--steps", "20", "--zero", "1")
                check(bench.losses(parts) == bench.losses(shared) and bench.parameters(parts, 20) == bench.parameters(shared, 20), f"{name}: other bits after resuming")
                sizes = [(out / "checkpoints" / "step_00000020" / "optimizer.safetensors").stat().st_size for out in (plain, shared)]
                check(sizes[0] == sizes[1], f"{name}: moments of {sizes} bytes")
                print(f"  {name}: within {worst:.1e}")
    reference = bench.losses(bench.folder / "threads-2-plain")
    for before, ranks, flags in (("threads-2-shared", 2, ()), ("threads-2-shared", 1, ()), ("threads-2-shared", 4, ("--zero", "1")),
                                 ("threads-4-shared", 2, ("--replicas-per-rank",)), ("threads-2-plain", 3, ("--zero", "1"))):
        out = bench.folder / f"{before}-{ranks}"
        shutil.copytree(bench.folder / before, out)
        bench.run("threads", ranks, out, "--resume", "10", "--batch", "8", *flags)
        print(f"  {before} -> {ranks} ranks {' '.join(flags)}: within {close(reference, bench.losses(out), 1e-5):.1e}")
    held_out = ("--validation-data", str(bench.folder / "validation.bin"), "--validate-every", "10")
    for backend in bench.backends():
        plain = bench.folder / f"{backend}-whole"
        bench.run(backend, 4, plain, "--batch", "2", *steps, *held_out)
        for stage in ("2", "3"):
            parts = bench.folder / f"{backend}-{stage}"
            text, _ = bench.run(backend, 4, parts, "--batch", "2", *steps, *held_out, "--zero", stage)
            check("of which each rank has a part, as of parameters and moments" in text, text)
            worst = close(bench.losses(plain), bench.losses(parts), 1e-5)
            close(*([row["loss"] for row in bench.metrics(of, "validation")] for of in (plain, parts)), 1e-5)
            print(f"  {backend}: stage {stage} within {worst:.1e}")
            beside = bench.folder / f"{backend}-{stage}-beside"
            bench.run(backend, 4, beside, "--batch", "2", *steps, *held_out, "--zero", stage, "--async-checkpoint")
            for step in (10, 20):
                for file in ("parameters", "optimizer"):
                    saved = [(out / "checkpoints" / f"step_{step:08}" / f"{file}.safetensors").read_bytes() for out in (parts, beside)]
                    check(saved[0] == saved[1], f"{file} of step {step}, written beside training, differ")
            check([row["step"] for row in bench.metrics(beside, "checkpoint")] == [10, 20], str(bench.metrics(beside, "checkpoint")))
            print(f"  {backend}: stage {stage}, written beside training: the same bytes")
    if bench.args.mpiexec:
        alone(bench, steps, held_out)
    for before, ranks, flags in (("threads-3", 2, ("--zero", "3")), ("threads-3", 1, ()), ("threads-whole", 4, ("--zero", "3")), ("threads-2", 2, ("--tensor-parallel", "2"))):
        out = bench.folder / f"{before}-to-{ranks}"
        shutil.copytree(bench.folder / before, out)
        bench.run("threads", ranks, out, "--resume", "10", "--batch", "8", *flags)
        print(f"  {before} -> {ranks} ranks {' '.join(flags)}: within {close(bench.losses(bench.folder / 'threads-whole'), bench.losses(out), 1e-5):.1e}")
    meshes(bench, held_out)
    for flags, said in ((("--algorithm", "diloco"), "is for --algorithm ddp"), (("--optimizer", "sgd"), "shares out adamw's moments")):
        _, errors = bench.run("threads", 2, bench.folder / "none", "--zero", "1", *flags, code=None)
        check(f"--zero 1: {said}" in errors, errors)


def meshes(bench, held_out):
    """Every stage of ZeRO with a tensor axis and with stages of a pipeline: the losses of one rank, and checkpoints, written beside
    training, that go on with any layout."""
    steps = ("--layers", "4", "--batch", "8", "--steps", "20", "--total-tokens", "256", "--checkpoint-every", "10", *held_out)
    models = {"gpt2": (), "llama": ("--architecture", "llama", "--kv-heads", "2")}
    layouts = {"tensor": ("--tensor-parallel", "2", "--sequence-parallel"), "pipeline": ("--pipeline-parallel", "2", "--micro-batches", "2")}
    for model, words in models.items():
        bench.run("threads", 1, bench.folder / model, *steps, *words)
    first = None
    for backend in bench.backends():
        for model, axis, stage in (("gpt2", "tensor", "1"), ("llama", "tensor", "2"), ("gpt2", "tensor", "3"), ("gpt2", "pipeline", "2"), ("llama", "pipeline", "3")):
            out = bench.folder / f"{backend}-{model}-{axis}-{stage}"
            layout = ("--batch", "2" if axis == "pipeline" else "4", *layouts[axis], "--zero", stage)
            text, _ = bench.run(backend, 4, out, *steps, *models[model], *layout, "--async-checkpoint")
            check(f"4 ranks (data 2 x {axis} 2)" in text, text)
            worst = close(bench.losses(bench.folder / model), bench.losses(out), 1e-5)
            close(*[[row["loss"] for row in bench.metrics(of, "validation")] for of in (bench.folder / model, out)], 1e-5)
            again = bench.folder / f"{out.name}-again"
            shutil.copytree(out, again)
            bench.run(backend, 4, again, "--layers", "4", "--resume", "10", *layout)
            check(bench.parameters(again, 20) == bench.parameters(out, 20), f"{out.name}: other bits after resuming")
            print(f"  {out.name}: within {worst:.1e}, resumed to the bit")
    for before, ranks, flags in (("threads-gpt2-tensor-1", 1, ()), ("threads-gpt2-tensor-3", 2, ("--pipeline-parallel", "2")), ("threads-gpt2-pipeline-2", 4, layouts["tensor"] + ("--zero", "3")),
                                 ("threads-gpt2-tensor-1", 4, layouts["pipeline"] + ("--zero", "2"))):
        out = bench.folder / f"{before}-to-{ranks}-{len(flags)}"
        shutil.copytree(bench.folder / before, out)
        bench.run("threads", ranks, out, "--layers", "4", "--resume", "10", "--batch", str(8 // (2 if "--pipeline-parallel" in flags and ranks == 4 else 1) // (2 if "--zero" in flags else 1)), *flags)
        print(f"  {before} -> {ranks} ranks {' '.join(flags)}: within {close(bench.losses(bench.folder / 'gpt2'), bench.losses(out), 1e-5):.1e}")


def case_dropout(bench):
    """--dropout and --attention-dropout: the same masks on one rank and two, resumed to the bit, none in validation."""
    flags = ("--steps", "8", "--schedule", "constant", "--dropout", "0.2", "--attention-dropout", "0.1")
    one, plain = bench.folder / "one", bench.folder / "plain"
    text, _ = bench.run("threads", 1, one, "--batch", "4", "--sync-freq", "2", *flags)
    check("0.2 of embeddings and residuals, 0.1 of attention" in text, text)
    bench.run("threads", 1, plain, "--batch", "4", "--sync-freq", "2", *flags[:4])
    check(min(abs(a - b) for a, b in zip(bench.losses(one), bench.losses(plain))) > 1e-4, "dropout changes nothing")
    for backend in bench.backends():
        two, parts = bench.folder / backend, bench.folder / f"{backend}-parts"
        bench.run(backend, 2, two, "--batch", "2", "--sync-freq", "2", *flags)
        print(f"  {backend}, 2 ranks: within {close(bench.losses(one), bench.losses(two), 1e-5):.1e}")
        bench.run(backend, 2, parts, "--batch", "2", "--sync-freq", "2", "--steps", "3", *flags[2:])
        bench.run(backend, 2, parts, "--resume", "latest", "--steps", "8")
        check(bench.losses(parts) == bench.losses(two), f"{backend}: other losses after resuming")
        check(bench.parameters(parts, 8) == bench.parameters(two, 8), f"{backend}: other parameters after resuming")
    block = bench.folder / "block"
    bench.run("threads", 1, block, "--batch", "4", "--sync-freq", "2", *flags, "--recompute", "block")
    check(bench.losses(block) == bench.losses(one), "other masks where blocks are computed again")


def case_chat(bench):
    """Conversations, alone and in a mixture, packed or not: the same losses on any ranks and micro-steps, resumed to the bit."""
    draw = random.Random(3)
    for name, count in (("talks", 300), ("sums", 120)):
        lines = []
        for i in range(count):
            a, b = draw.randrange(9), draw.randrange(9)
            words = [{"role": "user", "content": f"What is {a} plus {b}?"}, {"role": "assistant", "content": f"It is {a + b}."}]
            lines.append({"messages": words * (1 + i % 3)} if name == "talks" else {"prompt": f"{a}+{b}=", "completion": str(a + b)})
        (bench.folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    def prepare(name, *words):
        made = subprocess.run([bench.args.prepare, "--input", str(bench.folder / f"{name}.jsonl"), "--out", str(bench.folder / name), *words],
                              capture_output=True, text=True, timeout=LIMIT)
        check(made.returncode == 0, made.stdout + made.stderr)
        check("are targets" in made.stdout and "WARNING" not in made.stdout, made.stdout)
    prepare("talks", "--chat-template", "chatml", "--vocabulary", "300")
    tokenizer = bench.folder / "talks" / "tokenizer.json"
    prepare("sums", "--tokenizer", str(tokenizer))
    talks, mixture = str(bench.folder / "talks"), f"{bench.folder / 'talks'}:0.75,{bench.folder / 'sums'}:0.25"
    known = str(json.load(open(bench.folder / "talks" / "dataset.json"))["vocabulary"])
    sizes = ("--vocabulary", known, "--steps", "30", "--total-tokens", "256", "--tokenizer", str(tokenizer))
    for name, words in (("talks", ("--data", talks)), ("packed", ("--data", talks, "--pack", "documents")),
                        ("mixture", ("--data", mixture)), ("both", ("--data", mixture, "--pack", "documents", "--architecture", "llama"))):
        whole = bench.folder / f"{name}1"
        text, _ = bench.run("threads", 1, whole, *sizes, *words, "--batch", "8")
        check("are targets" in text, text)
        losses = bench.losses(whole)
        check(losses[-1] < losses[0] - 0.5, f"nothing was learned: {losses}")
        worst = 0
        stages = ("--batch", "2", "--pipeline-parallel", "2", "--micro-batches", "4")
        for ranks, layout in ((2, ("--batch", "4")), (3, ("--batch", "3")), (2, ("--batch", "1")), (2, stages)):
            other = bench.folder / f"{name}{ranks}{layout[1]}"
            bench.run("threads", ranks, other, *sizes, *words, *layout)
            worst = max(worst, close(losses, bench.losses(other), 1e-4))
        part = bench.folder / f"{name}-part"
        bench.run("threads", 1, part, *sizes, *words, "--batch", "8", "--steps", "12", "--schedule", "constant")
        bench.run("threads", 1, whole, *sizes, *words, "--batch", "8", "--schedule", "constant", "--overwrite")
        bench.run("threads", 1, part, "--vocabulary", known, *words, "--resume", "latest", "--steps", "30")
        check(bench.parameters(part, 30) == bench.parameters(whole, 30), f"{name}: a resumed run has other parameters")
        print(f"  {name}: {losses[0]:.3f} to {losses[-1]:.3f}, other layouts within {worst:.1e}")
        ends = bench.metrics(whole, "validation_set")
        check(bool(ends) == (name in ("mixture", "both")), f"{name}: {ends}")
        if ends:
            epochs = bench.metrics(whole)[-1]["epochs"]
            check(len(epochs) == 2 and all(passes > 0 for passes in epochs.values()), f"{name}: {epochs}")
    _, errors = bench.run("threads", 1, bench.folder / "none", *sizes, "--data", talks, "--pack", "documents", "--attention-dropout", "0.1", code=1)
    check("--pack documents is not there with --attention-dropout" in errors, errors)
    _, errors = bench.run("threads", 1, bench.folder / "none", "--pack", "documents", code=1)
    check("needs a tokenizer.json" in errors, errors)


def case_diloco(bench):
    """DiLoCo: with one inner step, outer rate 1 and no momentum near data parallel; any stop resumes to the bit; others refused."""
    flags = ["--batch", "2", "--steps", "24", "--validation-data", str(bench.folder / "validation.bin"), "--checkpoint-every", "7",
             "--keep", "0", "--algorithm", "diloco"]
    streaming = ["--inner-steps", "6", "--fragments", "2", "--outer-overlap", "3", "--outer-bits", "int4"]

    def held_out(out):
        return bench.metrics(out, "validation")[-1]["loss"]

    for backend in bench.backends():
        plain, whole = bench.folder / f"{backend}-plain", bench.folder / f"{backend}-whole"
        bench.run(backend, 4, plain, *flags, "--inner-steps", "4", "--outer-momentum", "0.5")
        text, _ = bench.run(backend, 4, whole, *flags, *streaming)
        check("DiLoCo: 6 inner steps, outer rate 0.4" in text and "2 fragments" in text and "as int4" in text, text[:2000])
        first = bench.metrics(whole, "validation")[0]["loss"]
        check(held_out(plain) < first - 0.3 and held_out(whole) < first - 0.3, f"nothing was learned: {held_out(plain)}, {held_out(whole)}")
        # Step 7 lies between two averages, at 14 and 21 one is under way.
        for stop in (7, 14, 21):
            part = bench.folder / f"{backend}-part"
            bench.run(backend, 4, part, "--resume", str(whole / "checkpoints" / f"step_{stop:08}"), "--overwrite")
            check(bench.parameters(part, 24) == bench.parameters(whole, 24), f"{backend}: resumed at {stop}, parameters differ")
            check(bench.losses(part) == bench.losses(whole)[stop:], f"{backend}: resumed at {stop}, losses differ")
        print(f"  {backend}: {held_out(plain):.4f} plain, {held_out(whole):.4f} in fragments of four bits; resumed to the bit")
    checkpoint = bench.folder / "threads-whole" / "checkpoints" / "step_00000014"
    for ranks, words in ((2, []), (3, ["--outer-bits", "float32"]), (2, ["--algorithm", "ddp"])):
        bench.run("threads", ranks, bench.folder / "other", "--resume", str(checkpoint), "--overwrite", *words)
        check(bench.metrics(bench.folder / "other", "validation")[-1]["loss"] < first, f"{ranks} ranks, {words}: worse than at first")
    _, errors = bench.run("threads", 4, bench.folder / "refused", "--resume", str(checkpoint), "--fragments", "1", code=1)
    check("Resume with the number of fragments of before" in errors, errors)

    ddp, same = bench.folder / "ddp", bench.folder / "same"
    bench.run("threads", 2, ddp, "--batch", "4", "--steps", "10", "--validation-data", str(bench.folder / "validation.bin"))
    bench.run("threads", 2, same, *flags[:-1], "diloco", "--batch", "4", "--steps", "10", "--inner-steps", "1", "--outer-learning-rate", "1",
              "--outer-momentum", "0")
    check(abs(held_out(same) - held_out(ddp)) < 0.1, f"averaging after each step ends at {held_out(same)}, data parallel at {held_out(ddp)}")
    for words, said in ((["--inner-steps", "5"], "--inner-steps: is of --algorithm diloco"),
                        (["--algorithm", "diloco", "--inner-steps", "3", "--fragments", "4"], "more than the 3 --inner-steps"),
                        (["--algorithm", "diloco", "--inner-steps", "3", "--outer-overlap", "3"], "not below the 3 --inner-steps"),
                        (["--algorithm", "diloco", "--fragments", "9"], "Ask for fewer"),
                        (["--algorithm", "local"], "use ddp or diloco")):
        done = subprocess.run(bench.command("threads", 2, bench.folder / "no", ["--batch", "1", "--steps", "1", *words]), capture_output=True,
                              text=True, timeout=LIMIT)
        check(done.returncode in (1, 2) and said in done.stderr, f"{words}: {done.returncode}, {done.stderr}")


def case_llama(bench):
    """LLaMA: the same losses in every layout, resuming to the bit, the same text as a checkpoint and as a GGUF file."""
    text, data = bench.folder / "text.txt", bench.folder / "data"
    text.write_text(SENTENCES)
    subprocess.run([bench.args.prepare, "--input", str(text), "--out", str(data), "--vocabulary", "280"], check=True, capture_output=True, timeout=LIMIT)
    flags = ["--architecture", "llama", "--layers", "2", "--channels", "48", "--heads", "4", "--kv-heads", "2", "--sequence", "32", "--vocabulary", "280",
             "--data", str(data), "--learning-rate", "1e-2", "--warmup", "3", "--threads", "1", "--validate-every", "0"]

    def train(backend, ranks, out, *words, code=0):
        launch = [bench.args.mpiexec, "-n", str(ranks)] if backend == "mpi" else []
        here = ["--ranks", str(ranks)] if backend == "threads" else []
        done = subprocess.run([*launch, bench.args.trainer, "--backend", backend, *here, "--out", str(out), *words], capture_output=True, text=True,
                              errors="replace", timeout=LIMIT)
        check(done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout if code == 0 else done.stderr

    reference = None
    for backend in bench.backends():
        for ranks in (1, 2, 4):
            out = bench.folder / f"{backend}{ranks}"
            said = train(backend, ranks, out, *flags, "--batch", str(8 // ranks), "--steps", "20")
            check("LLaMA of 2 layers, 48 channels, 4 heads (2 of keys and values)" in said, said[:2000])
            losses = bench.losses(out)
            check(losses[-1] < losses[0] - 1, f"nothing was learned: {losses}")
            reference = reference or losses
            print(f"  {backend} {ranks} ranks: within {close(reference, losses, 1e-5):.1e}")
    whole, part = bench.folder / "whole", bench.folder / "part"
    own = ["--untied", "--hidden", "64", "--compute", "bfloat16", "--batch", "4", "--steps", "120", "--checkpoint-every", "60", "--sample-every", "120"]
    train("threads", 2, whole, *flags, *own)
    train("threads", 2, part, "--resume", str(whole / "checkpoints" / "step_00000060"))
    check(bench.parameters(part, 120) == bench.parameters(whole, 120), "resumed: other parameters")
    check("sat on the" in bench.metrics(whole, "sample")[-1]["text"], str(bench.metrics(whole, "sample")))
    for words in ((), ("--zero", "1"), ("--zero", "3"), ("--zero", "3", "--tensor-parallel", "2"), ("--zero", "2", "--pipeline-parallel", "2")):
        out = bench.folder / "-".join(["sampled", *words])
        train("threads", 4, out, *flags, "--batch", "2", "--steps", "2", "--sample-every", "1", *words)
        texts = [[row["text"] for row in bench.metrics(of, "sample")] for of in (out, bench.folder / "sampled")]
        check(len(texts[0]) == 2 and (len(words) > 2 or texts[0] == texts[1]), f"{words}: samples {texts}")

    def generate(*words):
        done = subprocess.run([bench.args.generator, "--prompt", "the dog", "--tokens", "16", "--temperature", "0", "--quiet", *words], capture_output=True,
                              text=True, timeout=LIMIT)
        check(done.returncode == 0, f"{words}: {done.returncode} {done.stderr}")
        return done.stdout

    file = bench.folder / "model.gguf"
    done = subprocess.run([pathlib.Path(bench.args.generator).parent / "convert", "--from", str(whole), "--to", str(file), "--type", "f32"],
                          capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0, done.stderr)
    check(generate("--checkpoint", str(whole)) == generate("--model", str(file)) and "sat on the" in generate("--model", str(file)), generate("--model", str(file)))
    train("threads", 2, bench.folder / "diloco", *flags, "--batch", "4", "--steps", "20", "--algorithm", "diloco", "--inner-steps", "5")
    for words, said in ((["--resume", str(whole / "checkpoints" / "step_00000120"), "--kv-heads", "4"], "--kv-heads 4: the checkpoint's model has others"),
                        (["--resume", str(whole / "checkpoints" / "step_00000120"), "--architecture", "gpt2"], "the checkpoint's model is a llama"),
                        ([*flags, "--kv-heads", "3"], "--kv-heads 3 does not divide --heads 4"),
                        ([*flags[2:], "--hidden", "64"], "--kv-heads: is of --architecture llama"),
                        (["--architecture", "llama", "--layers", "1", "--channels", "6", "--heads", "2", "--data", str(data)], "even number of channels")):
        done = subprocess.run([bench.args.trainer, "--backend", "threads", "--ranks", "1", *words], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode in (1, 2) and said in done.stderr, f"{words}: {done.returncode} {done.stderr}")


def case_own_model(bench):
    """A model from outside the library trains, validates, resumes to the bit and on other ranks; what it cannot do is refused."""
    program = pathlib.Path(bench.args.generator).parent / "040_train_your_own"
    flags = ["--data", str(bench.folder / "train.bin"), "--validation-data", str(bench.folder / "validation.bin"), "--sequence", "32", "--batch", "4",
             "--steps", "40", "--learning-rate", "1e-2", "--threads", "1", "--checkpoint-every", "20", "--backend", "threads"]

    def train(out, *words, ranks=2, code=0):
        done = subprocess.run([program, "--out", str(out), "--ranks", str(ranks), *words], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout if code == 0 else done.stderr

    whole, part, alone = bench.folder / "whole", bench.folder / "part", bench.folder / "alone"
    train(whole, *flags)
    losses = [row["loss"] for row in bench.metrics(whole, "validation")]
    check(losses[-1] < losses[0] - 1, str(losses))
    train(part, "--backend", "threads", "--resume", str(whole / "checkpoints" / "step_00000020"))
    check(bench.parameters(part, 40) == bench.parameters(whole, 40), "resumed: other parameters")
    train(alone, *flags, "--batch", "8", ranks=1)
    print(f"  1 and 2 ranks: within {close(bench.losses(whole), bench.losses(alone), 1e-5):.1e}")
    gpt2 = bench.folder / "gpt2"
    bench.run("threads", 1, gpt2, "--batch", "2", "--steps", "2")
    said = train(bench.folder / "other", "--backend", "threads", "--resume", str(gpt2 / "checkpoints" / "step_00000002"), code=1)
    check("of architecture gpt2" in said, said)
    packed = bench.folder / "packed"
    packed.mkdir()
    (packed / "text.txt").write_text("A sentence of a document.<|endoftext|>Another one, of another document." * 50)
    subprocess.run([bench.args.prepare, "--input", str(packed / "text.txt"), "--vocabulary", "300", "--out", str(packed)],
                   check=True, capture_output=True, timeout=LIMIT)
    said = train(bench.folder / "apart", "--data", str(packed), "--backend", "threads", "--pack", "documents", "--sequence", "16", code=1)
    check("configuration has no document_mark" in said and "Setup::document_mark" in said, said)


def case_module(bench):
    """A model that JAX exported trains and validates on any number of ranks and resumes to the bit; other sizes, and another module, are refused."""
    source = pathlib.Path(__file__).parent.parent / "graph" / "jax"
    module = bench.folder / "gpt.mlir"
    shutil.copy(source / "gpt.mlir", module)
    for name, count, seed in (("few.bin", 3000, 1), ("few_validation.bin", 500, 2)):  # it knows sixteen tokens
        bench.write_shard(bench.folder / name, count, seed)
        head = (bench.folder / name).read_bytes()
        tokens = struct.unpack(f"<{count}H", head[1024:])
        (bench.folder / name).write_bytes(head[:1024] + struct.pack(f"<{count}H", *[t % 16 for t in tokens]))
    flags = ["--model", str(module), "--data", str(bench.folder / "few.bin"), "--validation-data", str(bench.folder / "few_validation.bin"),
             "--vocabulary", "16", "--steps", "60", "--learning-rate", "1e-2", "--warmup", "0", "--threads", "1", "--checkpoint-every", "30"]

    def train(out, *words, ranks=1, backend="threads", code=0):
        command = [bench.args.trainer, "--out", str(out), "--backend", backend, *words]
        command = [bench.args.mpiexec, "-n", str(ranks), *command] if backend == "mpi" else [*command, "--ranks", str(ranks)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout if code == 0 else done.stderr

    whole, part = bench.folder / "whole", bench.folder / "part"
    said = train(whole, *flags, ranks=2)
    check("initial values by shape" in said, said)
    losses = [row["loss"] for row in bench.metrics(whole, "validation")]
    check(losses[-1] < losses[0] - 0.05, str(losses))
    for backend in bench.backends():
        for ranks, words in ((1, ["--sync-freq", "2"]), (2, [])):
            out = bench.folder / f"{backend}{ranks}"
            train(out, *flags, *words, ranks=ranks, backend=backend)
            print(f"  {backend} {ranks} ranks: within {close(bench.losses(whole), bench.losses(out), 1e-4):.1e}")
    train(part, "--resume", str(whole / "checkpoints" / "step_00000030"), ranks=2)
    check(bench.parameters(part, 60) == bench.parameters(whole, 60), "resumed: other parameters")
    shutil.copy(source / "gpt.safetensors", bench.folder / "gpt.safetensors")
    said = train(bench.folder / "values", *flags)
    check("initial values of " in said, said)
    for words, sentence in ((["--batch", "4"], "exported for batches of 2 x 6"), (["--sequence", "32"], "exported for batches of 2 x 6"),
                            (["--total-tokens", "36"], "exported for 2 each"), (["--sample-every", "5"], "tokenizer"),
                            (["--architecture", "llama"], "says nothing of --model")):
        said = train(bench.folder / "refused", *flags, *words, ranks=2, code=1)
        check(sentence in said, said)
    module.write_text(module.read_text().replace("stablehlo.tanh", "stablehlo.sort", 1))
    said = train(bench.folder / "refused", *flags, code=1)
    check("gpt.mlir:" in said and "stablehlo.sort: is not supported" in said, said)
    said = train(bench.folder / "refused", "--resume", str(whole / "checkpoints" / "step_00000030"), code=1)
    check("is not the module that the checkpoint was trained with" in said, said)


def case_relayout(bench):
    """A checkpoint of 2 ranks goes on with 1, 3 and 4 ranks within 1e-5 of the uninterrupted run."""
    whole = bench.folder / "whole"
    flags = ["--batch", "6", "--total-tokens", "384", "--steps", "20", "--checkpoint-every", "10"]
    bench.run("threads", 2, whole, *flags)
    for backend in bench.backends():
        for ranks in (1, 3, 4):
            out = bench.folder / f"{backend}{ranks}"
            shutil.copytree(whole, out)
            bench.run(backend, ranks, out, "--resume", "10")
            print(f"  {backend} {ranks} ranks: within {close(bench.losses(whole), bench.losses(out), 1e-5):.1e}")


def case_tensor(bench):
    """Every mesh of 2 and 4 ranks has the losses of one rank within 1e-5, GPT-2 and LLaMA, on every backend, bit for bit twice; a
    checkpoint of any mesh goes on with any other; meshes that do not fit are refused in figures."""
    models = {"gpt2": [], "llama": ["--architecture", "llama", "--kv-heads", "4", "--untied"]}
    steps = ["--batch", "8", "--total-tokens", "256", "--steps", "20", "--checkpoint-every", "10", "--validation-data", str(bench.folder / "validation.bin")]
    one = {}
    for model, words in models.items():
        one[model] = bench.folder / model
        bench.run("threads", 1, one[model], *steps, *words, "--validate-every", "10")
        for backend in bench.backends():
            for data, tensor in ((1, 2), (1, 4), (2, 2), (4, 1)):
                out = bench.folder / f"{model}{backend}{data}{tensor}"
                text, _ = bench.run(backend, data * tensor, out, *steps, *words, "--validate-every", "10", "--tensor-parallel", str(tensor))
                check(tensor == 1 or f"{data * tensor} ranks (data {data} x tensor {tensor})" in text, text)
                check(tensor == 1 or f"of activations added up over the {tensor} ranks of a group each step" in text, text)
                worst = close(bench.losses(one[model]), bench.losses(out), 1e-5)
                held_out = [[row["loss"] for row in bench.metrics(of, "validation")] for of in (one[model], out)]
                close(*held_out, 1e-5)
                print(f"  {model} {backend} {data} x {tensor}: within {worst:.1e}")
    again = bench.folder / "again"
    bench.run("threads", 4, again, *steps, "--validate-every", "10", "--tensor-parallel", "2")
    for row in bench.metrics(again):
        axes = row["exposed_axis_ms"]
        check("tensor" in axes and set(axes) <= {"data", "tensor"} and abs(sum(axes.values()) - row["exposed_comm_ms"]) < 1e-6, str(row))
    check(bench.parameters(again, 20) == bench.parameters(bench.folder / "gpt2threads22", 20), "a second run gives other bits")
    shares = bench.folder / "shares"
    bench.run("threads", 4, shares, *steps, "--validate-every", "10", "--tensor-parallel", "2", "--sequence-parallel")
    print(f"  shares of the tokens, 2 x 2: within {close(bench.losses(one['gpt2']), bench.losses(shares), 1e-5):.1e}")
    for before, (data, tensor) in (("gpt2threads14", (4, 1)), ("gpt2threads41", (2, 2)), ("gpt2threads22", (1, 4)), ("gpt2threads22", (1, 1)),
                                   ("llamathreads22", (1, 2)), ("gpt2threads22", (2, 2))):
        for backend in bench.backends():
            out = bench.folder / f"from{before}{data}{tensor}{backend}"
            shutil.copytree(bench.folder / before, out)
            bench.run(backend, data * tensor, out, "--resume", "10", "--model-parallel", str(tensor))
            worst = close(bench.losses(one["llama" if "llama" in before else "gpt2"]), bench.losses(out), 1e-5)
            print(f"  {before} -> {data} x {tensor}, {backend}: within {worst:.1e}")
            if before.endswith(f"{data}{tensor}") and backend == "threads":
                check(bench.parameters(out, 20) == bench.parameters(bench.folder / before, 20), "resumed on the same mesh: other bits")

    def refused(ranks, *words):
        _, errors = bench.run("threads", ranks, bench.folder / "none", *steps, *words, code=None)
        return errors

    said = refused(4, "--tensor-parallel", "3")
    check("is not the number of ranks, 4. These fit, data x tensor: 4 x 1, 2 x 2, 1 x 4" in said, said)
    said = refused(4, "--data-parallel", "2", "--tensor-parallel", "4")
    check("--data-parallel 2 x --tensor-parallel 4 is not the number of ranks, 4" in said, said)
    said = refused(3, "--channels", "36", "--tensor-parallel", "3")
    check("4 heads do not divide among 3 ranks of the tensor axis (gpt2.hpp:" in said, said)
    said = refused(2, "--optimizer", "muon", "--tensor-parallel", "2")
    check("--tensor-parallel 2: divides matrices, of which muon needs the whole" in said, said)
    said = refused(2, "--algorithm", "diloco", "--tensor-parallel", "2")
    check("is for --algorithm ddp" in said, said)


def case_pipeline(bench):
    """Stages of a pipeline have the losses of one rank within 1e-5, alone and with data parallelism, on every backend, with validation and
    samples; twice the same bits; checkpoints of any layout go on with any other; what cannot be is refused in figures."""
    steps = ["--layers", "4", "--batch", "8", "--total-tokens", "256", "--steps", "20", "--checkpoint-every", "10",
             "--validation-data", str(bench.folder / "validation.bin"), "--validate-every", "10"]
    models = {"gpt2": [], "llama": ["--architecture", "llama", "--kv-heads", "2"]}
    runs = [("gpt2", 1, 2, "4", "1f1b"), ("gpt2", 1, 4, "8", "1f1b"), ("gpt2", 2, 2, "4", "1f1b"), ("gpt2", 1, 4, "8", "gpipe"),
            ("llama", 2, 2, "2", "1f1b"), ("llama", 1, 4, "8", "gpipe"), ("gpt2", 2, 2, "4", "interleaved"), ("gpt2", 1, 4, "8", "zero-bubble")]
    for model, words in models.items():
        bench.run("threads", 1, bench.folder / model, *steps, *words)
    for backend in bench.backends():
        for model, data, stages, micro, schedule in runs:
            out = bench.folder / f"{model}{backend}{data}{stages}{schedule}"
            text, _ = bench.run(backend, data * stages, out, *steps, *models[model], "--batch", str(8 // data // int(micro)),
                                "--pipeline-parallel", str(stages), "--micro-batches", micro, "--pipeline-schedule", schedule)
            check(f"{data * stages} ranks (data {data} x pipeline {stages})" in text, text)
            parts = " of 2 parts" if schedule == "interleaved" else ""
            check(f"{stages} stages{parts}, {micro} micro-batches, {schedule} schedule" in text, text)
            check("of which the first stage keeps" in text, text)
            worst = close(bench.losses(bench.folder / model), bench.losses(out), 1e-5)
            close(*[[row["loss"] for row in bench.metrics(of, "validation")] for of in (bench.folder / model, out)], 1e-5)
            print(f"  {model} {backend} {data} x {stages}, {micro} micro-batches, {schedule}: within {worst:.1e}")
    staged = ["--pipeline-parallel", "2", "--micro-batches", "4"]
    three = bench.folder / "three"
    text, _ = bench.run("threads", 4, three, *steps, "--batch", "2", "--tensor-parallel", "2", *staged)
    check("4 ranks (data 1 x tensor 2 x pipeline 2)" in text, text)
    for row in bench.metrics(three):
        axes = row["exposed_axis_ms"]
        check({"tensor", "pipeline"} <= set(axes) <= {"data", "tensor", "pipeline"} and abs(sum(axes.values()) - row["exposed_comm_ms"]) < 1e-6, str(row))
        check(row["exposed_comm_ms"] <= row["ms"], str(row))
    # 2 x 3 sums of a layer, forward and backward of every micro-batch: not nothing, as where the stages' programs are left out.
    check(statistics.median(row["exposed_axis_ms"]["tensor"] for row in bench.metrics(three)) > 0.02, "ranks of a stage never waited for each other")
    print(f"  gpt2 threads, tensor 2 x pipeline 2: within {close(bench.losses(bench.folder / 'gpt2'), bench.losses(three), 1e-5):.1e}")
    # What compressors keep of gradients the last stage alone has: its final norm is all that learns.
    last = bench.folder / "last"
    bench.run("threads", 4, last, *steps, "--batch", "1", *staged, "--compress", "int8", "--groups", "blocks.*:frozen;wte:frozen;wpe:frozen")
    check(len(bench.losses(last)) == 20 and bench.parameters(last, 10) != bench.parameters(last, 20), "nothing was learned")
    uneven = bench.folder / "uneven"
    bench.run("threads", 2, uneven, *steps, "--batch", "2", *staged, "--stage-layers", "3,1")
    print(f"  gpt2 threads, 3 and 1 layers: within {close(bench.losses(bench.folder / 'gpt2'), bench.losses(uneven), 1e-5):.1e}")
    again = bench.folder / "again"
    bench.run("threads", 4, again, *steps, "--batch", "1", *staged)
    check(bench.parameters(again, 20) == bench.parameters(bench.folder / "gpt2threads221f1b", 20), "a second run gives other bits")
    check(bench.parameters(bench.folder / "gpt2threads14gpipe", 20) == bench.parameters(bench.folder / "gpt2threads141f1b", 20),
          "another schedule gives other bits")
    check(bench.parameters(bench.folder / "gpt2threads14zero-bubble", 20) == bench.parameters(bench.folder / "gpt2threads141f1b", 20),
          "backward passes in halves give other bits")
    for before, ranks, words in (("gpt2threads221f1b", 1, []), ("gpt2", 4, ["--pipeline-parallel", "4"]), ("gpt2threads121f1b", 2, ["--tensor-parallel", "2"]),
                                 ("gpt2threads22interleaved", 2, staged[:2]), ("gpt2threads121f1b", 4, [*staged, "--pipeline-schedule", "interleaved"]),
                                 ("gpt2threads221f1b", 4, staged[:2])):
        out = bench.folder / f"from{before}{ranks}{len(words)}"
        shutil.copytree(bench.folder / before, out)
        bench.run("threads", ranks, out, "--resume", "10", *steps[:2], *words)
        worst = close(bench.losses(bench.folder / "gpt2"), bench.losses(out), 1e-5)
        print(f"  {before} -> {ranks} ranks {' '.join(words)}: within {worst:.1e}")
    check(bench.parameters(out, 20) == bench.parameters(bench.folder / "gpt2threads221f1b", 20), "resumed on the same layout: other bits")

    def refused(ranks, *words):
        _, errors = bench.run("threads", ranks, bench.folder / "none", *steps, *words, code=None)
        return errors

    said = refused(4, "--pipeline-parallel", "3")
    check("is not the number of ranks, 4. These fit, data x pipeline: 4 x 1, 2 x 2, 1 x 4" in said, said)
    said = refused(3, "--pipeline-parallel", "3")
    check("the 4 layers of the model do not divide among 3 stages. Use one of 1, 2, 4" in said, said)
    said = refused(2, "--pipeline-parallel", "2", "--pipeline-schedule", "interleaved", "--micro-batches", "1")
    check("and 1 are not a multiple of 2. Use 2 micro-batches" in said, said)
    said = refused(2, "--pipeline-parallel", "2", "--stage-layers", "3,2")
    check("the 4 layers of the model do not divide among 2 stages as said, of which each has at least one: say 2 numbers that add up to 4" in said, said)


def case_one_voice(bench):
    """A mistake in flags, files or the machine is said once, by rank 0, and no rank stays."""
    data = str(bench.folder / "train.bin")
    for flags, part, code in ((["--data", "/nonexistent*.bin"], "/nonexistent*.bin", 1), (["--stepz", "3"], "--stepz", 2), (["--batch", "0"], "--batch 0", 2),
                              (["--data", data, "--batch", "100000000"], "--batch 100000000", 1), (["--data", data, "--ranks", "4"], "--ranks 4", 1)):
        for backend in bench.backends():
            if backend == "threads" and "--ranks" in flags:
                continue
            text, errors = bench.run(backend, 3, bench.folder / "none", *flags, code=code)
            said = text + errors
            check(said.count(part) == 1, f"{backend} {flags}: said {said.count(part)} times\n{said}")
            check("rank 1:" not in said and "rank 2:" not in said, said)
    for backend in bench.backends():
        text, errors = bench.run(backend, 3, "/proc/foo", "--batch", "1", "--steps", "1", code=1)
        check((text + errors).count("cannot make folder '/proc/foo'") == 1, f"{backend}: {text}{errors}")
        (bench.folder / "taken" / "metrics.jsonl").mkdir(parents=True, exist_ok=True)
        text, errors = bench.run(backend, 3, bench.folder / "taken", "--batch", "1", "--steps", "1", code=1)
        check((text + errors).count("metrics.jsonl") == 1 and "--out" in errors, f"{backend}: {text}{errors}")
    if bench.args.mpiexec:
        done = subprocess.run([bench.args.mpiexec, "-n", "3", bench.args.trainer, "--help"], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == 0 and done.stdout.count("--learning-rate") == 1, done.stdout + done.stderr)


def case_another_run(bench):
    """A new run does not mix its checkpoints with another's: it is refused, or told to overwrite; going back sets the later ones aside."""
    out = bench.folder / "run"
    first, second = ["--batch", "2", "--seed", "1"], ["--batch", "2", "--seed", "2"]
    bench.run("threads", 1, out, *first, "--steps", "6", "--checkpoint-every", "2")
    before = bench.parameters(out, 6)
    history = (out / "metrics.jsonl").read_bytes()
    text, errors = bench.run("threads", 2, out, *second, "--steps", "3", code=1)
    check("another run" in errors and "--overwrite" in errors and str(out) in errors, errors)
    check(bench.parameters(out, 6) == before and (out / "metrics.jsonl").read_bytes() == history, "a refused run has changed the other")

    elsewhere = bench.folder / "elsewhere"
    bench.run("threads", 1, elsewhere, *second, "--steps", "3")
    _, errors = bench.run("threads", 1, out, "--resume", str(elsewhere / "checkpoints" / "step_00000003"), "--steps", "4", code=1)
    check("another run" in errors, errors)

    text, _ = bench.run("threads", 1, out, "--resume", "2", "--steps", "3")
    check("superseded_step_00000006" in text, text)
    check(sorted(path.name for path in (out / "checkpoints").iterdir() if path.name.startswith("step")) == ["step_00000002", "step_00000003"], "later steps stay")
    bench.run("threads", 1, out, "--resume", "latest", "--steps", "4")
    check([row["step"] for row in bench.metrics(out)] == [1, 2, 3, 4], "--resume latest took up the abandoned history")
    check((out / "checkpoints" / "superseded_step_00000006" / "parameters.safetensors").read_bytes() == before, "an abandoned checkpoint was lost")

    bench.run("threads", 2, out, *second, "--steps", "3", "--overwrite")

    busy = bench.folder / "busy"
    process = bench.start("threads", 1, busy, *first, "--steps", "100000")
    bench.wait_for_step(process, busy, 3)
    for backend in bench.backends():
        text, errors = bench.run(backend, 2, busy, *second, "--steps", "3", code=1)
        check(f"another program is at work in '{busy}'" in errors, errors)
    process.send_signal(signal.SIGTERM)
    bench.finish(process)
    steps = [row["step"] for row in bench.metrics(busy)]
    check(steps == list(range(1, len(steps) + 1)), "two runs at once have written one history")
    text, _ = bench.run("threads", 1, out, "--resume", "latest", "--steps", "4")
    check("4 to 4" in text, text)


def case_tokenizer(bench):
    """Resuming on data that was prepared again from another text is refused; the same text prepared again is not."""
    data, out = bench.folder / "data", bench.folder / "run"

    def prepare(words):
        text = bench.folder / "text.txt"
        text.write_text(words * 300)
        subprocess.run([bench.args.prepare, "--input", str(text), "--out", str(data), "--vocabulary", "270", "--force"], check=True, capture_output=True, timeout=LIMIT)

    command = [bench.args.trainer, "--backend", "threads", "--ranks", "1", "--threads", "1", "--out", str(out)]
    first = "the cat sat on the mat.\n\nthe dog sat on the cat.\n\n"
    prepare(first)
    sizes = ["--layers", "1", "--channels", "32", "--heads", "4", "--batch", "2", "--sequence", "32"]
    done = subprocess.run([*command, *sizes, "--data", str(data), "--steps", "3"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0, done.stdout + done.stderr)
    prepare(first)
    done = subprocess.run([*command, "--resume", "latest", "--steps", "4"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0, done.stdout + done.stderr)
    prepare("our hen ran by our box.\n\nour fox ran by our hen.\n\n")
    done = subprocess.run([*command, "--resume", "latest", "--steps", "5"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 1 and str(data / "tokenizer.json") in done.stderr and "another text" in done.stderr, done.stdout + done.stderr)
    check(len(bench.losses(out)) == 4, "a refused resume has changed the history")


def case_uneven(bench):
    """Ranks that cannot share a step evenly have the losses of those that can, validation too, and the same bits every time."""
    flags = ["--steps", "20", "--validate-every", "10", "--validation-data", str(bench.folder / "validation.bin"), "--checkpoint-every", "10"]
    whole = bench.folder / "whole"
    bench.run("threads", 2, whole, "--batch", "2", *flags)
    total = ["--batch", "2", "--total-tokens", "128"]  # 4 sequences
    for backend in bench.backends():
        out, again = bench.folder / backend, bench.folder / f"{backend}-again"
        text, _ = bench.run(backend, 3, out, *total, *flags)
        check("4 sequences shared by 3 ranks, 2 or 1 each" in text, text)
        print(f"  {backend}: 3 ranks within {close(bench.losses(whole), bench.losses(out), 1e-5):.1e}", end="")
        validation = [[row["loss"] for row in bench.metrics(one, "validation")] for one in (whole, out)]
        print(f", validation within {close(*validation, 1e-5):.1e}")
        bench.run(backend, 3, again, *total, *flags)
        check(bench.losses(again) == bench.losses(out) and bench.parameters(again, 20) == bench.parameters(out, 20), "two runs of one layout differ")
        resumed = bench.folder / f"{backend}-resumed"
        shutil.copytree(whole, resumed)
        bench.run(backend, 3, resumed, "--resume", "10")
        close(bench.losses(whole), bench.losses(resumed), 1e-5)
    _, errors = bench.run("threads", 4, bench.folder / "many", "--total-tokens", "96", *flags, code=1)
    check("3 sequences a step, fewer than the 4 ranks" in errors, errors)

    # 30 sequences on 4 ranks in 6 micro-steps: a resumed run keeps the layout, though 5 micro-steps would do.
    first, part = ["--total-tokens", "960", "--sync-freq", "6", "--checkpoint-every", "4"], bench.folder / "part"
    bench.run("threads", 4, bench.folder / "sync", *first, "--steps", "8")
    shutil.copytree(bench.folder / "sync", part)
    bench.run("threads", 4, part, "--resume", "4")
    check(bench.losses(part) == bench.losses(bench.folder / "sync"), "a resumed run has another layout")


def case_validation(bench):
    """--validation-batches measures the same text for any number of ranks, micro-steps and sequences at a time."""
    flags = ["--steps", "1", "--validation-data", str(bench.folder / "validation.bin")]  # 16 windows
    layouts = [(1, ["--batch", "4"]), (1, ["--batch", "1", "--sync-freq", "4"]), (2, ["--batch", "2"]), (4, ["--batch", "1"]), (3, ["--batch", "2", "--total-tokens", "128"])]
    for batches, predictions in ((1, 128), (3, 384), (4, 499), (0, 499)):
        first = None
        for backend in bench.backends():
            for ranks, layout in layouts:
                out = bench.folder / f"{backend}{batches}-{ranks}-{len(layout)}"
                bench.run(backend, ranks, out, *flags, *layout, "--validation-batches", str(batches))
                row = bench.metrics(out, "validation")[0]
                first = first or row
                check(row.get("predictions") == predictions, f"{backend}, {ranks} ranks, {layout}: {row}, expected {predictions} predictions")
                close([first["loss"]], [row["loss"]], 1e-6)
        print(f"  {batches} batches: {predictions} predictions, loss {first['loss']:.6f} in every layout")


def children(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[1]) == pid:
                    found.append(int(entry.name))
            except (OSError, IndexError):
                pass
    return found


def trainer_ranks(bench, pid):
    """Processes below `pid` that run the trainer."""
    ranks = []
    for child in children(pid):
        try:
            if os.path.realpath(f"/proc/{child}/exe") == os.path.realpath(bench.args.trainer):
                ranks.append(child)
        except OSError:
            pass
        ranks += trainer_ranks(bench, child)
    return ranks


def case_kill(bench):
    """kill -9 of a rank: the job ends with a message and a failure, no process stays, and --resume latest goes on."""
    out = bench.folder / "killed"
    process = bench.start("mpi", 3, out, "--batch", "2", "--steps", "100000", "--checkpoint-every", "5")
    bench.wait_for_step(process, out, 12)
    ranks = trainer_ranks(bench, process.pid)
    check(len(ranks) == 3, f"expected 3 ranks, found {ranks}")
    os.kill(ranks[1], signal.SIGKILL)
    text, errors = bench.finish(process, code=None)
    check(process.returncode != 0, "the job claims success")
    check("KILL" in (text + errors).upper() or "signal 9" in text + errors, f"no word about the kill:\n{text[-1500:]}\n{errors[-1500:]}")
    time.sleep(0.5)
    check(not any(pathlib.Path(f"/proc/{rank}").exists() and "Z" not in pathlib.Path(f"/proc/{rank}/stat").read_text().split(")")[1] for rank in ranks),
          "ranks are still running")
    done = max(int(path.name[5:]) for path in (out / "checkpoints").glob("step_*") if (path / "COMPLETE").exists())
    check(done >= 10, f"latest complete checkpoint is {done}")
    text, _ = bench.run("mpi", 3, out, "--resume", "latest", "--steps", str(done + 5))
    check(len(bench.losses(out)) == done + 5, "the resumed run did not go on")


def case_second_signal(bench):
    """The second signal ends the process at once."""
    out = bench.folder / "impatient"
    process = bench.start("threads", 1, out, "--batch", "64", "--channels", "256", "--sequence", "128", "--steps", "100000")
    bench.wait_for_step(process, out, 1)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.03)  # a step takes many times as long
    os.kill(process.pid, signal.SIGINT)
    bench.finish(process, code=128 + signal.SIGINT)
    check(not list((out / "checkpoints").glob("step_*/COMPLETE")), "it stayed to write a checkpoint")


def case_stops(bench):
    """A signal counts at every moment: before the first step, with nobody who reads, and after the end."""
    for backend in bench.backends():
        out = bench.folder / f"early {backend}"
        process = bench.start(backend, 2, out, "--batch", "2", "--steps", "1000000")
        while process.poll() is None and not ((out / "metrics.jsonl").exists() and "start" in (out / "metrics.jsonl").read_text()):
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        text, errors = bench.finish(process)
        done = bench.metrics(out, "end")[0]["step"]
        check(bench.metrics(out, "checkpoint")[-1]["step"] == done, f"no checkpoint of step {done}:\n{text}{errors}")
        bench.run(backend, 2, out, "--resume", "latest", "--steps", str(done + 2))
        check([row["step"] for row in bench.metrics(out)][-1] == done + 2, "the resumed run did not go on")
        print(f"{backend}: stopped after step {done}, resumed")

    out = bench.folder / "unread"
    process = bench.start("threads", 2, out, "--batch", "2", "--steps", "1000000")
    bench.wait_for_step(process, out, 2)
    process.stdout.close()
    process.stderr.close()
    bench.wait_for_step(process, out, len(bench.losses(out)) + 20)
    process.send_signal(signal.SIGINT)
    check(process.wait(timeout=LIMIT) == 0, f"nobody reads: exit code {process.returncode}")
    check(bench.metrics(out, "end")[0]["reason"] == "SIGINT" and bench.metrics(out, "checkpoint"), "nobody reads: no checkpoint, or no end")

    late = 0
    for attempt in range(8):
        out = bench.folder / f"late {attempt}"
        process = bench.start("threads", 1, out, "--batch", "2", "--steps", "2")
        while process.poll() is None and not ((out / "metrics.jsonl").exists() and '"end"' in (out / "metrics.jsonl").read_text()):
            pass
        late += process.poll() is None
        process.send_signal(signal.SIGTERM)
        bench.finish(process)
    print(f"{late} of 8 signals came between the last line of the metrics and the end of the process")


def case_foreign_history(bench):
    """A run that begins from another run's checkpoint has a history of its own."""
    first, second = bench.folder / "first", bench.folder / "second"
    bench.run("threads", 1, first, "--batch", "2", "--steps", "4", "--checkpoint-every", "2")
    bench.run("threads", 1, second, "--batch", "2", "--steps", "4", "--seed", "7")
    bench.run("threads", 1, second, "--overwrite", "--resume", str(first / "checkpoints" / "step_00000002"))
    check([row["step"] for row in bench.metrics(second)] == [3, 4], "steps of the run that was there before are in its metrics")
    check(len(bench.metrics(second, "start")) == 1, "two starts")
    check(bench.losses(second) == bench.losses(first)[2:], "other losses than the run that it goes on with")


def case_sentences(bench):
    """Impossible flags, files and layouts end with a sentence that names them, and nothing is written over."""
    data = str(bench.folder / "train.bin")
    base = [bench.args.trainer, "--backend", "threads", "--ranks", "1", "--threads", "1"]

    def refused(words, *parts, code=None):
        done = subprocess.run([*base, *words], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode != 0 and (code is None or done.returncode == code), f"{words}: exit code {done.returncode}")
        said = done.stdout + done.stderr
        for part in parts:
            check(part in said, f"{words}: '{part}' is not in\n{said}")
        check("terminate called" not in said, said)

    refused(["--data", data, "--stepz", "3"], "--stepz", code=2)
    refused(["--data=", "--overwrite"], "--data '': is empty")  # and not a folder named --overwrite
    refused(["--data", data, "--steps", "many"], "--steps", "many", code=2)
    refused(["--data", data, "--batch", "0"], "--batch 0", code=2)
    refused([], "--data", code=2)
    refused(["--data", "/nonexistent*.bin", *SIZES[:8]], "/nonexistent*.bin")
    refused(["--data", data, "--layers", "2", "--channels", "30", "--heads", "4"], "--channels 30", "--heads 4", code=2)
    refused(["--data", data, *SIZES, "--model", "d13", *[]], "--model d13", code=2)
    refused(["--data", data, "--model", "d13"], "d13", "d12")
    refused(["--data", data, *SIZES, "--vocabulary", "50"], "vocabulary of 50")
    refused(["--data", data, *SIZES, "--sequence", "6000"], "train.bin", "6001")
    refused(["--data", data, *SIZES, "--total-tokens", "100"], "--total-tokens 100", "--sequence 32")
    refused(["--data", data, *SIZES, "--batch", "3", "--total-tokens", "128"], "--batch 3")
    refused(["--data", data, *SIZES, "--resume", "latest", "--out", str(bench.folder / "none")], "no complete checkpoint")
    (bench.folder / "foreign.bin").write_bytes(b"not tokens" * 200)
    refused(["--data", str(bench.folder / "foreign.bin"), *SIZES], "foreign.bin")
    (bench.folder / "config.json").write_text('{"data": "x", "stepz": 3}')
    refused(["--config", str(bench.folder / "config.json")], "stepz", code=2)

    (bench.folder / "config.json").write_text('{"ranks": 2, "backend": "threads", "steps": 1, "batch": 1}')
    done = subprocess.run([bench.args.trainer, "--threads", "1", "--data", data, *SIZES, "--config", str(bench.folder / "config.json")],
                          capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0 and "threads: 2 ranks" in done.stdout, f"the file's ranks do not count: {done.stdout}{done.stderr}")
    if bench.args.mpiexec:
        done = subprocess.run([bench.args.trainer, "--ranks", "2", "--data", data, *SIZES], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == 1 and "--ranks 2: there is 1 rank" in done.stderr and "mpiexec -n 2" in done.stderr, done.stdout + done.stderr)
        done = subprocess.run([bench.args.mpiexec, "-n", "2", bench.args.trainer, "--backend", "threads", "--data", data, *SIZES],
                              capture_output=True, text=True, timeout=LIMIT)
        told = done.stderr.count("--backend threads: the launcher started 2 processes")
        check(done.returncode != 0 and told == 1, done.stdout + done.stderr)
    # Nothing of these is allocated, so they must not take long either.
    begin = time.monotonic()
    big = ["--data", data, *SIZES]
    refused([*big, "--batch", "100000000"], "--batch 100000000", "on this machine", code=1)
    refused([*big, "--vocabulary", "2000000000"], "parameters and moments", code=1)
    refused([*big, "--layers", "100000000", "--channels", "384"], "parameters and moments", code=1)
    # The hidden state fits, the plan of all activations does not.
    available = sum(int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith(("MemTotal", "SwapTotal")))
    refused([*big, "--batch", str(available // (32 * 32 * 4 * 4)), "--sequence", "32"], "activations and gradients", "on this machine", code=1)
    check(time.monotonic() - begin < LIMIT / 2, "refusing took long")
    done = subprocess.run([bench.args.generator, "--checkpoint", "x", "--seed", "99999999999999999999"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 2 and "--seed" in done.stderr and "99999999999999999999" in done.stderr, done.stderr)

    out = bench.folder / "run"
    bench.run("threads", 1, out, "--batch", "2", "--steps", "4", "--checkpoint-every", "2")
    checkpoint = out / "checkpoints" / "step_00000004"
    refused(["--resume", "latest", "--out", str(out), "--layers", "3", "--channels", "32", "--heads", "4"], "2 layers")
    for flag in ("--data", "--resume", "--out", "--tokenizer", "--config"):
        refused(["--data", data, *SIZES, flag, "x" * 300], "tutti::" if flag != "--config" else flag, "x" * 300)
    refused(["--resume", "3", "--out", str(out)], "--resume 3: step 3 is not among", "2, 4")
    refused(["--resume", "-1", "--out", str(out)], "--resume -1: '-1' is not the folder of a checkpoint")
    refused(["--resume", str(out)], f"--resume {out}: '{out}' is the folder of a run", "--out")
    refused(["--resume", str(bench.folder)], f"'{bench.folder}' is not a checkpoint")
    payload = bytearray((checkpoint / "parameters.safetensors").read_bytes())
    payload[-5] ^= 0x40
    (checkpoint / "parameters.safetensors").write_bytes(payload)
    refused(["--resume", "latest", "--out", str(out)], "damaged", "step_00000004")
    check(len(bench.losses(out)) == 4, "a refused resume has changed the history")
    bench.run("threads", 1, out, "--resume", "2", "--steps", "6")
    check(len(bench.losses(out)) == 6, "resuming the older checkpoint did not go on")

    done = subprocess.run([bench.args.trainer, "--help"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0 and "--learning-rate" in done.stdout, "--help")


def case_metrics(bench):
    """metrics.jsonl has the promised objects; validation comes before step 1 and last; --keep keeps; ranks have logs."""
    out = bench.folder / "run"
    text, _ = bench.run("threads", 2, out, "--batch", "2", "--steps", "12", "--checkpoint-every", "3", "--keep", "2", "--validate-every", "5",
                        "--validation-data", str(bench.folder / "validation.bin"))
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    kinds = [row["type"] for row in rows]
    check(kinds[0] == "start" and kinds[-1] == "end", str(kinds))
    check(rows[-1]["reason"] == "done" and rows[-1]["step"] == 12 and not rows[-1]["stopped"], str(rows[-1]))
    check(kinds[1] == "validation" and rows[1]["step"] == 0, "no validation before step 1")
    check([row["step"] for row in rows if row["type"] == "validation"] == [0, 5, 10, 12], str(rows))
    check([row["step"] for row in rows if row["type"] == "checkpoint"] == [3, 6, 9, 12], str(kinds))
    for row in rows:
        if row["type"] == "step":
            for key in ("step", "loss", "grad_norm", "lr", "ms", "tokens_per_second", "mfu", "exposed_comm_ms", "slowest_ms", "slowest_rank"):
                check(isinstance(row[key], (int, float)), f"{key} in {row}")
            check(0 < row["slowest_ms"] <= 10 * row["ms"] and 0 <= row["slowest_rank"] < 2, str(row))
        if row["type"] == "validation":
            check("bits_per_byte" in row and row["loss"] > 0, str(row))
    kept = sorted(path.name for path in (out / "checkpoints").iterdir())
    check(kept == ["step_00000009", "step_00000012"], str(kept))
    check("step 12/12" in text and "\r" not in text, "no plain step lines")
    log = (out / "rank_0001.log").read_text()
    check("step 12/12" in log, f"log of rank 1: {log}")
    check(text.count("step  1/12") == 1, "more than one rank speaks")

    text, _ = bench.run("threads", 1, bench.folder / "one", "--batch", "2", "--steps", "1", "--warmup", "30")
    check("done: 1 step in" in text and " 0 tok/s" not in text, text)
    check("WARNING: --warmup 30 is longer than the run of 1 step:" in text, text)
    text, _ = bench.run("threads", 1, bench.folder / "one", "--resume", "latest")
    check("done: the checkpoint is of step 1 already. Ask for more --steps" in text, text)


def case_gradients(bench):
    """--gradient-statistics changes no step by a bit, gives the same numbers on every layout, and names the operation that made a NaN."""
    flags = ["--steps", "6", "--total-tokens", "256", "--no-final-checkpoint"]
    layouts = {"one": (1, []), "micro": (1, ["--batch", "2"]), "two": (2, []), "tensor": (2, ["--tensor-parallel", "2"])}
    reference = None
    for name, (ranks, more) in layouts.items():
        out, plain = bench.folder / name, bench.folder / (name + "_plain")
        batch = [] if more[:1] == ["--batch"] else ["--batch", "8"]
        text, _ = bench.run("threads", ranks, out, *flags, *batch, *more, "--gradient-statistics", "2")
        bench.run("threads", ranks, plain, *flags, *batch, *more)
        check(bench.losses(out) == bench.losses(plain), f"{name}: steps differ where gradients are measured")
        rows = bench.metrics(out, "gradients")
        check([row["step"] for row in rows] == [2, 4, 6] and "WARNING" not in text, text + str(rows)[:500])
        steps = {row["step"]: row for row in bench.metrics(out)}
        for row in rows:
            check(abs(row["norm"] / steps[row["step"]]["grad_norm"] - 1) < 1e-5, f"{name}: {row['norm']}, {steps[row['step']]}")
            norms = {key: value for key, value in row.items() if key.startswith("norm/")}
            check(len(norms) == 16 and all(0 <= row["zeros/" + key[5:]] <= 1 for key in norms), str(row))
            check(abs(sum(value ** 2 for value in norms.values()) ** 0.5 / row["norm"] - 1) < 1e-6, str(row))
        reference = reference or rows
        for mine, theirs in zip(rows, reference):
            for key in theirs:
                if key.startswith("norm/"):
                    check(abs(mine[key] - theirs[key]) <= 1e-3 * theirs[key] + 1e-6, f"{name}, {key}: {mine[key]} and {theirs[key]}")
            check(abs(mine["zeros/wte"] - theirs["zeros/wte"]) < 1e-3, f"{name}: {mine['zeros/wte']} and {theirs['zeros/wte']}")
    out = bench.folder / "diverged"
    _, errors = bench.run("threads", 2, out, "--batch", "2", "--steps", "60", "--learning-rate", "1e3", "--warmup", "0", "--clip", "0",
                          "--gradient-statistics", "1", code=1)
    check(re.search(r"training has diverged.* Of its gradient: the .* not finite: the first .* comes of \w+ \(\w+.hpp:\d+", errors), errors)
    last = bench.metrics(out, "gradients")[-1]
    check("not finite" in last["not_finite"] and None in last.values(), str(last))


def case_diverged(bench):
    """A run that diverges says so once, keeps nothing of it, and closes its metrics with the reason; so does one that fails."""
    flags = ["--batch", "2", "--steps", "60", "--learning-rate", "1e3", "--warmup", "0", "--clip", "0", "--checkpoint-every", "1", "--keep", "0"]
    for backend in bench.backends():
        for ranks in (1, 3):
            out = bench.folder / f"{backend}{ranks}"
            text, errors = bench.run(backend, ranks, out, *flags, code=1)
            said = text + errors
            check(said.count("training has diverged") == 1 and "--learning-rate" in errors, f"{backend}, {ranks} ranks:\n{said}")
            check("[rank" not in said, f"the rank is named twice:\n{said}")
            rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
            last = rows[-1]
            check(last["type"] == "end" and last["reason"] == "diverged" and "training has diverged" in last["error"], str(last))
            check(rows[-2]["type"] == "step" and rows[-2]["step"] == last["step"] < 60, str(rows[-2:]))
            check(rows[-2]["loss"] is None or rows[-2]["grad_norm"] is None, str(rows[-2]))
            kept = sorted(int(path.name[5:]) for path in (out / "checkpoints").glob("step_*"))
            check(kept == list(range(1, last["step"])), f"kept {kept}, diverged at {last['step']}")
    out = bench.folder / "failed"
    process = bench.start("threads", 2, out, "--batch", "2", "--steps", "100000", "--checkpoint-every", "1000")
    bench.wait_for_step(process, out, 5)
    (out / "checkpoints").write_text("in the way")
    text, errors = bench.finish(process, code=1)
    last = bench.metrics(out, "end")[-1]
    check(last["reason"] == "error" and "checkpoints" in last["error"] and last["step"] == 1000, str(last))
    check(errors.count("checkpoints") == 1 and "[rank" not in errors, errors)


def case_folder(bench):
    """A run that starts with a folder of safetensors made of another run has that run's validation loss to the bit, on one rank and on two; what does not fit gets a sentence."""
    convert = pathlib.Path(bench.args.generator).parent / "convert"

    def prepare(name, text):
        (bench.folder / f"{name}.txt").write_text(text)
        subprocess.run([bench.args.prepare, "--input", str(bench.folder / f"{name}.txt"), "--out", str(bench.folder / name), "--vocabulary", "280"],
                       check=True, capture_output=True, timeout=LIMIT)
        return str(bench.folder / name)

    def train(out, *words, ranks=1, code=0):
        done = subprocess.run([bench.args.trainer, "--backend", "threads", "--ranks", str(ranks), "--threads", "1", "--out", str(out), *words], capture_output=True,
                              text=True, timeout=LIMIT)
        check(done.returncode == code, f"{words}: {done.returncode} {done.stdout[-2000:]} {done.stderr}")
        return done.stdout + done.stderr

    def converted(*words):
        done = subprocess.run([convert, *map(str, words)], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == 0, f"convert {words}: {done.stderr}")

    data, other = prepare("data", SENTENCES), prepare("other", "our hen ran by our box.\n\nour fox ran by our hen.\n\n" * 300)
    sizes = ["--layers", "2", "--channels", "32", "--heads", "4", "--sequence", "32", "--learning-rate", "1e-2"]
    for kind, own in (("gpt2", []), ("llama", ["--architecture", "llama", "--kv-heads", "2", "--untied"])):
        first, folder = bench.folder / kind, bench.folder / f"{kind}-folder"
        train(first, "--data", data, *sizes, *own, "--batch", "4", "--steps", "20")
        converted("--from", first, "--to", folder)
        for ranks in (1, 2):
            second = bench.folder / f"{kind}-from-folder-{ranks}"
            said = train(second, "--model", str(folder), "--data", data, "--sequence", "32", "--batch", str(4 // ranks), "--steps", "3", ranks=ranks)
            check(str(folder) in said, said[:2000])
            before, after = bench.metrics(first, "validation")[-1]["loss"], [row["loss"] for row in bench.metrics(second, "validation")]
            # Two ranks sum the losses of their halves.
            check(after[0] == before if ranks == 1 else abs(after[0] - before) < 1e-6 * before, f"{kind}, {ranks} ranks: {before} became {after[0]}")
            check(after[-1] != before, "nothing was learned")
        converted("--from", second, "--to", bench.folder / f"{kind}-again")
        third, fourth = bench.folder / f"{kind}-third", bench.folder / f"{kind}-fourth"  # and with a run's folder itself
        for out, model in ((third, bench.folder / f"{kind}-again"), (fourth, second)):
            train(out, "--model", str(model), "--data", data, "--sequence", "32", "--batch", "4", "--steps", "1")
        check(bench.parameters(third, 1) == bench.parameters(fourth, 1), "a folder and the run that it was made of train otherwise")
    start = ["--model", str(bench.folder / "gpt2-folder"), "--sequence", "32", "--steps", "1"]
    for words, said in (([*start, "--data", other], "was made with another tokenizer"),
                        ([*start, "--data", other, "--tokenizer", other + "/tokenizer.json"], "knows other tokens than"),
                        ([*start, "--data", data, "--architecture", "llama"], "is a gpt2. Leave out --architecture"),
                        ([*start, "--data", data, "--vocabulary", "77"], "--vocabulary 77"),
                        (["--data", data, "--model", data, "--steps", "1"], "is a folder without config.json"),
                        (["--resume", str(bench.folder / "gpt2" / "checkpoints" / "step_00000020"), *start], "gives initial weights")):
        text = train(bench.folder / "refused", *words, code=1)
        check(said in text, f"{words}: {text}")


def case_generate(bench):
    """The generator continues a prompt from a checkpoint; the same seed writes the same text, damage gets a sentence."""
    text = bench.folder / "text.txt"
    text.write_text(SENTENCES)
    data = bench.folder / "data"
    subprocess.run([bench.args.prepare, "--input", str(text), "--out", str(data), "--vocabulary", "280"], check=True, capture_output=True, timeout=LIMIT)
    out = bench.folder / "run"
    command = [bench.args.trainer, "--backend", "threads", "--ranks", "1", "--threads", "2", "--layers", "1", "--channels", "48", "--heads", "4", "--batch", "8",
               "--sequence", "32", "--steps", "150", "--learning-rate", "1e-2", "--data", str(data), "--out", str(out), "--sample-every", "150"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0, done.stdout + done.stderr)
    validation = bench.metrics(out, "validation")
    check(validation[-1]["bits_per_byte"] < 1.0 < validation[0]["bits_per_byte"], str(validation))
    check("sat on the" in bench.metrics(out, "sample")[-1]["text"], str(bench.metrics(out, "sample")))

    def generate(*words, code=0):
        done = subprocess.run([bench.args.generator, *words], capture_output=True, text=True, errors="replace", timeout=LIMIT)
        check(done.returncode == code, f"{words}: {done.returncode} {done.stderr}")
        return done.stdout if code == 0 else done.stderr

    flags = ["--checkpoint", str(out), "--prompt", "the dog", "--tokens", "40", "--past-end"]
    first = generate(*flags, "--seed", "5")
    check(first.startswith("the dog") and "sat" in first, first)
    check(first == generate(*flags, "--seed", "5", "--threads", "1"), "the same seed wrote another text")
    check(len({generate(*flags, "--seed", str(seed), "--temperature", "3", "--top-p", "1") for seed in range(4)}) > 1, "seeds do not matter")
    check(generate(*flags, "--temperature", "0", "--seed", "1") == generate(*flags, "--temperature", "0", "--seed", "2"), "greedy text depends on the seed")
    for words, part in ((["--top-p", "-0.1"], "--top-p: -0.1 must be between 0 and 1"), (["--mirostat", "3"], "--mirostat: 3 must be 0, 1 or 2"), (["--top-p=nan"], "--top-p: nan must be"),
                        (["--top-k", "-1"], "--top-k: -1 must be at least 0"), (["--temperature", "-1"], "--temperature: -1 must be between 0 and 1000000"),
                        (["--tokens", "0"], "--tokens: 0 must be between 1 and"), (["--threads", "2000"], "--threads: 2000 must be between 0 and 1024")):
        said = generate(*flags, *words, code=2)
        check(part in said and said.endswith("See generate --help for the flags.\n"), said)
    # As a GGUF file it writes the same text.
    convert, file = pathlib.Path(bench.args.generator).parent / "convert", bench.folder / "model.gguf"
    for kind, same in (("f32", True), ("q8_0", False)):
        done = subprocess.run([convert, "--from", str(out), "--to", str(file), "--type", kind], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == 0 and str(file) in done.stderr, f"convert: {done.returncode} {done.stderr}")
        text = generate("--model", str(file), "--prompt", "the dog", "--tokens", "40", "--past-end", "--temperature", "0")
        expected = generate(*flags, "--temperature", "0")
        # A GGUF model's text ends with the context, a checkpoint's goes on with the newer half of it.
        check(text.startswith("the dog") and "sat" in text and (not same or expected.startswith(text.rstrip("\n"))), f"{kind}: {text!r} and {expected!r}")
        if bench.args.mpiexec:  # heads and channels shared by ranks
            done = subprocess.run([bench.args.mpiexec, "-n", "2", bench.args.generator, "--model", str(file), "--prompt", "the dog", "--tokens", "40", "--past-end",
                                   "--temperature", "0", "--threads", "1"], capture_output=True, text=True, timeout=LIMIT)
            check(done.returncode == 0 and done.stdout == text, f"{kind}, 2 ranks: {done}, one: {text!r}")
    done = subprocess.run([convert, "--from", str(file), "--to", str(file), "--type", "f16"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 1 and "same file" in done.stderr, done.stderr)
    done = subprocess.run([convert, "--from", str(data), "--to", str(bench.folder / "x.gguf")], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 1 and "convert: " in done.stderr and not (bench.folder / "x.gguf").exists(), done.stderr)
    # The model has learnt its text: a perplexity between 1 and that of guessing.
    evaluate, text_file = convert.parent / "evaluate", bench.folder / "evaluated.txt"
    text_file.write_text("the dog sat on the mat. " * 200)
    done = subprocess.run([evaluate, "--model", str(file), "--text", str(text_file), "--context", "16"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0 and 1 < float(done.stdout.split()[1]) < 256, f"evaluate: {done.returncode} {done.stdout} {done.stderr}")
    done = subprocess.run([evaluate, "--model", str(file), "--text", str(text_file), "--context", "100000"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 1 and "smaller --context" in done.stderr, done.stderr)
    check("excludes" in generate("--model", str(file), "--checkpoint", str(out), code=2), "both models")
    done = subprocess.run([bench.args.generator, *flags], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    check(done.returncode == 1 and "could not be written" in done.stderr, f"a full device: {done.returncode} {done.stderr}")
    check("--checkpoint" in generate("--prompt", "x", code=2), "no checkpoint")
    check("nowhere" in generate("--checkpoint", "nowhere", code=1), "missing checkpoint")
    said = generate("--checkpoint", str(data), code=1)
    check(f"'{data}' is not a checkpoint: there is no checkpoint.json in it" in said and "interrupted" not in said, said)
    check("generate:" in generate("--checkpoint", "x" * 300, code=1), "a name that no file can have")

    def prepare(*words, code=2):
        done = subprocess.run([bench.args.prepare, *words], capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == code, f"{words}: {done.returncode} {done.stderr}")
        return done.stdout + done.stderr

    for words, part in (([], "--input is required"), (["--input", "x"], "--out is required"), (["--foo"], "prepare_text: "),
                        (["--vocabulary", "5"], "prepare_text: --vocabulary: 5 must be between 257 and 65536\nSee prepare_text --help for the flags.\n"),
                        (["--vocabulary", "many"], "--vocabulary: 'many' is not a whole number"),
                        (["--validation-fraction", "nan"], "--validation-fraction: nan must be between 0.001 and 0.5")):
        check(part in prepare(*words), f"{words}: '{part}' is not in\n{prepare(*words)}")
    check("--validation-fraction" in prepare("--help", code=0), "--help")


def script_root(bench, trainer):
    """A copy of ./tutti beside programs that are built already; what would install or build does nothing."""
    root, tools = bench.folder / "the root", bench.folder / "tools"
    (root / "build" / "examples").mkdir(parents=True)
    (root / "build" / "build.ninja").touch()
    shutil.copytree(pathlib.Path(bench.args.script).parent / "examples", root / "examples")
    shutil.copy(bench.args.script, root / "tutti")
    for name, program in {"train_gpt2": trainer, "generate": bench.args.generator, "prepare_text": bench.args.prepare}.items():
        (root / "build" / "examples" / name).symlink_to(os.path.abspath(program))
    tools.mkdir()
    for name, code in {"meson": 0, "ninja": 0, "apt-get": 1, "sudo": 1}.items():
        (tools / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tools / name).chmod(0o755)
    return root


def tools_environment(bench):
    """With the tools of `script_root` before the machine's."""
    return {**os.environ, "PATH": f"{bench.folder / 'tools'}:{os.environ['PATH']}"}


def in_shell(bench, line, folder):
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=tools_environment(bench), capture_output=True, text=True, errors="replace", timeout=LIMIT)
    check(done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def case_next(bench):
    """What ./tutti train prints as the next command works when it is pasted, from any folder, with any flags."""
    root = script_root(bench, bench.args.trainer)
    (bench.folder / "it's a text.txt").write_text(SENTENCES)
    flags = "--backend threads --ranks=1 --threads 1 --layers 1 --channels 32 --heads 4 --sequence 32 --batch 2 --total-tokens 64 --sample-tokens 5 --warmup 2"

    def next_lines(said):
        return [line.replace("next  ", "      ").strip() for line in said[said.rindex("\nnext  "):].strip().splitlines()]

    said = in_shell(bench, f"'the root/tutti' train --text \"it's a text.txt\" --vocabulary=300 --out 'my runs/1' {flags} --steps 2", bench.folder)
    generate, resume = next_lines(said)
    check("--steps 2" not in resume and "300" in resume, resume)
    in_shell(bench, generate + " --tokens 3", bench.folder)
    said = in_shell(bench, resume.replace("--steps N   trains on, to step N", "--steps 3"), bench.folder)
    check(len(bench.losses(bench.folder / "my runs" / "1")) == 3 and "step 3/3" in said, said)
    check(next_lines(said)[1] == resume, f"{resume}\nthen\n{next_lines(said)[1]}")
    # Through a symbolic link, where cd looks for folders elsewhere and says so.
    linked = resume.replace("'the root/tutti'", "./linked").replace("--steps N   trains on, to step N", "--steps 4")
    check("./linked" in linked, linked)
    in_shell(bench, f"ln -s 'the root/tutti' linked && CDPATH=$PWD && export CDPATH && {linked}", bench.folder)
    check(len(bench.losses(bench.folder / "my runs" / "1")) == 4, "the link did not go on with the run")

    # Without --out every run has a folder of its own, and --resume means the newest.
    run = f"./tutti train --text '../it'\\''s a text.txt' {flags}"
    for steps in (2, 3):
        said = in_shell(bench, f"{run} --steps {steps}", root)
    runs = sorted(path.name for path in (root / "runs").iterdir())
    check(runs == ["it_s_a_text", "it_s_a_text.2"], str(runs))
    in_shell(bench, f"{run} --resume latest --steps 4", root)
    check([len(bench.losses(root / "runs" / name)) for name in runs] == [2, 4], "--resume latest is not the newest run")
    in_shell(bench, next_lines(said)[1].replace("--steps N   trains on, to step N", "--steps 5"), root)
    check([len(bench.losses(root / "runs" / name)) for name in runs] == [2, 5], "the printed command went on with another run")


def case_script_folder(bench):
    """./tutti train --model FOLDER prepares the text with the folder's tokenizer, starts with its weights, and goes on when called again with --resume."""
    root = script_root(bench, bench.args.trainer)
    own, other = bench.folder / "own.txt", bench.folder / "other.txt"
    own.write_text(SENTENCES)
    other.write_text("our cat ran by our box.\n\nthe dog ran by our hen.\n\n" * 300)
    flags = "--backend threads --ranks 1 --threads 1 --sequence 32 --batch 2 --total-tokens 64 --warmup 2"
    in_shell(bench, f"./tutti train --text {own} --out run {flags} --vocabulary 270 --layers 1 --channels 32 --heads 4 --steps 20", root)
    convert = pathlib.Path(bench.args.generator).parent / "convert"
    done = subprocess.run([convert, "--from", str(root / "run"), "--to", str(root / "folder")], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0, done.stderr)
    start = f"./tutti train --model folder --text {other} --out tuned {flags}"
    in_shell(bench, f"{start} --steps 2", root)
    check((root / "build/data/other+folder/tokenizer.json").read_bytes() == (root / "folder/tokenizer.json").read_bytes(), "another tokenizer")
    facts = json.loads((root / "tuned/checkpoints/step_00000002/checkpoint.json").read_text())
    check(facts["model"]["vocabulary"] == 270 and facts["settings"]["learning-rate"] == 1e-4, str(facts))
    in_shell(bench, f"{start} --resume latest --steps 3", root)
    check(len(bench.losses(root / "tuned")) == 3, "it did not go on")
    in_shell(bench, f"./tutti train --model run --text {other} --out again {flags} --steps 1", root)  # a run in the folder's place
    check(bench.losses(root / "again") == bench.losses(root / "tuned")[:1], "a run and its folder begin with other losses")
    done = subprocess.run(["sh", "-c", f"{start} --vocabulary 300"], cwd=root, env=tools_environment(bench), capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 1 and "folder has a tokenizer of its own" in done.stderr, done.stderr)


def case_script_resume(bench):
    """./tutti train --resume without --text goes on with the run's own data, wherever it is called from; data of another tokenizer, and data that is gone, get a sentence."""
    root = script_root(bench, bench.args.trainer)
    own, other = bench.folder / "own.txt", bench.folder / "other.txt"
    own.write_text(SENTENCES)
    other.write_text("our hen ran by our box.\n\nour fox ran by our hen.\n\n" * 300)
    flags = "--backend threads --ranks 1 --threads 1 --layers 1 --channels 32 --heads 4 --sequence 32 --batch 2 --total-tokens 64 --warmup 2 --vocabulary 270"
    said = in_shell(bench, f"./tutti train --text {own} --out run {flags} --steps 2", root)
    check(re.search(r"validation loss  \d\.\d{4} at step 0, \d\.\d{4} at step 2; ", said), said)
    check('--prompt "the cat sat"' in said or "--prompt 'the cat sat'" in said or "--prompt 'the dog sat'" in said, said)
    check("passes over them" not in said, said)
    go_on = "./tutti train --backend threads --ranks 1 --threads 1 --resume latest --out run"
    said = in_shell(bench, f"{go_on} --steps 3", root)
    check("keeping the data" in said and "build/data/own-270/train.bin" in said and "step 3/3" in said, said)
    check("on resume: data" not in said and "learns your own text" not in said, said)
    last = [row["loss"] for row in bench.metrics(root / "run", "validation")]
    check(last[-1] < last[0] + 0.01, f"the resumed run is measured on other data: {last}")
    # Called from elsewhere, where the path that the checkpoint records leads nowhere; then by the checkpoint's path.
    in_shell(bench, f"'{root}/tutti' {go_on[8:].replace('--out run', f'--out {chr(39)}{root}/run{chr(39)}')} --steps 4", bench.folder)
    check(len(bench.losses(root / "run")) == 4, "it did not go on from another folder")
    in_shell(bench, "./tutti train --backend threads --ranks 1 --threads 1 --resume run/checkpoints/step_00000004 --steps 5", root)
    check(len(bench.losses(root / "run")) == 5, "a checkpoint's path did not go on with its run")

    def refused(line, *parts):
        environment = tools_environment(bench)
        done = subprocess.run(["sh", "-c", line], cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == 1 and all(part in done.stderr for part in parts), f"{line}\n{done.stdout}\n{done.stderr}")

    refused(f"{go_on} --vocabulary 270 --text {other} --steps 6", "was made with another tokenizer", "other-270", "prepare_text --tokenizer")
    in_shell(bench, f"{go_on} --vocabulary 270 --text {own} --steps 6", root)
    shutil.rmtree(root / "build" / "data" / "own-270")
    refused(f"{go_on} --steps 7", "own-270/train.bin, is gone", "--text FILE")
    check(len(bench.losses(root / "run")) == 6, "a refused call has changed the run")


def case_script_stopped(bench):
    """What stops ./tutti stops the trainer, once: it leaves a checkpoint, and the script tells what came of it."""
    root = script_root(bench, bench.args.trainer)
    text = bench.folder / "text.txt"
    text.write_text(SENTENCES)
    flags = "--backend threads --ranks 1 --threads 1 --layers 1 --channels 32 --heads 4 --sequence 32 --batch 2 --vocabulary 300 --steps 100000000"
    environment = tools_environment(bench)
    for stop, whole_group in ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True)):
        out = bench.folder / f"out {stop} {whole_group}"
        process = subprocess.Popen([root / "tutti", "train", "--text", text, "--out", out, *flags.split()], env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        for _ in range(LIMIT * 10):
            if (out / "metrics.jsonl").exists() and '"type":"step"' in (out / "metrics.jsonl").read_text():
                break
            time.sleep(0.1)
        (os.killpg if whole_group else os.kill)(process.pid, stop)
        said = process.communicate(timeout=LIMIT)[0]
        check(process.returncode == 0 and f"stopped by {stop.name}" in said and "checkpoint       " + str(out) in said and "trains on" in said
              and re.search(r"validation loss  \S+ at step 0; \S+ bits per byte of held-out text; not measured again since, now at step \d+", said),
              f"{stop.name}, whole group {whole_group}: {process.returncode}\n{said}")
        print(f"{stop.name} to {'all' if whole_group else 'the script'}: stopped with a checkpoint")


def case_script_restart(bench):
    """./tutti train --restart goes on from the last checkpoint when a rank was killed, on fewer ranks when it is told so, and gives up in the end."""
    root = script_root(bench, bench.args.trainer)
    text = bench.folder / "text.txt"
    text.write_text(SENTENCES)
    flags = "--threads 1 --layers 1 --channels 32 --heads 4 --sequence 32 --batch 2 --total-tokens 256 --vocabulary 300 --warmup 2 --checkpoint-every 5 --steps 100000000"
    environment = tools_environment(bench)
    out = bench.folder / "out"
    process = subprocess.Popen([root / "tutti", "train", "--text", text, "--out", out, "--restart=1", "--restart-ranks", "1", *flags.split()], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    before = set()  # ranks of the run that was killed, of which the last may live a little longer
    try:
        for wanted, above in ((2, 0), (1, 7)):
            for _ in range(LIMIT * 10):
                ranks = [rank for rank in trainer_ranks(bench, process.pid) if rank not in before]
                done = [int(path.name[5:]) for path in (out / "checkpoints").glob("step_*") if (path / "COMPLETE").exists()]
                if len(ranks) == wanted and max(done, default=0) > above:
                    break
                check(process.poll() is None, f"it has ended: {process.stdout.read() if process.poll() is not None else ''}")
                time.sleep(0.1)
            check(len(ranks) == wanted, f"expected {wanted} ranks, found {ranks}")
            os.kill(ranks[-1], signal.SIGKILL)
            before.update(ranks)
        said = process.communicate(timeout=LIMIT)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()  # which reads: a full pipe would hold it up
    check(process.returncode == 1 and said.count("goes on from its last checkpoint with 1 ranks, 0 more times") == 1, said)
    check("training ended with status" in said and "There is a checkpoint" in said and "--restart" in said[said.rindex("There is a checkpoint"):], said)
    steps = [row["step"] for row in bench.metrics(out)]
    check(steps == list(range(1, len(steps) + 1)), f"the history has gaps or repeats: {steps[-20:]}")
    print(f"killed twice, went on once, {len(steps)} steps in one history")


def case_script_sample(bench):
    """./tutti train prints a sample as the model wrote it, whatever characters are in it."""
    sample = 'tab\t quote" backslash\\n brace} comma, "loss": \v\f\x1f \u00e9 end\nline two'
    rows = [{"type": "validation", "loss": 3.25, "bits_per_byte": 2.5, "step": 0}, {"type": "validation", "loss": 1.5, "bits_per_byte": 1.25, "step": 2},
            {"step": 2, "text": sample, "type": "sample"}]
    lines = "\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    stub = bench.folder / "stub"
    stub.write_text("#!/usr/bin/env python3\nimport pathlib, sys\nout = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
                    f"out.mkdir(parents=True)\n(out / 'metrics.jsonl').write_text({lines + chr(10)!r})\n")
    stub.chmod(0o755)
    root = script_root(bench, stub)
    (bench.folder / "text.txt").write_text(SENTENCES)
    said = in_shell(bench, "./tutti train --text ../text.txt --backend threads", root)
    check("3.2500 at step 0, 1.5000 at step 2; 1.2500 bits" in said, said)
    check("sample\n    " + sample.replace("\n", "\n    ") + "\n" in said, repr(said))


def case_device(bench):
    """--device cuda, on an emulated GPU, learns what processors learn; where there is none, it says so in a sentence."""
    flags = ("--batch", "1", "--steps", "6", "--schedule", "constant")
    held_out = ("--validation-data", str(bench.folder / "validation.bin"), "--validate-every", "3")
    _, errors = bench.run("threads", 1, bench.folder / "none", *flags, "--device", "cuda", code=2)
    check(errors.count("\n") == 1 and "--device cuda: this program was built without CUDA" in errors, errors)
    check(not (bench.folder / "none").exists(), "a folder was made for nothing")
    _, errors = bench.run("threads", 1, bench.folder / "none", *flags, "--device", "tpu", code=2)
    check("--device tpu: use cpu, cuda or iree:TARGET, as in iree:llvm-cpu" in errors, errors)
    processors, device, again, ranks = (bench.folder / name for name in ("processors", "device", "again", "ranks"))
    bench.run("threads", 1, processors, *flags, *held_out)
    plain, bench.args.trainer = bench.args.trainer, bench.args.emulated
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    _, errors = bench.run("threads", 1, bench.folder / "none", *flags, "--device", "cuda", code=2)
    check(errors.count("\n") == 1 and "no CUDA device" in errors, errors)
    os.environ.pop("CUDA_VISIBLE_DEVICES")
    text, _ = bench.run("threads", 1, device, *flags, *held_out, "--device", "cuda")
    check("cuda, device 0, emulated" in text, text)
    print(f"  within {close(bench.losses(processors), bench.losses(device), 1e-4):.1e}")
    validations = [[row["loss"] for row in bench.metrics(out, "validation")] for out in (processors, device)]
    print(f"  validation within {close(*validations, 1e-4):.1e}")
    bench.run("threads", 1, again, *flags, "--device", "cuda")
    check(bench.losses(again) == bench.losses(device), "two runs differ")
    check(bench.parameters(again, 6) == bench.parameters(device, 6), "parameters of two runs differ")
    # Losses are read one step late: a run that diverges, or is stopped, ends all the same with what it told of.
    out = bench.folder / "diverged"
    text, errors = bench.run("threads", 1, out, *flags[:2], "--steps", "60", "--learning-rate", "1e3", "--warmup", "0", "--clip", "0", "--device", "cuda", code=1)
    check((text + errors).count("training has diverged") == 1, text + errors)
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    check(rows[-1]["reason"] == "diverged" and rows[-2]["type"] == "step" and rows[-2]["step"] == rows[-1]["step"] < 60, str(rows[-2:]))
    check(not (out / "checkpoints").exists(), "a checkpoint of a run that diverged")
    out = bench.folder / "stopped"
    process = bench.start("threads", 1, out, *flags[:2], "--steps", "10000", *flags[4:], "--device", "cuda")
    bench.wait_for_step(process, out, 2)
    process.send_signal(signal.SIGTERM)
    bench.finish(process)
    done = bench.metrics(out, "end")[-1]["step"]
    check([row["step"] for row in bench.metrics(out, "checkpoint")] == [done] and len(bench.losses(out)) == done, str(done))
    bench.run("threads", 1, out, "--resume", "latest", "--steps", str(done + 2))
    check([row["step"] for row in bench.metrics(out)] == list(range(1, done + 3)), "the history has gaps or repeats")
    bench.run("threads", 2, ranks, "--total-tokens", "64", *flags[2:], "--device", "cuda")
    whole = bench.folder / "whole"
    bench.run("threads", 1, whole, "--total-tokens", "64", *flags[2:], "--sync-freq", "2", "--device", "cuda")
    print(f"  2 ranks: within {close(bench.losses(whole), bench.losses(ranks), 1e-4):.1e}")
    times = [row["ms"] for row in bench.metrics(ranks)]  # the host leads: a step is told of when it is over
    check(min(times) > 0.05 * max(times), str(times))
    for stage in ("1", "2", "3"):  # devices with parts of parameters, which a processor puts together
        zero = bench.folder / f"zero{stage}"
        sharing = ("--device", "cuda", "--zero", stage)
        text, _ = bench.run("threads", 2, zero, "--total-tokens", "64", "--batch", "1", "--steps", "3", "--schedule", "constant", *sharing)
        check("each rank has a part" in text, text)
        if stage != "1":  # which is as 2
            bench.run("threads", 2, zero, "--resume", "latest", "--steps", "5", *sharing)
            bench.run("threads", 2, zero, "--resume", "latest", "--steps", "6", "--device", "cuda")
        losses = bench.losses(zero)
        print(f"  2 ranks, --zero {stage}: within {close(bench.losses(whole)[:len(losses)], losses, 1e-4):.1e}")
    for ranks, share in ((2, ("--sequence-parallel",)), (4, ("--zero", "3"))):  # devices with parts of a model
        parts = bench.folder / f"parts{ranks}"
        dividing = ("--device", "cuda", "--tensor-parallel", "2", *share)
        text, _ = bench.run("threads", ranks, parts, "--total-tokens", "64", "--batch", str(4 // ranks), "--steps", "2", "--schedule", "constant", *dividing)
        check(f"data {ranks // 2} x tensor 2" in text, text)
        if ranks == 2:
            bench.run("threads", ranks, parts, "--resume", "latest", "--steps", "3", *dividing)
        bench.run("threads", 1, parts, "--resume", "latest", "--batch", "2", "--steps", "4", "--device", "cuda")
        print(f"  {ranks} ranks, --tensor-parallel 2: within {close(bench.losses(whole)[:4], bench.losses(parts), 1e-4):.1e}")
    staged = bench.folder / "staged"  # devices that are stages, whose checkpoint goes on with any layout
    stages = ("--device", "cuda", "--pipeline-parallel", "2", "--micro-batches", "2")
    text, _ = bench.run("threads", 2, staged, "--total-tokens", "64", "--batch", "1", "--steps", "2", "--schedule", "constant", *held_out, *stages)
    check("pipeline 2" in text, text)
    bench.run("threads", 4, staged, "--resume", "latest", "--steps", "3", *stages[:4], "--micro-batches", "1", "--zero", "2")
    bench.run("threads", 1, staged, "--resume", "latest", "--batch", "2", "--steps", "4", "--device", "cuda")
    print(f"  stages: within {close(bench.losses(whole)[:4], bench.losses(staged), 1e-4):.1e}")
    # What was chosen by time lies beside the checkpoints, and a run that goes on takes it.
    tuned = bench.folder / "tuned"
    bench.run("threads", 1, tuned, *flags[:2], "--steps", "3", "--schedule", "constant", "--device", "cuda", "--autotune")
    choices = tuned / "checkpoints" / "products.rank_0000.txt"
    kept = choices.read_text()
    check(kept.startswith("tutti products 1\n") and len(kept.splitlines()) > 10, kept)
    bench.run("threads", 1, tuned, "--resume", "latest", "--steps", "4", "--device", "cuda")
    check(choices.read_text().splitlines()[:10] == kept.splitlines()[:10], "a run that goes on chooses anew")
    choices.write_text(kept[:-9])
    _, errors = bench.run("threads", 1, tuned, "--resume", "latest", "--steps", "5", "--device", "cuda", code=1)
    check("products.rank_0000.txt: line" in errors and "damaged" in errors, errors)
    # A run goes on where another device left it.
    parts = bench.folder / "parts"
    bench.run("threads", 1, parts, *flags[:2], "--steps", "3", "--schedule", "constant", "--device", "cuda")
    bench.args.trainer = plain
    bench.run("threads", 1, parts, "--resume", "latest", "--steps", "6")
    print(f"  resumed on processors: within {close(bench.losses(device), bench.losses(parts), 1e-4):.1e}")
    _, errors = bench.run("threads", 1, bench.folder / "none", *flags, "--autotune", code=2)
    check("is of GPUs" in errors, errors)
    _, errors = bench.run("threads", 1, bench.folder / "none", *flags, "--keep-packed", "--device", "cuda", code=2)
    check("--device cuda: keeps no packed weights" in errors, errors)


def case_iree(bench):
    """--device iree:llvm-cpu learns what processors learn, a run goes on where another device left it, and what IREE cannot do is told."""
    global LIMIT
    if not os.environ.get("TUTTI_IREE_PYTHON"):
        print("SKIPPED: TUTTI_IREE_PYTHON names no Python that has IREE. See ./tutti check --iree")
        return
    LIMIT = 900  # a compilation takes seconds on an idle machine, and minutes on a busy one
    iree = ["--device", "iree:llvm-cpu"]
    flags = ["--batch", "8", "--schedule", "constant"]
    held_out = ["--validation-data", str(bench.folder / "validation.bin"), "--validate-every", "10"]
    for name, model in (("gpt2", []), ("llama", ["--architecture", "llama", "--kv-heads", "2"])):
        whole, by_iree = bench.folder / f"{name}-cpu", bench.folder / f"{name}-iree"
        bench.run("threads", 1, whole, *model, *flags, *held_out, "--steps", "20")
        text, _ = bench.run("threads", 1, by_iree, *model, *flags, *held_out, "--steps", "20", *iree)
        check("iree:llvm-cpu, IREE " in text, text)
        losses = bench.losses(whole)
        check(losses[-1] < losses[0] - 0.3, f"nothing was learned: {losses}")
        print(f"  {name}: 20 steps within {close(losses, bench.losses(by_iree), 1e-4):.1e}")
        validations = [[row["loss"] for row in bench.metrics(out, "validation")] for out in (whole, by_iree)]
        check(len(validations[0]) == 3, validations)
        print(f"  {name}: validation within {close(*validations, 1e-4):.1e}")
        for first, second, way in (([], iree, "from processors to IREE"), (iree, [], "from IREE to processors")):
            out = bench.folder / f"{name}-parts{len(first)}"
            bench.run("threads", 1, out, *model, *flags, *held_out, "--steps", "10", *first)
            bench.run("threads", 1, out, *held_out, "--steps", "20", "--resume", "latest", *second)
            print(f"  {name}: resumed {way}, within {close(losses, bench.losses(out), 1e-4):.1e}")
    # Replicas meet outside of programs.
    diloco = ["--batch", "4", "--schedule", "constant", "--algorithm", "diloco", "--inner-steps", "5", "--steps", "10"]
    both = bench.folder / "diloco-cpu", bench.folder / "diloco-iree"
    bench.run("threads", 2, both[0], *diloco)
    bench.run("threads", 2, both[1], *diloco, *iree)
    print(f"  two ranks by DiLoCo within {close(bench.losses(both[0]), bench.losses(both[1]), 1e-4):.1e}")
    none = bench.folder / "none"
    _, errors = bench.run("threads", 2, none, "--batch", "4", "--steps", "2", *iree, code=None)
    check("Train with one rank, or by DiLoCo" in errors, errors)
    # A GPU that is not here.
    _, errors = bench.run("threads", 1, none, *flags, "--steps", "2", "--device", "iree:rocm:gfx942", code=1)
    check("iree:rocm:gfx942 cannot run on this machine" in errors, errors)
    modules = re.findall(r"\S+\.vmfb", errors)
    check(len(modules) == 2 and all(os.path.getsize(module) > 0 for module in modules), errors)
    check(not (none / "checkpoints").exists(), "a run that could not begin left something")
    # Its process dies; the trainer is asked to stop. Neither leaves a process.
    process = bench.start("threads", 1, bench.folder / "killed", *flags, "--steps", "1000000", *iree)
    bench.wait_for_step(process, bench.folder / "killed", 3)
    runner = children(process.pid)
    check(len(runner) == 1, f"{len(runner)} processes")
    os.kill(runner[0], signal.SIGKILL)
    _, errors = bench.finish(process, None)
    check(process.returncode == 1 and "the program ended by signal 9" in errors, f"{process.returncode}: {errors}")
    process = bench.start("threads", 1, bench.folder / "stopped", *flags, "--steps", "1000000", *iree)
    bench.wait_for_step(process, bench.folder / "stopped", 3)
    runner = children(process.pid)
    process.send_signal(signal.SIGINT)
    text, _ = bench.finish(process)
    check("stopped by SIGINT" in text, text)
    check(not any(os.path.exists(f"/proc/{one}") for one in runner), "IREE's process is still there")


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--prepare", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--emulated", default="", help="the trainer with an emulated GPU")
    args = parser.parse_args()
    print(f"{args.case}: {cases[args.case].__doc__}")
    with tempfile.TemporaryDirectory(prefix="tutti-trainer-") as folder:
        cases[args.case](Bench(args, pathlib.Path(folder)))
    print("ok")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
