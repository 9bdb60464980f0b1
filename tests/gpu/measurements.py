"""The parts of the GPU check that measure: see README.md."""
import json
import pathlib
import statistics
import sys

import configs
from checks import DOES_NOT_FIT, in_precision, same_hash, surprising_fallbacks
from machine import TimeIsUp, last_line, plain_name

COMPILED = ("PyTorch compiled", ["--compile"], 75)
EAGER = ("PyTorch eager", [], 25)


def first_steps(machine, report):
    """GPT-2 124M in BF16, three steps, eager and replayed: the same bits, and a first speed."""
    what = "GPT-2 124M bf16, 3 steps"
    runs = {}
    for how, options in (("eager", ["--eager"]), ("replayed", [])):
        result, lines, done = train(machine, configs.gpt2("124M", 3), *options)
        runs[how] = (result, done)
        if done.returncode == DOES_NOT_FIT:
            return report.leave_out(what, last_line(done))
        report.check("first_steps", f"{what}, {how}: trains", result is not None, last_line(done),
                     "exit code 0")
        if lines:  # the first step warms up, or records
            report.figure(f"{what}, {how}, tokens/s", median_of(lines[1:], "tokens_per_s"))
    return same_hash(machine, report, "first_steps", f"{what}: replayed, eager steps' weights",
                     runs["eager"], runs["replayed"])


def train(machine, text, *arguments):
    return machine.train(text, *arguments, smaller=configs.SMALL_BENCHMARKS, limit_s=100)


def measured(machine, report, stage, name, text, *arguments):
    """The lines of a run's metrics from the fifth step on; empty if it failed."""
    _, lines, done = train(machine, text, *arguments)
    if done.returncode == DOES_NOT_FIT:
        report.leave_out(name, last_line(done))
        return []
    if not lines:
        report.check(stage, f"{name} trains", False, last_line(done), "exit code 0")
    elif surprising_fallbacks(done):
        report.check(stage, f"{name}: all on the libraries", False, surprising_fallbacks(done)[0],
                     "no native kernel but for known limits")
    return lines[4:]


def median_of(lines, key):
    return statistics.median(line[key] for line in lines)


def have_torch(machine, report, name):
    if machine.has_torch is None:
        machine.has_torch = machine.start(
            [sys.executable, "-c", "import torch; assert torch.cuda.is_available()"],
            60).returncode == 0
    if not machine.has_torch:
        report.leave_out(f"{name} PyTorch", "python3 has no torch with CUDA")
    return machine.has_torch


def beside_torch(machine, report, name, rate, script, arguments, unit, variants):
    """Figures of PyTorch's script beside Lockstep's `rate`, in `unit`. What PyTorch does not do in
    time is not measured, and no failure."""
    here = pathlib.Path(__file__).resolve().parent
    if not variants or not have_torch(machine, report, name):
        return
    for what, more, needs_s in variants:
        if not machine.fits(report, f"{name} {what}", needs_s):
            continue
        try:
            done = machine.start([sys.executable, here / script, *arguments, *more], 200)
        except TimeIsUp:
            report.leave_out(f"{name} {what}", "not done when the part's time was up")
            return
        if done.returncode != 0:
            report.leave_out(f"{name} {what}", "failed: " + last_line(done))
            continue
        peer = json.loads(done.stdout.strip().splitlines()[-1])[unit]
        report.figure(f"{name} {what} {unit.replace('_per_', '/')}", peer)
        report.figure(f"{name} over {what}", rate / peer)


def gpt2(machine, report, stage, name, lanes, orders, variants=(EAGER, COMPILED)):
    layers, heads, width, batch = configs.GPT2[name]
    what = f"GPT-2 {name} bf16, {lanes} x {batch}"
    rates = {}
    for order in orders:
        lines = measured(machine, report, stage, what, configs.gpt2(name, 12, lanes), "--set",
                         f"comm.order={order}")
        if not lines:
            return
        rates[order] = median_of(lines, "tokens_per_s")
        report.figure(f"{what} {order} tokens/s", rates[order])
        if order == "TREE" and "mfu" in lines[-1]:
            report.figure(f"{what} MFU", median_of(lines, "mfu"))
    if len(rates) == 2:
        report.figure(f"{what} price of TREE", rates["FAST"] / rates["TREE"] - 1)
    beside_torch(machine, report, what, rates["TREE"], "torch_gpt2.py",
                 ["--layers", layers, "--heads", heads, "--width", width, "--batch", batch,
                  "--accumulate", lanes], "tokens_per_s", variants)


def speed(machine, report):
    """GPT-2 124M in BF16 beside PyTorch, eager and compiled: tokens/s and MFU."""
    gpt2(machine, report, "speed", "124M", 8, ["TREE"])


