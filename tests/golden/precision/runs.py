#!/usr/bin/env python3
"""Run folders of trainings on a GPU and on a CPU, for tests of execution.precision.

runs.py PROGRAM NAME: makes those of NAME again. If NAME ends in _gpu, the program must run on the
stand-in for a GPU. The CPU's bits are the same everywhere, and the hash after all steps is kept.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SAVED_STEP = 4
COMMON = """
train { global_batch: 16 lanes: 4 steps: 8 }
optimizer { adamw { weight_decay: 0.1 } }
schedule { lr: 0.02 }
checkpoint { every: 4 keep_last: 9 }
output { tensorboard: false }
"""
# None names a precision.
CONFIGS = {
    "table": """
model { mlp { hidden: [6] } }
data { table { train: "table.csv" target: "kind" eval_fraction: 0.25 } }
eval { every: 4 }
""" + COMMON,
    "gpt": """
model { gpt { layers: 1 heads: 2 width: 8 context: 6 } }
data { synthetic { samples: 64 classes: 11 } }
""" + COMMON,
}


def prepare(folder):
    """What the runs read."""
    rows = [f"{i % 7},{(i * 5) % 11},{(i * 3) % 4},{(i % 7 + (i * 5) % 11) % 3}" for i in range(96)]
    (folder / "data").mkdir()
    (folder / "data" / "table.csv").write_text("\n".join(["a,b,c,kind", *rows]) + "\n")
    for name, text in CONFIGS.items():
        (folder / f"{name}.textproto").write_text(text)


def run_folder(folder, kept, name):
    """A copy of a kept folder, to resume in."""
    copy = folder / f"{kept}-{name}-{len(list(folder.iterdir()))}"
    shutil.copytree(HERE / kept / name, copy)
    return copy


def make(program, kept):
    device = "cuda" if kept.endswith("_gpu") else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        prepare(folder)
        for name in CONFIGS:
            run_dir = folder / f"run-{name}"
            subprocess.run(
                [program, "train", folder / f"{name}.textproto", "--device", device, "--run-dir",
                 run_dir, "--data", folder / "data"], check=True, stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"})
            to = HERE / kept / name
            shutil.rmtree(to, ignore_errors=True)
            saved = f"checkpoints/step-{SAVED_STEP:08d}"
            shutil.copytree(run_dir / saved, to / saved)
            shutil.copy(run_dir / "config.textproto", to)
            if device == "cpu":
                shutil.copy(run_dir / "end.json", to)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2])
