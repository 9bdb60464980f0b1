#!/usr/bin/env python3
"""Catches: losses of several outputs that are weighed wrongly or judge another output; inputs that get
the features of another one, and values in another order than the data has them; networks from ONNX
files that take noise off images, whose times or classes go to the wrong input, with other bits on
several ranks or after a resume, or other images for the same seed; and what is refused without the
reason.

onnx_goals_test.py BINARY

The files are written here, byte by byte, so that no other package is needed.
"""
import json
import math
import pathlib
import struct
import sys
import tempfile

import lockstep_run
from onnx_train_test import DATA, FLOAT, INT64, REST, Bench, model, node, seeded, tensor

CLASSES, SIDE, WIDTH = 3, 8, 4
FEATURES = "synthetic { samples: 64 features: 6 classes: 4 }"
IMAGES = f"synthetic {{ samples: 64 height: {SIDE} width: {SIDE} channels: 1 classes: {CLASSES} }}"


def text(fields, data, rest=REST):
    return f"model {{ onnx {{ {fields} }} }}\ndata {{ {data} }}\n{rest}"


# ---- Several outputs ----

def heads_file():
    """Of its values side_y is no output of the file."""
    weights = {"body": seeded([5, 6], 1), "main": seeded([4, 5], 2), "side": seeded([4, 5], 3), "odd": seeded([3, 5], 4),
               "next": seeded([4, 4], 5)}
    nodes = [node("Gemm", ["x", "body"], ["h"], transB=1), node("Relu", ["h"], ["r"])]
    nodes += [node("Gemm", ["r", name], [f"{name}_y"], transB=1) for name in ("main", "side", "odd")]
    nodes += [node("Gemm", ["main_y", "next"], ["next_y"], transB=1), node("Softmax", ["main_y"], ["shares_y"])]
    return model(nodes, weights, [("x", ["batch", 6])], *((f"{name}_y", ["batch", n]) for name, n in
                                                          (("main", 4), ("odd", 3), ("next", 4), ("shares", 4))))


def several_outputs(bench):
    path = bench.folder / "heads.onnx"
    path.write_bytes(heads_file())
    file = f'file: "{path}"'
    both = text(f'{file} losses {{ output: "side_y" weight: 0.25 }}', FEATURES)
    first = {}
    for name, section in (("main", file), ("side", f'{file} output: "side_y"'), ("both", None)):
        losses = bench.run(f"first-{name}", both if section is None else text(section, FEATURES), "--max-steps", "1")
        first[name] = losses[0][1] if losses else math.nan
    wanted = first["main"] + 0.25 * first["side"]
    bench.expect(abs(first["both"] - wanted) < 1e-6 * wanted, f"a loss of {first['both']}, not {wanted}")
    chained = {name: bench.run(f"chained-{name}", text(f"{file} {fields}", FEATURES), "--max-steps", "1") for name, fields in
               (("next", 'output: "next_y"'), ("both", 'losses { output: "next_y" weight: 0.5 }'))}
    if all(chained.values()):
        wanted, found = first["main"] + 0.5 * chained["next"][0][1], chained["both"][0][1]
        bench.expect(abs(found - wanted) < 1e-6 * wanted, f"a loss of an output and what is computed of it: {found}, not {wanted}")
    losses = bench.run("both", both)
    for ranks, stage in ((2, 1), (4, 3)):
        again = bench.run(f"both-{ranks}", both, "--set", f"comm.zero_stage={stage}", ranks=ranks)
        bench.expect(again == losses, f"losses of two outputs on {ranks} ranks")
        bench.expect(bench.weights(f"both-{ranks}") == bench.weights("both"), f"weights of two outputs on {ranks} ranks")
    begin, end = bench.weights("first-main"), bench.weights("both")
    bench.expect(sorted(end) == ["body", "main", "side"] and sorted(begin) == ["body", "main"], f"trains {sorted(end)}")
    refusals = {'losses { output: "nowhere" }': ["model.onnx.losses.output", "nowhere", "next_y"],
                'losses { output: "main_y" }': ["model.onnx.losses.output", "main_y"],
                'losses { output: "odd_y" }': ["model.onnx.losses.output", "odd_y", "as model.onnx.output"],
                'losses { output: "shares_y" }': ["model.onnx.losses.output", "shares_y", "the same logits or values"],
                'losses { output: "side_y" weight: 0 }': ["weight", "0"]}
    for fields, parts in refusals.items():
        bench.refused(parts, text(f"{file} {fields}", FEATURES))


