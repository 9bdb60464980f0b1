#!/usr/bin/env python3
"""Catches: parameters that a file declares and that do not learn where a function stands before them; buffers that
learn; patterns of model.onnx.trainable and constant that find nothing or go behind the file's word; functions of
parameters that cannot be trained and are held constant in silence; runs of an older revision that go on with
other parameters than their checkpoint has; norms that the exporter has folded and of which nothing is said.

onnx_learns_test.py BINARY

The files are written here, byte by byte, so that no other package is needed.
"""
import json
import pathlib
import struct
import sys
import tempfile

import lockstep_run
from onnx_train_test import REST, Bench, field, model, node, seeded, value_info

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
DATA = "synthetic { samples: 64 features: 6 classes: 4 }"
KINDS = {"val_3": "PARAMETER", "m": "PARAMETER", "head": "PARAMETER", "limit": "PARAMETER", "b": "BUFFER", "mask": "BUFFER"}
LEARN, GUESSED = {"val_3", "m", "head"}, {"b", "head"}
WEIGHTS = {"val_3": seeded([6], 1), "m": seeded([6, 5], 2), "head": seeded([4, 5], 3), "limit": seeded([5], 4), "b": seeded([5], 5),
           "mask": ([6, 5], [float(i % 3 > 0) for i in range(30)])}


def stored(name):
    """The weight as a file has it."""
    extents, values = WEIGHTS[name]
    return extents, list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def metadata(key, value, number):
    return field(number, field(1, key) + field(2, value))


def declaring(content, kinds):
    """The file with what the exporter says of its initializers: a message in two parts is one."""
    told = (value_info(name, WEIGHTS[name][0]) + metadata(KIND, kind, 4) for name, kind in kinds.items())
    return content + field(7, b"".join(field(13, value) for value in told))


def plain_file(*, function="Softplus", layer=b""):
    """A gain by a function, a matrix under a mask, a bias that is a buffer, a limit that is only compared with."""
    nodes = [node(function, ["val_3"], ["g"]), node("Mul", ["x", "g"], ["h"]),
             node("Mul", ["m", "mask"], ["w"]), node("MatMul", ["h", "w"], ["p"]), node("Add", ["p", "b"], ["s"]),
             node("Less", ["s", "limit"], ["l"]), node("Neg", ["s"], ["n"]), node("Where", ["l", "s", "n"], ["a"]),
             node("Gemm", ["a", "head"], ["y"], transB=1) + layer]
    return model(nodes, WEIGHTS, [("x", ["batch", 6])], ("y", ["batch", 4]))


def npy(path, kind, shape, content):
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)


class Files:
    def __init__(self, bench):
        self.bench = bench

    def write(self, name, content):
        (self.bench.folder / f"{name}.onnx").write_bytes(content)
        return lambda fields="", rest=REST: (f'model {{ onnx {{ file: "{self.bench.folder / name}.onnx" {fields} }} }}\n'
                                             f"data {{ {DATA} }}\n{rest}")


def inspect(bench, text, *arguments):
    config, out = bench.folder / "inspect.textproto", bench.folder / "inspect.json"
    config.write_text(text)
    done = lockstep_run.run(bench.binary, ["inspect", config, "--json", out, *arguments], ranks=0)
    bench.expect(done.returncode == 0, f"inspect: {done.stdout}{done.stderr}")
    return json.loads(out.read_text()), done.stdout


def log_of(bench, name):
    return (bench.folder / name / "log.txt").read_text()


def declared_kinds(bench, text):
    found, shown = inspect(bench, text(), "--tensors")
    training = found["training"]
    bench.expect(set(training["tensors"]) == LEARN and training["declared"], f"inspect: {training}")
    bench.expect(training["held"] == {"limit": "no gradient", "b": "constant", "mask": "constant"}, f"held: {training['held']}")
    bench.expect(set(training["chosen_by"].values()) == {"file"}, f"chosen by: {training['chosen_by']}")
    for line in ("3 initializers learn, as the file declares: val_3, m, head", "2 initializers are constant: b, mask",
                 "no gradient reaches, and does not learn: limit"):
        bench.expect(line in shown, f"inspect does not print {line!r}:\n{shown}")
    losses = bench.run("declared", text())
    bench.expect("3 initializers learn, as the file declares: val_3, m, head" in log_of(bench, "declared"), "the log does not list what learns")
    bench.expect(bench.run("declared-2", text(), ranks=2) == losses, "declared: other losses on 2 ranks")
    last = bench.weights("declared")
    bench.expect(set(last) == LEARN, f"the run trains {sorted(last)}")
    for name in LEARN:
        bench.expect(last[name] != stored(name), f"{name} has not learned")
    guess, _ = inspect(bench, text("parameters: GUESSED"))
    bench.expect(set(guess["training"]["tensors"]) == GUESSED and not guess["training"]["declared"], f"guessed: {guess['training']}")


