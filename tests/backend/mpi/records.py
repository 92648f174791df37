#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flight records of jobs that fail: every mistake runs on three ranks under the launcher, each living rank writes its
record, and tutti-doctor names the culprit.

    records.py PROGRAM DOCTOR LAUNCHER [ARGUMENTS...]
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ALL = {0, 1, 2}

# Mistake: (what the doctor says, the ranks that write a record of the communicator where it happens)
MISTAKES = {
    "count": (r"CULPRIT: rank 1 makes another call at collective 1: count 4 against 8\.", ALL),
    "operator": (r"CULPRIT: rank 1 makes another call at collective 1: operator max against sum\.", ALL),
    "root": (r"CULPRIT: rank 1 makes another call at collective 1: root 1 against 0\.", ALL),
    "type": (r"CULPRIT: rank 1 makes another call at collective 1: .*int32 against float32\.", ALL),
    # The job may be over before it comes back. Some launchers end the others by a signal on which they dump.
    "stall": (r"CULPRIT: (rank 1 came late to collective 1, barrier\(\) at mistakes\.cpp:\d+|rank 1 is behind|probably rank 1, of which)",
              {0, 2}),
    "leave": (r"CULPRIT: (rank 1 has left the communicator|rank 1 is behind|probably rank 1, of which there is no dump)", {0, 2}),
    "throw": (r"CULPRIT: rank 1 failed by itself: no such luck", {1}),
}
WAYS = {"on shared memory": {"TUTTI_MPI_NODE_SHARED": "on"}, "by messages": {"TUTTI_MPI_NODE_SHARED": "off"}}


def run(program, doctor, launcher, mistake, way):
    pattern, writers = MISTAKES[mistake]
    with tempfile.TemporaryDirectory(prefix="tutti-records-") as folder:
        environment = dict(os.environ, TUTTI_FLIGHT_RECORD=f"{folder}/job", **WAYS[way])
        process = subprocess.Popen([*launcher, "-n", "3", program, mistake], env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            print(f"{mistake} {way}: FAILED, the job hung")
            return False
        dumps = sorted(pathlib.Path(folder).iterdir())
        found = {int(re.search(r"\.rank(\d)\.json$", dump.name)[1]) for dump in dumps}
        report = subprocess.run([doctor, *dumps], capture_output=True, text=True, timeout=30)
    problems = []
    if not writers <= found:
        problems.append(f"ranks {sorted(writers - found)} wrote no record")
    if not re.search(pattern, report.stdout):
        problems.append("the doctor does not say so")
    # In one piece: others print meanwhile.
    print("\n".join([f"{mistake} {way}: {'; '.join(problems) or re.search('CULPRIT: .*', report.stdout)[0]}"] +
                    ([report.stdout + report.stderr + text] if problems else [])), flush=True)
    return not problems


def main():
    program, doctor, *launcher = sys.argv[1:]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # the jobs mostly wait
        good = list(pool.map(lambda job: run(program, doctor, launcher, *job),
                             [(mistake, way) for mistake in MISTAKES for way in WAYS]))
    sys.exit(0 if all(good) else 1)


main()
