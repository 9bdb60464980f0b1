"""The two sides of the comparison: each trains a case in a layout and says how long a step took."""
import json
import math
import pathlib
import re
import resource
import shlex
import shutil
import statistics
import time

import measure

LEAST_STEPS = 5
MOST_STEPS = 200_000  # keeps metrics.jsonl below 100 MB
MANY_STEPS = 10_000
WARMUP = 0.25  # part of the measured time, spent before it
TIMEOUT_S = 1800

# glibc hands large blocks back to the system, and every step pays for its pages again, unless told.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
ONEDNN = {**KEEP_MEMORY, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}  # see torch_train.py
VARIANTS = {  # of PyTorch: name: (environment, options of torch_train.py)
    "as installed": ({}, []),
    "tuned": (KEEP_MEMORY, ["--fused"]),
    "tuned, channels last": (KEEP_MEMORY, ["--fused", "--channels-last"]),
    "tuned, channels last, compiled": (KEEP_MEMORY, ["--fused", "--channels-last", "--compile"]),
    "tuned, oneDNN": (ONEDNN, ["--fused", "--onednn"]),
    "tuned, compiled": (KEEP_MEMORY, ["--fused", "--compile"]),
    "tuned, oneDNN, compiled": (ONEDNN, ["--fused", "--onednn", "--compile"]),
}
BF16_GRADIENTS = ", BF16 gradients"  # appended to a variant's name: DDP's hook for bfloat16


def variants(precision):
    """PyTorch's set-ups. In BF16, FP32 is one of them: CPUs without AMX may be faster in it."""
    if precision == "FP32":
        return VARIANTS
    without_onednn = {name: setup for name, setup in VARIANTS.items() if "oneDNN" not in name}
    return {
        **{f"autocast, {name}": (environment, [*options, "--autocast"])
           for name, (environment, options) in without_onednn.items()},
        **{f"BF16 products, {name}": (environment, [*options, "--bf16-products"])
           for name, (environment, options) in without_onednn.items() if name != "as installed"},
        **{f"FP32, {name}": setup for name, setup in VARIANTS.items()},
    }


