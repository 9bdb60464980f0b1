#!/usr/bin/env python3
"""What folders of Hugging Face and a run's data say of each other: names of classes, images, lengths.

    huggingface_data_test.py LOCKSTEP

Catches: an exported classifier that names classes as the folder did that it began from, images that a
fine-tuned network sees otherwise than the folder's first one did without a word, an export whose
preprocessor or tokenizer does not fit its network, defaults of transformers taken for what a folder says.
"""
import json
import pathlib
import sys
import tempfile

from huggingface_folders import Bench

TRAIN = ('train { global_batch: 8 lanes: 2 steps: 2 } optimizer { sgd {} } schedule { lr: 0.1 } '
         'checkpoint { at_end: true }')
CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}
POLARITY = {"0": "POSITIVE", "1": "NEGATIVE"}


def write(bench, name, text):
    path = bench.folder / name
    path.write_text(text)
    return path


def new_name(bench, stem):
    return f"{stem}-{len(list(bench.folder.iterdir()))}"


def read_json(path):
    return json.loads(path.read_text())


def fine_tune(bench, model, data):
    """The log, the run's folder and that of its export."""
    config = write(bench, new_name(bench, "config") + ".textproto",
                   f'name: "data" model {{ {model} }} data {{ {data} }} {TRAIN}')
    run, out = new_name(bench, "run"), new_name(bench, "out")
    log = bench.run("train", config, "--device", "cpu", "--run-dir", run)
    log += bench.run("export", run, "--format", "huggingface", "--out", out)
    return log, bench.folder / run, bench.folder / out


def bert(bench, **fields):
    folder = bench.make("bert", **fields)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(59)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"do_lower_case": True, "model_max_length": 16, "tokenizer_class": "BertTokenizer"}))
    return folder


def texts(bench, *labels):
    lines = [f"w{i} w{i + 1},{labels[i % len(labels)]}" for i in range(16)]
    path = write(bench, new_name(bench, "texts") + ".csv", "\n".join(["text,label"] + lines) + "\n")
    return f'labelled_text {{ train: "{path}" }}'


def test_an_export_names_the_classes_of_the_data(bench):
    folder = bert(bench, **CLASSIFIER, id2label=POLARITY, label2id={"POSITIVE": 0, "NEGATIVE": 1})
    log, _, out = fine_tune(bench, f'from: "{folder}"', texts(bench, "pos", "neg"))
    assert ("id2label names the classes 'POSITIVE', 'NEGATIVE'; the data names them 'neg', 'pos'"
            in log), log
    written = read_json(out / "config.json")
    assert written["id2label"] == {"0": "neg", "1": "pos"}, written
    assert written["label2id"] == {"neg": 0, "pos": 1}, written
    # As the folder does: nothing is to be said.
    log, _, again = fine_tune(bench, f'from: "{out}"', texts(bench, "pos", "neg"))
    assert "id2label" not in log, log
    assert read_json(again / "config.json")["id2label"] == {"0": "neg", "1": "pos"}
    # A class that the data do not have.
    _, _, out = fine_tune(bench, f'from: "{folder}" bert {{ classes: 3 }}',
                          texts(bench, "pos", "neg"))
    assert read_json(out / "config.json")["id2label"] == {"0": "neg", "1": "pos", "2": "LABEL_2"}


def test_names_of_the_folder_stay_where_the_data_have_none(bench):
    folder = bert(bench, **CLASSIFIER, id2label=POLARITY)
    log, _, out = fine_tune(bench, f'from: "{folder}"', texts(bench, "0", "1"))
    assert "names the classes" not in log, log
    assert f"id2label of config.json is that of {folder}" in log, log
    assert read_json(out / "config.json")["id2label"] == POLARITY


def test_an_export_names_the_tags_of_the_data(bench):
    folder = bert(bench, architectures=["BertForTokenClassification"], id2label=POLARITY)
    words = write(bench, "words.txt",
                  "".join(f"w{i} {tag}\n\n" for i, tag in enumerate(["B-PER", "O"] * 8)))
    log, _, out = fine_tune(bench, f'from: "{folder}"',
                            f'tagged_text {{ train: "{words}" word: 0 tag: 1 }}')
    assert "the data names them 'B-PER', 'O'" in log, log
    assert read_json(out / "config.json")["id2label"] == {"0": "B-PER", "1": "O"}


