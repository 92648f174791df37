#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the tests and benchmarks of CUDA code with nvcc and runs them on a GPU, on a machine that may have no network, no
Meson, no Catch2 and no NCCL: those with CUDA's compiler, Python 3 and a folder that was prepared elsewhere.

    check_cuda.py                      build for the device of this machine, and run all parts
    check_cuda.py --only PART,PART     some of them: tests, nccl, train (the trainer, against its losses on processors), bench
                                       (benchmarks), sanitizer (compute-sanitizer on the kernels)
    check_cuda.py --compile-only       build for every architecture that tutti supports, run nothing
    check_cuda.py --carry FOLDER       on a machine that has everything: copy there what the other one lacks, 64 MiB at most
    check_cuda.py --from FOLDER ...    use such a folder

    --match WORD     programs whose name has this word           --jobs N      compilations at a time
    --out FOLDER     build folder (build-cuda)                   --seconds N   for everything, 600 unless given; for
                                                                               --compile-only as long as it takes
    --nccl PATH      with --carry: a wheel of NCCL, or a folder with include/nccl.h and lib/libnccl.so.2, to take along with
                     the code of --arch 90 alone (a tenth of it). Else the other machine's toolkit or Python packages have it
    --built          with --carry: also builds the programs for --arch and takes them along, so that the other machine, whose
                     system libraries must be as new as these, compiles only what has changed since

Building and every part have their share of the time, and what one leaves goes to those after it; what is not compiled by
then is told of, and the rest runs. What was built stays and is built again only where its sources have changed, so parts can
run one call after the other. It leaves report.json in the build folder, and a copy of it in $OUT after every part where that
is set, and prints the same as text; a second call replaces the parts that it ran. Status 0 when everything passed, 1 when
something failed or no time was left for it, 2 when this machine cannot do it. What a figure is does not count; the goals say
whether it holds.
"""
import argparse
import concurrent.futures
import hashlib
import importlib.util
import json
import lzma
import math
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
BENCHMARKS = ROOT / "benchmarks" / "cuda"
ARCHITECTURES = ("80", "90a")
MOST_CARRIED = 64 << 20  # bytes
SHARING_NCCL = (2, 30, 0)  # the first that lets several ranks have one device
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# In the order in which they run, with their shares of the time.
PARTS = {"tests": 3, "nccl": 5, "train": 2, "bench": 6, "sanitizer": 6}
BUILDING = 14  # its share beside those of the parts that were asked for
# What the trainer uses, beside Boost.Hana: headers, Debian's packages, libraries of which carried folders hold static ones.
TRAINER_HEADERS = {"nlohmann/json.hpp": "nlohmann-json3-dev", "CLI/CLI.hpp": "libcli11-dev", "fmt/format.h": "libfmt-dev",
                   "pcre2.h": "libpcre2-dev"}
TRAINER_LIBRARIES = ("pcre2-8",)
# Such as our headers include them: a carried folder has those alone.
HEADERS = {"boost/hana/accessors.hpp": "libboost-dev"}
# Twenty steps of a small model. Processors and devices sum in other orders: the emulated device stays within 1e-4.
TRAINED = ("--layers 2 --channels 32 --heads 4 --sequence 32 --vocabulary 61 --total-tokens 128 --steps 20 --learning-rate "
           "3e-3 --warmup 3 --schedule constant --validate-every 0 --no-final-checkpoint --overwrite").split()
MOST_DIFFERENCE = 1e-3  # of a loss from the processors' one, relative
LEAST_LEARNED = 0.3     # from the first loss to the last
# Folders below /usr/include that the other machine's compiler has.
SYSTEM = ("c++", "x86_64-linux-gnu", "aarch64-linux-gnu", "linux", "asm", "asm-generic", "bits", "sys", "gnu", "arpa", "net",
          "netinet", "rpc")
LONE = ("pcre2.h", "zlib.h", "zconf.h")  # headers of others that lie in /usr/include itself, or in the architecture's folder
# What must hold: a sentence, and alternatives of (rows, which of their figures, bound); "ratio" and "ours" are at least
# the bound, "at most" is ours. All rows that an alternative matches must reach it.
GOALS = [
    ("matrix products of a step in bf16 at 0.9 of bare cuBLASLt, the faster of first and tuned",
     [(r"matmul_bf16_step vs bare(_tuned)?", "ratio", 0.9)]),
    ("matrix products of a step with TF32 at 0.9 of bare cuBLASLt",
     [(r"matmul_tf32_step vs bare(_tuned)?", "ratio", 0.9)]),
    ("flash attention forward, T 4096, D 128: 0.6 of cuDNN's, or 400 TFLOP/s",
     [(r"attention_forward_.*_t4096_d128 vs cudnn", "ratio", 0.6), (r"attention_forward_.*_t4096_d128", "ours", 400)]),
    ("AdamW, layer norm and its gradient, cross-entropy, global norm at 0.85 of the copy",
     [(r"(adamw|layer_norm|layer_norm_gradient|cross_entropy|global_norm) vs copy", "ratio", 0.85)]),
    ("chains and embedding, forward and gradient, at 0.85 of the copy",
     [(r"(chain_compiled|embedding|embedding_gradient) vs copy", "ratio", 0.85)]),
    ("a step of GPT-2 124M in bf16 1.05 times as fast as PyTorch's", [(r"gpt2_124m_step_bf16_.* vs pytorch", "ratio", 1.05)]),
    ("45 % of the peak at B 64", [(r"gpt2_124m_mfu_b64", "ours", 45)]),
    ("decode of 124M in bf16: 6,000 tokens/s", [(r"decode_124m_bf16", "ours", 6000)]),
    ("a captured step of 2 layers of 128 channels under 150 us", [(r"captured_step_small", "at most", 150)]),
]


def refuse(text):
    print(f"tutti: {text}", file=sys.stderr)
    sys.exit(2)


def output_of(*command):
    """What a command prints, or nothing where it does not run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def programs_of(parts, match):
    """The programs of these parts: name, part, kind, sources, libraries."""
    found = []

    def add(row):
        if match in row["name"]:
            found.append(row)
    for build in sorted(TESTS.rglob("meson.build")):
        for row in re.findall(r"tests \+= \[?(\{.*?\})", re.sub(r"^\s*#.*", "", build.read_text(), flags=re.M), re.S):
            def words(key):
                value = re.search(rf"'{key}': (\[.*?\]|'[^']*')", row, re.S)
                return re.findall(r"'([^']*)'", value[1]) if value else []
            kind = "nccl" if "tutti_nccl_dep" in row else "tests"
            if "'emulated_only': true" in row or (kind == "tests" and "'cuda': true" not in row):
                continue
            folder = words("folder")[0]
            if kind in parts or (kind == "tests" and "sanitizer" in parts and folder.startswith("kernel")):
                name = (words("name") or [folder.replace("/", "_")])[0]
                add({"name": name, "part": kind, "kernels": folder.startswith("kernel"), "libraries": words("cuda_libraries"),
                     "sources": [TESTS / folder / source for source in words("sources") + words("support")]})
    if "tests" in parts:
        for source in sorted((ROOT / "examples").glob("*_thrust.cpp")):  # the examples that nvcc alone compiles
            add({"name": source.stem, "part": "tests", "kernels": False, "libraries": [], "sources": [source],
                 "prints": source.with_suffix(".out")})
    if "bench" in parts:
        for source in sorted(BENCHMARKS.glob("*.cpp")):
            add({"name": f"bench_{source.stem}", "part": "bench", "kernels": False, "libraries": ["cublasLt"],
                 "sources": [source]})
    if "train" in parts:
        add({"name": "train_gpt2_cuda", "part": "train", "kernels": False, "libraries": ["cublasLt", *TRAINER_LIBRARIES],
             "sources": [ROOT / "examples" / "train_gpt2.cpp"]})
    return found


