#!/usr/bin/env python3
"""The stages of the GPU check: see README.md. Started by run.sh."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from report import Report

MLP = """
model { mlp { hidden: [512, 256] activation: GELU_TANH dropout: 0.1 } }
data { synthetic { samples: 4096 features: 100 classes: 10 } }
train { global_batch: 256 lanes: 8 steps: 100 hash_every: 50 }
optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
schedule { kind: COSINE lr: 0.002 warmup_steps: 10 }
output { tensorboard: false }
"""
GPT = """
model { gpt { layers: 4 heads: 4 width: 256 context: 128 dropout: 0.1 } }
data { synthetic { samples: 4096 classes: 512 } }
train { global_batch: 32 lanes: 8 steps: 100 hash_every: 50 }
optimizer { adamw { beta2: 0.95 weight_decay: 0.1 } clip_norm: 1 }
schedule { kind: COSINE lr: 0.001 warmup_steps: 10 }
comm { bucket_mib: 4 }
output { tensorboard: false }
"""
TINY = """
model { gpt { layers: 1 heads: 2 width: 64 context: 32 dropout: 0.1 } }
data { synthetic { samples: 64 classes: 67 } }
train { global_batch: 4 lanes: 2 steps: 2 }
optimizer { adamw {} clip_norm: 1 }
schedule { lr: 0.001 }
checkpoint { at_end: false }
output { tensorboard: false }
"""
# With rates by tensor and an average of the weights.
LAMB = GPT.replace("adamw { beta2: 0.95 weight_decay: 0.1 }", "lamb { weight_decay: 0.01 }").replace("lanes:", "ema_decay: 0.9 lanes:")
TINY_LAMB = TINY.replace("adamw {}", "lamb {}").replace("lanes:", "ema_decay: 0.9 lanes:")
RESNET = """
model { resnet { depth: 20 shortcut: PADDED } }
data { synthetic { samples: 4096 classes: 10 height: 32 width: 32 channels: 3 } }
train { global_batch: 128 lanes: 8 steps: 100 hash_every: 50 }
optimizer { sgd { momentum: 0.9 weight_decay: 0.0001 } }
schedule { kind: COSINE lr: 0.002 warmup_steps: 10 }
output { tensorboard: false }
"""
TINY_IMAGES = """
model { resnet { depth: 20 shortcut: PADDED } }
data { synthetic { samples: 16 classes: 10 height: 8 width: 8 channels: 3 } }
train { global_batch: 4 lanes: 2 steps: 1 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.001 }
checkpoint { at_end: false }
output { tensorboard: false }
"""
# To try this script where a step takes long.
SMALL = {"global_batch: 128 lanes: 8 steps: 100 hash_every: 50": "global_batch: 16 lanes: 4 steps: 8 hash_every: 4",
         "height: 32 width: 32": "height: 8 width: 8",
         "hidden: [512, 256]": "hidden: [24]", "global_batch: 256": "global_batch: 16", "layers: 4 heads: 4 width: 256":
         "layers: 1 heads: 2 width: 16", "context: 128": "context: 8", "classes: 512": "classes: 33", "global_batch: 32":
         "global_batch: 8",
         "steps: 100": "steps: 12", "hash_every: 50": "hash_every: 6", "warmup_steps: 10": "warmup_steps: 2"}
# Model, lane batch. The global batch is 8 lanes.
GPT2 = {"124M": (12, 12, 768, 16), "355M": (24, 16, 1024, 8)}


def gpt2_config(layers, heads, width, lane_batch, steps):
    return f"""
model {{ gpt {{ layers: {layers} heads: {heads} width: {width} context: 1024 vocabulary: 50257 }} }}
data {{ synthetic {{ samples: 65536 classes: 50257 }} }}
train {{ global_batch: {8 * lane_batch} lanes: 8 steps: {steps} log_every: {steps} }}
optimizer {{ adamw {{ weight_decay: 0.1 }} clip_norm: 1 }}
schedule {{ lr: 0.0001 }}
checkpoint {{ at_end: false }}
execution {{ precision: BF16 }}
output {{ tensorboard: false }}
"""


# Images of a lane's batch; PyTorch's step takes as many as Lockstep's, of 4 lanes.
RESNET50_BATCH = 128


def resnet50_config(steps):
    return f"""
