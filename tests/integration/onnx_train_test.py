#!/usr/bin/env python3
"""Catches: a network from an ONNX file that computes something else than the same network built in
(other bits in any loss or weight), other bits on two ranks or after a resume, parameters whose order
of elements is mixed up, files that are refused without the reason, and exported files of built-in
networks that compute something else or have other weights.

onnx_train_test.py BINARY

The files are written here, byte by byte, so that no other package is needed.
"""
import json
import pathlib
import struct
import sys
import tempfile

import lockstep_run

USAGE, DATA = 2, 3
REST = """
train { global_batch: 8 lanes: 4 steps: 6 hash_every: 1 seed_unused }
optimizer { adamw { weight_decay: 0.1 } }
schedule { lr: 0.01 }
checkpoint { every: 3 keep_last: 9 async: false }
execution { threads: 1 }
output { tensorboard: false }
""".replace(" seed_unused", "")
FLOAT, INT64 = 1, 7


def varint(value):
    out = bytearray()
    while True:
        out.append(value & 0x7f | (0x80 if value > 0x7f else 0))
        value >>= 7
        if not value:
            return bytes(out)


def field(number, value):
    """A field of protobuf: an int, or the bytes of a text or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, extents, values):
    """Of floats, or where all values are whole numbers of Python, of int64."""
    whole = all(isinstance(value, int) for value in values)
    return (b"".join(field(1, e) for e in extents) + field(2, INT64 if whole else FLOAT) + field(8, name) +
            field(9, struct.pack(f"<{len(values)}{'q' if whole else 'f'}", *values)))


def value_info(name, extents, kind=FLOAT):
    """extents: numbers, and names of open axes."""
    dims = b"".join(field(1, field(1, e) if isinstance(e, int) else field(2, e)) for e in extents)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def attribute(name, value):
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, list):
        return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
    if isinstance(value, bytes):  # a tensor
        return field(1, name) + field(5, value) + field(20, 4)
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    return field(1, name) + field(3, value) + field(20, 2)


def node(op, inputs, outputs, **attributes):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, f"{op} of {outputs[0]}") +
            field(4, op) + b"".join(field(5, attribute(n, v)) for n, v in attributes.items()))


def model(nodes, weights, inputs, *outputs, opset=17):
    graph = (b"".join(field(1, n) for n in nodes) + field(2, "net") + b"".join(field(5, tensor(n, *w)) for n, w in weights.items()) +
             b"".join(field(11, value_info(*i)) for i in inputs) + b"".join(field(12, value_info(*o)) for o in outputs))
    return field(1, 8) + field(2, "a test") + field(7, graph) + field(8, field(2, opset))


def safetensors(path):
    """Name -> (extents, values)."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    found = {}
    for name, entry in json.loads(content[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + o for o in entry["data_offsets"])
            found[name] = entry["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", content[begin:end]))
    return found


def transposed(extents, values):
    rows, columns = extents
    return [columns, rows], [values[r * columns + c] for c in range(columns) for r in range(rows)]


def mlp_file(weights):
    """One layer as Gemm with the matrix as PyTorch has it, one as MatMul and Add with its transpose."""
    weights = dict(weights)
    weights["layers.1.weight"] = transposed(*weights["layers.1.weight"])
    nodes = [node("Gemm", ["x", "layers.0.weight", "layers.0.bias"], ["h"], transB=1),
             node("Relu", ["h"], ["a"]),
             node("MatMul", ["a", "layers.1.weight"], ["m"]),
             node("Add", ["layers.1.bias", "m"], ["y"])]
    return model(nodes, weights, [("x", ["batch", 6])], ("y", ["batch", 4]))


