#!/usr/bin/env python3
"""Folders of Hugging Face: read, trained from, written, and refused where they are broken.

    huggingface_test.py LOCKSTEP

The folders are made of the weights of the golden runs (huggingface_folders.py).
"""
import array
import json
import math
import os
import pathlib
import struct
import sys
import tempfile

from huggingface_folders import (FOLDERS, MORE, Bench, as_bf16, read_safetensors, rows_of,
                                 transposed, weights_file, write_safetensors)


def test_a_folder_gives_the_bits_of_the_file(bench):
    for name in FOLDERS:
        plain = bench.golden / f"{name}.textproto"
        text = plain.read_text()
        copy = bench.folder / f"plain-{name}.textproto"
        copy.write_text(text.replace('train: "', f'train: "{bench.golden}/').replace(
            'init_from: "', f'init_from: "{bench.golden}/'))
        folder = bench.make(name)
        assert bench.weights_hash(copy) == bench.weights_hash(
            bench.config(name, f'from: "{folder}" {MORE.get(name, "")}')), name


def test_round_trip(bench):
    """Imported and exported, every tensor is what it was, and the tokenizer's files are there."""
    for name in FOLDERS:
        for dtype in ("F32", "BF16"):
            change = (lambda tensors: tensors) if dtype == "F32" else (
                lambda tensors: {n: as_bf16(t) for n, t in tensors.items()})
            folder = bench.make(name, change)
            (folder / "tokenizer.json").write_text('{"of": "the folder"}')
            config = bench.config(name, f'from: "{folder}"')
            out = bench.folder / f"out-{name}-{dtype}"
            run = bench.folder / f"imported-{name}-{dtype}"
            bench.run("import", config, folder, "--out", run)
            bench.run("export", run, "--format", "huggingface", "--out", out)
            assert read_safetensors(out / "model.safetensors") == read_safetensors(
                folder / "model.safetensors"), (name, dtype)
            there = json.loads((folder / "config.json").read_text())
            again = json.loads((out / "config.json").read_text())
            for field, value in there.items():
                if field not in ("torch_dtype",):
                    assert again.get(field) == value, (name, field, value, again.get(field))
            assert again["torch_dtype"] == {"F32": "float32", "BF16": "bfloat16"}[dtype]
            assert (out / "tokenizer.json").read_text() == '{"of": "the folder"}'
            message = bench.run("export", run, "--format", "huggingface", "--out", out, code=4)
            assert "exists already" in message, message


