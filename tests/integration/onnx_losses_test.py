#!/usr/bin/env python3
"""Catches: a loss that the file computes and that differs from the built-in one in loss, accuracy or
weights; targets that are mixed up, of another sample or of another type; other bits on several ranks or
after a resume; heads that learn another target than theirs; what cannot be done and is refused without
the reason.

onnx_losses_test.py BINARY
"""
import json
import math
import pathlib
import random
import struct
import sys
import tempfile

import lockstep_run
from onnx_train_test import FLOAT, INT64, Bench, model, node, seeded

N, IN, CLASSES = 40, 5, 3
DATA_ERROR = 3
WEIGHTS = {"first": seeded([9, IN], 1), "bias": seeded([9], 2), "last": seeded([CLASSES, 9], 3), "other": seeded([2, 9], 4)}
BODY = [node("Gemm", ["x", "first", "bias"], ["h"], transB=1), node("Tanh", ["h"], ["t"]),
        node("Gemm", ["t", "last"], ["logits"], transB=1)]
HEAD = node("Gemm", ["t", "other"], ["values"], transB=1)
X = ("x", ["batch", IN])
REST = """train { global_batch: 16 lanes: 4 steps: 6 hash_every: 1 } optimizer { adamw { weight_decay: 0.1 } } schedule { lr: 0.05 }
checkpoint { every: 3 keep_last: 9 async: false } eval { every: 6 } execution { threads: 1 } output { tensorboard: false }"""


def npy(path, kind, extents, values):
    header = f"{{'descr': '{'|' if kind == 'u1' else '<'}{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, extents))},), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}{ {'f4': 'f', 'i4': 'i', 'i8': 'q', 'u1': 'B'}[kind] }", *values))


def write_data(folder):
    draw = random.Random(5)
    rows = [[draw.gauss(0, 1) for _ in range(IN)] for _ in range(N)]
    labels = [max(range(CLASSES), key=row.__getitem__) for row in rows]
    values = [v for row in rows for v in (row[3] - row[4], 2 * row[0])]
    npy(folder / "x.npy", "f4", [N, IN], [v for row in rows for v in row])
    npy(folder / "labels.npy", "i8", [N], labels)
    npy(folder / "values.npy", "f4", [N, 2], values)
    npy(folder / "short.npy", "f4", [N, 1], values[:N])
    npy(folder / "outside.npy", "i4", [N], [7] + labels[1:])
    npy(folder / "nan.npy", "f4", [N, 2], [math.nan] + values[1:])
    lines = [",".join(f"x{i}" for i in range(IN)) + ",name,a,b"]
    lines += [",".join(map(repr, row)) + f",{'uvw'[k]},{values[2 * i]!r},{values[2 * i + 1]!r}" for i, (row, k) in enumerate(zip(rows, labels))]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")


def targets(**files):
    return " ".join(f'targets {{ name: "{n}" train: "{f}.npy" eval: "{f}.npy" }}' for n, f in files.items())


class Losses(Bench):
    def text(self, fields, data):
        return f'model {{ onnx {{ {fields} }} }}\ndata {{ dir: "{self.folder}" {data} }}\n{REST}'

    def npy(self, fields, named):
        return self.text(fields, f'npy {{ train_inputs: "x.npy" eval_inputs: "x.npy" {named} }}')

    def file(self, name, nodes, inputs, *outputs):
        """Of the weights that its nodes read."""
        content = b"".join(nodes)
        path = self.folder / f"{name}.onnx"
        path.write_bytes(model(nodes, {n: w for n, w in WEIGHTS.items() if n.encode() in content}, inputs, *outputs))
        return path

    def evaluation(self, name):
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return next(line for line in reversed(lines) if "eval_loss" in line)

    def refused(self, code, parts, text):
        config = self.folder / "refused.textproto"
        config.write_text(text)
        done = lockstep_run.run(self.binary, ["train", config, "--run-dir", self.folder / "refused"], ranks=0)
        lines = (done.stdout + done.stderr).strip().splitlines()
        self.expect(done.returncode == code and all(part in lines[-1] for part in parts), f"exit code {done.returncode}: {lines[-1]}")

    def near(self, label, a, b, limit=2e-6):
        same = a is not None and b is not None and all(abs(x - y) <= limit * max(abs(y), 1) for (_, x), (_, y) in zip(a, b, strict=True))
        self.expect(same, f"{label}: {a} and {b}")