def lenet_file(weights):
    nodes = [node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], kernel_shape=[5, 5], pads=[2, 2, 2, 2], strides=[1, 1]),
             node("Relu", ["c1"], ["r1"]),
             node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], kernel_shape=[5, 5]),
             node("Relu", ["c2"], ["r2"]),
             node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Flatten", ["p2"], ["f"]),
             node("Gemm", ["f", "fc1.weight", "fc1.bias"], ["g1"], transB=1), node("Relu", ["g1"], ["r3"]),
             node("Gemm", ["r3", "fc2.weight", "fc2.bias"], ["g2"], transB=1), node("Relu", ["g2"], ["r4"]),
             node("Gemm", ["r4", "fc3.weight", "fc3.bias"], ["y"], transB=1)]
    return model(nodes, weights, [("x", ["batch", 1, "height", "width"])], ("y", ["batch", 5]))


# The last number: how far losses may be apart, as a share of them. The matrix behind a Flatten has its columns in
# the order of channels first, so that sums have another order.
CASES = {"mlp": ("mlp { hidden: [9] outputs: 4 }", "synthetic { samples: 64 features: 6 classes: 4 }", mlp_file, 0),
         "lenet": ("lenet { activation: RELU pooling: MAX classes: 5 }",
                   "synthetic { samples: 64 height: 28 width: 28 channels: 1 classes: 5 }", lenet_file, 1e-7)}


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.failures = binary, folder, 0

    def expect(self, condition, message):
        if not condition:
            self.failures += 1
            print(f"FAILED: {message}", flush=True)

    def run(self, name, text, *arguments, ranks=0):
        """The losses and weights of a run in the folder `name`."""
        config = self.folder / f"{name}.textproto"
        config.write_text(text)
        done = lockstep_run.run(self.binary, ["train", config, "--run-dir", self.folder / name, *arguments], ranks=ranks)
        if done.returncode != 0:
            self.expect(False, f"{name}: exit code {done.returncode}: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
            return None
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return [(row["step"], row["loss"]) for row in lines if "loss" in row]

    def weights(self, name):
        out = self.folder / f"{name}.safetensors"
        done = lockstep_run.run(self.binary, ["export", self.folder / name, "--out", out], ranks=0)
        self.expect(done.returncode == 0, f"export {name}: {done.stderr}")
        return safetensors(out)

    def refused(self, parts, text, code=USAGE):
        config = self.folder / "refused.textproto"
        config.write_text(text)
        done = lockstep_run.run(self.binary, ["train", config, "--run-dir", self.folder / "refused"], ranks=0)
        message = (done.stdout + done.stderr).strip().splitlines()[-1]
        self.expect(done.returncode == code and all(part in message for part in parts), f"exit code {done.returncode}: {message}")


def compare(bench, label, network, data, file_of, limit, fields="", rest=REST):
    """`fields`: of the section onnx, beside the file."""
    text = lambda section: f"model {{ {section} }}\ndata {{ {data} }}\n{rest}"
    built = bench.run(f"{label}-built", text(network))
    first = bench.run(f"{label}-first", text(network), "--max-steps", "1", "--set", "schedule.lr=1e-30")
    if built is None or first is None:
        return
    # At such a rate the first weights, which the seed alone decides.
    path = bench.folder / f"{label}.onnx"
    path.write_bytes(file_of(bench.weights(f"{label}-first")))
    section = text(f'onnx {{ file: "{path}" {fields} }}')
    brought = bench.run(f"{label}-brought", section)
    near = lambda a, b: abs(a - b) <= limit * max(abs(a), abs(b))
    bench.expect(len(built) == 6 and all(s == t and near(a, b) for (s, a), (t, b) in zip(brought, built, strict=True)),
                 f"{label}: losses {brought} and {built}")
    for ranks, stage in ((2, 1), (4, 3)):
        again = bench.run(f"{label}-{ranks}", section, "--set", f"comm.zero_stage={stage}", ranks=ranks)
        bench.expect(again == brought, f"{label}: losses on {ranks} ranks, ZeRO stage {stage}")
    bench.run(f"{label}-stopped", section, "--max-steps", "3")
    bench.run(f"{label}-stopped", section, "--resume", "auto")
    last = bench.weights(f"{label}-brought")
    for name in (f"{label}-2", f"{label}-4", f"{label}-stopped"):
        bench.expect(bench.weights(name) == last, f"{name}: other weights")
    written = bench.folder / f"{label}-trained.onnx"
    done = lockstep_run.run(bench.binary, ["export", bench.folder / f"{label}-brought", "--format", "onnx", "--out", written], ranks=0)
    bench.expect(done.returncode == 0, f"{label}: export: {done.stdout}{done.stderr}")
    bench.run(f"{label}-again", text(f'onnx {{ file: "{written}" {fields} }}'), "--max-steps", "1", "--set", "schedule.lr=1e-30")
    bench.expect(bench.weights(f"{label}-again") == last, f"{label}: the file that export wrote has other weights")
    built_last = bench.weights(f"{label}-built")
    same = last.keys() == built_last.keys() and all(
        abs(a - b) <= 1e3 * limit for n in last for a, b in zip(sorted(last[n][1]), sorted(built_last[n][1]), strict=True))
    bench.expect(same, f"{label}: weights that differ from those of the network built in")
    if not fields:  # the exported file needs others than the file that was brought
        compare_export(bench, label, text, network)


def compare_export(bench, label, text, network):
    """The file of the network built in, beside the network that begins with the same weights."""
    built, written = bench.folder / f"{label}-built", bench.folder / f"{label}-exported.onnx"
    done = lockstep_run.run(bench.binary, ["export", built, "--format", "onnx", "--out", written], ranks=0)
    bench.expect(done.returncode == 0, f"{label}: export: {done.stdout}{done.stderr}")
    still = ("--max-steps", "1", "--set", "schedule.lr=1e-30")
    wanted = bench.run(f"{label}-kept", text(network), *still, "--set", f"train.init_from={bench.folder / f'{label}-built.safetensors'}")
    found = bench.run(f"{label}-exported", text(f'onnx {{ file: "{written}" }}'), *still)
    if found is None or wanted is None:
        return
    bench.expect(abs(found[0][1] - wanted[0][1]) <= 1e-6 * wanted[0][1], f"{label}: exported: {found}, {wanted}")
    bench.expect(bench.weights(f"{label}-exported") == bench.weights(f"{label}-built"), f"{label}: other weights in the exported file")
    compare_with_onnxruntime(bench, label, written, network)


def compare_with_onnxruntime(bench, label, written, network):
    """The file alone, in ONNX Runtime, beside `lockstep predict`."""
    try:
        import numpy
        import onnx
        import onnxruntime
    except ImportError:
        print(f"{label}: onnxruntime is skipped, because numpy, onnx and onnxruntime are not installed")
        return
    onnx.checker.check_model(onnx.load(written), full_check=True)
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    name, shape = session.get_inputs()[0].name, session.get_inputs()[0].shape
    images = len(shape) == 4
    draw = numpy.random.default_rng(1)
    samples = draw.integers(0, 256, (7, *shape[2:], shape[1]), numpy.uint8) if images else draw.normal(size=(7, *shape[1:])).astype("f")
    numpy.save(bench.folder / f"{label}-x.npy", samples)
    numpy.save(bench.folder / f"{label}-y.npy", numpy.arange(7, dtype=numpy.int32) % 4)
    files = " ".join(f'{part}_inputs: "{label}-x.npy" {part}_labels: "{label}-y.npy"' for part in ("train", "eval"))
    config, out = bench.folder / f"{label}-predict.textproto", bench.folder / f"{label}-predict.safetensors"
    config.write_text(f'model {{ {network} }}\ndata {{ dir: "{bench.folder}" npy {{ {files} }} }}\n{REST}')
    done = lockstep_run.run(bench.binary, ["predict", config, "--checkpoint", bench.folder / f"{label}-built", "--out", out], ranks=0)
    bench.expect(done.returncode == 0, f"{label}: predict: {done.stdout}{done.stderr}")
    extents, values = safetensors(out)["output"]
    given = ((samples / 255 - 0.5) / 0.5).transpose(0, 3, 1, 2).astype("f") if images else samples
    found = session.run(["output"], {name: given})[0]
    bench.expect(numpy.abs(found - numpy.reshape(values, extents)).max() <= 1e-5, f"{label}: onnxruntime: {found} and {values}")


def refusals(bench):
    text = lambda fields, data=CASES["mlp"][1]: f"model {{ onnx {{ {fields} }} }}\ndata {{ {data} }}\n{REST}"
    bench.refused(["model.onnx.file"], text(""))
    bench.refused(["nowhere.onnx"], text('file: "nowhere.onnx"'))
    (bench.folder / "no.onnx").write_bytes(b"no network at all")
    bench.refused(["no.onnx"], text(f'file: "{bench.folder / "no.onnx"}"'))
    good = bench.folder / "mlp.onnx"
    bench.refused(["model.onnx.output", "y"], text(f'file: "{good}" output: "z"'))
    bench.refused(["6 features", "7"], text(f'file: "{good}"', "synthetic { samples: 64 features: 7 classes: 4 }"))
    unknown = bench.folder / "unknown.onnx"
    unknown.write_bytes(model([node("Gemm", ["x", "w"], ["h"], transB=1), node("Det", ["h"], ["y"])], {"w": ([4, 6], [0.5] * 24)},
                              [("x", ["batch", 6])], ("y", ["batch", 4])))
    bench.refused(["Det of y", "opset 17"], text(f'file: "{unknown}"'))
    shared = bench.folder / "shared.onnx"
    shared.write_bytes(model([node("Gemm", ["x", "v", "b"], ["h"], transB=1), node("Gemm", ["h", "w", "b"], ["y"], transB=1)],
                             {"v": ([4, 6], [0.1 * i for i in range(24)]), "w": ([4, 4], [0.1 * i for i in range(16)]), "b": ([4], [0.0] * 4)},
                             [("x", ["batch", 6])], ("y", ["batch", 4])))
    bench.refused(["\"b\"", "allow_shared"], text(f'file: "{shared}"'))
    images = lambda nodes, weights, name: (bench.folder / name).write_bytes(
        model(nodes + [node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)], weights,
              [("x", ["batch", 1, 28, 28])], ("y", ["batch", 5])))
    pool = lambda kernel, pads: [node("MaxPool", ["x"], ["p"], kernel_shape=kernel, strides=[28, 28], pads=pads)]
    for name, nodes, outputs, part in (("large", pool([17, 17], [0] * 4), 1, "289 pixels"),
                                       ("outside", pool([2, 2], [2, 0, 0, 0]), 2, "pads")):
        images(nodes, {"w": ([5, outputs], [0.1] * 5 * outputs)}, f"{name}.onnx")
        bench.refused([part, "MaxPool of p"], text(f'file: "{bench.folder / name}.onnx"', CASES["lenet"][1]))
    norm = lambda x, y: node("LayerNormalization", [x, "g", "b"], [y])
    twice = bench.folder / "twice.onnx"
    twice.write_bytes(model([norm("x", "h"), norm("h", "i"), node("Gemm", ["i", "w"], ["y"], transB=1)],
                            {"g": ([6], [1.0] * 6), "b": ([6], [0.0] * 6), "w": ([4, 6], [0.1 * i for i in range(24)])},
                            [("x", ["batch", 6])], ("y", ["batch", 4])))
    bench.refused(["allow_shared"], text(f'file: "{twice}"'))
    for name, file in (("biases", shared), ("gains", twice)):
        done = bench.run(f"allowed-{name}", text(f'file: "{file}" allow_shared: true'))
        bench.expect(done is not None and len(done) == 6, f"shared {name} that are allowed")


