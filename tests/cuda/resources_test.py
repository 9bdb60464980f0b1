#!/usr/bin/env python3
"""Catches: a kernel that spills registers, or uses so many, or so much shared memory, that too few of its blocks fit on a
multiprocessor.

resources_test.py NVCC ROOT: compiles every kernel file of runtime/cuda for sm_80 and sm_90, reads what the assembler reports,
checks it, and prints a table.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

TARGETS = ("80", "90")
REGISTER_FILE = 65536  # registers of a multiprocessor
FEWEST_THREADS = 256  # that must fit on a multiprocessor at once, by registers
SHARED_LIMIT = 48 * 1024  # bytes a block may have without asking

ENTRY = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def report(nvcc, root, path):
    """What the assembler says of one file: [(kernel, target, registers, shared bytes, spilled bytes)]."""
    command = [nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-I", str(root), "-O3", "-c", str(path), "-o", os.devnull,
               "-Xptxas", "-v"]
    for target in TARGETS:
        command += ["-gencode", f"arch=compute_{target},code=sm_{target}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{path.name}: {done.stderr[-2000:]}")
    kernels, entry, spilled = [], None, 0
    for line in done.stderr.splitlines():
        if found := ENTRY.search(line):
            entry = found.groups()
        elif found := SPILLS.search(line):
            spilled = int(found[2]) + int(found[3])
        elif (found := USED.search(line)) and entry:
            if "lockstep" in entry[0]:  # not those of CUB
                kernels.append((*entry, int(found[1]), int(found[2] or 0), spilled))
            entry, spilled = None, 0
    return kernels


def readable(names):
    """Kernel names without their namespaces and parameters."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()
    short = []
    for name in plain:
        name = re.sub(r"lockstep::|cuda::|\(anonymous namespace\)::|^void ", "", name)
        short.append(re.sub(r"\((?!\w+\)\d).*$", "", name))
    return dict(zip(names, short))


def main():
    nvcc, root = sys.argv[1], pathlib.Path(sys.argv[2])
    files = sorted((root / "runtime/cuda").glob("*.cu"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = [k for of_file in pool.map(lambda f: report(nvcc, root, f), files) for k in of_file]
    names = readable([k[0] for k in kernels])
    print(f"{'kernel':<80} {'sm':>3} {'registers':>9} {'shared':>7} {'spilled':>7}")
    problems = []
    for name, target, registers, shared, spilled in kernels:
        print(f"{names[name][:80]:<80} {target:>3} {registers:>9} {shared:>7} {spilled:>7}")
        if spilled:
            problems.append(f"{names[name]} (sm_{target}) spills {spilled} bytes")
        if registers * FEWEST_THREADS > REGISTER_FILE:
            problems.append(f"{names[name]} (sm_{target}) uses {registers} registers a thread")
        if shared > SHARED_LIMIT:
            problems.append(f"{names[name]} (sm_{target}) uses {shared} bytes of shared memory")
    for problem in problems:
        print("FAILED:", problem)
    print(f"{len(kernels)} kernels, {len(problems)} problems")
    return 1 if problems or len(kernels) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
