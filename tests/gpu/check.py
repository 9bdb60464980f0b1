#!/usr/bin/env python3
"""The stages of the GPU check: see README.md. Started by run.sh."""
import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import sys
import tarfile
import tempfile
import time
import traceback

import configs
from machine import Machine, TimeIsUp, environment_of, last_line, plain_name
from report import Report

BUDGET_S = 480  # of each stage
PRECISIONS = ("FP32", "BF16", "FP16", "TF32")


def some(machine, of, every):
    """All; where only the check itself is tried, each `every`th."""
    return of[::every] if machine.small else of


def worst(a, b, key="loss"):
    """The largest relative difference of two runs' losses; infinite where one is missing or no
    number."""
    def difference(x, y):
        good = x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
        return abs(x - y) / abs(x) if good else math.inf
    if not a or len(a) != len(b):
        return math.inf
    return max(difference(x[key], y[key]) for x, y in zip(a, b))


def in_precision(precision):
    return ["--set",
            "execution.tf32=true" if precision == "TF32" else f"execution.precision={precision}"]


def kernels(machine, report):
    """Every op against the CPU, in FP32, BF16, FP16 and TF32; each case in a process of its own."""
    cases = machine.lockstep("selftest", "--list").stdout.strip().splitlines()
    report.check("kernels", "the self-test has cases", bool(cases))
    own_convolutions = 0
    for precision in some(machine, PRECISIONS, 2):
        for case in some(machine, cases, 4):
            result = machine.out / f"selftest-{plain_name(precision + ' ' + case)}.json"
            done = machine.lockstep("selftest", "--precision", precision, "--only", case, "--json",
                                    result, limit_s=60)
            off = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
            detail = ("; ".join(" ".join(line.split()) for line in off[:3]) if done.returncode == 7
                      else "" if done.returncode == 0 else last_line(done))
            report.check("kernels", f"{precision} {case}", done.returncode == 0, detail)
            # Of the convolutions some are there to need it: in groups, dilated, with odd channels.
            said = [line for line in done.stderr.splitlines() if "own kernel" in line]
            own_convolutions += sum("convolution" in line for line in said)
            # So does attention with a window, documents or dropout, which cuDNN's takes no part in.
            attention = [line for line in said if "attention" in line and not any(
                why in line for why in ("would not align", "with a window, documents or dropout"))]
            if attention and precision in ("BF16", "FP16"):
                report.check("kernels", f"{precision} {case}: attention runs on cuDNN", False,
                             attention[0])
    report.figure("convolutions of the self-test beside cuDNN, for reasons", own_convolutions)


def parity(machine, report):
    """Whole steps of one rank against the CPU, the precisions against FP32, replay against eager,
    over 100 steps."""
    for name, text in (("MLP", configs.MLP), ("GPT", configs.GPT), ("ResNet-20", configs.RESNET)):
        _, cpu, done = machine.train(text, device="cpu", smaller=configs.SMALL)
        result, gpu, gpu_done = machine.train(text, smaller=configs.SMALL)
        if not cpu or not gpu:
            report.check("parity", f"{name} trains", False, last_line(gpu_done if cpu else done))
            continue
        # Dropout is the same, rounding is not: a run's losses drift apart slowly.
        report.check("parity", f"{name}: the first 10 losses follow the CPU's",
                     worst(cpu[:10], gpu[:10]) < 1e-4, worst(cpu[:10], gpu[:10]))
        report.check("parity", f"{name}: 100 losses follow the CPU's", worst(cpu, gpu) < 1e-2,
                     worst(cpu, gpu))
        eager, _, eager_done = machine.train(text, "--eager", smaller=configs.SMALL)
        same_hash(machine, report, "parity", f"{name}: replayed steps have the bits of eager ones",
                  (result, gpu_done), (eager, eager_done))
        for precision, limit in some(machine, (("BF16", 0.05), ("TF32", 0.02), ("FP16", 0.02)), 3):
            _, lines, done = machine.train(text, *in_precision(precision), smaller=configs.SMALL)
            report.check("parity", f"{name}: 100 losses in {precision} follow FP32",
                         lines and worst(gpu, lines) < limit,
                         worst(gpu, lines) if lines else last_line(done))


