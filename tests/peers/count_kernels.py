#!/usr/bin/env python3
"""Counts, without a GPU, what the GPU's kernels do in a training step: launches, bytes, and where
products run. The time beside it is predicted.

count_kernels.py BINARY [--ops]: a table of networks and GPUs; with --ops another one of the kinds of
ops for one H100.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = {"GPT-2 124M": ["configs/models/gpt2_124m.textproto"],
            "Llama-3.2-1B packed": ["configs/models/llama_3.2_1b.textproto"],
            "BERT-base": ["configs/models/bert_base.textproto"],
            "ResNet-50": ["configs/vision/resnet50_imagenet.textproto"],
            "ViT-B/16": ["configs/vision/resnet50_imagenet.textproto", "--set", "model.vit.classes=1000",
                         "--set", "optimizer.adamw.weight_decay=0.05"]}
GPUS = ("H100", "A100-80GB", "RTX-4090")
RANKS = (1, 8)
SUMS = "sums of lanes"


def plan(binary, arguments, gpu, ranks, folder):
    out = pathlib.Path(folder) / "plan.json"
    # The plan is written also if it does not fit.
    done = subprocess.run([binary, "plan", *arguments, "--ranks", str(ranks), "--on", gpu, "--data",
                           folder, "--json", out], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    if not out.exists():
        sys.exit(done.stdout + done.stderr)
    found = json.loads(out.read_text())
    out.unlink()
    return found, done.returncode


def milliseconds(low_high):
    low, high = (1000 * value for value in low_high)
    return f"{low:.3g} to {high:.3g}"


def main():
    binary, by_op = pathlib.Path(sys.argv[1]).resolve(), "--ops" in sys.argv[2:]
    rows, ops = [], []
    with tempfile.TemporaryDirectory(prefix="lockstep-kernels-") as folder:
        for network, arguments in NETWORKS.items():
            for gpu in GPUS:
                for ranks in RANKS:
                    found, code = plan(binary, arguments, gpu, ranks, folder)
                    kernels = [each for each in found["counted_kernels"] if each["op"] != SUMS]
                    sums = sum(each["bytes"] for each in found["counted_kernels"]
                               if each["op"] == SUMS)
                    total = {key: sum(each[key] for each in kernels)
                             for key in ("launches", "bytes", "tensor_core_flops", "fma_flops")}
                    products = total["tensor_core_flops"] + total["fma_flops"]
                    rows.append((network, f"{ranks} x {gpu}", f"{total['launches']:,}",
                                 f"{total['bytes'] / 1e9:,.0f}", f"{sums / 1e9:,.1f}",
                                 f"{products / 1e12:,.0f}",
                                 f"{100 * total['tensor_core_flops'] / products:.1f}%",
                                 milliseconds(found["predicted_step_seconds"]) +
                                 (" (does not fit)" if code else ""),
                                 " to ".join(f"{100 * share:.0f}"
                                             for share in found["predicted_mfu"]) + "%"))
                    if gpu == GPUS[0] and ranks == 1:
                        ops += [(network, each["op"], f"{each['launches']:,}",
                                 f"{each['bytes'] / 1e9:,.1f}",
                                 f"{each['tensor_core_flops'] / 1e12:,.1f}",
                                 f"{each['fma_flops'] / 1e12:,.1f}") for each in kernels]

    def table(titles, lines):
        print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles))
        for line in lines:
            print("| " + " | ".join(line) + " |")

    table(("network", "GPUs", "launches of a step's ops", "GB that they move",
           "GB of sums of lanes", "TFLOP of products", "on tensor cores", "predicted, ms a step",
           "of the peak"), rows)
    if by_op:
        print()
        table(("network", "op", "launches", "GB moved", "TFLOP on tensor cores",
               "TFLOP on other units"), ops)
    return 0


if __name__ == "__main__":
    sys.exit(main())
