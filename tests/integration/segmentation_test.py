#!/usr/bin/env python3
"""Catches: classes of pixels whose loss, gradients or metrics are not PyTorch's; other bits on more ranks or after a
resume; masks that `predict` writes in another order or with other classes than `eval` counts; masks and networks that do
not fit and are not refused by one line.

segmentation_test.py BINARY

A U-Net and an FCN are trained on pictures with masks, and two networks on sequences and volumes with a class for each
position, all of which are written here. The expected numbers are those of
PyTorch 2.15 in double precision: the same weights, pictures and steps, CrossEntropyLoss(weight, ignore_index=255,
label_smoothing), SGD and AdamW; mean IoU as the JaccardIndex of torchmetrics 1.9 has it, over the classes that occur.
"""
import json
import pathlib
import random
import struct
import sys
import tempfile
import zlib

import lockstep_run
from onnx_losses_test import npy
from onnx_networks import Network
from onnx_train_test import Bench, model, node

SIDE, CLASSES, PICTURES, HELD, STEPS = 12, 4, 24, 10, 20
MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.25, 0.5]
WEIGHTS, SMOOTHING = [0.5, 1, 2, 1.5], 0.1
IGNORED = 255
DATA, REFUSED = 3, 2  # exit codes

# The losses of the first and the last step, then accuracy and mean IoU of the evaluation.
GOLDEN = {"unet": (1.4403995710272062, 0.8111990561710751, 0.896602658788774, 0.6436845963454921),
          "sequence": (1.4660920083332742, 0.96417493689369, 0.5195530726256983, 0.2163461521267891),
          "volume": (1.4316914083016783, 1.1057257766827537, 0.4280373831775701, 0.22871777042746544),
          "fcn": (1.5088197169812885, 1.0580522445841916, 0.7658788774002954, 0.37050700481053256)}
OPTIMIZERS = {"sequence": ("sgd { momentum: 0.9 weight_decay: 0.01 }", 0.2), "volume": ("adamw { weight_decay: 0.1 }", 0.02),
              "unet": ("sgd { momentum: 0.9 weight_decay: 0.01 }", 0.2), "fcn": ("adamw { weight_decay: 0.1 }", 0.02)}


