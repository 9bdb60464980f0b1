#!/usr/bin/env python3
"""LoRAs of PEFT beside Lockstep's.

    compare_peft.py LOCKSTEP [--steps 50] [CASE ...]

Models are those of compare_transformers.py. Each gets a LoRA by PEFT whose second matrices are not
zero, saved by save_pretrained, from which both train with AdamW on the same batches. Then Lockstep
exports the LoRA, which PeftModel.from_pretrained loads, and the weights with the LoRA added, which
from_pretrained loads. Prints the largest differences: of the losses of all steps (relative), of the
logits of PEFT's model with its own LoRA and with Lockstep's, of these and the merged weights', all of
one batch; and whether a LoRA that nothing has moved comes back bit for bit. Ends with 1 where one is
above its limit. Needs torch, transformers, peft, numpy.
"""
import argparse
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
# The layers as PEFT and as Lockstep are told of them, and whether the norms learn beside them.
TARGETS = {
    "llama": (["q_proj", "v_proj"], "(q|v)_proj", ""),
    "llama_mqa": (["q_proj", "k_proj", "o_proj", "up_proj", "down_proj"],
                  "(q|k|o|up|down)_proj", ""),
    "gpt2": (["c_attn"], "c_attn", ""),
    "gpt2_untied": (["c_attn", "c_fc", "attn.c_proj"], "c_attn|c_fc|attn.c_proj", "ln_f"),
    "qwen3": (["q_proj", "k_proj", "v_proj", "gate_proj"], "(q|k|v|gate)_proj", ""),
    "qwen2_tied": (["k_proj", "up_proj"], "(k|up)_proj", "model\\\\.norm"),
    "mistral": (["q_proj", "v_proj", "down_proj"], "(q|v|down)_proj", ""),
}
RANK, ALPHA = 4, 12


def make_adapter(model, case, folder):
    """PEFT's model, whose LoRA the folder has."""
    targets, _, also = TARGETS[case]
    modules = [name for name, _ in model.named_modules()
               if also and name.endswith(also.replace("\\\\", ""))]
    torch.manual_seed(5)
    adapted = peft.get_peft_model(model, peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0.0,
        modules_to_save=modules or None, fan_in_fan_out=model.config.model_type == "gpt2",
        task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    adapted.save_pretrained(folder)
    return adapted


def train_there(model, x, y, steps):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=base.LR,
                                  betas=(0.9, 0.95), eps=1e-8, weight_decay=base.DECAY)
    losses = []
    for step in range(steps):
        batch = torch.arange(step * base.BATCH, (step + 1) * base.BATCH) % len(x)
        optimizer.zero_grad()
        loss = base.loss_of(model, x[batch], y[batch])
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def adapter_section(case, folder):
    _, match, also = TARGETS[case]
    return (f'adapter {{ lora {{ rank: {RANK} alpha: {ALPHA} match: "{match}" '
            f'from: "{folder}/begin" train_also: "{also}" }} }}')


def train_here(args, case, folder, steps):
    config = folder / "config.textproto"
    config.write_text(f"""
name: "compare"
model {{ from: "{folder}/there" }}
data {{ {base.TOKENS.replace("FOLDER", str(folder))} shuffle: false }}
train {{ global_batch: {base.BATCH} lanes: 2 steps: {steps} }}
optimizer {{
  decay_bias_and_norm: true
  adamw {{ beta1: 0.9 beta2: 0.95 epsilon: 1e-8 weight_decay: {base.DECAY} }}
}}
schedule {{ lr: {base.LR} }}
output {{ run_dir: "{folder}/run" }}
{adapter_section(case, folder)}
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
    """Of what both have: PEFT saves whole layers beside the LoRA, and so does Lockstep."""
    there, here = (safetensors.torch.load_file(folder / "adapter_model.safetensors")
                   for folder in (there, here))
    return there.keys() == here.keys() and all(torch.equal(there[n], here[n]) for n in there)


def compare(args, case):
    model = base.make_model(case)
    with tempfile.TemporaryDirectory(prefix="lockstep-peft-") as name, torch.no_grad():
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "there")
        load = transformers.AutoModelForCausalLM.from_pretrained
        adapted = make_adapter(model, case, folder / "begin")
        x, y = base.make_samples(base.noisy_sequence(), model.config.max_position_embeddings,
                                 folder / "tokens.u16")
        here = train_here(args, case, folder, args.steps)
        with torch.enable_grad():
            there = train_there(adapted, x, y, args.steps)
        logits = lambda m: m.eval()(input_ids=x[:base.BATCH]).logits
        trained = logits(adapted)
        loaded = logits(peft.PeftModel.from_pretrained(load(folder / "there").float(),
                                                       folder / "here"))
        merged = logits(load(folder / "merged").float())
        size = trained.abs().max()
        return {"losses": max(base.relative(a, b) for a, b in zip(here, there, strict=True)),
                "trained": ((trained - loaded).abs().max() / size).item(),
                "merged": ((merged - loaded).abs().max() / size).item(),
                "round trip": 0 if same_bits(folder / "begin", folder / "again") else 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", default=list(TARGETS))
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