def patterns(bench, text):
    found, _ = inspect(bench, text('constant: "^m$" constant: "head" trainable: "^b$"'))
    training = found["training"]
    bench.expect(set(training["tensors"]) == {"val_3", "b"} and training["held"]["m"] == "constant", f"patterns: {training}")
    bench.expect([training["chosen_by"][name] for name in ("m", "b", "val_3")] == ["config", "config", "file"], f"patterns: {training}")
    bench.run("patterns", text('constant: "mask|^m$" trainable: "^b$"'), "--max-steps", "1")
    bench.expect(set(bench.weights("patterns")) == {"val_3", "b", "head"}, "patterns: the run trains others")
    bench.refused(["model.onnx.trainable", "'haed'", "such as 'head'"], text('trainable: "b" trainable: "haed"'))
    bench.refused(["model.onnx.constant", "'nothing'", "initializer"], text('constant: "nothing"'))
    bench.refused(["model.onnx.constant", "'m'", "model.onnx.trainable"], text('constant: "^m$" trainable: "m"'))
    bench.refused(["no initializer", "model.onnx.trainable"], text('constant: "."'))
    groups = lambda match: text(rest=REST.replace("train {", f'train {{ groups {{ match: "{match}" freeze: true }}'))
    bench.run("grouped", groups("val_3"))
    bench.expect(bench.weights("grouped")["val_3"] == stored("val_3"), "train.groups does not find a parameter behind a function")
    bench.refused(["train.groups[0].match", "^b$"], groups("^b$"))


def older_run(bench, text):
    """A checkpoint of GUESSED has what an older revision would have."""
    old = text("parameters: GUESSED")
    losses = bench.run("whole", old)
    bench.run("older", old, "--max-steps", "3")
    bench.expect("older revision" not in log_of(bench, "older"), "a warning of an older revision without one")
    again = bench.run("older", text(), "--resume", "auto")
    log = log_of(bench, "older")
    bench.expect("older revision" in log and "GUESSED" in log, f"no warning of an older revision:\n{log}")
    bench.expect(losses is not None and again == losses, f"resumed: losses {again} and {losses}")
    bench.expect(bench.weights("older") == bench.weights("whole") and set(bench.weights("whole")) == GUESSED, "resumed: other weights")
    bench.expect("parameters: GUESSED" in (bench.folder / "older" / "config.textproto").read_text(), "the run's config does not keep it")
    written = bench.folder / "older-trained.onnx"
    done = lockstep_run.run(bench.binary, ["export", bench.folder / "older", "--format", "onnx", "--out", written], ranks=0)
    bench.expect(done.returncode == 0 and written.read_bytes() != (bench.folder / "plain.onnx").read_bytes(), f"export: {done.stdout}{done.stderr}")
    config = bench.folder / "eval.textproto"
    npy(bench.folder / "x.npy", "<f4", (8, 6), struct.pack("<48f", *(i / 48 for i in range(48))))
    npy(bench.folder / "y.npy", "<i8", (8,), struct.pack("<8q", *(i % 4 for i in range(8))))
    config.write_text(text().replace(DATA, f'dir: "{bench.folder}" npy {{ train_inputs: "x.npy" train_labels: "y.npy" '
                                           'eval_inputs: "x.npy" eval_labels: "y.npy" }'))
    done = lockstep_run.run(bench.binary, ["eval", config, "--checkpoint", bench.folder / "older"], ranks=0)
    bench.expect(done.returncode == 0 and "older revision" in done.stdout + done.stderr, f"eval: {done.stdout}{done.stderr}")
    # Another change of what learns is no older revision's.
    done = lockstep_run.run(bench.binary, ["train", bench.folder / "whole.textproto", "--run-dir", bench.folder / "older", "--resume", "auto",
                                           "--set", "model.onnx.constant=head", "--allow-change", "model.onnx.constant"], ranks=0)
    bench.expect(done.returncode == 4, f"other parameters than the checkpoint's: exit code {done.returncode}: {done.stderr}")


def folded_norms(bench, files):
    layer = metadata("pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoGemm", 9) + metadata(
        "pkg.torch.onnx.name_scopes", "['', 'layer.bn1', 'norm']", 9)
    text = files.write("folded", declaring(plain_file(layer=layer), KINDS))
    bench.run("folded", text(), "--max-steps", "1")
    found, shown = inspect(bench, text())
    for part in ("batch norm", "layer.bn1", "Gemm of y", "optimize=False"):
        bench.expect(part in shown and part in log_of(bench, "folded"), f"folded norms: no {part!r} in\n{shown}")
    bench.expect([norm["norm"] for norm in found["folded_norms"]] == ["layer.bn1"], f"folded norms: {found['folded_norms']}")
    bench.expect("batch norm" not in log_of(bench, "declared"), "a warning of norms that never were")


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        files = Files(bench)
        text = files.write("plain", declaring(plain_file(), KINDS))
        declared_kinds(bench, text)
        patterns(bench, text)
        bench.refused(["LpNormalization of g", "cannot be trained"],
                      files.write("other", declaring(plain_file(function="LpNormalization"), KINDS))())
        older_run(bench, text)
        folded_norms(bench, files)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
