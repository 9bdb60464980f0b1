#!/usr/bin/env python3
"""Catches: a file that is refused only after it has made the program take memory: headers that
claim too much, files that unpack to a thousand times their size, texts of a million parts.

refusal_memory_test.py BINARY [NAME ...]: each file must be refused, and the most that the program
had resident at any time, less what it has where there is no file, be no more than twice the file
and 64 MB.
"""
import gzip
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import lockstep_run
from bad_input_test import IDX, MLP, TABLE, TOKENS

MB = 1_000_000
MOST_FILES, MOST_MORE = 2, 64 * MB  # times the file, and more
CODES = (2, 3, 4)
SOURCE = "synthetic { samples: 64 features: 6 classes: 3 }"
IMAGES = """
model { lenet { classes: 3 } }
data { SOURCE }
train { global_batch: 8 lanes: 4 steps: 4 log_every: 100 }
optimizer { sgd {} }
output { tensorboard: false }
"""


def bomb(mebibytes, first=b""):
    """Gzip of so many zeros after `first`: a thousandth of them."""
    packed = zlib.compressobj(9, wbits=31)
    return b"".join([packed.compress(first), *(packed.compress(bytes(1 << 20))
                                               for _ in range(mebibytes)), packed.flush()])


def png(width, height, *chunks):
    def chunk(kind, content):
        return (struct.pack(">I", len(content)) + kind + content
                + struct.pack(">I", zlib.crc32(kind + content)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*c) for c in [(b"IHDR", header), *chunks, (b"IEND", b"")])


def jpeg(width, height):
    """Headers of a progressive image of that size, and the begin of a scan."""
    table = b"\xff\xdb\x00\x43\x00" + bytes([1] * 64)
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(
        [3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0])
    codes = b"\xff\xc4\x00\x14\x00" + bytes([1] + [0] * 15) + b"\x00"
    scan = b"\xff\xda\x00\x0c" + bytes([3, 1, 0, 2, 0, 3, 0, 0, 0, 0]) + bytes(64)
    return b"\xff\xd8" + table + frame + codes + scan


def tar_header(name, size, kind=b"0"):
    octal = b"%011o\0" % size if size < 8 ** 11 else b"\x80" + size.to_bytes(11, "big")
    header = bytearray(name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + octal
                       + b"00000000000\0" + b" " * 8 + kind + bytes(100) + b"ustar\x0000")
    header = header.ljust(512, b"\0")
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def npy(shape, kind="|u1"):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"


