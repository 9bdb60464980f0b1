#!/usr/bin/env python3
"""Catches: noise, times or lost classes that depend on who computes a sample or into how many lanes a
batch is cut, evaluations that draw anew each time, a run that goes on to other bits, images that are
others for the same seed, and what is refused without the reason.

diffusion_test.py BINARY: trains small Diffusion Transformers on images of squares that are written
here. weights_hash must be the same on 1, 2 and 4 ranks, in every ZeRO stage, with recomputation, and
after going on on another number of ranks; `lockstep sample` makes images of the weights and of their
average, and so does a checkpoint without its data.
"""
import json
import pathlib
import random
import shutil
import struct
import sys
import tempfile

import lockstep_run

SIDE, CLASSES = 8, 3
CONFIG = """
model { dit { layers: 2 heads: 2 width: 16 patch: 2 } }
data {
  idx { train_images: "x" train_labels: "y" eval_images: "x2" eval_labels: "y2" }
  dir: "FOLDER"
}
train { global_batch: 16 lanes: 4 steps: 12 ema_decay: 0.8 }
eval { every: 4 }
checkpoint { every: 4 keep_last: 9 async: false }
optimizer { adamw { weight_decay: 0 } }
schedule { lr: 0.003 }
comm { bucket_mib: 0.01 }
execution { threads: 1 }
output { tensorboard: false }
"""
KINDS = {"linear": [], "cosine": ["model.dit.schedule=COSINE", "model.dit.target=VELOCITY"],
         "flow": ["model.dit.schedule=FLOW_MATCHING", "model.dit.target=VELOCITY"]}
LOSS_TOLERANCE = 1e-5  # of sums of floats in other parts; other noise is 1e-2
USAGE, CHECKPOINT = 2, 4  # exit codes


def write_images(folder, images, labels, count, seed):
    """A bright square, whose place is its class."""
    draw = random.Random(seed)
    numbers = [draw.randrange(CLASSES) for _ in range(count)]
    pixels = bytearray()
    for number in numbers:
        bright = draw.randrange(160, 256)
        for row in range(SIDE):
            for column in range(SIDE):
                inside = number <= row < number + 4 and number <= column < number + 4
                pixels.append(bright if inside else draw.randrange(30))
    (folder / images).write_bytes(struct.pack(">4I", 0x803, count, SIDE, SIDE) + pixels)
    (folder / labels).write_bytes(struct.pack(">2I", 0x801, count) + bytes(numbers))


