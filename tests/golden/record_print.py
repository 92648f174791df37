#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes print.txt: arrays and what NumPy prints for them. Usage: record_print.py > print.txt (recorded with NumPy 2.4.6).

A case is one line "type rank extents... lines", one line with the elements' bits in hexadecimal, then the text.
"""
import numpy as np

generator = np.random.default_rng(7)
names = {"b": "bool", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
         "i8": "int64", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64"}


def record(array):
    code = "b" if array.dtype == bool else array.dtype.str[1:]
    text = str(array).split("\n")
    print(names[code], array.ndim, *array.shape, len(text))
    unsigned = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(-1)
    print(*(format(int(x), "x") for x in unsigned))
    print(*text, sep="\n")


for code in "f8", "f4", "f2":
    make = lambda values: np.array(values, dtype=code)
    for scalar in [0.0, -0.0, 1.0, -1.5, 0.1, 1e-4, 0.00009, 12345.678, 1e15, 1e16, 3e16, 123456789.0, 1 / 3, -2e-7,
                   np.nan, np.inf, -np.inf, 65504, 6e-8, 1.7e-5]:
        with np.errstate(over="ignore"):
            record(make(scalar))
    for values in [[1, 2, 3], [0.1, 0.25, 100], [1, 1000, 2], [1, 1001, 2], [1e-5, 1], [1e-4, 1e-1], [99999999, 1],
                   [1e8, 1e8], [999999, 1e5], [1e6, 2e6], [999, 998], [0, 0, 0], [-0.0, 0], [np.nan], [np.inf, -np.inf],
                   [np.nan, 1.5, -2], [1e-5, np.inf, -np.inf, np.nan, 12], [1, np.inf], [1.25, -np.inf], [-1, 1],
                   [1 / 3, 2 / 3, 1], [1e-300, 1e300], [5e-324], [1.5e-9, -2.5], [0.123456785, 0.123456775],
                   [0.5, 0.000976562500001], [2.0 ** -20, 1.0], [6e4, 1], [0.333251953125], [0.015625], [-9.5, 10.25, 100.125]]:
        with np.errstate(over="ignore"):
            record(make(values))
    for shape in [(1,), (7,), (30,), (3, 5), (1, 1), (2, 3, 4), (2, 1, 2, 3), (12, 9), (1, 40), (3, 1), (2, 2, 2, 2, 2)]:
        record(make(generator.normal(size=shape)))
        record(make(np.round(generator.normal(size=shape) * 8) / 4))
        record(make(generator.normal(size=shape) * 10.0 ** generator.integers(-6, 4, size=shape)))
    record(make(generator.normal(size=(1000,))))
    record(make(generator.normal(size=(1001,))))
    record(make(generator.normal(size=(5, 7, 40))))
    record(make(generator.normal(size=(2, 501))))
    record(make(generator.normal(size=(501, 2))))
    record(make(generator.normal(size=(0,))))
    record(make(generator.normal(size=(3, 0, 2))))
with np.errstate(over="ignore"):
    many = np.concatenate([generator.integers(0, 65536, 40).astype("u2").view("f2"), np.arange(40, dtype="u2").view("f2")])
    for value in many:
        record(np.array(value))
        record(np.array([value]))
    for value in generator.integers(0, 2 ** 32, 40).astype("u4").view("f4"):
        record(np.array([value]))
        record(np.array(value))
    for value in generator.integers(0, 2 ** 63, 40).astype("u8").view("f8"):
        record(np.array([value]))
        record(np.array(value))
for code in "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8":
    information = np.iinfo(code)
    record(np.array(information.min, dtype=code))
    record(np.array([information.min, information.max, 0, 1], dtype=code))
    record(np.arange(60, dtype=code).reshape(3, 20))
    record(np.zeros((2, 2), dtype=code))
    record(np.array([], dtype=code))
for code in "i2", "i4", "i8":
    record(np.arange(1001, dtype=code))
    record((np.arange(1200) - 600).astype(code).reshape(30, 40))
    record((np.arange(1200)).astype(code).reshape(2, 30, 20))
record(np.array(True))
record(np.array(False))
record(np.array([True, False]))
record(np.array([[True], [True]]))
record(np.ones((30,), dtype=bool))
record(np.arange(1024).reshape(32, 32) % 3 == 0)
# Lines whose last item ends one column before, at and behind the last one.
for rank in 1, 2, 3, 4:
    for length in 22, 23, 24, 25, 26:
        record(np.full((1,) * (rank - 1) + (length,), 42, dtype="i2"))
    for length in 13, 14, 15, 16:
        record(np.full((1,) * (rank - 1) + (length,), 1.25, dtype="f4"))
    for length in 4, 5, 6:
        record(np.full((1,) * (rank - 1) + (length,), -1.25e-300, dtype="f8") * [1, 1.0000001, 1, 1, 1, 1][:length])
