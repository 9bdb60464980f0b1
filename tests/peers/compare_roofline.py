#!/usr/bin/env python3
"""Compares the roofline of `lockstep plan --gpu` with NVIDIA's own model of products, without a GPU.
Catches: a rate or a bandwidth of the table of GPU models that is too low, a product with the wrong
extents or count. The roofline must never be above NVIDIA's time, and a large product's must be
within a factor of NVIDIA's.

compare_roofline.py BINARY [--all: print every product]

Needs the package nvidia-matmul-heuristics; without it, ends with 77. All figures are predicted.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = {"GPT-2 124M": "models/gpt2_124m", "Llama-3.2-1B": "models/llama_3.2_1b",
           "ResNet-50, 1x1": "vision/resnet50_imagenet"}
# The name for --gpu, and NVIDIA's in its package.
GPUS = {"H100": "H100_SXM", "A100-80GB": "A100_SXM_80GB", "L40S": "L40S", "RTX-4090": "RTX_4090",
        "B200": "B200"}
LARGE_FLOPS = 1e11  # a product that fills any of these GPUs for several waves
# NVIDIA's model has waves that are not full and the start of a kernel. That is most on a B200.
MAX_RATIO = 2.2
SLACK = 1.02  # NVIDIA's clocks and bandwidths are not rounded as those of data sheets
# The clock of NVIDIA's model over that of the data sheet's rates, in GHz, if they differ: an L40S is
# at its base clock, others at the highest that the driver allows.
CLOCKS = {"H100": 1.98 / 1.83, "L40S": 1.11 / 2.52, "RTX-4090": 3.105 / 2.52, "B200": 1.965 / 1.855}


def products(binary, config, gpu, folder):
    out = pathlib.Path(folder) / "plan.json"
    # Memory does not matter here: the plan is printed and written also if it does not fit.
    subprocess.run([binary, "plan", f"configs/{config}.textproto", "--ranks", "8", "--gpu", gpu,
                    "--set", "execution.precision=BF16", "--data", folder, "--json", out],
                   cwd=ROOT, capture_output=True, check=False)
    plan = json.loads(out.read_text())
    return [p for p in plan["predicted_products"] if not p["convolution"]]


def nvidia_seconds(package, interface, product):
    """The best of the layouts of a product and its gradients: NVIDIA's matrices are by columns."""
    best = None
    for layout in (package.NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR,
                   package.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR,
                   package.NvMatmulHeuristicsMatmulLayout.NT_ROW_MAJOR):
        problem = interface.makeNvMatmulHeuristicsProblem(product["m"], product["n"], product["k"],
                                                          layout)
        for found in interface.get(problem, 1, precision="TST"):
            if best is None or found["runtime"] < best:
                best = found["runtime"]
    return best


def main():
    try:
        import nvMatmulHeuristics as package
    except ImportError:
        print("skipped: the package nvidia-matmul-heuristics is missing")
        return 77
    binary, show = pathlib.Path(sys.argv[1]).resolve(), "--all" in sys.argv[2:]
    failed = 0
    print("| GPU | products of | sizes | roofline, ms a step | NVIDIA's model, ms | "
          "ratio of single products | of large ones |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="lockstep-roofline-") as folder:
        for gpu, name in GPUS.items():
            interface = package.NvMatmulHeuristicsInterfaceEx(
                gpu=package.NvMatmulHeuristicsNvidiaGpu[name],
                flags=package.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING)
            for label, config in CONFIGS.items():
                own = theirs = 0
                ratios, large = [], []
                for product in products(binary, config, gpu, folder):
                    seconds = nvidia_seconds(package, interface, product)
                    ratio = seconds / product["least_seconds"]
                    count = product["count_per_step_per_rank"]
                    own, theirs = own + count * product["least_seconds"], theirs + count * seconds
                    ratios.append(ratio)
                    size = f"{product['m']} x {product['n']} x {product['k']}"
                    is_large = 2.0 * product["m"] * product["n"] * product["k"] >= LARGE_FLOPS
                    large += [ratio] if is_large else []
                    if show:
                        print(f"  {size}: {product['least_seconds'] * 1e6:.1f} us, NVIDIA's "
                              f"{seconds * 1e6:.1f} us, {ratio:.2f}")
                    clock = CLOCKS.get(gpu, 1)
                    if (ratio * SLACK * max(clock, 1) < 1
                            or (is_large and ratio * min(clock, 1) > MAX_RATIO)):
                        failed += 1
                        print(f"FAILED {gpu}, {label}, {size}: {ratio:.2f} times the roofline")
                spans = [f"{min(r):.2f} to {max(r):.2f}" if r else "none" for r in (ratios, large)]
                print(f"| {gpu} | {label} | {len(ratios)} | {own * 1e3:.2f} | {theirs * 1e3:.2f} | "
                      f"{spans[0]} | {spans[1]} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
