#!/usr/bin/env python3
"""Catches: ONNX files that change where they are read and written again, `lockstep inspect FILE.onnx` that
tells something else than the file has, and files of others at which the reader falls or says nothing.

LOCKSTEP_ONNX=FOLDER onnx_files_test.py BINARY ONNX_COPY

Without LOCKSTEP_ONNX (the unpacked wheel: see onnx_nodes_test.py) only files that are written here.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from onnx_train_test import field, mlp_file, model, node

# Of the 1,905 files of onnx 1.22.0; the others have an opset, domain or kind of value that is refused.
LEAST_READ = 1344


def expect(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def entry(key, value):
    return field(13, field(1, key) + field(2, value))


def external_tensor(name, extents, location, offset):
    size = 4
    for extent in extents:
        size *= extent
    return (b"".join(field(1, e) for e in extents) + field(2, 1) + field(8, name) + entry("location", location) +
            entry("offset", str(offset)) + entry("length", str(size)) + field(14, 1))


def write_files(folder):
    """An ordinary file, and one with weights beside it and fields that no reader knows."""
    weights = {name: (extents, [0.5] * count) for name, extents, count in
               (("layers.0.weight", [8, 6], 48), ("layers.0.bias", [8], 8),
                ("layers.1.weight", [4, 8], 32), ("layers.1.bias", [4], 4))}
    (folder / "mlp.onnx").write_bytes(mlp_file(weights))
    whole = model([node("Mul", ["x", "w"], ["h"]), node("Add", ["h", "v"], ["y"])], {},
                  [("x", ["batch", 2])], ("y", ["batch", 2]))
    graph = b"".join(field(5, external_tensor(name, [2], "beside.onnx.data", offset))
                     for name, offset in (("w", 64), ("v", 128)))
    # A second field with a part of the graph is joined to the first.
    (folder / "beside.onnx").write_bytes(whole + field(7, graph + field(500, "?")) + field(600, 7))
    (folder / "beside.onnx.data").write_bytes(bytes(64) + struct.pack("<2f", 1, 2) + bytes(56) +
                                              struct.pack("<2f", 3, 4))


def inspect(binary, folder):
    path = folder / "mlp.onnx"
    done = subprocess.run([binary, "inspect", path, "--tensors", "--json", folder / "found.json"],
                          capture_output=True, text=True)
    expect(done.returncode == 0, f"inspect: {done.stderr}")
    for part in ("opset 17", "float (batch, 6); open: batch", "float (batch, 4)", "layers.0.weight", "float (8, 6)",
                 "92 parameters and constants in 4 initializers, 368 bytes", "4 nodes: 1 Add, 1 Gemm, 1 MatMul, 1 Relu",
                 "trains on 6 features: 92 parameters learn, 0 are running statistics, 0 are constant", "as 2 linear",
                 "FLOPs in the forward pass of a sample", "layers.0.weight"):
        expect(part in done.stdout, f"inspect does not say '{part}':\n{done.stdout}")
    found = json.loads((folder / "found.json").read_text())
    expect(found["inputs"] == [{"name": "x", "type": "float", "extents": ["batch", "6"], "open": ["batch"]}], found)
    expect(found["parameters"] == 92 and found["nodes"]["Gemm"] == 1 and found["opset"] == 17, found)
    beside = subprocess.run([binary, "inspect", folder / "beside.onnx"], capture_output=True, text=True)
    expect("2 of the initializers are in external files" in beside.stdout, beside)


def copy(tool, folder, paths):
    copies = folder / "copies"
    copies.mkdir(exist_ok=True)
    done = subprocess.run([tool, copies], input="".join(f"{path}\n" for path in paths), capture_output=True, text=True)
    expect(done.returncode == 0, f"the reader fell: {done.returncode} {done.stderr} {done.stdout[-300:]}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def copy_wheel(tool, folder, root):
    paths = sorted(pathlib.Path(root).rglob("model.onnx"))
    found = copy(tool, folder, paths)
    same = sum(outcome == "same" for _, outcome, _ in found)
    refused = [why for _, outcome, why in found if outcome == "refused"]
    print(f"{len(paths)} files: {same} read and written again with equal bytes, {len(refused)} refused")
    expect(same + len(refused) == len(paths), [path for path, outcome, _ in found if outcome == "different"])
    expect(same >= LEAST_READ, "fewer files than before are read")
    for why in refused:
        expect(any(words in why for words in ("must be 9 to 23", "must be a tensor", "must be ONNX's standard domain")), why)


def main():
    binary, tool = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_files(folder)
        inspect(binary, folder)
        for path, outcome, why in copy(tool, folder, [folder / "mlp.onnx", folder / "beside.onnx"]):
            expect(outcome == "same", f"{path} is {outcome} {why}")
        if root := os.environ.get("LOCKSTEP_ONNX"):
            copy_wheel(tool, folder, root)


if __name__ == "__main__":
    sys.exit(main())