def png(rows, kind=0, palette=b""):
    """8 bits: kind 0 is grey, 2 RGB, 3 with a palette."""
    width = len(rows[0]) // (3 if kind == 2 else 1)
    chunk = lambda name, content: (struct.pack(">I", len(content)) + name + content +
                                   struct.pack(">I", zlib.crc32(name + content)))
    header = struct.pack(">IIBBBBB", width, len(rows), 8, kind, 0, 0, 0)
    lines = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + (chunk(b"PLTE", palette) if palette else b"") +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def grey_rows(content):
    """The rows of a grey PNG of 8 bits."""
    width, height = struct.unpack(">II", content[16:24])
    data, at = b"", 8
    while at < len(content):
        size, name = struct.unpack(">I4s", content[at:at + 8])
        data += content[at + 8:at + 8 + size] if name == b"IDAT" else b""
        at += size + 12
    data, rows, above = zlib.decompress(data), [], bytearray(width)
    for y in range(height):
        kind, line = data[y * (width + 1)], bytearray(data[y * (width + 1) + 1:(y + 1) * (width + 1)])
        for x in range(width):
            left, up, corner = (line[x - 1] if x else 0), above[x], (above[x - 1] if x else 0)
            near = min((left, up, corner), key=lambda v: abs(left + up - corner - v))
            line[x] = (line[x] + [0, left, up, (left + up) // 2, near][kind]) % 256
        rows.append(line)
        above = line
    return rows


def pictures(seed, count):
    """Rectangles of a class each, on a dark ground; some pixels of the masks do not count."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        image = [[draw.randrange(60) for _ in range(3 * SIDE)] for _ in range(SIDE)]
        mask = [[0] * SIDE for _ in range(SIDE)]
        for c in range(1, CLASSES):
            top, left, height, width = draw.randrange(7), draw.randrange(7), draw.randrange(3, 6), draw.randrange(3, 6)
            for y in range(top, top + height):
                for x in range(left, left + width):
                    mask[y][x] = c
                    image[y][3 * x + c - 1] = min(255, image[y][3 * x + c - 1] + 120)
        for _ in range(9):
            mask[draw.randrange(SIDE)][draw.randrange(SIDE)] = IGNORED
        found.append((image, mask))
    return found


def file_of(n, y, side=SIDE):
    n.nodes.append(node("Identity", [y], ["y"]))
    return model(n.nodes, n.weights, [("x", ["batch", 3, SIDE, SIDE])], ("y", ["batch", CLASSES, side, side]))


def unet():
    """With a skip connection, a transposed convolution and a last softmax."""
    n = Network(1)
    wide = n.add("Relu", n.conv("stem", "x", 3, 6))
    x = n.add("MaxPool", wide, kernel_shape=[2, 2], strides=[2, 2])
    x = n.add("Relu", n.conv("deep", x, 6, 8))
    x = n.add("ConvTranspose", x, n.uniform("up.weight", 8, 6, 2, 2), n.uniform("up.bias", 6), kernel_shape=[2, 2], strides=[2, 2])
    x = n.add("Relu", n.conv("join", n.add("Concat", x, wide, axis=1), 12, 6))
    return n, n.add("Softmax", n.conv("classes", x, 6, CLASSES, kernel=1), axis=1)


def fcn(resize=True):
    """Smaller and smaller; the scores are resized to the image."""
    n = Network(2)
    x = n.add("Relu", n.conv("a", "x", 3, 8, stride=2))
    x = n.conv("classes", n.add("Relu", n.conv("b", x, 8, 8)), 8, CLASSES, kernel=1)
    return n, n.add("Resize", x, "", n.constant(1.0, 1.0, 2.0, 2.0), mode="linear") if resize else x


NETWORKS = {"unet": unet, "fcn": fcn}

# Channels and positions of a sample; the type of the labels and the number that does not count.
POSITIONS = {"sequence": (2, [20], "i8", -1), "volume": (1, [3, 4, 5], "u1", IGNORED)}


def positions_network(name):
    channels, extents, _, _ = POSITIONS[name]
    n, dims = Network(3), len(extents)
    conv = lambda label, x, inputs, outputs, kernel: n.add(
        "Conv", x, n.uniform(f"{label}.weight", outputs, inputs, *[kernel] * dims), n.uniform(f"{label}.bias", outputs),
        kernel_shape=[kernel] * dims, pads=[kernel // 2] * 2 * dims, strides=[1] * dims)
    x = conv("classes", n.add("Relu", conv("a", "x", channels, 6, 3)), 6, CLASSES, 1)
    return n, n.add("LogSoftmax", x, axis=1) if dims == 1 else x


def positions(name, seed, count):
    """Inputs in order (N, C, ...), and labels (N, ...): how many of the first channel's last two numbers and of the last
    channel's number are above 0."""
    channels, extents, _, ignored = POSITIONS[name]
    draw, size = random.Random(seed), 1
    for extent in extents:
        size *= extent
    inputs, labels = [], []
    for _ in range(count):
        rows = [[draw.gauss(0, 1) for _ in range(size)] for _ in range(channels)]
        inputs += [v for row in rows for v in row]
        labels += [ignored if draw.random() < 0.1 else (rows[0][i] > 0) + (rows[0][i - 1] > 0) + (rows[-1][i] > 0.5) for i in range(size)]
    return inputs, labels


def write(folder):
    for name, network in NETWORKS.items():
        (folder / f"{name}.onnx").write_bytes(file_of(*network()))
    for name, seed, count in (("train", 3, PICTURES), ("held", 4, HELD)):
        for part in ("", "_masks"):
            (folder / f"{name}{part}").mkdir()
        for i, (image, mask) in enumerate(pictures(seed, count)):
            (folder / name / f"{i:02}.png").write_bytes(png(image, 2))
            # Some masks have a palette, whose colours mean nothing.
            palette = bytes(range(255, -1, -1)) * 3 if i % 2 else b""
            (folder / f"{name}_masks" / f"{i:02}.png").write_bytes(png(mask, 3 if palette else 0, palette))
    for name, (channels, extents, kind, _) in POSITIONS.items():
        n, y = positions_network(name)
        n.nodes.append(node("Identity", [y], ["y"]))
        (folder / f"{name}.onnx").write_bytes(
            model(n.nodes, n.weights, [("x", ["batch", channels, *extents])], ("y", ["batch", CLASSES, *extents])))
        for part, seed, count in (("train", 5, PICTURES), ("held", 6, HELD)):
            inputs, labels = positions(name, seed, count)
            npy(folder / f"{name}_{part}.npy", "f4", [count, channels, *extents], inputs)
            npy(folder / f"{name}_{part}_labels.npy", kind, [count, *extents], labels)


def config(bench, name, steps=STEPS, data="", rest="", section=""):
    optimizer, rate = OPTIMIZERS[name]
    source = f"""
  masked_images {{ train: "train" train_masks: "train_masks" eval: "held" eval_masks: "held_masks" {data} }}
  image {{ size: {SIDE} resize: {SIDE} mean: {MEAN} std: {STD} }}"""
    if name in POSITIONS:
        source = f"""
  npy {{ train_inputs: "{name}_train.npy" train_labels: "{name}_train_labels.npy"
        eval_inputs: "{name}_held.npy" eval_labels: "{name}_held_labels.npy" {data} }}"""
    return f"""
model {{ onnx {{ file: "{bench.folder}/{name}.onnx" label_smoothing: {SMOOTHING} {section} }} }}
data {{
  dir: "{bench.folder}" shuffle: false {source}
}}
train {{ global_batch: 8 lanes: 4 steps: {steps} hash_every: 1 class_weights: {WEIGHTS} {rest} }}
optimizer {{ {optimizer} decay_bias_and_norm: true }}
schedule {{ lr: {rate} }}
eval {{ every: {steps} best: MEAN_IOU }}
checkpoint {{ every: 10 keep_last: 9 async: false }}
execution {{ threads: 1 }}
output {{ tensorboard: false }}
"""


def rows_of(bench, name):
    return [json.loads(line) for line in (bench.folder / name / "metrics.jsonl").read_text().splitlines()]


def scores(bench, name):
    last = [row for row in rows_of(bench, name) if "eval_loss" in row][-1]
    return [last[key] for key in ("eval_loss", "eval_accuracy", "eval_mean_iou")]


def hashes(bench, name):
    return [row["weights_hash"] for row in rows_of(bench, name) if "weights_hash" in row]


def compare_with_pytorch(bench, name):
    losses = bench.run(name, config(bench, name))
    if losses is None:
        return
    first, last, accuracy, mean_iou = GOLDEN[name]
    near = lambda a, b, limit: abs(a - b) <= limit * abs(b)
    bench.expect(near(losses[0][1], first, 1e-6) and near(losses[-1][1], last, 2e-5), f"{name}: losses {losses}")
    found = scores(bench, name)
    # One pixel of some 1350 may fall on the other side, or one position of some 180.
    limit = 6e-3 if name in POSITIONS else 1e-3
    bench.expect(abs(found[1] - accuracy) < limit and abs(found[2] - mean_iou) < limit, f"{name}: scores {found}")


def compare_ranks(bench):
    text, sequence = config(bench, "unet", steps=6), config(bench, "sequence")
    bench.run("one", text)
    bench.run("stopped", text, "--max-steps", "3", "--set", "checkpoint.every=3")
    tasks = [lambda r=ranks: bench.run(f"on{r}", text, "--set", f"comm.zero_stage={r - 1}", ranks=r) for ranks in (2, 3, 4)]
    tasks.append(lambda: bench.run("sequence3", sequence, "--set", "comm.zero_stage=3", ranks=3))
    lockstep_run.at_once(tasks + [lambda: bench.run("stopped", text, "--set", "checkpoint.every=3", "--resume", "auto")])
    bench.expect(hashes(bench, "sequence3") == hashes(bench, "sequence"), "sequence: other bits than on one rank")
    for name in ("on2", "on3", "on4", "stopped"):
        bench.expect(hashes(bench, name) == hashes(bench, "one") and scores(bench, name) == scores(bench, "one"),
                     f"{name}: other bits than on one rank")


def command(bench, *arguments, code=0, ranks=0):
    done = lockstep_run.run(bench.binary, arguments, ranks=ranks)
    bench.expect(done.returncode == code, f"{arguments}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def compare_predictions(bench):
    """The masks that are written have the metrics of the evaluation."""
    out, result = bench.folder / "predicted", bench.folder / "predict.json"
    printed = command(bench, "eval", bench.folder / "unet")
    loss, accuracy, mean_iou = scores(bench, "unet")
    bench.expect(f"mean IoU {mean_iou:.4f}" in printed and f"accuracy {accuracy:.4f}" in printed, f"eval: {printed}")
    command(bench, "predict", bench.folder / "unet", "--out", out, "--json", result, ranks=2)
    right = {c: [0, 0] for c in range(CLASSES)}  # intersection, union
    for i, (_, mask) in enumerate(pictures(4, HELD)):
        for predicted, wanted in zip(grey_rows((out / f"{i:02}.png").read_bytes()), mask, strict=True):
            for p, w in zip(predicted, wanted, strict=True):
                if w != IGNORED:
                    right[p][1] += 1
                    right[w][0 if p == w else 1] += 1
    shares = [both / either for both, either in right.values() if either]
    found = json.loads(result.read_text())
    bench.expect(abs(sum(shares) / len(shares) - mean_iou) < 1e-12, f"mean IoU of the masks {right}, not {mean_iou}")
    bench.expect(found["eval_mean_iou"] == mean_iou and found["eval_accuracy"] == accuracy and found["masks"] == HELD, f"{found}")
    printed = command(bench, "predict", bench.folder / "unet", "--out", out, code=REFUSED)
    bench.expect("not an empty folder" in printed, printed)
    command(bench, "predict", bench.folder / "unet", "--out", bench.folder / "more", "--set", "data.masked_images.eval_masks=")
    command(bench, "export", bench.folder / "unet", "--format", "onnx", "--out", bench.folder / "trained.onnx")
    printed = command(bench, "data", "inspect", bench.folder / "unet.textproto", "--check")
    bench.expect(f"{PICTURES} images of {CLASSES} classes" in printed and "pixels of each" in printed, printed)
    printed = command(bench, "plan", bench.folder / "unet.textproto", "--set", "data.masked_images.train=nowhere")
    bench.expect("nowhere" in printed, printed)


def predict_positions(bench):
    """The rows of a table have the accuracy of the evaluation."""
    table = bench.folder / "sequence.jsonl"
    command(bench, "predict", bench.folder / "sequence", "--out", table)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    bench.expect(all("position" in row for row in rows), f"rows {rows[:3]}")
    counted = [row for row in rows if row.get("label") is not None]
    right = sum(row["label"] == row["predicted"] for row in counted)
    _, labels = positions("sequence", 6, HELD)
    bench.expect(len(rows) == len(labels) and len(counted) == sum(label >= 0 for label in labels), f"rows {rows[:3]}")
    bench.expect(abs(right / len(counted) - scores(bench, "sequence")[1]) < 1e-12, f"{right} of {len(counted)} are right")
    printed = command(bench, "plan", bench.folder / "volume.textproto")
    bench.expect("evaluation samples of 60, 4 classes" in printed, printed)


def refusals(bench):
    def refused(parts, name, *changes, code=REFUSED, text=None):
        path = bench.folder / "refused.textproto"
        path.write_text(text or config(bench, name))
        printed = command(bench, "train", path, "--run-dir", bench.folder / "refused", *changes, code=code)
        bench.expect(all(part in printed.strip().splitlines()[-1] for part in parts), f"{changes}: {printed}")

    (bench.folder / "small.onnx").write_bytes(file_of(*fcn(resize=False), side=SIDE // 2))
    refused(["small.onnx", "6 x 6 pixels for images of 12 x 12", "Resize"], "", text=config(bench, "fcn").replace("fcn.onnx", "small.onnx"))
    bad = bench.folder / "bad"
    bad.mkdir()
    for i, (_, mask) in enumerate(pictures(4, HELD)):
        (bad / f"{i:02}.png").write_bytes(png(mask[1:] if i == 3 else mask))
    masks = ["--set", "data.masked_images.eval_masks=bad"]
    refused(["held/03.png", "12 x 11 pixels", "the image 12 x 12"], "unet", *masks, code=DATA)
    (bad / "03.png").write_bytes(png([[0] * SIDE] * 5 + [[0, 0, 4] + [0] * (SIDE - 3)] + [[0] * SIDE] * 6))
    refused(["bad/03.png", "pixel (x 2, y 5)", "is 4", "0..3 or 255"], "unet", *masks, code=DATA)
    (bad / "03.png").unlink()
    refused(["held/03.png", "no mask"], "unet", *masks, code=DATA)
    npy(bench.folder / "flat.npy", "i8", [PICTURES], [0] * PICTURES)
    npy(bench.folder / "turned.npy", "i8", [PICTURES, 5, 4, 3], [0] * PICTURES * 60)
    npy(bench.folder / "outside.npy", "i8", [PICTURES, 20], [0] * 43 + [4] + [0] * (PICTURES * 20 - 44))
    refused(["volume.onnx", "(3, 4, 5)", "(5, 4, 3)"], "volume", "--set", "data.npy.train_labels=turned.npy",
            "--set", "data.npy.eval_inputs=", "--set", "data.npy.eval_labels=", "--set", "eval.every=0")
    refused(["outside.npy: sample 2", "is 4", "0..3"], "sequence", "--set", "data.npy.train_labels=outside.npy", code=DATA)
    refused(["flat.npy", "a class for each position"], "sequence", "--set", "data.npy.train_labels=flat.npy", code=DATA)
    refused(["train.mixup"], "unet", "--set", "train.mixup=0.2")
    refused(["data.balance_classes"], "unet", "--set", "data.balance_classes=true", "--set", "data.shuffle=true")


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        write(bench.folder)
        lockstep_run.at_once([lambda n=name: compare_with_pytorch(bench, n) for name in GOLDEN])
        compare_ranks(bench)
        compare_predictions(bench)
        predict_positions(bench)
        refusals(bench)
        sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
