#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what the two libraries export with the lists that hosts rely on: check_exports.py LLAMACPP BACKEND."""
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
sys.exit(failed)