def same_hash(machine, report, stage, what, *runs):
    """Whether two runs, each (result, CompletedProcess), have both ended well and with the same
    weights."""
    hashes = [result["weights_hash"] if result else last_line(done) for result, done in runs]
    good = all(result for result, _ in runs) and hashes[0] == hashes[1]
    if not good:
        for result, done in runs:
            if result:  # what failed is kept already
                machine.keep(done)
    report.check(stage, what, good, ", ".join(hashes))
    return good


class SameBits:
    """Runs of one config that must end with the same weights."""

    def __init__(self, machine, report, stage, name, text, *how):
        self.machine, self.report, self.stage, self.name, self.text, self.how = (
            machine, report, stage, name, text, how)
        self.first = self.train()

    def train(self, *arguments, **options):
        return self.machine.train(self.text, *self.how, *arguments, smaller=configs.SMALL,
                                  **options)[::2]

    def compare(self, what, run):
        return same_hash(self.machine, self.report, self.stage,
                         f"{self.name}: {what}: the same weights", self.first, run)

    def check(self, what, *arguments, **options):
        return self.compare(what, self.train(*arguments, **options))

    def resumed(self):
        half = self.machine.config(self.text, configs.SMALL)
        for step in (["--max-steps", "6"], ["--resume", "auto"]):
            done = self.machine.lockstep("train", half, "--device", "cuda", *self.how, "--run-dir",
                                         half.with_suffix(""), "--json", half.with_suffix(".json"),
                                         *step)
            if done.returncode != 0:
                return self.compare("saved half-way and resumed", (None, done))
        return self.compare("saved half-way and resumed",
                            (json.loads(half.with_suffix(".json").read_text()), done))


def bits(machine, report):
    """On one rank: the same bits from run to run, replayed or queued anew, recomputed, saved and
    resumed."""
    gpt, resnet = configs.few_steps(configs.GPT), configs.few_steps(configs.RESNET)
    for precision in some(machine, ("BF16", "FP32"), 2):
        for name, text in (("GPT", gpt), ("ResNet-20", resnet),
                           ("GPT with LAMB", configs.with_lamb(gpt))):
            runs = SameBits(machine, report, "bits", f"{name}, {precision}", text,
                            *in_precision(precision))
            runs.check("a second run")
            runs.check("eager steps", "--eager")
            if name == "GPT":
                runs.check("recomputed blocks", "--set", "execution.recompute=BLOCKS")
            runs.resumed()


