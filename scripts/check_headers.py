#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that include/meson.build lists every header, that umbrellas are complete, that every header has a test and
every test a header, that no two tests have one title, and that cheap folders include nothing expensive.

    check_headers.py          check
    check_headers.py --fix    rewrite include/meson.build and the umbrellas' include blocks from the tree
"""
import fnmatch
import pathlib
import re
import sys

from check_layers import includes

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
TUTTI = INCLUDE / "tutti"
TESTS = ROOT / "tests"

UMBRELLAS = {
    "tutti.hpp": ["core", "reflect", "tensor", "exec", "comm", "backend/threads"],
    "comm.hpp": ["core", "reflect", "tensor", "exec", "comm"],
    "kernel/cpu.hpp": ["kernel"],
    "graph.hpp": ["tensor", "graph"],
    "graph/op/table.hpp": ["graph/op"],
    "io.hpp": ["io"],
    "data.hpp": ["data"],
    "nn.hpp": ["nn"],
    "optim.hpp": ["optim"],
    "parallel.hpp": ["parallel"],
    "infer.hpp": ["infer"],
    "train.hpp": ["train"],
    "plan.hpp": ["plan"],
}
# Headers that come in through others (the vector layer through the kernels, shared memory through the backends), or by the
# user's own include, because few programs need them.
INDIRECT = ("core/block", "core/hash", "core/setting", "exec/child_process", "exec/context", "exec/isa", "exec/cuda", "exec/memory_limit", "exec/scratch", "exec/team", "kernel/block_product", "kernel/cpu/block_product", "kernel/cuda", "graph/cuda", "graph/iree", "graph/stablehlo", "graph/onnx", "io/onnx", "infer/onnx", "train/cuda", "train/iree", "train/onnx", "infer/cuda", "infer/http", "watch", "comm/bandwidth",
            "comm/decorator", "comm/device_choice", "comm/fault_injector", "comm/fault_plan", "comm/flight_dump",
            "comm/flight_json", "comm/json_members", "comm/object_parts", "comm/objects", "comm/shared",
            "comm/statistics", "comm/trace", "comm/window", "tensor/dlpack", "tensor/mt19937", "tensor/random")
CHEAP = ("core", "reflect", "tensor", "exec", "comm", "backend/threads", "kernel", "graph")
EXPENSIVE = ("<functional>", "<iostream>", "<thread>", "<ranges>", "<regex>")
# Test folders that mirror no folder of the library; nor do instances of laws (laws*.cpp).
FREE_TESTS = ("support", "cuda", "headers", "compile_fail", "consumer", "concepts", "examples", "golden")


def below(folder):
    """The headers of a folder and its sub-folders, relative to include/tutti."""
    paths = (p.relative_to(TUTTI).as_posix() for p in sorted((TUTTI / folder).rglob("*.hpp")))
    return [p for p in paths if not p.startswith(INDIRECT)]


def members(umbrella):
    found = []
    for folder in UMBRELLAS[umbrella]:
        gate = folder + ".hpp"
        if "/" in folder and folder != "graph/op" and (TUTTI / gate).exists():
            found.append(gate)
        else:
            found += [p for p in below(folder) if folder == "graph/op" or not p.startswith("graph/op/")]
    return [p for p in found if p not in UMBRELLAS]


def listing():
    """The text of include/meson.build."""
    folders = {}
    for path in sorted(TUTTI.rglob("*")):
        if path.suffix in (".hpp", ".inl", ".cuh", ".capnp", ".proto"):
            folder = path.relative_to(TUTTI).parent.as_posix()
            folders.setdefault("" if folder == "." else folder, []).append(path.relative_to(INCLUDE).as_posix())
    lines = ["# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception",
             "# Every header of the library, one list per folder: what is installed, tested alone, and gathered by umbrellas.",
             "# scripts/check_headers.py compares it with the tree; with --fix it writes it.", ""]
    entries = []
    for folder, paths in sorted(folders.items()):
        name = "headers_" + (folder.replace("/", "_") or "top")
        lines += [f"{name} = ["] + [f"  '{p}'," for p in sorted(paths)] + ["]"]
        entries.append(f"  '{folder or 'top'}': {name},")
    lines += ["", "headers = {"] + entries + ["}", "foreach folder, list : headers",
              "  install_headers(list, preserve_path: true)", "endforeach"]
    return "\n".join(lines) + "\n"


def reachable(path, seen):
    for _, _, what in includes((TUTTI / path).read_text()):
        target = what[len("<tutti/"):-1]
        if what.startswith("<tutti/") and target not in seen and (TUTTI / target).exists():
            seen.add(target)
            reachable(target, seen)
    return seen


def block(umbrella):
    """The umbrella's includes, each header after those that it includes: a compiler then tells of an error in one of
    them with two lines of "In file included from", not with ten."""
    wanted, order, seen = set(members(umbrella)), [], set()

    def visit(path):
        if path in seen:
            return
        seen.add(path)
        for _, _, what in includes((TUTTI / path).read_text()):
            target = what[len("<tutti/"):-1]
            if what.startswith("<tutti/") and (TUTTI / target).exists():
                visit(target)
        if path in wanted:
            order.append(path)

    for path in sorted(wanted):
        visit(path)
    if umbrella == "graph/op/table.hpp":  # which each operation includes: any order is good
        order.sort()
    return "\n".join(f"#include <tutti/{p}>" for p in order)


BLOCK = re.compile(r"(?:^#include <tutti/[^>]+>\n)+", re.M)


def fix():
    (INCLUDE / "meson.build").write_text(listing())
    for umbrella in UMBRELLAS:
        file = TUTTI / umbrella
        if not file.exists():
            continue
        lines = block(umbrella)
        text = file.read_text()
        new, count = BLOCK.subn(lines + "\n" if lines else "", text, count=1)
        if count == 0 and lines:
            new = text.rstrip("\n") + "\n\n" + lines + "\n"
        file.write_text(new)


def check():
    errors = []
    listed = (INCLUDE / "meson.build").read_text()
    if listed != listing():
        have = set(re.findall(r"'(tutti/[^']+)'", listed))
        want = set(re.findall(r"'(tutti/[^']+)'", listing()))
        errors += [f"include/meson.build: {p} is not listed" for p in sorted(want - have)]
        errors += [f"include/meson.build: {p} does not exist" for p in sorted(have - want)]
        if have == want:
            errors.append("include/meson.build: not as scripts/check_headers.py --fix writes it")
    for umbrella in UMBRELLAS:
        if not (TUTTI / umbrella).exists():
            if members(umbrella):
                errors.append(f"include/tutti/{umbrella}: missing, its folder has headers")
            continue
        seen = reachable(umbrella, set())
        missing = [f"include/tutti/{umbrella}: does not reach <tutti/{p}>" for p in members(umbrella) if p not in seen]
        errors += missing
        if not missing and block(umbrella) not in (TUTTI / umbrella).read_text():
            errors.append(f"include/tutti/{umbrella}: not as scripts/check_headers.py --fix writes it")

    headers = {p for folder in sorted(TUTTI.iterdir()) if folder.is_dir()
               for p in (q.relative_to(TUTTI).as_posix() for q in sorted(folder.rglob("*.hpp")))}
    umbrellas = {p for p in headers if (TUTTI / p).with_suffix("").is_dir()}
    covered, titles = set(), {}
    build = "".join(file.read_text() for folder in (TESTS, ROOT / "examples") for file in folder.rglob("meson.build"))
    for test in sorted(TESTS.rglob("*.cpp")):
        path = test.relative_to(TESTS)
        free = path.parts[0] in FREE_TESTS or path.name.startswith("laws")
        mirror = path.with_suffix(".hpp").as_posix()
        if test.name not in build and f"'{test.stem}'" not in build:
            errors.append(f"tests/{path}: no meson.build names it, so nothing compiles it")
        for title in re.findall(r'TEST_CASE\(\s*"([^"]+)"', test.read_text()):
            # A folder's tests are one program, which refuses to start; one that is compiled alone does not notice.
            if title in titles:
                errors.append(f"tests/{path}: the title \"{title}\" is taken by tests/{titles[title]}")
            titles[title] = path
        named = re.findall(r"<tutti/([^>]+)>", " ".join(re.findall(r"^// Covers:(.*)$", test.read_text(), re.M)))
        errors += [f"tests/{path}: covers <tutti/{p}>, which does not exist" for p in named
                   if not (TUTTI / p).exists() and not fnmatch.filter(headers, p)]
        covered.update(*(fnmatch.filter(headers, p) or [p] for p in named))
        if free:
            continue
        # A contract and its bodies for the CPU share one test: kernel/gemm.hpp and kernel/cpu/gemm.hpp.
        twins = {mirror, mirror.replace("kernel/cpu/", "kernel/")}
        if not mirror.startswith("kernel/cuda/"):
            twins.add(mirror.replace("kernel/", "kernel/cpu/", 1))
        hit = {p for p in twins if p in headers}
        covered |= hit
        if not hit and not named and mirror not in ("version.hpp", "config.hpp"):
            errors.append(f"tests/{path}: no header of this name; rename it, or name what it tests: // Covers: <tutti/...>")
    missing = sorted(p for p in headers - covered - umbrellas)
    errors += [f"include/tutti/{p}: no test; write tests/{p[:-4]}.cpp, or name it in another: // Covers: <tutti/{p}>"
               for p in missing]

    for folder in CHEAP:
        for file in sorted((TUTTI / folder).rglob("*")):
            if file.suffix not in (".hpp", ".inl"):
                continue
            for number, _, what in includes(file.read_text()):
                if what in EXPENSIVE:
                    errors.append(f"include/tutti/{file.relative_to(TUTTI).as_posix()}:{number}: {what} is expensive to "
                                  f"compile for everybody who includes this folder; do without")
    for file in sorted(TUTTI.rglob("*")):
        if file.suffix in (".hpp", ".inl"):
            lines = file.read_text().splitlines()
            where = f"include/tutti/{file.relative_to(TUTTI).as_posix()}"
            if not lines or lines[0] != "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception":
                errors.append(f"{where}:1: the SPDX line is missing")
            if file.suffix == ".hpp" and "#pragma once" not in lines[:3]:
                errors.append(f"{where}:2: #pragma once is missing")
            if file.suffix == ".hpp" and not any(line.startswith("/// @file") for line in lines[:6]):
                errors.append(f"{where}:3: the comment /// @file is missing")
            if len(lines) > 400:
                errors.append(f"{where}: {len(lines)} lines, at most 400; split it")
    print("\n".join(errors) if errors else f"{len(headers)} headers listed, gathered and tested")
    return 1 if errors else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        fix()
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        sys.exit(check())
