#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares every include of every file below include/ with the tables of docs/architecture.md."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include" / "tutti"
FREE = {"config.hpp", "version.hpp"}  # for every folder; they include none of tutti but each other
STAMP = "exec/isa/foreach.inl"         # the one file that includes what a macro names: TUTTI_ISA_BODY

QUOTED_OR_COMMENT = re.compile(
    r'(R"([^ ()\\]{0,16})\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/', re.S)
DIRECTIVE = re.compile(
    r"^\s*(?:(?:#|%:)\s*(include\w*|import|embed|define\s+TUTTI_ISA_BODY)\b|(?:export\s+)?(import)\b)(.*)$", re.M)
PLAIN = re.compile(r"<((?:[\w+-][\w.+-]*/)*[\w+-][\w.+-]*)>")


def includes(text):
    """(line, directive, what it names) for everything that brings in a file, however it is written."""
    text = re.sub(r"(?:.*\\\n)+.*", lambda m: m[0].replace("\\\n", "") + "\n" * m[0].count("\n"), text)
    plain = lambda m: m[1] and not m[1].startswith("R")  # what a raw string holds is no directive
    text = QUOTED_OR_COMMENT.sub(lambda m: m[1] if plain(m) else re.sub(r"[^\n]+", " ", m[0]), text)
    for found in DIRECTIVE.finditer(text):
        yield text.count("\n", 0, found.start(3)) + 1, found[1] or found[2], found[3].strip()


def table(text, name):
    """Rows of the table between the markers NAME: begin and NAME: end, as lists of the backticked words of each cell."""
    found = re.search(rf"<!-- {name}: begin -->(.*?)<!-- {name}: end -->", text, re.S)
    if not found:
        sys.exit(f"docs/architecture.md: the table between '{name}: begin' and '{name}: end' is missing")
    rows = [line.strip().strip("|").split("|") for line in found[1].strip().splitlines()][2:]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]


def closure(layers):
    """What each layer may include, transitively; single headers pass nothing on."""
    def reach(name, seen):
        for other in layers[name]:
            if other not in seen:
                seen.add(other)
                if other in layers:
                    reach(other, seen)
        return seen
    return {name: reach(name, {name}) for name in layers}


def layer_of(path, layers):
    """The layer of a path below include/tutti: the longest row that is a prefix. io.hpp belongs to io."""
    stem = path.rsplit(".", 1)[0]
    best = None
    for name in layers:
        if stem == name or stem.startswith(name + "/"):
            if best is None or len(name) > len(best):
                best = name
    return best


def main():
    text = (ROOT / "docs" / "architecture.md").read_text()
    layers = {row[0][0]: row[1] for row in table(text, "layers")}
    vendors = [(prefix, row[1]) for row in table(text, "vendors") for prefix in row[0]]
    errors = []
    for name, allowed in layers.items():
        for other in allowed:
            if other not in layers and not other.endswith(".hpp"):
                errors.append(f"docs/architecture.md: layer {name} names {other}, which has no row")
    may = closure(layers) if not errors else {}
    count = 0
    for file in sorted(INCLUDE.parent.rglob("*")) if not errors else []:
        where = file.relative_to(ROOT).as_posix()
        if file.is_dir() or where in ("include/meson.build", "include/tutti/federate/protocol.capnp",
                                        "include/tutti/io/onnx/onnx.proto"):
            continue
        if file.suffix not in (".hpp", ".inl", ".cuh") or not where.startswith("include/tutti/"):
            errors.append(f"{where}:1: only .hpp, .inl and .cuh files below include/tutti are installed and checked")
            continue
        path = file.relative_to(INCLUDE).as_posix()
        layer = layer_of(path, layers)
        if layer is None and path not in FREE:
            errors.append(f"{where}:1: belongs to no layer of docs/architecture.md; add a row or move the file")
            continue
        allowed = may[layer] if layer else FREE
        for number, directive, what in includes(file.read_text()):
            count += 1
            plain = PLAIN.fullmatch(what)
            if path == STAMP and what == "TUTTI_ISA_BODY":
                continue
            if directive.startswith(("include_", "import", "embed")) or not plain:
                errors.append(f"{where}:{number}: {directive} {what}: write #include <the/full/path>, without macros, "
                              f"quotes, blanks and dots that lead elsewhere")
                continue
            target = plain[1]
            if target.startswith("tutti/"):
                target = target[len("tutti/"):]
                other = layer_of(target, layers)
                if target in FREE or target in allowed or other in allowed:
                    continue
                errors.append(f"{where}:{number}: <tutti/{target}>: {layer or path} may not include "
                              f"{other or 'it: no layer'}; move what is needed down, or change the table of "
                              f"docs/architecture.md")
                continue
            rows = [homes for prefix, homes in vendors if target.startswith(prefix)]
            if not rows and not re.fullmatch(r"[a-z0-9_]+", target):
                errors.append(f"{where}:{number}: <{target}>: docs/architecture.md gives this header no home; add a row")
            for homes in rows:
                if homes and not any((path + "/").startswith(home + "/") or layer == home for home in homes):
                    errors.append(f"{where}:{number}: <{target}>: its home is {', '.join(homes)}")
    print("\n".join(errors) if errors else f"{count} includes, all downwards")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
