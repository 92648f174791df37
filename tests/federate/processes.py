#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs shepherds and workers as users run them, kills them with SIGKILL, and reads from the log and the checkpoint what
became of it.

    processes.py CASE --shepherd PROGRAM --worker PROGRAM --prepare PROGRAM --generator PROGRAM [--kills N --shepherd-kills N]
"""
import argparse
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time


parser = argparse.ArgumentParser()
parser.add_argument("case")
parser.add_argument("--shepherd", required=True)
parser.add_argument("--worker", required=True)
parser.add_argument("--prepare", required=True)
parser.add_argument("--generator", required=True)
parser.add_argument("--kills", type=int, default=4, help="of workers, in the storm")
parser.add_argument("--shepherd-kills", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--iree-worker", help="of the case mixed; TUTTI_IREE_PYTHON names a Python with IREE")
options = parser.parse_args()
began = time.monotonic()
DEADLINE = 200 + 8 * (options.kills + options.shepherd_kills)  # seconds, for everything: whoever is not done by then hangs
folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti_federate_"))
running = []


def fail(why):
    for process in running:
        print(f"---- {process.name} ----\n{(folder / process.name).read_text(errors='replace')}")
    sys.exit(f"{options.case}: {why}")


def require(holds, why):
    if not holds:
        fail(why)


def start(name, program, *words, environment=None):
    """A process whose output goes to a file of this name."""
    out = open(folder / name, "a")
    process = subprocess.Popen([program, *map(str, words)], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               env={**os.environ, **(environment or {})})
    process.name = name
    running.append(process)
    return process


def wait(process, seconds=DEADLINE):
    try:
        return process.wait(min(seconds, max(1, DEADLINE - (time.monotonic() - began))))
    except subprocess.TimeoutExpired:
        fail(f"{process.name} hangs")


def kill(process):
    process.send_signal(signal.SIGKILL)
    wait(process, 10)


def output(name):
    return (folder / name).read_text(errors="replace")


def wait_for(name, text, count=1):
    while output(name).count(text) < count:
        require(time.monotonic() - began < DEADLINE, f"'{text}' never came in {name}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def prepare():
    words = ["shepherd", "worker", "leads", "joins", "leaves", "round", "sample", "lease", "ledger", "gradient"]
    dice = random.Random(5)
    (folder / "text").write_text("\n".join(" ".join(dice.choice(words) for _ in range(12)) + "." for _ in range(3000)))
    made = subprocess.run([options.prepare, "--input", folder / "text", "--out", folder / "data", "--vocabulary", "300"],
                          capture_output=True, text=True, timeout=60)
    require(made.returncode == 0, made.stderr)


PORT = free_port()
MODEL = ["--layers", 2, "--channels", 32, "--heads", 2, "--sequence", 32, "--batch", 2, "--learning-rate", 0.003]
QUICK = ["--heartbeat", 0.1, "--lost-after", 1, "--threads", 1]


def shepherd(*words, name="shepherd", workers=2, steps=600, inner=20):
    return start(name, options.shepherd, "--port", PORT, "--data", folder / "data", "--out", folder / "run", "--workers",
                 workers, "--steps", steps, "--inner-steps", inner, *MODEL, *QUICK, *words)


def worker(number, *words, program=None, environment=None):
    return start(f"worker{number}", program or options.worker, "--connect", f"127.0.0.1:{PORT}", "--data", folder / "data", "--threads",
                 1, "--patience", 10, *words, environment=environment)


def committed_once(samples):
    """Reads the log with nothing of the library: every sample is committed by exactly one outer step."""
    count, leases, rounds = [0] * samples, {}, 0
    for line in (folder / "run/shepherd/log.jsonl").read_text().splitlines():
        record = json.loads(line[17:])
        if record["record"] == "leased":
            leases[record["lease"]] = [g for first, size in record["ranges"] for g in range(first, first + size)]
        elif record["record"] == "returned":
            del leases[record["lease"]]
        elif record["record"] == "closed":
            require(record["round"] == rounds, "an outer step is missing from the log")
            rounds += 1
            for merged in record["merged"]:
                for g in leases.pop(merged["lease"])[:merged["samples"]]:
                    count[g] += 1
    require(set(count) == {1}, f"samples are committed {sorted(set(count))} times")
    return rounds


def metrics():
    return [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def complete(samples, killed=0):
    """What must hold of a run that is done, whose shepherd was killed so many times."""
    rounds = committed_once(samples)
    rows = metrics()
    steps = [row["step"] for row in rows if row["type"] == "outer_step"]
    # One that is killed between an outer step and its line says nothing of that step later.
    require(sorted(set(steps)) == steps and rounds - len(steps) <= killed, f"metrics.jsonl tells of outer steps {steps}")
    require(rows[-1]["type"] == "end" and rows[-1]["reason"] == "done", "metrics.jsonl does not end well")
    losses = [row["loss"] for row in rows if row["type"] == "outer_step"]
    require(losses[-1] < losses[0] - 0.5, f"nothing was learned: {losses}")
    written = subprocess.run([options.generator, "--checkpoint", folder / "run", "--prompt", "shepherd"], capture_output=True,
                             text=True, timeout=60)
    require(written.returncode == 0, f"the checkpoint cannot be used: {written.stderr}")
    print(f"{rounds} outer steps, loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return rows


def case_worker_killed():
    """A worker dies in the middle of a round, another joins, the run is complete."""
    lead = shepherd(steps=4000)  # much longer than a worker's silence
    workers = [worker(1), worker(2)]
    wait_for("shepherd", "outer step 3 ")
    kill(workers[0])
    third = worker(3)
    require(wait(lead) == 0, "the shepherd failed")
    require(wait(workers[1]) == 0 and wait(third) == 0, "a worker failed")
    rows = complete(2 * 2 * 4000)
    require("lost" in [row.get("event") for row in rows], "nobody was lost")


def case_shepherd_killed():
    """A shepherd that dies goes on from its log, at most one outer step back, with the workers that it had."""
    lead = shepherd()
    workers = [worker(1), worker(2)]
    for kills in range(1, 4):
        wait_for("shepherd", "outer step ", 6 * kills)
        kill(lead)
        told = [int(line.split()[2]) for line in output("shepherd").splitlines() if line.startswith("outer step")][-1]
        lead = shepherd()
        wait_for("shepherd", "goes on after outer step", kills)
        after = [int(line.split()[5].strip(",")) for line in output("shepherd").splitlines() if line.startswith("goes on")][-1]
        require(after >= told, f"outer step {told} was done, and it goes on after {after}")
    require(wait(lead) == 0, "the shepherd failed")
    require([wait(one) for one in workers] == [0, 0], "a worker failed")
    complete(2 * 2 * 600, 3)


def case_relay():
    """A worker relays for another; that one dies and a third comes; then the relay dies, and its worker goes to the shepherd."""
    port = free_port()
    lead = shepherd(steps=16000)
    direct = worker(1)
    relay = worker(2, "--relay", port, "--relay-workers", 2, "--relay-lost-after", 1)
    wait_for("worker2", "relays for workers at")
    behind = ["--connect", f"127.0.0.1:{port},127.0.0.1:{PORT}", "--next-after", 1]
    third = worker(3, *behind)
    wait_for("shepherd", "outer step 6 ")
    kill(third)
    wait_for("worker2", "a worker behind the relay: lost")
    fourth = worker(4, *behind)
    wait_for("worker4", "compiling")
    wait_for("shepherd", "outer step ", 18)
    members = max(row["members"] for row in metrics() if row["type"] == "outer_step")
    require(members == 2, f"the shepherd knows {members} workers, of which one is a relay")
    kill(relay)
    require(wait(lead) == 0, "the shepherd failed")
    require([wait(one) for one in (direct, fourth)] == [0, 0], "a worker failed")
    complete(2 * 2 * 16000)
    require("leaves: the run is complete" in output("worker4"), output("worker4"))


def case_relay_fragments():
    """The shepherd averages fragments at times of their own, in few bits; behind a relay, which trains nothing, all parameters are."""
    port = free_port()
    lead = shepherd("--fragments", 2, "--outer-bits", "int8", steps=600, workers=3)  # of which two are behind the relay
    relay = start("relay", options.worker, "--connect", f"127.0.0.1:{PORT}", "--relay", port, "--relay-only", "--relay-workers", 2,
                  "--relay-bits", "bfloat16")
    behind = ["--connect", f"127.0.0.1:{port}"]
    others = [worker(1), worker(2, *behind), worker(3, *behind)]
    require(wait(lead) == 0, "the shepherd failed")
    require([wait(one) for one in (relay, *others)] == [0, 0, 0, 0], "a worker failed")
    rows = complete(2 * 3 * 600)
    losses = [row["loss"] for row in rows if row["type"] == "validation"]
    require(losses[-1] < losses[0] - 1, f"validation losses {losses}")
    last = [row for row in rows if row["type"] == "outer_step"][-1]
    require((last["members"], last["trainers"]) == (2, 3), f"{last['members']} members, {last['trainers']} train")


def case_storm():
    """Anybody is killed at random moments; somebody takes over. Half of them in a run that averages all parameters at once,
    half in one with fragments; where a run is over before, others follow."""
    global PORT
    dice = random.Random(options.seed)
    victims = ["worker"] * options.kills + ["shepherd"] * options.shepherd_kills
    dice.shuffle(victims)
    half = (len(victims) + 1) // 2
    steps = 400 * min(half, 15)  # long enough for some of them
    killed, started, runs = {"worker": 0, "shepherd": 0}, 0, 0
    while victims or runs < 1:
        words = [[], ["--fragments", 3, "--outer-bits", "int4"]][runs % 2]
        runs += 1
        PORT = free_port()
        subprocess.run(["rm", "-rf", folder / "run"], check=True)
        lead = shepherd(*words, workers=3, steps=steps, name=f"shepherd{runs}")
        workers = []
        for _ in range(3):
            started += 1
            workers.append(worker(started))
        before = dict(killed)
        left = min(half, len(victims))
        while left > 0 and lead.poll() is None:
            time.sleep(dice.uniform(0.1, 1.2))
            if lead.poll() is not None:
                break
            left -= 1
            kind = victims.pop()
            killed[kind] += 1
            if kind == "shepherd":
                kill(lead)
                time.sleep(dice.uniform(0, 0.5))
                lead = shepherd(*words, workers=3, steps=steps, name=f"shepherd{runs}")
            else:
                kill(workers.pop(dice.randrange(3)))
                started += 1
                workers.append(worker(started))
        require(wait(lead) == 0, "the shepherd failed")
        for one in workers:  # one that came after the end finds nobody
            require(wait(one) == 0 or "no shepherd was heard of" in output(one.name), f"{one.name} failed")
        complete(3 * 2 * steps, killed["shepherd"] - before["shepherd"])
        running.clear()
        print(f"run {runs}{', fragments' if words else ''}: {killed['worker'] - before['worker']} workers and "
              f"{killed['shepherd'] - before['shepherd']} shepherds were killed, each of {3 * 2 * steps} samples is in one outer step",
              flush=True)
    print(f"{killed['worker']} workers and {killed['shepherd']} shepherds were killed in {runs} runs")


def case_stopped():
    """SIGTERM: a worker delivers and leaves; a shepherd ends, and the same words go on with its run."""
    steps = 6000  # more than a fast machine does while two signals are sent
    lead = shepherd(steps=steps)
    workers = [worker(1), worker(2)]
    wait_for("shepherd", "outer step 2 ")
    workers[0].send_signal(signal.SIGTERM)
    require(wait(workers[0], 20) == 0, "the worker that was asked to leave failed")
    wait_for("shepherd", " left")
    lead.send_signal(signal.SIGTERM)
    require(wait(lead, 20) == 0, "the shepherd that was asked to stop failed")
    require("the same command goes on from there" in output("shepherd"), "the shepherd does not say how to go on")
    lead = shepherd(steps=steps)
    require(wait(lead) == 0 and wait(workers[1]) == 0, "somebody failed")
    complete(2 * 2 * steps)
    other = shepherd("--outer-momentum", 0.5, name="other", steps=steps)
    require(wait(other, 20) == 2 and "other settings" in output("other"), "a run of other settings is mixed into this one")


def case_key():
    """With a key only those join who have it; gradients of four bits train as well."""
    for name, letter in (("key", "a"), ("wrong", "b")):
        (folder / name).write_text(letter * 32)
        (folder / name).chmod(0o600)
    lead = shepherd("--key", folder / "key", "--outer-bits", "int4")
    wait_for("shepherd", "listening")
    stranger, keyless = worker(8, "--key", folder / "wrong", "--patience", 2), worker(9, "--patience", 2)
    require(wait(stranger, 20) == 1 and wait(keyless, 20) == 1, "a stranger was let in")
    require("the same key" in output("worker8") and "the same key" in output("worker9"), "strangers are not told why")
    workers = [worker(1, "--key", folder / "key"), worker(2, "--key", folder / "key")]
    require(wait(lead) == 0, "the shepherd failed")
    require([wait(one) for one in workers] == [0, 0], "a worker failed")
    rows = complete(2 * 2 * 600)
    last = [row for row in rows if row["type"] == "outer_step"][-1]
    require(last["bytes_received"] < 0.2 * last["bytes_sent"], "gradients of four bits are not small")


def case_fragments():
    """Fragments at times of their own, of four bits both ways, while a worker and the shepherd die."""
    words = ["--fragments", 3, "--outer-bits", "int4"]
    steps = 4800  # more than a fast machine does while two are killed
    lead = shepherd(*words, workers=3, steps=steps, inner=30)
    workers = [worker(1), worker(2), worker(3)]
    wait_for("shepherd", "outer step 6 ")
    kill(workers.pop(0))
    workers.append(worker(4))
    wait_for("shepherd", "lost")
    wait_for("shepherd", "outer step ", 30)
    kill(lead)
    lead = shepherd(*words, workers=3, steps=steps, inner=30)
    require(wait(lead) == 0, "the shepherd failed")
    require([wait(one) for one in workers] == [0, 0, 0], "a worker failed")
    rows = [row for row in complete(3 * 2 * steps, 1) if row["type"] == "outer_step"]
    # Parameters are sent whole to who begins, then in four bits: looked at where nobody began, whenever that was. A shepherd
    # that began again counts from nothing.
    parameters = json.loads((folder / "run/shepherd/log.jsonl").read_text().split("\n")[0][17:])["parameters"]
    spans = [rows[k:k + 20] for k in range(len(rows) - 19)]
    grown = [[b["bytes_sent"] - a["bytes_sent"] for a, b in zip(span, span[1:])] for span in spans if all(row["workers"] == 3 for row in span)]
    grown = [sum(each) for each in grown if min(each) > 0]
    require(grown, "there are no 20 outer steps of all three")
    sent = min(grown)
    require(sent < 19 * 3 * parameters / 3 * 0.7 + 100_000, f"{sent} bytes for 19 outer steps of {parameters} parameters")


def case_mixed():
    """Workers of different kinds learn as well together as workers of one kind."""
    global PORT
    losses, words = [], ["--batch", 4, "--outer-learning-rate", 1, "--outer-momentum", 0]
    for mixed in (False, True):
        PORT = free_port()
        subprocess.run(["rm", "-rf", folder / "run"], check=True)
        lead = shepherd(*words, workers=3, steps=600, inner=10, name=f"shepherd{len(running)}")
        kinds = [{}, {}, {}]
        if mixed:
            kinds = [{}, {"environment": {"TUTTI_ISA": "scalar"}}, {"program": options.iree_worker}]
        workers = [worker(10 * mixed + k, *(["--device", "iree:llvm-cpu", "--patience", 60] if "program" in kind else []), **kind)
                   for k, kind in enumerate(kinds)]
        require(wait(lead) == 0, "the shepherd failed")
        require([wait(one) for one in workers] == [0, 0, 0], "a worker failed")
        rows = complete(3 * 4 * 600)
        losses.append([row["loss"] for row in rows if row["type"] == "validation"][-1])
        everybody = sum(row["workers"] == 3 for row in rows if row["type"] == "outer_step")
        require(everybody > 20, f"only {everybody} outer steps are of all three")
        print(f"{'AVX-512 or what there is, scalar, and IREE llvm-cpu' if mixed else 'three alike'}: validation loss {losses[-1]:.4f}, "
              f"{everybody} outer steps of all three", flush=True)
    require(abs(losses[1] / losses[0] - 1) < 0.01, f"validation losses {losses}")


def case_models():
    """A LLaMA, and a model that JAX exported, are trained as a GPT-2 is; the program tells workers the module's text. Held-out
    text is measured beside the run."""
    global PORT
    lead = shepherd("--architecture", "llama", "--kv-heads", 1, "--hidden", 64, "--validate-every", 7, "--validation-batches", 2)
    workers = [worker(1), worker(2)]
    require(wait(lead) == 0 and [wait(one) for one in workers] == [0, 0], "the LLaMA failed")
    rows = complete(2 * 2 * 600)
    measured = {row["step"]: row["loss"] for row in rows if row["type"] == "validation"}
    last = max(row["step"] for row in rows if row["type"] == "outer_step")
    require(0 in measured and last in measured and len(measured) > 2, f"measured after {list(measured)}")
    require(all(step % 7 == 0 or step == last for step in measured), f"measured after {list(measured)}")
    require(measured[last] < measured[0] - 0.5, f"measured: {measured}")
    PORT = free_port()
    subprocess.run(["rm", "-rf", folder / "run"], check=True)
    tokens = [0]
    dice = random.Random(3)
    while len(tokens) < 6000:
        tokens.append((tokens[-1] * 7 + 3) % 16 if dice.random() < 0.7 else dice.randrange(16))
    for name, part in (("few.bin", tokens), ("few_validation.bin", tokens[:500])):
        (folder / name).write_bytes(struct.pack("<256i", 20240520, 1, len(part), *[0] * 253) + struct.pack(f"<{len(part)}H", *part))
    source = pathlib.Path(__file__).parent.parent / "graph" / "jax"
    words = ["--port", PORT, "--data", folder / "few.bin", "--validation-data", folder / "few_validation.bin", "--out", folder / "run",
             "--workers", 2, "--steps", 800, "--inner-steps", 20, "--vocabulary", 16, "--learning-rate", 0.01, *QUICK,
             "--model", source / "gpt.mlir"]
    refused = start("refused", options.shepherd, *words, "--batch", 3)
    require(wait(refused, 20) == 2 and "exported for batches of 2 x 6" in output("refused"), output("refused"))
    lead = start("shepherd_module", options.shepherd, *words)
    workers = [worker(k, "--data", folder / "few.bin") for k in (3, 4)]
    require(wait(lead) == 0 and [wait(one) for one in workers] == [0, 0], "the module failed")
    committed_once(2 * 2 * 800)
    losses = [row["loss"] for row in metrics() if row["type"] == "outer_step"]
    require(losses[-1] < losses[0] - 0.3, f"nothing was learned: {losses}")
    print(f"a module: loss {losses[0]:.3f} to {losses[-1]:.3f}")


def case_rate():
    """A shepherd sends no more tensors in a second than it may."""
    limit = 500_000
    lead = shepherd("--rate-limit", limit, steps=120)
    workers = [worker(1), worker(2)]
    require(wait(lead) == 0, "the shepherd failed")
    require([wait(one) for one in workers] == [0, 0], "a worker failed")
    rows = [row for row in complete(2 * 2 * 120) if row["type"] == "outer_step"]
    sent = rows[-1]["bytes_sent"] - rows[0]["bytes_sent"]
    took = sum(row["seconds"] for row in rows[1:])
    require(sent > 1_000_000, f"only {sent} bytes were sent")
    require(sent / took < 1.1 * limit, f"{sent / took:.0f} bytes a second were sent")
    require(sent / took > 0.5 * limit, f"only {sent / took:.0f} bytes a second were sent")


def case_sentences():
    """What cannot be is refused at once, with the flag and the way out."""
    (folder / "loose").write_text("x" * 32)
    (folder / "loose").chmod(0o644)
    for words, status, said in (
            (["--host", "0.0.0.0"], 2, "there is no --key"),
            (["--key", folder / "loose"], 2, "chmod 600"),
            (["--quorum", "0"], 2, "--quorum must be above 0"),
            (["--trim", "0.5"], 2, "--trim"),
            (["--ranks", "2"], 2, "--ranks does nothing"),
            (["--resume", "latest"], 2, "--resume does nothing"),
            (["--fragments", "400"], 2, "as many as --inner-steps"),
            (["--frobnicate"], 2, "--frobnicate"),
            (["--outer-bits", "int2"], 2, "int2")):
        name = "refused" + str(len(running))
        require(wait(shepherd(*words, name=name), 20) == status, f"{words} is not refused")
        require(said in output(name), f"{words}: {output(name)}")
        require(not (folder / "run").exists(), f"{words} leaves something behind")
    for words, said in ((["--batch", "4"], "--batch does nothing"), (["--connect", "127.0.0.1:99999"], "the port must be"),
                        (["--connect", "10.1.2.3"], "there is no --key")):
        number = len(running)
        require(wait(worker(number, *words), 20) == 2, f"{words} is not refused")
        require(said in output(f"worker{number}"), f"{words}: {output(f'worker{number}')}")
    # Data that are not the shepherd's.
    lead = shepherd(name="lead")
    (folder / "text").write_text((folder / "text").read_text()[::-1])
    made = subprocess.run([options.prepare, "--input", folder / "text", "--out", folder / "others", "--vocabulary", "300"],
                          capture_output=True, text=True, timeout=60)
    require(made.returncode == 0, made.stderr)
    require(wait(worker(50, "--data", folder / "others"), 60) == 1, "other data are not refused")
    require("Copy the shepherd's files here" in output("worker50"), output("worker50"))
    lead.send_signal(signal.SIGTERM)
    require(wait(lead, 20) == 0, "the shepherd failed")


try:
    prepare()
    globals()["case_" + options.case]()
finally:
    for one in running:
        if one.poll() is None:
            one.kill()
            one.wait()
    subprocess.run(["rm", "-rf", folder], check=False)
print(f"{options.case}: {time.monotonic() - began:.1f} s")
