#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs an example and compares what it prints with the recorded text: run_example.py EXPECTED -- COMMAND..."""
import difflib
import os
import subprocess
import sys


def main():
    expected, _, *command = sys.argv[1:]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(result.stdout, end="")
    if result.returncode != 0:
        print(f"ended with {result.returncode}")
        return 1
    if not os.path.exists(expected):
        return 0
    with open(expected) as file:
        want = file.read()
    if result.stdout == want:
        return 0
    print("\n".join(difflib.unified_diff(want.splitlines(), result.stdout.splitlines(), expected, "printed", lineterm="")))
    return 1


if __name__ == "__main__":
    sys.exit(main())