def tuning(machine, report):
    """GPT-2 124M in BF16 with timed algorithms (execution.tune): the same weights again with the
    file, and tokens/s beside those of the libraries' first algorithms."""
    what = "GPT-2 124M bf16, 8 lanes"
    text = configs.gpt2("124M", 8)
    file = machine.work / "algorithms.txt"
    tune = ("--set", f"execution.tune={file}")
    runs, rates = {}, {}
    for how, options in (("first algorithms", ()), ("timed", tune), ("timed, again", tune)):
        result, lines, done = train(machine, text, *options)
        if done.returncode == DOES_NOT_FIT:
            return report.leave_out(what, last_line(done))
        report.check("tuning", f"{what}, {how}: trains", result is not None, last_line(done),
                     "exit code 0")
        if result is None:
            return None
        runs[how], rates[how] = (result, done), median_of(lines[4:], "tokens_per_s")
        report.figure(f"{what}, {how}, tokens/s", rates[how])
    (machine.out / "algorithms.txt").write_text(file.read_text())
    report.figure(f"{what}, timed over first algorithms", rates["timed"] / rates["first algorithms"])
    return same_hash(machine, report, "tuning", f"{what}: again with the file: the same weights",
                     runs["timed"], runs["timed, again"])


def models(machine, report):
    """GPT-2 124M and 355M beside PyTorch, a step of 8 batches and of one; what the tree costs."""
    gpt2(machine, report, "models", "124M", 8, ["TREE", "FAST"], variants=())
    for name, lanes in (("355M", 8), ("124M", 1), ("355M", 1)):
        if machine.fits(report, f"GPT-2 {name}, {lanes} lanes", 20):
            orders = ["TREE", "FAST"] if lanes == 8 else ["TREE"]
            gpt2(machine, report, "models", name, lanes, orders)


def lanes(machine, report):
    """One step of 64 samples of GPT-2 124M in 1, 4, 8 and 16 lanes: what the same bits on so many
    ranks cost."""
    for count in (1, 4, 8, 16):
        what = f"GPT-2 124M bf16, 64 samples in {count} lanes"
        lines = measured(machine, report, "lanes", what,
                         configs.gpt2("124M", 12, count, 64 // count))
        if lines:
            report.figure(f"{what} tokens/s", median_of(lines, "tokens_per_s"))


def resnet50(machine, report, stage, precision, variants):
    name = f"ResNet-50 {precision.lower()}"
    lines = measured(machine, report, stage, name, configs.resnet50(12), *in_precision(precision))
    if not lines:
        return
    rate = median_of(lines, "samples_per_s")
    report.figure(f"{name} images/s", rate)
    if "mfu" in lines[-1]:
        report.figure(f"{name} MFU", median_of(lines, "mfu"))
    beside_torch(machine, report, name, rate, "torch_resnet50.py",
                 ["--batch", configs.RESNET50_BATCH, "--precision", precision.lower()],
                 "images_per_s", variants)


DETERMINISTIC = ("PyTorch deterministic", ["--deterministic"], 30)


def images(machine, report):
    """ResNet-50 in BF16 beside PyTorch (channels last), eager and compiled."""
    resnet50(machine, report, "images", "BF16", (EAGER, COMPILED))


def more_images(machine, report):
    """ResNet-50 in TF32, and beside deterministic PyTorch."""
    resnet50(machine, report, "more_images", "TF32", (EAGER, DETERMINISTIC, COMPILED))
    resnet50(machine, report, "more_images", "BF16", (DETERMINISTIC,))


def ops(machine, report):
    """Each op of GPT-2 124M and of ResNet-50 against the ceilings."""
    if machine.small:
        return report.leave_out("bench ops", "its large products take minutes without a GPU")
    for name, text in (("GPT-2 124M", configs.gpt2("124M", 1, lanes=8)),
                       ("ResNet-50", configs.resnet50(1) + "execution { precision: BF16 }")):
        result = machine.work / "ops.json"
        done = machine.lockstep("bench", "ops", machine.config(text, configs.SMALL_BENCHMARKS),
                                "--device", "cuda", "--json", result, limit_s=120)
        (machine.out / f"ops-{plain_name(name)}.txt").write_text(done.stdout + done.stderr)
        if done.returncode == DOES_NOT_FIT:
            report.leave_out(f"ops of {name}", last_line(done))
            continue
        if done.returncode != 0:
            report.check("ops", f"every op of {name} can be timed", False, last_line(done),
                         "exit code 0")
            continue
        table = json.loads(result.read_text())
        report.figure("copy GB/s", table["copy_gbytes_per_s"])
        report.figure("matmul bf16 TFLOP/s", table["matmul_tflops"])
        for row in table["ops"]:
            row["of copy"] = row["gbytes_per_s"] / table["copy_gbytes_per_s"]
            row["of matmul"] = row["tflops"] / table["matmul_tflops"]
        report.figure(f"ops of {name}, bf16", table["ops"])
    return None