model {{ resnet {{ depth: 50 }} }}
data {{ synthetic {{ samples: 2048 classes: 1000 height: 224 width: 224 channels: 3 }} }}
train {{ global_batch: {4 * RESNET50_BATCH} lanes: 4 steps: {steps} log_every: {steps} }}
optimizer {{ sgd {{ momentum: 0.9 weight_decay: 0.00005 }} }}
schedule {{ lr: 0.01 }}
checkpoint {{ at_end: false }}
output {{ tensorboard: false }}
"""


class Machine:
    def __init__(self, install, work, small):
        self.install, self.work, self.small, self.number = install, work, small, 0
        self.program = install / "bin" / "lockstep"

    def start(self, command, limit_s=150, environment=None):
        """The CompletedProcess; a command that hangs ends with exit code 124."""
        env = dict(os.environ, **(environment or {}))
        try:
            return subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace",
                                  timeout=limit_s, env=env, stdin=subprocess.DEVNULL)
        except FileNotFoundError as missing:
            return subprocess.CompletedProcess(command, 127, "", str(missing))
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess(command, 124, str(late.stdout or ""), f"not done after {limit_s} s")

    def lockstep(self, *arguments, ranks=1, limit_s=150, environment=None):
        command = [self.program, *arguments]
        if ranks > 1:
            own = self.install / "bin" / "mpirun"
            mpirun = [own if own.exists() else "mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none"]
            command = mpirun + (["--allow-run-as-root"] if os.geteuid() == 0 else []) + command
        return self.start(command, limit_s, environment)

    def config(self, text):
        for large, small in SMALL.items() if self.small else ():
            text = text.replace(large, small)
        self.number += 1
        path = self.work / f"config{self.number}.textproto"
        path.write_text(text)
        return path

    def train(self, text, *arguments, device="cuda", **how):
        """(result of --json, lines of metrics.jsonl, CompletedProcess); result is None where it failed."""
        config = self.config(text)
        run_dir, result = config.with_suffix(""), config.with_suffix(".json")
        done = self.lockstep("train", config, "--device", device, "--run-dir", run_dir, "--json", result, *arguments, **how)
        if done.returncode != 0:
            return None, [], done
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        return json.loads(result.read_text()), lines, done


def last_line(done):
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"exit code {done.returncode}: {lines[-1] if lines else ''}"


def hash_of(result, done):
    return result["weights_hash"] if result else last_line(done)


def worst(a, b, key="loss"):
    return max((abs(x[key] - y[key]) / abs(x[key]) for x, y in zip(a, b)), default=float("nan"))


def kernels(machine, report):
    """Every op in every type against the CPU."""
    result = machine.work / "selftest.json"
    done = machine.lockstep("selftest", "--json", result, limit_s=200)
    (report.folder / "selftest.txt").write_text(done.stdout + done.stderr)
    report.check("kernels", "every op agrees with the CPU in FP32, BF16 and FP16", done.returncode == 0,
                 (done.stdout.strip().splitlines() or [""])[-1] if done.returncode in (0, 7) else last_line(done))
    if "own kernel" in done.stderr:
        # Of the self-test's convolutions some are there to need it: in groups, dilated, with odd channels.
        said = [line for line in done.stderr.splitlines() if "own kernel" in line]
        report.check("kernels", "attention runs on cuDNN", not any("attention" in line for line in said), said[-1])
        report.figure("convolutions of the self-test beside cuDNN, for reasons", sum("convolution" in line for line in said))


def parity(machine, report):
    """Whole steps against the CPU, and the precisions against FP32, over 100 steps."""
    for name, text in (("MLP", MLP), ("GPT", GPT), ("ResNet-20", RESNET)):
        _, cpu, done = machine.train(text, device="cpu")
        result, gpu, gpu_done = machine.train(text)
        if not cpu or not gpu:
            report.check("parity", f"{name} trains", False, last_line(gpu_done if cpu else done))
            continue
        # Dropout is the same, rounding is not: a run's losses drift apart slowly.
        report.check("parity", f"{name}: the first 10 losses follow the CPU's", worst(cpu[:10], gpu[:10]) < 1e-4,
                     worst(cpu[:10], gpu[:10]))
        report.check("parity", f"{name}: 100 losses follow the CPU's", worst(cpu, gpu) < 1e-2, worst(cpu, gpu))
        for precision, how, limit in (("TF32", "execution.tf32=true", 0.02), ("BF16", "execution.precision=BF16", 0.05),
                                      ("FP16", "execution.precision=FP16", 0.02)):
            _, lines, done = machine.train(text, "--set", how)
            report.check("parity", f"{name}: 100 losses in {precision} follow FP32", lines and worst(gpu, lines) < limit,
                         worst(gpu, lines) if lines else last_line(done))


def rounded_bits(machine, report, name, text, how):
    """Gradients of 16 bits, with error feedback too, and as factors: the same bits on 1 and 2 ranks, also where sums are gathered."""
    for wire in ("BF16", "FP16"):
        rounds = [*how, "--set", f"comm.wire_dtype={wire}"]
        first = hash_of(*machine.train(text, *rounds)[::2])
        for stage in (0, 1, 2):
            got = hash_of(*machine.train(text, *rounds, "--share-gpu", "--set", f"comm.zero_stage={stage}", ranks=2, limit_s=200)[::2])
            report.check("bits", f"{name}, {wire} on the wire: 2 ranks, ZeRO stage {stage}: the same weights", got == first, f"{got}, {first}")
    for compression in (("wire_dtype=BF16", "error_feedback=true"), ("zero_stage=0", "power_sgd_rank=2")):
        compressed = [*how, *(word for setting in compression for word in ("--set", f"comm.{setting}"))]
        first = hash_of(*machine.train(text, *compressed)[::2])
        got = hash_of(*machine.train(text, *compressed, "--share-gpu", ranks=2, limit_s=200)[::2])
        report.check("bits", f"{name}, {', '.join(compression)}: 2 ranks: the same weights", got == first, f"{got}, {first}")


def bits(machine, report):
    """The same bits from run to run, replayed or queued anew, resumed, recomputed, on 1, 2 and 4 ranks, whatever they share out."""
    runs = [("a second run", [], 1), ("eager steps", ["--eager"], 1), ("2 ranks", ["--share-gpu"], 2),
            ("4 ranks", ["--share-gpu"], 4),
            *((f"2 ranks, ZeRO stage {stage}", ["--share-gpu", "--set", f"comm.zero_stage={stage}"], 2) for stage in (0, 2, 3)),
            ("2 ranks, smaller buckets", ["--share-gpu", "--set", "comm.bucket_mib=0.05"], 2)]
    blocks = ("recomputed blocks", ["--set", "execution.recompute=BLOCKS"], 1)
    for name, text, variants in (("GPT", GPT, [*runs, blocks]), ("ResNet-20", RESNET, runs),
                                 ("GPT with LAMB", LAMB, runs[1:3])):
        for precision in ("FP32", "BF16"):
            how = ["--set", f"execution.precision={precision}"]
            first = hash_of(*machine.train(text, *how)[::2])
            for what, arguments, ranks in variants:
                got = hash_of(*machine.train(text, *how, *arguments, ranks=ranks, limit_s=200)[::2])
                report.check("bits", f"{name}, {precision}: {what}: the same weights", got == first, f"{got}, {first}")
            if name == "GPT":
                rounded_bits(machine, report, f"{name}, {precision}", text, how)
            half = machine.config(text)
            for step in (["--max-steps", "6" if machine.small else "50"], ["--resume", "auto"]):
                done = machine.lockstep("train", half, "--device", "cuda", *how, "--run-dir", half.with_suffix(""), "--json",
                                        half.with_suffix(".json"), *step)
            resumed = json.loads(half.with_suffix(".json").read_text()) if done.returncode == 0 else None
            report.check("bits", f"{name}, {precision}: saved half-way and resumed: the same weights",
                         hash_of(resumed, done) == first)


def refusals(machine, report):
    """Bad cases end with one clear line and the right exit code. (That the memory taken equals the plan every run checks
    by itself: it ends with exit code 70 where it does not.)"""
    config = machine.config(MLP)
    for what, code, word, arguments, environment in (
            ("no GPU visible", 2, "GPU", [], {"CUDA_VISIBLE_DEVICES": ""}),
            ("a batch that cannot fit", 5, "would fit", ["--set", "train.global_batch=16777216"], None)):
        done = machine.lockstep("train", config, "--device", "cuda", *arguments, environment=environment)
        report.check("refusals", what, done.returncode == code and word in done.stderr, last_line(done))
    done = machine.lockstep("train", config, "--device", "cuda", ranks=2)
    report.check("refusals", "two ranks on one GPU", done.returncode == 2 and "--share-gpu" in done.stderr, last_line(done))


def sanitizer(machine, report):
    """compute-sanitizer on a tiny run or two a tool."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        report.figure("compute-sanitizer", "skipped: not on this machine")
        return
    # Of the libraries' kernels only what they do to memory: their races are by design.
    own = ["--kernel-regex", "kns=lockstep"]
    kinds = {TINY_IMAGES: ", images", TINY_LAMB: ", LAMB"}
    for name, precision, how, text in (
            ("memcheck", "FP32", [], TINY), ("memcheck", "BF16", [], TINY), ("racecheck", "BF16", own, TINY),
            ("synccheck", "BF16", own, TINY), ("initcheck", "BF16", own, TINY), ("memcheck", "BF16", [], TINY_LAMB),
            ("memcheck", "BF16", [], TINY_IMAGES),
            ("racecheck", "BF16", own, TINY_IMAGES)):
        config = machine.config(text)
        what = f"{name}, {precision}{kinds.get(text, '')}"
        done = machine.start([tool, "--tool", name, "--error-exitcode", "9", *how, machine.program, "train", config,
                              "--device", "cuda", "--eager", "--run-dir", config.with_suffix(""), "--set",
                              f"execution.precision={precision}"], limit_s=60)
        (report.folder / f"{what.replace(', ', '-')}.txt").write_text(done.stdout + done.stderr)
        report.check("sanitizer", what, done.returncode == 0, last_line(done))


