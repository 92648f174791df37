#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Has onnxruntime run ONNX files of this library, and compares: models with the logits of its own decoder, small graphs
with its interpreter.

usage: check_onnx.py PROGRAM [WORD]

PROGRAM is the test program with the hidden test case [.onnx_files], which writes the files into $TUTTI_ONNX_FOLDER. With
WORD only cases with it in their names are run. Ends with status 77 where this Python has no onnxruntime
(pip install onnxruntime)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime
except ImportError:
    print("SKIPPED: onnxruntime is not installed (pip install onnxruntime)", file=sys.stderr)
    sys.exit(77)

MODEL_TOLERANCE = 1e-4
# What onnxruntime computes otherwise: case and output.
NOT_COMPARED = {("edges_float16", "sign"): "that of NaN is 0"}


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def numpy_type(name):
    return {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(bool)": np.bool_, "tensor(float16)": np.float16}.get(
        name) or np.dtype(name[len("tensor("):-1])


def numbers(values):
    return np.array([float(x) for x in values], np.float64)


def check_model(folder, case):
    """Every position's logits; with several rows and other lengths the same, as tokens behind do not matter."""
    run = session(folder / (case["name"] + ".onnx"))
    assert [i.name for i in run.get_inputs()] == ["input_ids"] and run.get_inputs()[0].shape == ["batch", "sequence"], run.get_inputs()
    assert run.get_outputs()[0].shape[:2] == ["batch", "sequence"], run.get_outputs()[0].shape
    tokens, wanted = np.array(case["tokens"], np.int64), np.array(case["logits"], np.float64)
    worst = 0
    for rows, count in ((1, len(tokens)), (3, len(tokens)), (2, 1), (1, len(tokens) - 2)):
        ids = np.stack([tokens[:count]] * rows)
        if rows == 3:
            ids[1] = ids[1][::-1]  # a row of its own
        (found,) = run.run(["logits"], {"input_ids": ids})
        for row in range(rows):
            if rows == 3 and row == 1:
                continue
            vocabulary = min(found.shape[2], wanted.shape[1])
            worst = max(worst, np.abs(found[row, :, :vocabulary] - wanted[:count, :vocabulary]).max())
    scale = np.abs(wanted).max()
    print(f"{case['what']}: logits to {scale:.3g}, within {worst:.1e} of the library's")
    return [] if worst <= MODEL_TOLERANCE else [f"{case['what']}: logits differ by {worst:.3g}"]


def check_graph(folder, case):
    run = session(folder / (case["name"] + ".onnx"))
    feeds = {}
    for one in run.get_inputs():
        feeds[one.name] = numbers(case["inputs"][one.name]).astype(numpy_type(one.type)).reshape(one.shape)
    wrong = []
    for one, found in zip(run.get_outputs(), run.run(None, feeds)):
        wanted = numbers(case["outputs"][one.name])
        if list(found.shape) != one.shape or found.size != wanted.size:
            wrong.append(f"{case['name']}: output {one.name} has shape {found.shape}, declared {one.shape}")
            continue
        found = found.astype(np.float64).reshape(-1)
        if (case["name"], one.name) in NOT_COMPARED:
            continue
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30)
        with np.errstate(invalid="ignore"):
            near = np.abs(found - wanted) <= 2 * case["tolerance"] * scale
        good = (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | near
        if not good.all():
            at = int(np.argmin(good))
            wrong.append(f"{case['name']}: output {one.name}[{at}] is {found[at]:.9g}, not {wanted[at]:.9g} ({(~good).sum()} of {good.size})")
    return wrong


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    wrong, compared, lacking = [], 0, []
    with tempfile.TemporaryDirectory(prefix="tutti-onnx-") as name:
        folder = pathlib.Path(name)
        done = subprocess.run([sys.argv[1], "[.onnx_files]"], env={**os.environ, "TUTTI_ONNX_FOLDER": name}, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        for case in json.loads((folder / "cases.json").read_text()):
            if len(sys.argv) == 3 and sys.argv[2] not in case["name"]:
                continue
            try:
                wrong += (check_model if case["kind"] == "model" else check_graph)(folder, case)
                compared += 1
            except Exception as error:  # onnxruntime's own classes
                if "NOT_IMPLEMENTED" in str(error) or "No corresponding Numpy type" in str(error) or "'bfloat16' not understood" in str(error):
                    lacking.append(case["name"])
                else:
                    wrong.append(f"{case['name']}: {type(error).__name__}: {str(error)[:300]}")
    print(f"onnxruntime {onnxruntime.__version__}: {compared} graphs and models compared; it has no kernels for {len(lacking)}: {', '.join(lacking)}")
    if compared < 8 and len(sys.argv) == 2:
        wrong.append("too few were compared")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