def own_loss(bench):
    """The built-in cross-entropy and squared error, computed by a file."""
    plain = bench.file("plain", BODY, [X], ("logits", ["batch", CLASSES]))
    ce = bench.file("ce", [*BODY, node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"], reduction="none")],
                    [X, ("labels", ["batch"], INT64)], ("loss", ["batch"]), ("logits", ["batch", CLASSES]))
    fields = (f'file: "{ce}" output: "loss" loss: OUTPUT inputs {{ name: "labels" is: TARGET target: "kind" }} '
              'predictions { output: "logits" target: "kind" kind: SOFTMAX_CROSS_ENTROPY }')
    named = targets(kind="labels", unused="values")
    wanted = bench.run("plain", bench.npy(f'file: "{plain}"', 'train_labels: "labels.npy" eval_labels: "labels.npy"'))
    found = bench.run("ce", bench.npy(fields, named))
    bench.near("cross-entropy", found, wanted)
    a, b = bench.evaluation("ce"), bench.evaluation("plain")
    for key in ("eval_loss", "eval_accuracy", "eval_f1", "eval_matthews"):
        bench.expect(key in a and abs(a[key] - b[key]) <= 1e-5, f"{key}: {a.get(key)} and {b.get(key)}")
    for ranks, stage in ((2, 1), (3, 2), (4, 3)):
        again = bench.run(f"ce-{ranks}", bench.npy(fields, named), "--set", f"comm.zero_stage={stage}", ranks=ranks)
        bench.expect(again == found and bench.evaluation(f"ce-{ranks}")["eval_loss"] == a["eval_loss"], f"{ranks} ranks")
    bench.run("ce-stopped", bench.npy(fields, named), "--max-steps", "3")
    bench.run("ce-stopped", bench.npy(fields, named), "--resume", "auto")
    bench.expect(bench.weights("ce-stopped") == bench.weights("ce"), "resumed: other weights")
    out = bench.folder / "out.csv"
    done = lockstep_run.run(bench.binary, ["predict", bench.folder / "ce", "--out", out], ranks=0)
    bench.expect(done.returncode == 0 and len(out.read_text().splitlines()) == N + 1, f"predict: {done.stderr}")
    # A table, whose classes are names, and its only target.
    table = 'table { train: "t.csv" eval: "t.csv" target: "name" ignore: "a" ignore: "b" }'
    bench.run("table", bench.text(fields.replace(' target: "kind"', ' target: "name"'), table))
    return fields, named


def heads(bench):
    """Two heads with targets of their own: the loss of each alone, added."""
    both = bench.file("both", [*BODY, HEAD], [X], ("logits", ["batch", CLASSES]), ("values", ["batch", 2]))
    fields = f'file: "{both}" losses {{ output: "values" target: "amount" loss: MEAN_SQUARED_ERROR weight: 0.5 }}'
    named = targets(kind="labels", amount="values")
    found = bench.run("heads", bench.npy(fields, named))
    parts = [node("SoftmaxCrossEntropyLoss", ["logits", "kind"], ["ce"], reduction="none"), node("Sub", ["values", "amount"], ["d"]),
             node("Mul", ["d", "d"], ["s"]), node("ReduceMean", ["s"], ["m"], axes=[1], keepdims=0),
             node("Mul", ["m", "half"], ["w"]), node("Add", ["ce", "w"], ["loss"])]
    WEIGHTS["half"] = ([], [0.5])
    added = bench.file("added", [*BODY, HEAD, *parts], [X, ("kind", ["batch"], INT64), ("amount", ["batch", 2], FLOAT)], ("loss", ["batch"]))
    own = (f'file: "{added}" loss: OUTPUT constant: "^half$" inputs {{ name: "kind" is: TARGET }} inputs {{ name: "amount" is: TARGET }}')
    bench.near("heads", found, bench.run("added", bench.npy(own, named)))
    again = bench.run("heads-2", bench.npy(fields, named), ranks=2)
    bench.expect(again == found, "heads on 2 ranks")
    return fields, named


# The losses of six steps: torch 2.15 trained the two towers below in double precision from the same weights,
# with the loss of the whole batch of 16, AdamW and REST's settings.
TOWER_LOSSES = [4.672476269, 3.251375843, 2.934004267, 2.367741179, 2.061020571, 1.837089312]


def towers(bench):
    """Users by their features, items by an id and values: one vector each, compared over all lanes."""
    nodes = [node("Gemm", ["x", "first", "bias"], ["h"], transB=1), node("Tanh", ["h"], ["t"]),
             node("Gemm", ["t", "user_last"], ["user"], transB=1),
             node("Gather", ["table", "kind"], ["known"]), node("Gemm", ["amount", "item_last"], ["of_amount"], transB=1),
             node("Add", ["known", "of_amount"], ["item"])]
    WEIGHTS.update(user_last=seeded([4, 9], 5), table=seeded([CLASSES, 4], 6), item_last=seeded([4, 2], 7))
    inputs = [X, ("kind", ["batch"], INT64), ("amount", ["batch", 2], FLOAT)]
    file = bench.file("towers", nodes, inputs, ("user", ["batch", 4]), ("item", ["batch", 4]))
    fields = (f'file: "{file}" output: "user" losses {{ output: "item" }} loss: CONTRASTIVE '
              'inputs { name: "kind" is: TARGET } inputs { name: "amount" is: TARGET }')
    named = targets(kind="labels", amount="values")
    options = "contrastive { temperature: 0.2 symmetric: true learn_temperature: true }"
    rest = bench.npy(fields, named).replace("data {", "data { shuffle: false").replace("train { global", f"train {{ {options} global")
    found = bench.run("towers", rest)
    bench.near("towers", found, list(enumerate(TOWER_LOSSES)))
    for ranks, stage in ((2, 1), (3, 0), (4, 3)):
        again = bench.run(f"towers-{ranks}", rest, "--set", f"comm.zero_stage={stage}", ranks=ranks)
        bench.expect(again == found and bench.weights(f"towers-{ranks}") == bench.weights("towers"), f"towers on {ranks} ranks")
    out = bench.folder / "vectors.safetensors"
    done = lockstep_run.run(bench.binary, ["predict", bench.folder / "towers", "--out", out], ranks=0)
    bench.expect(done.returncode == 0, f"predict: {done.stderr}")
    (rows, columns), values = lockstep_run.read_tensor(out, "output")
    pairs = [(values[i * 8:i * 8 + 4], values[i * 8 + 4:i * 8 + 8]) for i in range(rows)]
    product = lambda a, b: sum(x * y for x, y in zip(a, b))
    nearer = [sum(product(a, other) >= product(a, own) for _, other in pairs) - 1 for a, own in pairs]
    recall = bench.evaluation("towers")["eval_recall_at_5"]
    bench.expect(columns == 8 and abs(recall - sum(n < 5 for n in nearer) / N) < 1e-9 and recall > 0.2, f"recall {recall} of {nearer}")
    one = f'file: "{file}" output: "user" loss: CONTRASTIVE inputs {{ name: "kind" is: TARGET }} inputs {{ name: "amount" is: TARGET }}'
    bench.refused(2, ["model.onnx.losses: 0 are given"], bench.npy(one, named))
    bench.refused(2, ["losses.target"], bench.npy(fields.replace('"item" }', '"item" target: "kind" }'), named))
    bench.refused(DATA_ERROR, ["outside.npy", "is 7", "0..2"], bench.npy(fields, targets(kind="outside", amount="values")))
    narrow = bench.file("narrow", [*nodes, node("Gemm", ["t", "last"], ["logits"], transB=1)], inputs, ("user", ["batch", 4]), ("item", ["batch", 4]), ("logits", ["batch", CLASSES]))
    bench.refused(2, ['"logits"', "(N, D)"], bench.npy(fields.replace(str(file), str(narrow)).replace('"item" }', '"logits" }'), named))


def refusals(bench, fields, named, head_fields):
    wrong = lambda **files: targets(**files)
    bench.refused(2, ["'kind'", "'sort'"], bench.npy(fields, wrong(sort="labels")))
    bench.refused(DATA_ERROR, ["outside.npy", "is 7", "0..2"], bench.npy(fields, wrong(kind="outside")))
    bench.refused(DATA_ERROR, ["short.npy", "(1)", "(2)"], bench.npy(head_fields, wrong(kind="labels", amount="short")))
    bench.refused(DATA_ERROR, ["nan.npy", "nan", "finite"], bench.npy(head_fields, wrong(kind="labels", amount="nan")))
    bench.refused(DATA_ERROR, ["values.npy", "'kind' is (2) for each sample"], bench.npy(fields, wrong(kind="values")))
    bench.refused(2, ["without a name", "'a', 'b'"], bench.npy(head_fields, wrong(a="labels", b="labels", amount="values")))
    bench.refused(2, ["targets", "one target"], bench.npy(f'file: "{bench.folder / "plain.onnx"}"', named))
    scalar = bench.file("scalar", [*BODY, node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"], reduction="mean")],
                        [X, ("labels", ["batch"], INT64)], ("loss", []))
    takes = 'loss: OUTPUT inputs { name: "labels" is: TARGET target: "kind" }'
    bench.refused(2, ["()", "reduction='none'"], bench.npy(f'file: "{scalar}" {takes}', named))
    mixed = bench.file("mixed", [*BODY, node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["each"], reduction="none"),
                                 node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["all"], reduction="mean"),
                                 node("Add", ["each", "all"], ["loss"])], [X, ("labels", ["batch"], INT64)], ("loss", ["batch"]))
    bench.refused(2, ["SoftmaxCrossEntropyLoss", "samples"], bench.npy(f'file: "{mixed}" {takes}', named))
    bench.refused(2, ["TARGET", "OUTPUT"], bench.npy(f'file: "{bench.folder / "ce.onnx"}" output: "logits" inputs {{ name: "labels" is: TARGET }}', named))
    bench.refused(2, ["predictions", "OUTPUT"], bench.npy(f'file: "{bench.folder / "plain.onnx"}" predictions {{ output: "logits" }}', named))


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Losses(sys.argv[1], pathlib.Path(folder))
        write_data(bench.folder)
        fields, named = own_loss(bench)
        head_fields, _ = heads(bench)
        towers(bench)
        refusals(bench, fields, named, head_fields)
        sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
