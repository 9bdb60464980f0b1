#!/usr/bin/env python3
"""The stages of the GPU check: see README.md. Started by run.sh."""
import json
import os
import pathlib
import shutil
import statistics
import sys
import tarfile
import tempfile
import time

import configs
from machine import Machine, TimeIsUp, environment_of, hash_of, last_line, plain_name
from report import Report

BUDGET_S = 480  # of each stage
PRECISIONS = ("FP32", "BF16", "FP16", "TF32")


def worst(a, b, key="loss"):
    return max((abs(x[key] - y[key]) / abs(x[key]) for x, y in zip(a, b)), default=float("nan"))


def in_precision(precision):
    return ["--set", "execution.tf32=true" if precision == "TF32" else f"execution.precision={precision}"]


def kernels(machine, report):
    """Every op against the CPU, in FP32, BF16, FP16 and TF32; each case in a process of its own."""
    cases = machine.lockstep("selftest", "--list").stdout.strip().splitlines()
    report.check("kernels", "the self-test has cases", bool(cases))
    own_convolutions = 0
    for precision in PRECISIONS:
        for case in cases:
            result = machine.work / "selftest.json"
            done = machine.lockstep("selftest", "--precision", precision, "--only", case, "--json", result, limit_s=60)
            off = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
            detail = ("; ".join(" ".join(line.split()) for line in off[:3]) if done.returncode == 7 else
                      "" if done.returncode == 0 else last_line(done))
            report.check("kernels", f"{precision} {case}", done.returncode == 0, detail)
            # Of the convolutions some are there to need it: in groups, dilated, with odd channels.
            said = [line for line in done.stderr.splitlines() if "own kernel" in line]
            own_convolutions += sum("convolution" in line for line in said)
            attention = [line for line in said if "attention" in line and "no multiple of 4" not in line]
            if attention and precision in ("BF16", "FP16"):
                report.check("kernels", f"{precision} {case}: attention runs on cuDNN", False, attention[0])
    report.figure("convolutions of the self-test beside cuDNN, for reasons", own_convolutions)


def parity(machine, report):
    """Whole steps of one rank against the CPU, the precisions against FP32, replay against eager, over 100 steps."""
    for name, text in (("MLP", configs.MLP), ("GPT", configs.GPT), ("ResNet-20", configs.RESNET)):
        _, cpu, done = machine.train(text, device="cpu", smaller=configs.SMALL)
        result, gpu, gpu_done = machine.train(text, smaller=configs.SMALL)
        if not cpu or not gpu:
            report.check("parity", f"{name} trains", False, last_line(gpu_done if cpu else done))
            continue
        # Dropout is the same, rounding is not: a run's losses drift apart slowly.
        report.check("parity", f"{name}: the first 10 losses follow the CPU's", worst(cpu[:10], gpu[:10]) < 1e-4,
                     worst(cpu[:10], gpu[:10]))
        report.check("parity", f"{name}: 100 losses follow the CPU's", worst(cpu, gpu) < 1e-2, worst(cpu, gpu))
        eager = hash_of(*machine.train(text, "--eager", smaller=configs.SMALL)[::2])
        report.check("parity", f"{name}: replayed steps have the bits of eager ones", eager == result["weights_hash"],
                     f"{eager}, {result['weights_hash']}")
        for precision, limit in (("TF32", 0.02), ("BF16", 0.05), ("FP16", 0.02)):
            _, lines, done = machine.train(text, *in_precision(precision), smaller=configs.SMALL)
            report.check("parity", f"{name}: 100 losses in {precision} follow FP32", lines and worst(gpu, lines) < limit,
                         worst(gpu, lines) if lines else last_line(done))


