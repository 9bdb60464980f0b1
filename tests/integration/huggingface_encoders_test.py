#!/usr/bin/env python3
"""Folders of BERT and RoBERTa: what their files are called, which task they are for, new heads.

    huggingface_encoders_test.py LOCKSTEP

Catches: names of older files that are not known, a task of the config that does not go before that of
config.json, a head that is taken from another task or is new without a word, values that change what a
network computes and are passed over.
"""
import json
import pathlib
import sys
import tempfile

from huggingface_folders import Bench, read_safetensors


def train(bench, config, code=0):
    return bench.run("train", config, "--device", "cpu", "--run-dir",
                     f"run-{len(list(bench.folder.iterdir()))}", code=code)


def test_spellings_of_the_hub(bench):
    """Names of TensorFlow, no prefix, stored positions, a stored tied head."""
    whole = bench.weights_hash(bench.config("bert", f'from: "{bench.make("bert")}"'))

    def older(tensors):
        def name_of(name):
            return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta")

        return {**{name_of(name): tensor for name, tensor in tensors.items()},
                "bert.embeddings.position_ids": ("F32", [1, 16], bytes(64)),
                "bert.pooler.dense.bias": ("F32", [32], bytes(128)),
                "cls.seq_relationship.bias": ("F32", [2], bytes(8))}

    config = bench.config("bert", f'from: "{bench.make("bert", older)}"')
    assert bench.weights_hash(config) == whole
    assert "skipped: 'cls.seq_relationship.bias'" in train(bench, config)

    def with_decoder(tensors):
        return {**tensors,
                "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
                "cls.predictions.decoder.bias": tensors["cls.predictions.bias"]}

    folder = bench.make("bert", with_decoder)
    assert bench.weights_hash(bench.config("bert", f'from: "{folder}"')) == whole

    def with_another_decoder(tensors):
        dtype, shape, data = tensors["cls.predictions.bias"]
        return {**tensors, "cls.predictions.decoder.bias": (dtype, shape, data[4:] + data[:4])}

    folder = bench.make("bert", with_another_decoder)
    message = train(bench, bench.config("bert", f'from: "{folder}"'), code=4)
    assert "config.json ties" in message and "'cls.predictions.decoder.bias'" in message, message


def test_the_task_of_the_config_goes_first(bench):
    folder = bench.make("bert")
    config = bench.config("bert", f'from: "{folder}" bert {{ task: SEQUENCE_CLASSES classes: 3 }}')
    message = train(bench, config)
    for words in ("bert.pooler.dense.weight is initialised from scratch",
                  "classifier.weight is initialised from scratch",
                  "skipped: 'cls.predictions.bias'"):
        assert words in message, (words, message)
    assert "model.bert.task is SEQUENCE_CLASSES in this run; config.json has MASKED_TOKENS" in message
    folder = bench.make("roberta_classes")
    config = bench.config("roberta_classes", f'from: "{folder}" bert {{ task: MASKED_TOKENS }}')
    message = train(bench, config)
    assert "lm_head.bias is initialised from scratch" in message, message
    assert "skipped: 'classifier.dense.bias'" in message, message
    config = bench.config("roberta_classes", f'from: "{folder}" bert {{ classes: 7 }}')
    message = train(bench, config)
    assert "classifier.out_proj.weight is initialised from scratch" in message, message
    assert "classifier.dense" not in message, message


