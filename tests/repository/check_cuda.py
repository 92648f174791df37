#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/check_cuda.py on a machine whose compiler, GPU and sanitizer are made up: each part runs, is timed, is kept and is
told of as promised.

    check_cuda.py --trainer PATH    instead: what the script asks of the trainer, of one with an emulated GPU
"""
import importlib.util
import json
import lzma
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# What the sources include that is no part of CUDA.
HEADERS = [f"/usr/include/{name}" for name in ("boost/hana/accessors.hpp", "nlohmann/json.hpp", "CLI/CLI.hpp", "fmt/format.h", "pcre2.h")]


def the_script():
    spec = importlib.util.spec_from_file_location("script", ROOT / "scripts" / "check_cuda.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


# "Compiles" by copying the source with those that it names, and "links" by making the first object the program: sources are
# shell scripts here.
NVCC = """#!/bin/sh
echo "nvcc $*" >>"$LOG"
[ "$1" = --version ] && { echo "Cuda compilation tools, release 13.0, V13.0.1"; exit 0; }
out= source= depfile= listed=
while [ $# -gt 0 ]; do
    case $1 in
        -o) out=$2; shift ;;
        -MF) depfile=$2; shift ;;
        -c) source=$2; shift ;;
        -M) listed=$2; shift ;;
        *.o) source=${source:-$1} ;;
    esac
    shift
done
[ -z "$listed" ] || { echo "x.o: $listed /usr/include/stdio.h $HEADERS"; exit 0; }
grep -q 'takes long' "$source" && { sleep 60 & wait; }
grep -q 'not C++' "$source" && { echo "$source:1: error: what is this?" >&2; exit 1; }
[ -z "$depfile" ] || echo "$out: $source $(dirname "$source")/used.hpp" >"$depfile"
echo "ptxas info : 8 bytes stack frame, 16 bytes spill stores, 0 bytes spill loads" >&2
cp "$source" "$out" && chmod +x "$out"
"""
SMI = """#!/bin/sh
case $* in *compute_cap*) for one in $DEVICES 1; do echo "Made Up, 580.1, 9.0, 100 MiB"; done ;; *) echo "1 MHz, 2 MHz" ;; esac
"""
GXX = """#!/bin/sh
case $1 in --version) echo "g++ 12" ;;
    -E) text=$(cat); case "$NO_CATCH$text" in 1*catch2*) exit 1 ;; 2*fmt*) exit 1 ;; esac ;;
    *) file=$(dirname "$0")/${1#*=}; [ ! -e "$file" ] || echo "$file" ;;
esac
"""
SANITIZER = """#!/bin/sh
[ "$1" != --help ] || { echo "--kernel-name arg"; exit 0; }
echo "sanitizer $*" >>"$LOG"
while [ "${1#*test_}" = "$1" ]; do shift; done
exec "$1"
"""
BENCH = """#!/bin/sh
cat >"$2" <<'END'
{"versions": {"cuBLASLt": "130000"}}
{"name": "adamw vs copy", "ours": 90, "rival": 100, "ratio": 0.9, "unit": "GB/s"}
{"name": "layer_norm vs copy", "ours": 80, "rival": 100, "ratio": 0.8, "unit": "GB/s"}
{"name": "attention_forward_b4_h16_t4096_d128", "ours": 410, "rival": null, "ratio": null, "unit": "TFLOP/s"}
{"name": "half of a li
END
"""
RIVALS = """import json, sys
with open(sys.argv[2], "w") as file:
    for row in [{"versions": {"cudnn": "9"}},
                {"name": "attention_forward_b4_h16_t4096_d128", "rival": "cudnn", "value": 820, "unit": "TFLOP/s"},
                {"name": "gpt2_124m_step_bf16_b32", "rival": "pytorch", "value": 5e5, "unit": "tokens/s"}]:
        file.write(json.dumps(row) + "\\n")
"""
TRAINER = """#!/bin/sh
echo "trainer $* shared=$NCCL_MULTI_RANK_GPU_ENABLE" >>"$LOG"
off=
case $* in *"--backend nccl"*) off=$NCCL_OFF ;; *"--device cuda"*) off=$DEVICE_OFF ;; esac
while [ "$1" != --out ]; do shift; done
mkdir -p "$2"
for step in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
    echo "{\\"type\\": \\"step\\", \\"loss\\": 4.$((9000 - 400 * step + ${off:-0}))}"
