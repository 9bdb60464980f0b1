#!/usr/bin/env python3
"""Catches: LoRAs of encoders and of networks of images that move their base or give other bits on two
ranks; a new head that stays as it was drawn, or is not in the folder of PEFT; a LoRA of the output
matrix that comes and goes with how the loss is computed, or that an embedding would share; folders of
PEFT whose LoRAs are of a kind that is not here or whose tensors are broken, a run that goes on and
asks for the base that its checkpoint has, and a merge that leaves out or mixes up what a checkpoint has.

lora_test.py BINARY
"""
import json
import math
import pathlib
import shutil
import struct
import sys
import tempfile

import lockstep_run
from finetune_test import GPT, Test, config_of

REST = """
train { global_batch: 8 lanes: 8 steps: 6 hash_every: 1 }
optimizer { adamw { weight_decay: 0.1 } }
schedule { lr: 0.01 }
checkpoint { every: 2 keep_last: 9 async: false }
execution { threads: 1 }
output { tensorboard: false }
"""
VIT = ("vit { layers: 2 heads: 2 width: 16 mlp_width: 24 patch: 4 }",
       "synthetic { height: 8 width: 8 channels: 3 classes: CLASSES }")
BERT = ("bert { layers: 2 heads: 2 width: 16 mlp_width: 24 context: 12 vocabulary: 50 }",
        "synthetic {}")
MLP = ("mlp { hidden: [16, 8] }", "synthetic { samples: 64 features: 6 classes: CLASSES }")
CHECKPOINT, USAGE = 4, 2  # exit codes


def network(model, data, adapter="", rest=REST):
    return f"model {{ {model} }}\ndata {{ {data} }}\n{rest}\n{adapter}"


def lora_of(match, more=""):
    return f'adapter {{ lora {{ rank: 2 alpha: 4 match: "{match}" {more} }} }}'


def last_line(done):
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def header_of(path):
    content = path.read_bytes()
    return json.loads(content[8:8 + int.from_bytes(content[:8], "little")])