def find_nvcc():
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        refuse("nvcc was not found. Install the CUDA toolkit, 12.8 or later, or put nvcc on the PATH")
    return nvcc


def device():
    """Name, driver and architecture of the first GPU and how many there are, or nothing."""
    line = output_of("nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader")
    parts = [part.strip() for part in line.splitlines()[0].split(",")] if line else []
    if len(parts) != 4 or not re.fullmatch(r"\d+\.\d+", parts[2]):
        return None
    number = parts[2].replace(".", "")
    count, visible = len(line.splitlines()), os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"name": parts[0], "driver": parts[1], "memory": parts[3], "architecture": "90a" if number == "90" else number,
            "count": count if visible is None else min(count, len([one for one in visible.split(",") if one]))}


def clocks():
    """What the GPU runs at now."""
    return output_of("nvidia-smi", "--query-gpu=clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,temperature.gpu,power.draw",
                     "--format=csv,noheader")


# ---- NCCL ----

def keep_one_architecture(library, number):
    """The library with the device code of one architecture; what is blank takes no space once it is compressed. Entries of
    fat binaries say how long they are and for what: CUDA loads the one that fits and does not look into the others."""
    data, at, kept = bytearray(library), 0, 0
    while (at := data.find(b"\x50\xed\x55\xba", at)) >= 0:
        version, head, size = struct.unpack_from("<HHQ", data, at + 4)
        if version != 1 or head != 16 or at + head + size > len(data):
            at += 4
            continue
        entry, at = at + head, at + head + size
        while entry < at:
            kind, _, head, size = struct.unpack_from("<HHIQ", data, entry)
            if head == 0:
                break
            if kind == 2 and struct.unpack_from("<I", data, entry + 28)[0] == number:
                kept += 1
            else:
                data[entry + head:entry + head + size] = bytes(size)
            entry += head + size
    return bytes(data), kept


def carry_nccl(source, folder, number):
    """Headers and library of NCCL into folder/nccl."""
    def take(name, data):
        target = folder / "nccl" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    if source.is_dir():
        files = {path.relative_to(source).as_posix(): path.read_bytes for path in sorted(source.rglob("include/nccl*"))
                 if path.is_file()}
        files.update({path.relative_to(source).as_posix(): path.read_bytes for path in source.glob("include/nccl_device/**/*")
                      if path.is_file()})
        library = source / "lib" / "libnccl.so.2"
        if not library.exists() or "include/nccl.h" not in files:
            refuse(f"--nccl {source}: include/nccl.h and lib/libnccl.so.2 are not there")
        library = library.read_bytes()
    else:
        try:
            wheel = zipfile.ZipFile(source)
        except (OSError, zipfile.BadZipFile) as error:
            refuse(f"--nccl {source}: {error}")
        inside = "nvidia/nccl/"
        files = {name[len(inside):]: (lambda name=name: wheel.read(name)) for name in wheel.namelist()
                 if name.startswith(inside + "include/") and not name.endswith("/")}
        if inside + "lib/libnccl.so.2" not in wheel.namelist():
            refuse(f"--nccl {source}: this is no wheel of NCCL")
        library = wheel.read(inside + "lib/libnccl.so.2")
    for name, read in files.items():
        take(name, read())
    library, kept = keep_one_architecture(library, number)
    if kept == 0:
        refuse(f"--nccl {source}: it has no device code for sm_{number}")
    packed = lzma.compress(library, preset=2)
    take("lib/libnccl.so.2.xz", packed)
    print(f"NCCL {nccl_version(folder / 'nccl' / 'include')} for sm_{number} is taken along: {len(packed) >> 20} MB")