class SameBits:
    """Runs of one config that must end with the same weights."""

    def __init__(self, machine, report, stage, name, text, *how):
        self.machine, self.report, self.stage, self.name, self.text, self.how = machine, report, stage, name, text, how
        self.first = hash_of(*self.train()[::2])

    def train(self, *arguments, **options):
        return self.machine.train(self.text, *self.how, *arguments, smaller=configs.SMALL, **options)

    def check(self, what, *arguments, **options):
        got = hash_of(*self.train(*arguments, **options)[::2])
        self.report.check(self.stage, f"{self.name}: {what}: the same weights", got == self.first, f"{got}, {self.first}")

    def resumed(self):
        half = self.machine.config(self.text, configs.SMALL)
        for step in (["--max-steps", "6"], ["--resume", "auto"]):
            done = self.machine.lockstep("train", half, "--device", "cuda", *self.how, "--run-dir", half.with_suffix(""), "--json",
                                         half.with_suffix(".json"), *step)
        result = json.loads(half.with_suffix(".json").read_text()) if done.returncode == 0 else None
        self.report.check(self.stage, f"{self.name}: saved half-way and resumed: the same weights",
                          hash_of(result, done) == self.first, hash_of(result, done))


def bits(machine, report):
    """On one rank: the same bits from run to run, replayed or queued anew, recomputed, saved and resumed."""
    gpt, resnet = configs.few_steps(configs.GPT), configs.few_steps(configs.RESNET)
    for precision in ("FP32", "BF16"):
        for name, text in (("GPT", gpt), ("ResNet-20", resnet), ("GPT with LAMB", configs.with_lamb(gpt))):
            runs = SameBits(machine, report, "bits", f"{name}, {precision}", text, *in_precision(precision))
            runs.check("a second run")
            runs.check("eager steps", "--eager")
            if name == "GPT":
                runs.check("recomputed blocks", "--set", "execution.recompute=BLOCKS")
            runs.resumed()


def ranks(machine, report):
    """Several ranks share the GPU through NCCL, over sockets: two ranks and three steps first, then all ways to share out."""
    gpt, resnet = configs.few_steps(configs.GPT), configs.few_steps(configs.RESNET)
    shared = {"limit_s": 100}
    two = SameBits(machine, report, "ranks", "GPT, FP32, 3 steps", gpt, "--max-steps", "3")
    two.check("2 ranks, eager", "--share-gpu", "--eager", ranks=2, **shared)
    two.check("2 ranks, replayed", "--share-gpu", ranks=2, **shared)
    # The way out where the one before fails.
    two.check("2 ranks, NCCL between graphs", "--share-gpu", ranks=2, environment={"LOCKSTEP_NCCL_BETWEEN_GRAPHS": "1"}, **shared)
    for precision in ("FP32", "BF16"):
        how = in_precision(precision)
        runs = SameBits(machine, report, "ranks", f"GPT, {precision}", gpt, *how)
        for stage in (0, 1, 2, 3):
            runs.check(f"2 ranks, ZeRO stage {stage}", "--share-gpu", "--set", f"comm.zero_stage={stage}", ranks=2, **shared)
        runs.check("4 ranks", "--share-gpu", ranks=4, **shared)
        runs.check("2 ranks, smaller buckets", "--share-gpu", "--set", "comm.bucket_mib=0.5", ranks=2, **shared)
        SameBits(machine, report, "ranks", f"ResNet-20, {precision}", resnet, *how).check("2 ranks", "--share-gpu", ranks=2, **shared)
    for wire in ("BF16", "FP16"):
        runs = SameBits(machine, report, "ranks", f"GPT, BF16, {wire} on the wire", gpt, *in_precision("BF16"), "--set",
                        f"comm.wire_dtype={wire}")
        for stage in (0, 1, 2):
            runs.check(f"2 ranks, ZeRO stage {stage}", "--share-gpu", "--set", f"comm.zero_stage={stage}", ranks=2, **shared)
    for compression in (("wire_dtype=BF16", "error_feedback=true"), ("zero_stage=0", "power_sgd_rank=2")):
        sets = [word for setting in compression for word in ("--set", f"comm.{setting}")]
        runs = SameBits(machine, report, "ranks", f"GPT, BF16, {', '.join(compression)}", gpt, *in_precision("BF16"), *sets)
        runs.check("2 ranks", "--share-gpu", ranks=2, **shared)
    lamb = SameBits(machine, report, "ranks", "GPT with LAMB, BF16", configs.with_lamb(gpt), *in_precision("BF16"))
    lamb.check("2 ranks", "--share-gpu", ranks=2, **shared)


