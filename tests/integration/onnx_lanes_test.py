#!/usr/bin/env python3
"""Catches: networks from ONNX files that are computed lane by lane although samples of a batch mix, or that are refused
although they do not; batch norms that see one value, or of which each has a momentum of its own that is lost; and
`lockstep inspect` that hides one reason behind another, or ends with 0 for a file that cannot be trained.

onnx_lanes_test.py BINARY
"""
import json
import pathlib
import sys
import tempfile

import lockstep_run
from onnx_train_test import REST, Bench, model, node, seeded

FEATURES, HIDDEN, CLASSES = 6, 8, 4
DATA = f"synthetic {{ samples: 64 features: {FEATURES} classes: {CLASSES} }}"
WEIGHTS = {"first": seeded([HIDDEN, FEATURES], 1), "last": seeded([CLASSES, HIDDEN], 2), "val_0": ([1], [0]), "val_1": ([2], [-1, 16])}


def network(path, *between, output=("y", ["batch", CLASSES]), batch="batch", weights=None, rest=()):
    """Two layers, and between them nodes from h to k."""
    nodes = [node("Gemm", ["x", "first"], ["h"], transB=1), *between, node("Gemm", ["k", "last"], ["y"], transB=1), *rest]
    path.write_bytes(model(nodes, WEIGHTS | (weights or {}), [("x", [batch, FEATURES])], output, opset=18))
    return path


def text(path, fields="", lanes=4, batch=8):
    return (f'model {{ onnx {{ file: "{path}" {fields} }} }}\ndata {{ {DATA} }}\n{REST}'.replace("lanes: 4", f"lanes: {lanes}")
            .replace("global_batch: 8", f"global_batch: {batch}"))


def samples_that_mix(bench):
    centred = network(bench.folder / "centred.onnx", node("ReduceMean", ["h", "val_0"], ["m"]), node("Sub", ["h", "m"], ["k"]))
    for lanes in (2, 4):
        bench.refused(["train.lanes", "allowed: 1", "ReduceMean of m", "one rank"], text(centred, lanes=lanes))
    bench.run("centred", text(centred, lanes=1))
    apart = network(bench.folder / "apart.onnx", node("Relu", ["h"], ["k"]), node("ReduceMean", ["k", "val_0"], ["unread"]))
    bench.run("apart", text(apart))
    pairs = network(bench.folder / "pairs.onnx", node("Reshape", ["h", "val_1"], ["p"]), node("Softmax", ["p"], ["s"], axis=1),
                    node("Reshape", ["s", "val_2"], ["k"]), weights={"val_2": ([2], [-1, HIDDEN])})
    bench.refused(["train.lanes", "Softmax of s"], text(pairs))
    bench.run("pairs", text(pairs, lanes=1))
    found = bench.inspect(centred)
    bench.expect(len(found["conditions"]) == 1 and "train.lanes must be 1" in found["conditions"][0], f"{found}")


def norm(path, momenta):
    """Batch norms after each other."""
    nodes, weights, last = [], {}, "h"
    for i, momentum in enumerate(momenta):
        names = [f"norm{i}.{part}" for part in ("weight", "bias", "mean", "var")]
        weights |= {name: ([HIDDEN], [0.0 if name.endswith(("bias", "mean")) else 1.0] * HIDDEN) for name in names}
        last, before = ("k" if i + 1 == len(momenta) else f"n{i}"), last
        nodes.append(node("BatchNormalization", [before, *names], [last], momentum=momentum))
    return network(path, *nodes, weights=weights)


