#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The check scripts see what they promise to see: each is run on a small repository in which one thing is wrong."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEAD = "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n#pragma once\n/// @file\n/// For this test.\n\n"
SOUND = {
    "include/tutti/config.hpp": HEAD,
    "include/tutti/version.hpp": HEAD + "#include <tutti/config.hpp>\n",
    "include/tutti/core/a.hpp": HEAD + "#include <tutti/version.hpp>\n\n#include <cstdint>\n// #include <mpi.h>\n"
                                       "/*\n#include <mpi.h>\n*/\ninline char const* text = \"// /* \";\n",
    "include/tutti/graph/b.hpp": HEAD + "#include <tutti/core/a.hpp>\n#undef TUTTI_ISA_BODY\n"
                                        "#define TUTTI_ISA_BODY <tutti/graph/b.inl>\n",
    "include/tutti/graph/b.inl": HEAD.replace("#pragma once\n", ""),
    "include/tutti/exec/isa/foreach.inl": HEAD.replace("#pragma once\n", "") + "#include TUTTI_ISA_BODY\n",
    "include/tutti/comm.hpp": HEAD + "#include <tutti/core/a.hpp>\n",
    "include/tutti/tutti.hpp": HEAD + "#include <tutti/core/a.hpp>\n",
    "include/tutti/graph.hpp": HEAD + "#include <tutti/graph/b.hpp>\n",
    "tests/core/a.cpp": "int a;\n",
    "tests/graph/b.cpp": "int b;\n",
    "tests/core/meson.build": "tests += [{'folder': 'core', 'sources': ['a.cpp']}]\n# 'c.cpp'\n",
    "tests/graph/meson.build": "tests += [{'folder': 'graph', 'sources': ['b.cpp']}]\n",
    "tests/core/c.cpp": "// Covers: <tutti/core/a.hpp>\nint c;\n",
    "meson.build": "",
    "README.md": "Text.\n\n<!-- tests/core/a.cpp -->\n```cpp\nint a;\n```\n\n1. One\n   ```sh\n   ls\n   ```\n",
}
A, PAGE = "include/tutti/core/a.hpp", "README.md"
HIDDEN = "#include <tutti/graph/b.hpp>\n"
NAMED = "<!-- tests/core/a.cpp -->\n"