def test_shards(bench):
    folder = bench.make("llama")
    config = bench.config("llama", f'from: "{folder}"')
    whole = bench.weights_hash(config)
    tensors = read_safetensors(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, weight_map = sorted(tensors), {}
    for shard, part in enumerate((names[:5], names[5:])):
        file = f"model-{shard + 1:05}-of-00002.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        weight_map.update({name: file for name in part})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert bench.weights_hash(config) == whole
    os.rename(folder / "model-00002-of-00002.safetensors", folder / "elsewhere")
    message = bench.run("train", config, "--device", "cpu", "--run-dir", "r1", code=4)
    assert "shard model-00002-of-00002.safetensors is missing" in message, message
    os.rename(folder / "elsewhere", folder / "model-00002-of-00002.safetensors")
    index.write_text(json.dumps({"weight_map": {**weight_map, "more": "../x.safetensors"}}))
    message = bench.run("train", config, "--device", "cpu", "--run-dir", "r2", code=4)
    assert "'../x.safetensors'" in message, message
    for text, words in (('{"weight_map": ', "index.json"), ("[]", "has no object weight_map"),
                        ('{"weight_map": ["a"]}', "has no object weight_map"),
                        ('{"weight_map": {"a": 5}}', "field weight_map: the file of 'a' is 5;"),
                        ('{"weight_map": {"a": ".."}}', "the file of 'a' is '..'; allowed: the"),
                        ('{"weight_map": {"a": "."}}', "the file of 'a' is '.'; allowed: the")):
        index.write_text(text)
        message = bench.run("train", config, "--device", "cpu", "--run-dir", "r3", code=4)
        assert words in message, (words, message)


def test_values_that_are_not_finite(bench):
    """Refused by whatever reads them, on all ranks, whatever they are stored as."""
    broken = "model.layers.1.mlp.up_proj.weight"
    for dtype, word in (("F32", struct.pack("<f", math.nan)), ("F32", struct.pack("<f", -math.inf)),
                        ("F16", b"\x00\x7c"), ("BF16", b"\x80\xff")):
        def with_one(tensors):
            size = len(tensors[broken][2]) // 4 * len(word)
            return {**tensors, broken: (dtype, tensors[broken][1], bytes(size - len(word)) + word)}

        folder = bench.make("llama", with_one)
        config = bench.config("llama", f'from: "{folder}"')
        for command in (["train", config, "--run-dir", "broken"],
                        ["launch", "-n", 2, "--", "train", config, "--run-dir", "broken"],
                        ["generate", config, "--prompt-tokens", "1,2"],
                        ["import", config, folder, "--out", "broken"]):
            on_cpu = [] if "import" in command else ["--device", "cpu"]
            message = bench.run(*command, *on_cpu, code=4)
            assert f"model.safetensors: tensor '{broken}' has a value that is not finite" in message


def test_pointers_of_git_lfs(bench):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    for file, code in (("model.safetensors", 4), ("config.json", 2)):
        folder = bench.make("llama")
        config = bench.config("llama", f'from: "{folder}"')
        (folder / file).write_text(pointer)
        message = bench.run("train", config, "--device", "cpu", "--run-dir", "lfs", code=code)
        assert f"{file}: is a pointer of Git LFS" in message and "git lfs pull" in message, message


def test_spellings_of_the_hub(bench):
    """No prefix, stored masks, a stored tied head: as the files of GPT-2 have been for years."""
    whole = bench.weights_hash(bench.config("gpt_tied", f'from: "{bench.make("gpt_tied")}"'))

    def older(tensors):
        names = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        names["h.0.attn.bias"] = ("F32", [1, 1, 2, 2], bytes(16))
        names["h.0.attn.masked_bias"] = ("F32", [], bytes(4))
        return names

    folder = bench.make("gpt_tied", older)
    assert bench.weights_hash(bench.config("gpt_tied", f'from: "{folder}"')) == whole

    def with_head(tensors):
        return {**tensors, "lm_head.weight": tensors["transformer.wte.weight"]}

    folder = bench.make("gpt_tied", with_head)
    assert bench.weights_hash(bench.config("gpt_tied", f'from: "{folder}"')) == whole

    def with_another_head(tensors):
        dtype, shape, data = tensors["transformer.wte.weight"]
        return {**tensors, "lm_head.weight": (dtype, shape, data[4:] + data[:4])}

    folder = bench.make("gpt_tied", with_another_head)
    message = bench.run("train", bench.config("gpt_tied", f'from: "{folder}"'), "--device", "cpu",
                        "--run-dir", "tied", code=4)
    assert "config.json ties 'lm_head.weight' to" in message, message
    # It is the run's config that ties them.
    config = bench.config("llama_qwen2", f'from: "{bench.make("llama_qwen2")}" llama {{ '
                                         'tied_head: true }')
    message = bench.run("train", config, "--device", "cpu", "--run-dir", "ties", code=4)
    assert "false), but model.llama.tied_head is true; allowed: false" in message


def test_heads(bench):
    """A folder without a head gives a new one, and one of another task is left out; both are said."""

    def body(tensors):
        return {name.removeprefix("model."): tensor for name, tensor in tensors.items()
                if name != "lm_head.weight"}

    folder = bench.make("llama_qwen2", body)
    message = bench.run("train", bench.config("llama_qwen2", f'from: "{folder}"'), "--device",
                        "cpu", "--run-dir", "body")
    assert "lm_head.weight is initialised from scratch" in message, message
    message = bench.run("generate", bench.config("llama_qwen2", f'from: "{folder}"'),
                        "--prompt-tokens", "1", "--device", "cpu", code=4)
    assert "has no head" in message, message

    def for_classes(tensors):
        return {"score.weight": ("F32", [2, 32], bytes(256)), **tensors}

    folder = bench.make("llama", for_classes)
    message = bench.run("train", bench.config("llama", f'from: "{folder}"'), "--device", "cpu",
                        "--run-dir", "classes")
    assert "skipped: 'score.weight'" in message, message


def test_fields_beside_the_folder(bench):
    """Fields of the section override the folder's; another section is refused."""
    folder = bench.make("gpt_tied")
    config = bench.config("gpt_tied", f'from: "{folder}" gpt {{ context: 8 dropout: 0.25 }}')
    text = bench.run("config", "--defaults", config)
    assert "context: 8" in text and "dropout: 0.25" in text and "width: 32" in text, text
    assert f'init_from: "{folder}"' in text, text
    message = bench.run("train", config, "--device", "cpu", "--run-dir", "short")
    assert "model.gpt.context is 8 in this run; config.json has 16" in message, message
    other = bench.config("gpt_tied", f'from: "{folder}" llama {{ }}')
    message = bench.run("plan", other, code=2)
    assert "has a model of section gpt, but the config has section llama" in message, message


def exported_config(bench, folder, run, model):
    """What export writes of a folder that is imported with `model` beside it."""
    config = bench.config("llama_qwen2" if "qwen2" in run else "llama", model)
    bench.run("import", config, folder, "--out", bench.folder / run)
    out = bench.folder / f"{run}-out"
    bench.run("export", bench.folder / run, "--format", "huggingface", "--out", out)
    return json.loads((out / "config.json").read_text())


def test_windows(bench):
    """A window of the whole context stays; where layers differ it may leave out nothing."""
    kinds = ("full_attention", "sliding_attention")
    fields = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0,
              "layer_types": [kinds[1]] * 2}
    folder = bench.make("llama_qwen2", **fields)
    again = exported_config(bench, folder, "qwen2-window", f'from: "{folder}"')
    assert {name: again[name] for name in fields} == fields, again
    fields.update(max_window_layers=1, layer_types=list(kinds))
    folder = bench.make("llama_qwen2", **fields)
    again = exported_config(bench, folder, "qwen2-no-window", f'from: "{folder}"')
    assert not again["use_sliding_window"] and again["layer_types"] == [kinds[0]] * 2, again
    for field, more in (("layer_types", {}), ("max_window_layers", {"layer_types": None})):
        folder = bench.make("llama_qwen2", **{**fields, "sliding_window": 15, **more})
        message = bench.run("plan", bench.config("llama_qwen2", f'from: "{folder}"'), code=2)
        assert f"field {field}: value is" in message, message