def test_a_head_that_is_broken_is_not_new(bench):
    """New is what the folder has nothing of, and the layer of the classes where their number differs."""
    roberta, bert = ("roberta_classes", {}), ("bert", {})
    token = ("bert", {"architectures": ["BertForTokenClassification"], "num_labels": 3})
    half = ("F32", [16, 32], bytes(2048))

    def classifier(rows):
        return {"classifier.weight": ("F32", [rows, 32], bytes(rows * 128)),
                "classifier.bias": ("F32", [rows], bytes(rows * 4))}

    for (name, fields), change, words in (
            (roberta, {"classifier.dense.weight": half}, "'classifier.dense.weight' has shape (16, 32)"),
            (roberta, {"classifier.dense.bias": None}, "'classifier.dense.bias' of shape (32) is missing"),
            (roberta, {"classifier.out_proj.bias": None}, "'classifier.out_proj.bias' of shape (5) is"),
            (roberta, {"classifier.out_proj.weight": half}, "'classifier.out_proj.weight' has shape (16"),
            (bert, {"cls.predictions.transform.dense.weight": half},
             "'cls.predictions.transform.dense.weight' has shape (16, 32)"),
            (bert, {"cls.predictions.bias": None}, "'cls.predictions.bias' of shape (64) is missing"),
            (token, classifier(2), "'classifier.weight' has shape (2, 32), but the model needs (3, 32)"),
            (token, {**classifier(3), "classifier.bias": None}, "'classifier.bias' of shape (3) is"),
            (token, classifier(3), None)):
        def changed(tensors):
            return {n: t for n, t in {**tensors, **change}.items() if t is not None}

        folder = bench.make(name, changed, **fields)
        config = bench.config(name, f'from: "{folder}"')
        message = train(bench, config, code=4 if words else 0)
        assert (words or "") in message and "from scratch" not in message, (words, message)
    message = train(bench, bench.config("bert", f'from: "{folder}" bert {{ classes: 4 }}'))
    for name in ("weight", "bias"):
        assert f"classifier.{name} is initialised from scratch" in message, message


def test_a_run_goes_on_without_its_folder(bench):
    """All but the tokenizer is in the run's own files."""
    for adapter in ("", 'adapter { lora { rank: 2 match: "query" } }'):
        goes_on_without_its_folder(bench, adapter)


def goes_on_without_its_folder(bench, adapter):
    folder = bench.make("bert", vocab_size=64)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(59)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    texts = bench.folder / "texts.csv"
    texts.write_text("text,label\n" + "".join(f"w{i} w{i + 1},{'ab'[i % 2]}\n" for i in range(16)))
    config = bench.folder / "texts.textproto"
    config.write_text(f'name: "texts" model {{ from: "{folder}" bert {{ task: SEQUENCE_CLASSES }} }} '
                      f'data {{ labelled_text {{ train: "{texts}" eval: "{texts}" }} }} '
                      'train { global_batch: 8 lanes: 2 steps: 4 } optimizer { sgd {} } '
                      f'schedule {{ lr: 0.1 }} {adapter}')
    run = bench.folder / f"texts-{len(adapter)}"
    bench.run("train", config, "--device", "cpu", "--run-dir", run, "--max-steps", "2")
    kept = run / "config.textproto"
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    again = ["--device", "cpu", "--resume", "auto"]
    bench.run("train", kept, *again, "--max-steps", "3")
    bench.run("eval", kept, "--checkpoint", run, "--device", "cpu")
    bench.run("predict", kept, "--checkpoint", run, "--device", "cpu", "--out", f"{run}.safetensors")
    elsewhere = bench.folder / f"{run.name}-vocab.txt"
    (folder / "vocab.txt").rename(elsewhere)
    message = bench.run("train", kept, *again, code=3)
    assert f"data.labelled_text.tokenizer: {folder}: has no tokenizer;" in message, message
    folder.rename(f"{folder}-away")
    message = bench.run("train", kept, *again, code=3)
    assert f"data.labelled_text.tokenizer: cannot open '{folder}'" in message, message
    field = "data.labelled_text.tokenizer"
    bench.run("train", kept, *again, "--set", f"{field}={elsewhere}", "--allow-change", field)


