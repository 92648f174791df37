#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every C++ block of README.md and docs/ must stand, line for line, in a file that the build compiles.

The file is named in an HTML comment on the line before the block:  <!-- examples/010_tensor.cpp -->
Indentation that all lines share does not count. Local links must lead somewhere.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILED = ("examples", "tests", "benchmarks", "include")


def dedent(lines):
    margin = min((len(l) - len(l.lstrip()) for l in lines if l.strip()), default=0)
    return [l[margin:].rstrip() for l in lines]


def occurs(block, lines):
    block = dedent(block)
    for start in range(len(lines) - len(block) + 1):
        if dedent(lines[start:start + len(block)]) == block:
            return True
    return False


def main():
    errors, count = [], 0
    pages = [p for p in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))] if p.exists()]
    for page in pages:
        where = page.relative_to(ROOT).as_posix()
        lines = page.read_text().splitlines()
        number = 0
        while number < len(lines):
            fence = re.match(r"```(\w*)", lines[number])
            if not fence:
                for target in re.findall(r"\]\(([^)#\s]+)", lines[number]):
                    if "://" not in target and not (page.parent / target).exists():
                        errors.append(f"{where}:{number + 1}: the link to {target} leads nowhere")
                number += 1
                continue
            end = number + 1
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            if fence[1] in ("cpp", "c++", "cxx"):
                count += 1
                named = re.match(r"<!--\s*(\S+)\s*-->", lines[number - 1] if number else "")
                if not named:
                    errors.append(f"{where}:{number + 1}: C++ block without <!-- path of the compiled file --> before it")
                elif not named[1].startswith(COMPILED) or not (ROOT / named[1]).exists():
                    errors.append(f"{where}:{number}: {named[1]} is not a compiled file of the repository")
                elif not occurs(lines[number + 1:end], (ROOT / named[1]).read_text().splitlines()):
                    errors.append(f"{where}:{number + 1}: the block does not stand in {named[1]}")
            number = end + 1
    print("\n".join(errors) if errors else f"{count} C++ blocks in {len(pages)} pages, all compiled")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
