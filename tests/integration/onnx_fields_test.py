#!/usr/bin/env python3
"""Catches: a softmax or sigmoid at the end of an ONNX file that counts twice in the loss; a value of a file
that cannot be the output, or leaves parameters behind it in the training; first weights of train.groups that
take inputs for outputs, or differ between ranks; `lockstep inspect` that says of a config, or with --set,
something else than training does.

onnx_fields_test.py BINARY
"""
import json
import math
import pathlib
import sys
import tempfile

import lockstep_run
from onnx_train_test import REST, Bench, model, node, seeded

IN, HIDDEN, OUT = 64, 200, 4
WEIGHTS = {"first": seeded([IN, HIDDEN], 1), "bias": seeded([HIDDEN], 2), "behind": seeded([OUT, OUT], 4),
           "last": ([OUT, HIDDEN], [x / 20 for x in seeded([OUT, HIDDEN], 3)[1]]),
           "val_0": ([OUT], [0.0] * OUT)}  # which does not learn
LIMIT = 1e-6  # of losses, as a share: another order of rounding


def network(path, *end):
    """Logits, and behind them what else the file has; the last value is its output."""
    nodes = [node("MatMul", ["x", "first"], ["p"]), node("Add", ["p", "bias"], ["h"]), node("Relu", ["h"], ["r"]),
             node("Gemm", ["r", "last"], ["logits"], transB=1), *end]
    used = {name: its for name, its in WEIGHTS.items() if name in ("first", "bias", "last") or (end and name in str(end))}
    path.write_bytes(model(nodes, used, [("x", ["batch", IN])], (end[-1] and "y" if end else "logits", ["batch", OUT])))
    return path


def ends(bench, data, text):
    last = lambda op, **attributes: node(op, ["logits"], ["y"], **attributes)
    for loss, losses in (("SOFTMAX_CROSS_ENTROPY", [last("Softmax", axis=1), last("LogSoftmax", axis=-1), last("Softmax")]),
                         ("BINARY_CROSS_ENTROPY", [last("Sigmoid")]), ("MEAN_SQUARED_ERROR", [])):
        plain = bench.run(f"{loss}", text(network(bench.folder / f"{loss}.onnx"), f"loss: {loss}"))
        for i, end in enumerate(losses):
            found = bench.run(f"{loss}{i}", text(network(bench.folder / f"{loss}{i}.onnx", end), f"loss: {loss}"))
            bench.expect(plain is not None and found == plain, f"{loss} {i}: losses {found} and {plain}")
    # What computes an output may read it again for its gradient: the loss cannot write over it.
    for loss in ("SOFTMAX_CROSS_ENTROPY", "BINARY_CROSS_ENTROPY", "MEAN_SQUARED_ERROR"):
        path = network(bench.folder / f"read-{loss}.onnx", last("Tanh"))
        found = bench.run(f"read-{loss}", text(path, f"loss: {loss}"))
        path = network(bench.folder / f"sum-{loss}.onnx", node("Tanh", ["logits"], ["t"]), node("Add", ["t", "val_0"], ["y"]))
        wanted = bench.run(f"sum-{loss}", text(path, f"loss: {loss}"))
        same = found is not None and all(abs(a - b) <= LIMIT * b for (_, a), (_, b) in zip(found, wanted, strict=True))
        bench.expect(same, f"{loss} of tanh: losses {found} and {wanted}")
        bench.expect(found == bench.run(f"read-{loss}-2", text(path.with_stem(f"read-{loss}"), f"loss: {loss}"), ranks=2),
                     f"{loss} of tanh: on 2 ranks")
    # Squared errors are of what the softmax gives.
    squares = bench.run("squares", text(network(bench.folder / "squares.onnx", last("Softmax", axis=1)), "loss: MEAN_SQUARED_ERROR"))
    bench.expect(squares != bench.run("squares-plain", text(bench.folder / "MEAN_SQUARED_ERROR.onnx", "loss: MEAN_SQUARED_ERROR")),
                 "the softmax is no part of squared errors")


def other_output(bench, text):
    plain = bench.run("plain", text(network(bench.folder / "plain.onnx")))
    path = network(bench.folder / "longer.onnx", node("Tanh", ["logits"], ["t"]), node("Gemm", ["t", "behind"], ["y"], transB=1))
    found = bench.run("longer", text(path, 'output: "logits"'))
    bench.expect(found == plain, f"output logits: losses {found} and {plain}")
    bench.expect("behind" not in bench.weights("longer") and "behind" in bench.weights_of(text(path), "whole"), "what is behind the output")
    written = bench.folder / "written.onnx"
    done = lockstep_run.run(bench.binary, ["export", bench.folder / "longer", "--format", "onnx", "--out", written], ranks=0)
    bench.expect(done.returncode == 0 and len(written.read_bytes()) >= len(path.read_bytes()), f"export: {done.stdout}{done.stderr}")
    bench.refused(["model.onnx.output", "nothing", "y", "any value"], text(path, 'output: "nothing"'))
    bench.refused(["model.onnx.output", "first"], text(path, 'output: "first"'))