def ranks(machine, report):
    """Several ranks share the GPU through NCCL, over sockets: two ranks and three steps first, then
    all ways to share out."""
    gpt, resnet = configs.few_steps(configs.GPT), configs.few_steps(configs.RESNET)
    shared = {"limit_s": 100}
    machine.environment = {"NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}
    two = SameBits(machine, report, "ranks", "GPT, FP32, 3 steps", gpt, "--max-steps", "3")
    if not two.check("2 ranks, eager", "--share-gpu", "--eager", ranks=2, **shared):
        return  # nothing else can work
    replays = two.check("2 ranks, replayed", "--share-gpu", ranks=2, **shared)
    # The way out where the one before fails.
    between = {"LOCKSTEP_NCCL_BETWEEN_GRAPHS": "1"}
    goes_between = two.check("2 ranks, NCCL between graphs", "--share-gpu", ranks=2,
                             environment=between, **shared)
    if not replays:
        if not goes_between:
            return
        machine.environment.update(between)
    for precision in some(machine, ("FP32", "BF16"), 2):
        how = in_precision(precision)
        runs = SameBits(machine, report, "ranks", f"GPT, {precision}", gpt, *how)
        for stage in (0, 1, 2, 3):
            runs.check(f"2 ranks, ZeRO stage {stage}", "--share-gpu", "--set",
                       f"comm.zero_stage={stage}", ranks=2, **shared)
        runs.check("4 ranks", "--share-gpu", ranks=4, **shared)
        runs.check("2 ranks, smaller buckets", "--share-gpu", "--set", "comm.bucket_mib=0.5",
                   ranks=2, **shared)
        SameBits(machine, report, "ranks", f"ResNet-20, {precision}", resnet, *how).check(
            "2 ranks", "--share-gpu", ranks=2, **shared)
    for wire in some(machine, ("BF16", "FP16"), 2):
        runs = SameBits(machine, report, "ranks", f"GPT, BF16, {wire} on the wire", gpt,
                        *in_precision("BF16"), "--set", f"comm.wire_dtype={wire}")
        for stage in (0, 1, 2):
            runs.check(f"2 ranks, ZeRO stage {stage}", "--share-gpu", "--set",
                       f"comm.zero_stage={stage}", ranks=2, **shared)
    for compression in (("wire_dtype=BF16", "error_feedback=true"),
                        ("zero_stage=0", "power_sgd_rank=2")):
        sets = [word for setting in compression for word in ("--set", f"comm.{setting}")]
        runs = SameBits(machine, report, "ranks", f"GPT, BF16, {', '.join(compression)}", gpt,
                        *in_precision("BF16"), *sets)
        runs.check("2 ranks", "--share-gpu", ranks=2, **shared)
    lamb = SameBits(machine, report, "ranks", "GPT with LAMB, BF16", configs.with_lamb(gpt),
                    *in_precision("BF16"))
    lamb.check("2 ranks", "--share-gpu", ranks=2, **shared)


def refusals(machine, report):
    """Bad cases end with one clear line and the right exit code. (That the memory taken equals the
    plan every run checks by itself: it ends with exit code 70 where it does not.)"""
    config = machine.config(configs.GPT)
    for what, code, word, arguments, environment in (
            ("no GPU visible", 2, "GPU", [], {"CUDA_VISIBLE_DEVICES": ""}),
            ("a batch that no GPU holds", 5, "would fit", configs.TOO_LARGE, None)):
        done = machine.lockstep("train", config, "--device", "cuda", "--run-dir",
                                config.with_suffix(""), *arguments, environment=environment)
        report.check("refusals", what, done.returncode == code and word in done.stderr,
                     last_line(done))
    done = machine.lockstep("train", config, "--device", "cuda", "--run-dir",
                            config.with_suffix(""), ranks=2)
    report.check("refusals", "two ranks on one GPU",
                 done.returncode == 2 and "--share-gpu" in done.stderr, last_line(done))


def sanitizer(machine, report):
    """compute-sanitizer on a tiny run or two a tool."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        report.figure("compute-sanitizer", "skipped: not on this machine")
        return
    # Of the libraries' kernels only what they do to memory: their races are by design. That a
    # library asks for functions which a driver has not is no error.
    own = ["--kernel-regex", "kns=lockstep"]
    gpt, lamb, images = configs.TINY, configs.with_lamb(configs.TINY), configs.TINY_IMAGES
    for name, precision, how, kind, text in (("memcheck", "FP32", [], "GPT", gpt),
                                             ("memcheck", "BF16", [], "GPT", gpt),
                                             ("racecheck", "BF16", own, "GPT", gpt),
                                             ("memcheck", "BF16", [], "images", images),
                                             ("synccheck", "BF16", own, "GPT", gpt),
                                             ("memcheck", "BF16", [], "LAMB", lamb),
                                             ("racecheck", "BF16", own, "images", images)):
        config = machine.config(text)
        what = f"{name}, {precision}, {kind}"
        done = machine.start([tool, "--tool", name, "--error-exitcode", "9", "--report-api-errors",
                              "no", "--print-limit", "20", *how, machine.program, "train", config,
                              "--device", "cuda", "--eager", "--run-dir", config.with_suffix(""),
                              *in_precision(precision)], limit_s=180)
        (machine.out / f"sanitizer-{plain_name(what)}.txt").write_text(done.stdout + done.stderr)
        report.check("sanitizer", what, done.returncode == 0, last_line(done))


def ops(machine, report):
    """Each op of GPT-2 124M and of ResNet-50 against the ceilings."""
    for name, text in (("GPT-2 124M", configs.gpt2(*configs.GPT2["124M"], 1)),
                       ("ResNet-50", configs.resnet50(1) + "execution { precision: BF16 }")):
        result = machine.work / "ops.json"
        done = machine.lockstep("bench", "ops", machine.config(text), "--device", "cuda", "--json",
                                result, limit_s=120)
        (machine.out / f"ops-{plain_name(name)}.txt").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            report.check("ops", f"every op of {name} can be timed", False, last_line(done))
            continue
        table = json.loads(result.read_text())
        report.figure("copy GB/s", table["copy_gbytes_per_s"])
        report.figure("matmul bf16 TFLOP/s", table["matmul_tflops"])
        for row in table["ops"]:
            row["of copy"] = row["gbytes_per_s"] / table["copy_gbytes_per_s"]
            row["of matmul"] = row["tflops"] / table["matmul_tflops"]
        report.figure(f"ops of {name}, bf16", table["ops"])


def have_torch(machine):
    asked = machine.start([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"])
    return asked.returncode == 0


def beside_torch(machine, report, name, rate, script, arguments, unit, variants):
    """Figures of PyTorch's script beside Lockstep's `rate`, in `unit`."""
    here = pathlib.Path(__file__).resolve().parent
    for what, more in variants:
        done = machine.start([sys.executable, here / script, *arguments, *more], limit_s=200)
        if done.returncode != 0:
            report.figure(f"{name} {what}", "failed: " + last_line(done))
            continue
        peer = json.loads(done.stdout.strip().splitlines()[-1])[unit]
        report.figure(f"{name} {what} {unit.replace('_per_', '/')}", peer)
        report.figure(f"{name} over {what}", rate / peer)


def measured(machine, report, stage, name, text, *arguments):
    """The lines of a run's metrics from the fifth step on; empty where it failed."""
    _, lines, done = machine.train(text, *arguments, limit_s=200)
    if not lines:
        report.check(stage, f"{name} trains", False, last_line(done))
    elif "own kernel" in done.stderr:
        report.check(stage, f"{name}: all on cuDNN", False,
                     next(l for l in done.stderr.splitlines() if "own kernel" in l))
    return lines[4:]


def median_of(lines, key):
    return statistics.median(line[key] for line in lines)


def speed(machine, report):
    """GPT-2 beside PyTorch, eager and compiled, a step of 8 batches and of one."""
    torch = have_torch(machine)
    for name, (layers, heads, width, batch) in configs.GPT2.items():
        for lanes in (8, 1):
            what = f"GPT-2 {name} bf16, {lanes} x {batch}"
            rates = {}
            for order in ("TREE", "FAST") if lanes == 8 else ("TREE",):
                lines = measured(machine, report, "speed", what,
                                 configs.gpt2(layers, heads, width, batch, 12, lanes), "--set",
                                 f"comm.order={order}")
                if not lines:
                    break
                rates[order] = median_of(lines, "tokens_per_s")
                report.figure(f"{what} {order} tokens/s", rates[order])
                if order == "TREE" and "mfu" in lines[-1]:
                    report.figure(f"{what} MFU", median_of(lines, "mfu"))
            if len(rates) == 2:
                report.figure(f"{what} price of TREE", rates["FAST"] / rates["TREE"] - 1)
            if torch and rates:
                beside_torch(machine, report, what, rates["TREE"], "torch_gpt2.py",
                             ["--layers", layers, "--heads", heads, "--width", width, "--batch",
                              batch, "--accumulate", lanes], "tokens_per_s",
                             (("PyTorch eager", []), ("PyTorch compiled", ["--compile"])))
    if not torch:
        report.figure("PyTorch", "skipped: python3 has no torch with CUDA")


def lanes(machine, report):
    """One step of 64 samples of GPT-2 124M in 1, 4, 8 and 16 lanes: what the same bits on so many
    ranks cost."""
    layers, heads, width, _ = configs.GPT2["124M"]
    for count in (1, 4, 8, 16):
        what = f"GPT-2 124M bf16, 64 samples in {count} lanes"
        lines = measured(machine, report, "lanes", what,
                         configs.gpt2(layers, heads, width, 64 // count, 12, count))
        if lines:
            report.figure(f"{what} tokens/s", median_of(lines, "tokens_per_s"))


def images(machine, report):
    """ResNet-50 in BF16 and TF32 beside PyTorch (channels last), eager, compiled and
    deterministic."""
    torch = have_torch(machine)
    for precision in ("BF16", "TF32"):
        name = f"ResNet-50 {precision.lower()}"
        lines = measured(machine, report, "images", name, configs.resnet50(12),
                         *in_precision(precision))
        if not lines:
            continue
        rate = median_of(lines, "samples_per_s")
        report.figure(f"{name} images/s", rate)
        if "mfu" in lines[-1]:
            report.figure(f"{name} MFU", median_of(lines, "mfu"))
        if torch:
            beside_torch(machine, report, name, rate, "torch_resnet50.py",
                         ["--batch", configs.RESNET50_BATCH, "--precision", precision.lower()],
                         "images_per_s",
                         (("PyTorch eager", []), ("PyTorch compiled", ["--compile"]),
                          ("PyTorch deterministic", ["--deterministic"])))
    if not torch:
        report.figure("PyTorch", "skipped: python3 has no torch with CUDA")


# In the order of what they are worth where time is short.
STAGES = {stage.__name__: stage
          for stage
          in (kernels, parity, ranks, bits, refusals, sanitizer, ops, speed, lanes, images)}
BENCHMARKS = ("ops", "speed", "lanes", "images")


def run_stage(machine, report, name, budget_s):
    print(f"== {name}: {STAGES[name].__doc__.splitlines()[0]}", flush=True)
    begin = time.monotonic()
    machine.begin_stage(name, budget_s)
    report.begin_stage(name)
    try:
        STAGES[name](machine, report)
    except TimeIsUp as late:
        report.check(name, f"the stage ends within {budget_s} s", False,
                     f"under way: {late}; the rest of it did not run")
    except Exception as error:  # a stage that fails leaves the others to run
        (machine.out / f"{name}-error.txt").write_text(traceback.format_exc())
        report.check(name, "the stage runs", False, repr(error))
    report.stage_took(name, time.monotonic() - begin)


def pack(out):
    """All that was found in one file, for machines that give few files back."""
    archive = out.parent / (out.name + ".tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(out, arcname=out.name)
    return archive


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh",
                                     description="The stages of the GPU check.")
    parser.add_argument("install", type=pathlib.Path)
    parser.add_argument("out", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--quick", action="store_true", help="the checks without the benchmarks")
    parser.add_argument("--only", default="", metavar="STAGE,...",
                        help="some stages alone; 'list' names them")
    parser.add_argument("--budget", type=int, default=BUDGET_S, metavar="SECONDS",
                        help="that each stage may take")
    parser.add_argument("--small", action="store_true", help="tiny models, and not all of the runs: to try the check itself")
    options = parser.parse_args(arguments)
    options.stages = [name for name in options.only.split(",") if name] or [
        name for name in STAGES if not options.quick or name not in BENCHMARKS]
    unknown = [name for name in options.stages if name not in STAGES and options.stages != ["list"]]
    if unknown:
        parser.error(f"--only: no stage is called '{unknown[0]}'; allowed: {', '.join(STAGES)}")
    return options


def run_stages(options, work):
    machine = Machine(options.install, work, options.out, options.small)
    environment, starts = environment_of(machine)
    report = Report(options.out, environment)
    try:
        report.begin_stage("start")
        if not starts:
            report.check("start", "a training of one step runs on the GPU", False,
                         environment["libraries"])
            return report
        for name in options.stages:
            run_stage(machine, report, name, options.budget)
        report.save(complete=True)
    finally:
        print(f"report: {options.out / 'report.md'}; all in {pack(options.out)}", flush=True)
    return report


def main():
    options = parse(sys.argv[1:])
    if options.stages == ["list"]:
        print("\n".join(
            f"{name:10} {stage.__doc__.splitlines()[0]}" for name, stage in STAGES.items()))
        return 0
    # So that what runs is ended and what was found is packed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-", ignore_cleanup_errors=True) as work:
        report = run_stages(options, pathlib.Path(work))
    print(f"{len(report.data['checks']) - len(report.failed())} passed, {len(report.failed())} "
          "failed")
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
