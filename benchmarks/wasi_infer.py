#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What inference inside of WebAssembly costs: tokens/s of tutti_infer.wasm in Node over those of the native generator on one
thread, with the best vectors of the processor and with none.

  --model FILE    a GGUF file
  --tokens N      of an answer (default 128)
  --prompt N      words of the prompt (default 100)
  --rounds N      passes in which they take turns (default 5); the median counts

The text of the module must be that of the native program without vectors. Needs Node.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TUTTI_BUILD", ROOT / "build"))
TARGETS = ["examples/generate", *(f"examples/wasi/infer/{name}" for name in ("tutti_infer.wasm", "tutti_infer.mjs"))]
MODULE = """
const [site, file, prompt, tokens] = process.argv.slice(1);
const { Infer } = await import(site);
const model = await Infer.open();
await model.load(file, { context: 2048 });
model.begin('warm', { max_tokens: 2, temperature: 0 });
while (model.next() !== null);
const options = { max_tokens: Number(tokens), temperature: 0 };
const begin = performance.now(), { prompt_tokens, reused_tokens } = model.begin(prompt, options);
const read = performance.now() - begin;
let text = '';
for (let piece = model.next(); piece !== null; piece = model.next()) text += piece;
const { output_tokens, seconds } = model.result;
console.log(JSON.stringify({ text, read: (prompt_tokens - reused_tokens) / read * 1e3, write: output_tokens / seconds }));
"""


def native(arguments, prompt, isa):
    done = subprocess.run([BUILD / "examples/generate", "--model", arguments.model, "--prompt", prompt, "--temperature", "0", "--tokens",
                           str(arguments.tokens), "--threads", "1", "--context", "2048"], capture_output=True, check=True,
                          env={**os.environ, **({"TUTTI_ISA": isa} if isa else {})})
    said = re.search(r"prompt (\d+) tokens in ([\d.]+) s, then \d+ tokens, ([\d.]+) a second", done.stderr.decode())
    text = done.stdout[len(prompt.encode()):-1].decode(errors="replace")
    return {"text": text, "read": int(said[1]) / max(float(said[2]), 0.005), "write": float(said[3])}


def module(arguments, prompt):
    site = (BUILD / "examples/wasi/infer/tutti_infer.mjs").resolve().as_uri()
    done = subprocess.run([shutil.which("node") or sys.exit("Node is missing: install nodejs"), "--input-type=module", "-e", MODULE, site,
                           arguments.model, prompt, str(arguments.tokens)], capture_output=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    subprocess.run(["ninja", "-C", str(BUILD), *TARGETS], check=True, stdout=subprocess.DEVNULL)
    words = "The quick brown fox jumps over the lazy dog and then walks home through the quiet forest near the river".split()
    prompt = " ".join(words[i % len(words)] for i in range(arguments.prompt))
    runs = {"native": lambda: native(arguments, prompt, None), "without vectors": lambda: native(arguments, prompt, "scalar"),
            "module": lambda: module(arguments, prompt)}
    results = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            results[name].append(run())
    if results["module"][0]["text"] != results["without vectors"][0]["text"]:
        sys.exit(f"the module wrote another text:\n{results['module'][0]['text']!r}\n{results['without vectors'][0]['text']!r}")
    print(f"{pathlib.Path(arguments.model).name}, one thread, {arguments.tokens} tokens, median of {arguments.rounds}; tokens a second\n")
    print(f"{'':10}" + "".join(f"{name:>18}" for name in runs) + "   module / native")
    for what in ("read", "write"):
        rates = {name: statistics.median(one[what] for one in results[name]) for name in runs}
        ratio = statistics.median(m[what] / n[what] for m, n in zip(results["module"], results["native"]))
        print(f"{what:10}" + "".join(f"{rates[name]:18.1f}" for name in runs) + f"{ratio:18.3f}")


if __name__ == "__main__":
    main()
