#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a guest of WebAssembly on a host with a library, and checks what it prints and how it ends.

    run_guest.py HOST LIBRARY GUEST EXPECTED [options] [-- arguments of the guest]

    HOST               wasmtime (scripts/wasi_host.py), node (scripts/wasi_host.mjs) or iwasm
    LIBRARY            libwasi_nn_llamacpp.so
    EXPECTED           a file that standard output must equal, or - for none
    --exit N           the exit code (0)
    --contains TEXT    standard output has this text; may be repeated
    --error TEXT       standard error has this text; may be repeated
    --stdin TEXT       standard input, with \\n for the end of a line (empty)
    --env NAME=VALUE   a setting of the library; may be repeated
    --dir HOST::GUEST  a folder that the guest may read; may be repeated
    --addon FILE       of the host for Node: wasi_nn_host.node
    --native-lib FILE  for iwasm; may be repeated
    --sanitizer FILE   the runtime of the address sanitizer, for a library that was built with it
    --seconds N        after which the guest is ended, and has failed (60)

Exit code 0: as expected; 1: not; 77: the host is not there, which is said. Hosts are looked for on the path; the
environment variables TUTTI_WASI_PYTHON (a Python that has wasmtime), TUTTI_NODE and TUTTI_IWASM name others.
"""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
# iwasm reports each call that gives another code than 0 on standard output, the guest's own lines apart.
NOISE = re.compile(r"^\[(\w+\.c:\d+ [A-Z]+|[\d:]+ - [0-9A-F]+)\]:? .*\n", re.M)


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def answers(command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def wasmtime_command(options):
    wanted = os.environ.get("TUTTI_WASI_PYTHON")
    pythons = [wanted] if wanted else [sys.executable, shutil.which("python3"), "/usr/bin/python3"]
    for python in dict.fromkeys(filter(None, pythons)):
        if answers([python, "-c", "import wasmtime"]):
            return [python, str(ROOT / "scripts/wasi_host.py"), "--library", options.library]
    return skip("no Python with the package wasmtime: pip install wasmtime, and name it in TUTTI_WASI_PYTHON")


def node_command(options):
    node = os.environ.get("TUTTI_NODE") or shutil.which("node") or shutil.which("nodejs")
    if not node or not answers([node, "--no-warnings", "-e", "require('node:wasi')"]):
        skip("no Node with node:wasi (Debian: nodejs, version 18 or later)")
    if not options.addon or not os.path.exists(options.addon):
        skip("the addon of the host for Node was not built (Debian: libnode-dev), or --addon does not name it")
    return [node, "--no-warnings", str(ROOT / "scripts/wasi_host.mjs"), "--addon", options.addon, "--library",
            options.library]


def iwasm_command(options):
    iwasm = os.environ.get("TUTTI_IWASM") or shutil.which("iwasm")
    if not iwasm or not os.path.exists(iwasm):
        skip("no iwasm, the program of wasm-micro-runtime built with WASI-NN; TUTTI_IWASM names one")
    return [iwasm, *(f"--native-lib={library}" for library in options.native_lib)]


def command_of(options):
    """The command of a host and its environment; the guest and its arguments follow."""
    command = {"wasmtime": wasmtime_command, "node": node_command, "iwasm": iwasm_command}[options.host](options)
    environment = dict(os.environ)
    if options.host == "iwasm":
        # It looks for the library by its name, and the library for its settings in the environment.
        folder = os.path.dirname(os.path.abspath(options.library))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
        environment.update(setting.split("=", 1) for setting in options.env)
        for folder in options.dir:
            host, _, name = folder.partition("::")
            command.append(f"--map-dir={name or host}::{host}")
    else:
        for flag, values in (("--env", options.env), ("--dir", options.dir)):
            for value in values:
                command += [flag, value]
    if options.sanitizer:
        # Hosts have no sanitizer of their own. What they leave to the system at their end is no leak of the library, and
        # they catch a guest's wrong addresses by the signal that the sanitizer would take.
        environment["LD_PRELOAD"] = options.sanitizer
        environment["ASAN_OPTIONS"] = "detect_leaks=0:handle_segv=0:allow_user_segv_handler=1"
    return command, environment


def run(command, environment, text, seconds):
    """(exit code or None after the time, output, errors). What the guest left running ends with it."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment, start_new_session=True)
    try:
        output, errors = process.communicate(text.encode(), timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        code = None
    return code, output.decode(errors="replace"), errors.decode(errors="replace")


def parse():
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(usage=__doc__.strip(), add_help=False, allow_abbrev=False)
    parser.add_argument("host", choices=["wasmtime", "node", "iwasm"])
    for name in ("library", "guest", "expected"):
        parser.add_argument(name)
    parser.add_argument("--exit", type=int, default=0)
    for name in ("--contains", "--error", "--env", "--dir", "--native-lib"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--stdin", default="")
    parser.add_argument("--addon")
    parser.add_argument("--sanitizer")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args(given[:cut])
    for setting in options.env:
        if "=" not in setting:
            parser.error(f"--env {setting}: not of the form NAME=VALUE")
    return options, given[cut + 1:]


def main():
    options, arguments = parse()
    for file in [options.library, options.guest, *([] if options.expected == "-" else [options.expected])]:
        if not os.path.exists(file):
            print(f"there is no file {file}")
            return 1
    command, environment = command_of(options)
    command += [options.guest, *arguments]
    print("running:", " ".join(command))
    code, output, errors = run(command, environment, options.stdin.replace("\\n", "\n"), options.seconds)
    print(f"---- output\n{output}---- errors\n{errors}----")
    if options.host == "iwasm":
        output = NOISE.sub("", output)
    wrong = []

    def check(right, what):
        print(("ok " if right else "FAILED ") + what)
        if not right:
            wrong.append(what)

    check(code is not None, f"it ends within {options.seconds:g} seconds")
    if code is not None:
        check(code == options.exit, f"the exit code is {code}, and should be {options.exit}")
    for text in options.contains:
        check(text in output, f"the output has: {text}")
    for text in options.error:
        check(text in errors, f"the errors have: {text}")
    if options.expected != "-":
        want = pathlib.Path(options.expected).read_text()
        check(output == want, f"the output is that of {options.expected}")
        if output != want:
            print("\n".join(difflib.unified_diff(want.splitlines(), output.splitlines(), options.expected, "printed",
                                                 lineterm="")))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
