#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many instructions kernels of a training step take for a unit of work, and that it is no more than was recorded.

    instructions.py PROGRAM [--record]

Counts say what times on a shared machine cannot: callgrind's are the same in every run. They are of the levels that
valgrind can run, avx2 and scalar. A unit is a multiply-add of whole vectors, or a vector of elements. Every kernel runs
at two sizes, and the difference counts, so that what a call costs once does not matter. --record prints the table anew.
"""
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
# Instructions a unit, with optimization 2: g++ 12.2 and clang 19.1, valgrind 3.19. Each compiler has a bound of its own,
# because they differ by more than what the guard is to find. Scalar counts depend on values a little, through branches.
RECORDED = {
    "gemm nt, avx2":                         {"gcc": 2.071, "clang": 2.171},
    "gemm nn, avx2":                         {"gcc": 2.065, "clang": 2.157},
    "gemm tn, avx2":                         {"gcc": 2.078, "clang": 2.154},
    "gemm bfloat16, avx2":                   {"gcc": 2.490, "clang": 2.163},
    "gemm rounded, avx2":                    {"gcc": 2.154, "clang": 2.255},
    "gemm int8, avx2":                       {"gcc": 1.635, "clang": 1.669},
    "gemm float64, avx2":                    {"gcc": 3.723, "clang": 4.884},
    "gemm epilogue, avx2":                   {"gcc": 130.443, "clang": 120.974},
    "gemm skinny, avx2":                     {"gcc": 1.688, "clang": 2.562},
    "attention, avx2":                       {"gcc": 2.745, "clang": 2.900},
    "attention bfloat16, avx2":              {"gcc": 2.885, "clang": 3.091},
    "attention gradient, avx2":              {"gcc": 3.052, "clang": 3.231},
    "attention gradient bfloat16, avx2":     {"gcc": 3.242, "clang": 3.436},
    "layer norm, avx2":                      {"gcc": 18.073, "clang": 15.833},
    "layer norm gradient, avx2":             {"gcc": 43.974, "clang": 44.973},
    "rms norm, avx2":                        {"gcc": 10.938, "clang": 8.531},
    "rms norm gradient, avx2":               {"gcc": 32.388, "clang": 32.756},
    "swiglu, avx2":                          {"gcc": 39.688, "clang": 46.833},
    "swiglu gradient, avx2":                 {"gcc": 63.927, "clang": 67.698},
    "rotary, avx2":                          {"gcc": 10.469, "clang": 13.281},
    "gelu, avx2":                            {"gcc": 37.664, "clang": 44.289},
    "cross-entropy, avx2":                   {"gcc": 42.094, "clang": 47.574},
    "adamw, avx2":                           {"gcc": 31.000, "clang": 39.000},
    "adamw + copy + cleared, avx2":          {"gcc": 46.000, "clang": 56.000},
    "square sum, avx2":                      {"gcc": 11.568, "clang": 4.818},
    "column sum, avx2":                      {"gcc": 5.237, "clang": 4.313},
    "attention decode, avx2":                {"gcc": 7.908, "clang": 6.651},
    "embedding gradient, avx2":              {"gcc": 6.323, "clang": 8.302},
    "quantize rows, avx2":                   {"gcc": 29.396, "clang": 32.562},
    "gemm nt, scalar":                       {"gcc": 2.227, "clang": 1.578},
    "gemm nn, scalar":                       {"gcc": 2.232, "clang": 1.581},
    "gemm tn, scalar":                       {"gcc": 2.232, "clang": 1.581},
    "gemm bfloat16, scalar":                 {"gcc": 2.332, "clang": 1.607},
    "gemm rounded, scalar":                  {"gcc": 2.294, "clang": 1.638},
    "gemm int8, scalar":                     {"gcc": 3.660, "clang": 4.867},
    "gemm float64, scalar":                  {"gcc": 2.686, "clang": 2.341},
    "gemm epilogue, scalar":                 {"gcc": 156.219, "clang": 148.457},
    "gemm skinny, scalar":                   {"gcc": 3.500, "clang": 1.812},
    "attention, scalar":                     {"gcc": 3.067, "clang": 2.361},
    "attention bfloat16, scalar":            {"gcc": 3.210, "clang": 2.476},
    "attention gradient, scalar":            {"gcc": 3.354, "clang": 2.538},
    "attention gradient bfloat16, scalar":   {"gcc": 3.556, "clang": 2.662},
    "layer norm, scalar":                    {"gcc": 14.328, "clang": 5.492},
    "layer norm gradient, scalar":           {"gcc": 39.688, "clang": 41.961},
    "rms norm, scalar":                      {"gcc": 10.042, "clang": 3.602},
    "rms norm gradient, scalar":             {"gcc": 29.617, "clang": 35.134},
    "swiglu, scalar":                        {"gcc": 94.556, "clang": 107.094},
    "swiglu gradient, scalar":               {"gcc": 112.098, "clang": 132.121},
    "rotary, scalar":                        {"gcc": 9.234, "clang": 2.923},
    "gelu, scalar":                          {"gcc": 78.252, "clang": 84.245},
    "cross-entropy, scalar":                 {"gcc": 77.719, "clang": 79.729},
    "adamw, scalar":                         {"gcc": 31.000, "clang": 58.000},
    "adamw + copy + cleared, scalar":        {"gcc": 47.000, "clang": 66.000},
    "square sum, scalar":                    {"gcc": 2.948, "clang": 1.820},
    "column sum, scalar":                    {"gcc": 2.424, "clang": 4.240},
    "attention decode, scalar":              {"gcc": 7.256, "clang": 7.582},
    "embedding gradient, scalar":            {"gcc": 7.025, "clang": 1.426},
    "quantize rows, scalar":                 {"gcc": 27.046, "clang": 41.070},
}
VERSIONS = {"gcc": 12, "clang": 19}
SLACK = 1.03        # of the versions in the table
OTHER_SLACK = 1.15  # of others, whose code was not counted


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIP)


def count(program):
    """The compiler, and instructions a unit by name."""
    with tempfile.TemporaryDirectory(prefix="tutti-instructions-") as folder:
        out = pathlib.Path(folder) / "out"
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=counted", "--dump-after=counted",
             f"--callgrind-out-file={out}", program], capture_output=True, text=True, timeout=280)
        if run.returncode == SKIP:
            skip(run.stdout.strip().splitlines()[-1])
        if run.returncode != 0:
            sys.exit(f"FAILED: {program} under valgrind ended with {run.returncode}:\n{run.stdout}{run.stderr[-3000:]}")
        lines = run.stdout.splitlines()
        _, family, version = lines[0].split()
        cases = [line.split(maxsplit=4)[1:] for line in lines if line.startswith("case ")]
        for line in lines:
            if line.startswith("unavailable "):
                print(f"SKIPPED: {line.split()[1]}, which this processor or valgrind does not have")
        ratios = {}
        for number, (small, large, isa, name) in enumerate(cases):
            totals = [int(re.search(r"^(?:totals|summary): (\d+)", (out.parent / f"out.{2 * number + 1 + i}").read_text(),
                                    re.M)[1]) for i in range(2)]
            ratios[f"{name}, {isa}"] = (totals[1] - totals[0]) / (int(large) - int(small))
        return family, int(version), ratios


def main():
    if platform.machine() not in ("x86_64", "AMD64"):
        skip(f"instructions were counted on x86-64, not on {platform.machine()}")
    if shutil.which("valgrind") is None:
        skip("valgrind is not installed (Debian: valgrind)")
    family, version, ratios = count(sys.argv[1])
    if "--record" in sys.argv:
        for name, ratio in ratios.items():
            row = dict(RECORDED.get(name, {}), **{family: ratio})
            key = f'"{name}":'
            print(f"    {key:40} {{" + ", ".join(f'"{compiler}": {value:.3f}' for compiler, value in row.items()) + "},")
        return 0
    slack = SLACK if VERSIONS[family] == version else OTHER_SLACK
    print(f"instructions a unit, {family} {version}; the bound is {slack} times what was recorded with {family} {VERSIONS[family]}")
    worse = []
    for name, ratio in ratios.items():
        if name not in RECORDED:
            sys.exit(f"FAILED: nothing is recorded of {name}; {sys.argv[0]} PROGRAM --record prints the table")
        recorded = RECORDED[name][family]
        verdict = "good"
        if ratio > slack * recorded:
            verdict = "TOO MANY"
            worse.append(name)
        print(f"  {name:32} {ratio:8.3f}  recorded {recorded:8.3f}  {100 * (ratio / recorded - 1):+6.1f} %  {verdict}")
    if worse:
        print(f"FAILED: {'; '.join(worse)}: more instructions than recorded. Make the kernel lean again; or, where the "
              "change is wanted, record the table anew and say why in the commit")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
