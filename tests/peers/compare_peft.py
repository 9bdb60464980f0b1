#!/usr/bin/env python3
"""LoRAs of PEFT beside Lockstep's.

    compare_peft.py LOCKSTEP [--steps 50] [CASE ...]

Models are those of compare_transformers.py. Each gets a LoRA by PEFT whose second matrices are
not zero, saved by save_pretrained, from which both train with AdamW on the same batches; some also
a new head, of another number of classes than the folder's, which PEFT calls modules_to_save. Then
Lockstep exports the LoRA, which PeftModel.from_pretrained loads, and the weights with the LoRA
added, which from_pretrained loads. Prints the largest differences: of the losses of all steps
(relative), of the logits of PEFT's model with its own LoRA and with Lockstep's, of these and the
merged weights', all of one batch; and whether a LoRA that nothing has moved comes back bit for bit.
Ends with 1 where one is above its limit. Needs torch, transformers, peft, numpy.
"""
import argparse
import copy
import dataclasses
import pathlib
import sys
import tempfile

import numpy
import peft
import safetensors.torch
import torch
import transformers

import compare_transformers as base

LIMITS = {"losses": 1e-5, "trained": 2e-4, "merged": 2e-5, "round trip": 0}
RANK, ALPHA = 4, 12


@dataclasses.dataclass
class Case:
    targets: list  # of PEFT
    match: str  # of Lockstep
    saved: list = ()  # modules that train beside the LoRA
    also: str = ""  # the same for Lockstep; heads that are new need not be named
    model: str = ""  # of compare_transformers.py; empty: the case's own name
    labels_there: int = 0  # of the folder, where the head is new


CASES = {
    "llama": Case(["q_proj", "v_proj"], "(q|v)_proj"),
    "llama_mqa": Case(["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"],
                      "(q|k|o|up|down)_proj"),
    "llama_biases": Case(["q_proj", "o_proj", "down_proj"], "(q|o|down)_proj"),
    "llama_head": Case(["v_proj", "lm_head"], "v_proj|lm_head", model="llama"),
    "gpt2": Case(["c_attn"], "c_attn"),
    "gpt2_untied": Case(["c_attn", "c_fc", "attn.c_proj"], "c_attn|c_fc|attn.c_proj",
                        ["transformer.ln_f"], "ln_f"),
    "gptj": Case(["q_proj", "out_proj", "fc_in"], "(q|out)_proj|fc_in"),
    "qwen3": Case(["q_proj", "k_proj", "v_proj", "gate_proj"], "(q|k|v|gate)_proj"),
    "qwen2_tied": Case(["k_proj", "up_proj"], "(k|up)_proj", ["model.norm"], "model\\\\.norm"),
    "mistral": Case(["q_proj", "v_proj", "down_proj"], "(q|v|down)_proj"),
    "bert": Case(["query", "value"], "query|value"),
    "bert_tags": Case(["attention.output.dense", "key"], "attention.output.dense|key"),
    "bert_new_head": Case(["query", "value", "intermediate.dense"], "query|value|intermediate",
                          ["classifier"], model="bert_classes", labels_there=3),
    "roberta_new_head": Case(["query", "value"], "query|value", ["classifier"],
                             "^classifier", model="roberta_classes", labels_there=4),
    "vit": Case(["q_proj", "v_proj"], "query|value"),
    "vit_mlp": Case(["fc1", "o_proj"], "intermediate|attention.output", model="vit_no_bias"),
    "vit_new_head": Case(["k_proj", "fc2"], "key|[0-9]\\\\.output",
                         ["classifier", "vit.layers.1.layernorm_after"], "layer.1.layernorm_after",
                         model="vit", labels_there=4),
}


def make_folder(case, folder):
    """Saves the model of a case; returns what has its weights and the head that is to train."""
    model = base.make_model(case.model)
    if not case.labels_there:
        model.save_pretrained(folder)
        return model
    config = copy.deepcopy(model.config)
    config.num_labels = case.labels_there
    torch.manual_seed(7)
    other = type(model)(config)
    body = {name: tensor for name, tensor in model.state_dict().items()
            if tensor.shape == other.state_dict()[name].shape}
    other.load_state_dict(body, strict=False)
    other.save_pretrained(folder)
    return model


def make_adapter(model, case, folder):
    """PEFT's model, whose LoRA the folder has."""
    torch.manual_seed(5)
    causal = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    adapted = peft.get_peft_model(model, peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=case.targets, lora_dropout=0.0,
        modules_to_save=list(case.saved) or None,
        fan_in_fan_out=model.config.model_type == "gpt2",
        task_type="CAUSAL_LM" if causal else None))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    adapted.save_pretrained(folder, save_embedding_layers=False)  # they do not train
    return adapted