def main(binary):
    expect = lockstep_run.Expectations()

    with tempfile.TemporaryDirectory(prefix="lockstep-diffusion-") as folder:
        folder = pathlib.Path(folder)
        write_images(folder, "x", "y", 50, 1)
        write_images(folder, "x2", "y2", 21, 2)
        config = folder / "config.textproto"
        config.write_text(CONFIG.replace("FOLDER", str(folder)))

        def train(name, *changes, ranks=1, arguments=()):
            return lockstep_run.train(binary, config, folder / name, ranks, [*lockstep_run.sets(*changes), *arguments])

        def losses(name, key="loss"):
            return [line[key] for line in lockstep_run.metrics(folder / name) if key in line]

        hashes = {name: train(name, *changes)["weights_hash"] for name, changes in KINDS.items()}
        expect(len(set(hashes.values())) == len(KINDS), f"kinds differ: {hashes}")
        for name, changes in KINDS.items():
            expect(losses(name, "eval_loss")[-1] < losses(name, "eval_loss")[0], f"{name}: the loss falls")
            other = train(f"{name}-2", *changes, ranks=2)
            expect(other["weights_hash"] == hashes[name], f"{name} on 2 ranks")
            expect(losses(name, "eval_loss") == losses(f"{name}-2", "eval_loss"), f"{name}: evaluations on 2 ranks")
        for ranks, changes in [(4, []), (4, ["comm.zero_stage=2"]), (2, ["comm.zero_stage=3"]),
                               (1, ["execution.recompute=BLOCKS"]), (1, ["execution.threads=2"])]:
            name = f"ranks{ranks}" + "".join(changes).replace("=", "_")
            expect(train(name, *changes, ranks=ranks)["weights_hash"] == hashes["linear"], name)
        train("resumed", ranks=2, arguments=["--max-steps", "5"])
        other = train("resumed", ranks=4, arguments=["--resume", "auto"])
        expect(other["weights_hash"] == hashes["linear"], "resumed")

        # Other lanes sum in another order, but draw the same.
        for lanes in (1, 8):
            train(f"lanes{lanes}", f"train.lanes={lanes}", "train.steps=12")
            pairs = list(zip(losses(f"lanes{lanes}"), losses("linear"), strict=True))
            expect(all(abs(a - b) <= LOSS_TOLERANCE * b for a, b in pairs), f"{lanes} lanes: {pairs[-1]}")
        train("seed", "seed=9", "train.steps=1")
        expect(abs(losses("seed")[0] - losses("linear")[0]) > 1e-3, "another seed, other noise")
        train("fixed", "schedule.lr=1e-30", "train.ema_decay=0", "eval.every=1", "train.steps=3")
        expect(len(set(losses("fixed", "eval_loss"))) == 1 and len(set(losses("fixed"))) == 3,
               "evaluations draw the same each time, steps do not")

        def sample(name, *arguments, run="linear", steps=6):
            out, result = folder / f"{name}.png", folder / f"{name}.json"
            done = lockstep_run.run(binary, ["sample", folder / run, "--steps", steps, "--out", out,
                                             "--json", result, *arguments], ranks=0)
            expect(done.returncode == 0, f"sample {name}: {(done.stdout or done.stderr).strip()}")
            return json.loads(result.read_text()) if done.returncode == 0 else None

        first = sample("first")
        expect(first["classes"] == [0, 1, 2] and first["weights_hash"] == hashes["linear"], f"sample: {first}")
        expect((folder / "first.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n", "a PNG file")
        expect(sample("again")["pixels_hash"] == first["pixels_hash"], "the same seed, the same pixels")
        seen = [sample("seed", "--seed", "1"), sample("average", "--average"), sample("plain", "--guidance", "1"),
                sample("none", "--guidance", "0"), sample("more", steps=7),
                sample("bf16", "--set", "execution.precision=BF16")]
        different = {result["pixels_hash"] for result in [first, *seen]}
        expect(len(different) == 1 + len(seen), f"what is asked for counts: {different}")
        for name in ("AUTO", "FP32"):
            expect(sample(name, "--set", f"execution.precision={name}")["pixels_hash"] == first["pixels_hash"],
                   f"{name}: as the run recorded")
        many = sample("many", "--classes", "2,0", "--count", "37")
        expect(many["classes"] == [2, 0] * 18 + [2], f"classes in turn: {many['classes']}")
        for name in ("cosine", "flow"):
            sample(name, run=name)
        kept = sorted((folder / "linear" / "checkpoints").glob("step-*"))[-1]
        shutil.copytree(kept, folder / "alone")
        expect(sample("alone", run="alone")["pixels_hash"] == first["pixels_hash"], "of a checkpoint alone")

        def refused(code, parts, *arguments):
            done = lockstep_run.run(binary, arguments, ranks=0)
            message = (done.stdout + done.stderr).strip().splitlines()[-1]
            expect(done.returncode == code and all(part in message for part in parts),
                   f"exit code {done.returncode}: {message}")

        def refused_config(parts, *changes):
            refused(USAGE, parts, "train", config, "--run-dir", folder / "refused", *lockstep_run.sets(*changes))

        refused_config(["model.dit.target", "EPSILON", "VELOCITY"], "model.dit.schedule=FLOW_MATCHING")
        refused_config(["model.dit.patch", "3", "8 x 8"], "model.dit.patch=3")
        refused_config(["model.dit.heads", "3", "16"], "model.dit.heads=3")
        refused_config(["model.dit.width", "18", "multiple of 4"], "model.dit.width=18")
        refused_config(["data.idx.mean", "0.3", "0.5", "dit"], "data.idx.mean=0.3")
        refused_config(["train.mixup", "0.2"], "train.mixup=0.2")
        refused_config(["eval.best", "ACCURACY"], "eval.best=ACCURACY")
        refused_config(["train.class_weights", "dit"], "train.class_weights=1,2,3")
        refused(USAGE, ["dit", "lockstep sample"], "predict", config, "--checkpoint", folder / "linear",
                "--out", folder / "p.safetensors")
        out = ["--out", folder / "refused.png"]
        run = folder / "linear"
        refused(USAGE, ["--classes", "3", "0 to 2"], "sample", run, *out, "--classes", "1,3")
        for classes in ("", "1,,2", ",1", "1,"):
            refused(USAGE, ["--classes", f"'{classes}'", "none empty"], "sample", run, *out, "--classes", classes)
        refused(USAGE, ["--classes", "'1,,2'"], "sample", run, *out, "--classes=1,,2")
        refused(USAGE, ["execution.precision", "FP9", "BF16"], "sample", run, *out, "--set", "execution.precision=FP9")
        refused(USAGE, ["--seed", "-1", "0 or more"], "sample", run, *out, "--seed", "-1")
        refused(USAGE, ["--steps", "1001", "1000"], "sample", run, *out, "--steps", "1001")
        refused(USAGE, ["--steps", "0"], "sample", run, *out, "--steps", "0")
        refused(USAGE, ["--count", "100000", "a side"], "sample", run, *out, "--count", "100000", "--columns", "100000")
        refused(USAGE, ["--out", "/dev/null", "ordinary"], "sample", run, "--out", "/dev/null")
        refused(USAGE, ["--out", "''"], "sample", run, "--out", "")
        refused(USAGE, ["--out", "nowhere"], "sample", run, "--out", folder / "nowhere" / "x.png")
        refused(CHECKPOINT, ["none"], "sample", folder / "none", *out)
        train("certain", "model.dit.label_dropout=0", "train.steps=1")
        refused(USAGE, ["--guidance", "2", "label_dropout"], "sample", folder / "certain", *out)
        sample("certain", "--guidance", "1", run="certain")
        train("mlp", "train.steps=1", "train.ema_decay=0", "model.mlp.hidden=4")
        refused(USAGE, ["mlp", "dit"], "sample", folder / "mlp", *out)
    return expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