def first_weights(bench, text):
    groups = lambda how: text(path).replace("train {", f'train {{ groups {{ match: "first|bias" initialize: {how} }} ')
    path = bench.folder / "plain.onnx"
    still = ("--max-steps", "1", "--set", "schedule.lr=1e-30")
    bench.run("kept", text(path), *still)
    kept = bench.weights("kept")
    for how, deviation in (("KAIMING", math.sqrt(2 / IN)), ("XAVIER", math.sqrt(2 / (IN + HIDDEN)))):
        bench.run(how, groups(how), *still)
        found = bench.weights(how)
        numbers = found["first"][1]
        mean = sum(numbers) / len(numbers)
        spread = math.sqrt(sum((x - mean) ** 2 for x in numbers) / len(numbers))
        # Of 12,800 numbers: 5 times the deviation of what is measured.
        bench.expect(abs(spread / deviation - 1) < 0.032 and abs(mean) < 5 * deviation / math.sqrt(len(numbers)),
                     f"{how}: mean {mean}, deviation {spread} in the place of {deviation}")
        bench.expect(found["bias"] == kept["bias"] and found["last"] == kept["last"], f"{how}: other weights stay")
        bench.run(f"{how}-2", groups(how), *still, ranks=2)
        bench.expect(bench.weights(f"{how}-2") == found, f"{how}: on 2 ranks")
        whole = bench.run(f"{how}-whole", groups(how))
        bench.expect(whole == bench.run(f"{how}-four", groups(how), ranks=4), f"{how}: losses on 4 ranks")


class Inspector(Bench):
    def weights_of(self, text, name):
        self.run(name, text)
        return self.weights(name)

    def inspect(self, *arguments):
        """What it says of training; an empty text where it fails."""
        out = self.folder / "inspected.json"
        done = lockstep_run.run(self.binary, ["inspect", *arguments, "--json", out], ranks=0)
        found = json.loads(out.read_text())["training"]
        self.expect(done.returncode == (2 if found["refusal"] else 0), f"inspect {arguments}: {done.stdout}{done.stderr}")
        return found


def inspect(bench, text):
    path = bench.folder / "open.onnx"
    weights = {"table": seeded([11, 8], 5), "head": seeded([3, 8], 6)}
    path.write_bytes(model([node("Gather", ["table", "words"], ["e"]), node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0),
                            node("Gemm", ["m", "head"], ["y"], transB=1)], weights,
                           [("words", ["batch", "?"], 7), ("unread", ["batch", "?"], 7)], ("y", ["batch", 3])))
    refusals = bench.inspect(path)["refusals"]
    bench.expect(len(refusals) == 1 and "words" in refusals[0] and "unread" in refusals[0], f"inputs that nothing says: {refusals}")
    said = ['inputs { name: "words" is: TOKENS } inputs { name: "unread" is: MASK } task: SEQUENCE_CLASSES', "context: 7"]
    sets = ['inputs=[{name: "words" is: TOKENS}, {name: "unread" is: MASK}]', "task=SEQUENCE_CLASSES"]
    sets = [x for field in sets for x in ("--set", f"model.onnx.{field}")]
    bench.expect("model.onnx.context" in bench.inspect(path, *sets)["refusal"], "an axis that is open")
    found = bench.inspect(path, *sets, "--set", "model.onnx.context=7")
    bench.expect(found["refusal"] == "" and found["sample"] == "7 tokens" and found["parameters"] == 11 * 8 + 3 * 8, f"{found}")
    config = bench.folder / "open.textproto"
    config.write_text(text(path, " ".join(said)))
    bench.expect(bench.inspect(config) == found, "of a config the same")
    bench.expect(bench.inspect(config, "--set", "model.onnx.context=9")["sample"] == "9 tokens", "of a config with --set")
    other = bench.folder / "other.textproto"
    other.write_text(f"model {{ mlp {{ hidden: [4] }} }}\ndata {{ synthetic {{ samples: 64 }} }}\n{REST}")
    for arguments, part in (([other], "mlp"), ([config, "--flight"], "--flight"), ([bench.folder, "--set", "a=b"], "--set"),
                            ([path, "--set", "model.onnx.nothing=1"], "nothing")):
        done = lockstep_run.run(bench.binary, ["inspect", *arguments], ranks=0)
        bench.expect(done.returncode == 2 and part in done.stdout + done.stderr, f"inspect {arguments}: {done.stdout}{done.stderr}")
    # Axes that have no name have nothing in common.
    path.write_bytes(model([node("GlobalAveragePool", ["x"], ["p"]), node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                           {"w": seeded([3, 2], 7)}, [("x", ["?", 2, "?", "?"])], ("y", ["?", 3])))
    sizes = bench.inspect(path, "--set", 'model.onnx.axes=[{name: "x.2" extent: 4}, {name: "x.3" extent: 6}]')
    bench.expect(sizes.get("sample") == "images of 2 x 4 x 6", f"{sizes}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Inspector(sys.argv[1], pathlib.Path(folder))
        data = f"synthetic {{ samples: 64 features: {IN} classes: {OUT} }}"
        text = lambda path, fields="": f'model {{ onnx {{ file: "{path}" {fields} }} }}\ndata {{ {data} }}\n{REST}'
        ends(bench, data, text)
        other_output(bench, text)
        first_weights(bench, text)
        inspect(bench, text)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
