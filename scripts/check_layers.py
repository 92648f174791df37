#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares every include below include/tutti with the tables of docs/architecture.md."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include" / "tutti"
FREE = {"config.hpp", "version.hpp"}


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
    for file in sorted(INCLUDE.rglob("*")) if not errors else []:
        if file.suffix not in (".hpp", ".inl", ".cuh"):
            continue
        path = file.relative_to(INCLUDE).as_posix()
        if path in FREE:
            continue
        where = f"include/tutti/{path}"
        layer = layer_of(path, layers)
        if layer is None:
            errors.append(f"{where}:1: belongs to no layer of docs/architecture.md; add a row or move the file")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*(?:include|define\s+TUTTI_ISA_BODY)\s*([<"])([^>"]+)[>"]', line)
            if not found:
                continue
            count += 1
            bracket, target = found.groups()
            if bracket == '"' or ".." in target:
                errors.append(f"{where}:{number}: \"{target}\": write the full path in angle brackets")
            elif target.startswith("tutti/"):
                target = target[len("tutti/"):]
                other = layer_of(target, layers)
                if target in FREE or target in may[layer] or other in may[layer]:
                    continue
                errors.append(f"{where}:{number}: <tutti/{target}>: {layer} may not include {other or 'it: no layer'}; "
                              f"move what is needed down, or change the table of docs/architecture.md")
            else:
                for prefix, homes in vendors:
                    if target.startswith(prefix) and not any((path + "/").startswith(home + "/") or layer == home
                                                            for home in homes):
                        errors.append(f"{where}:{number}: <{target}>: its home is {', '.join(homes)}")
    print("\n".join(errors) if errors else f"{count} includes, all downwards")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