# script, file, text added to it, what the script must say
WRONG = [
    ("check_layers", A, HIDDEN, "core may not include graph"),
    ("check_layers", A, "/**/ " + HIDDEN, "core may not include graph"),
    ("check_layers", A, "#/* */include/* */<tutti/graph/b.hpp>\n", "core may not include graph"),
    ("check_layers", A, "#inc\\\nlude <tutti/graph/b.hpp>\n", "core may not include graph"),
    ("check_layers", A, "%:include <tutti/graph/b.hpp>\n", "core may not include graph"),
    ("check_layers", A, "int i = 1'000; " + "\n" + HIDDEN, "core may not include graph"),
    ("check_layers", A, "#include < mpi.h>\n", "without macros"),
    ("check_layers", A, "#define H <mpi.h>\n#include H\n", "without macros"),
    ("check_layers", A, "#include TUTTI_ISA_BODY\n", "without macros"),
    ("check_layers", A, "#define TUTTI_ISA_BODY <tutti/graph/b.inl>\n", "core may not include graph"),
    ("check_layers", A, "#include \"b.hpp\"\n", "without macros"),
    ("check_layers", A, "#include <tutti/core/../graph/b.hpp>\n", "dots that lead elsewhere"),
    ("check_layers", A, "#include <./mpi.h>\n", "dots that lead elsewhere"),
    ("check_layers", A, "#include </usr/include/mpi.h>\n", "without macros"),
    ("check_layers", A, "#include_next <mpi.h>\n", "without macros"),
    ("check_layers", A, "import <mpi.h>;\n", "without macros"),
    ("check_layers", A, "#include <mpi.h>\n", "its home is backend/mpi"),
    ("check_layers", A, "#include <mpi-ext.h>\n", "its home is backend/mpi"),
    ("check_layers", A, "#include <x86/mpi.h>\n", "gives this header no home"),
    ("check_layers", A, "#include <zmq.h>\n", "gives this header no home"),
    ("check_layers", "include/tutti/config.hpp", HIDDEN, "config.hpp may not include graph"),
    ("check_layers", "include/tutti/version.hpp", "#include <mpi.h>\n", "its home is backend/mpi"),
    ("check_layers", "include/tutti/core/new.h", HIDDEN, "only .hpp, .inl and .cuh"),
    ("check_layers", "include/other.hpp", HIDDEN, "only .hpp, .inl and .cuh"),
    ("check_layers", "include/tutti/elsewhere/a.hpp", "", "belongs to no layer"),
    ("check_headers", A, "#include <iostream> // because\n", "<iostream> is expensive"),
    ("check_headers", A, "/**/#include <iostream>\n", "<iostream> is expensive"),
    ("check_headers", "include/tutti/core/d.hpp", HEAD, "tutti/core/d.hpp is not listed"),
    ("check_headers", "include/tutti/core/d.hpp", HEAD, "include/tutti/core/d.hpp: no test"),
    ("check_headers", "include/tutti/core/d.hpp", "", "the SPDX line is missing"),
    ("check_headers", "tests/core/a.cpp", 'TEST_CASE("x") {}\nTEST_CASE("y") {}\nTEST_CASE(\n    "x") {}\n', "is taken by tests/core/a.cpp"),
    ("check_headers", "tests/graph/e.cpp", "// Covers: <tutti/graph/b.hpp>\n", "nothing compiles it"),
    ("check_docs", PAGE, "```cpp\nint a;\n```\n", "C++ block without"),
    ("check_docs", PAGE, NAMED + "```cpp\nint b;\n```\n", "does not stand in"),
    ("check_docs", PAGE, "1. One\n   ```cpp\n   int b;\n   ```\n", "C++ block without"),
    ("check_docs", PAGE, "- ```cpp\n  int b;\n  ```\n", "C++ block without"),
    ("check_docs", PAGE, "> ```cpp\n> int b;\n> ```\n", "C++ block without"),
    ("check_docs", PAGE, "~~~cpp\nint b;\n~~~\n", "C++ block without"),
    ("check_docs", PAGE, "````C++\nint b;\n```\n````\n", "C++ block without"),
    ("check_docs", PAGE, "``` {.cxx}\nint b;\n```\n", "C++ block without"),
    ("check_docs", PAGE, "```\nint b;\n```\n", "C++ block without"),
    ("check_docs", PAGE, NAMED + "```cpp\n```\n", "the block is empty"),
    ("check_docs", PAGE, NAMED + "```cpp\nint a;\n", "has no end"),
    ("check_docs", PAGE, "<!-- tests/core/c.cpp -->\n```cpp\nint c;\n```\n", "is not a source that a meson.build"),
    ("check_docs", PAGE, "<!-- tests/core/meson.build -->\n```cpp\n# 'c.cpp'\n```\n", "is not a source that a meson.build"),
    ("check_docs", PAGE, "[there](docs/nowhere.md)\n", "leads nowhere"),
    ("check_format", A, "int b;\r\n", "carriage returns"),
    ("check_format", PAGE, "Text.\r\n", "carriage returns"),
    ("check_format", A, "int b; \n", "blanks at the end"),
    ("check_format", A, "\tint b;\n", "a tab"),
    ("check_format", A, "int b;", "no newline"),
    ("check_format", A, "int " + 120 * "b" + ";\n", "125 columns"),
]


def run(folder, script, *arguments):
    return subprocess.run([sys.executable, str(folder / "scripts" / (script + ".py")), *arguments],
                          capture_output=True, text=True)


def main():
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "docs").mkdir()
        architecture = (ROOT / "docs" / "architecture.md").read_text()
        tables = architecture[architecture.index("<!-- layers: begin"):architecture.index("<!-- vendors: end")]
        (folder / "docs" / "architecture.md").write_text(tables + "<!-- vendors: end -->\n")
        for path, text in SOUND.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        run(folder, "check_headers", "--fix")
        for script in "check_layers", "check_headers", "check_docs", "check_format":
            done = run(folder, script)
            if done.returncode != 0:
                problems.append(f"{script} refuses a sound repository:\n{done.stdout}{done.stderr}")
        for script, path, text, expected in WRONG:
            file = folder / path
            before = file.read_bytes() if file.exists() else None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((before or b"") + text.encode())
            done = run(folder, script)
            if done.returncode == 0 or expected not in done.stdout:
                problems.append(f"{script} does not say \"{expected}\" of {path} with {text!r}:\n{done.stdout}{done.stderr}")
            file.unlink() if before is None else file.write_bytes(before)
    print("\n".join(problems) if problems else f"{len(WRONG)} mistakes are seen")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