def nccl_version(include):
    text = (include / "nccl.h").read_text()
    return ".".join(re.search(rf"#define NCCL_{part}\s+(\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def find_nccl(carried, toolkit, out):
    """Where NCCL is: include and lib, or nothing. Carried, in the toolkit, or a package of this Python."""
    places = [toolkit]
    for base in importlib.util.find_spec("nvidia").submodule_search_locations if importlib.util.find_spec("nvidia") else []:
        places.append(pathlib.Path(base) / "nccl")
    if carried and (carried / "nccl" / "lib" / "libnccl.so.2.xz").exists():
        packed, unpacked = carried / "nccl" / "lib" / "libnccl.so.2.xz", out / "nccl" / "lib" / "libnccl.so.2"
        stamp, mark = unpacked.with_suffix(".stamp"), hashlib.sha256(packed.read_bytes()).hexdigest()
        if not stamp.exists() or stamp.read_text() != mark:
            unpacked.parent.mkdir(parents=True, exist_ok=True)
            unpacked.write_bytes(lzma.decompress(packed.read_bytes()))
            stamp.write_text(mark)
        shutil.copytree(carried / "nccl" / "include", out / "nccl" / "include", dirs_exist_ok=True)
        places.insert(0, out / "nccl")
    for place in places:
        for lib in ("lib", "lib64"):
            library = next((place / lib / name for name in ("libnccl.so.2", "libnccl.so") if (place / lib / name).exists()), None)
            if library and (place / "include" / "nccl.h").exists():
                return {"include": place / "include", "library": library, "version": nccl_version(place / "include")}
    return None


# ---- Building ----

def find_cublas_lt(toolkit, carried=None):
    """Where libcublasLt is: nothing, where the toolkit has it; else a folder, of a package in carried/cublas or of this
    Python."""
    if any((toolkit / lib / name).exists() for lib in ("lib64", "lib") for name in ("libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12")):
        return None
    found = sorted((carried / "cublas").rglob("lib/libcublasLt.so*")) if carried else []
    for base in importlib.util.find_spec("nvidia").submodule_search_locations if importlib.util.find_spec("nvidia") else []:
        for name in ("cu13", "cublas", "cu12"):
            found += sorted((pathlib.Path(base) / name / "lib").glob("libcublasLt.so*"))
    if found:
        return {"include": found[0].parent.parent / "include", "library": found[0]}
    refuse(f"the toolkit {toolkit} has no cuBLASLt, nor has a package of {sys.executable}. Install libcublas of the toolkit, or "
           "python3 -m pip install nvidia-cublas; or take that package along: python3 -m pip install --no-deps --target "
           "FOLDER/cublas nvidia-cublas where there is a network, and --from FOLDER here")


def told_of_cublas_lt(toolkit):
    """Why --carry leaves it where it is."""
    sizes = [path.stat().st_size for lib in ("lib64", "lib") for path in (toolkit / lib).glob("libcublasLt.so*")]
    size = f" ({sizes[0] >> 20} MiB here)" if sizes else ""
    return (f"cuBLASLt is not taken along: it is too large{size}, compressed and with the code of one architecture alone too. "
            "The other machine's toolkit has it, or a package of its Python (nvidia-cublas), or FOLDER/cublas, where pip "
            "install --no-deps --target FOLDER/cublas nvidia-cublas puts it")


def targets_of(architectures):
    return [f"-gencode=arch=compute_{one},code=sm_{one}" for one in architectures]


class Builder:
    def __init__(self, arguments, nvcc, architectures, nccl, cublas=None, end=math.inf):
        self.cublas, self.linking, self.end = cublas, threading.Lock(), end
        self.nvcc, self.out, self.jobs, self.nccl = nvcc, arguments.out.resolve(), arguments.jobs, nccl
        self.carried = arguments.carried.resolve() if arguments.carried else None
        includes = [ROOT / "include", TESTS] + ([self.carried / "include"] if self.carried else [])
        # Of 554 ("will not be called") nvcc alone complains, where a class template's conversion is to itself.
        self.common = ["-std=c++20", "-O2", "-Xcompiler=-pthread"] + [f"-I{path}" for path in includes]
        if cublas and cublas["include"].is_dir():
            self.common.append(f"-I{cublas['include']}")
        self.device = ["-x", "cu", "-lineinfo", "--expt-relaxed-constexpr", "-diag-suppress=554", "-Xptxas=-v"]
        self.checks = ["-UNDEBUG", "-DTUTTI_DEBUG=1"]
        self.targets = targets_of(architectures)

    def flags(self, part):
        if part == "nccl":  # code of the host
            return [*self.common, *self.checks, "-x", "c++", *self.nccl_flags()]
        if part == "train":  # without MPI, so that its ranks are threads; fmt's macros are for fmt 9
            return [*self.common, *self.device, *self.targets, "-DNDEBUG", "-DTUTTI_WITH_CUDA=1", "-DFMT_HEADER_ONLY=1",
                    "-DFMT_CONSTEVAL=", "-DFMT_USE_CONSTEXPR=1", *(self.nccl_flags() if self.nccl else [])]
        return [*self.common, *self.device, *self.targets, *([] if part == "bench" else self.checks)]

    def nccl_flags(self):
        return ["-DTUTTI_WITH_NCCL=1", f"-I{self.nccl['include']}"]

    @staticmethod
    def state_of(command, dependencies, base=None):
        """Changes with the command and with what the sources hold, by their names below base; where one has gone, it is
        nothing."""
        digest = hashlib.sha256("\0".join(map(str, command)).encode())
        for path in dependencies:
            try:
                name = os.path.relpath(path, base) if base else path
                digest.update(name.encode() + pathlib.Path(path).read_bytes())
            except OSError:
                return None
        return digest.hexdigest()

    def compile(self, source, part, target):
        """Status (None: it took too long), bytes spilled, the text of a failure."""
        depfile, stamp = target.with_suffix(".d"), target.with_suffix(".json")
        command = [self.nvcc, *self.flags(part), "-MD", "-MF", str(depfile), "-c", str(source), "-o", str(target)]
        if target.exists() and stamp.exists():
            known = json.loads(stamp.read_text())
            if known["state"] and self.state_of(command, known["dependencies"]) == known["state"]:
                return 0, known["spills"], ""
        stamp.unlink(missing_ok=True)
        status, told = execute(command, self.end - time.monotonic())
        if status is None:
            return None, 0, f"{source.name} was not compiled in the time for building. Go on with another call, or --seconds"
        if status != 0:
            return 1, 0, told
        spills = sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", told))
        text = depfile.read_text() if depfile.exists() else ""
        dependencies = sorted({str(source)} | {word for word in re.findall(r"(?<=\s)[^\s\\]+", text.partition(":")[2])
                                               if not word.startswith("/usr/")})
        stamp.write_text(json.dumps({"state": self.state_of(command, dependencies), "dependencies": dependencies,
                                     "spills": spills}))
        return 0, spills, ""

    def link(self, row, objects, target):
        command = [self.nvcc, "-o", str(target), *map(str, objects), *self.targets, *[f"-l{one}" for one in row["libraries"]]]
        if self.cublas and "cublasLt" in row["libraries"]:
            command += self.link_by_name("cublasLt", self.cublas["library"])
        command += self.carried_libraries()
        if self.has_tests(row):
            command += self.catch_library()
        if row["part"] == "nccl" or (row["part"] == "train" and self.nccl):
            command += ["-lnccl", *self.link_by_name("nccl", self.nccl["library"])]
        return execute(command, max(self.end - time.monotonic(), 60))  # what is compiled is worth a minute more

    @staticmethod
    def has_tests(row):
        return row["part"] not in ("bench", "train") and "prints" not in row

    MAIN = ("main", TESTS / "support" / "main.cpp")

    def keys_of(self, row):
        """What is compiled for a program: whose it is, and the source."""
        return [(row["name"], source) for source in row["sources"]] + ([self.MAIN] if self.has_tests(row) else [])

    def program_of(self, row):
        return self.out / (f"test_{row['name']}" if self.has_tests(row) else row["name"])

    def object_of(self, key):
        return self.out / f"{key[0]}_{key[1].name}.o"

    def link_by_name(self, name, library):
        """Packages bring libNAME.so.N alone."""
        link = self.out / f"{name}_link" / f"lib{name}.so"
        link.parent.mkdir(exist_ok=True)
        with self.linking:
            if not link.is_symlink() or link.readlink() != library:
                link.unlink(missing_ok=True)
                link.symlink_to(library)
        return [f"-L{link.parent}", f"-Xlinker=-rpath,{library.parent}"]

    def build(self, programs):
        """Compiles everything and links it; for each program its path and status, the text of a failure, bytes spilled."""
        self.out.mkdir(parents=True, exist_ok=True)
        ready = {row["name"]: one for row in programs if (one := self.carried_program(row))}
        return ready | self.build_all([row for row in programs if row["name"] not in ready])

    def build_all(self, programs):
        """The same without what was taken along."""
        parts = {key: "tests" if key == self.MAIN else row["part"] for row in programs for key in self.keys_of(row)}
        objects = {key: self.object_of(key) for key in parts}
        # The longest first: none of them is left for the end. The trainer's source is small, and has all of the library.
        order = sorted(parts, key=lambda key: (parts[key] != "train", -key[1].stat().st_size))
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            results = dict(zip(order, pool.map(lambda key: self.compile(key[1], parts[key], objects[key]), order)))

            def finish(row):
                failures = [(results[key][0], results[key][2]) for key in self.keys_of(row) if results[key][0] != 0]
                target = self.program_of(row)
                if not failures:
                    failures = [one for one in [self.link(row, [objects[key] for key in self.keys_of(row)], target)] if one[0] != 0]
                status = 0 if not failures else next((one for one, _ in failures if one is not None), None)
                return {"program": None if failures else target, "status": status,
                        "failure": "\n".join(text for _, text in failures),
                        "spill_bytes": sum(results[key][1] for key in self.keys_of(row))}
            return dict(zip([row["name"] for row in programs], pool.map(finish, programs)))

    def carry_programs(self, programs, built, folder):
        """Takes what was built along, with what says which sources of ours it was built from."""
        known = {}
        (folder / "programs").mkdir(parents=True, exist_ok=True)
        for row in programs:
            one = built[row["name"]]
            stamps = [json.loads(self.object_of(key).with_suffix(".json").read_text()) for key in self.keys_of(row)]
            sources = {pathlib.Path(os.path.normpath(path)) for stamp in stamps for path in stamp["dependencies"]}
            files = sorted(str(path.relative_to(ROOT)) for path in sources
                           if ROOT in path.parents and self.out not in path.parents)
            smaller = self.out / "stripped"
            stripped = subprocess.run(["strip", "-o", str(smaller), str(one["program"])], capture_output=True).returncode == 0
            (folder / "programs" / f"{row['name']}.xz").write_bytes(lzma.compress((smaller if stripped else one["program"]).read_bytes()))
            known[row["name"]] = {"files": files, "state": self.state_of([], [str(ROOT / file) for file in files], ROOT),
                                  "targets": self.targets, "spill_bytes": one["spill_bytes"]}
        (folder / "programs" / "programs.json").write_text(json.dumps(known))

    def carried_program(self, row):
        """A program that was taken along, where our sources and the device are still those it was built for."""
        list_of = self.carried / "programs" / "programs.json" if self.carried else None
        known = json.loads(list_of.read_text()).get(row["name"]) if list_of and list_of.exists() else None
        if not known or known["targets"] != self.targets or known["state"] is None:
            return None
        if self.state_of([], [str(ROOT / file) for file in known["files"]], ROOT) != known["state"]:
            return None
        program = self.program_of(row)
        program.write_bytes(lzma.decompress((self.carried / "programs" / f"{row['name']}.xz").read_bytes()))
        program.chmod(0o755)
        return {"program": program, "status": 0, "failure": "", "spill_bytes": known["spill_bytes"]}

    def require_headers(self, programs):
        """Catch2, Boost.Hana and others are no part of CUDA: a sentence in the place of as many failed builds."""
        wanted = dict(HEADERS)
        if any(row["part"] == "train" for row in programs):
            wanted |= TRAINER_HEADERS
        if any(self.has_tests(row) for row in programs):
            wanted["catch2/catch.hpp or catch2/catch_all.hpp"] = "catch2"
        includes = [one for one in self.common if one.startswith("-I")]
        missing = []
        for names, package in wanted.items():
            found = any(subprocess.run(["g++", "-E", "-x", "c++", "-DPCRE2_CODE_UNIT_WIDTH=8", *includes, "-"], input=f"#include <{name}>\n", text=True,
                                       capture_output=True).returncode == 0 for name in names.split(" or "))
            missing += [] if found else [(names, package)]
        if missing:
            refuse(f"{', '.join(names for names, _ in missing)} cannot be included here. Install "
                   f"{', '.join(package for _, package in missing)} (Debian's names), or carry them: ./tutti check --cuda --carry "
                   "FOLDER on a machine that has them, and --from FOLDER here")

    def catch_library(self):
        """Catch2 3 is a library, 2 is a header."""
        if self.carried and (self.carried / "include/catch2/catch.hpp").exists():
            return []
        probe = subprocess.run(["g++", "-E", "-x", "c++", "-"], input="#include <catch2/catch_all.hpp>\n",
                               capture_output=True, text=True)
        return ["-lCatch2"] if probe.returncode == 0 else []

    def carried_libraries(self):
        return [f"-L{self.carried / 'lib'}"] if self.carried and (self.carried / "lib").is_dir() else []

    def carry(self, programs, folder):
        """Copies the headers that the programs use and that neither CUDA nor a C++ compiler brings."""
        wanted = set()

        def headers_of(task):
            part, source = task
            done = subprocess.run([self.nvcc, *self.flags(part), "-M", str(source)], capture_output=True, text=True)
            if done.returncode != 0:
                refuse(f"{source.relative_to(ROOT)} does not compile here:\n{done.stdout}{done.stderr}")
            return done.stdout
        tasks = [("tests", TESTS / "support" / "main.cpp")]
        tasks += [(row["part"], source) for row in programs for source in row["sources"]]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for text in pool.map(headers_of, tasks):
                for header in re.findall(r"/[^\s\\]+", text):
                    path = pathlib.Path(os.path.normpath(header))
                    if path.name in LONE and pathlib.Path("/usr") in path.parents:
                        wanted.add((path, pathlib.Path(path.name)))
                    for base in (pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include")):
                        if base in path.parents:
                            relative = path.relative_to(base)
                            if len(relative.parts) > 1 and relative.parts[0] not in SYSTEM:
                                wanted.add((path, relative))
        for path, relative in sorted(wanted):
            target = folder / "include" / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        needed = [f"lib{one}.a" for row in programs if row["part"] == "train" for one in TRAINER_LIBRARIES]
        for name in ["libCatch2.a", *needed]:
            library = output_of("g++", f"-print-file-name={name}")
            if "/" in library:
                (folder / "lib").mkdir(parents=True, exist_ok=True)
                shutil.copyfile(library, folder / "lib" / name)
            elif name in needed:
                refuse(f"g++ finds no {name}, which the trainer needs. Install libpcre2-dev (Debian's name), or leave train out of --only")
        carried = {str(relative) for _, relative in wanted}
        probed = [*HEADERS, *(TRAINER_HEADERS if needed else [])]
        if lost := [name for name in probed if name not in carried]:
            refuse(f"{', '.join(lost)} would be asked for on the other machine, and no program includes it. Mend HEADERS")
        return len(wanted)


# ---- Running ----

def execute(command, seconds, environment=None):
    """Status (None: it took longer) and output."""
    if seconds < 1:
        return None, "no time was left to start it"
    # In a session of its own: what it started ends with it, and holds nothing open.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          env={**os.environ, **(environment or {})}, start_new_session=True) as process:
        try:
            text = process.communicate(timeout=None if seconds == math.inf else seconds)[0]
            return process.returncode, text
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]


def run(command, seconds, environment=None, lines=40):
    """Status, seconds, the last lines of its output."""
    begin = time.monotonic()
    status, text = execute(command, seconds, environment)
    return status, time.monotonic() - begin, "\n".join(text.splitlines()[-lines:])


def read_rows(path):
    """The complete lines of a file of rows; a program that was stopped may have left half of one."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def joined(ours, rivals):
    """Our rows, and for each rival's figure of the same name a row with both."""
    rows = list(ours)
    figures = {row["name"]: row for row in ours if row["rival"] is None}
    for rival in rivals:
        mine = figures.get(rival["name"], {}).get("ours")
        rows.append({"name": f"{rival['name']} vs {rival['rival']}", "ours": mine, "rival": rival["value"],
                     "ratio": round(mine / rival["value"], 4) if mine and rival["value"] else None, "unit": rival["unit"]})
    return rows


def judged(rows):
    """For each goal whether it holds: True, False, or None where it was not measured."""
    verdicts = []
    for text, alternatives in GOALS:
        verdict, worst = None, []
        for pattern, which, bound in alternatives:
            values = [(row["name"], row["ours" if which == "at most" else which]) for row in rows
                      if re.fullmatch(pattern, row["name"])]
            values = [(name, value) for name, value in values if value is not None]
            if not values:
                continue
            name, value = (max if which == "at most" else min)(values, key=lambda pair: pair[1])
            verdict = verdict or (value <= bound if which == "at most" else value >= bound)
            worst.append(f"{name}: {value:.4g}")
        verdicts.append({"goal": text, "holds": verdict, "figures": worst})
    return verdicts


class Report:
    """What was done, as text at once and as a file at the end."""

    def __init__(self, head, path, parts):
        self.path, self.begin = path, time.monotonic()
        self.data = {**head, "results": [], "rows": [], "notes": []}
        before = json.loads(path.read_text()) if path.exists() else {}
        # Other parts of an earlier call on the same sources and device are still true.
        if all(before.get(key) == head[key] for key in ("device", "commit", "nvcc")):
            self.data["results"] = [one for one in before.get("results", []) if one["part"] not in parts]
            self.data["notes"] = [one for one in before.get("notes", []) if one["part"] not in parts]
            self.data["rows"] = [] if "bench" in parts else before.get("rows", [])
            self.data["versions"] = {} if "bench" in parts else before.get("versions", {})
        self.new = []
        for key, value in head.items():
            print(f"{key:14} {value}")

    def note(self, part, what, name, status, seconds, text):
        word = "passed" if status == 0 else "no time" if status is None else "FAILED"
        row = {"part": part, "what": what, "program": name, "result": word, "status": status, "seconds": round(seconds, 1),
               "output": "" if status == 0 else text}
        self.data["results"].append(row)
        self.new.append(row)
        print(f"{word:8} {what:10} {name:28} {seconds:6.1f} s", flush=True)
        if status != 0:
            print(text, flush=True)
        return row

    def skip(self, part, text):
        self.data["notes"].append({"part": part, "text": text})
        print(f"SKIPPED  {text}", flush=True)

    def save(self):
        """What is known so far: whoever stops this script finds it."""
        if self.data["rows"]:
            self.data["goals"] = judged(self.data["rows"])
        self.data["seconds"] = round(time.monotonic() - self.begin, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.data, indent=1) + "\n")
        if os.environ.get("OUT"):
            out = pathlib.Path(os.environ["OUT"])
            out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path, out / "report.json")

    def close(self):
        self.save()
        if self.data["rows"]:
            print(f"\n{'':52} {'ours':>10} {'rival':>10} {'ratio':>7}")
            for row in self.data["rows"]:
                figures = ["" if row[key] is None else f"{row[key]:.4g}" for key in ("ours", "rival", "ratio")]
                print(f"{row['name']:52} {figures[0]:>10} {figures[1]:>10} {figures[2]:>7} {row['unit']}")
            print()
            for goal in self.data["goals"]:
                word = {True: "holds", False: "MISSED", None: "not measured"}[goal["holds"]]
                print(f"{word:12} {goal['goal']}{': ' if goal['figures'] else ''}{'; '.join(goal['figures'])}")
        for note in self.data["notes"]:
            print(f"left out: {note['text']}")
        bad = [one for one in self.new if one["result"] != "passed"]
        for one in bad:
            print(f"{one['result']}: {one['what']} {one['program']}")
        print(f"{len(self.new) - len(bad)} of {len(self.new)} steps passed in {self.data['seconds']} s; the report: {self.path}")
        return 1 if bad else 0


