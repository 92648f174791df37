#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two nodes on one machine: network namespaces with a cable between each and the launcher's, each with a host name and a
/dev/shm of its own. A program runs on two ranks of each, with default settings and compared in full. Skipped where the
system does not allow namespaces or lacks iproute2. Nothing is left behind: the namespaces end with their processes.

    network.py LAUNCHER PROGRAM [ARGUMENTS...]
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77
NODES = ["10.231.77.1", "10.231.77.2"]
MEMORY = ["never", "always"]  # huge pages of the node's /dev/shm
LAUNCHER = "10.231.77.254"
WAYS = {"default settings": [], "compared in full": ["-genv", "TUTTI_MPI_CHECK_LEVEL", "full"]}


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIP)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def inside(folder, launcher, *program):
    """In namespaces of our own, as the first process there."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "switch", "type", "bridge")
    ip("addr", "add", f"{LAUNCHER}/24", "dev", "switch")
    ip("link", "set", "switch", "up")
    processes = []
    for number, address in enumerate(NODES):
        ready = folder / f"ready{number}"
        node = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "sh", "-c",
             "mount -t sysfs sysfs /sys && "  # MPI finds its network there
             f"(mount -t tmpfs -o size=256m,huge={MEMORY[number]} tmpfs /dev/shm || mount -t tmpfs tmpfs /dev/shm) && "
             f"hostname node{number} && touch {ready} && exec sleep 600"])
        processes.append(node)
        (folder / address).write_text(str(node.pid))
        while not ready.exists():
            if node.poll() is not None:
                sys.exit(f"FAILED: node {number} did not start")
            time.sleep(0.01)
        ip("link", "add", f"port{number}", "type", "veth", "peer", "name", f"cable{number}")
        ip("link", "set", f"port{number}", "master", "switch", "up")
        ip("link", "set", f"cable{number}", "netns", str(node.pid))
        enter = ["nsenter", "--net", "--target", str(node.pid), "ip"]
        subprocess.run([*enter, "link", "set", "lo", "up"], check=True)
        subprocess.run([*enter, "addr", "add", f"{address}/24", "dev", f"cable{number}"], check=True)
        subprocess.run([*enter, "link", "set", f"cable{number}", "up"], check=True)
    # The launcher reaches a node by what it takes for ssh: HOST COMMAND...
    shell = folder / "enter"
    shell.write_text("#!/bin/sh\n"
                     "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
                     f"pid=$(cat {folder}/$1); shift\n"
                     "exec nsenter --net --mount --uts --target \"$pid\" sh -c \"$*\"\n")
    shell.chmod(0o755)
    # Ranks of different nodes must not find each other's memory, which they could on one machine.
    job = [launcher, "-localhost", LAUNCHER, "-launcher", "ssh", "-launcher-exec", str(shell),
           "-hosts", ",".join(f"{address}:2" for address in NODES), "-genv", "UCX_TLS", "tcp,self", "-n", str(2 * len(NODES))]
    good = True
    for way, settings in WAYS.items():
        try:
            ended = subprocess.run([*job, *settings, *program], timeout=150).returncode
            result = "good" if ended == 0 else f"FAILED, exit {ended}"
        except subprocess.TimeoutExpired:
            result = "FAILED, hung"
        print(f"two nodes, {way}: {result}", flush=True)
        good = good and result == "good"
    for node in processes:
        node.kill()
    return 0 if good else 1


def main():
    if sys.argv[1] == "--inside":
        folder, *rest = sys.argv[2:]
        return inside(pathlib.Path(folder), *rest)
    for tool in ["ip", "unshare", "nsenter", "hostname"]:
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed (Debian: iproute2, util-linux, hostname)")
    allowed = subprocess.run(["unshare", "--net", "--mount", "--uts", "sh", "-c",
                              "ip link add tutti0 type veth peer name tutti1 && ip link add tutti2 type bridge && "
                              "mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm && hostname tutti-test"],
                             capture_output=True, text=True)
    if allowed.returncode != 0:
        skip("this system allows no namespaces: " + (allowed.stderr.strip() or f"exit {allowed.returncode}"))
    with tempfile.TemporaryDirectory(prefix="tutti-nodes-") as folder:
        process = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child",
                                    "--mount-proc", sys.executable, __file__, "--inside", folder, *sys.argv[1:]],
                                   start_new_session=True)
        try:
            return process.wait(timeout=400)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            sys.exit("FAILED: the job hung")


if __name__ == "__main__":
    sys.exit(main())
