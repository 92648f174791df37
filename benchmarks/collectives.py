#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives beside their rivals: builds tutti-perf, starts its ranks and, where another MPI is installed, a job of that
one, with which it takes turns. All flags that are not below are tutti-perf's:

    ./tutti bench collectives                              every collective on Mpi, 2 ranks
    ./tutti bench collectives --backend threads -C all_reduce -b 8 -e 64M -f 2
    ./tutti bench collectives --suite goals                all-reduce against the figures that tutti promises
    ./tutti bench collectives --suite messages             ping-pong, exchanges, a heat step, a lambda beside raw MPI
    ./tutti bench collectives --flags                      tutti-perf's flags
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Failed(Exception):
    pass


def skipped(what):
    print(f"SKIPPED: {what}", file=sys.stderr, flush=True)


def launch_words(mpiexec, ranks):
    """The launcher with its ranks; Open MPI's refuses root and more ranks than processors
    unless it is told, and would bind ranks, which they do themselves."""
    banner = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout
    more = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"] if "Open MPI" in banner or "OpenRTE" in banner else []
    return [mpiexec, *more, "-n", str(ranks)], bool(more)


def build(folder):
    """The program, and whether it has MPI."""
    done = subprocess.run(["ninja", "-C", str(folder), "benchmarks/tutti-perf"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"building in {folder} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    program = folder / "benchmarks" / "tutti-perf"
    return program, any((folder / "benchmarks").glob("tutti-perf.p/*collectives_mpi.cpp.o"))


def build_other(folder, wanted, ours_is_open_mpi):
    """(mpiexec, program) of the other MPI, or None, said aloud."""
    if wanted == "none":
        return None
    family = "mpich" if ours_is_open_mpi else "openmpi"
    pair = f"mpiexec.{family}:mpicxx.{family}" if wanted == "auto" else wanted
    mpiexec, colon, compiler = pair.partition(":")
    if not colon:
        raise Failed(f"--other-mpi {wanted}: give MPIEXEC:COMPILER, as in mpiexec.openmpi:mpicxx.openmpi, or none")
    absent = [tool for tool in (mpiexec, compiler) if shutil.which(tool) is None]
    if absent:
        if wanted != "auto":
            raise Failed(f"--other-mpi {wanted}: there is no {' and no '.join(absent)}")
        skipped(f"the other MPI is not measured: there is no {' and no '.join(absent)}; install it or give --other-mpi MPIEXEC:COMPILER")
        return None
    program = folder / "benchmarks" / "other_mpi"
    done = subprocess.run([compiler, "-std=c++20", "-O2", "-DNDEBUG", "-I", str(ROOT / "include"),
                           str(ROOT / "benchmarks" / "collectives" / "other_mpi.cpp"), "-o", str(program)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{compiler} cannot build other_mpi.cpp:\n{done.stderr[-3000:]}")
    return mpiexec, program


@contextlib.contextmanager
def other_job(other, ranks, folder):
    """Runs the other MPI's job for as long as the block; gives the flags that lead tutti-perf to it."""
    if other is None:
        yield []
        return
    os.mkdir(folder)
    pipes = [os.path.join(folder, name) for name in ("commands", "answers")]
    for pipe in pipes:
        os.mkfifo(pipe)
    words, _ = launch_words(other[0], ranks)
    job = subprocess.Popen([*words, str(other[1]), *pipes], stdin=subprocess.DEVNULL, start_new_session=True)
    patience = 0  # of a job that tutti-perf has not told to stop
    try:
        yield ["--other-commands", pipes[0], "--other-answers", pipes[1]]
        patience = 20
    finally:
        try:
            job.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def run(command, environment):
    """Its status. A launcher that is asked to end ends its ranks."""
    job = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        return job.wait()
    except BaseException:
        job.terminate()
        try:
            job.wait(timeout=5)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="configured build folder")
    parser.add_argument("--backend", choices=["mpi", "threads"], help="whose collectives (default: mpi where there is one)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of every job (default 2)")
    parser.add_argument("--mpiexec", help="launcher of the MPI library that tutti was built with")
    parser.add_argument("--other-mpi", default="auto", metavar="MPIEXEC:COMPILER",
                        help="launcher and C++ wrapper of another MPI to compare with, or none (default: the other one of MPICH and Open MPI, where it is installed)")
    parser.add_argument("--suite", choices=["sweep", "goals", "messages"], default="sweep")
    parser.add_argument("--json", type=pathlib.Path, help="file for rows {name, bytes, ours, rival, ratio, unit}")
    parser.add_argument("--flags", action="store_true", help="print tutti-perf's flags")
    args, rest = parser.parse_known_args()
    if args.json:  # before anything is built or measured
        try:
            args.json.open("a").close()
        except OSError as error:
            raise Failed(f"--json: {error}") from error

    program, has_mpi = build(args.build)
    if args.flags:
        return subprocess.run([str(program), "--help"]).returncode
    args.mpiexec = args.mpiexec or next((name for name in ("mpiexec.mpich", "mpiexec.hydra", "mpiexec") if shutil.which(name)), None)
    if has_mpi and args.mpiexec is None:
        raise Failed("there is no mpiexec; give --mpiexec")
    if not has_mpi:
        if args.backend == "mpi":
            raise Failed(f"{program} was built without MPI; install one (Debian: libmpich-dev mpich) and configure {args.build} again")
        skipped("tutti-perf was built without MPI: only threads are measured, against the naive version and copies")
        if args.other_mpi not in ("auto", "none"):
            raise Failed("--other-mpi needs tutti-perf built with an MPI of its own")
    other = None
    if has_mpi:
        other = build_other(args.build, args.other_mpi, launch_words(args.mpiexec, 1)[1])

    # The goals have two parts more: ranks that share no memory, and such as outnumber the processors.
    parts = [(args.ranks, {})]
    if args.suite == "goals" and args.ranks == 2 and has_mpi:
        parts += [(2, {"TUTTI_MPI_NODE_SHARED": "off"}), (4, {})]
    rows = ""
    with tempfile.TemporaryDirectory(prefix="tutti-perf-") as folder:
        for number, (ranks, environment) in enumerate(parts):
            json = os.path.join(folder, f"rows-{number}")
            with other_job(other, ranks, os.path.join(folder, str(number))) as other_words:
                command = [str(program), "--backend", args.backend or ("mpi" if has_mpi else "threads"), "--ranks", str(ranks),
                           "--suite", args.suite, *(["--json", json] if args.json else []), *other_words, *rest]
                if has_mpi:
                    command = launch_words(args.mpiexec, ranks)[0] + command
                status = run(command, environment)
                if status != 0:
                    raise Failed(f"{' '.join(command)} ended with {status}")
            if args.json:
                rows += pathlib.Path(json).read_text()
    if args.json:
        args.json.write_text(rows)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that jobs are ended on the way out
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