def train_there(model, x, y, steps):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=base.LR,
                                  betas=(0.9, 0.95), eps=base.epsilon_of(model),
                                  weight_decay=base.DECAY)
    losses = []
    for step in range(steps):
        batch = torch.arange(step * base.BATCH, (step + 1) * base.BATCH) % len(x)
        optimizer.zero_grad()
        loss = base.loss_of(model, x[batch], y[batch])
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def train_here(args, case, model, data, folder, steps):
    config = folder / "config.textproto"
    section = {"vit": "vit"}.get(model.config.model_type, "bert")
    classes = f"{section} {{ classes: {model.config.num_labels} }}" if case.labels_there else ""
    config.write_text(f"""
name: "compare"
model {{ from: "{folder}/there" {classes} }}
data {{ {data.replace("FOLDER", str(folder))} shuffle: false }}
train {{ global_batch: {base.BATCH} lanes: 2 steps: {steps} }}
optimizer {{
  decay_bias_and_norm: true
  adamw {{ beta1: 0.9 beta2: 0.95 epsilon: {base.epsilon_of(model)} weight_decay: {base.DECAY} }}
}}
schedule {{ lr: {base.LR} }}
output {{ run_dir: "{folder}/run" }}
adapter {{ lora {{ rank: {RANK} alpha: {ALPHA} match: "{case.match}" from: "{folder}/begin"
                   train_also: "{case.also}" }} }}
""")
    still = ["--set", "train.steps=1", "--set", "schedule.lr=1e-30"]
    for command in (["train", config, "--device", "cpu"],
                    ["export", folder / "run", "--format", "peft", "--out", folder / "here"],
                    ["export", folder / "run", "--format", "huggingface", "--out",
                     folder / "merged"],
                    ["train", config, "--device", "cpu", "--run-dir", folder / "still", *still],
                    ["export", folder / "still", "--format", "peft", "--out", folder / "again"]):
        done = base.subprocess.run([args.lockstep, *map(str, command)], capture_output=True,
                                   text=True)
        if done.returncode != 0:
            sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return [base.json.loads(line)["loss"]
            for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def same_bits(there, here):
    """Of all that PEFT saves, whole layers beside the LoRA too. Lockstep writes tensors of a ViT by
    the names of transformers 4 as well."""
    there, here = (safetensors.torch.load_file(folder / "adapter_model.safetensors")
                   for folder in (there, here))
    twice = any(".vit." in name for name in there)
    return (len(here) == len(there) or twice) and all(
        n in here and torch.equal(there[n], here[n]) for n in there)


def compare(args, name):
    case = dataclasses.replace(CASES[name], model=CASES[name].model or name)
    with tempfile.TemporaryDirectory(prefix="lockstep-peft-") as at, torch.no_grad():
        folder = pathlib.Path(at)
        model = make_folder(case, folder / "there")
        kind, labels = type(model), model.config.num_labels
        load = lambda path: kind.from_pretrained(path, num_labels=labels,
                                                 ignore_mismatched_sizes=True).float()
        adapted = make_adapter(model, case, folder / "begin")
        x, y, data = base.make_data(model, folder)
        here = train_here(args, case, model, data, folder, args.steps)
        with torch.enable_grad():
            there = train_there(adapted, x, y, args.steps)
        logits = lambda m: base.logits_of(m.eval(), x[:base.BATCH])
        trained = logits(adapted)
        loaded = logits(peft.PeftModel.from_pretrained(load(folder / "there"), folder / "here"))
        merged = logits(load(folder / "merged"))
        size = trained.abs().max()
        return {"losses": max(base.relative(a, b) for a, b in zip(here, there, strict=True)),
                "trained": ((trained - loaded).abs().max() / size).item(),
                "merged": ((merged - loaded).abs().max() / size).item(),
                "round trip": 0 if same_bits(folder / "begin", folder / "again") else 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    numpy.seterr(all="raise")
    failed = 0
    print(f"{'model':16} " + " ".join(f"{name:>11}" for name in LIMITS))
    print(f"{'limit':16} " + " ".join(f"{limit:11.0e}" for limit in LIMITS.values()))
    for case in args.cases:
        worst = compare(args, case)
        fits = all(worst[name] <= limit for name, limit in LIMITS.items())
        failed += not fits
        print(f"{case:16} " + " ".join(f"{worst[name]:11.1e}" for name in LIMITS) +
              ("" if fits else "  FAILED"), flush=True)
    print(f"{len(args.cases) - failed} of {len(args.cases)} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