done >"$2/metrics.jsonl"
"""
SOURCES = {
    "VERSION": "0.0.1\n",
    "include/tutti/a.hpp": "",
    "tests/support/main.cpp": "# main\n",
    "tests/kernel/cuda/meson.build": "tests += {'folder': 'kernel/cuda', 'cuda': true, 'cuda_libraries': ['cublasLt'],\n"
                                     "  'sources': ['a.cpp']}\n",
    "tests/kernel/cuda/a.cpp": "#!/bin/sh\nexit 0\n",
    "tests/kernel/cuda/used.hpp": "1\n",
    "tests/exec/cuda/meson.build": "tests += {'folder': 'exec/cuda', 'cuda': true, 'sources': ['b.cpp']}\n",
    "tests/exec/cuda/b.cpp": "#!/bin/sh\nexit 0\n",
    "tests/exec/cuda/used.hpp": "",
    "tests/cuda/meson.build": "tests += {'folder': 'cuda', 'cuda': true, 'emulated_only': true, 'sources': ['none.cpp']}\n",
    "tests/backend/nccl/meson.build": "tests += [{'folder': 'backend/nccl', 'name': 'ranks', 'dependencies': [tutti_nccl_dep],\n"
                                      "  'sources': ['c.cpp']}]\n",
    "tests/backend/nccl/c.cpp": "#!/bin/sh\necho \"ranks ${TUTTI_TEST_RANKS:-1} ${NCCL_MULTI_RANK_GPU_ENABLE:-0}\" >>\"$LOG\"\n",
    "tests/backend/nccl/used.hpp": "",
    "benchmarks/cuda/used.hpp": "",
    "examples/train_gpt2.cpp": TRAINER,
    "examples/used.hpp": "",
    "examples/007_thrust.cpp": "#!/bin/sh\necho sum 66\n",
    "examples/007_thrust.out": "sum 66\n",
    "tests/support/used.hpp": "",
    "benchmarks/cuda/one.cpp": BENCH,
    "benchmarks/cuda/rivals.py": RIVALS,
}


def library(payload=b"code of 80" * 100, other=b"code of 90" * 100):
    """Bytes around a fat binary of two architectures."""
    entries = b"".join(struct.pack("<HHIQ", 2, 0, 64, len(data)) + bytes(12) + struct.pack("<I", number) + bytes(32) + data
                       for number, data in ((80, payload), (90, other)))
    return b"before" + struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(entries)) + entries + b"after"


class Machine:
    def __init__(self, folder):
        self.root, self.bin, self.log = folder / "repository", folder / "toolkit" / "bin", folder / "log"
        self.problems = []
        for path, text in SOURCES.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "check_cuda.py", self.root / "scripts")
        self.bin.mkdir(parents=True)
        (self.bin.parent / "lib64").mkdir()
        (self.bin.parent / "lib64" / "libcublasLt.so").write_text("")
        for name, text in {"nvcc": NVCC, "nvidia-smi": SMI, "compute-sanitizer": SANITIZER, "g++": GXX}.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def nccl(self, version):
        major, minor, patch = version.split(".")
        for path, text in {"include/nccl.h": f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH "
                                             f"{patch}\n", "lib/libnccl.so.2": ""}.items():
            (self.bin.parent / path).parent.mkdir(exist_ok=True)
            (self.bin.parent / path).write_text(text)

    def run(self, *arguments, status=0, says=(), silent=(), variables={}):
        self.log.write_text("")
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "LOG": str(self.log),
                       "HEADERS": " ".join(HEADERS), **variables}
        done = subprocess.run([sys.executable, str(self.root / "scripts" / "check_cuda.py"), *arguments], text=True,
                              capture_output=True, env=environment)
        text = done.stdout + done.stderr
        wrong = [f"status {done.returncode} in the place of {status}"] if done.returncode != status else []
        wrong += [f"\"{one}\" is not said" for one in says if one not in text]
        wrong += [f"\"{one}\" is said" for one in silent if one in text]
        if wrong:
            self.problems.append(f"check_cuda.py {' '.join(arguments)}: {'; '.join(wrong)}\n{text}")
        return self.log.read_text()

    def report(self):
        return json.loads((self.root / "build-cuda" / "report.json").read_text())

    def expect(self, truth, what):
        if not truth:
            self.problems.append(what)


def check(machine):
    log = machine.run("--only", "tests,bench,sanitizer", says=["holds        flash attention", "MISSED       AdamW", "0.8",
                                                              "not measured a step of GPT-2", "16 bytes of registers"])
    report = machine.report()
    rows = {row["name"]: row for row in report["rows"]}
    machine.expect(len(rows) == 5, f"rows of programs and rivals: {list(rows)}")
    machine.expect(rows["attention_forward_b4_h16_t4096_d128 vs cudnn"]["ratio"] == 0.5, "a rival's row has a ratio")
    machine.expect(rows["gpt2_124m_step_bf16_b32 vs pytorch"]["ours"] is None, "a rival without ours has a row")
    machine.expect(report["versions"]["cudnn"] == "9" and report["versions"]["cuBLASLt"] == "130000" and report["device"]["architecture"] == "90a", "versions, device")
    machine.expect(log.count("sanitizer --tool") == 4, "four tools on the kernels alone")
    filtered = [line for line in log.splitlines() if "--kernel-name kernel_substring=tutti" in line]
    machine.expect(len(filtered) == 3 and not any("initcheck" in line for line in filtered) and log.count("~*ceilings*") == 4,
                   "of kernels the library's own, without the large products; initcheck looks at all")
    text = "\n".join(path.read_text() for path in [*(ROOT / "include").rglob("*.hpp"), ROOT / "examples/train_gpt2.cpp"])
    for header in [*the_script().HEADERS, *the_script().TRAINER_HEADERS]:
        machine.expect(f"#include <{header}>" in text, f"{header} is asked for, so it is carried: something includes it")
    found = the_script().uninitialised
    ours = "Uninitialized __global__ memory read of size 4 bytes\n  at tutti::rows(float*)+0x40 in rows.cu:3\n"
    machine.expect(found(ours) and not found(ours.replace("tutti::", "ampere_sgemm::")) and not found(ours.replace("tutti::", "cub::scan<tutti::Plus>")),
                   "what initcheck says of others' kernels does not count")
    machine.expect("code=sm_90a" in log and "code=sm_80" not in log, "built for this device")

    log = machine.run("--only", "tests", says=["6 of 6 steps passed", "passed   run        007_thrust"])
    machine.expect(" -c " not in log, "what has not changed is not compiled again")
    machine.expect(len(machine.report()["rows"]) == 5, "an earlier part's rows are kept")
    (machine.root / "tests/kernel/cuda/used.hpp").write_text("2\n")
    machine.expect(machine.run("--only", "tests").count(" -c ") == 1, "what uses a changed header is compiled again")

    machine.run("--only", "tests", variables={"OUT": str(machine.root / "told")})
    machine.expect(json.loads((machine.root / "told/report.json").read_text()) == machine.report(), "a report in $OUT")
    hidden = machine.bin.parent / "lib64" / "libcublasLt.so"
    hidden.rename(hidden.with_suffix(".hidden"))
    package = machine.root / "packages/nvidia/cublas/lib/libcublasLt.so.12"
    package.parent.mkdir(parents=True)
    package.write_text("")
    machine.run("--only", "tests", "--out", str(machine.root / "bare"), status=2, says=["has no cuBLASLt", "pip install"])
    log = machine.run("--only", "tests", "--out", str(machine.root / "bare"), variables={"PYTHONPATH": str(machine.root / "packages")})
    machine.expect(f"-rpath,{package.parent}" in log and (machine.root / "bare/cublasLt_link/libcublasLt.so").readlink() == package,
                   "cuBLASLt of a package")
    hidden.with_suffix(".hidden").rename(hidden)
    machine.run("--only", "tests", status=2, variables={"NO_CATCH": "1"}, says=["catch2/catch.hpp or catch2/catch_all.hpp cannot", "Install catch2", "--carry"])
    machine.run("--only", "nccl", says=["SKIPPED  no NCCL", "0 of 0 steps"])
    check_training(machine)
    machine.nccl("2.28.9")
    log = machine.run("--only", "nccl", says=["left out: NCCL 2.28.9 refuses"])
    machine.expect("ranks 1 0" in log and "ranks 3 1" not in log, "an old NCCL runs on one rank")
    machine.nccl("2.30.4")
    log = machine.run("--only", "nccl", says=["worlds 1-3"], silent=["left out"])
    machine.expect("ranks 1 0" in log and "ranks 3 1" in log, "a new NCCL runs on three ranks")

    log = machine.run("--compile-only", "--out", str(machine.root / "all"), silent=["run  "])
    machine.expect("code=sm_80" in log and "code=sm_90a" in log and "bench_one" in log, "everything, for both architectures")
    machine.expect(any("bench_one" in line and "-lcublasLt" in line for line in log.splitlines()),
                   "benchmarks are linked with cuBLASLt, through whichever header they use it")
    machine.run("--only", "tests", "--seconds", "0.5", status=1, says=["no time"])
    (machine.root / "tests/exec/cuda/b.cpp").write_text("#!/bin/sh\nsleep 60 &\necho begun\nwait\n")
    begin = time.monotonic()
    machine.run("--only", "tests", "--match", "exec", "--seconds", "5", status=1, says=["no time  run        exec_cuda", "begun"])
    machine.expect(time.monotonic() - begin < 30, "what a program started ends with it")
    # Building has its share: what is compiled too slowly leaves the rest its time.
    (machine.root / "tests/exec/cuda/b.cpp").write_text("#!/bin/sh\n# takes long\n")
    begin = time.monotonic()
    machine.run("--only", "tests,bench", "--seconds", "12", status=1, says=[
        "no time  build      exec_cuda", "b.cpp was not compiled in the time for building", "passed   run        kernel_cuda",
        "passed   run        bench_one"])
    machine.expect(time.monotonic() - begin < 30, "a compiler that takes too long is ended, with what it started")
    machine.run("--only", "games", status=2, says=["there are tests, nccl, train, bench, sanitizer"])
    machine.run("--from", "/nowhere", status=2, says=["no such folder"])
    machine.run("--only", "tests", "--match", "nothing", status=2, says=["has nothing in its name"])

    (machine.root / "tests/exec/cuda/b.cpp").write_text("#!/bin/sh\necho it is wrong\nexit 3\n")
    machine.run("--only", "tests", status=1, says=["it is wrong", "FAILED: run exec_cuda"])
    (machine.root / "examples/007_thrust.out").write_text("sum 67\n")
    machine.run("--only", "tests", "--match", "thrust", status=1, says=["sum 66", "and not what 007_thrust.out has"])
    (machine.root / "examples/007_thrust.out").write_text("sum 66\n")
    (machine.root / "tests/exec/cuda/b.cpp").write_text("not C++\n")
    machine.run("--only", "tests", status=1, says=["what is this?", "FAILED: build exec_cuda", "passed   run        kernel_cuda"])
    (machine.root / "tests/exec/cuda/b.cpp").write_text("#!/bin/sh\n")
    (machine.root / "benchmarks/cuda/rivals.py").write_text("import sys\nprint('PyTorch is not there')\nsys.exit(77)\n")
    machine.run("--only", "bench", says=["SKIPPED  PyTorch is not there", "left out: PyTorch"])
    (machine.bin / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    machine.run(status=2, says=["no GPU that nvidia-smi knows"])
    check_carried(machine)


def check_training(machine):
    """Without NCCL at first, then with one that gives each rank a device, then with one that lets them share it."""
    (machine.bin / "libpcre2-8.a").write_text("")
    log = machine.run("--only", "train", says=["passed   device     train_gpt2_cuda", "losses within 0.0e+00", "1e-03 is allowed",
                                               "left out: training on NcclOn<Threads> with two ranks needs NCCL"])
    lines = [line for line in log.splitlines() if line.startswith("trainer")]
    machine.expect(len(lines) == 2 and "--device cpu" in lines[0] and "--device cuda" in lines[1] and "--steps 20" in lines[1],
                   "on processors, then on the device")
    machine.expect("-DTUTTI_WITH_NCCL" not in log and "-lpcre2-8" in log, "the trainer's libraries, without NCCL")
    # The last loss is 4.14: 0.003 is less than a thousandth of it, 0.006 is more.
    machine.run("--only", "train", variables={"DEVICE_OFF": "30"}, says=["losses within 7.", "passed   device"])
    machine.run("--only", "train", variables={"DEVICE_OFF": "60"}, status=1,
                says=["losses differ from the processors' by 1.", "FAILED: device train_gpt2_cuda"])
    machine.run("--only", "train", variables={"NO_CATCH": "2"}, status=2, says=["fmt/format.h cannot", "Install libfmt-dev"])
    machine.nccl("2.28.9")
    log = machine.run("--only", "train", says=["two devices, or NCCL 2.30 or later to share one: here are 1 and 2.28.9"])
    machine.expect("-DTUTTI_WITH_NCCL=1" in log and "-lnccl" in log and "--backend nccl" not in log, "built with NCCL")
    log = machine.run("--only", "train", variables={"DEVICES": "0"}, says=["passed   nccl, 2"], silent=["left out"])
    machine.expect("--backend nccl --ranks 2" in log and "shared=1" not in log, "two devices are two ranks of NCCL")
    machine.run("--only", "train", variables={"DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, says=["here are 1 and 2.28.9"])
    machine.run("--only", "train", variables={"DEVICES": "0", "NCCL_OFF": "60"}, status=1, says=["passed   device", "FAILED: nccl, 2"])
    machine.nccl("2.30.4")
    log = machine.run("--only", "train", says=["passed   nccl, 2"], silent=["left out"])
    machine.expect("shared=1" in log, "a new NCCL has two ranks on one device")
    shutil.rmtree(machine.bin.parent / "include")
    shutil.rmtree(machine.bin.parent / "lib")


def check_trainer(program):
    """The flags that the script gives are the trainer's, and its losses are read and compared."""
    script = the_script()
    with tempfile.TemporaryDirectory() as name:
        folder, end = pathlib.Path(name), time.monotonic() + 280
        report = script.Report({"device": None, "commit": "", "nvcc": ""}, folder / "report.json", ["train"])
        script.run_training(report, program, lambda: end - time.monotonic(), folder / "train", None, 1)
        return report.close() or len(report.new) != 2