def seeded(extents, seed):
    """Numbers in [-0.5, 0.5] that do not repeat."""
    count = 1
    for extent in extents:
        count *= extent
    return extents, [((i * 7919 + seed * 104729) % 10007) / 10007 - 0.5 for i in range(count)]


def scaled_file():
    """Blocks of images scaled by what they are like on the whole, tokens that attend to each other, and a second
    head that is not trained."""
    weights = {"stem": seeded([6, 3, 3, 3], 1), "squeeze": seeded([2, 6, 1, 1], 2), "expand": seeded([6, 2, 1, 1], 3),
               "scale": seeded([6, 1, 1], 4), "q": seeded([6, 6], 5), "k": seeded([6, 6], 6), "v": seeded([6, 6], 7),
               "places": seeded([16, 6], 8), "head": seeded([5, 6], 9), "other": seeded([2, 6], 10)}
    nodes = [node("Conv", ["x", "stem"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
             node("HardSwish", ["c"], ["h"]),
             node("GlobalAveragePool", ["h"], ["g"]), node("Conv", ["g", "squeeze"], ["s"]), node("Relu", ["s"], ["r"]),
             node("Conv", ["r", "expand"], ["e"]), node("HardSigmoid", ["e"], ["w"], alpha=1 / 6, beta=0.5),
             node("Mul", ["h", "w"], ["m"]), node("Mul", ["scale", "m"], ["l"]), node("Add", ["l", "h"], ["a"]),
             node("Reshape", ["a", "rows"], ["f"]), node("Transpose", ["f"], ["t"], perm=[0, 2, 1]), node("Add", ["t", "places"], ["i"])]
    nodes += [node("MatMul", ["i", part], [f"{part}i"]) for part in "qkv"]
    nodes += [node("Transpose", ["ki"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["qi", "kt"], ["qk"]), node("Softmax", ["qk"], ["p"]),
              node("MatMul", ["p", "vi"], ["o"]), node("ReduceMean", ["o"], ["n"], axes=[1], keepdims=0),
              node("Gemm", ["n", "head"], ["y"], transB=1), node("Gemm", ["n", "other"], ["z"], transB=1)]
    rows = field(1, 3) + field(2, INT64) + field(8, "rows") + field(9, struct.pack("<3q", 0, 6, 16))
    content = model(nodes, weights, [("x", ["batch", 3, 8, 8])], ("y", ["batch", 5]), ("z", ["batch", 2]))
    return content + field(7, field(5, rows))  # a message in two parts is one


def train_alone(bench):
    """A network that no family has."""
    path = bench.folder / "scaled.onnx"
    path.write_bytes(scaled_file())
    text = (f'model {{ onnx {{ file: "{path}" output: "y" }} }}\n'
            f"data {{ synthetic {{ samples: 64 height: 8 width: 8 channels: 3 classes: 5 }} }}\n{REST}")
    losses = bench.run("scaled", text)
    bench.expect(losses is not None and len(losses) == 6 and losses[-1] != losses[0], f"scaled: losses {losses}")
    for name, arguments, ranks in (("scaled-two", [], 2), ("scaled-threads", ["--set", "execution.threads=2"], 0)):
        bench.expect(bench.run(name, text, *arguments, ranks=ranks) == losses, f"{name}: other losses")
        bench.expect(bench.weights(name) == bench.weights("scaled"), f"{name}: other weights")
    last = bench.weights("scaled")
    bench.expect("other" not in last and len(last) == 9, f"scaled: trains {sorted(last)}")
    bench.run("scaled-first", text, "--max-steps", "1", "--set", "schedule.lr=1e-30")
    first = bench.weights("scaled-first")
    for name in last:
        bench.expect(last[name] != first[name], f"scaled: {name} has not learned")


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        for label, case in CASES.items():
            compare(bench, label, *case)
        train_alone(bench)
        refusals(bench)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
