#!/usr/bin/env python3
"""Catches: a start of `train` or `plan` that binds the network of an ONNX file again for each question.

onnx_binds_test.py BINARY
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

import onnx_networks

MAX_BINDS = 3
REST = """
train { global_batch: 8 lanes: 4 steps: 1 }
optimizer { sgd {} }
checkpoint { at_end: false }
execution { threads: 1 }
output { tensorboard: false }
"""


def binds(binary, folder, command, *more):
    """How many networks the command binds before it trains, by its log."""
    done = subprocess.run([pathlib.Path(binary).absolute(), command, *more, "--log-level", "debug", "--device", "cpu"], cwd=folder,
                          capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        sys.exit(f"{command} {more} ended with {done.returncode}:\n{done.stderr}")
    return (done.stdout + done.stderr).count(": bound to a batch of ")


def padded_documents(folder):
    """A config of the network `gpt` whose samples are padded documents, so that its mask is an input."""
    (folder / "tokens.u16").write_bytes(b"".join(struct.pack("<H", i % onnx_networks.V) for i in range(600)))
    (folder / "documents.u64").write_bytes(b"".join(struct.pack("<Q", i) for i in range(0, 600, 5)))
    data = (f'data {{ dir: "{folder}" tokens {{ train: "tokens.u16" train_documents: "documents.u64" '
            "packing: PADDED } }")
    return f'model {{ onnx {{ file: "{folder}/gpt.onnx" }} }}\n{data}\n{REST}'


def main():
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        onnx_networks.write(folder)
        texts = {network: onnx_networks.config(folder, network, REST) for network in onnx_networks.NETWORKS}
        texts["padded"] = padded_documents(folder)
        for network, text in texts.items():
            path = folder / f"{network}.textproto"
            path.write_text(text)
            for command, *more in (("train", "--run-dir", f"run-{network}"), ("plan",)):
                count = binds(sys.argv[1], folder, command, str(path), *more)
                print(f"{network:10} {command:6} {count}")
                if not 1 <= count <= MAX_BINDS:
                    failures.append(f"{command} of {network} binds {count} times; allowed: 1 to {MAX_BINDS}")
    if failures:
        sys.exit("\n".join(failures))


main()