def refusals(machine, report):
    """Bad cases end with one clear line and the right exit code. (That the memory taken equals the plan every run checks
    by itself: it ends with exit code 70 where it does not.)"""
    config = machine.config(configs.GPT)
    for what, code, word, arguments, environment in (
            ("no GPU visible", 2, "GPU", [], {"CUDA_VISIBLE_DEVICES": ""}),
            ("a batch that no GPU holds", 5, "would fit", configs.TOO_LARGE, None)):
        done = machine.lockstep("train", config, "--device", "cuda", "--run-dir", config.with_suffix(""), *arguments,
                                environment=environment)
        report.check("refusals", what, done.returncode == code and word in done.stderr, last_line(done))
    done = machine.lockstep("train", config, "--device", "cuda", "--run-dir", config.with_suffix(""), ranks=2)
    report.check("refusals", "two ranks on one GPU", done.returncode == 2 and "--share-gpu" in done.stderr, last_line(done))


def sanitizer(machine, report):
    """compute-sanitizer on a tiny run or two a tool."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        report.figure("compute-sanitizer", "skipped: not on this machine")
        return
    # Of the libraries' kernels only what they do to memory: their races are by design. That a library asks for functions which
    # a driver has not is no error.
    own = ["--kernel-regex", "kns=lockstep"]
    gpt, lamb, images = configs.TINY, configs.with_lamb(configs.TINY), configs.TINY_IMAGES
    for name, precision, how, kind, text in (
            ("memcheck", "FP32", [], "GPT", gpt), ("memcheck", "BF16", [], "GPT", gpt), ("racecheck", "BF16", own, "GPT", gpt),
            ("synccheck", "BF16", own, "GPT", gpt), ("initcheck", "BF16", own, "GPT", gpt), ("memcheck", "BF16", [], "LAMB", lamb),
            ("memcheck", "BF16", [], "images", images), ("racecheck", "BF16", own, "images", images)):
        config = machine.config(text)
        what = f"{name}, {precision}, {kind}"
        done = machine.start([tool, "--tool", name, "--error-exitcode", "9", "--report-api-errors", "no", "--print-limit", "20", *how,
                              machine.program, "train", config, "--device", "cuda", "--eager", "--run-dir", config.with_suffix(""),
                              *in_precision(precision)], limit_s=180)
        (machine.out / f"sanitizer-{plain_name(what)}.txt").write_text(done.stdout + done.stderr)
        report.check("sanitizer", what, done.returncode == 0, last_line(done))


def ops(machine, report):
    """Each op of GPT-2 124M and of ResNet-50 against the ceilings."""
    for name, text in (("GPT-2 124M", configs.gpt2(*configs.GPT2["124M"], 1)),
                       ("ResNet-50", configs.resnet50(1) + "execution { precision: BF16 }")):
        result = machine.work / "ops.json"
        done = machine.lockstep("bench", "ops", machine.config(text), "--device", "cuda", "--json", result, limit_s=120)
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
    return machine.start([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]).returncode == 0


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
        report.check(stage, f"{name}: all on cuDNN", False, next(l for l in done.stderr.splitlines() if "own kernel" in l))
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
                lines = measured(machine, report, "speed", what, configs.gpt2(layers, heads, width, batch, 12, lanes), "--set",
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
                             ["--layers", layers, "--heads", heads, "--width", width, "--batch", batch, "--accumulate", lanes],
                             "tokens_per_s", (("PyTorch eager", []), ("PyTorch compiled", ["--compile"])))
    if not torch:
        report.figure("PyTorch", "skipped: python3 has no torch with CUDA")


def lanes(machine, report):
    """One step of 64 samples of GPT-2 124M in 1, 4, 8 and 16 lanes: what the same bits on so many ranks cost."""
    layers, heads, width, _ = configs.GPT2["124M"]
    for count in (1, 4, 8, 16):
        what = f"GPT-2 124M bf16, 64 samples in {count} lanes"
        lines = measured(machine, report, "lanes", what, configs.gpt2(layers, heads, width, 64 // count, 12, count))
        if lines:
            report.figure(f"{what} tokens/s", median_of(lines, "tokens_per_s"))


def images(machine, report):
    """ResNet-50 in BF16 and TF32 beside PyTorch (channels last), eager, compiled and deterministic."""
    torch = have_torch(machine)
    for precision in ("BF16", "TF32"):
        name = f"ResNet-50 {precision.lower()}"
        lines = measured(machine, report, "images", name, configs.resnet50(12), *in_precision(precision))
        if not lines:
            continue
        rate = median_of(lines, "samples_per_s")
        report.figure(f"{name} images/s", rate)
        if "mfu" in lines[-1]:
            report.figure(f"{name} MFU", median_of(lines, "mfu"))
        if torch:
            beside_torch(machine, report, name, rate, "torch_resnet50.py",
                         ["--batch", configs.RESNET50_BATCH, "--precision", precision.lower()], "images_per_s",
                         (("PyTorch eager", []), ("PyTorch compiled", ["--compile"]), ("PyTorch deterministic", ["--deterministic"])))
    if not torch:
        report.figure("PyTorch", "skipped: python3 has no torch with CUDA")


# In the order of what they are worth where time is short.
STAGES = {stage.__name__: stage for stage in (kernels, parity, ranks, bits, refusals, sanitizer, ops, speed, lanes, images)}
BENCHMARKS = ("ops", "speed", "lanes", "images")


def run_stage(machine, report, name, budget_s):
    print(f"== {name}: {STAGES[name].__doc__.splitlines()[0]}", flush=True)
    begin = time.monotonic()
    machine.stage_end = begin + budget_s
    try:
        STAGES[name](machine, report)
    except TimeIsUp:
        report.check(name, f"the stage ends within {budget_s} s", False, "the rest of it did not run")
    except (OSError, ValueError, KeyError) as error:
        report.check(name, "the stage runs", False, repr(error))
    report.stage_took(name, time.monotonic() - begin)


def pack(out):
    """All that was found in one file, for machines that give few files back."""
    archive = out.parent / (out.name + ".tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(out, arcname=out.name)
    return archive


def value_of(options, name, otherwise):
    return options[options.index(name) + 1] if name in options else otherwise


def main():
    install, out, options = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    names = [name for name in STAGES if "--quick" not in options or name not in BENCHMARKS]
    names = value_of(options, "--only", ",".join(names)).split(",")
    if names == ["list"]:
        print("\n".join(f"{name:10} {stage.__doc__.splitlines()[0]}" for name, stage in STAGES.items()))
        return 0
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"gpu: unknown stage '{unknown[0]}'; allowed: {', '.join(STAGES)}", file=sys.stderr)
        return 2
    budget_s = int(value_of(options, "--budget", str(BUDGET_S)))
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-") as work:
        machine = Machine(install, pathlib.Path(work), out, "--small" in options)
        report = Report(out, environment_of(machine))
        for name in names:
            run_stage(machine, report, name, budget_s)
        report.save(complete=True)
    checks = report.data["checks"]
    print(f"report: {out / 'report.md'}; all in {pack(out)}\n{len(checks) - len(report.failed())} passed, {len(report.failed())} failed")
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