def ops(machine, report):
    """Each op of GPT-2 124M and of ResNet-50 against the ceilings."""
    layers, heads, width, lane_batch = GPT2["124M"]
    for name, text in (("GPT-2 124M", gpt2_config(layers, heads, width, lane_batch, 1)),
                       ("ResNet-50", resnet50_config(1) + "execution { precision: BF16 }")):
        result = machine.work / "ops.json"
        done = machine.lockstep("bench", "ops", machine.config(text), "--device", "cuda", "--json", result, limit_s=120)
        (report.folder / f"ops {name}.txt").write_text(done.stdout + done.stderr)
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


def speed(machine, report):
    """GPT-2 beside PyTorch, eager and compiled."""
    torch = have_torch(machine)
    for name, (layers, heads, width, lane_batch) in GPT2.items():
        rates = {}
        for order in ("TREE", "FAST"):
            _, lines, done = machine.train(gpt2_config(layers, heads, width, lane_batch, 12), "--set", f"comm.order={order}")
            if not lines:
                report.check("speed", f"GPT-2 {name} trains", False, last_line(done))
                break
            report.check("speed", f"GPT-2 {name}: attention runs on cuDNN", "own kernel" not in done.stderr)
            rates[order] = statistics.median(line["tokens_per_s"] for line in lines[4:])
            report.figure(f"GPT-2 {name} bf16 {order} tokens/s", rates[order])
            if order == "TREE" and "mfu" in lines[-1]:
                report.figure(f"GPT-2 {name} bf16 MFU", statistics.median(line["mfu"] for line in lines[4:]))
        if len(rates) == 2:
            report.figure(f"GPT-2 {name} price of TREE", rates["FAST"] / rates["TREE"] - 1)
        if torch and rates:
            beside_torch(machine, report, f"GPT-2 {name}", rates["TREE"], "torch_gpt2.py",
                         ["--layers", layers, "--heads", heads, "--width", width, "--batch", lane_batch], "tokens_per_s",
                         (("PyTorch eager", []), ("PyTorch compiled", ["--compile"])))
    if not torch:
        report.figure("PyTorch", "skipped: python3 has no torch with CUDA")


