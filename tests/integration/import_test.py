#!/usr/bin/env python3
"""Catches: weights that change on their way out of a checkpoint and back, tensors that do not fit
and are taken all the same or are not named, and a published network that does not give its
published figures.

import_test.py BINARY
"""
import json
import pathlib
import sys
import tempfile

import lockstep_run
from huggingface_folders import read_safetensors, write_safetensors

CONFIG = """
model { lenet {} }
data { synthetic { samples: 64 classes: 5 height: 28 width: 28 channels: 1 } }
train { global_batch: 8 lanes: 4 steps: 3 log_every: 1000000 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.01 }
output { tensorboard: false }
"""
ROOT = pathlib.Path(__file__).resolve().parents[2]
RESNET = ROOT / "configs" / "vision" / "resnet20_cifar10.textproto"

# Of the published network for the first test image, by an independent program.
FIRST_LOGITS = [-5.309682, -0.495775, 0.877263, 23.730519, -4.105039, 4.463729, -0.234346,
                -5.417928, -3.711792, -9.882182]


def command(binary, *arguments):
    return lockstep_run.run(binary, arguments, ranks=0)


def expect(condition, what, done=None):
    if condition:
        return
    raise RuntimeError(what + (
        "" if done is None else f"\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"))


def inspect(binary, checkpoint, folder):
    out = folder / "inspect.json"
    done = command(binary, "inspect", checkpoint, "--json", out)
    expect(done.returncode == 0, "inspect", done)
    return json.loads(out.read_text())["weights_hash"]


def round_trip(binary, folder):
    """train, export, import: the same weights, and a run that goes on from them."""
    config = folder / "lenet.textproto"
    config.write_text(CONFIG)
    trained = lockstep_run.train(binary, config, folder / "run", 0)
    weights = folder / "weights.safetensors"
    done = command(binary, "export", folder / "run", "--out", weights)
    expect(done.returncode == 0, "export", done)
    done = command(binary, "import", config, weights, "--out", folder / "imported")
    expect(done.returncode == 0, "import", done)
    expect(inspect(binary, folder / "imported", folder) == trained["weights_hash"],
           "the weights have changed")
    done = command(binary, "import", config, weights, "--out", folder / "imported")
    expect(done.returncode == 4 and "has checkpoints already" in done.stderr,
           "import over a checkpoint", done)
    resumed = lockstep_run.train(binary, config, folder / "resumed", 0,
                                 ["--resume", folder / "imported"])
    expect(resumed["step"] == 3, "a run from imported weights")

    done = command(binary, "import", config, weights, "--out", folder / "other", "--set",
                   "model.lenet.classes=9")
    expect(done.returncode == 4, "classes that differ", done)
    for text in ("'fc3.bias' has shape (5), but the model needs (9)",
                 "'fc3.weight' has shape (5, 84)", "2 tensors do not match"):
        expect(text in done.stdout + done.stderr, f"no word of {text}", done)
    expect(not (folder / "other").exists(), "a refused import has written something")


def wrapped(binary, folder):
    """A file under the names of DDP, torch.compile and Lightning is the same file, for import and
    for train.init_from; names of which some have the prefix are refused."""
    config, weights = folder / "lenet.textproto", folder / "weights.safetensors"
    tensors = read_safetensors(weights)
    hashes = {}
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "model."):
        path = folder / f"names-{prefix}safetensors"
        write_safetensors(path, {prefix + name: tensor for name, tensor in tensors.items()})
        done = command(binary, "import", config, path, "--out", folder / f"import-{prefix}")
        expect(done.returncode == 0, f"import with {prefix}", done)
        note = f"names of tensors begin with '{prefix}', which is left out"
        expect((note in done.stdout) == (prefix != ""), f"no word of {prefix}", done)
        run = lockstep_run.train(binary, config, folder / f"run-{prefix}", 0,
                                 ["--set", f"train.init_from={path}"])
        hashes[prefix] = (inspect(binary, folder / f"import-{prefix}", folder), run["weights_hash"])
    expect(len(set(hashes.values())) == 1, f"the prefix changes the weights: {hashes}")
    path = folder / "partly.safetensors"
    write_safetensors(path, {("" if name.startswith("fc3") else "module.") + name: tensor
                             for name, tensor in tensors.items()})
    for arguments in (["import", config, path, "--out", folder / "partly"],
                      ["train", config, "--set", f"train.init_from={path}", "--run-dir",
                       folder / "partly-run"]):
        done = command(binary, *arguments)
        expect(done.returncode == 4 and "begin with 'module.'" in done.stderr and
               "but 'fc3.bias' does not" in done.stderr, "names with and without prefix", done)


def published(binary, folder, data):
    """915 of 1,000 and a mean loss of 0.384205, as an independent program has it."""
    out, result = folder / "resnet20", folder / "eval.json"
    done = command(binary, "import", RESNET, data / "resnet20-cifar10" / "resnet20.safetensors",
                   "--out", out, "--names", "own")
    expect(done.returncode == 0, "import", done)
    done = command(binary, "eval", RESNET, "--checkpoint", out, "--data", data / "cifar-10",
                   "--json", result)
    expect(done.returncode == 0, "eval", done)
    figures = json.loads(result.read_text())
    expect(round(figures["eval_accuracy"] * 1000) == 915, f"accuracy is {figures['eval_accuracy']}")
    expect(abs(figures["eval_loss"] - 0.384205) < 2e-6, f"loss is {figures['eval_loss']}")
    outputs = folder / "outputs.safetensors"
    done = command(binary, "predict", RESNET, "--checkpoint", out, "--data", data / "cifar-10",
                   "--out", outputs)
    expect(done.returncode == 0, "predict", done)
    shape, values = lockstep_run.read_tensor(outputs, "output")
    expect(shape == [1000, 10], f"outputs have shape {shape}")
    worst = max(abs(found - known) for found, known in zip(values, FIRST_LOGITS))
    expect(worst < 1e-5, f"the first image's logits are off by {worst}: {values[:10].tolist()}")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-import-") as folder:
        folder = pathlib.Path(folder)
        round_trip(binary, folder)
        wrapped(binary, folder)
        data = lockstep_run.test_data()
        if data is not None and (data / "resnet20-cifar10").is_dir():
            published(binary, folder, data)
        else:
            print("without the published network: its files are not here")
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
