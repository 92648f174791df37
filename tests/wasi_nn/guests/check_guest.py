#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a guest can be asked without a host: check_guest.py GUEST.wasm [--bytes MOST] [--streaming yes|no]

Its size, and that it imports nothing but WASI and the functions of wasi_ephemeral_nn by their names and types. With
--streaming no it does without those that only some hosts have.
"""
import argparse
import pathlib
import sys

EVERYWHERE = {"load": 5, "load_by_name": 3, "load_by_name_with_config": 5, "init_execution_context": 2, "set_input": 3,
              "compute": 1, "get_output": 5}
STREAMING = {"compute_single": 1, "get_output_single": 5, "fini_single": 1, "unload": 1,
             "finalize_execution_context": 1}
I32 = 0x7F


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def number(self):
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def name(self):
        return self.take(self.number()).decode()


def sections(data):
    reader = Reader(data)
    if reader.take(8) != b"\0asm\1\0\0\0":
        sys.exit("no WebAssembly module of version 1")
    while reader.at < len(data):
        kind, size = reader.byte(), reader.number()
        yield kind, Reader(reader.take(size))


def imports(data):
    """(module, name, (types of arguments, types of results)) of each imported function."""
    types = []
    for kind, reader in sections(data):
        if kind == 1:
            for _ in range(reader.number()):
                reader.byte()
                types.append(tuple(tuple(reader.take(reader.number())) for _ in range(2)))
        if kind == 2:
            for _ in range(reader.number()):
                module, name, what = reader.name(), reader.name(), reader.byte()
                if what != 0:
                    sys.exit(f"it imports {module}.{name}, which is no function")
                yield module, name, types[reader.number()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("guest", type=pathlib.Path)
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--streaming", choices=["yes", "no"], default="yes")
    options = parser.parse_args()
    data = options.guest.read_bytes()
    wrong, count = [], 0
    known = {**EVERYWHERE, **(STREAMING if options.streaming == "yes" else {})}
    for module, name, signature in imports(data):
        if module == "wasi_snapshot_preview1":
            continue
        count += 1
        if module != "wasi_ephemeral_nn" or name not in known:
            wrong.append(f"it imports {module}.{name}")
        elif signature != ((I32,) * known[name], (I32,)):
            wrong.append(f"{name} is imported with other types than {known[name]} i32 to one i32")
    if count == 0:
        wrong.append("it imports nothing of wasi_ephemeral_nn")
    if options.bytes and len(data) > options.bytes:
        wrong.append(f"it has {len(data)} bytes, more than {options.bytes}")
    print("\n".join(wrong) if wrong else f"{options.guest.name}: {len(data)} bytes, {count} functions of wasi_ephemeral_nn")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