def test_windows_are_read_as_elsewhere(bench):
    """Mistral's is 4096 where nothing is said, and use_sliding_window is no field of it; Llama has
    none; those of Qwen begin with layer 28."""
    for name, fields, window in (
            ("llama", {"model_type": "mistral"}, 4096),
            ("llama", {"model_type": "mistral", "sliding_window": None}, 0),
            ("llama", {"model_type": "mistral", "sliding_window": 5, "use_sliding_window": False}, 5),
            ("llama", {"sliding_window": 5, "use_sliding_window": True}, 0),
            ("llama_qwen2", {"use_sliding_window": True, "max_window_layers": None}, 0)):
        folder = bench.make(name, **fields)
        text = bench.run("config", "--defaults", bench.config(name, f'from: "{folder}"'))
        assert f"sliding_window: {window}\n" in text, (fields, text)


def test_dynamic_positions(bench):
    """They grow beyond the context of config.json, as in transformers, however long the run's is."""
    scaling = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}
    folder = bench.make("llama", rope_scaling=scaling)
    model = f'from: "{folder}" llama {{ context: 40 }}'
    text = bench.run("config", "--defaults", bench.config("llama", model))
    assert "rope_original_context: 16" in text and "context: 40" in text, text
    again = exported_config(bench, folder, "dynamic", model)
    assert again["max_position_embeddings"] == 16, again
    assert again["rope_scaling"] == {"rope_type": "dynamic", "factor": 2.0}, again