def test_the_tokenizer_of_a_shorter_context_cuts_to_it(bench):
    folder = bert(bench, **CLASSIFIER)
    whole = (folder / "tokenizer_config.json").read_bytes()
    _, _, out = fine_tune(bench, f'from: "{folder}"', texts(bench, "no", "yes"))
    assert (out / "tokenizer_config.json").read_bytes() == whole
    log, _, out = fine_tune(bench, f'from: "{folder}" bert {{ context: 12 }}',
                            texts(bench, "no", "yes"))
    assert "tokenizer_config.json (with model_max_length lowered to 12)" in log, log
    shorter = read_json(out / "tokenizer_config.json")
    assert shorter == {**json.loads(whole), "model_max_length": 12}, shorter


IMAGES = "synthetic { samples: 32 height: 16 width: 16 classes: 3 }"


def vit(bench, **preprocessor):
    """A folder whose preprocessor_config.json has these fields."""
    config = write(bench, "vit.textproto",
                   f'name: "vit" model {{ vit {{ layers: 1 heads: 2 width: 8 mlp_width: 16 patch: 4 }} }}'
                   f' data {{ {IMAGES} }} {TRAIN}')
    run, out = new_name(bench, "run"), new_name(bench, "vit")
    bench.run("train", config, "--device", "cpu", "--run-dir", run)
    bench.run("export", run, "--format", "huggingface", "--out", out)
    folder = bench.folder / out
    written = read_json(folder / "preprocessor_config.json")
    assert written["image_mean"] == [0.485, 0.456, 0.406], written
    assert written["image_std"] == [0.229, 0.224, 0.225], written
    assert written["size"] == {"height": 16, "width": 16}, written
    assert written["image_processor_type"] == "ViTImageProcessor" and written["do_rescale"], written
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return folder


def numbers_of(text, name):
    return [float(line.split(":")[1].split("#")[0].strip(" []").split(",")[0])
            for line in text.splitlines() if line.strip().startswith(f"{name}:")]


def test_images_are_normalised_as_the_folder_says(bench):
    folder = vit(bench, image_mean=[0.5] * 3, image_std=[0.25] * 3, size=224, crop_size=224,
                 do_center_crop=False)
    log, run, out = fine_tune(bench, f'from: "{folder}"', IMAGES)
    assert "normalises images with mean 0.5 0.5 0.5, std 0.25 0.25 0.25; the run with the same" in log, log
    kept = (run / "config.textproto").read_text()
    assert numbers_of(kept, "mean") == [0.5] and numbers_of(kept, "std") == [0.25], kept
    written = read_json(out / "preprocessor_config.json")
    assert written["image_mean"] == [0.5] * 3 and written["image_std"] == [0.25] * 3, written
    assert written["size"] == written["crop_size"] == {"height": 16, "width": 16}, written
    assert written["do_center_crop"] is False, written
    assert "preprocessor_config.json is that of" not in log, log
    # What the config gives goes first; one of the two may be the folder's.
    log, _, out = fine_tune(bench, f'from: "{folder}"', IMAGES + " image { mean: 0.125 }")
    assert "the run with mean 0.125 0.125 0.125, std 0.25 0.25 0.25" in log, log
    written = read_json(out / "preprocessor_config.json")
    assert written["image_mean"] == [0.125] * 3 and written["image_std"] == [0.25] * 3, written
    # A run's own config says what it saw, whatever becomes of the folder.
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.75] * 3}))
    kept = bench.run("config", "--defaults", run / "config.textproto")
    assert numbers_of(kept, "mean") == [0.5], kept


