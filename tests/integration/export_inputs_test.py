#!/usr/bin/env python3
"""Exports used from their own metadata alone.

    export_inputs_test.py LOCKSTEP

Trains small networks of pictures, tables and texts, exports them, and predicts the evaluation data with
nothing but the exported file: the accuracy must be that of `lockstep eval`. Linear networks are computed
here. With onnxruntime the ONNX files are run too, with and without their preprocessing in the graph, and
with transformers the folders.

Catches: an export without statistics, sizes, names of classes or tokenizer, or with others than the run
used; nodes in the graph that compute something else; and a checkpoint without these facts that is refused.
"""
import csv
import io
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden" / "checkpoints"))
import corpus
from exported_files import by_metadata, idx, inputs_of, metadata_of, png, safetensors, session_of
from onnx_train_test import INT64, model, node

TRAIN = ("train {{ global_batch: 16 lanes: 2 steps: {steps} }} optimizer {{ adamw {{}} }} "
         "schedule {{ lr: {rate} }} checkpoint {{ at_end: true async: false }} "
         "output {{ tensorboard: false }}")


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def run(self, *arguments, code=0):
        done = subprocess.run([self.binary, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def train(self, name, text, steps=60, rate=0.02):
        """The result of `eval` after the training."""
        config = self.folder / f"{name}.textproto"
        config.write_text(text + TRAIN.format(steps=steps, rate=rate))
        self.run("train", config, "--run-dir", name)
        self.run("eval", config, "--checkpoint", name, "--json", f"{name}.json")
        return json.loads((self.folder / f"{name}.json").read_text())

    def export(self, name, out, *arguments, code=0):
        return self.run("export", name, "--out", out, *arguments, code=code)


def linear(x, tensors):
    bias = tensors["b"]
    return [b + sum(w * v for w, v in zip(tensors["w"][i * len(x):], x)) for i, b in enumerate(bias)]


def argmax(values):
    return max(range(len(values)), key=lambda i: values[i])


def linear_file(bench, name, extents, outputs, flatten=False):
    features = 1
    for extent in extents:
        features *= extent
    draw = random.Random(5)
    weights = {"w": ([outputs, features], [draw.gauss(0, 0.05) for _ in range(outputs * features)]),
               "b": ([outputs], [0.0] * outputs)}
    nodes = [node("Flatten", ["x"], ["f"])] if flatten else []
    nodes.append(node("Gemm", ["f" if flatten else "x", "w", "b"], ["y"], transB=1))
    path = bench.folder / name
    path.write_bytes(model(nodes, weights, [("x", ["batch", *extents])], ("y", ["batch", outputs])))
    return path


def near(result, accuracy, what):
    assert abs(result["eval_accuracy"] - accuracy) < 1e-6, f"{what}: {accuracy}, but eval has {result['eval_accuracy']}"


def images(bench):
    """Stored pictures of 6 x 4 pixels, whose normalisation is not the default one."""
    draw = random.Random(1)
    sets = {}
    for part in ("train", "eval"):
        labels = [draw.randrange(3) for _ in range(160)]
        rows = [[draw.randrange(150) + (35 if i % 3 == label else 0) for i in range(24)] for label in labels]
        idx(bench.folder / f"{part}.images", [len(rows), 6, 4], sum(rows, []))
        idx(bench.folder / f"{part}.labels", [len(labels)], labels)
        sets[part] = rows, labels
    rows, labels = sets["eval"]
    data = ('data { idx { train_images: "train.images" train_labels: "train.labels" '
            'eval_images: "eval.images" eval_labels: "eval.labels" mean: 0.3 std: 0.2 } } ')
    for name, extents in (("pictures", (1, 6, 4)), ("features", (24,))):
        path = linear_file(bench, f"{name}-net.onnx", extents, 3, flatten=len(extents) > 1)
        result = bench.train(name, f'model {{ onnx {{ file: "{path}" }} }} {data}', steps=12)
        assert 0.4 < result["eval_accuracy"] < 1, result
        log = bench.export(name, f"{name}.onnx", "--format", "onnx")
        line = f"{name}.onnx: preprocessing in its metadata: pixels / 255, mean 0.3, std 0.2, 6 x 4, 3 classes"
        assert line in log.splitlines(), log
        found = metadata_of(bench.folder / f"{name}.onnx")
        assert found["image_mean"] == [0.3] and found["image_std"] == [0.2], found
        assert found["crop_size"] == {"height": 6, "width": 4} and found["do_center_crop"] is False, found
        assert found["data_format"] == ("channels_first" if len(extents) > 1 else "channels_last"), found
        bench.export(name, f"{name}.safetensors")
        tensors, metadata = safetensors(bench.folder / f"{name}.safetensors")
        assert json.loads(metadata["image_mean"]) == [0.3], metadata
        mean, std, factor = found["image_mean"][0], found["image_std"][0], found["rescale_factor"]
        inputs = [[(byte * factor - mean) / std for byte in row] for row in rows]
        right = sum(argmax(linear(x, tensors)) == label for x, label in zip(inputs, labels))
        near(result, right / len(labels), name)
        log = bench.export(name, f"{name}-raw.onnx", "--format", "onnx", "--with-preprocessing")
        assert "in its graph, which takes pixels (N, 6, 4, 1) uint8: " in log and inputs_of(bench.folder / f"{name}-raw.onnx") == ["pixels"], log
        found = metadata_of(bench.folder / f"{name}-raw.onnx")
        assert not found["do_rescale"] and not found["do_normalize"], found
        assert found["data_format"] == "channels_last", found
        if session := session_of(bench.folder / f"{name}.onnx"):
            import numpy
            x = numpy.array(inputs, numpy.float32).reshape(-1, *extents)
            near(result, (session.run(None, {"x": x})[0].argmax(1) == labels).mean(), name)
            session = session_of(bench.folder / f"{name}-raw.onnx")
            x = numpy.array(rows, numpy.uint8).reshape(-1, 6, 4, 1)
            near(result, (session.run(None, {"pixels": x})[0].argmax(1) == labels).mean(), f"{name}, pixels")
    family(bench, data, rows, labels)


def family(bench, data, rows, labels):
    """A network that has no file of its own: its export is read again here, and with its pixels by onnxruntime."""
    network = "vit { layers: 1 heads: 2 width: 16 mlp_width: 16 patch: 2 }"
    result = bench.train("family", f"model {{ {network} }} {data}")
    assert 0.4 < result["eval_accuracy"] < 1, result
    log = bench.export("family", "family.onnx", "--format", "onnx")
    assert "pixels / 255, mean 0.3, std 0.2, 6 x 4, 3 classes" in log, log
    again = bench.train("again", f'model {{ onnx {{ file: "{bench.folder}/family.onnx" }} }} {data}', steps=1, rate=1e-30)
    near(again, result["eval_accuracy"], "family, read again")
    bench.export("family", "family-raw.onnx", "--format", "onnx", "--with-preprocessing")
    assert inputs_of(bench.folder / "family-raw.onnx") == ["pixels"]
    assert not list(bench.folder.glob("*.plain")), "a file is left over"
    if session := session_of(bench.folder / "family-raw.onnx"):
        import numpy
        x = numpy.array(rows, numpy.uint8).reshape(-1, 6, 4, 1)
        near(result, (session.run(["output"], {"pixels": x})[0].argmax(1) == labels).mean(), "family, pixels")


def row_of(draw):
    size, kind = draw.gauss(5, 3), draw.choice("abc")
    price = 3 * size + {"a": 40, "b": 0, "c": -20}[kind] + draw.gauss(0, 10)
    return ["" if draw.random() < 0.1 else f"{size:.3f}", "?" if draw.random() < 0.1 else kind,
            f"{draw.gauss(1e6, 10):.2f}", "dear" if price > 20 else "cheap", f"{price:.2f}"]


def columns_of(found, row):
    """The network's inputs, by the metadata alone."""
    x = []
    for column in found["columns"]:
        cell = row[column["name"]]
        missing = cell in found["missing_values"]
        if column["kind"] == "categorical":
            names = column["categories"]
            slot = names.index(cell) if not missing and cell in names else len(names)
            x += [float(i == slot) for i in range(len(names) + 1)]
        else:
            x.append(0.0 if missing else (float(cell) - column["mean"]) / column["std"])
            x += [float(missing)] if column["missing_indicator"] else []
    return x


def raw_columns(found, rows):
    import numpy

    def cell(column, row):
        value = row[column["name"]]
        missing = value in found["missing_values"]
        if column["kind"] == "categorical":
            return "" if missing else value
        return float("nan") if missing else float(value)

    types = {"categorical": object, "numeric": numpy.float64}
    return {column["name"]: numpy.array([[cell(column, row)] for row in rows], types[column["kind"]])
            for column in found["columns"]}


def tables(bench):
    draw = random.Random(2)
    header = ["size", "kind", "serial", "level", "price"]
    for part in ("train", "eval"):
        lines = [header] + [row_of(draw) for _ in range(200)]
        if part == "eval":
            lines[5][1] = "unknown"
        with open(bench.folder / f"{part}.csv", "w", newline="") as file:
            csv.writer(file).writerows(lines)
    rows = list(csv.DictReader(io.StringIO((bench.folder / "eval.csv").read_text())))
    data = 'data {{ table {{ train: "train.csv" eval: "eval.csv" target: "{}" ignore: "{}" {} }} }} '
    features = 2 + 4 + 1

    path = linear_file(bench, "level-net.onnx", (features,), 2)
    result = bench.train("level", f'model {{ onnx {{ file: "{path}" }} }} ' + data.format("level", "price", ""))
    log = bench.export("level", "level.onnx", "--format", "onnx")
    assert "2 numeric columns standardised, 1 categorical one-hot, target level, 2 classes" in log, log
    found = metadata_of(bench.folder / "level.onnx")
    assert found["id2label"] == {"0": "cheap", "1": "dear"} and found["function_to_apply"] == "softmax", found
    bench.export("level", "level.safetensors")
    tensors, _ = safetensors(bench.folder / "level.safetensors")
    names = [found["id2label"][str(argmax(linear(columns_of(found, row), tensors)))] for row in rows]
    right = sum(name == row[found["target"]["name"]] for name, row in zip(names, rows))
    near(result, right / len(rows), "table")
    bench.export("level", "level-raw.onnx", "--format", "onnx", "--with-preprocessing")
    assert inputs_of(bench.folder / "level-raw.onnx") == ["size", "kind", "serial"]
    if session := session_of(bench.folder / "level-raw.onnx"):
        scores = session.run(None, raw_columns(found, rows))[0]
        right = [found["id2label"][str(i)] == row["level"] for i, row in zip(scores.argmax(1), rows)]
        near(result, sum(right) / len(rows), "table, columns")

    path = linear_file(bench, "price-net.onnx", (features,), 1)
    result = bench.train("price", f'model {{ onnx {{ file: "{path}" loss: MEAN_SQUARED_ERROR }} }} ' +
                         data.format("price", "level", "standardise_target: true"))
    bench.export("price", "price.onnx", "--format", "onnx")
    found = metadata_of(bench.folder / "price.onnx")
    assert "id2label" not in found and "function_to_apply" not in found, found
    bench.export("price", "price.safetensors")
    tensors, _ = safetensors(bench.folder / "price.safetensors")
    target = found["target"]
    errors = [abs(linear(columns_of(found, row), tensors)[0] * target["std"] + target["mean"] - float(row["price"]))
              for row in rows]
    error = result["eval_mean_absolute_error"]
    assert abs(sum(errors) / len(rows) - error) < 1e-4 * error, (sum(errors) / len(rows), result)
    bench.export("price", "price-raw.onnx", "--format", "onnx", "--with-preprocessing")
    if session := session_of(bench.folder / "price-raw.onnx"):
        prices = session.run(["price"], raw_columns(found, rows))[0][:, 0]
        mean = sum(abs(p - float(row["price"])) for p, row in zip(prices, rows)) / len(rows)
        assert abs(mean - error) < 1e-4 * error, (mean, result)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(30)]


def write_texts(bench):
    """Texts of one to five words; of a "low" one most words are from the first half."""
    draw = random.Random(3)
    (bench.folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    sets = {}
    for part in ("train", "eval"):
        rows = []
        for _ in range(150):
            label = draw.choice(["high", "low"])
            words = [WORDS[5 + (draw.randrange(20) + (10 if label == "high" else 0))]
                     for _ in range(draw.randrange(1, 6))]
            rows.append((" ".join(words), label))
        (bench.folder / f"{part}-texts.csv").write_text("text,label\n" + "".join(f"{t},{l}\n" for t, l in rows))
        sets[part] = rows
    return sets["eval"]


TEXTS = 'data { labelled_text { train: "train-texts.csv" eval: "eval-texts.csv" tokenizer: "words.txt" } } '


def texts(bench):
    rows = write_texts(bench)
    draw, width, length = random.Random(4), 8, 8
    weights = {"table": ([len(WORDS), width], [draw.gauss(0, 0.3) for _ in range(len(WORDS) * width)]),
               "w": ([2, width], [draw.gauss(0, 0.3) for _ in range(2 * width)]), "b": ([2], [0.0, 0.0])}
    nodes = [node("Gather", ["table", "input_ids"], ["e"]),
             node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0),
             node("Gemm", ["m", "w", "b"], ["y"], transB=1)]
    path = bench.folder / "texts-net.onnx"
    path.write_bytes(model(nodes, weights, [("input_ids", ["batch", length], INT64)], ("y", ["batch", 2])))
    result = bench.train("texts", f'model {{ onnx {{ file: "{path}" task: SEQUENCE_CLASSES }} }} {TEXTS}')
    assert 0.6 < result["eval_accuracy"] < 1, result
    log = bench.export("texts", "texts.onnx", "--format", "onnx")
    assert "tokens by vocab.txt, up to 8, 2 classes" in log, log
    found = metadata_of(bench.folder / "texts.onnx")
    words = found["vocab.txt"].split("\n")[:-1]
    assert words == WORDS and found["model_max_length"] == 8, found

    def tokens(text):
        ids = [words.index(word) for word in ["[CLS]", *text.split(), "[SEP]"]]
        return ids + [words.index("[PAD]")] * (found["model_max_length"] - len(ids))

    bench.export("texts", "texts.safetensors")
    tensors, metadata = safetensors(bench.folder / "texts.safetensors")
    assert metadata["vocab.txt"] == found["vocab.txt"]
    right = 0
    for text, label in rows:
        vectors = [tensors["table"][t * width:(t + 1) * width] for t in tokens(text)]
        mean = [sum(column) / length for column in zip(*vectors)]
        right += found["id2label"][str(argmax(linear(mean, tensors)))] == label
    near(result, right / len(rows), "texts")
    message = bench.export("texts", "raw.onnx", "--format", "onnx", "--with-preprocessing", code=2)
    assert "--with-preprocessing: ONNX has no nodes that make tokens" in message, message
    bench.export("texts", "texts-folder", "--format", "onnx")
    written = sorted(path.name for path in (bench.folder / "texts-folder").iterdir())
    assert written == ["config.json", "model.onnx", "vocab.txt"], written
    if session := session_of(bench.folder / "texts-folder/model.onnx"):
        import numpy
        scores = session.run(None, {"input_ids": numpy.array([tokens(text) for text, _ in rows])})[0]
        right = [found["id2label"][str(i)] == label for i, (_, label) in zip(scores.argmax(1), rows)]
        near(result, sum(right) / len(rows), "texts, onnxruntime")


def bert(bench):
    """A folder of a model that began from scratch, with the tokenizer of the data."""
    rows = write_texts(bench)
    result = bench.train("bert", 'model { bert { layers: 1 heads: 2 width: 16 mlp_width: 32 context: 8 '
                         f'dropout: 0 attention_dropout: 0 task: SEQUENCE_CLASSES }} }} {TEXTS}', steps=40)
    bench.export("bert", "bert-folder", "--format", "huggingface")
    folder = bench.folder / "bert-folder"
    assert (folder / "vocab.txt").read_text().split() == WORDS
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 8
    try:
        import transformers
    except ImportError as error:
        print(f"skipped for {folder.name}: {error}")
        return
    classify = transformers.pipeline("text-classification", str(folder))
    answers = classify([text for text, _ in rows], truncation=True)
    near(result, sum(a["label"] == label for a, (_, label) in zip(answers, rows)) / len(rows), "bert")


def files(bench):
    """Pictures of other sizes than the network's, through PIL and through AutoImageProcessor."""
    draw, labels = random.Random(6), ["blue", "green", "red"]
    for part, count in (("train", 12), ("val", 20)):
        for number, name in enumerate(labels):
            folder = bench.folder / "pictures" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                width, height = draw.randrange(14, 30), draw.randrange(14, 30)
                base = [draw.randrange(60, 160) for _ in range(3)]
                base[2 - number] += 25
                pixels = [min(255, c + draw.randrange(40)) for _ in range(width * height) for c in base]
                png(folder / f"{i}.png", width, height, pixels)
    data = 'data { image_folder { train: "pictures/train" eval: "pictures/val" } image { size: 12 resize: 14 } } '
    path = linear_file(bench, "files-net.onnx", (3, 12, 12), 3, flatten=True)
    result = bench.train("files", f'model {{ onnx {{ file: "{path}" }} }} {data}', steps=8, rate=0.002)
    log = bench.export("files", "files-folder", "--format", "onnx")
    assert "shorter side 14, centre 12 x 12, 3 classes" in log and "preprocessor_config.json" in log, log
    folder = bench.folder / "files-folder"
    found = metadata_of(folder / "model.onnx")
    assert json.loads((folder / "preprocessor_config.json").read_text())["size"] == {"shortest_edge": 14}
    assert json.loads((folder / "config.json").read_text())["label2id"] == {"blue": 0, "green": 1, "red": 2}
    bench.export("files", "files-raw.onnx", "--format", "onnx", "--with-preprocessing")
    pictures = [(path, number) for number, name in enumerate(labels)
                for path in sorted((bench.folder / "pictures/val" / name).iterdir())]
    vit = bench.train("vit", 'model { vit { layers: 1 heads: 2 width: 16 mlp_width: 32 patch: 4 } } ' + data,
                      steps=12, rate=0.003)
    bench.export("vit", "vit-folder", "--format", "huggingface")
    written = json.loads((bench.folder / "vit-folder/preprocessor_config.json").read_text())
    assert written["size"] == {"shortest_edge": 14} and written["do_center_crop"], written
    try:
        import numpy
        import PIL.Image
    except ImportError as error:
        print(f"skipped for pictures: {error}")
        return
    raw = {**found, **metadata_of(bench.folder / "files-raw.onnx")}
    for file, name, facts in ((folder / "model.onnx", "x", found), (bench.folder / "files-raw.onnx", "pixels", raw)):
        if session := session_of(file):
            x = numpy.stack([by_metadata(facts, path) for path, _ in pictures])
            scores = session.run(None, {name: x})[0]
            near(result, (scores.argmax(1) == [number for _, number in pictures]).mean(), file.name)
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped for vit-folder: {error}")
        return
    process = transformers.AutoImageProcessor.from_pretrained(bench.folder / "vit-folder")
    network = transformers.AutoModelForImageClassification.from_pretrained(bench.folder / "vit-folder")
    x = process([PIL.Image.open(path) for path, _ in pictures], return_tensors="pt")
    with torch.no_grad():
        names = [network.config.id2label[int(i)] for i in network(**x).logits.argmax(1)]
    near(vit, sum(name == labels[number] for name, (_, number) in zip(names, pictures)) / len(names), "vit")


def others(bench):
    """What cannot be put into a graph, and a checkpoint that has nothing of it."""
    message = bench.export("features", "x.safetensors", "--with-preprocessing", code=2)
    assert "--with-preprocessing: allowed: only with --format onnx" in message, message
    old = corpus.HERE / "44bad6b" / "images"
    shutil.copytree(old, bench.folder / "old")
    log = bench.export("old", "old.safetensors")
    assert "old.safetensors: preprocessing unknown: " in log and "older version wrote it" in log, log


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        for case in (images, tables, texts, bert, files, others):
            case(bench)
            print(f"{case.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
