#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles every header as if it were alone, many in one source: most of the time goes to what headers include.

    chain_headers.py chains FOLDER[:FOLDER] HEADER...  prints chains of headers, a chain a line, from the lowest to the highest;
                                                       the folders are where the compiler looks for them, in its order
    chain_headers.py source OUTPUT HEADER...           writes the source that compiles a chain

A header may follow another in a source where it includes that one itself, directly or not, and is not included by it:
what is declared before its own text is then what it includes, as if it stood alone. A matching gives each header at most one successor, the dearest
header first (its cost is what it includes): in any such matroid this leaves the cheapest ends of chains.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'\s*#\s*include\s*[<"](tutti/[^>"]+)[>"]')
NO_VENDOR = """#if defined(MPI_VERSION) || defined(MPI_INCLUDED) || defined(NCCL_H_) || defined(NCCL_MAJOR) || \\
    defined(__CUDA_RUNTIME_H__) || defined(CUDART_VERSION)
#error "{header} drags in a vendor's header"
#endif
"""
CHECKS = """#include <{header}>
#include <{header}>
{vendor}#if defined(min) || defined(max) || defined(major) || defined(minor)
#error "{header} leaves a macro that collides with common names"
#endif
"""
MAY_INCLUDE_VENDORS = ("tutti/backend/mpi", "tutti/backend/nccl")


def included(path):
    """What a header includes: always and before its own text, and at all. An include within an #if, or below code, is of
    the second kind alone."""
    depth, first, everything, comment, code = 0, set(), set(), False, False
    for line in path.read_text().splitlines():
        text = line.strip()
        if comment or text.startswith("/*"):
            comment = "*/" not in text
        elif text.startswith("#"):
            word = text[1:].lstrip()
            depth += word.startswith("if") - word.startswith("endif")
            if match := INCLUDE.match(line):
                everything.add(match[1])
                if depth == 0 and not code:
                    first.add(match[1])
        elif text and not text.startswith("//"):
            code = True
    return first, everything


def chains(folders, headers):
    direct, lines = {}, {}

    def read(header):
        if header not in direct:
            path = next((path for folder in folders if (path := folder / header).exists()), None)
            direct[header] = included(path) if path else (set(), set())
            lines[header] = len(path.read_text().splitlines()) if path else 0
        return direct[header]

    def closure(header, kind):
        found, left = set(), [header]
        while left:
            for other in read(left.pop())[kind]:
                if other not in found:
                    found.add(other)
                    left.append(other)
        return found

    first = {header: closure(header, 0) for header in headers}
    everything = {header: closure(header, 1) for header in headers}
    cost = {header: sum(lines[part] for part in first[header] | {header}) for header in headers}
    above = {header: [other for other in headers if header in first[other] and other not in everything[header]]
             for header in headers}
    below = {}  # of a header: the one before it

    def place(header, seen):
        for other in above[header]:
            if other not in seen:
                seen.add(other)
                if other not in below or place(below[other], seen):
                    below[other] = header
                    return True
        return False

    for header in sorted(headers, key=lambda name: (-cost[name], name)):
        place(header, set())
    for last in sorted(set(headers) - set(below.values())):
        chain = [last]
        while chain[-1] in below:
            chain.append(below[chain[-1]])
        yield chain[::-1]


def main():
    task, place, *headers = sys.argv[1:]
    if task == "chains":
        sys.setrecursionlimit(10000)
        for chain in chains([pathlib.Path(folder) for folder in place.split(":")], headers):
            print(" ".join(chain))
    elif task == "source":
        text = "// Made by scripts/chain_headers.py: each header as if alone, and twice. Linked with the other chains, so that a\n" \
               "// function without inline is found.\n"
        for header in headers:
            vendor = "" if header.startswith(MAY_INCLUDE_VENDORS) else NO_VENDOR.format(header=header)
            text += CHECKS.format(header=header, vendor=vendor)
        pathlib.Path(place).write_text(text)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
