#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program that makes one mistake on three ranks, on shared memory, by messages, and as if the third rank were on
another node, and checks that every rank says who did what, that the job ends with a failure within seconds, and that no
process is left.

    mistakes.py PROGRAM LAUNCHER [ARGUMENTS...] -- MISTAKE
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

PLACE = r"mistakes\.cpp:\d+"
ALL = {0, 1, 2}


def both(first, second):
    return rf"ranks disagree: rank 0 calls {first} at {PLACE}, rank 1 calls {second} at {PLACE}\. Make the same call"


# Mistake: (what the ranks' lines must hold, the ranks that must say so on shared memory, and otherwise)
MISTAKES = {
    "count": (both(r"all_reduce\(sum, float32, count 8\)", r"all_reduce\(sum, float32, count 4\)"), ALL, ALL),
    "large_count": (both(r"all_reduce\(sum, float32, count 60000\)", r"all_reduce\(sum, float32, count 50000\)"), ALL, ALL),
    "operator": (both(r"all_reduce\(sum, float32, count 8\)", r"all_reduce\(max, float32, count 8\)"), ALL, ALL),
    "root": (both(r"broadcast\(root 0, float32, count 8\)", r"broadcast\(root 1, float32, count 8\)"), ALL, ALL),
    "kind": (both(r"all_reduce\(sum, float32, count 8\)", r"broadcast\(root 0, float32, count 8\)"), ALL, ALL),
    "derived_kind": (both(r"scan\(max, float32, count 8\)", r"scan\(sum, float32, count 8\)"), ALL, ALL),
    "type": (both(r"all_reduce\(sum, float32, count 8\)", r"all_reduce\(sum, int32, count 8\)"), ALL, ALL),
    "struct": (both(r"broadcast\(root 0, structs #\d+, 24 bytes\)", r"broadcast\(root 0, structs #\d+, 24 bytes\)"), ALL, ALL),
    "complex": (both(r"all_reduce\(sum, float32, count 8\)", r"all_reduce\(sum, complex float32, count 4\)"), ALL, ALL),
    "split": (both(r"split\(\)", r"barrier\(\)"), ALL, ALL),
    "inferred": (r"rank 0 calls all_gather_v\(counts to be found, elements #\d+\)", ALL, ALL),
    "inferred_kind": (rf"ranks disagree: rank 0 calls all_reduce\(sum, float32, count 8\) at {PLACE}, rank 1 calls all_gather_v\(counts",
                      ALL, ALL),
    "blocks": (rf"ranks disagree: rank 1 calls gather_v\(root 2, float32, count 3\) at {PLACE}, rank 2 calls gather_v\(root 2, "
               rf"float32, count 4, to 4 \+ 4 \+ 4\) at {PLACE}, which expects 16 bytes from rank 1 and gets 12", ALL, ALL),
    "counts": (both(r"all_gather_v\(float32, count 4, to 4 \+ 4 \+ 4\)", r"all_gather_v\(float32, count 4, to 4 \+ 4 \+ 3\)"), ALL, ALL),
    "pairs": (rf"ranks disagree: rank 1 calls all_to_all_v\(float64, from 1 \+ 2 \+ 3, to 2 \+ 2 \+ 2\) at {PLACE}, "
              rf"rank 0 calls all_to_all_v\(float64, from 2 \+ 2 \+ 2, to 2 \+ 2 \+ 2\) at {PLACE}, which expects 16 bytes from rank 1 and gets 8", ALL, ALL),
    "communicator": (r"waits in barrier at " + PLACE + r" on another communicator \(world", {0, 2}, {0, 2}),
    "leave_message": (r"rank 1 has left the communicator|no message from rank 1", {0}, {0}),
    "async": (r"ranks disagree: rank 0 calls all_reduce\(max, float32, count 60000\)", ALL, ALL),
    "message": (r"(waits in recv at|waits in barrier at) " + PLACE, {0}, {0}),
    "send_to_each_other": (r"rank 1 has not received the message with tag \d+; rank 1 waits in send at " + PLACE +
                           r"|rank 0 has not received the message with tag \d+; rank 0 waits in send at " + PLACE, {0, 1}, {0, 1}),
    "send_to_oneself": (r"rank 1 has not received the message with tag \d+; rank 1 waits in send at " + PLACE, {1}, {1}),
    "other_tag": (r"no message from rank 1 with tag 7.*; from rank 1 with tag 5 there is one of 32 bytes", {0}, {0}),
    "other_source": (r"(no message from rank 1 with tag 5|rank 1 has left the communicator).*; from rank [123] with tag 5 there is one of 12 bytes", {0}, {0}),
    "message_type": (rf"the message from rank 1 with tag 5 holds float32, the buffer int32\. Receive it as what was sent \({PLACE}\)", ALL, ALL),
    "inferred_type": (rf"the message from rank 1 with tag 5 holds float32, the buffer int32\. Receive it as what was sent \({PLACE}\)", ALL, ALL),
    "probed": (r"no message from rank 1 with tag 6.*; from rank 1 with tag 5 there is one of 32 bytes", {0}, {0}),
    "stall": (r"ranks that have arrived: 0, 2; missing: 1 \(", {0, 2}, {0, 2}),
    "leave": (r"rank 1 has left the communicator|ranks that have arrived: 0, 2; missing: 1 \(", {0, 2}, {0, 2}),
    "throw": (r"rank 1 failed: no such luck|^rank 1: no such luck", ALL, ALL),
    "throw_apart": (r"rank 1 failed: no such luck|^rank 1: no such luck", ALL, ALL),
    "throw_number": (r"rank 1 failed: an exception of unknown type|^rank 1: an exception of unknown type", ALL, ALL),
    "operator_throws": (r"bad operator|the operator of all_reduce threw on rank 1", ALL, ALL),
    "caught": (r"caught .*ranks disagree: rank 0 calls all_reduce", ALL, ALL),
    "late": (r"caught .*missing: 1 \(", {0, 2}, {0, 2}),
    "busy": (r"caught .*missing: 1 \(.*, 2 \(", {0}, {0}),
    "stuck": (r"rank 1 has neither ended nor noticed", set(), set()),
    "code": (None, set(), set()),
    "exit": (r"rank 1 failed: the process exits inside of launch|^rank 1: the process exits inside of launch", ALL, ALL),
    "stop": (r"caught .*missing: 1 \(", {0, 2}, {0, 2}),
    "kill": (None, set(), set()),
}