def test_refused(bench):
    """Each is one line that names the file and the field."""
    for fields, words in (
            ({"model_type": "mamba"}, "field model_type: value is \"mamba\""),
            ({"model_type": None}, "field model_type: value is null"),
            ({"hidden_act": "xielu"}, "field hidden_act: value is \"xielu\""),
            ({"hidden_size": "wide"}, "field hidden_size: value is \"wide\""),
            ({"num_hidden_layers": None}, "field num_hidden_layers is missing"),
            ({"num_hidden_layers": 0}, "model.llama.layers: value is 0"),
            ({"attention_bias": True, "model_type": "mistral"},
             "field attention_bias: value is true"),
            ({"mlp_bias": True, "model_type": "qwen3"}, "field mlp_bias: value is true"),
            ({"rope_scaling": {"rope_type": "yarn", "factor": 2}},
             "field rope_scaling.rope_type: value is \"yarn\""),
            ({"rope_scaling": {"type": "linear", "factor": 2, "beta": 1}},
             "field rope_scaling.beta: value is 1"),
            ({"rope_scaling": {"type": "dynamic"}}, "field rope_scaling.factor is missing"),
            ({"rope_scaling": {"rope_type": "llama3", "factor": 2}},
             "field rope_scaling.low_freq_factor is missing"),
            ({"rope_scaling": {"type": "default"}, "rope_parameters": {"rope_type": "default"}},
             "field rope_scaling: value is"),
            ({"rope_scaling": 3}, "rope_scaling is not a JSON object"),
            ({"num_experts": 8}, "field num_experts: value is 8"),
    ):
        folder = bench.make("llama", **fields)
        message = bench.run("plan", bench.config("llama", f'from: "{folder}"'), code=2)
        assert words in message and "config.json" in message or "model.llama" in words, message
        assert words in message, (words, message)
        assert len(message.strip().splitlines()) == 1, message
    folder = bench.make("llama")
    config = bench.config("llama", f'from: "{folder}"')
    (folder / "config.json").write_text('{"model_type": "llama",')
    assert "config.json" in bench.run("plan", config, code=2)
    (folder / "config.json").unlink()
    assert "has model.safetensors but no config.json" in bench.run("plan", config, code=2)
    assert "a folder with a config.json" in bench.run(
        "plan", bench.config("llama", f'from: "{folder / "absent"}"'), code=2)
    (folder / "U\u0308").mkdir()  # looks the same as the folder that the config names
    message = bench.run("plan", bench.config("llama", f'from: "{folder / chr(0xdc)}"'), code=2)
    assert message.count("; but ") == 1 and "U+0055 U+0308" in message, message


def test_tensors_that_do_not_fit(bench):
    def shorter(tensors):
        name = "model.layers.0.self_attn.k_proj.weight"
        return {**tensors, name: rows_of(tensors[name], 0, 8)}

    def missing(tensors):
        return {n: t for n, t in tensors.items() if n != "model.layers.1.mlp.up_proj.weight"}

    def unknown(tensors):
        return {**tensors, "model.layers.0.mlp.up_proj.bias": ("F32", [88], bytes(352))}

    for change, words in ((shorter, "'model.layers.0.self_attn.k_proj.weight' has shape (8, 32)"),
                          (missing, "'model.layers.1.mlp.up_proj.weight' of shape (88, 32) is "
                                    "missing"),
                          (unknown, "has no tensor 'model.layers.0.mlp.up_proj.bias'")):
        folder = bench.make("llama", change)
        message = bench.run("train", bench.config("llama", f'from: "{folder}"'), "--device", "cpu",
                            "--run-dir", f"refused-{change.__name__}", code=4)
        assert words in message, message
    def shorter_head(tensors):
        return {**tensors, "lm_head.weight": rows_of(tensors["lm_head.weight"], 0, 60)}

    folder = bench.make("llama_qwen2", shorter_head)
    message = bench.run("train", bench.config("llama_qwen2", f'from: "{folder}"'), "--device", "cpu",
                        "--run-dir", "head", code=4)
    assert "'lm_head.weight' has shape (60, 32)" in message, message
    # Positions are cut where the config asks for less, not where config.json says less than there is.
    folder = bench.make("gpt_tied", n_positions=8)
    message = bench.run("train", bench.config("gpt_tied", f'from: "{folder}"'), "--device", "cpu",
                        "--run-dir", "positions", code=4)
    assert "'transformer.wpe.weight' has shape (16, 32)" in message, message
    # A wrapper's prefix is left out; without any name in common, one of each side is shown.
    def renamed(rename):
        return lambda tensors: {rename(name): tensor for name, tensor in tensors.items()}

    hashes = set()
    for number, prefix in enumerate(("", "module.", "_orig_mod.module.", "my.")):
        folder = bench.make("llama", renamed(lambda name: prefix + name))
        printed = bench.run("train", bench.config("llama", f'from: "{folder}"'), "--device", "cpu",
                            "--run-dir", f"prefix-{number}")
        assert prefix == "" or f"begin with '{prefix}', which is left out" in printed, printed
        hashes.add([line for line in printed.splitlines() if "weights_hash" in line][0])
    assert len(hashes) == 1, hashes
    folder = bench.make("llama", renamed(lambda name: "my." + name.replace("model.", "body_")))
    message = bench.run("train", bench.config("llama", f'from: "{folder}"'), "--device", "cpu",
                        "--run-dir", "prefix", code=4)
    for words in ("no name of a tensor is one of the model's: the file has 'my.", "the model 'model.",
                  "names of the file begin with 'my.'"):
        assert words in message, (words, message)
    folder = bench.make("llama")
    config = bench.config("llama", f'from: "{folder}"')
    os.rename(folder / "model.safetensors", folder / "pytorch_model.bin")
    message = bench.run("train", config, "--device", "cpu", "--run-dir", "bin", code=4)
    assert "save_pretrained" in message, message


