#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tutti/backend/nccl.hpp compiles with the real headers of NCCL 2.19 to 2.26, as their packages bring them.

    header_versions.py [--download FOLDER] COMPILER ARGUMENT...

Headers are those of $TUTTI_NCCL_HEADERS, a folder that holds one folder for each version with nccl.h in it; with --download
pip gets the packages (1.5 GB once), and the headers stay in FOLDER. Where there are none the test is skipped, status 77.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

VERSIONS = ("2.19.3", "2.20.5", "2.21.5", "2.22.3", "2.23.4", "2.24.3", "2.25.1", "2.26.2")
SOURCE = "#include <tutti/backend/nccl.hpp>\n#include <tutti/backend/threads.hpp>\n" \
         "static_assert(tutti::Backend<tutti::NcclOn<tutti::Threads>>);\n" \
         "tutti::Storage<tutti::Cuda> f(tutti::NcclOn<tutti::Threads>& b) { return b.allocate_symmetric(8); }\n" \
         "tutti::Storage<tutti::Cuda> g(tutti::NcclOn<tutti::Threads>& b) { return b.allocate_registered(8); }\n"


def skip(text):
    print(f"SKIPPED: {text}")
    sys.exit(77)


def download(folder):
    for version in VERSIONS:
        target = folder / version / "nccl.h"
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as name:
            done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name,
                                   f"nvidia-nccl-cu12=={version}"], capture_output=True, text=True)
            wheels = list(pathlib.Path(name).glob("*.whl"))
            if done.returncode != 0 or not wheels:
                skip(f"pip cannot get nvidia-nccl-cu12 {version}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(zipfile.ZipFile(wheels[0]).read("nvidia/nccl/include/nccl.h"))
    return folder


def main():
    words = sys.argv[1:]
    if words[:1] == ["--download"]:
        folder, words = download(pathlib.Path(words[1])), words[2:]
    elif "TUTTI_NCCL_HEADERS" in os.environ:
        folder = pathlib.Path(os.environ["TUTTI_NCCL_HEADERS"])
    else:
        skip("TUTTI_NCCL_HEADERS names no folder with headers of NCCL by version. "
             "meson test --setup all backend/nccl_headers_downloaded gets them with pip")
    headers = sorted(folder.glob("*/nccl.h"))
    if not headers:
        print(f"{folder}/*/nccl.h: there are none. TUTTI_NCCL_HEADERS is a folder with one folder for each version")
        return 1
    failed = 0
    for header in headers:
        version = ".".join(re.search(rf"#define NCCL_{part}\s+(\d+)", header.read_text())[1] for part in ("MAJOR", "MINOR", "PATCH"))
        done = subprocess.run([*words, f"-isystem{header.parent}", "-fsyntax-only", "-x", "c++", "-"], input=SOURCE,
                              capture_output=True, text=True)
        print(f"NCCL {version}: {'compiles' if done.returncode == 0 else 'does NOT compile'}")
        if done.returncode != 0:
            print(done.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
