#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the tests of CUDA code with nvcc and runs them on a GPU, on a machine that may have no network, no Meson and no
Catch2: those with CUDA's compiler, Python 3 and a folder that was prepared elsewhere.

    check_cuda.py                      build for the device of this machine, run, then compute-sanitizer on the kernels
    check_cuda.py --compile-only       build for every architecture that tutti supports, run nothing
    check_cuda.py --carry FOLDER       on a machine that has everything: copy there what the other one lacks
    check_cuda.py --from FOLDER ...    use such a folder

    --only WORD      programs whose name has this word           --jobs N      compilations at a time
    --out FOLDER     build folder (build-cuda)                   --seconds N   for everything, 600 unless given

It leaves FOLDER/report.json and prints the same as text. Status 0 when everything passed, 1 when something failed or no
time was left for it, 2 when this machine cannot do it.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
ARCHITECTURES = ("80", "90a")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# Folders below /usr/include that the other machine's compiler has.
SYSTEM = ("c++", "x86_64-linux-gnu", "aarch64-linux-gnu", "linux", "asm", "asm-generic", "bits", "sys", "gnu", "arpa", "net",
          "netinet", "rpc")


def refuse(text):
    print(f"tutti: {text}", file=sys.stderr)
    sys.exit(2)


def output_of(*command):
    """What a command prints, or nothing where it does not run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def rows():
    """The rows of CUDA tests in the tests' meson.build files: name, folder, sources, libraries."""
    found = []
    for build in sorted(TESTS.rglob("meson.build")):
        for row in re.findall(r"^tests \+= (\{.*?\})", re.sub(r"^\s*#.*", "", build.read_text(), flags=re.M), re.M | re.S):
            if "'cuda': true" not in row or "'emulated_only': true" in row:
                continue

            def words(key):
                value = re.search(rf"'{key}': (\[.*?\]|'[^']*')", row, re.S)
                return re.findall(r"'([^']*)'", value[1]) if value else []
            folder = words("folder")[0]
            found.append({"name": (words("name") or [folder.replace("/", "_")])[0], "folder": folder,
                          "sources": words("sources") + words("support"), "libraries": words("cuda_libraries")})
    return found


def find_nvcc():
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        refuse("nvcc was not found. Install the CUDA toolkit, 12.8 or later, or put nvcc on the PATH")
    return nvcc


def device():
    """Name, driver and architecture of the first GPU, or nothing."""
    line = output_of("nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader")
    parts = [part.strip() for part in line.splitlines()[0].split(",")] if line else []
    if len(parts) != 4 or not re.fullmatch(r"\d+\.\d+", parts[2]):
        return None
    number = parts[2].replace(".", "")
    return {"name": parts[0], "driver": parts[1], "memory": parts[3], "architecture": "90a" if number == "90" else number}


