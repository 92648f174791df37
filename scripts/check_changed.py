#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks closer at what changed lately than every build can: clang-tidy on changed lines of headers, and changed tests, with those
that cover changed headers, under the address and undefined-behaviour sanitizers. Both within a bound of seconds: what is left out
is named, newest changes first.

What changed is what differs from --base, a commit; without it, from the newest commit that is a day older than HEAD. Skipped
(status 77) without history, clang-tidy 19 or a configured build.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = 77
MOST_HEADERS = 30  # that are read in about a minute


def git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def base_of(args):
    if args.base:
        return args.base
    newest = git("log", "-1", "--format=%ct")
    return git("rev-list", "-1", f"--before={int(newest) - 86400}", "HEAD") if newest else ""


def changed_lines(base, path):
    """Pairs of first and last line that are new in a file; all of one that git does not know."""
    if not git("ls-files", path):
        return [[1, 1 << 20]]
    hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", git("diff", "-U0", base, "--", path), re.M)
    return [[int(first), int(first) + max(int(count or 1), 1) - 1] for first, count in hunks]


def commands(build):
    return json.loads((build / "compile_commands.json").read_text())


def tidy(args, base, headers, seconds):
    """Whether clang-tidy finds nothing on the changed lines."""
    tool = shutil.which("clang-tidy-19")
    headers = [name for name in headers if "/cuda/" not in name and not name.startswith("include/tutti/backend/nccl")]
    if tool is None or not headers:
        print("clang-tidy: " + ("no header changed" if tool else "not installed (clang-tidy-19)"))
        return True
    like = next(one for one in commands(args.build) if "test_upper_headers" in one["output"])["command"].split()
    flags = [word for word in like if word.startswith(("-I", "-D", "-std", "-isystem"))]
    if len(headers) > MOST_HEADERS:
        print(f"clang-tidy: the {MOST_HEADERS} headers that changed last, not {len(headers) - MOST_HEADERS} others")
        headers = headers[:MOST_HEADERS]
    lines = [{"name": str(ROOT / name), "lines": changed_lines(base, name)} for name in headers]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "changed.cpp"
        source.write_text("".join(f"#include <{name.removeprefix('include/')}>\n" for name in headers))
        command = [tool, "-quiet", f"--config-file={ROOT / '.clang-tidy'}", f"--line-filter={json.dumps([one for one in lines if one['lines']])}",
                   str(source), "--", "-xc++", "-Wno-deprecated-declarations", f"-I{ROOT / 'include'}", *flags]
        try:
            done = subprocess.run(command, cwd=args.build, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            print(f"clang-tidy: left out, {len(headers)} changed headers took more than {seconds} s")
            return True
    if done.returncode:
        print(done.stdout[-6000:] + done.stderr[-2000:])
    print(f"clang-tidy: {len(headers)} changed headers, {'something found' if done.returncode else 'nothing found'}")
    return done.returncode == 0


def tests_of(changed):
    """Changed tests, then those that cover changed headers, those first that cover most of them."""
    tests = [name for name in changed if name.startswith("tests/") and name.endswith(".cpp")]
    headers = {name.removeprefix("include/") for name in changed if name.startswith("include/")}
    covering = {}
    for path in ROOT.glob("tests/**/*.cpp"):
        name = str(path.relative_to(ROOT))
        covered = set(re.findall(r"<(tutti/[^>]+)>", " ".join(re.findall(r"^// Covers:(.*)$", path.read_text(), re.M))))
        if name not in tests and covered & headers:
            covering[name] = len(covered & headers)
    return tests + sorted(covering, key=lambda name: (-covering[name], name))


def sanitized(args, changed, seconds):
    """Whether the tests pass, compiled and linked with sanitizers in the place of the program that the build has."""
    end = time.monotonic() + seconds
    ninja = shutil.which("ninja")
    known = json.loads(subprocess.run(["meson", "introspect", "--tests", str(args.build)], capture_output=True, text=True, check=True).stdout)
    rows = {one["name"]: one for one in known}
    wanted, run, left, passed = tests_of(changed), [], [], True
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            stem = name.removeprefix("tests/").removesuffix(".cpp")
            row = next((rows[key] for key in (stem, stem + "@n2", stem + "@n3") if key in rows), None)
            if row is None or "/cuda/" in name:
                continue  # no test of its own, or of emulated devices
            if time.monotonic() > end:
                left.append(stem)
                continue
            at = next((i for i, word in enumerate(row["cmd"]) if "/tests/test_" in word), None)
            if at is None:
                continue  # a script's
            program = os.path.relpath(row["cmd"][at], args.build)
            like = next((one for one in commands(args.build) if one["output"].startswith(program + ".p/")), None)
            if like is None:
                continue
            own, made = pathlib.Path(folder) / "test.o", pathlib.Path(folder) / "test"
            sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1"]
            words = [word for word in like["command"].split() if word != "-Werror"]
            words[words.index("-o") + 1], words[words.index("-c") + 1] = str(own), str(ROOT / name)
            words[words.index("-MF") + 1] = str(own) + ".d"
            link = subprocess.run([ninja, "-C", str(args.build), "-t", "commands", program], capture_output=True, text=True).stdout.strip().splitlines()[-1].split()
            link = [word for word in link if not word.startswith(program + ".p/")]
            link[link.index("-o") + 1] = str(made)
            link.insert(1, str(own))
            cmd = list(row["cmd"])
            cmd[at] = str(made)
            env = {**os.environ, **row["env"], "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
            for step in (words + sanitize, link + sanitize, cmd):
                try:
                    done = subprocess.run(step, cwd=args.build, capture_output=True, text=True, env=env, timeout=4 * seconds)
                except subprocess.TimeoutExpired:
                    print(f"sanitizers: {stem} took more than {4 * seconds} s at: {' '.join(step)[:200]}")
                    left.append(stem)
                    break
                if done.returncode:
                    print(f"{stem}: {' '.join(step)[:400]}\n{done.stdout[-4000:]}{done.stderr[-6000:]}")
                    passed = False
                    break
            else:
                run.append(stem)
    print(f"sanitizers: {len(run)} tests pass: {', '.join(run) or 'none'}")
    if left:
        print(f"sanitizers: not within {seconds} s: {', '.join(left)}")
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="configured and built folder")
    parser.add_argument("--base", default=os.environ.get("TUTTI_BASE"), help="a commit (TUTTI_BASE)")
    parser.add_argument("--seconds", type=int, default=60, help="after which no test under sanitizers is begun; clang-tidy has twice as many")
    args = parser.parse_args()
    args.build = args.build.resolve()
    base = base_of(args)
    if not base or not (args.build / "compile_commands.json").exists():
        print("skipped: no history to compare with, or no build")
        return SKIPPED
    there = set(git("diff", "--name-only", "--diff-filter=d", base, "--", "include", "tests").splitlines())
    there |= set(git("ls-files", "-o", "--exclude-standard", "include", "tests").splitlines())
    newest = git("log", "--name-only", "--format=", f"{base}..HEAD", "--", "include", "tests").splitlines()
    names = [name for name in dict.fromkeys(newest) if name in there]
    names = sorted(there - set(names)) + names  # what is not committed comes first
    headers = [name for name in names if name.startswith("include/") and name.endswith(".hpp") and (ROOT / name).read_text().count("\n") > 12]
    print(f"since {base[:12]}: {len(headers)} headers, {sum(name.startswith('tests/') for name in names)} files of tests")
    clean = tidy(args, base, headers, 2 * args.seconds)
    return 0 if sanitized(args, names, args.seconds) and clean else 1


if __name__ == "__main__":
    sys.exit(main())
