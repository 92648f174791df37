#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the boundary of WebAssembly costs: tokens/s of a guest in wasmtime over those of the same calls made natively.

  --model FILE    a GGUF file
  --tokens N      of an answer (default 128)
  --rounds N      passes in which both take turns (default 5); the median counts

An answer by compute, and one token by token; the guests are train_gpt2_wasi and stream of examples/wasi, and one that
prints its pieces in the end: what the runtime takes to print each is no cost of these calls. Their texts must be the
native ones. Needs the Python package wasmtime in this interpreter, or `./tutti wasi` once.
"""
import argparse
import ctypes
import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TUTTI_BUILD", ROOT / "build"))
PROMPT = b"Once upon a time"


def host_module():
    spec = importlib.util.spec_from_file_location("wasi_host", ROOT / "scripts" / "wasi_host.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def native(host, library, options, streaming):
    """(text, seconds from the first input to the last output)"""
    handle, written = ctypes.c_uint32(0), ctypes.c_uint32(0)
    assert library.call("load_by_name", b"default", 7, ctypes.byref(handle)) == 0
    context = ctypes.c_uint32(0)
    assert library.call("init_execution_context", handle, ctypes.byref(context)) == 0

    def give(index, data):
        shape = host.Bytes(None, 0)
        buffer = ctypes.create_string_buffer(data, len(data))
        tensor = host.Tensor(ctypes.pointer(shape), 3, host.Bytes(ctypes.addressof(buffer), len(data)))
        code = library.call("set_input", context, index, ctypes.byref(tensor))
        assert code == 0, code
    space = ctypes.create_string_buffer(1 << 20)
    room = host.Bytes(ctypes.addressof(space), len(space))
    begin = time.perf_counter()
    give(1, options)
    give(0, PROMPT)
    text = b""
    if streaming:
        while library.call("compute_single", context) == 0:
            assert library.call("get_output_single", context, 0, ctypes.byref(room), ctypes.byref(written)) == 0
            text += space.raw[:written.value]
        library.call("fini_single", context)
    else:
        assert library.call("compute", context) == 0
        assert library.call("get_output", context, 0, ctypes.byref(room), ctypes.byref(written)) == 0
        text = space.raw[:written.value]
    seconds = time.perf_counter() - begin
    library.call("finalize_execution_context", context)
    library.call("unload", handle)
    return text, seconds


def guest(host, library, program, arguments):
    """(what it printed, seconds from its first input to its last output)"""
    times = []

    class Timed(host.Library):
        def __init__(self):  # the library that is open already
            self.__dict__ = library.__dict__

        def call(self, name, *rest):
            if name == "set_input":
                times.append(time.perf_counter())
            code = super().call(name, *rest)
            if name in ("get_output", "get_output_single", "compute_single"):
                times.append(time.perf_counter())
            return code
    with tempfile.TemporaryFile() as out:
        kept = os.dup(1)
        sys.stdout.flush()
        os.dup2(out.fileno(), 1)
        try:
            code = host.run(Timed(), [], [], str(program), arguments)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        assert code == 0, code
        out.seek(0)
        return out.read(), times[-1] - times[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    try:
        import wasmtime  # noqa: F401
    except ImportError:
        python = BUILD / "wasi" / "bin" / "python"
        if not python.exists() or python.resolve() == pathlib.Path(sys.executable).resolve() and "wasi" in sys.prefix:
            sys.exit("the Python package wasmtime is missing: pip install wasmtime, or run ./tutti wasi once")
        os.execv(python, [str(python), *sys.argv])
    library_path = BUILD / "subprojects/wasi-nn/libwasi_nn_llamacpp.so"
    guests = [BUILD / name for name in ("examples/wasi/train_gpt2_wasi.wasm", "benchmarks/wasi_pieces.wasm", "examples/wasi/stream.wasm")]
    targets = [str(path.relative_to(BUILD)) for path in (library_path, *guests)]
    subprocess.run(["ninja", "-C", str(BUILD), *targets], check=True, stdout=subprocess.DEVNULL)
    # Both guests write as many tokens: the settings of the model say what a guest leaves open.
    settings = tempfile.NamedTemporaryFile("w", suffix=".json")
    settings.write('{"models": {"default": {"path": "%s", "settings": {"temperature": 0, "max_tokens": %d, "ignore_eos": true, '
                   '"cache_prompt": false}}}}' % (pathlib.Path(arguments.model).resolve(), arguments.tokens))
    settings.flush()
    os.environ["TUTTI_WASI_NN_MODELS"] = settings.name
    host = host_module()
    library = host.Library(str(library_path))
    keep = ctypes.c_uint32(0)
    assert library.call("load_by_name", b"default", 7, ctypes.byref(keep)) == 0  # the model stays loaded
    print(f"{pathlib.Path(arguments.model).name}, {arguments.tokens} tokens, median of {arguments.rounds}\n")
    print(f"{'':26}{'native':>12}{'guest':>12}   guest / native")
    text = PROMPT.decode()
    cases = {"compute": (False, guests[0], ["--prompt", text, "--max-tokens", str(arguments.tokens), "--temperature", "0"]),
             "compute_single": (True, guests[1], ["default", text]),
             "compute_single, printing": (True, guests[2], ["default", text])}
    for name, (streaming, program, words) in cases.items():
        rates = {"native": [], "guest": []}
        for _ in range(arguments.rounds):
            wanted, seconds = native(host, library, b"{}", streaming)
            rates["native"].append(arguments.tokens / seconds)
            printed, seconds = guest(host, library, program, words)
            rates["guest"].append(arguments.tokens / seconds)
            if wanted not in printed:
                sys.exit(f"{name}: the guest wrote another text:\n{printed!r}\n{wanted!r}")
        a, b = (statistics.median(rates[who]) for who in ("native", "guest"))
        print(f"{name:26}{a:8.1f} /s {b:8.1f} /s{b / a:14.3f}")
    library.close()


if __name__ == "__main__":
    main()