# ---- Several inputs, values of several axes ----

def write_npy(path, rows):
    """Of float32."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))


def several_inputs(bench):
    """y = x w + table[k], x (2, 3), of which a sample's features are x and then k."""
    weights = {"w": seeded([3, 2], 1), "table": seeded([5, 2], 2), "axis": ([1], [1])}
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Gather", ["table", "k"], ["row"], axis=0),
             node("Unsqueeze", ["row", "axis"], ["r"]), node("Add", ["p", "r"], ["y"])]
    path = bench.folder / "inputs.onnx"
    path.write_bytes(model(nodes, weights, [("x", ["batch", 2, 3]), ("k", ["batch"], INT64)], ("y", ["batch", 2, 2])))
    x = [[((i * 31 + j * 17) % 23) / 23 - 0.5 for j in range(6)] + [i * 7 % 5] for i in range(64)]
    t = [[((i * 13 + j * 5) % 19) / 19 for j in range(4)] for i in range(64)]
    write_npy(bench.folder / "x.npy", x)
    write_npy(bench.folder / "t.npy", t)
    data = f'npy {{ train_inputs: "x.npy" train_labels: "t.npy" }} dir: "{bench.folder}" shuffle: false'
    named = f'file: "{path}" inputs {{ name: "x" is: FEATURES }} inputs {{ name: "k" is: FEATURES }}'
    losses = bench.run("inputs", text(f"{named} loss: MEAN_SQUARED_ERROR", data))
    w, table = weights["w"][1], weights["table"][1]
    squares = [(sum(x[i][3 * a + c] * w[2 * c + b] for c in range(3)) + table[2 * x[i][6] + b] - t[i][2 * a + b]) ** 2
               for i in range(8) for a in range(2) for b in range(2)]
    wanted = sum(squares) / len(squares)
    bench.expect(losses is not None and abs(losses[0][1] - wanted) < 1e-5 * wanted, f"a loss of {losses}, not {wanted}")
    again = 'inputs { name: "k" is: FEATURES }'
    bench.refused(["model.onnx.inputs.name", "k", "once"], text(f"{named} {again}", data))
    bench.refused(["model.onnx.axes.name", "batch", "samples"], text(f'{named} axes {{ name: "batch" extent: 3 }}', data))
    bench.expect(bench.run("inputs-2", text(f"{named} loss: MEAN_SQUARED_ERROR", data), ranks=2) == losses, "inputs on 2 ranks")
    bench.refused(["model.onnx.inputs", "\"k\""],
                  text(f'file: "{path}" inputs {{ name: "x" is: FEATURES }}', data))
    bench.refused(["t.npy", "has float32 classes"], text(named, data), DATA)  # a class for each position


# ---- What training does and evaluation does not ----

def modes_file(drops):
    """A batch norm, and behind it a branch that is left out for a share of the samples, as PyTorch's exporter
    writes stochastic depth."""
    weights = {"v": seeded([5, 6], 1), "scale": ([5], [1.5, 0.5, 1.0, 2.0, 1.0]), "bias": ([5], [0.1 * i for i in range(5)]),
               "mean": ([5], [0.05 * i for i in range(5)]), "var": ([5], [0.5 + 0.1 * i for i in range(5)]),
               "w": seeded([4, 5], 2)}
    nodes = [node("Gemm", ["x", "v"], ["h"], transB=1), node("BatchNormalization", ["h", "scale", "bias", "mean", "var"], ["n"]),
             node("Tanh", ["n"], ["b"])]
    if drops:
        nodes += [node("Constant", [], ["share"], value=tensor("", [], [0.8])), node("Slice", ["b", "zero", "one", "axis"], ["column"]), node("RandomUniformLike", ["column"], ["drawn"]),
                  node("CastLike", ["share", "drawn"], ["p"]), node("Less", ["drawn", "p"], ["kept"]), node("CastLike", ["kept", "b"], ["f"]),
                  node("Div", ["f", "share"], ["g"]), node("Mul", ["b", "g"], ["branch"])]
        weights |= {"zero": ([1], [0]), "one": ([1], [1]), "axis": ([1], [1])}
    nodes += [node("Add", ["n", "branch" if drops else "b"], ["a"]), node("Gemm", ["a", "w"], ["y"], transB=1)]
    return model(nodes, weights, [("x", ["batch", 6])], ("y", ["batch", 4]))


