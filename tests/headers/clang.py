#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The library and the trainer through clang, without a warning: g++ accepts what is no C++.

    clang.py COMPILE_COMMANDS SOURCE LIKE...   each SOURCE with the flags that g++ has for LIKE
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

SKIP = 77
NAMES = ["clang++-19", "clang++-20", "clang++-21", "clang++-18", "clang++"]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror",
            "-Wno-sign-conversion",          # which clang counts as conversion, and g++ does not
            "-Wno-deprecated-declarations"]  # libstdc++ 12 deprecates what its own stable_sort calls


def version(name):
    said = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", said)
    return int(found[1]) if found else 0


def main():
    compiler = next((name for name in NAMES if shutil.which(name) and version(name) >= 16), None)
    if compiler is None:
        print("SKIPPED: no clang++ of version 16 or later (Debian: clang-19)")
        sys.exit(SKIP)
    database, words = sys.argv[1], sys.argv[2:]
    entries = json.loads(pathlib.Path(database).read_text())
    failed = False
    for source, like in zip(words[::2], words[1::2]):
        entry = next(e for e in entries if (pathlib.Path(e["directory"]) / e["file"]).resolve() == pathlib.Path(like).resolve())
        flags, given = [], shlex.split(entry["command"])
        for i, word in enumerate(given):
            if word in ("-isystem", "-I", "-D"):
                flags += [word, given[i + 1]]
            elif re.match(r"-(I|D|isystem|std=|pthread)", word):
                flags.append(word)
        done = subprocess.run([compiler, "-fsyntax-only", *flags, *WARNINGS, pathlib.Path(source).resolve()],
                              cwd=entry["directory"])
        print(f"{compiler} {version(compiler)} reads {source}: {'good' if done.returncode == 0 else 'FAILED'}")
        failed |= done.returncode != 0
    sys.exit(1 if failed else 0)


main()
