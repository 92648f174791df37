#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a header and its test, and registers both: new_header.py folder/name "What one gets by including it." """
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENSE = "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"


def main():
    if len(sys.argv) != 3 or not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)+", sys.argv[1]):
        sys.exit(__doc__)
    path, sentence = sys.argv[1], sys.argv[2]
    folder, name = path.rsplit("/", 1)
    header = ROOT / "include" / "tutti" / f"{path}.hpp"
    test = ROOT / "tests" / f"{path}.cpp"
    for file in (header, test):
        if file.exists():
            sys.exit(f"{file.relative_to(ROOT)} exists")
    layer = folder.split("/")[0]
    space = "tutti" if layer in ("core", "tensor", "comm") else f"tutti::{folder.split('/')[-1] if layer == 'backend' else layer}"
    header.parent.mkdir(parents=True, exist_ok=True)
    test.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(f"{LICENSE}\n#pragma once\n/// @file\n/// {sentence}\n\nnamespace {space} {{\n\n}}  // namespace {space}\n")
    test.write_text(f"{LICENSE}\n#include <tutti/{path}.hpp>\n\n#include \"support/catch.hpp\"\n\n"
                    f"TEST_CASE(\"{name}: say what holds\") {{ FAIL(\"write the test\"); }}\n")

    build = test.parent / "meson.build"
    if not build.exists():
        build.write_text(f"{LICENSE.replace('//', '#')}\ntests += [{{'folder': '{folder}', 'sources': ['{name}.cpp']}}]\n")
    else:
        text = build.read_text()
        new = re.sub(r"('sources':\s*\[)(\s*)", rf"\1\2'{name}.cpp', ", text, count=1)
        if new == text:
            print(f"add '{name}.cpp' to a row of {build.relative_to(ROOT)}")
        build.write_text(new)
    subprocess.run([sys.executable, str(ROOT / "scripts" / "check_headers.py"), "--fix"], check=True)
    print(f"{header.relative_to(ROOT)}\n{test.relative_to(ROOT)}\n{build.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
