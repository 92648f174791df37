#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of the format that every tool agrees on: 120 columns of C++, no tabs, and line ends without blanks and
carriage returns.

clang-format with the repository's settings does the rest, on the lines one touches (`git clang-format`): version 14
cannot place requires clauses, so its opinion of whole files is no test.

    check_format.py          check
    check_format.py --fix    mend what can be mended; long lines of C++ through clang-format, statement by statement
"""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "tests", "examples", "benchmarks", "scripts", "docs")
SUFFIXES = (".hpp", ".cpp", ".inl", ".cuh", ".cu", ".c", ".h", ".mjs", ".rs", ".py", ".md", ".build", ".in")
SOURCES = (".hpp", ".cpp", ".inl", ".cuh", ".cu", ".c")
FREE = ("tests/golden/",)


def mend(file, formatter):
    text = "\n".join(line.rstrip() if file.suffix != ".md" else line for line in file.read_text().splitlines()) + "\n"
    file.write_text(text)
    if file.suffix not in (".hpp", ".cpp", ".inl") or not formatter:
        return
    # From the end, so that earlier line numbers stay true.
    long = [number for number, line in enumerate(text.splitlines(), 1) if len(line) > 120 and "http" not in line]
    for number in reversed(long):
        subprocess.run([formatter, "-i", "--style=file", f"--lines={number}:{number}", str(file)],
                       check=True, cwd=ROOT)


def main():
    fix = sys.argv[1:] == ["--fix"]
    if sys.argv[1:] and not fix:
        sys.exit(__doc__)
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    errors, count = [], 0
    files = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*")) if p.suffix in SUFFIXES and p.is_file()]
    files += [p for p in sorted(ROOT.iterdir()) if p.suffix in SUFFIXES or p.name in ("tutti", "meson_options.txt")]
    for file in files:
        where = file.relative_to(ROOT).as_posix()
        if where.startswith(FREE):
            continue
        count += 1
        if fix:
            mend(file, formatter)
        text = file.read_bytes().decode()
        if "\r" in text:
            errors.append(f"{where}: carriage returns; lines end with a newline alone")
            text = text.replace("\r\n", "\n")
        if text and not text.endswith("\n"):
            errors.append(f"{where}: no newline at the end")
        for number, line in enumerate(text.splitlines(), 1):
            if file.suffix in SOURCES and len(line) > 120 and "http" not in line:
                errors.append(f"{where}:{number}: {len(line)} columns, at most 120")
            if "\t" in line:
                errors.append(f"{where}:{number}: a tab")
            if line != line.rstrip() and file.suffix != ".md":
                errors.append(f"{where}:{number}: blanks at the end")
    print("\n".join(errors) if errors else f"{count} files in form")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