def test_other_folders(bench):
    """What is not a model's folder is named as what it is."""
    def folder(name, **files):
        path = bench.folder / name
        path.mkdir()
        for file, text in files.items():
            (path / file.replace("__", ".")).write_text(text)
        return path

    adapter = folder("adapter", adapter_config__json='{"peft_type": "LORA", "base_model_name_or_path": '
                     '"some/base", "r": 8, "lora_alpha": 16}', adapter_model__safetensors="x")
    transformer = folder("sentences", modules__json="[]")
    (transformer / "0_Transformer").mkdir()
    (transformer / "0_Transformer" / "config.json").write_text("{}")
    cases = [(adapter, "is a PEFT adapter for the base model 'some/base', not a model; set model.from to the folder of "
                       f'the base model, and adapter {{ lora {{ from: "{adapter}" rank: 8 alpha: 16 }} }}'),
             (folder("pipeline", model_index__json='{"_class_name": "DDPMPipeline"}'),
              "is a diffusers pipeline (DDPMPipeline)"),
             (transformer, f"give '{transformer / '0_Transformer'}'"),
             (folder("gguf", model__gguf="GGUF"), "gguf_file='model.gguf'"),
             (folder("state", state__textproto=""), "is a checkpoint of Lockstep"),
             (folder("vocabulary", vocab__json="{}", merges__txt=""), "has a tokenizer (vocab.json) but no model"),
             (folder("readme", README__md="", _hidden=""), "is a folder without a config.json (it has README.md"),
             (folder("weights", model__safetensors="x"), "has model.safetensors but no config.json")]
    for path, words in cases:
        message = bench.run("plan", bench.config("llama", f'from: "{path}"'), code=2)
        assert words in message and str(path) in message, (words, message)
        message = bench.run("inspect", path, code=4)
        assert path.name == "state" or words in message, (words, message)
        message = bench.run("train", bench.config("llama", "llama { context: 8 width: 32 layers: 1 heads: 4 kv_heads: 4 }"),
                            "--set", f"train.init_from={path}", "--device", "cpu", "--run-dir", "other", code=4)
        assert words in message, (words, message)
    config = json.dumps(FOLDERS["llama"][0])
    for file, words in (("tf_model.h5", "from_tf=True"), ("flax_model.msgpack", "from_flax=True"),
                        ("model-q4.gguf", "gguf_file='model-q4.gguf'"), ("adapter_config.json", "is a PEFT adapter")):
        path = folder(file.replace(".", "-"), config__json=config)
        (path / file).write_text("{}")
        message = bench.run("train", bench.config("llama", f'from: "{path}"'), "--device", "cpu", "--run-dir", "other",
                            code=4)
        assert words in message, (words, message)
    for text, words in (("<!DOCTYPE html><html>", "is a web page (HTML), not a JSON file"),
                        ("version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
                        ('{"_class_name": "UNet2DModel"}', "describes a diffusers model (UNet2DModel)")):
        path = folder(f"config-{len(text)}", config__json=text)
        message = bench.run("plan", bench.config("llama", f'from: "{path}"'), code=2)
        assert words in message, (words, message)


def test_export(bench):
    """What stands beside the new folder stays; numbers that a dtype cannot hold are refused; a folder
    without weights gives its config.json; a folder that is gone is told."""
    def large(tensors):
        dtype, shape, data = tensors["model.norm.weight"]
        return {**tensors, "model.norm.weight":
                (dtype, shape, array.array("f", [131072]).tobytes() + data[4:])}

    folder = bench.make("llama", large)
    run, out = bench.folder / "imported", bench.folder / "out"
    bench.run("import", bench.config("llama", f'from: "{folder}"'), folder, "--out", run)
    write = ("export", run, "--format", "huggingface", "--out", out)
    message = bench.run(*write, "--dtype", "f16", code=2)
    assert "--dtype: value is f16" in message and "131072" in message, message
    assert not out.exists()
    beside = bench.folder / "out.tmp"
    beside.write_text("mine")
    (folder / "model.safetensors").unlink()
    bench.run(*write)
    assert beside.read_text() == "mine"
    assert not [path for path in bench.folder.iterdir() if path.name.startswith("out.")
                and path != beside]
    (folder / "config.json").rename(folder / "gone.json")
    folder.rename(bench.folder / "elsewhere")
    message = bench.run(*write[:-1], bench.folder / "again")
    assert f"{folder}, which the run began with, is not here" in message, message
    message = bench.run(*write[:-1], bench.folder / "third", "--like", "nowhere", code=2)
    assert '--like: "nowhere" does not exist' in message, message


def test_import(bench):
    """A folder, and a file with Hugging Face's names, give the checkpoint of the own names."""
    for name in ("gpt_tied", "llama"):
        folder = bench.make(name)
        plain = bench.golden / f"{name}.textproto"
        texts = [bench.run("import", plain, bench.golden / weights_file(bench.golden, name),
                           "--out", f"own-{name}"),
                 bench.run("import", plain, folder, "--out", f"folder-{name}"),
                 bench.run("import", plain, folder / "model.safetensors", "--names", "huggingface",
                           "--out", f"file-{name}")]
        assert len({text.split("weights_hash")[1] for text in texts}) == 1, texts
        message = bench.run("import", plain, folder / "model.safetensors", "--out", "x", code=4)
        assert "--names huggingface" in message, message
    message = bench.run("import", plain, "weights.pt", "--out", "x", code=4)
    assert "save_file" in message, message


def test_another_number_of_classes(bench):
    """Of a safetensors file the body is kept, and the new last layer is named."""
    text = ('name: "c" model { mlp { hidden: [16, 8] } } data { synthetic { samples: 64 features: 6 '
            'classes: CLASSES } } train { global_batch: 8 lanes: 2 steps: 3 } optimizer { sgd {} } '
            'schedule { lr: 0.1 }')
    three, five = (bench.folder / f"{n}.textproto" for n in (3, 5))
    three.write_text(text.replace("CLASSES", "3"))
    five.write_text(text.replace("CLASSES", "5"))
    bench.run("train", three, "--run-dir", "three", "--device", "cpu")
    bench.run("export", "three", "--out", "body.safetensors")
    message = bench.run("train", five, "--run-dir", "five", "--device", "cpu", "--set",
                        "train.init_from=body.safetensors", "--set", "train.steps=1", "--set",
                        "schedule.lr=1e-30")
    assert "the layer layers.2 is initialised from scratch" in message and "has shape (3" in message, message
    bench.run("export", "five", "--out", "five.safetensors")
    before, now = (read_safetensors(bench.folder / f"{name}.safetensors")
                   for name in ("body", "five"))
    assert all(now[name] == before[name] for name in before if "layers.2." not in name)
    assert now["layers.2.weight"][1] == [5, 8], now["layers.2.weight"]
    message = bench.run("train", five, "--run-dir", "wider", "--device", "cpu", "--set",
                        "train.init_from=body.safetensors", "--set", "model.mlp.hidden=17,8",
                        code=4)
    assert "layers.0" in message or "layers.1" in message, message


def main():
    lockstep = pathlib.Path(sys.argv[1]).resolve()
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden"
    tests = [test for name, test in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="lockstep-huggingface-") as folder:
            test(Bench(lockstep, golden, pathlib.Path(folder)))
        print(f"{test.__name__}: passed", flush=True)


if __name__ == "__main__":
    main()
