#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs one compile-fail case: run.py SOURCE INCLUDE_FOLDER -- COMPILER..."""
import re
import subprocess
import sys


def main():
    source, include, _, *compiler = sys.argv[1:]
    text = open(source).read()
    expected = re.findall(r"^// Expect: (.+)$", text, re.M)
    limit = re.search(r"^// Lines: (\d+)$", text, re.M)
    if not expected or "TUTTI_BAD" not in text:
        sys.exit(f"{source}: needs '// Expect: <regex>' and a part under #ifdef TUTTI_BAD")
    flags = ["-std=c++20", "-fsyntax-only", "-I" + include]
    if re.search(r"^// Needs: mpi$", text, re.M):
        found = subprocess.run(["pkg-config", "--cflags", "mpich"], capture_output=True, text=True)
        if found.returncode != 0:
            print("skipped: MPICH is not installed")
            return 77
        flags += found.stdout.split()

    good = subprocess.run(compiler + flags + [source], capture_output=True, text=True)
    if good.returncode != 0:
        print(f"{source} must compile without TUTTI_BAD:\n{good.stderr}")
        return 1
    bad = subprocess.run(compiler + flags + ["-DTUTTI_BAD", source], capture_output=True, text=True)
    lines = bad.stderr.splitlines()
    problems = []
    if bad.returncode == 0:
        problems.append("it compiles with TUTTI_BAD")
    problems += [f"the diagnostics do not match: {e}" for e in expected if not re.search(e, bad.stderr)]
    if limit and len(lines) > int(limit[1]):
        problems.append(f"{len(lines)} lines of diagnostics, at most {limit[1]} are allowed")
    print("\n".join([f"{source}: {p}" for p in problems] + lines))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
