#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a WebAssembly program that uses wasi_ephemeral_nn, with wasmtime and a library of the kind that
wasm-micro-runtime loads (libwasi_nn_llamacpp.so). Needs the Python package wasmtime.

    wasi_host.py --library LIBRARY [options] GUEST.wasm [arguments of the guest]

      --library LIBRARY     the library that has the models
      --env NAME=VALUE      a setting of the library, as an environment variable of this process; may be repeated
      --guest-env NAME=VALUE  a variable that the guest sees; may be repeated
      --dir HOST[::GUEST]   a folder that the guest may read, under the name GUEST (HOST); may be repeated

The guest has this process' standard input, output and error; its exit code is this program's. A guest that traps ends
with 134, wrong options of this program with 2.
"""
import ctypes
import inspect
import os
import signal
import sys

MODULE = "wasi_ephemeral_nn"
SUCCESS, INVALID_ARGUMENT, UNSUPPORTED, TOO_LARGE = 0, 1, 6, 7
# Number of arguments of each import; every one is an i32, and so is the result.
IMPORTS = {"load": 5, "load_by_name": 3, "load_by_name_with_config": 5, "init_execution_context": 2, "set_input": 3,
           "compute": 1, "get_output": 5, "compute_single": 1, "get_output_single": 5, "fini_single": 1, "unload": 1,
           "finalize_execution_context": 1}
BUILDER, TENSOR = 8, 20  # sizes of the guest's structures


class Refused(Exception):
    """A range of the guest that is not in its memory."""


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_uint32)]


class Builders(ctypes.Structure):
    _fields_ = [("items", ctypes.POINTER(Bytes)), ("size", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("dimensions", ctypes.POINTER(Bytes)), ("type", ctypes.c_uint8), ("data", Bytes)]


class Memory:
    """The guest's memory during one call: it may move between calls, and not within one."""

    def __init__(self, caller):
        memory = caller.get("memory")
        if not hasattr(memory, "data_len"):
            raise Refused
        self.size = memory.data_len(caller)
        self.base = ctypes.addressof(memory.data_ptr(caller).contents) if self.size else 0

    def address(self, offset, size):
        """Where `size` bytes lie in this process. The null pointer stays one, and has no bytes."""
        if offset + size > self.size or (offset == 0 and size > 0):
            raise Refused
        return self.base + offset if offset else None

    def numbers(self, offset, count):
        """`count` unsigned numbers of 32 bits."""
        data = ctypes.string_at(self.address(offset, 4 * count), 4 * count)
        return [int.from_bytes(data[at:at + 4], "little") for at in range(0, 4 * count, 4)]

    def write(self, offset, number):
        ctypes.memmove(self.address(offset, 4), number.to_bytes(4, "little"), 4)

    def name(self, offset, size):
        """A copy with a terminator, as the library's interface has texts."""
        text = ctypes.string_at(self.address(offset, size), size) if size else b""
        if b"\0" in text:
            raise Refused
        return text


