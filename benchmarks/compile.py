#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What including the library costs a compiler.

An umbrella header is compared with a file that includes only the standard, Boost.Hana, system and instruction-set headers
that the umbrella's own files name: the ratio says what tutti itself adds. The trainer is compiled whole. Contenders take
turns; processor time of the compiler counts: medians, and the median of the rounds' ratios, because machines drift.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINER = "examples/train_gpt2.cpp"
LIMITED = ("tutti/comm.hpp", "tutti/tutti.hpp")


def pkg(*names):
    found = subprocess.run(["pkg-config", "--cflags", *names], capture_output=True, text=True)
    return shlex.split(found.stdout) if found.returncode == 0 else []


def run(command):
    """Seconds of processor time and megabytes at the peak of one compilation."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"FAILED: {shlex.join(command)}\n{errors[-3000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.monotonic() - began


def foreign_includes(compiler, flags, source):
    """Includes that are not tutti's and that this compiler reaches, of every tutti file that `source` reaches, in the order of
    first mention."""
    text = subprocess.run([*compiler, *flags, "-E", source], capture_output=True, text=True, check=True).stdout
    home = str(ROOT / "include" / "tutti") + "/"
    reached = list(dict.fromkeys(re.findall(r'^# \d+ "([^"]+)"', text, re.MULTILINE)))
    seen = {}
    for file in (file for file in reached if file.startswith(home)):
        for header in re.findall(r"^\s*#\s*include\s*<([^>]+)>", pathlib.Path(file).read_text(), re.MULTILINE):
            # Some are of other machines alone (wasm_simd128.h).
            if not header.startswith("tutti/") and any(file.endswith("/" + header) for file in reached):
                seen.setdefault(header)
    return list(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-trainer", action="store_true", help="leave out the whole trainer")
    parser.add_argument("--json", type=pathlib.Path, help="file for rows {name, ours, rival, ratio, unit}")
    args = parser.parse_args()
    compiler = shlex.split(args.compiler)
    flags = ["-std=c++20", f"-I{ROOT / 'include'}"]
    print(subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0])

    rows = []
    with tempfile.TemporaryDirectory(prefix="tutti-compile-") as folder:
        folder = pathlib.Path(folder)
        for umbrella in ("tutti/comm.hpp", "tutti/tutti.hpp", "tutti/kernel/cpu.hpp", "tutti/graph.hpp"):
            ours, rival = folder / "ours.cpp", folder / "rival.cpp"
            ours.write_text(f"#include <{umbrella}>\n")
            headers = foreign_includes(compiler, flags, str(ours))
            rival.write_text("".join(f"#include <{header}>\n" for header in headers))
            times = {ours: [], rival: []}
            for _ in range(args.rounds):
                for source in (ours, rival):
                    times[source].append(run([*compiler, *flags, "-fsyntax-only", str(source)])[0])
            a, b = statistics.median(times[ours]), statistics.median(times[rival])
            ratio = statistics.median(x / y for x, y in zip(times[ours], times[rival]))
            rows.append({"name": f"include {umbrella}", "ours": a, "rival": b, "ratio": ratio, "unit": "s"})
            limit = "; limit 1.30x" if umbrella in LIMITED else ""
            print(f"{umbrella:18} {a:6.2f} s, its {len(headers)} foreign headers alone {b:6.2f} s: {ratio:.2f}x{limit}")
        if not args.no_trainer:
            mpi = pkg("mpich") or pkg("ompi-cxx")
            command = [*compiler, *flags, "-O2", *(["-DTUTTI_WITH_MPI=1"] if mpi else []), *mpi, *pkg("fmt", "nlohmann_json", "CLI11", "libpcre2-8"),
                       "-c", str(ROOT / TRAINER), "-o", str(folder / "trainer.o")]
            seconds, megabytes, wall = run(command)
            rows.append({"name": f"compile {TRAINER}", "ours": seconds, "rival": 60, "ratio": 60 / seconds, "unit": "s"})
            rows.append({"name": f"memory to compile {TRAINER}", "ours": megabytes, "rival": 2000, "ratio": 2000 / megabytes, "unit": "MB"})
            print(f"{TRAINER} at -O2: {seconds:.1f} s of processor time ({wall:.1f} s on the clock), {megabytes:.0f} MB; limits 60 s, 2000 MB")
    if args.json:
        args.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