def test_tasks_by_architecture(bench):
    for fields, words in (
            ({"architectures": ["BertForPreTraining"]}, "MASKED_TOKENS"),
            ({"architectures": ["BertForTokenClassification"], "num_labels": 4}, "TOKEN_CLASSES"),
            ({"architectures": ["BertForSequenceClassification"]}, "SEQUENCE_CLASSES"),
            ({"architectures": ["BertForSequenceClassification"], "problem_type": "regression",
              "num_labels": 1}, "SEQUENCE_VALUES"),
            # One label is a value where problem_type does not say otherwise, as there.
            ({"architectures": ["BertForSequenceClassification"], "num_labels": 1,
              "problem_type": None}, "SEQUENCE_VALUES"),
            ({"architectures": ["BertModel"]}, "HIDDEN_STATES"),
            ({"architectures": ["BertForQuestionAnswering"]}, "HIDDEN_STATES")):
        folder = bench.make("bert", **fields)
        text = bench.run("config", "--defaults", bench.config("bert", f'from: "{folder}"'))
        assert f"task: {words}" in text, (words, text)
        classes = fields.get("num_labels", 2) if "CLASSES" in words or "VALUES" in words else 0
        assert f"classes: {classes}" in text, (classes, text)
    message = train(bench, bench.config("bert", f'from: "{folder}"'), code=2)
    assert "model.bert.task: value is HIDDEN_STATES" in message, message


def test_hidden_states_have_names_without_a_prefix(bench):
    folder = bench.make("bert", architectures=["BertModel"])
    config = bench.config("bert", f'from: "{folder}"')
    bench.run("import", config, folder, "--out", "states")
    bench.run("export", "states", "--format", "huggingface", "--out", "states-out")
    before = read_safetensors(folder / "model.safetensors")
    after = read_safetensors(bench.folder / "states-out/model.safetensors")
    assert after == {name.removeprefix("bert."): tensor for name, tensor in before.items()
                     if name.startswith("bert.")}
    assert json.loads((bench.folder / "states-out/config.json").read_text())[
        "architectures"] == ["BertModel"]
    again = bench.run("import", config, bench.folder / "states-out", "--out", "states-again")
    assert "weights_hash" in again and "from scratch" not in again, again


MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")


def write_pooling(folder, *modes):
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32, **{f"pooling_mode_{m}": m in modes for m in MODES}}))


def test_pooling_of_sentence_transformers(bench):
    """The mean where the folder says so and the config does not; else the first token, as ever."""
    folder = bench.make("bert", architectures=["BertModel"])
    classes = f'from: "{folder}" bert {{ task: SEQUENCE_CLASSES classes: 3'
    assert "1_Pooling" not in train(bench, bench.config("bert", classes + " }"))
    for modes, given, said, taken in (
            (["mean_tokens"], "", "the mean of all tokens", "MEAN"),
            (["mean_tokens"], "pooling: FIRST_TOKEN", "the mean of all tokens", "FIRST_TOKEN"),
            (["cls_token"], "", "the first token", "FIRST_TOKEN"),
            (["max_tokens"], "pooling: MEAN", "of an unsupported kind", "MEAN"),
            (["mean_tokens", "max_tokens"], "", "of an unsupported kind", "FIRST_TOKEN")):
        write_pooling(folder, *modes)
        message = train(bench, bench.config("bert", f"{classes} {given} }}"))
        words = f"1_Pooling/config.json: pooling is {said}; model.bert.pooling is {taken}"
        assert words in message, (words, message)
        new_pooler = "bert.pooler.dense.weight is initialised from scratch" in message
        assert new_pooler == (taken == "FIRST_TOKEN"), message
    # A network of Hugging Face with a head has that head.
    headed = bench.make("bert", architectures=["BertForSequenceClassification"])
    write_pooling(headed, "mean_tokens")
    message = train(bench, bench.config("bert", f'from: "{headed}"'))
    assert "pooling is the mean of all tokens; model.bert.pooling is FIRST_TOKEN" in message, message
    (folder / "1_Pooling/config.json").write_text("[]")
    message = bench.run("plan", bench.config("bert", classes + " }"), code=2)
    assert "1_Pooling/config.json: not a JSON object" in message, message