def cases():
    """(name, files, config or None, arguments): where no arguments are told, `train` reads them."""
    idx = IDX
    labels = struct.pack(">II", 0x801, 4) + bytes(4)
    yield "idx_claims", {"images.idx": struct.pack(">IIII", 0x803, 1 << 30, 28, 28),
                         "labels.idx": labels}, idx
    yield "idx_unpacks", {"images.idx": bomb(800), "labels.idx": labels}, idx
    yield "idx_unpacks_to_claims", {
        "images.idx": bomb(800, struct.pack(">IIII", 0x803, 4, 28, 28)), "labels.idx": labels}, idx
    npy_config = IMAGES.replace(
        "SOURCE", 'npy { train_inputs: "x.npy" train_labels: "y.npy" }')
    y = npy("(4,)", "<i8") + bytes(32)
    yield "npy_claims", {"x.npy": npy("(1000000, 1000, 1000)"), "y.npy": y}, npy_config
    yield "npy_header_claims", {
        "x.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{", "y.npy": y}, npy_config
    yield "npy_unpacks", {"x.npy": bomb(800, npy("(4, 28, 28)")), "y.npy": y}, npy_config
    yield "npy_header_is_long", {
        "x.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 20 * MB) + b"{'descr': (" + (
            b"[" * 20 * MB),
        "y.npy": y}, npy_config
    cifar = IMAGES.replace("SOURCE", 'cifar { train: "batch.bin" }')
    yield "cifar_unpacks", {"batch.bin.gz": bomb(800)}, cifar.replace("batch.bin", "batch.bin.gz")
    yield "cifar_odd", {"batch.bin": bytes(40 * MB)}, cifar
    zeros = zlib.compress(bytes(400 * MB), 9)
    folder = IMAGES.replace("SOURCE", 'image_folder { train: "." } image { size: 28 }')
    for name, image in {
            "png_claims": png(1 << 30, 1 << 30), "png_claims_less": png(30000, 30000),
            "png_profile_unpacks": png(28, 28, (b"iCCP", b"p\0\0" + zeros)),
            "png_text_unpacks": png(28, 28, (b"zTXt", b"t\0\0" + zeros))}.items():
        yield name, {f"{c}/{i}.png": image for c in "abc" for i in range(4)}, folder
    for name, image in {
            "jpeg_claims": jpeg(65500, 65500), "jpeg_claims_less": jpeg(9999, 9999)}.items():
        yield name, {f"{c}/{i}.jpg": image for c in "abc" for i in range(4)}, folder
    tar = IMAGES.replace("SOURCE", 'tar_shards { train: "a.tar" classes: 3 } image { size: 28 }')
    yield "tar_claims", {"a.tar": tar_header(b"1.jpg", 1 << 50) + bytes(2048)}, tar
    yield "tar_pax_claims", {"a.tar": tar_header(b"x", 1 << 33, b"x") + bytes(2048)}, tar
    yield "tar_name_claims", {"a.tar": tar_header(b"x", 1 << 33, b"L") + bytes(2048)}, tar
    yield "tar_pax_is_long", {
        "a.tar": tar_header(b"x", 20 * MB, b"x") + b"9 a=bcd\n" * (2500 * 1000)}, tar
    yield "tar_unpacks", {"a.tar": bomb(800, tar_header(b"1.jpg", 1 << 20))}, tar
    records = IMAGES.replace("SOURCE", 'records { train: "a.rec" } image { size: 28 }')
    yield "records_zeros", {"a.rec": bytes(20 * MB)}, records
    yield "records_ones", {"a.rec": b"\xff" * 20 * MB}, records
    yield "table_one_line", {"table.csv": b"a" * 40 * MB}, TABLE
    yield "table_columns", {"table.csv": b"a," * 10 * MB + b"label\n"}, TABLE
    names = b",".join(b"%d" % i for i in range(2 * MB))
    yield "table_names", {"table.csv": names + b"\n"}, TABLE
    yield "table_cells", {"table.csv": b"a,label\n" + b"," * 20 * MB + b"\n"}, TABLE
    yield "table_quotes", {"table.csv": b"a,label\n1,x\n" + b'"' * 20 * MB + b"a"}, TABLE
    yield "table_short_lines", {"table.csv": b"a,label\n" + b"1,x\n" * 5 * MB + b"2\n"}, TABLE
    yield "table_empty_lines", {"table.csv": b"a,label\n" + b"\n" * 20 * MB + b"2\n"}, TABLE
    yield "table_unpacks", {"table.csv": bomb(800)}, TABLE
    yield "tokens_odd", {"tokens.u16": bytes(40 * MB + 1)}, TOKENS
    llmc = TOKENS.replace('"tokens.u16"', '"tokens.u16" format: LLMC')
    yield "tokens_claims", {
        "tokens.u16": struct.pack("<3I", 20240520, 1, 1 << 31) + bytes(1012)}, llmc
    tensors = ",".join(f'"t{i}":{{"dtype":"F32","shape":[1],"data_offsets":[{4 * i},{4 * i + 4}]}}'
                       for i in range(300_000))
    for name, content in {
            "safetensors_claims": struct.pack("<Q", 99 * MB),
            "safetensors_claims_more": struct.pack("<Q", 1 << 60) + bytes(64),
            "safetensors_deep": struct.pack("<Q", 20 * MB) + b'{"a":' + b"[" * 20 * MB,
            "safetensors_numbers": struct.pack("<Q", 20 * MB + 6) + b'{"a":[' + b"1," * 10 * MB,
            "safetensors_many": (
                struct.pack("<Q", len(tensors) + 2) + b"{" + tensors.encode() + b"}"),
            "safetensors_metadata": struct.pack("<Q", 20 * MB) + (
                b'{"__metadata__":{' + b'"a":"b",' * (3 * MB)).ljust(20 * MB)}.items():
        yield name, {"w.safetensors": content}, MLP.replace(
            "log_every: 100", 'log_every: 100 init_from: "FOLDER/w.safetensors"')
    for name, text in {"config_deep": b"model { " * 3 * MB, "config_list": (
            b"model { mlp { hidden: [" + b"1, " * 7 * MB), "config_string": (
                b'name: "' + b"a" * 20 * MB), "config_comment": b"#" * 20 * MB}.items():
        yield name, {"config.textproto": text}, None
    for name, text in {"state_deep": b"step { " * 3 * MB,
                       "state_lists": b'moments: "a"\n' * (2 * MB),
                       "state_layout": b'layout { name: "a" }\n' * MB}.items():
        yield name, {"c/state.textproto": text}, None, ["inspect", "FOLDER/c"]


def most_resident(binary, arguments, folder):
    """Bytes, the exit code, and what it said. A process counts what the one that starts it has
    resident, too: a small one starts it."""
    said, start = folder / "said", """
import os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
os.write(3, f"{usage.ru_maxrss * 1024} {os.waitstatus_to_exitcode(status)}".encode())
"""
    reading, writing = os.pipe()
    with said.open("wb") as stream:
        subprocess.run(["sh", "-c", f'exec "$@" 3>&{writing}', "sh", sys.executable, "-c", start,
                        binary, *map(str, arguments)], stdout=stream, stderr=stream,
                       stdin=subprocess.DEVNULL, pass_fds=[writing], timeout=120)
    os.close(writing)
    with os.fdopen(reading) as stream:
        most, code = map(int, stream.read().split())
    return most, code, said.read_text(errors="replace")


def try_case(binary, name, files, config, arguments=None):
    """What is wrong; None where nothing is. Prints what was measured."""
    with tempfile.TemporaryDirectory(prefix="lockstep-refusal-") as folder_name:
        folder = pathlib.Path(folder_name)
        for file_name, content in files.items():
            path = folder / "data" / file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        path = folder / "data/config.textproto"
        if config is not None:
            path = folder / "config.textproto"
            path.write_text(config.replace("FOLDER", str(folder / "data")))
        words = ["train", path, "--run-dir", folder / "run", "--data", folder / "data"]
        if arguments:
            words = [word.replace("FOLDER", str(folder / "data")) for word in arguments]
        bytes_, code, said = most_resident(binary, words, folder)
    size = sum(map(len, files.values()))
    none, _, _ = NO_FILE
    allowed = none + MOST_FILES * size + MOST_MORE
    error = next((line for line in said.splitlines() if "error:" in line), said[-200:])
    print(f"{name}: {size / MB:.1f} MB of files, {(bytes_ - none) / MB:.1f} MB more than without, "
          f"exit code {code}: {error[:150]}", flush=True)
    if code not in CODES:
        return f"exit code {code}; a refusal has {CODES}"
    if bytes_ > allowed:
        return f"{bytes_ / MB:.0f} MB resident; allowed: {allowed / MB:.0f} MB"
    return None


def main():
    global NO_FILE
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    binary, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="lockstep-refusal-") as folder_name:
        folder = pathlib.Path(folder_name)
        (folder / "config.textproto").write_text(IDX)
        NO_FILE = most_resident(
            binary, ["train", folder / "config.textproto", "--data", folder], folder)
        print(f"without a file: {NO_FILE[0] / MB:.1f} MB, exit code {NO_FILE[1]}")
    failed = tried = 0
    for case in cases():
        if wanted and case[0] not in wanted:
            continue
        tried += 1
        wrong = try_case(binary, *case)
        if wrong:
            failed += 1
            print(f"  FAILED: {wrong}")
    print(f"{tried} files, {failed} failed")
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