def modes(bench):
    first = {}
    for name, drops in (("kept", False), ("dropped", True)):
        path = bench.folder / f"{name}.onnx"
        path.write_bytes(modes_file(drops))
        for norms in ("BATCH", "RUNNING", "SYNCHRONISED"):
            section = text(f'file: "{path}" batch_norm: {norms}', FEATURES)
            losses = bench.run(f"{name}-{norms}", section)
            again = bench.run(f"{name}-{norms}-2", section, ranks=2)
            bench.expect(losses is not None and losses == again, f"{name}, {norms}: {losses} and on 2 ranks {again}")
            if losses is None:
                continue
            bench.expect(bench.weights(f"{name}-{norms}") == bench.weights(f"{name}-{norms}-2"), f"{name}, {norms}: weights on 2 ranks")
            first[name, norms] = losses[0][1]
    bench.expect(len(set(first.values())) == 6, f"first losses {first}")
    statistics = [bench.weights(f"kept-{norms}") for norms in ("BATCH", "RUNNING")]
    bench.expect("mean" in statistics[0] and "mean" not in statistics[1], "running statistics are in the weights")
    # An evaluation drops nothing.
    write_npy(bench.folder / "rows.npy", [[((i * 31 + j * 17) % 23) / 23 - 0.5 for j in range(6)] for i in range(16)])
    write_npy(bench.folder / "values.npy", [[((i * 13 + j * 5) % 19) / 19 for j in range(4)] for i in range(16)])
    data = "npy { " + " ".join(f'{part}_inputs: "rows.npy" {part}_labels: "values.npy"' for part in ("train", "eval")) + " }"
    losses = []
    for name in ("kept", "dropped"):
        config = bench.folder / f"{name}-eval.textproto"
        config.write_text(text(f'file: "{bench.folder / name}.onnx" batch_norm: RUNNING loss: MEAN_SQUARED_ERROR',
                               f'{data} dir: "{bench.folder}"'))
        done = lockstep_run.run(bench.binary, ["eval", config, "--checkpoint", bench.folder / "kept-RUNNING", "--json", bench.folder / "e.json"],
                                ranks=0)
        bench.expect(done.returncode == 0, f"eval {name}: {done.stdout}{done.stderr}")
        losses.append(json.loads((bench.folder / "e.json").read_text())["eval_loss"] if done.returncode == 0 else math.nan)
    bench.expect(abs(losses[0] - losses[1]) < 1e-6, f"evaluations {losses}")


# ---- Noised images ----