def new_head(test, label, begin, model, data, heads, match, modules):
    """From a folder whose head is of another task or number of classes."""
    base_dir, _ = test.train(test.config(begin), arguments=["--max-steps", "2"])
    base = test.folder / f"{label}-base"
    test.command("export", base_dir, "--format", "huggingface", "--out", base)
    model = f'from: "{base}" {model}'
    text = network(model, data, lora_of(match, "dropout: 0.1"))
    run_dir = test.same_bits(label, text, [(2, ["comm.zero_stage=2"])])
    learns = lambda name: ".lora_" in name or any(name.startswith(head) for head in heads)
    test.moved(label, run_dir, lambda name: not learns(name))
    there = test.tensors(run_dir, 6)
    before = test.tensors(base_dir, 2)
    kept = [name for name in before if name in there and not learns(name)]
    test.expect(kept and all(before[name] == there[name] for name in kept),
                f"{label}: {len(kept)} tensors of the base are as the folder has them")
    # To PEFT's folder and back: the head is in it.
    adapter = test.folder / f"{label}-adapter"
    test.command("export", run_dir, "--format", "peft", "--out", adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    test.expect(config["modules_to_save"] == modules, f"{label}: {config['modules_to_save']}")
    test.expect(label != "vit" or (adapter / "preprocessor_config.json").exists(),
                f"{label}: the adapter's folder does not describe its images")
    saved = [name for name in header_of(adapter / "adapter_model.safetensors")
             if any(module + "." in name for module in modules)]
    test.expect(len(saved) == 2 * len(modules), f"{label}: {saved}")
    # Transformers 5 has other names of a ViT's layers in memory than in files: both are there.
    names = header_of(adapter / "adapter_model.safetensors")
    files, memory = (sum(part in name for name in names) for part in (".encoder.layer.", ".layers."))
    test.expect(files > 0 and memory == (files if label == "vit" else 0),
                f"{label}: {files} tensors by the names of files, {memory} by those in memory")
    again = network(model, data, lora_of(match, f'from: "{adapter}"'),
                    REST.replace("lr: 0.01", "lr: 1e-30"))  # moves nothing that a float shows
    again_dir, _ = test.train(test.config(again), arguments=["--max-steps", "2"])
    back = test.tensors(again_dir, 2)
    learned = [name for name in there if learns(name) and ".lora_A" not in name]
    test.expect(all(there[name] == back[name] for name in learned),
                f"{label}: {learned} come back bit for bit")


def encoders(test):
    model, data = VIT
    new_head(test, "vit", network(model, data.replace("CLASSES", "3")), "vit { classes: 5 }",
             data.replace("CLASSES", "5"), ["classifier."], "query|value", ["classifier"])
    model, data = BERT
    new_head(test, "bert", network(model, data), "bert { task: SEQUENCE_CLASSES classes: 3 }", data,
             ["bert.pooler.", "classifier."], "query|value|intermediate",
             ["bert.pooler.dense", "classifier"])


def new_head_of_a_file(test):
    """The same of a safetensors file."""
    model, data = MLP
    run_dir, _ = test.train(test.config(network(model, data.replace("CLASSES", "3"))))
    body = test.folder / "body.safetensors"
    test.command("export", run_dir, "--out", body)
    text = network(model, data.replace("CLASSES", "5"), lora_of("layers.0"))
    text = text.replace("steps: 6", f'steps: 6 init_from: "{body}"')
    test.moved("a new head of a file", test.train(test.config(text))[0],
               lambda name: ".lora_" not in name and not name.startswith("layers.2."))


def without_the_base(test):
    """A checkpoint has all that a run needs: what the base's folder or file lacks by then is not missed,
    and heads that were new go on learning."""
    model, data = BERT
    run_dir, _ = test.train(test.config(network(model, data)), arguments=["--max-steps", "2"])
    folder = test.folder / "gone-base"
    test.command("export", run_dir, "--format", "huggingface", "--out", folder)
    of_folder = network(f'from: "{folder}" bert {{ task: SEQUENCE_CLASSES classes: 3 }}', data,
                        lora_of("query|value"))
    model, data = MLP
    run_dir, _ = test.train(test.config(network(model, data.replace("CLASSES", "3"))))
    file = test.folder / "gone.safetensors"
    test.command("export", run_dir, "--out", file)
    of_file = network(model, data.replace("CLASSES", "5"), lora_of("layers.0")).replace(
        "steps: 6", f'steps: 6 init_from: "{file}"')
    for label, text, lose in (("folder", of_folder, (folder / "model.safetensors").unlink),
                              ("file", of_file, file.unlink)):
        config = test.config(text)
        _, whole = test.train(config)
        cut, _ = test.train(config, arguments=["--max-steps", "3"])
        also = lambda where: [line for line in where.read_text().splitlines() if "train_also" in line]
        before = also(cut / "config.textproto")
        lose()
        if label == "folder":  # the config's own words need config.json, the run's own nothing
            go_on(test, config, cut, 4)
            (folder / "config.json").unlink()
            (folder / "tokenizer.json").write_text("{}")
            config = cut / "config.textproto"
        result = go_on(test, config, cut, 6)
        test.expect(result["weights_hash"] == whole["weights_hash"],
                    f"without the {label}: {result['weights_hash']}, {whole['weights_hash']}")
        test.expect(before and also(cut / "config.textproto") == before, f"{label}: {before}")
    done = lockstep_run.run(test.binary, ["train", config, "--run-dir", test.folder / "anew"], ranks=0)
    test.expect(done.returncode != 0, f"a run that begins needs it: {last_line(done)}")


def go_on(test, config, run_dir, step):
    return lockstep_run.train(test.binary, config, run_dir, 2,
                              ["--resume", "auto", "--max-steps", str(step)])


def output_matrix(test):
    untied = config_of(GPT, "", lora_of("c_attn|lm_head")).replace("context: 16",
                                                                   "context: 16 tied_head: false")
    hashes = {}
    for rows in (0, 1, 64):
        run_dir, result = test.train(test.config(untied), changes=[f"execution.loss_rows={rows}"])
        hashes[rows] = result["weights_hash"]
    test.expect(len(set(hashes.values())) == 1, f"a LoRA of the output matrix: {hashes}")
    there = test.tensors(run_dir, 6)
    test.expect(any(there["lm_head.lora_B"]), "it has learned something")
    test.refused(config_of(GPT, "", lora_of(".")), "adapter.lora.match", "'.'", "transformer.wte",
                 "embedding")
    # Of layers that train as a whole there is no LoRA beside.
    text = config_of(GPT, "", lora_of("c_attn|c_fc", 'train_also: "h.1.mlp"'))
    there = test.tensors(test.train(test.config(text), arguments=["--max-steps", "2"])[0], 2)
    test.expect("transformer.h.0.mlp.c_fc.lora_A" in there and
                "transformer.h.1.mlp.c_fc.lora_A" not in there, "layers that train as a whole")


def folders_of_peft(test):
    text = config_of(GPT, "", lora_of("c_attn", 'train_also: "ln_f"'))
    run_dir, _ = test.train(test.config(text))
    adapter = test.folder / "kinds"
    test.command("export", run_dir, "--format", "peft", "--out", adapter)
    config = adapter / "adapter_config.json"
    whole = json.loads(config.read_text())
    again = test.config(text.replace("rank: 2", f'rank: 2 from: "{adapter}"'))

    def begins(fields):
        config.write_text(json.dumps({**whole, **fields}))
        return lockstep_run.run(test.binary, ["train", again, "--run-dir", test.folder / "begins",
                                              "--max-steps", "1", "--resume", "none"], ranks=0)

    for fields, words in (({"use_rslora": True}, "use_rslora"), ({"use_dora": True}, "use_dora"),
                          ({"rank_pattern": {"h.1": 4}}, "rank_pattern"),
                          ({"alpha_pattern": {"h.1": 4}}, "alpha_pattern"),
                          ({"bias": "lora_only"}, "bias"), ({"peft_type": "IA3"}, "peft_type"),
                          ({"init_lora_weights": "pissa"}, "init_lora_weights"),
                          ({"a_newer_kind": {"beta": 1}}, "a_newer_kind")):
        done = begins(fields)
        test.expect(done.returncode == USAGE and f"field {words}: value is" in last_line(done),
                    f"exit code {done.returncode}: {last_line(done)}")
    broken_tensors_of_peft(test, begins, adapter)
    done = begins({"use_rslora": False, "rank_pattern": {}, "a_newer_kind": None,
                   "init_lora_weights": "gaussian", "layers_to_transform": [0, 1, 2]})
    test.expect(done.returncode == 0, f"exit code {done.returncode}: {last_line(done)}")
    # What PEFT cannot save beside a LoRA, a merge can.
    for also, words in (("wte", "output matrix"), ("c_attn.bias", "in a layer that has a LoRA")):
        text = config_of(GPT, "", lora_of("c_attn", f'train_also: "{also}"'))
        run_dir, _ = test.train(test.config(text), arguments=["--max-steps", "2"])
        out = test.folder / "unsaved"
        done = lockstep_run.run(test.binary, ["export", run_dir, "--format", "peft", "--out", out],
                                ranks=0)
        test.expect(done.returncode == USAGE and words in last_line(done) and not out.exists(),
                    f"exit code {done.returncode}: {last_line(done)}")
        test.command("export", run_dir, "--format", "huggingface", "--out",
                     test.folder / f"merged-{also}")


def other_base(test):
    """What PEFT would go by is not what the LoRA was trained on."""
    gpt = "gpt { layers: 2 heads: 2 width: 16 context: 16 vocabulary: 50 }"
    base_dir, _ = test.train(test.config(network(gpt, "synthetic {}")),
                             arguments=["--max-steps", "2"])
    base, out = test.folder / "base", test.folder / "of-another"
    test.command("export", base_dir, "--format", "huggingface", "--out", base)
    for model, words in ((f'from: "{base}" gpt {{ context: 8 }}', ""),
                         (f'from: "{base}" gpt {{ norm_epsilon: 0.01 }}',
                          "model.gpt.norm_epsilon is 0.01 in this run, but 1e-05 in"),
                         (gpt, "initialised from scratch")):
        run_dir, _ = test.train(test.config(network(model, "synthetic {}", lora_of("c_attn"))),
                                arguments=["--max-steps", "2"])
        done = lockstep_run.run(test.binary, ["export", run_dir, "--format", "peft", "--out", out],
                                ranks=0)
        warned = words in done.stderr if words else "PEFT" not in done.stderr
        test.expect(done.returncode == 0 and warned, f"{words}: {done.stderr}")
        shutil.rmtree(out)


def broken_tensors_of_peft(test, begins, adapter):
    tensors = adapter / "adapter_model.safetensors"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-4] + struct.pack("<f", math.nan))
    done = begins({})
    test.expect(done.returncode == CHECKPOINT and "adapter_model.safetensors: tensor 'base_model."
                in last_line(done) and "is not finite" in last_line(done),
                f"exit code {done.returncode}: {last_line(done)}")
    # The model has it, but it does not train.
    start = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:start])
    name = "base_model.model.transformer.h.0.ln_1.bias"
    header[name] = {"dtype": "F32", "shape": [32],
                    "data_offsets": [len(whole) - start, len(whole) - start + 128]}
    text = json.dumps(header).encode()
    tensors.write_bytes(len(text).to_bytes(8, "little") + text + whole[start:] + bytes(128))
    done = begins({})
    test.expect(done.returncode == USAGE and
                f"adapter.lora.train_also: value is 'ln_f'; allowed: a pattern that also matches "
                f"transformer.h.0.ln_1.bias, because {adapter} has '{name}'" in last_line(done),
                f"exit code {done.returncode}: {last_line(done)}")
    tensors.rename(adapter / "adapter_model.bin")
    done = begins({})
    test.expect(done.returncode == CHECKPOINT and "has adapter_model.bin, which only Python can read"
                in last_line(done), f"exit code {done.returncode}: {last_line(done)}")
    tensors.write_bytes(whole)


def merges(test):
    """A config that has another LoRA than the checkpoint."""
    text = config_of(GPT, "", lora_of("c_attn"))
    run_dir, _ = test.train(test.config(text), arguments=["--max-steps", "2"])
    for before, after in (("rank: 2", "rank: 3"), ("c_attn", "c_fc")):
        done = lockstep_run.run(test.binary, ["generate", test.config(text.replace(before, after)),
                                              "--checkpoint", run_dir, "--prompt-tokens", "1,2",
                                              "--tokens", "2"], ranks=0)
        test.expect(done.returncode == CHECKPOINT and "lora_A" in last_line(done),
                    f"exit code {done.returncode}: {last_line(done)}")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-lora-") as folder:
        test = Test(binary, pathlib.Path(folder))
        encoders(test)
        new_head_of_a_file(test)
        without_the_base(test)
        output_matrix(test)
        folders_of_peft(test)
        other_base(test)
        merges(test)
    return 1 if test.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