def measured(rows, report):
    """The rows with figures; the versions that others tell go into the report."""
    for row in rows:
        report.data["versions"].update(row.get("versions", {}))
    return [row for row in rows if "versions" not in row]


def run_tests(report, rows, built, left):
    for row in rows:
        program = built[row["name"]]["program"]
        if "prints" in row:
            status, seconds, text = run([program], left())
            if status == 0 and text.strip() != row["prints"].read_text().strip():
                status, text = 1, f"it prints\n{text}and not what {row['prints'].name} has"
            report.note("tests", "run", row["name"], status, seconds, text)
        else:
            report.note("tests", "run", row["name"], *run([program, "~[.]"], left()))


def run_nccl(report, rows, built, left, nccl):
    """World 1 everywhere; several ranks on the device where the library allows it."""
    shares = tuple(map(int, nccl["version"].split("."))) >= SHARING_NCCL
    for row in rows:
        program = built[row["name"]]["program"]
        report.note("nccl", "world 1", row["name"], *run([program, "~[.]"], left() / (3 if shares else 1)))
        if shares:
            environment = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "TUTTI_TEST_RANKS": "3"}
            report.note("nccl", "worlds 1-3", row["name"], *run([program, "~[.]"], left(), environment))
    if rows and not shares:
        report.skip("nccl", f"NCCL {nccl['version']} refuses several ranks on one device. With 2.30 or later, by way of "
                            "--carry FOLDER --nccl WHEEL, they run")