def test_a_mean_has_the_same_bits_on_any_number_of_ranks(bench):
    hashes = set()
    for ranks in (1, 2, 4):
        run = f"ranks-{ranks}"
        bench.run("launch", "-n", ranks, "--", "train", bench.golden / "bert_mean.textproto",
                  "--set", f"train.init_from={bench.golden}/bert_mean.safetensors",
                  "--set", "model.bert.dropout=0.125", "--set", "model.bert.attention_dropout=0.25",
                  "--device", "cpu", "--run-dir", run, "--json",
                  f"{run}.json")
        hashes.add(json.loads((bench.folder / f"{run}.json").read_text())["weights_hash"])
    assert len(hashes) == 1, hashes


def test_a_mean_is_exported_as_body_and_classifier(bench):
    """And comes back with the same bits; a network of hidden states takes the body alone."""
    folder = bench.make("bert", architectures=["BertForSequenceClassification"],
                        problem_type="single_label_classification")
    config = bench.config("bert", f'from: "{folder}" bert {{ classes: 3 pooling: MEAN }}')
    bench.run("import", config, folder, "--out", "mean")
    bench.run("export", "mean", "--format", "huggingface", "--out", "mean-out")
    out = bench.folder / "mean-out"
    written = json.loads((out / "config.json").read_text())
    assert written["architectures"] == ["BertModel"], written
    assert written["problem_type"] is None and len(written["id2label"]) == 3, written
    assert json.loads((out / "1_Pooling/config.json").read_text())["pooling_mode_mean_tokens"]
    tensors = read_safetensors(out / "model.safetensors")
    assert tensors["classifier.weight"][1] == [3, 32] and "bert.pooler.dense.weight" not in tensors
    again = bench.config("bert", f'from: "{out}" bert {{ task: SEQUENCE_CLASSES classes: 3 }}')
    message = bench.run("import", again, out, "--out", "mean-again")
    assert "from scratch" not in message and "model.bert.pooling is MEAN" in message, message
    bench.run("export", "mean-again", "--format", "huggingface", "--out", "mean-twice")
    assert read_safetensors(bench.folder / "mean-twice/model.safetensors") == tensors
    states = bench.config("bert", f'from: "{out}"')
    message = bench.run("import", states, out, "--out", "states")
    assert "skipped: 'classifier.bias', 'classifier.weight'" in message, message


def test_refused(bench):
    classes = {"architectures": ["BertForSequenceClassification"]}
    for fields, words in (
            ({"position_embedding_type": "relative_key"}, "field position_embedding_type"),
            ({"is_decoder": True}, "field is_decoder: value is true"),
            ({"tie_word_embeddings": False}, "field tie_word_embeddings: value is false"),
            ({"classifier_dropout": 0.25}, "field classifier_dropout: value is 0.25"),
            ({**classes, "problem_type": "multi_label_classification"}, "field problem_type"),
            ({**classes, "problem_type": "ranking"}, "field problem_type: value is \"ranking\""),
            ({**classes, "problem_type": "single_label_classification", "num_labels": 1},
             "field problem_type"),
            ({**classes, "num_labels": 3, "id2label": {"0": "a", "1": "b"}},
             "field num_labels: value is 3; allowed: 2, the number of classes in id2label"),
            ({**classes, "id2label": 5}, "field id2label: value is 5; allowed: an object"),
            ({"model_type": "roberta", "pad_token_id": 15}, "field max_position_embeddings"),
            ({"embedding_size": 128}, "field embedding_size: value is 128")):
        folder = bench.make("bert", **fields)
        message = bench.run("plan", bench.config("bert", f'from: "{folder}"'), code=2)
        assert words in message and "config.json" in message, (words, message)
        assert len(message.strip().splitlines()) == 1, message
    for fields, words in (({"rotary_dim": 7}, "model.gpt.rotary_size: value is 7"),
                          ({"rotary_dim": None}, "field rotary_dim: value is null"),
                          ({"rotary_dim": 0}, "field rotary_dim: value is 0"),
                          ({"tie_word_embeddings": True}, "field tie_word_embeddings"),
                          ({"scale_attn_weights": False}, "field scale_attn_weights")):
        folder = bench.make("gptj", **fields)
        message = bench.run("plan", bench.config("gptj", f'from: "{folder}"'), code=2)
        assert words in message, (words, message)