def noised_file(classes=True, rows=CLASSES + 1, time=FLOAT):
    """Sines of the time, and a row of each class, are added to what a convolution makes of the image."""
    rates = [1000.0 ** (-i / WIDTH) for i in range(WIDTH)]
    weights = {"stem": seeded([WIDTH, 1, 3, 3], 1), "times": seeded([WIDTH, WIDTH], 2), "table": seeded([rows, WIDTH], 3),
               "head": seeded([1, WIDTH, 3, 3], 4), "rates": ([1, WIDTH], rates), "axis": ([1], [1]), "pixel": ([2], [2, 3])}
    nodes = [node("Cast", ["t"], ["tf"], to=FLOAT), node("Unsqueeze", ["tf", "axis"], ["t1"]), node("Mul", ["t1", "rates"], ["a"]),
             node("Sin", ["a"], ["s"]), node("Gemm", ["s", "times"], ["told"], transB=1)]
    if classes:
        nodes += [node("Gather", ["table", "c"], ["row"], axis=0), node("Add", ["told", "row"], ["both"])]
    nodes += [node("Unsqueeze", ["both" if classes else "told", "pixel"], ["b"]),
              node("Conv", ["x", "stem"], ["i"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Add", ["i", "b"], ["j"]),
              node("Relu", ["j"], ["k"]), node("Conv", ["k", "head"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    inputs = [("x", ["batch", 1, SIDE, SIDE]), ("t", ["batch"], time)] + [("c", ["batch"], INT64)] * classes
    return model(nodes, {n: w for n, w in weights.items() if classes or n != "table"}, inputs, ("y", ["batch", 1, SIDE, SIDE]))


def sampled(bench, name, *arguments):
    out = bench.folder / f"{name}.png"
    result = bench.folder / f"{name}.json"
    done = lockstep_run.run(bench.binary, ["sample", bench.folder / name, "--out", out, "--json", result, "--steps", "5", *arguments], ranks=0)
    if done.returncode != 0:
        bench.expect(False, f"sample {name} {arguments}: {(done.stdout + done.stderr).strip()}")
        return {}
    return json.loads(result.read_text())


def noised_images(bench):
    path = bench.folder / "noised.onnx"
    path.write_bytes(noised_file())
    told = f'file: "{path}" inputs {{ name: "c" is: CLASSES }}'
    section = text(f"{told} diffusion {{ label_dropout: 0.3 }}", IMAGES)
    losses = bench.run("noised", section)
    for ranks, stage in ((2, 2), (4, 3)):
        again = bench.run(f"noised-{ranks}", section, "--set", f"comm.zero_stage={stage}", ranks=ranks)
        bench.expect(again == losses, f"losses of noised images on {ranks} ranks")
    bench.run("noised-stopped", section, "--max-steps", "3")
    bench.run("noised-stopped", section, "--resume", "auto")
    last = bench.weights("noised")
    bench.expect(sorted(last) == ["head", "rates", "stem", "table", "times"], f"noised images train {sorted(last)}")
    for name in ("noised-2", "noised-4", "noised-stopped"):
        bench.expect(bench.weights(name) == last, f"{name}: other weights")
    images = {arguments: sampled(bench, "noised", *arguments.split()).get("pixels_hash")
              for arguments in ("--seed 1", "--seed 1 --guidance 2", "--seed 2", "--seed 1 --classes 1,2,0", "--seed 1 --guidance 1")}
    bench.expect(images["--seed 1"] == images["--seed 1 --guidance 2"] and len(set(images.values())) == 4, f"images {images}")
    whole = bench.folder / "whole.onnx"
    whole.write_bytes(noised_file(classes=False, time=INT64))
    alone = f'file: "{whole}" diffusion {{ }}'
    bench.run("alone", text(alone, IMAGES))
    result = sampled(bench, "alone", "--count", "3")
    bench.expect("classes" not in result and "pixels_hash" in result, f"images of no class: {result}")
    narrow = bench.folder / "narrow.onnx"
    narrow.write_bytes(noised_file(rows=CLASSES))
    refusals = {f'file: "{path}" diffusion {{ }}': ["model.onnx.inputs", "\"c\"", "CLASSES"],
                f'{told} diffusion {{ schedule: FLOW_MATCHING }}': ["model.onnx.diffusion.target", "VELOCITY"],
                f'{told} diffusion {{ classes: 4 }}': ["model.onnx.diffusion.classes", "4"],
                f'{told} loss: BINARY_CROSS_ENTROPY diffusion {{ }}': ["model.onnx.loss", "BINARY_CROSS_ENTROPY"],
                f'file: "{path}" inputs {{ name: "c" is: TIMES }} diffusion {{ }}': ["IMAGES, TIMES, TIMES", "IMAGES and TIMES"],
                told: ["model.onnx.inputs"],
                f'file: "{narrow}" inputs {{ name: "c" is: CLASSES }} diffusion {{ }}': ["2 classes", "3"],
                f'file: "{whole}" diffusion {{ schedule: FLOW_MATCHING target: VELOCITY }}': ["whole times", "float"]}
    for fields, parts in refusals.items():
        bench.refused(parts, text(fields, IMAGES))
    done = lockstep_run.run(bench.binary, ["sample", bench.folder / "alone", "--out", bench.folder / "a.png", "--classes", "1"], ranks=0)
    bench.expect(done.returncode == 2 and "--classes" in done.stdout + done.stderr, "classes for a network that is told of none")


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        several_outputs(bench)
        several_inputs(bench)
        modes(bench)
        noised_images(bench)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