class Library:
    """The library's functions, each with the guest's memory and arguments in the place of the library's own types."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        u32, pointer = ctypes.c_uint32, ctypes.POINTER
        text, out = ctypes.c_char_p, pointer(ctypes.c_uint32)
        signatures = {"load": [pointer(Builders), ctypes.c_int, ctypes.c_int, out], "load_by_name": [text, u32, out],
                      "load_by_name_with_config": [text, u32, text, u32, out], "init_execution_context": [u32, out],
                      "set_input": [u32, u32, pointer(Tensor)], "compute": [u32],
                      "get_output": [u32, u32, pointer(Bytes), out]}
        more = {"compute_single": [u32], "get_output_single": [u32, u32, pointer(Bytes), out], "fini_single": [u32],
                "unload": [u32], "finalize_execution_context": [u32]}
        self.functions = {name: self.find(name, arguments) for name, arguments in signatures.items()}
        for name, arguments in more.items():  # what other libraries of this kind do not have
            try:
                self.functions[name] = self.find("tutti_wasi_nn_" + name, arguments)
            except AttributeError:
                self.functions[name] = lambda *_: UNSUPPORTED
        start = self.find("init_backend", [])
        start.argtypes = [pointer(ctypes.c_void_p)]
        self.stop = self.find("deinit_backend", [])
        self.context = ctypes.c_void_p()
        code = start(ctypes.byref(self.context))
        if code != SUCCESS:
            raise OSError(f"its init_backend gave error {code}")

    def find(self, name, arguments):
        function = getattr(self.library, name)
        function.restype = ctypes.c_int
        function.argtypes = [ctypes.c_void_p, *arguments]
        return function

    def close(self):
        self.stop(self.context)

    def call(self, name, *arguments):
        return self.functions[name](self.context, *arguments)

    def give_handle(self, memory, out, name, *arguments):
        memory.address(out, 4)
        if not out:
            return INVALID_ARGUMENT
        handle = ctypes.c_uint32(0)
        code = self.call(name, *arguments, ctypes.byref(handle))
        if code == SUCCESS:
            memory.write(out, handle.value)
        return code

    def load(self, memory, builders, count, encoding, target, out):
        if count > 2:  # more than any model has; they are not looked at
            return INVALID_ARGUMENT
        fields = memory.numbers(builders, count * BUILDER // 4) if count else []
        parts = (Bytes * max(count, 1))()
        for part, data, size in zip(parts, fields[::2], fields[1::2]):
            part.data, part.size = memory.address(data, size), size
        return self.give_handle(memory, out, "load", Builders(parts, count), encoding, target)

    def load_by_name(self, memory, name, size, out):
        return self.give_handle(memory, out, "load_by_name", memory.name(name, size), size)

    def load_by_name_with_config(self, memory, name, size, config, config_size, out):
        return self.give_handle(memory, out, "load_by_name_with_config", memory.name(name, size), size,
                                memory.name(config, config_size), config_size)

    def init_execution_context(self, memory, graph, out):
        return self.give_handle(memory, out, "init_execution_context", graph)

    def set_input(self, memory, context, index, tensor):
        dimensions, dimension_count, kind, data, size = memory.numbers(tensor, TENSOR // 4)
        shape = Bytes(memory.address(dimensions, 4 * dimension_count), dimension_count)
        # Of the type one byte counts, the rest is padding.
        given = Tensor(ctypes.pointer(shape), kind & 0xFF, Bytes(memory.address(data, size), size))
        return self.call("set_input", context, index, ctypes.byref(given))

    def output(self, name, memory, context, index, buffer, capacity, out):
        memory.address(out, 4)
        if not out:
            return INVALID_ARGUMENT
        given = Bytes(memory.address(buffer, capacity), capacity)
        written = ctypes.c_uint32(0)
        code = self.call(name, context, index, ctypes.byref(given), ctypes.byref(written))
        if code in (SUCCESS, TOO_LARGE):
            memory.write(out, written.value)
        return code

    def get_output(self, memory, *arguments):
        return self.output("get_output", memory, *arguments)

    def get_output_single(self, memory, *arguments):
        return self.output("get_output_single", memory, *arguments)

    def import_named(self, name):
        """The function that the guest calls: (caller, arguments) to an error code."""
        with_memory = getattr(self, name, None)

        def enter(caller, *arguments):
            # Pointers and handles are unsigned.
            arguments = [argument & 0xFFFFFFFF for argument in arguments]
            try:
                return with_memory(Memory(caller), *arguments) if with_memory else self.call(name, *arguments)
            except (Refused, MemoryError):
                return INVALID_ARGUMENT
        return enter


def fail(sentence, code=1):
    print(f"wasi_host: {sentence}", file=sys.stderr)
    sys.exit(code)


def parse(arguments):
    """(library, settings, variables of the guest, folders, guest, its arguments)"""
    library, lists = None, {"--env": [], "--guest-env": [], "--dir": []}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        flag, equals, value = rest.pop(0).partition("=")
        if flag in ("--help", "-h"):
            print(__doc__.strip())
            sys.exit(0)
        if flag != "--library" and flag not in lists:
            fail(f"there is no option {flag}. The options: --help", 2)
        if not equals:
            if not rest:
                fail(f"{flag} needs a value", 2)
            value = rest.pop(0)
        if flag == "--library":
            library = value
        elif flag.endswith("env") and not value.partition("=")[1]:
            fail(f"{flag} {value}: not of the form NAME=VALUE", 2)
        else:
            lists[flag].append(value)
    if library is None or not rest:
        fail(f"{'--library' if library is None else 'the guest, a .wasm file,'} is missing. See --help", 2)
    variables = {name: [tuple(pair.split("=", 1)) for pair in lists[name]] for name in ("--env", "--guest-env")}
    return library, variables["--env"], variables["--guest-env"], lists["--dir"], rest[0], rest[1:]


def run(library, guest_variables, folders, guest, arguments):
    import wasmtime
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    try:
        module = wasmtime.Module.from_file(engine, guest)
    except wasmtime.WasmtimeError as error:
        fail(f"{guest} is no WebAssembly module: {error}")
    wasi = wasmtime.WasiConfig()
    try:
        wasi.argv = [guest, *arguments]
        wasi.env = guest_variables
    except UnicodeEncodeError:
        fail("an argument or a variable of the guest is no UTF-8, which wasmtime does not pass on. Use standard input", 2)
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    read_only = {"fs_mutable": False} if "fs_mutable" in inspect.signature(wasi.preopen_dir).parameters else {}
    for folder in folders:
        host, _, name = folder.partition("::")
        try:
            wasi.preopen_dir(host, name or host, **read_only)
        except wasmtime.WasmtimeError as error:
            fail(f"--dir {folder}: {error}")
    store.set_wasi(wasi)
    linker.define_wasi()
    i32 = wasmtime.ValType.i32()
    for name, count in IMPORTS.items():
        linker.define_func(MODULE, name, wasmtime.FuncType([i32] * count, [i32]), library.import_named(name),
                           access_caller=True)
    try:
        exports = linker.instantiate(store, module).exports(store)
        start = exports.get("_start")
        if not isinstance(start, wasmtime.Func) or not isinstance(exports.get("memory"), wasmtime.Memory):
            fail(f"{guest} is no program: it does not export _start and a memory of its own")
        start(store)
    except wasmtime.ExitTrap as end:
        return end.code
    except wasmtime.Trap as trap:
        fail(f"{guest} trapped: {trap}", 134)
    except wasmtime.WasmtimeError as error:
        fail(f"{guest}: {error}")
    return 0


def main():
    path, settings, guest_variables, folders, guest, arguments = parse(sys.argv[1:])
    try:
        import wasmtime  # noqa: F401
    except ImportError:
        fail("the Python package wasmtime is missing: pip install wasmtime")
    if not os.path.isfile(guest):
        fail(f"{guest} is no file")
    if not os.path.isfile(path):
        fail(f"--library {path}: no such file")
    os.environ.update(settings)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python would notice it only when the guest ends
    try:
        library = Library(os.path.abspath(path))
    except (OSError, AttributeError) as error:
        fail(f"--library {path}: {error}")
    try:
        sys.exit(run(library, guest_variables, folders, guest, arguments))
    finally:
        library.close()


if __name__ == "__main__":
    main()
