#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds and runs an outside program: run.py pkgconfig|cmake|subproject SOURCE_ROOT BUILD_ROOT MPIEXEC -- COMPILER...

MPIEXEC is - where tutti was built without MPI."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

MESON = [shutil.which("meson") or "meson"]


def run(command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run([str(c) for c in command], check=True, text=True, **options)


def main():
    kind, source, build, launcher, _, *compiler = sys.argv[1:]
    here = pathlib.Path(source) / "tests" / "consumer"
    if kind == "cmake" and not shutil.which("cmake"):
        print("skipped: cmake is not installed")
        return 77
    if kind == "pkgconfig" and not shutil.which("pkg-config"):
        print("skipped: pkg-config is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program = folder / "consumer"
        environment = dict(os.environ, CXX=" ".join(compiler))
        if kind == "subproject":
            shutil.copy(here / "main.cpp", folder)
            shutil.copy(here / "subproject.meson.in", folder / "meson.build")
            (folder / "subprojects").mkdir()
            (folder / "subprojects" / "tutti").symlink_to(source)
            run(MESON + ["setup", "-Dwarning_level=2", folder / "build", folder], env=environment, stdout=subprocess.DEVNULL)
            run(["ninja", "-C", folder / "build"], stdout=subprocess.DEVNULL)
            program = folder / "build" / "consumer"
        else:
            stage = folder / "stage"
            run(MESON + ["install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage], stdout=subprocess.DEVNULL)
            if kind == "pkgconfig":
                file = next(stage.rglob("tutti.pc"))
                environment.update(PKG_CONFIG_PATH=str(file.parent), PKG_CONFIG_SYSROOT_DIR=str(stage))
                found = run(["pkg-config", "--cflags", "--libs", "tutti"], env=environment, capture_output=True).stdout
                run(compiler + ["-std=c++20", "-O1", here / "main.cpp", "-o", program] + found.split())
                # Others test backends of theirs with installed headers alone.
                backend = pathlib.Path(source) / "examples" / "004_backend_of_your_own.cpp"
                run(compiler + ["-std=c++20", "-O0", backend, "-o", folder / "backend"] + found.split())
                run([folder / "backend"])
            else:
                package = next(stage.rglob("tutti-config.cmake"), None) or next(stage.rglob("tuttiConfig.cmake"))
                run(["cmake", "-G", "Ninja", "-S", here, "-B", folder / "build", "-Dtutti_DIR=" + str(package.parent)], env=environment,
                    stdout=subprocess.DEVNULL)
                run(["cmake", "--build", folder / "build"], stdout=subprocess.DEVNULL)
                program = folder / "build" / "consumer"
                over_mpi = folder / "build" / "consumer_mpi"
                if launcher != "-" and not over_mpi.exists():
                    sys.exit("failed: tutti was built with an MPI, and find_package(tutti) has no tutti::mpi")
                if over_mpi.exists() and launcher != "-":
                    run([launcher, "-n", "2", over_mpi])
        run([program])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed: {error}")
