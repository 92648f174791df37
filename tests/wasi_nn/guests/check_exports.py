#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what the two libraries export, and the layouts of their C headers, with the lists that hosts rely on:
check_exports.py LLAMACPP BACKEND."""
import pathlib
import shutil
import subprocess
import sys

BOTH = {"init_backend", "deinit_backend", "load", "load_by_name", "load_by_name_with_config", "init_execution_context",
        "set_input", "compute", "get_output"}
LLAMACPP = BOTH | {"get_native_lib", "init_native_lib", "deinit_native_lib", "tutti_wasi_nn_compute_single",
                   "tutti_wasi_nn_get_output_single", "tutti_wasi_nn_fini_single", "tutti_wasi_nn_unload",
                   "tutti_wasi_nn_finalize_execution_context"}
BACKEND = BOTH | {"init_backend_with_config", "init_execution_context_with_session_id", "close_execution_context",
                  "run_inference"}

failed = False
for path, wanted in zip(sys.argv[1:], (LLAMACPP, BACKEND)):
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    found = {line.split()[-1] for line in listed.splitlines()}
    for name in sorted(wanted - found):
        print(f"{path} does not export {name}")
    for name in sorted(found - wanted):
        print(f"{path} exports {name}, which is on no list")
    failed = failed or found != wanted
    print(f"{path}: {len(found)} names")

HERE = pathlib.Path(__file__).resolve().parent
compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
for flags in ([], ["-DSESSION_INTERFACE"]) if compiler and sys.maxsize > 1 << 32 else ():
    right = subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", *flags, "-I",
                            str(HERE.parents[2] / "subprojects/wasi-nn/include"), str(HERE / "layouts.c")]).returncode == 0
    print(f"layouts of {'tutti_wasi_nn_backend.h' if flags else 'tutti_wasi_nn.h'}: {'as recorded' if right else 'WRONG'}")
    failed = failed or not right
if not compiler:
    print("layouts: not compared, there is no C compiler")
sys.exit(failed)
