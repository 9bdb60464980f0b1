#!/usr/bin/env python3
"""Muon beside its formula in PyTorch, and beside AdamW on a text.

    compare_muon.py formula LOCKSTEP [--steps 50]    a Llama of four layers, float32 and float64
    compare_muon.py text LOCKSTEP TEXT [--steps 400] a small GPT on a text: loss after equal steps

`formula` trains with the same weights, samples and rates as PyTorch (the classes of
tests/golden/generate.py; needs torch, safetensors, transformers) and fails where a loss is off by
more than 1e-4. `text` tries a small grid of rates for Muon, AdamW, and AdamW with moments of two
bytes, and prints all. Both take one core.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[2]
LOSS_TOLERANCE = 1e-4  # relative

TEXT_CONFIG = """
name: "compare_muon"
seed: 1337
model {{ gpt {{ layers: 4 heads: 4 width: 64 context: 64 dropout: 0 }} }}
data {{ text {{ train: "{text}" eval_fraction: 0.1 }} }}
train {{ global_batch: 8 lanes: 4 steps: {steps} }}
optimizer {{ {optimizer} clip_norm: 1 }}
schedule {{ kind: COSINE lr: {lr} min_lr: {low} warmup_steps: 30 }}
eval {{ max_samples: 400 }}
execution {{ threads: 1 }}
checkpoint {{ at_end: false }}
output {{ tensorboard: false }}
"""
ADAMW = "adamw { beta2: 0.99 weight_decay: 0.1 }"
MUON = "muon { weight_decay: 0.1 beta2: 0.99 scale: MATCH_RMS_ADAMW }"
KINDS = {
    "AdamW": ADAMW,
    "Muon": MUON,
    "AdamW, moments BF16": ADAMW + " moments: BF16",
    "Muon, moments BF16": MUON + " moments: BF16",
}
RATES = (0.001, 0.002, 0.004, 0.008)


def lines_of(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def train(lockstep, config, run_dir):
    done = subprocess.run([lockstep, "train", config.name, "--run-dir", run_dir, "--device", "cpu"],
                          cwd=config.parent, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return lines_of(run_dir)


def compare_formula(options):
    sys.path.insert(0, str(TREE / "tests" / "golden"))
    import generate
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        generate.HERE, generate.STEPS = pathlib.Path(folder), options.steps
        generate.write_tokens()
        case = generate.run(generate.llama(layers=4, width=64, mlp_width=176), 4,
                            {"muon": {"weight_decay": 0.0625, "adamw_lr_scale": 0.25},
                             "clip_norm": 1}, generate.cosine(0.015625, 4), "weights", batch=8)
        generate.write_case("case", case)
        config = generate.HERE / "case.textproto"
        lines = train(options.lockstep, config, generate.HERE / "run")
        expected = json.loads((generate.HERE / "case.json").read_text())
        worst = max(abs(line["loss"] / loss - 1) for line, loss in zip(lines, expected["loss"]))
    print(f"{len(lines)} steps: loss {lines[0]['loss']:.4f} -> {lines[-1]['loss']:.4f}; off from "
          f"PyTorch in float64 by {worst:.1e}, as PyTorch in float32 is by "
          f"{expected['float32_deviation']['loss']:.1e}")
    return 1 if not worst <= LOSS_TOLERANCE else 0


def compare_text(options):
    print("| optimizer | rate | training loss | evaluation loss | optimizer, ms a step | step, ms |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, optimizer in KINDS.items():
            if options.only and options.only != name:
                continue
            for lr in options.rates:
                config = folder / "config.textproto"
                config.write_text(TEXT_CONFIG.format(
                    text=options.text.resolve(), steps=options.steps, optimizer=optimizer, lr=lr,
                    low=lr / 20))
                run_dir = folder / "run"
                lines = train(options.lockstep, config, run_dir)
                steps = [line for line in lines if "optimizer_ms" in line]
                last = sum(line["loss"] for line in steps[-20:]) / 20
                evaluation = [line["eval_loss"] for line in lines if "eval_loss" in line]
                fastest = [sorted(line[field] for line in steps)[len(steps) // 10]
                           for field in ("optimizer_ms", "step_ms")]
                print(f"| {name} | {lr} | {last:.4f} | {evaluation[-1]:.4f} | {fastest[0]:.2f} | "
                      f"{fastest[1]:.1f} |", flush=True)
                shutil.rmtree(run_dir)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    formula = commands.add_parser("formula")
    formula.add_argument("lockstep", type=pathlib.Path)
    formula.add_argument("--steps", type=int, default=50)
    text = commands.add_parser("text")
    text.add_argument("lockstep", type=pathlib.Path)
    text.add_argument("text", type=pathlib.Path)
    text.add_argument("--steps", type=int, default=400)
    text.add_argument("--only", choices=KINDS)
    text.add_argument("--rates", type=float, nargs="+", default=RATES)
    options = parser.parse_args()
    options.lockstep = options.lockstep.resolve()
    return compare_formula(options) if options.command == "formula" else compare_text(options)


if __name__ == "__main__":
    sys.exit(main())
