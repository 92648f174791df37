# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The other side of a test of GGUF files, by the package gguf from PyPI (tests/io/gguf.cpp runs it).

    gguf_python.py read FILE     FILE.json: keys and tensors as the package reads them; FILE.data: the tensors' bytes
    gguf_python.py write FILE    a file with a tensor of every type; FILE.f32: its numbers as the package dequantises them
"""
import json
import sys

import gguf
import numpy
from gguf import quants

TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS".split()
SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}


def read(path):
    reader = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    tensors = [[t.name, t.tensor_type.name, [int(n) for n in t.shape]] for t in reader.tensors]
    with open(path + ".json", "w") as file:
        json.dump({"keys": keys, "tensors": tensors}, file, default=lambda value: value.item())
    with open(path + ".data", "wb") as file:
        for tensor in reader.tensors:
            file.write(tensor.data.tobytes())


def write(path):
    random = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int64("i64", -5000000000)
    writer.add_float64("f64", 0.1)
    writer.add_bool("flag", True)
    writer.add_array("words", ["", "a", "\u2581x"])
    writer.add_array("ints", [1, -2, 3])
    numbers = []
    for name in TYPES:
        type = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[type]
        rows, blocks = 5, 3
        data = random.integers(0, 256, (rows * blocks * (1024 // elements), size), dtype=numpy.uint8)
        if name in ("F32", "BF16"):
            data[:, -1] &= 0xBF  # finite
        else:
            for offset in SCALES.get(name, (0,)):
                data[:, offset + 1] &= 0xBB
        data = data.reshape(rows, -1)
        if name == "F32":
            data = data.view(numpy.float32)
        if name == "F16":
            data = data.view(numpy.float16)
        writer.add_tensor("t." + name, data, raw_dtype=type)
        numbers.append(quants.dequantize(data, type).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(path + ".f32", "wb") as file:
        for part in numbers:
            file.write(part.tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("read", "write"):
        sys.exit(__doc__)
    (read if sys.argv[1] == "read" else write)(sys.argv[2])