class Builder:
    def __init__(self, arguments, nvcc, architectures):
        self.nvcc, self.out, self.jobs = nvcc, arguments.out.resolve(), arguments.jobs
        self.carried = arguments.carried.resolve() if arguments.carried else None
        includes = [ROOT / "include", TESTS] + ([self.carried / "include"] if self.carried else [])
        # Of 554 ("will not be called") nvcc alone complains, where a class template's conversion is to itself.
        self.flags = ["-std=c++20", "-O2", "-lineinfo", "--expt-relaxed-constexpr", "-diag-suppress=554", "-UNDEBUG",
                      "-DTUTTI_DEBUG=1", "-Xcompiler=-pthread"] + [f"-I{path}" for path in includes]
        self.targets = [f"-gencode=arch=compute_{one},code=sm_{one}" for one in architectures]

    def compile(self, source, target):
        command = [self.nvcc, "-x", "cu", *self.flags, *self.targets, "-Xptxas=-v", "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        spills = sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", done.stdout + done.stderr))
        return done.returncode == 0, spills, (done.stdout + done.stderr) if done.returncode != 0 else ""

    def build(self, programs):
        """Compiles everything and links it; for each program its path or the text of its failure, and bytes spilled."""
        self.out.mkdir(parents=True, exist_ok=True)
        sources = {(row["name"], source): TESTS / row["folder"] / source for row in programs for source in row["sources"]}
        sources[("main", "main.cpp")] = TESTS / "support" / "main.cpp"
        objects = {key: self.out / f"{key[0]}_{key[1]}.o" for key in sources}
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            results = dict(zip(sources, pool.map(lambda key: self.compile(sources[key], objects[key]), sources)))
        built = {}
        for row in programs:
            keys = [(row["name"], source) for source in row["sources"]] + [("main", "main.cpp")]
            failures = [results[key][2] for key in keys if not results[key][0]]
            spills = sum(results[key][1] for key in keys)
            target = self.out / f"test_{row['name']}"
            if not failures:
                command = [self.nvcc, "-o", str(target), *[str(objects[key]) for key in keys], *self.targets,
                           *[f"-l{library}" for library in row["libraries"]], *self.catch_library()]
                done = subprocess.run(command, capture_output=True, text=True)
                failures = [done.stdout + done.stderr] if done.returncode != 0 else []
            built[row["name"]] = {"program": None if failures else target, "failure": "\n".join(failures),
                                  "spill_bytes": spills}
        return built

    def catch_library(self):
        """Catch2 3 is a library, 2 is a header."""
        folders = ([f"-L{self.carried / 'lib'}"] if self.carried and (self.carried / "lib").is_dir() else [])
        if self.carried and (self.carried / "include/catch2/catch.hpp").exists():
            return folders
        probe = subprocess.run(["g++", "-E", "-x", "c++", "-"], input="#include <catch2/catch_all.hpp>\n",
                               capture_output=True, text=True)
        return folders + (["-lCatch2"] if probe.returncode == 0 else [])

    def carry(self, programs, folder):
        """Copies the headers that the tests use and that neither CUDA nor a C++ compiler brings."""
        wanted = set()
        for row in programs:
            for source in row["sources"]:
                path = TESTS / row["folder"] / source
                done = subprocess.run([self.nvcc, "-x", "cu", *self.flags, "-M", str(path)], capture_output=True, text=True)
                if done.returncode != 0:
                    refuse(f"{path.relative_to(ROOT)} does not compile here:\n{done.stdout}{done.stderr}")
                for header in re.findall(r"/[^\s\\]+", done.stdout):
                    path = pathlib.Path(os.path.normpath(header))
                    for base in (pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include")):
                        if base in path.parents:
                            relative = path.relative_to(base)
                            if len(relative.parts) > 1 and relative.parts[0] not in SYSTEM:
                                wanted.add((path, relative))
        for path, relative in sorted(wanted):
            target = folder / "include" / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        library = output_of("g++", "-print-file-name=libCatch2.a")
        if "/" in library:
            (folder / "lib").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(library, folder / "lib" / "libCatch2.a")
        return len(wanted)


def run(command, seconds):
    """Status (None: it took longer), seconds, the end of its output."""
    begin = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=max(1, seconds))
        return done.returncode, time.monotonic() - begin, "\n".join(done.stdout.splitlines()[-40:])
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
        return None, time.monotonic() - begin, (text if isinstance(text, str) else text.decode(errors="replace"))[-4000:]


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--carry", type=pathlib.Path)
    parser.add_argument("--from", type=pathlib.Path, dest="carried")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-cuda")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--help", "-h", action="store_true")
    arguments = parser.parse_args()
    if arguments.help:
        print(__doc__)
        return 0
    begin = time.monotonic()

    def left():
        return arguments.seconds - (time.monotonic() - begin)

    nvcc = find_nvcc()
    programs = [row for row in rows() if arguments.only in row["name"]]
    if not programs:
        refuse(f"no program of CUDA tests has {arguments.only} in its name")
    if arguments.carried and not arguments.carried.is_dir():
        refuse(f"--from {arguments.carried}: no such folder. Prepare it with --carry")
    if arguments.carry:
        count = Builder(arguments, nvcc, ARCHITECTURES).carry(programs, arguments.carry)
        print(f"{count} headers are in {arguments.carry}. Take it along, and there: ./tutti check --cuda --from FOLDER")
        return 0
    gpu = None if arguments.compile_only else device()
    if not arguments.compile_only and gpu is None:
        refuse("this machine has no GPU that nvidia-smi knows. Use --compile-only, or run it where there is one")

    commit = output_of("git", "-C", str(ROOT), "rev-parse", "HEAD")
    report = {"device": gpu, "nvcc": (re.findall(r"release (\S+),", output_of(nvcc, "--version")) or ["?"])[0],
              "host compiler": (output_of("g++", "--version").splitlines() or ["?"])[0],
              "version": (ROOT / "VERSION").read_text().strip(), "commit": commit, "results": []}
    for key in ("device", "nvcc", "host compiler", "version", "commit"):
        print(f"{key:14} {report[key]}")

    def note(what, name, status, seconds, text):
        word = "passed" if status == 0 else "no time" if status is None else "FAILED"
        report["results"].append({"what": what, "program": name, "result": word, "status": status,
                                  "seconds": round(seconds, 1), "output": "" if status == 0 else text})
        print(f"{word:8} {what:10} {name:24} {seconds:6.1f} s", flush=True)
        if status != 0:
            print(text, flush=True)

    builder = Builder(arguments, nvcc, [gpu["architecture"]] if gpu else ARCHITECTURES)
    built = builder.build(programs)
    for row in programs:
        one = built[row["name"]]
        note("build", row["name"], 0 if one["program"] else 1, time.monotonic() - begin, one["failure"])
        if one["spill_bytes"]:
            print(f"         {one['spill_bytes']} bytes of registers are spilled in {row['name']}")
        report["results"][-1]["spill_bytes"] = one["spill_bytes"]
    ready = [row for row in programs if built[row["name"]]["program"]]
    if gpu:
        for row in ready:
            note("run", row["name"], *run([built[row["name"]]["program"], "~[.]"], left()))
        sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
        kernels = [row for row in ready if row["folder"].startswith("kernel")]
        if not sanitizer:
            note("sanitizer", "", 1, 0, "compute-sanitizer was not found")
            kernels = []
        # One device serves several processes well: most of the time goes to instrumenting code on the host.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            waiting = {pool.submit(lambda command: run(command, left()), [
                sanitizer, "--tool", tool, "--error-exitcode", "99", str(built[row["name"]]["program"]), "~[.]"]):
                (tool, row["name"]) for tool in TOOLS for row in kernels}
            for done in concurrent.futures.as_completed(waiting):
                note(*waiting[done], *done.result())
    bad = [one for one in report["results"] if one["result"] != "passed"]
    report["seconds"] = round(time.monotonic() - begin, 1)
    builder.out.mkdir(parents=True, exist_ok=True)
    (builder.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{len(report['results']) - len(bad)} of {len(report['results'])} steps passed in {report['seconds']} s; "
          f"the report: {builder.out / 'report.json'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