class Lockstep:
    name = "Lockstep"

    def __init__(self, binary, mpirun, precision, lanes_per_rank, fields, seconds, folder):
        self._binary, self._mpirun = binary, shlex.split(mpirun)
        self._precision, self._fields = precision, fields
        self._lanes_per_rank, self._seconds = lanes_per_rank, seconds
        self._folder, self._runs = folder, 0

    def prepare(self, case, ranks, threads):
        """Finds out by a short run how many steps fill the time, and what start and end take."""
        trial = self._train(case, ranks, threads, case.first_steps)
        steps = (1 + WARMUP) * self._seconds * 1e3 / statistics.median(trial["step_ms"])
        return {
            "steps": min(max(int(steps), LEAST_STEPS, 4 * case.first_steps), MOST_STEPS),
            "trial_steps": case.first_steps,
            "trial_outside_steps_s": trial["outside_steps_s"],
            "trial_cpu_s": trial["cpu_s"],
        }

    def run(self, case, ranks, threads, prepared):
        steps = prepared["steps"]
        trained = self._train(case, ranks, threads, steps)
        warm = trained["step_ms"][max(1, int(steps * WARMUP / (1 + WARMUP))):]
        # What a step costs beside its own time, such as its line in metrics.jsonl, is what a long
        # run takes outside its steps more than a short one. Where steps are few it drowns in the
        # noise of start-up.
        beside_ms = 0
        if steps >= MANY_STEPS:
            more_s = trained["outside_steps_s"] - prepared["trial_outside_steps_s"]
            beside_ms = max(0, 1e3 * more_s / (steps - prepared["trial_steps"]))
        return {
            "step_ms": statistics.median(warm) + beside_ms,
            "beside_step_ms": beside_ms,
            "mean_step_ms": statistics.fmean(warm) + beside_ms,
            # Of a rank: what a long run takes more than a short one.
            "cpu_step_ms": 1e3 * (trained["cpu_s"] - prepared["trial_cpu_s"])
                           / (steps - prepared["trial_steps"]) / ranks,
            "steps": len(warm),
            "outside_steps_s": trained["outside_steps_s"],
            "first_loss": trained["lines"][0]["loss"],
            "last_loss": trained["lines"][-1]["loss"],
            "memory_mib": trained["memory_mib"],
        }

    def _train(self, case, ranks, threads, steps):
        self._runs += 1
        run_dir = self._folder / f"lockstep-{self._runs}"
        config = self._folder / f"lockstep-{self._runs}.textproto"
        config.write_text(case.config(ranks, ranks * self._lanes_per_rank, threads, steps))
        fields = []
        if self._precision == "BF16":
            fields = ["execution.precision=BF16"] + ["comm.wire_dtype=BF16"] * (ranks > 1)
        command = [self._binary, "train", str(config), "--run-dir", str(run_dir), "--device", "cpu"]
        for field in fields + self._fields:
            command += ["--set", field]
        if ranks == 1:
            command = measure.pinned(measure.allowed_cpus()[:threads], command)
        else:
            binding = ["--map-by", f"slot:PE={threads}", "--bind-to", "core", "-n", str(ranks)]
            command = self._mpirun + binding + command
        begin, cpu_begin = time.perf_counter(), children_cpu_s()
        _, memory = measure.run_all([command], {}, TIMEOUT_S, program=self._binary)
        cpu_s = children_cpu_s() - cpu_begin
        wall_s = time.perf_counter() - begin
        text = (run_dir / "metrics.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        if len(lines) != steps:
            raise measure.ProgramFailed(f"{len(lines)} lines of metrics after {steps} steps")
        shutil.rmtree(run_dir)
        step_ms = [exact_step_ms(line, case.batch * ranks) for line in lines]
        return {
            "lines": lines,
            "step_ms": step_ms,
            "outside_steps_s": wall_s - sum(step_ms) / 1e3,
            "cpu_s": cpu_s,
            "memory_mib": memory,
        }


def children_cpu_s():
    """User CPU seconds of programs that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def exact_step_ms(line, global_batch):
    """metrics.jsonl keeps three decimals: too few for microseconds, but not for their rate."""
    return line["step_ms"] if line["step_ms"] >= 1 else 1e3 * global_batch / line["samples_per_s"]


def reason_of(failure):
    """The line that names the exception, which others may follow; otherwise the last line."""
    lines = [line for line in str(failure).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (named or lines)[-1]


class PyTorch:
    name = "PyTorch"

    def __init__(self, python, precision, names, seconds, folder, cpu_time=False):
        self._python, self._precision, self._seconds = python, precision, seconds
        self._names, self._variants = names, variants(precision)
        self._step_ms = "cpu_step_ms" if cpu_time else "step_ms"  # what decides between set-ups
        self._folder, self._runs = folder, 0

    def prepare(self, case, ranks, threads):
        """Finds the fastest variant. BF16 gradients are tried with the fastest one only."""
        unsuitable = "oneDNN" if case.images else "channels last"
        names = [name for name in self._names if unsuitable not in name]
        best, left_out = self._try(case, ranks, threads, names)
        if self._precision == "BF16" and ranks > 1 and best:
            names = [min(best, key=best.get) + BF16_GRADIENTS]
            tried, failed = self._try(case, ranks, threads, names)
            best, left_out = {**best, **tried}, {**left_out, **failed}
        if not best:
            raise measure.ProgramFailed(f"no variant of PyTorch trains {case.name}")
        for variant, step_ms in best.items():
            print(f"  PyTorch, {variant}: {step_ms:.3f} ms a step", flush=True)
        fastest = min(best, key=best.get)
        print(f"  PyTorch, fastest: {fastest}", flush=True)
        return {"variant": fastest, "variants_step_ms": best, "variants_left_out": left_out}

    def _try(self, case, ranks, threads, names):
        """Milliseconds of each variant, and why others failed. The best of two rounds counts, so
        noise seldom decides."""
        best, left_out = {}, {}
        for _ in range(2):
            for variant in names:
                try:
                    trial = self._train(case, ranks, threads, variant, self._seconds / 3, 2)
                except measure.ProgramFailed as failure:
                    reason = reason_of(failure)
                    print(f"  PyTorch, {variant}: left out: {reason}", flush=True)
                    left_out[variant] = reason
                    continue
                best[variant] = min(best.get(variant, math.inf), trial[self._step_ms])
        return best, left_out

    def run(self, case, ranks, threads, prepared):
        variant = prepared["variant"]
        return self._train(case, ranks, threads, variant, self._seconds, LEAST_STEPS)

    def _train(self, case, ranks, threads, variant, seconds, least_steps):
        self._runs += 1
        environment, options = self._variants[variant.removesuffix(BF16_GRADIENTS)]
        if variant.endswith(BF16_GRADIENTS):
            options = [*options, "--bf16-hook"]
        environment = {
            **environment, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"
        }
        command = [
            self._python, str(pathlib.Path(__file__).with_name("torch_train.py")),
            "--case", case.name, "--threads", str(threads), "--ranks", str(ranks),
            "--seconds", str(seconds), "--warmup-seconds", str(WARMUP * seconds),
            "--least-steps", str(least_steps), "--meet", str(self._folder / f"meet-{self._runs}"),
            *options
        ]
        cpus = measure.allowed_cpus()
        commands = [
            measure.pinned(cpus[rank * threads:(rank + 1) * threads],
                           command + ["--rank", str(rank)]) for rank in range(ranks)
        ]
        outputs, memory = measure.run_all(commands, environment, TIMEOUT_S, program=self._python)
        results = [json.loads(output.splitlines()[-1]) for output in outputs]
        slowest = max(results, key=lambda result: result["step_ms"])
        if not math.isfinite(slowest["last_loss"]):
            raise measure.ProgramFailed(f"PyTorch's loss is {slowest['last_loss']}")
        return {**slowest, "variant": variant, "memory_mib": memory[:ranks]}