def check_carried(machine):
    wheel, folder = machine.root / "nccl.whl", machine.root / "carried"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("nvidia/nccl/include/nccl.h", "#define NCCL_MAJOR 2\n#define NCCL_MINOR 32\n#define NCCL_PATCH 3\n")
        file.writestr("nvidia/nccl/include/deep/b.h", "")
        file.writestr("nvidia/nccl/lib/libnccl.so.2", library())
    machine.run("--carry", str(folder), "--nccl", str(wheel), says=[
        "NCCL 2.32.3 for sm_90", "headers are in", "MiB", "needs nvcc", "cuBLASLt is not taken along", "(0 MiB here)", "nvidia-cublas"])
    machine.expect((folder / "lib/libpcre2-8.a").exists(), "the trainer's library")
    (machine.bin / "libpcre2-8.a").unlink()
    machine.run("--carry", str(machine.root / "other"), status=2, says=["g++ finds no libpcre2-8.a", "libpcre2-dev"])
    machine.run("--carry", str(machine.root / "other"), "--only", "tests", silent=["libpcre2"])
    (machine.bin / "libpcre2-8.a").write_text("")
    machine.run("--carry", str(machine.root / "other"), status=2, variables={"HEADERS": ""},
                says=["boost/hana/accessors.hpp, nlohmann/json.hpp", "no program includes it"])
    with open(folder / "large", "wb") as large:
        large.truncate(65 << 20)
    machine.run("--carry", str(folder), "--nccl", str(wheel), status=2, says=["more than the 64"])
    (folder / "large").unlink()
    hidden = machine.bin.parent / "lib64" / "libcublasLt.so"
    hidden.rename(hidden.with_suffix(".hidden"))
    taken = folder / "cublas/nvidia/cu13/lib/libcublasLt.so.13"
    taken.parent.mkdir(parents=True)
    (taken.parent.parent / "include").mkdir()
    taken.write_text("")
    log = machine.run("--from", str(folder), "--compile-only", "--only", "bench", "--out", str(machine.root / "taken"))
    machine.expect(f"-rpath,{taken.parent}" in log and f"-I{taken.parent.parent}/include" in log, "cuBLASLt that was taken along")
    shutil.rmtree(folder / "cublas")
    hidden.with_suffix(".hidden").rename(hidden)
    log = machine.run("--from", str(folder), "--compile-only", "--only", "train", "--out", str(machine.root / "trainer"))
    machine.expect(f"-L{folder}/lib" in log and f"-I{folder}/include" in log, "the trainer's libraries and headers that were taken along")
    machine.expect((folder / "nccl/include/deep/b.h").exists(), "all headers of NCCL")
    machine.expect(lzma.decompress((folder / "nccl/lib/libnccl.so.2.xz").read_bytes()) == library(bytes(1000)),
                   "the code of one architecture, and nothing else changed")
    out = machine.root / "all"
    log = machine.run("--from", str(folder), "--compile-only", "--only", "nccl", "--out", str(out), says=["2.32.3"])
    machine.expect(f"-rpath,{out}/nccl/lib" in log and (out / "nccl_link/libnccl.so").exists() and f"-I{out}/nccl/include" in log, "the carried NCCL is used")
    machine.run("--carry", str(folder), "--nccl", str(wheel), "--arch", "75", status=2, says=["no device code for sm_75"])
    machine.run("--carry", str(folder), "--nccl", str(machine.root / "VERSION"), status=2, says=["--nccl"])

    # Programs that are taken along run as they are, until a source of theirs changes.
    (machine.bin / "nvidia-smi").write_text(SMI)
    built = machine.root / "built"
    log = machine.run("--carry", str(built), "--built", "--only", "tests,bench")
    machine.expect("code=sm_90a" in log and "code=sm_80" not in log, "built for one architecture")
    log = machine.run("--from", str(built), "--only", "tests,bench", "--out", str(machine.root / "there"), says=[
        "passed   run        exec_cuda", "passed   run        kernel_cuda", "passed   run        bench_one"])
    machine.expect("-c " not in log, "nothing is compiled there")
    (machine.root / "tests/kernel/cuda/used.hpp").write_text("3\n")
    log = machine.run("--from", str(built), "--only", "tests", "--out", str(machine.root / "there"), says=["passed   run        kernel_cuda"])
    compiled = [line for line in log.splitlines() if " -c " in line]
    machine.expect(len(compiled) == 2 and all("/kernel/" in line or "main.cpp" in line for line in compiled), "what has changed is compiled")


def main():
    if sys.argv[1:2] == ["--trainer"]:
        return 1 if check_trainer(sys.argv[2]) else 0
    with tempfile.TemporaryDirectory() as name:
        machine = Machine(pathlib.Path(name))
        check(machine)
    print("\n".join(machine.problems) if machine.problems else "all parts do as they are told")
    return 1 if machine.problems else 0


if __name__ == "__main__":
    sys.exit(main())