def images(machine, report):
    """ResNet-50 in BF16 and TF32 beside PyTorch, eager and compiled."""
    torch = have_torch(machine)
    for precision, how in (("BF16", "execution.precision=BF16"), ("TF32", "execution.tf32=true")):
        name = f"ResNet-50 {precision.lower()}"
        _, lines, done = machine.train(resnet50_config(12), "--set", how)
        if not lines:
            report.check("images", f"{name} trains", False, last_line(done))
            continue
        report.check("images", f"{name}: convolutions run on cuDNN", "own kernel" not in done.stderr)
        rate = statistics.median(line["samples_per_s"] for line in lines[4:])
        report.figure(f"{name} images/s", rate)
        if "mfu" in lines[-1]:
            report.figure(f"{name} MFU", statistics.median(line["mfu"] for line in lines[4:]))
        if torch:
            beside_torch(machine, report, name, rate, "torch_resnet50.py",
                         ["--batch", RESNET50_BATCH, "--precision", precision.lower()], "images_per_s",
                         (("PyTorch eager", []), ("PyTorch compiled", ["--compile"]),
                          ("PyTorch deterministic", ["--deterministic"])))
    if not torch:
        report.figure("PyTorch", "skipped: python3 has no torch with CUDA")


STAGES = {stage.__name__: stage for stage in (kernels, parity, bits, refusals, sanitizer, ops, speed, images)}
BENCHMARKS = ("ops", "speed", "images")


