# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes on one machine, for tests and benchmarks of MPI: network namespaces with a cable between each and the
launcher's, each with a host name and a /dev/shm of its own. Nothing is left behind: namespaces end with their processes.
The launcher must be Hydra, which takes a command for ssh. Needs root, iproute2 and util-linux.
"""
import shutil
import subprocess
import sys
import time

SHARED_MEMORY = "mount -t tmpfs tmpfs /dev/shm"


def slow_down(device, rate):
    """The words with which what leaves a device is slowed down to a rate, as tc spells it, by a token bucket: a small one,
    since what a link has not used is not sent faster later."""
    return ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]


def why_not(rate=None):
    """Why this system allows no such nodes; empty where it does."""
    for tool in ["ip", "unshare", "nsenter", "hostname"] + ([] if rate is None else ["tc"]):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian: iproute2, util-linux, hostname)"
    slowly = "" if rate is None else f"{' '.join(slow_down('tutti0', rate))} && "
    allowed = subprocess.run(["unshare", "--net", "--mount", "--uts", "sh", "-c",
                              "ip link add tutti0 type veth peer name tutti1 && ip link add tutti2 type bridge && "
                              f"{slowly}mount -t sysfs sysfs /sys && {SHARED_MEMORY} && hostname tutti-test"],
                             capture_output=True, text=True)
    if allowed.returncode != 0:
        return "this system allows no such namespaces: " + (allowed.stderr.strip() or f"exit {allowed.returncode}")
    return ""


def command_inside(script, *arguments):
    """What runs a script as the first process of namespaces of its own, in which Nodes may be made."""
    return ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, script,
            *arguments]


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Nodes:
    """Of a subnet like "10.231.77". `rate` slows down what leaves each; `memory` mounts a node's /dev/shm."""

    def __init__(self, folder, subnet, count, seconds, rate=None, memory=lambda number: SHARED_MEMORY):
        self.folder, self.processes, self.launcher = folder, [], f"{subnet}.254"
        self.addresses = [f"{subnet}.{number + 1}" for number in range(count)]
        ip("link", "set", "lo", "up")
        ip("link", "add", "switch", "type", "bridge")
        ip("addr", "add", f"{self.launcher}/24", "dev", "switch")
        ip("link", "set", "switch", "up")
        for number, address in enumerate(self.addresses):
            ready = folder / f"ready{number}"
            # MPI finds its network in /sys.
            node = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "sh", "-c",
                                     f"mount -t sysfs sysfs /sys && {memory(number)} && "
                                     f"hostname node{number} && touch {ready} && exec sleep {seconds}"])
            self.processes.append(node)
            (folder / address).write_text(str(node.pid))
            while not ready.exists():
                if node.poll() is not None:
                    sys.exit(f"FAILED: node {number} did not start")
                time.sleep(0.01)
            ip("link", "add", f"port{number}", "type", "veth", "peer", "name", f"cable{number}")
            ip("link", "set", f"port{number}", "master", "switch", "up")
            ip("link", "set", f"cable{number}", "netns", str(node.pid))
            for words in [["ip", "link", "set", "lo", "up"], ["ip", "addr", "add", f"{address}/24", "dev", f"cable{number}"],
                          ["ip", "link", "set", f"cable{number}", "up"]] + \
                    ([] if rate is None else [slow_down(f"cable{number}", rate)]):
                subprocess.run(["nsenter", "--net", "--target", str(node.pid), *words], check=True)

    def launcher_words(self, ranks_of_node):
        """Behind mpiexec. Ranks of different nodes must not find each other's memory, which they could on one machine."""
        # The launcher reaches a node by what it takes for ssh: HOST COMMAND...
        shell = self.folder / "enter"
        shell.write_text("#!/bin/sh\n"
                         "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
                         f"pid=$(cat {self.folder}/$1); shift\n"
                         "exec nsenter --net --mount --uts --target \"$pid\" sh -c \"$*\"\n")
        shell.chmod(0o755)
        return ["-localhost", self.launcher, "-launcher", "ssh", "-launcher-exec", str(shell),
                "-hosts", ",".join(f"{address}:{ranks_of_node}" for address in self.addresses), "-genv", "UCX_TLS", "tcp,self"]

    def sent(self):
        """Bytes that have left the first node."""
        text = subprocess.run(["nsenter", "--net", "--mount", "--target", str(self.processes[0].pid), "cat",
                               "/sys/class/net/cable0/statistics/tx_bytes"], check=True, capture_output=True, text=True)
        return int(text.stdout)

    def end(self):
        for node in self.processes:
            node.kill()