def write_tokens(path, count):
    """A shard in llm.c's format, of tokens of which most follow from the one before."""
    draw, tokens = random.Random(1), [0]
    while len(tokens) < count:
        tokens.append((tokens[-1] * 5 + 2) % 61 if draw.random() < 0.8 else draw.randrange(61))
    path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *tokens))


def losses_of(folder):
    return [row["loss"] for row in read_rows(folder / "metrics.jsonl") if row.get("type") == "step"]


def compared(reference, losses):
    """The worst relative difference, and what is wrong, if anything is."""
    if len(losses) != len(reference) or None in losses:
        return None, f"{len(losses)} losses where processors have {len(reference)}, or some are not finite: {losses}"
    worst = max(abs(one - other) / abs(other) for one, other in zip(losses, reference))
    wrong = f"losses differ from the processors' by {worst:.1e}, more than {MOST_DIFFERENCE:.0e}:\n{losses}\n{reference}"
    return worst, wrong if worst > MOST_DIFFERENCE else ""


def run_training(report, program, left, out, nccl, devices):
    """The trainer on the device, and on two by NCCL, against its own losses on processors."""
    out.mkdir(parents=True, exist_ok=True)
    write_tokens(out / "tokens.bin", 6000)

    def train(what, *flags, environment=None):
        folder = out / what.replace(" ", "_")
        shutil.rmtree(folder, ignore_errors=True)
        return folder, run([program, *TRAINED, "--data", str(out / "tokens.bin"), "--out", str(folder), *flags], left(),
                           environment)
    name = "train_gpt2_cuda"
    folder, (status, seconds, text) = train("on processors", "--device", "cpu", "--backend", "threads", "--ranks", "1",
                                            "--batch", "4")
    reference = losses_of(folder)
    if status == 0 and (len(reference) != 20 or None in reference or reference[-1] > reference[0] - LEAST_LEARNED):
        status, text = 1, f"20 steps should take {LEAST_LEARNED} off the loss at least: {reference}"
    report.note("train", "processors", name, status, seconds, text)
    if status != 0:
        return
    layouts = [("device", ["--device", "cuda", "--backend", "threads", "--ranks", "1", "--batch", "4"], None)]
    shares = nccl and tuple(map(int, nccl["version"].split("."))) >= SHARING_NCCL
    if nccl and (devices >= 2 or shares):
        layouts.append(("nccl, 2", ["--device", "cuda", "--backend", "nccl", "--ranks", "2", "--batch", "2"],
                        None if devices >= 2 else {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}))
    else:
        report.skip("train", "training on NcclOn<Threads> with two ranks needs " + (
            f"two devices, or NCCL 2.30 or later to share one: here are {devices} and {nccl['version']}" if nccl else
            "NCCL with its header, which was not found"))
    for what, flags, environment in layouts:
        folder, (status, seconds, text) = train(what, *flags, environment=environment)
        worst = None
        if status == 0:
            worst, text = compared(reference, losses_of(folder))
            status = 1 if text else 0
        report.note("train", what, name, status, seconds, text)["difference"] = worst
        if status == 0:
            print(f"         losses within {worst:.1e} of the processors', {MOST_DIFFERENCE:.0e} is allowed")


