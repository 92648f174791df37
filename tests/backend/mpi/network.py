#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program on two ranks of each of two nodes (scripts/network_nodes.py), with default settings and compared in full.
Skipped where the system does not allow namespaces or lacks iproute2.

    network.py LAUNCHER PROGRAM [ARGUMENTS...]
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))
from network_nodes import Nodes, command_inside, why_not  # noqa: E402

SKIP = 77
NODES = 2
MEMORY = ["never", "always"]  # huge pages of the node's /dev/shm
# Several times: jobs have hung at their end, one of four.
WAYS = {**{f"default settings, {turn}": [] for turn in range(1, 6)},
        "compared in full": ["-genv", "TUTTI_MPI_CHECK_LEVEL", "full"]}


def inside(folder, launcher, *program):
    """In namespaces of our own, as the first process there."""
    nodes = Nodes(folder, "10.231.77", NODES, 600, memory=lambda number:
                  f"(mount -t tmpfs -o size=256m,huge={MEMORY[number]} tmpfs /dev/shm || mount -t tmpfs tmpfs /dev/shm)")
    job = [launcher, *nodes.launcher_words(2), "-n", str(2 * NODES)]
    good = True
    for way, settings in WAYS.items():
        try:
            ended = subprocess.run([*job, *settings, *program], timeout=60).returncode
            result = "good" if ended == 0 else f"FAILED, exit {ended}"
        except subprocess.TimeoutExpired:
            result = "FAILED, hung"
        print(f"two nodes, {way}: {result}", flush=True)
        good = good and result == "good"
    nodes.end()
    return 0 if good else 1


def main():
    if sys.argv[1] == "--inside":
        folder, *rest = sys.argv[2:]
        return inside(pathlib.Path(folder), *rest)
    if why := why_not():
        print(f"SKIPPED: {why}")
        return SKIP
    with tempfile.TemporaryDirectory(prefix="tutti-nodes-") as folder:
        process = subprocess.Popen(command_inside(__file__, "--inside", folder, *sys.argv[1:]), start_new_session=True)
        try:
            return process.wait(timeout=400)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            sys.exit("FAILED: the job hung")


if __name__ == "__main__":
    sys.exit(main())