def children_of(program, words):
    """Processes that run the program with these words: others are under way beside it."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "exe") == str(program) and \
                        (entry / "cmdline").read_bytes().split(b"\0")[1:-1] == [word.encode() for word in words]:
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


# Way: what the environment says of it.
WAYS = {
    "on shared memory": {"NODE_SHARED": "on"},
    "by messages": {"NODE_SHARED": "off"},
    "on two nodes": {"NODE_SHARED": "on", "NODE_RANKS": "2"},
    "on two nodes, fully checked": {"NODE_SHARED": "on", "NODE_RANKS": "2", "CHECK_LEVEL": "full"},
}


# How the job ends, where that is not 1. `code` returns -1, `kill` is killed by itself, and the launcher passes that on.
CODES = {"caught": 0, "late": 0, "busy": 0, "code": 255, "kill": 9 if "mpich" in os.path.basename(sys.argv[2]) else 137}

# Numbers of ranks, where 3 do not show all of it.
RANKS = {"send_to_each_other": (2, 3, 4), "other_tag": (2, 3, 4), "other_source": (3, 4)}


def run(program, launcher, mistake, way, ranks):
    pattern, on_shared, otherwise = MISTAKES[mistake]
    words = [mistake, f"{way}, {ranks} ranks"]  # the program reads the first alone
    environment = dict(os.environ, **{"TUTTI_MPI_" + key: value for key, value in WAYS[way].items()})
    began = time.monotonic()
    process = subprocess.Popen([*launcher, "-n", str(ranks), program, *words], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        text, _ = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        print(f"{mistake} {words[1]}: FAILED, the job hung")
        return False
    seconds = time.monotonic() - began
    problems = []
    if process.returncode != CODES.get(mistake, 1):
        problems.append(f"the job ended with {process.returncode} instead of {CODES.get(mistake, 1)}")
    if pattern:
        # The library itself may begin a line that a launcher does not end.
        lines = [re.search(r"(?:^|\[[\d,]+\](?:<std\w+>:)? ?)(rank (\d): .*)", line) for line in text.splitlines()]
        said = {int(line[2]) for line in lines if line and re.search(pattern, line[1])}
        wanted = on_shared if way == "on shared memory" else otherwise
        if not wanted <= said:
            problems.append(f"ranks {sorted(wanted - said)} do not say so")
        elif not said:
            problems.append("no rank says so")
    for _ in range(50):
        if not children_of(program, words):
            break
        time.sleep(0.1)
    else:
        problems.append(f"processes are left: {children_of(program, words)}")
    # In one piece: others print meanwhile.
    print("\n".join([f"{mistake} {words[1]}: {'; '.join(problems) or 'named'} ({seconds:.1f} s, code {process.returncode})"] +
                    ([text] if problems else [])), flush=True)
    return not problems


def main():
    split = sys.argv.index("--")
    program = pathlib.Path(sys.argv[1]).resolve()
    launcher = sys.argv[2:split]
    mistake = sys.argv[split + 1]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # the jobs mostly wait
        good = list(pool.map(lambda job: run(program, launcher, mistake, *job),
                             [(way, ranks) for way in WAYS for ranks in RANKS.get(mistake, (3,))]))
    sys.exit(0 if all(good) else 1)


main()