def run_benchmarks(report, rows, built, left, out):
    ours = []
    report.data["versions"] = {"clocks before": clocks()}
    for row in rows:
        path = out / f"{row['name']}.jsonl"
        path.unlink(missing_ok=True)
        done = report.note("bench", "run", row["name"], *run([built[row["name"]]["program"], "--json", str(path)], left()))
        ours += measured(read_rows(path), report)
        if done["status"] == 0 and not path.exists():
            done["result"], done["status"], done["output"] = "FAILED", 1, "it left no rows"
    path = out / "rivals.jsonl"
    path.unlink(missing_ok=True)
    status, seconds, text = run([sys.executable, str(BENCHMARKS / "rivals.py"), "--json", str(path)], left())
    if status == 77:
        report.skip("bench", text.strip().splitlines()[-1] if text.strip() else "rivals.py was skipped")
    else:
        report.note("bench", "run", "rivals", status, seconds, text)
    rivals = measured(read_rows(path), report)
    report.data["versions"]["clocks after"] = clocks()
    for key, value in report.data["versions"].items():
        print(f"{key:14} {value}")
    report.data["rows"] = joined(ours, rivals)


def uninitialised(text):
    """What initcheck found in kernels of tutti that are not CUB's: the line that says it and the one that says where."""
    lines = text.splitlines()
    return [f"{line}\n{where}" for line, where in zip(lines, lines[1:])
            if "Uninitialized" in line and "tutti" in where and "cub::" not in where and "_ZN3cub" not in where]


