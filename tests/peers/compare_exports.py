#!/usr/bin/env python3
"""The outputs of exported networks, beside what PyTorch gave when they were exported.

    compare_exports.py LOCKSTEP FOLDER [NAME ...]

FOLDER has files NAME.MODE.onnx, a network in several modes of the exporter, and NAME.json: {"inputs": [...],
"output": [...]}, as nested lists, in the order of the network's inputs. Each file is run by `lockstep predict`, its
inputs as numbers. Prints the largest difference from PyTorch's output, as a share of the largest element; or why the file
is refused. Ends with 1 where a difference is above 1e-4. Needs numpy, onnx, safetensors.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
from safetensors.numpy import load_file

LIMIT = 1e-4


def config_of(file, folder):
    """A config whose data are the arrays in the folder, and whose inputs are all features."""
    graph = onnx.load(file, load_external_data=False).graph
    filled = {x.name for x in graph.initializer}
    inputs = " ".join(f'inputs {{ name: "{x.name}" is: FEATURES }}' for x in graph.input if x.name not in filled)
    return f"""
model {{ onnx {{ file: "{file}" loss: MEAN_SQUARED_ERROR batch_norm: RUNNING allow_shared: true {inputs} }} }}
data {{ npy {{ train_inputs: "x.npy" train_labels: "y.npy" eval_inputs: "x.npy" eval_labels: "y.npy" }} dir: "{folder}" }}
train {{ global_batch: 4 lanes: 1 steps: 1 }}
optimizer {{ sgd {{}} }}
schedule {{ lr: 1e-30 }}
execution {{ threads: 1 }}
output {{ tensorboard: false }}
"""


def run(lockstep, *arguments):
    done = subprocess.run([lockstep, *map(str, arguments)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip().splitlines()[-1]


def compare(lockstep, path, known):
    """The difference, or a text that tells why there is none."""
    rows = [numpy.array(x, numpy.float32).reshape(len(x), -1) for x in known["inputs"]]
    wanted = numpy.array(known["output"], numpy.float32)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        numpy.save(folder / "x.npy", numpy.concatenate(rows, 1))
        numpy.save(folder / "y.npy", wanted.reshape(len(wanted), -1))
        (folder / "config.textproto").write_text(config_of(path, folder))
        error = run(lockstep, "train", folder / "config.textproto", "--run-dir", folder / "run")
        error = error or run(lockstep, "predict", folder / "config.textproto", "--checkpoint", folder / "run", "--out",
                             folder / "y.safetensors")
        if error:
            return error
        found = load_file(folder / "y.safetensors")["output"]
    return float(numpy.abs(found.reshape(wanted.shape) - wanted).max() / (numpy.abs(wanted).max() or 1))


def main():
    lockstep, folder, *names = sys.argv[1:]
    failures = 0
    for known in sorted(pathlib.Path(folder).glob("*.json")):
        if names and known.stem not in names:
            continue
        for path in sorted(known.parent.glob(f"{known.stem}.*.onnx")):
            found = compare(lockstep, path.resolve(), json.loads(known.read_text()))
            good = isinstance(found, str) or found <= LIMIT
            failures += not good
            print(f"{path.name:28} {found if isinstance(found, str) else f'{found:.1e}'}{'' if good else '  FAILED'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
