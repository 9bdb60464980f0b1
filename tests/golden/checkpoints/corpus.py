#!/usr/bin/env python3
"""Checkpoints that older revisions of Lockstep have written, and the runs that they are of.

corpus.py BINARY REVISION: adds those of another revision, whose program BINARY is.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
SAVED_STEP, RANKS = 4, 2
COMMON = """
seed: 3
execution { threads: 1 }
checkpoint { every: 4 keep_last: 9 }
output { tensorboard: false }
"""
CONFIGS = {
    # AdamW's moments and an average of the weights.
    "mlp": COMMON + """
model { mlp { hidden: [5] dropout: 0.1 } }
data { synthetic { samples: 64 features: 4 classes: 3 } }
train { global_batch: 16 lanes: 4 steps: 8 ema_decay: 0.9 }
optimizer { adamw { weight_decay: 0.1 } }
schedule { kind: COSINE lr: 0.01 }
""",
    # A language model, with residuals of gradients that were rounded.
    "gpt": COMMON + """
model { gpt { layers: 1 heads: 2 width: 8 context: 6 } }
data { synthetic { samples: 64 classes: 11 } }
train { global_batch: 16 lanes: 4 steps: 8 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.05 }
comm { wire_dtype: BF16 error_feedback: true }
""",
    # Weights that lie in memory in another order than in files: of colour images.
    "images": COMMON + """
model { mlp { hidden: [3] } }
data { image_folder { train: "train" } image { size: 4 resize: 4 } }
train { global_batch: 8 lanes: 4 steps: 8 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.05 }
""",
}


def write_image(path, seed):
    """A PNG of 4 x 4 colours, the same on every machine."""
    rows = b"".join(b"\0" + bytes((37 * seed + 11 * i) % 256 for i in range(12 * y, 12 * y + 12))
                    for y in range(4))
    chunk = lambda kind, data: (struct.pack(">I", len(data)) + kind + data +
                                struct.pack(">I", zlib.crc32(kind + data)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" +
                     chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def prepare(folder):
    """What the runs read."""
    for number in range(8):
        write_image(folder / "data" / "train" / "ab"[number % 2] / f"{number}.png", number)
    for name, text in CONFIGS.items():
        (folder / f"{name}.textproto").write_text(text)


def train(binary, folder, name, run_dir, ranks, *arguments):
    """The output of rank 0."""
    environment = {**os.environ, "LOCKSTEP_DEVICE": "cpu"}
    processes = []
    for rank in range(ranks):
        if ranks > 1:
            environment = {**environment, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                           "LOCKSTEP_RENDEZVOUS": f"file://{run_dir}.meeting"}
        processes.append(subprocess.Popen(
            [str(binary), "train", str(folder / f"{name}.textproto"), "--run-dir", str(run_dir),
             "--data", str(folder / "data"), *arguments], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise RuntimeError(f"{name} on {ranks} ranks:\n" + "\n".join(outputs))
    return outputs[0]


def hash_in(output):
    return output.split("\nweights_hash ")[1].split()[0]


def add(binary, revision):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        prepare(folder)
        for name in CONFIGS:
            run_dir = folder / f"run-{name}"
            end = hash_in(train(binary, folder, name, run_dir, RANKS))
            saved = f"checkpoints/step-{SAVED_STEP:08d}"
            shutil.copytree(run_dir / saved, HERE / revision / name / saved)
            ends = HERE / "ends.json"
            known = json.loads(ends.read_text()) if ends.exists() else {}
            if known.setdefault(name, end) != end:
                raise RuntimeError(f"{name} ends with {end}, once with {known[name]}")
            ends.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    add(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2])