def run_sanitizers(report, rows, built, left):
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not sanitizer:
        report.note("sanitizer", "sanitizer", "", 1, 0, "compute-sanitizer was not found")
        return
    # Our kernels alone, by a part of their mangled names, as the tool's manual spells it: those of cuBLASLt take longest, and
    # are not ours to mend. The rate of products is measured with large ones, which no tool gets through.
    ours = ["--kernel-name", "kernel_substring=tutti"]
    if ours[0] not in output_of(sanitizer, "--help"):
        report.skip("sanitizer", f"this compute-sanitizer has no {ours[0]}: all kernels are looked at, which takes longer")
        ours = []
    # initcheck knows of a write only where it has looked at the kernel that made it: it looks at all of them, and what it
    # says of kernels that are not ours, which read what they may, does not count.
    def check(tool, program):
        filtered = [] if tool == "initcheck" else ["--error-exitcode", "99", *ours]
        if tool == "memcheck":  # tests ask for devices that do not exist
            filtered += ["--report-api-errors", "no"]
        status, seconds, text = run([sanitizer, "--tool", tool, *filtered, str(program), "~[.]", "~*ceilings*"], left(), lines=2000)
        if tool == "initcheck" and status == 0 and (found := uninitialised(text)):
            status, text = 99, "\n".join(found)
        return status, seconds, "\n".join(text.splitlines()[-40:])
    # One device serves several processes well: most of the time goes to instrumenting code on the host.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = {pool.submit(check, tool, built[row["name"]]["program"]): (tool, row["name"])
                   for tool in TOOLS for row in rows if row["kernels"]}
        for done in concurrent.futures.as_completed(waiting):
            report.note("sanitizer", *waiting[done], *done.result())


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--carry", type=pathlib.Path)
    parser.add_argument("--from", type=pathlib.Path, dest="carried")
    parser.add_argument("--nccl", type=pathlib.Path)
    parser.add_argument("--arch", type=int, default=90)
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--match", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-cuda")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--help", "-h", action="store_true")
    arguments = parser.parse_args()
    if arguments.help:
        print(__doc__)
        return 0
    begin = time.monotonic()
    parts = [part for part in PARTS if part in arguments.only.split(",")]
    if unknown := [part for part in arguments.only.split(",") if part not in PARTS]:
        refuse(f"--only {unknown[0]}: there are {', '.join(PARTS)}")

    nvcc = find_nvcc()
    if arguments.carried and not arguments.carried.is_dir():
        refuse(f"--from {arguments.carried}: no such folder. Prepare it with --carry")
    gpu = None if arguments.compile_only or arguments.carry else device()
    if not arguments.compile_only and not arguments.carry and gpu is None:
        refuse("this machine has no GPU that nvidia-smi knows. Use --compile-only, or run it where there is one")
    toolkit = pathlib.Path(nvcc).resolve().parent.parent
    if arguments.carry and arguments.nccl:  # the programs that are taken along use this one
        carry_nccl(arguments.nccl, arguments.carry, arguments.arch)
    nccl = find_nccl(arguments.carry or arguments.carried, toolkit, arguments.out.resolve()) if {"nccl", "train"} & set(parts) else None
    programs = [row for row in programs_of(parts, arguments.match) if row["part"] != "nccl" or nccl]
    if not programs and (arguments.match or "nccl" not in parts):
        refuse(f"no program of {', '.join(parts)} has {arguments.match} in its name")
    cublas = find_cublas_lt(toolkit, arguments.carried) if any("cublasLt" in row["libraries"] for row in programs) else None
    seconds = arguments.seconds or (600 if gpu else math.inf)
    shares = [BUILDING, *(PARTS[part] for part in parts)]
    builder = Builder(arguments, nvcc, [gpu["architecture"]] if gpu else ARCHITECTURES, nccl, cublas,
                      begin + seconds * (shares[0] / sum(shares) if gpu else 1))
    builder.require_headers(programs)
    if arguments.carry:
        builder.targets = []
        count = builder.carry(programs, arguments.carry)
        if arguments.built:
            builder.targets = targets_of(["90a" if arguments.arch == 90 else str(arguments.arch)])
            builder.carried = arguments.carry  # its static libraries
            built = builder.build_all(programs)
            if bad := [f"{name}: {one['failure']}" for name, one in built.items() if one["status"] != 0]:
                refuse("\n".join(bad))
            builder.carry_programs(programs, built, arguments.carry)
        if any("cublasLt" in row["libraries"] for row in programs):
            print(told_of_cublas_lt(toolkit))
        size = sum(path.stat().st_size for path in arguments.carry.rglob("*") if path.is_file())
        print(f"{count} headers are in {arguments.carry}, {size / (1 << 20):.1f} MiB. Take it along, and there: ./tutti check "
              "--cuda --from FOLDER. The other machine needs nvcc, g++, Python 3"
              + ("" if arguments.nccl else ", and NCCL where its part is to run (--nccl)"))
        if size > MOST_CARRIED:
            refuse(f"{arguments.carry} has {size >> 20} MiB, more than the {MOST_CARRIED >> 20} that can be taken along. Choose "
                   "another --arch or wheel of NCCL, or an empty folder")
        return 0

    report = Report({"device": gpu, "nvcc": (re.findall(r"release (\S+),", output_of(nvcc, "--version")) or ["?"])[0],
                     "host compiler": (output_of("g++", "--version").splitlines() or ["?"])[0],
                     "nccl": f"{nccl['version']}, {nccl['library']}" if nccl else None,
                     "version": (ROOT / "VERSION").read_text().strip(),
                     "commit": output_of("git", "-C", str(ROOT), "rev-parse", "HEAD")},
                    builder.out / "report.json", parts)
    if "nccl" in parts and nccl is None:
        report.skip("nccl", "no NCCL with its header was found: in FOLDER of --from (--carry FOLDER --nccl WHEEL), in the "
                            f"toolkit {toolkit}, among the packages of {sys.executable}")
    # What was linked on another machine looks for them where that one had them.
    folders = [str(one["library"].parent) for one in (nccl, cublas) if one]
    folders += [str(toolkit / "lib64"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    os.environ["LD_LIBRARY_PATH"] = ":".join(folders)
    built = builder.build(programs)
    for row in programs:
        one = built[row["name"]]
        done = report.note(row["part"], "build", row["name"], one["status"], time.monotonic() - begin, one["failure"])
        done["spill_bytes"] = one["spill_bytes"]
        if one["spill_bytes"]:
            print(f"         {one['spill_bytes']} bytes of registers are spilled in {row['name']}")
    if gpu:
        rest, used = seconds - (time.monotonic() - begin), 0
        for part in parts:
            used += PARTS[part]
            end = begin + seconds - rest * (1 - used / sum(shares[1:]))

            def left(end=end):
                return end - time.monotonic()
            rows = [row for row in programs if built[row["name"]]["program"] and
                    row["part"] == ("tests" if part == "sanitizer" else part)]
            if part == "tests":
                run_tests(report, rows, built, left)
            elif part == "nccl" and nccl:
                run_nccl(report, rows, built, left, nccl)
            elif part == "train":
                for row in rows:
                    run_training(report, built[row["name"]]["program"], left, builder.out / "train", nccl, gpu["count"])
            elif part == "bench":
                run_benchmarks(report, rows, built, left, builder.out)
            elif part == "sanitizer":
                run_sanitizers(report, rows, built, left)
            report.save()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