def test_what_a_preprocessor_may_say(bench):
    folder = vit(bench)
    config = write(bench, "images.textproto",
                   f'name: "images" model {{ from: "{folder}" }} data {{ {IMAGES} }} {TRAIN}')
    idx = write(bench, "idx.textproto",
                f'name: "idx" model {{ from: "{folder}" }} data {{ idx {{ train_images: "a" '
                f'train_labels: "b" }} }} {TRAIN}')
    for fields, mean, std in (
            ({}, 0.5, 0.5),
            ({"do_normalize": False, "image_mean": [0.1] * 3}, 0, 1),
            ({"image_mean": 0.25, "image_std": [0.125] * 3}, 0.25, 0.125),
            # In [-1, 1] before: twice as much is taken off, of numbers twice as large.
            ({"rescale_factor": 2 / 255, "image_mean": [1.0] * 3, "image_std": [1.0] * 3}, 0.5, 0.5),
            ({"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [51.0] * 3}, 0.5, 0.2)):
        (folder / "preprocessor_config.json").write_text(json.dumps(fields))
        for path in (config, idx):
            text = bench.run("config", "--defaults", path)
            assert numbers_of(text, "mean") == [mean], (fields, text)
            assert numbers_of(text, "std") == [std], (fields, text)
    for fields, words in (
            ({"rescale_factor": 0}, "field rescale_factor: value is 0; allowed: a number above 0"),
            ({"image_std": [0.5, 0.0, 0.5]}, "field image_std"),
            ({"image_mean": ["a"]}, "field image_mean"),
            ({"image_mean": []}, "field image_mean: value is []; allowed: a number for each channel"),
            ({"image_processor_type": "BeitImageProcessor"}, "field image_mean: value is missing"),
            ([], "it is not a JSON object")):
        (folder / "preprocessor_config.json").write_text(json.dumps(fields))
        message = bench.run("config", "--defaults", config, code=2)
        assert words in message and "preprocessor_config.json" in message, (words, message)
        assert len(message.strip().splitlines()) == 1, message


def test_classes_of_a_vit_without_labels(bench):
    """A body has as many as the data; a head that does not say it two, as transformers writes it."""
    folder = vit(bench)
    written = read_json(folder / "config.json")
    for fields, classes in (({"architectures": ["ViTModel"]}, 0),
                            ({"architectures": ["ViTModel"], "num_labels": 5}, 0),
                            ({"architectures": ["ViTForImageClassification"]}, 2),
                            ({"architectures": None}, 0),
                            ({"architectures": None, "num_labels": 5}, 5)):
        plain = {k: v for k, v in written.items() if k not in ("id2label", "label2id")}
        (folder / "config.json").write_text(json.dumps({**plain, **fields}))
        config = write(bench, "body.textproto",
                       f'name: "body" model {{ from: "{folder}" }} data {{ {IMAGES} }} {TRAIN}')
        text = bench.run("config", "--defaults", config)
        assert f"classes: {classes}" in text, (fields, text)
    (folder / "config.json").write_text(json.dumps({**plain, "architectures": ["ViTModel"]}))
    log, _, _ = fine_tune(bench, f'from: "{folder}"', IMAGES)
    assert "config.json has" not in log, log


def test_labels_that_transformers_cannot_read(bench):
    for labels in (["no", "yes"], {"no": "0", "yes": "1"}):
        folder = bench.make("bert", **CLASSIFIER, id2label=labels)
        message = bench.run("plan", bench.config("bert", f'from: "{folder}"'), code=2)
        assert "field id2label: value is" in message and "allowed: an object" in message, message


def test_a_problem_that_is_not_here_with_a_task_of_the_config(bench):
    folder = bert(bench, **CLASSIFIER, id2label=POLARITY, problem_type="multi_label_classification")
    config = bench.config("bert", f'from: "{folder}"')
    message = bench.run("plan", config, code=2)
    assert "field problem_type" in message and "model.bert.task" in message, message
    _, _, out = fine_tune(bench, f'from: "{folder}" bert {{ task: SEQUENCE_CLASSES classes: 2 }}',
                          texts(bench, "no", "yes"))
    written = read_json(out / "config.json")
    assert written["problem_type"] == "single_label_classification", written


def main():
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden"
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="lockstep-hf-data-") as folder:
            test(Bench(pathlib.Path(sys.argv[1]).resolve(), golden, pathlib.Path(folder)))
            print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
