#!/usr/bin/env python3
"""Catches: a kernel that spills registers, or uses so many, or so much shared memory, that its largest
block does not fit on a multiprocessor; a hot kernel that stores its vectors in pieces, keeps an
array in local memory, or has lost its tensor-core instructions (hot_kernels.py).

resources_test.py PTXAS LIBRARY [NVDISASM]: takes the PTX of every kernel out of LIBRARY
(liblockstep_cuda.a), which must be built for sm_80 and hold it uncompressed, lets PTXAS assemble it
for sm_80, and what could spill for every other generation of GPU, and prints a table. NVDISASM shows
the instructions of hot kernels; launcher/setup_nvdisasm.sh downloads it.
"""
import concurrent.futures
import os
import pathlib
import re
import sys

import machine_code
from hot_kernels import HOT, SASS_TARGETS

ALL, OTHERS = "80", ("89", "90", "100", "120")
SHARED_LIMIT = 48 * 1024  # bytes a block may have without asking

ENTRY = re.compile(rb"^(?:\.\w+ )?\.entry (\w+)", re.M)


def resource_problems(kernel, name, threads):
    """What is wrong with a kernel's registers and memory, in blocks of `threads` threads."""
    of = f"{name} (sm_{kernel.target})"
    if kernel.spilled:
        yield f"{of} spills {kernel.spilled} bytes"
    if kernel.registers * threads > machine_code.REGISTER_FILE:
        yield (f"{of} uses {kernel.registers} registers a thread, too many for {threads} threads; "
               "give it __launch_bounds__")
    if kernel.shared > SHARED_LIMIT:
        yield f"{of} uses {kernel.shared} bytes of shared memory"


def code_problems(expected, counts, of):
    """What is wrong with a hot kernel's instructions."""
    wide = {kind: counts[f"{kind}.128"] + counts[f"{kind}.256"] for kind in ("LDG", "STG")}
    narrow = sum(counts[f"STG.{bits}"] for bits in (8, 16, 32, 64))
    local = sum(n for kind, n in counts.items() if kind.startswith(("LDL", "STL")))
    if wide["LDG"] < expected.loads:
        yield f"{of}: {wide['LDG']} loads of 16 bytes, not {expected.loads}"
    if wide["STG"] < expected.stores:
        yield f"{of}: {wide['STG']} stores of 16 bytes, not {expected.stores}"
    if expected.narrow_stores is not None and narrow > expected.narrow_stores:
        yield f"{of}: {narrow} narrow stores, not {expected.narrow_stores}"
    if local:
        yield f"{of}: {local} accesses to local memory"
    if counts["tensor"] < expected.tensor:
        yield f"{of}: {counts['tensor']} tensor-core instructions, not {expected.tensor}"


def hot_kernels_of(ptx):
    """The hot kernels of a file: [(mangled name, readable name, what is expected)]."""
    entries = [name.decode() for name in ENTRY.findall(ptx)]
    files = {e.file for e in HOT if any(is_of(name, e.file) for name in entries)}
    if not files:
        return []
    names = machine_code.readable(entries)
    return [(entry, names[entry], e) for entry in entries for e in HOT
            if is_of(entry, e.file) and re.fullmatch(e.kernel, names[entry])]


def is_of(entry, file):
    """Whether a mangled name has the number that nvcc gives to this file's own names."""
    return re.search(rf"[0-9a-f]_{len(file) + 3}_{file}_cu_", entry) is not None


def examine(ptxas, nvdisasm, ptx, target, hot):
    """One file for one target: its kernels, and the instructions of the hot ones, if wanted."""
    if not (nvdisasm and hot and target in SASS_TARGETS):
        return machine_code.assemble(ptxas, ptx, target), {}
    return machine_code.assemble_and_count(ptxas, nvdisasm, ptx, target,
                                           sorted({entry for entry, _, _ in hot}))


def could_spill(kernel, limit):
    """Whether a kernel of sm_80 is assembled for the others, too. One that needs half of the registers
    that its launch bounds allow spills on no GPU. FP16 differs from BF16 in conversions alone, and
    attention of floats without dropout is that with it, less the random numbers."""
    return (kernel.registers > limit // 2
            and not any(twin in kernel.name for twin in ("7Float16", "7KeepAll")))


def for_others(ptx, kernels, hot):
    """The file with the kernels that the other GPUs are assembled for; None if it has none."""
    limits = machine_code.register_limits(ptx)
    wanted = {k.name for k in kernels if could_spill(k, limits[k.name])}
    wanted |= {entry for entry, _, _ in hot}
    return machine_code.only(ptx, wanted) if wanted else None


def main():
    ptxas, library = sys.argv[1], pathlib.Path(sys.argv[2])
    nvdisasm = sys.argv[3] if len(sys.argv) > 3 and os.path.exists(sys.argv[3]) else None
    # The longest first.
    files = sorted(machine_code.ptx_of(library), key=len, reverse=True)
    hot = [hot_kernels_of(ptx) for ptx in files]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        def examine_all(tasks):
            return list(pool.map(lambda task: examine(ptxas, nvdisasm, *task), tasks))

        found = examine_all([(ptx, ALL, of_file) for ptx, of_file in zip(files, hot)])
        tasks = [(k, ALL) for k in range(len(files))]
        fewer = [for_others(ptx, report, of_file)
                 for ptx, (report, _), of_file in zip(files, found, hot)]
        others = [(k, target) for k, ptx in enumerate(fewer) if ptx for target in OTHERS]
        found += examine_all([(fewer[k], target, hot[k]) for k, target in others])
        tasks += others
    kernels = [k for report, _ in found for k in report if "lockstep" in k.name]  # not those of CUB
    names = machine_code.readable([k.name for k in kernels])
    print(f"{'kernel':<80} {'sm':>3} {'registers':>9} {'shared':>7} {'spilled':>7}")
    problems = []
    blocks = {entry: n for ptx in files for entry, n in machine_code.largest_blocks(ptx).items()}
    for k in kernels:
        print(f"{names[k.name][:80]:<80} {k.target:>3} {k.registers:>9} {k.shared:>7} "
              f"{k.spilled:>7}")
        problems += resource_problems(k, names[k.name], blocks[k.name])
    for expected in HOT:
        if not any(e is expected for of_file in hot for _, _, e in of_file):
            problems.append(f"no kernel of {expected.file} matches {expected.kernel}")
    if nvdisasm:
        print(f"\n{'hot kernel':<80} {'sm':>3} instructions")
    else:
        print("skipped: the instructions of hot kernels, for which launcher/setup_nvdisasm.sh "
              "downloads a disassembler")
    for (k, target), (_, code) in zip(tasks, found):
        for entry, name, expected in hot[k] if code else ():
            counts = code[entry]
            shown = " ".join(f"{kind} {n}" for kind, n in sorted(counts.items()))
            print(f"{expected.file + ' ' + name:<80} {target:>3} {shown}")
            problems += code_problems(expected, counts, f"{expected.file}: {name} (sm_{target})")
    for problem in problems:
        print("FAILED:", problem)
    print(f"{len(kernels)} kernels, {len(problems)} problems")
    return 1 if problems or len(kernels) < 20 * (1 + len(OTHERS)) else 0


if __name__ == "__main__":
    sys.exit(main())