def test_dropout_of_attention_is_read_and_written(bench):
    for name, field, ours in (("bert", "attention_probs_dropout_prob", "0.25"),
                              ("gpt_tied", "attn_pdrop", "0.125"),
                              ("gptj", "attn_pdrop", "0.5"),
                              ("llama", "attention_dropout", "0.375")):
        folder = bench.make(name, **{field: float(ours)})
        config = bench.config(name, f'from: "{folder}"')
        text = bench.run("config", "--defaults", config)
        assert f"attention_dropout: {ours}" in text, text
        run = f"dropped-{name}"
        bench.run("train", config, "--device", "cpu", "--run-dir", run)
        bench.run("export", run, "--format", "huggingface", "--out", f"{run}-out")
        written = json.loads((bench.folder / f"{run}-out/config.json").read_text())
        assert written[field] == float(ours), written
        plain = bench.config(name, f'from: "{bench.make(name, **{field: 0.0})}"')
        assert bench.weights_hash(config) != bench.weights_hash(plain), name


def test_losses_of_a_vit_that_are_not_here(bench):
    folder = bench.folder / "vit"
    folder.mkdir()
    config = bench.folder / "vit.textproto"
    config.write_text(f'name: "vit" model {{ from: "{folder}" }} data {{ synthetic {{ height: 16 '
                      'width: 16 classes: 2 } } train { global_batch: 8 lanes: 2 steps: 3 } '
                      'optimizer { sgd {} } schedule { lr: 0.1 }')
    for problem, code in (("regression", 2), ("multi_label_classification", 2),
                          ("single_label_classification", 0), (None, 0)):
        (folder / "config.json").write_text(json.dumps({"model_type": "vit",
                                                        "problem_type": problem}))
        message = bench.run("config", "--defaults", config, code=code)
        assert (code == 0) != ("field problem_type" in message), message


def test_what_a_new_folder_says_of_itself(bench):
    """Not what the one says that it is like: that may have been of another head."""
    folder = bench.make("gpt_tied", architectures=["GPT2ForSequenceClassification"])
    config = bench.config("gpt_tied", f'from: "{folder}"')
    bench.run("import", config, folder, "--out", "gpt")
    bench.run("export", "gpt", "--format", "huggingface", "--out", "gpt-out")
    written = json.loads((bench.folder / "gpt-out/config.json").read_text())
    assert written["architectures"] == ["GPT2LMHeadModel"], written
    message = bench.run("export", "gpt", "--format", "huggingface", "--like", bench.make("bert"),
                        "--out", "mixed", code=2)
    assert "field model_type: value is \"bert\"; allowed: gpt2" in message, message
    assert not list(bench.folder.glob("mixed*")), "nothing is left of a folder that was refused"
    one = bench.config("bert", f'from: "{bench.make("bert")}" bert {{ task: SEQUENCE_CLASSES '
                               'classes: 1 }')
    bench.run("import", one, bench.make("bert"), "--out", "one")
    message = bench.run("export", "one", "--format", "huggingface", "--out", "one-out", code=2)
    assert "model.bert.classes: value is 1" in message, message


def main():
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden"
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="lockstep-encoders-") as folder:
            test(Bench(pathlib.Path(sys.argv[1]).resolve(), golden, pathlib.Path(folder)))
            print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
