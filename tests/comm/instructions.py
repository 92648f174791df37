#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many instructions a rank takes to reduce eight bytes, or to send and receive them, and that it is no more than was
recorded.

    instructions.py threads|mpi PROGRAM_THAT_REDUCES PROGRAM_THAT_SENDS

Such a call takes some 200 ns, which a shared machine cannot time; callgrind's counts are the same in every run. The
difference between few calls and many counts, so that the beginning does not matter.
"""
import platform
import re
import shutil
import subprocess
import sys

SKIP = 77
# g++ 12.2 and valgrind 3.19, with optimization 2.
RECORDED = {
    ("threads", "in_place"): 757,
    ("threads", "out_of_place"): 938,
    ("threads", "message"): 669,
    ("mpi", "in_place"): 836,
    ("mpi", "out_of_place"): 1039,
    ("mpi", "message"): 746,
}
VERSION = "gcc 12"
SLACK = 1.03        # of the version that was recorded
OTHER_SLACK = 1.25  # of other compilers, whose code was not counted
FEW, MANY = 2000, 42000


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIP)


def count(program, way, calls):
    """The compiler, and instructions of the whole program."""
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, way, str(calls)],
                         capture_output=True, text=True, timeout=100)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or found is None:
        sys.exit(f"FAILED: {program} {way} under valgrind ended with {run.returncode}:\n{run.stdout}{run.stderr[-3000:]}")
    return run.stdout.splitlines()[0], int(found[1])


def main():
    backend, reduces, sends = sys.argv[1:]
    if platform.machine() not in ("x86_64", "AMD64"):
        skip(f"instructions were counted on x86-64, not on {platform.machine()}")
    if shutil.which("valgrind") is None:
        skip("valgrind is not installed (Debian: valgrind)")
    good = True
    for way, program in (("in_place", reduces), ("out_of_place", reduces), ("message", sends)):
        compiler, few = count(program, way, FEW)
        each = (count(program, way, MANY)[1] - few) / (MANY - FEW)
        recorded = RECORDED[backend, way]
        fits = each <= (SLACK if compiler == VERSION else OTHER_SLACK) * recorded
        good = good and fits
        what = "send and recv" if way == "message" else f"all_reduce {way}"
        print(f"{what} of 8 bytes, {backend}, {compiler}: {each:.1f} instructions, recorded {recorded}"
              f"{'' if fits else '  TOO MANY'}")
    if not good:
        print("FAILED: make the way of a small call lean again; or, where the change is wanted, record the numbers anew "
              "and say why in the commit")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
