#!/usr/bin/env python3
"""Catches: a kernel that spills registers, or uses so many, or so much shared memory, that too few
of its blocks fit on a multiprocessor.

resources_test.py PTXAS LIBRARY: takes the PTX of every kernel out of LIBRARY (liblockstep_cuda.a),
which must be built for sm_80 and hold it uncompressed, lets PTXAS assemble it for sm_80 and sm_90,
checks what that reports, and prints a table.
"""
import concurrent.futures
import os
import pathlib
import re
import struct
import subprocess
import sys

TARGETS = ("80", "90")
REGISTER_FILE = 65536  # registers of a multiprocessor
FEWEST_THREADS = 256  # that must fit on a multiprocessor at once, by registers
SHARED_LIMIT = 48 * 1024  # bytes a block may have without asking

ENTRY = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


FAT_BINARY = struct.pack("<I", 0xBA55ED50)  # what a kernel file's device code begins with
PTX = 1  # the kind of an entry in it


def ptx_of(library):
    """The PTX of each kernel file."""
    data, texts, at = library.read_bytes(), [], -1
    while (at := data.find(FAT_BINARY, at + 1)) >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, entry)
            if kind == PTX:
                texts.append(data[entry + header:entry + header + size].rstrip(b"\0"))
            entry += header + size
    return texts


def report(ptxas, ptx, target):
    """What the assembler says of one file: [(kernel, target, registers, shared bytes, spilled
    bytes)]."""
    done = subprocess.run([ptxas, "-v", f"-arch=sm_{target}", "-o", os.devnull, "/dev/stdin"],
                          input=ptx, capture_output=True)
    output = (done.stdout + done.stderr).decode()
    if done.returncode != 0:
        raise RuntimeError(f"ptxas: {output[-2000:]}")
    kernels, entry, spilled = [], None, 0
    for line in output.splitlines():
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
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
    short = []
    for name in plain.stdout.splitlines():
        name = re.sub(r"lockstep::|cuda::|\(anonymous namespace\)::|^void ", "", name)
        short.append(re.sub(r"\((?!\w+\)\d).*$", "", name))
    return dict(zip(names, short))


def main():
    ptxas, library = sys.argv[1], pathlib.Path(sys.argv[2])
    tasks = [(ptx, target) for ptx in ptx_of(library) for target in TARGETS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = [
            k for of_file in pool.map(lambda task: report(ptxas, *task), tasks) for k in of_file]
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
