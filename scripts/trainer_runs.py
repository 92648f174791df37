# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What benchmarks of whole training runs have in common: flags, programs, and the text that is learned."""
import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def fail(why):
    sys.exit(f"FAILED: {why}")


def add_arguments(parser, limit):
    parser.add_argument("--limit", type=int, default=limit, help="seconds that one run may take")
    parser.add_argument("--text", type=pathlib.Path, default="/usr/share/dictd/jargon.dict.dz", help="what is learned")
    parser.add_argument("--build", type=pathlib.Path, default=os.environ.get("TUTTI_BUILD", ROOT / "build"),
                        help="configured build folder; what is missing in it is built")
    parser.add_argument("--inside", type=pathlib.Path, help=argparse.SUPPRESS)


def build(folder, *programs):
    if subprocess.run(["ninja", "-C", str(folder), *[f"examples/{name}" for name in programs]], stdout=subprocess.DEVNULL).returncode != 0:
        fail(f"building in {folder} failed; run ninja there to see why")


def prepare_text(args, *words):
    """The tokens of --text, in args.data."""
    if not args.text.exists():
        fail(f"{args.text} is not there (Debian: dict-jargon); give another --text")
    args.data.parent.mkdir(exist_ok=True)
    subprocess.run([str(args.build / "examples" / "prepare_text"), "--input", str(args.text), "--out", str(args.data), *words],
                   check=True, stdout=subprocess.DEVNULL)
