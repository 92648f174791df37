#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several test sources as one: join_tests.py OUTPUT SOURCE...

Most of the time of a test's compilation goes to headers and to templates that its neighbours need as well. Here they are
paid once. What stands before a source's first line of code (comments, includes, macros) stays outside of any namespace;
the rest goes into a namespace of its own, so that names of two sources never meet. Lines keep their numbers and files.

A source that must stand alone - it replaces operator new, or specialises a template of std - is compiled apart.
"""

import pathlib
import sys


def split(path, lines):
    """The index of the first line of code."""
    depth, continued, comment = 0, False, False
    for at, line in enumerate(lines):
        text = line.strip()
        if comment:
            comment = "*/" not in text
        elif continued or text.startswith("#"):
            word = text.lstrip("#").strip()
            if not continued and word.startswith("if"):
                depth += 1
            if not continued and word.startswith("endif"):
                depth -= 1
            continued = text.endswith("\\")
        elif text.startswith("/*"):
            comment = "*/" not in text
        elif text and not text.startswith("//"):
            if depth:
                sys.exit(f"{path}:{at + 1}: code inside an #if that begins among the includes. Compile this source apart")
            return at
    sys.exit(f"{path}: no code")


def main():
    output, sources = pathlib.Path(sys.argv[1]), sys.argv[2:]
    parts = ["// Made by scripts/join_tests.py."]
    for source in sources:
        lines = pathlib.Path(source).read_text().splitlines()
        at = split(source, lines)
        name = "joined_" + "".join(c if c.isalnum() else "_" for c in pathlib.Path(source).stem)
        parts += [f'#line 1 "{source}"', *lines[:at], f"namespace {name} {{", f'#line {at + 1} "{source}"', *lines[at:],
                  f"}}  // namespace {name}"]
    output.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
