"""What kernels become on a GPU: the PTX in a library, the assembler's report on it, and the machine
instructions (SASS) of each kernel, as NVIDIA's disassembler prints them."""
import collections
import math
import os
import re
import struct
import subprocess
import tempfile
import typing

FAT_BINARY = struct.pack("<I", 0xBA55ED50)  # what a kernel file's device code begins with
PTX = 1  # the kind of an entry in it

HEAD = re.compile(rb"^(?:\.\w+ )?\.entry (\w+)", re.M)
BRACE = re.compile(rb"[{}]")
LAUNCH_BOUNDS = re.compile(rb"^\.maxntid ([\d, ]+)", re.M)
MIN_BLOCKS = re.compile(rb"^\.minnctapersm (\d+)", re.M)
MOST_THREADS = 1024  # of a block
MOST_REGISTERS = 255  # of a thread
REGISTER_FILE = 65536  # registers of a multiprocessor
ENTRY = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")

SECTION = re.compile(r"\.text\.(\S+):$")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)")
ACCESS = re.compile(r"(LDG|STG|LDS|STS|LDL|STL|LD|ST)(\.\S+)?$")
WIDTH = re.compile(r"\.[US]?(8|16|64|128|256)\b")
TENSOR = re.compile(r"[HIDQO]G?MMA\b|UTC[A-Z]*MMA\b")


class Kernel(typing.NamedTuple):
    """One kernel, assembled for one kind of GPU."""
    name: str
    target: str
    registers: int
    shared: int  # bytes
    spilled: int  # bytes


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


def entries_of(ptx):
    """The kernels of one file, each with its name, begin and end."""
    for head in HEAD.finditer(ptx):
        depth = 0
        for brace in BRACE.finditer(ptx, head.end()):
            depth += 1 if brace[0] == b"{" else -1
            if depth == 0:
                yield head[1].decode(), head.start(), brace.end()
                break


def only(ptx, names):
    """One file without the kernels that are not named."""
    parts, at = [], 0
    for name, begin, end in entries_of(ptx):
        parts.append(ptx[at:end] if name in names else ptx[at:begin])
        at = end
    return b"".join([*parts, ptx[at:]])


def largest_blocks(ptx):
    """How many threads the blocks of each kernel may have: by its launch bounds, or as many as a GPU
    allows."""
    threads = {}
    for name, begin, end in entries_of(ptx):
        bounds = LAUNCH_BOUNDS.search(ptx, begin, end)
        threads[name] = (math.prod(int(n) for n in bounds[1].split(b","))
                         if bounds else MOST_THREADS)
    return threads


def register_limits(ptx):
    """How many registers a thread of each kernel may use, by its launch bounds."""
    threads, limits = largest_blocks(ptx), {}
    for name, begin, end in entries_of(ptx):
        blocks = MIN_BLOCKS.search(ptx, begin, end)
        resident = threads[name] * (int(blocks[1]) if blocks else 1)
        limits[name] = min(MOST_REGISTERS, REGISTER_FILE // resident)
    return limits


def parse_report(text):
    """The kernels that `ptxas -v` names."""
    kernels, entry, spilled = [], None, 0
    for line in text.splitlines():
        if found := ENTRY.search(line):
            entry = found.groups()
        elif found := SPILLS.search(line):
            spilled = int(found[2]) + int(found[3])
        elif (found := USED.search(line)) and entry:
            kernels.append(Kernel(*entry, int(found[1]), int(found[2] or 0), spilled))
            entry, spilled = None, 0
    return kernels


def assemble(ptxas, ptx, target, cubin=os.devnull):
    """Assembles one file and returns its kernels."""
    done = subprocess.run([ptxas, "-v", f"-arch=sm_{target}", "-o", cubin, "/dev/stdin"],
                          input=ptx, capture_output=True)
    output = (done.stdout + done.stderr).decode()
    if done.returncode != 0:
        raise RuntimeError(f"ptxas: {output[-2000:]}")
    return parse_report(output)


def symbols_of(cubin):
    """The names of a cubin's symbols, by number."""
    sections_at, = struct.unpack_from("<Q", cubin, 40)
    size, count = struct.unpack_from("<HH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, sections_at + size * k)
                for k in range(count)]
    names = []
    for _, kind, _, _, offset, bytes_, link, *_ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for at in range(offset, offset + bytes_, 24):
            begin = strings + struct.unpack_from("<I", cubin, at)[0]
            names.append(cubin[begin:cubin.index(b"\0", begin)].decode())
    return names


def parse_instructions(text):
    """Counts the instructions of each kernel that matter: loads and stores by memory and bits
    (LDG.128, STS.32), and those of tensor cores ("tensor")."""
    kernels, counts = {}, None
    for line in text.splitlines():
        if found := SECTION.match(line):
            counts = kernels.setdefault(found[1], collections.Counter())
        elif counts is not None and (found := INSTRUCTION.search(line)):
            if TENSOR.match(found[1]):
                counts["tensor"] += 1
            elif access := ACCESS.match(found[1]):
                width = WIDTH.search(access[2] or "")
                counts[f"{access[1]}.{width[1] if width else 32}"] += 1
    return kernels


def instructions(nvdisasm, cubin, kernels):
    """The same of `kernels`, which are in the file `cubin`."""
    with open(cubin, "rb") as file:
        names = symbols_of(file.read())
    numbers = ",".join(str(names.index(name)) for name in kernels)
    done = subprocess.run([nvdisasm, "-c", "-fun", numbers, cubin], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"nvdisasm: {done.stderr[-2000:]}")
    found = parse_instructions(done.stdout)
    return {name: found[name] for name in kernels}


def assemble_and_count(ptxas, nvdisasm, ptx, target, kernels):
    """The kernels of one file, and the instructions of those named."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "cubin")
        report = assemble(ptxas, ptx, target, cubin)
        return report, instructions(nvdisasm, cubin, kernels)


def readable(names):
    """Kernel names without their namespaces and parameters."""
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
    short = []
    for name in plain.stdout.splitlines():
        name = re.sub(r"\b[a-z]\w*::|\(anonymous namespace\)::|^void ", "", name)
        short.append(re.sub(r"\((?!\w+\)\d).*$", "", name))
    return dict(zip(names, short))