def environment_of(machine):
    query = machine.start(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
                           "--format=csv,noheader"])
    version = machine.lockstep("--version")
    return {"GPU": query.stdout.strip().splitlines()[0] if query.returncode == 0 and query.stdout.strip() else "none",
            "Lockstep": version.stdout.strip()}


def main():
    install, out, options = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    names = list(STAGES)
    if "--quick" in options:
        names = [name for name in names if name not in BENCHMARKS]
    if "--only" in options:
        names = options[options.index("--only") + 1].split(",")
        if names == ["list"]:
            print("\n".join(f"{name:10} {stage.__doc__.splitlines()[0]}" for name, stage in STAGES.items()))
            return 0
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"gpu: unknown stage '{unknown[0]}'; allowed: {', '.join(STAGES)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-") as work:
        machine = Machine(install, pathlib.Path(work), "--small" in options)
        report = Report(out, environment_of(machine))
        for name in names:
            print(f"== {name}: {STAGES[name].__doc__.splitlines()[0]}", flush=True)
            try:
                STAGES[name](machine, report)
            except (OSError, ValueError, KeyError) as error:
                report.check(name, "the stage runs", False, repr(error))
            report.save()
        report.save(complete=True)
    checks = report.data["checks"]
    print(f"report: {out / 'report.md'}\n{len(checks) - len(report.failed())} passed, {len(report.failed())} failed")
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