def norms(bench):
    one = norm(bench.folder / "one.onnx", [0.9])
    bench.refused(["train.global_batch", "8 lanes", "1 sample", "norm0.weight", "SYNCHRONISED"], text(one, lanes=8))
    bench.run("synchronised", text(one, "batch_norm: SYNCHRONISED", lanes=8))
    bench.run("running", text(one, "batch_norm: RUNNING", lanes=8))
    # After one step the statistics of the second norm tell of its own momentum: the first norm gives it 0 and nearly 1.
    two = norm(bench.folder / "two.onnx", [0.5, 0.75])
    bench.run("two", text(two, lanes=1, batch=32), "--max-steps", "1", "--set", "schedule.lr=1e-30")
    found = bench.weights("two")
    for value in found["norm1.var"][1]:  # unbiased: 32 / 31
        bench.expect(abs(value - (0.75 + 0.25 * 32 / 31)) < 1e-3, f"a running variance of {value}")
    bench.expect(bench.run("two-ranks", text(two, lanes=2), ranks=2) == bench.run("two-lanes", text(two, lanes=2)), "two momenta on 2 ranks")
    still = norm(bench.folder / "still.onnx", [1.0])
    bench.refused(["momentum", "below 1"], text(still, lanes=1))


def fixed_batches(bench, relu):
    """inspect and the refusal of other commands have the same sentence, whatever fixes the batch."""
    def with_shape(name, *shape):
        return network(bench.folder / f"{name}.onnx", node("Reshape", ["h", "val_2"], ["k"]),
                       weights={"val_2": ([len(shape)], list(shape))})

    def fixed(name, batch, *nodes, weights=None):
        return network(bench.folder / f"{name}.onnx", *nodes, batch=batch, output=("y", [batch, CLASSES]), weights=weights or {})

    # The batch of an example is freed, with the shapes that have it in them: the same weights as without it.
    split = node("Reshape", ["h", "val_2"], ["s"]), node("Relu", ["s"], ["r"]), node("Reshape", ["r", "val_3"], ["k"])
    free = bench.run("free", text(network(bench.folder / "free.onnx", relu), lanes=4, batch=32))
    for batch in (1, 4):
        shapes = {"val_2": ([3], [batch, 2, HIDDEN // 2]), "val_3": ([2], [batch, HIDDEN])}
        for path in (fixed(f"fixed{batch}", batch, relu), fixed(f"shaped{batch}", batch, *split, weights=shapes)):
            bench.expect(bench.inspect(path)["only_batch"] == 0, f"{path}: its batch is not free")
            bench.expect(bench.run(path.stem, text(path, lanes=4, batch=32)) == free, f"{path}: other weights")
    mean = node("ReduceMean", ["h", "val_0"], ["m"]), node("Sub", ["h", "m"], ["k"])
    for path, batch, reason in (
            (fixed("mixing", 4, *mean), 4, 'input "x" has a fixed batch of 4'),
            (with_shape("shape", 1, HIDDEN), 1, "its nodes fit a batch of 1 alone"),
            (with_shape("open", 4, -1), 4, "its nodes fit a batch of 4 alone"),
            (with_shape("large", 16, HIDDEN), 16, "its nodes fit a batch of 16 alone")):
        lanes = "train.global_batch (one sample a lane)" if batch == 1 else \
            f"train.global_batch / {batch} ({batch} samples a lane)"
        condition = (f"{reason}, so it trains only with train.lanes = {lanes}; for other values, export it with an open batch axis: "
                     f"torch.onnx.export(model, args, '{path.name}', dynamo=True, optimize=False, opset_version=23, input_names=['x'], "
                     "dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))")
        found = bench.inspect(path)
        bench.expect(found["only_batch"] == batch and condition in found["conditions"], f"{path}: {found}")
        bench.refused([f"a lane has 2 samples, but {condition}"], text(path, lanes=16, batch=32))
        bench.run(path.stem, text(path, lanes=1, batch=batch) if path.stem == "mixing" else text(path, lanes=32 // batch, batch=32))
    bench.expect(bench.inspect(network(bench.folder / "any.onnx", relu))["only_batch"] == 0, "a batch that is open")
    two = bench.folder / "two.onnx"
    two.write_bytes(model([node("Concat", ["a", "b"], ["h"], axis=1), node("Gemm", ["h", "last"], ["y"], transB=1)],
                          {"last": seeded([CLASSES, FEATURES], 2)}, [("a", [1, 3]), ("b", [4, 3])], ("y", [1, CLASSES])))
    bench.refused(['inputs "a" and "b" have different batches, fixed at 1 and 4'],
                  text(two, 'inputs { name: "a" is: FEATURES } inputs { name: "b" is: FEATURES }'))


def inspect(bench):
    relu = node("Relu", ["h"], ["k"])
    fixed_batches(bench, relu)
    likeness = network(bench.folder / "likeness.onnx", relu, rest=[node("Transpose", ["y"], ["t"], perm=[1, 0]), node("MatMul", ["y", "t"], ["z"])],
                       output=("z", ["batch", "batch"]))
    bench.refused(["model.onnx.output", "axis 1", "similarities"], text(likeness, lanes=1))
    idle = bench.folder / "idle.onnx"
    idle.write_bytes(model([node("Tanh", ["x"], ["y"])], {}, [("x", ["batch", FEATURES])], ("y", ["batch", FEATURES])))
    refusals = bench.inspect(idle)["refusals"]
    bench.expect(len(refusals) == 1 and "no initializer" in refusals[0], f"nothing that learns: {refusals}")
    # All reasons at once: two inputs that nothing says, and two ops that there are none of.
    path = bench.folder / "much.onnx"
    path.write_bytes(model([node("Add", ["a", "b"], ["h"]), node("NonMaxSuppression", ["h"], ["n"]), node("Hardmax", ["h"], ["k"]),
                            node("Gemm", ["k", "last"], ["y"], transB=1)], WEIGHTS | {"last": seeded([CLASSES, FEATURES], 2)},
                           [("a", ["batch", FEATURES]), ("b", ["batch", FEATURES])], ("y", ["batch", CLASSES])))
    refusals = bench.inspect(path)["refusals"]
    for parts in (('"a"', '"b"'), ("NonMaxSuppression",), ("Hardmax", "the op cannot be trained")):
        bench.expect(sum(all(part in refusal for part in parts) for refusal in refusals) == 1, f"{parts} in {refusals}")


def auto(bench):
    """Without train.lanes, their number is one with which the network trains."""
    apart = network(bench.folder / "auto.onnx", node("Relu", ["h"], ["k"]))
    normed = norm(bench.folder / "auto_norm.onnx", [0.9])
    centred = network(bench.folder / "auto_centred.onnx", node("ReduceMean", ["h", "val_0"], ["m"]), node("Sub", ["h", "m"], ["k"]))
    four = network(bench.folder / "auto_four.onnx", node("Relu", ["h"], ["k"]), batch=4, output=("y", [4, CLASSES]))  # is freed
    shaped = network(bench.folder / "auto_shaped.onnx", node("Reshape", ["h", "val_2"], ["k"]), weights={"val_2": ([2], [4, HIDDEN])})
    for path, fields, batch, lanes in ((apart, "", 32, 8), (normed, "", 32, 2), (normed, "batch_norm: SYNCHRONISED", 32, 8),
                                       (normed, "batch_norm: RUNNING", 32, 8), (centred, "", 32, 1), (four, "", 24, 8),
                                       (shaped, "", 24, 6)):
        config, out = bench.folder / "auto.textproto", bench.folder / "auto.json"
        config.write_text(text(path, fields, batch=batch).replace("lanes: 4", ""))
        done = lockstep_run.run(bench.binary, ["plan", config, "--json", out], ranks=0)
        bench.expect(done.returncode == 0 and f"lanes {lanes} (AUTO" in done.stdout, f"{path} {fields}: {done.stdout} {done.stderr}")
        bench.expect(json.loads(out.read_text())["lanes"] == lanes, f"{path} {fields}: {out.read_text()}")


class Inspector(Bench):
    def inspect(self, path):
        out = self.folder / "inspected.json"
        done = lockstep_run.run(self.binary, ["inspect", path, "--json", out], ranks=0)
        found = json.loads(out.read_text())["training"]
        self.expect(done.returncode == (2 if found["refusals"] else 0), f"inspect {path}: exit code {done.returncode}: {found}")
        return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Inspector(sys.argv[1], pathlib.Path(folder))
        samples_that_mix(bench)
        norms(bench)
        inspect(bench)
        auto(bench)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
