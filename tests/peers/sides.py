"""The two sides of the comparison: each trains a case in a layout and says how long a step took."""
import json
import math
import pathlib
import shlex
import shutil
import statistics
import time

import measure

LEAST_STEPS = 5
MOST_STEPS = 200_000  # keeps metrics.jsonl below 100 MB
MANY_STEPS = 10_000
TIMEOUT_S = 1800

# glibc hands large blocks back to the system, and every step pays for its pages again, unless told.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
ONEDNN = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}  # see torch_train.py
VARIANTS = {  # name: (environment, options of torch_train.py)
    "as installed": ({}, []),
    "malloc, fused": (KEEP_MEMORY, ["--fused"]),
    "malloc, fused, oneDNN": ({**KEEP_MEMORY, **ONEDNN}, ["--fused", "--onednn"]),
    "malloc, fused, compile": (KEEP_MEMORY, ["--fused", "--compile"]),
    "malloc, fused, oneDNN, compile": ({**KEEP_MEMORY, **ONEDNN}, ["--fused", "--onednn", "--compile"]),
}


class Lockstep:
    name = "Lockstep"

    def __init__(self, args, folder):
        self._args, self._folder, self._runs = args, folder, 0

    def _train(self, case, ranks, threads, steps):
        self._runs += 1
        run_dir = self._folder / f"lockstep-{self._runs}"
        config = self._folder / f"lockstep-{self._runs}.textproto"
        config.write_text(case.config(ranks, threads, steps))
        command = [self._args.lockstep, "train", str(config), "--run-dir", str(run_dir), "--device", "cpu"]
        if ranks == 1:
            command = measure.pinned(measure.allowed_cpus()[:threads], command)
        else:
            binding = ["--map-by", f"slot:PE={threads}", "--bind-to", "core", "-n", str(ranks)]
            command = shlex.split(self._args.mpirun) + binding + command
        begin = time.perf_counter()
        _, memory = measure.run_all([command], {}, TIMEOUT_S, program=self._args.lockstep)
        wall_s = time.perf_counter() - begin
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        if len(lines) != steps or any(line["loss"] is None for line in lines):
            raise measure.ProgramFailed(f"{len(lines)} of {steps} steps, or a loss is not finite: {config}")
        shutil.rmtree(run_dir)
        step_ms = [exact_step_ms(line, case.batch * ranks) for line in lines]
        return {"lines": lines, "step_ms": step_ms, "memory_mib": memory,
                "outside_steps_s": wall_s - sum(step_ms) / 1e3}

    def prepare(self, case, ranks, threads):
        """How many steps fill the time, found by a short run, and what a run takes outside its steps."""
        trial = self._train(case, ranks, threads, case.first_steps)
        warmup = 1.25
        steps = int(warmup * self._args.seconds * 1e3 / statistics.median(trial["step_ms"]))
        return {"steps": min(max(steps, LEAST_STEPS), MOST_STEPS), "trial_steps": case.first_steps,
                "trial_outside_steps_s": trial["outside_steps_s"]}

    def run(self, case, ranks, threads, prepared):
        steps = prepared["steps"]
        trained = self._train(case, ranks, threads, steps)
        warm = trained["step_ms"][max(1, steps // 5):]
        # What a step costs beside its own time, such as its line in metrics.jsonl: what a long run takes
        # outside its steps more than a short one. It drowns in start-up where steps are few.
        beside_ms = 0
        if steps >= MANY_STEPS:
            more_s = trained["outside_steps_s"] - prepared["trial_outside_steps_s"]
            beside_ms = max(0, 1e3 * more_s / (steps - prepared["trial_steps"]))
        return {
            "step_ms": statistics.median(warm) + beside_ms,
            "beside_step_ms": beside_ms,
            "mean_step_ms": statistics.fmean(warm) + beside_ms,
            "steps": len(warm),
            "outside_steps_s": trained["outside_steps_s"],
            "first_loss": trained["lines"][0]["loss"],
            "last_loss": trained["lines"][-1]["loss"],
            "memory_mib": trained["memory_mib"],
        }


def exact_step_ms(line, global_batch):
    """metrics.jsonl keeps three decimals: too few of a step of microseconds, whose rate has enough."""
    return line["step_ms"] if line["step_ms"] >= 1 else 1e3 * global_batch / line["samples_per_s"]


class PyTorch:
    name = "PyTorch"

    def __init__(self, args, folder):
        self._args, self._folder, self._runs = args, folder, 0

    def _train(self, case, ranks, threads, variant, seconds):
        self._runs += 1
        environment, options = VARIANTS[variant]
        environment = {**environment, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
        cpus = measure.allowed_cpus()
        program = [self._args.python, str(pathlib.Path(__file__).with_name("torch_train.py"))]
        program += ["--case", case.name, "--threads", str(threads), "--ranks", str(ranks)] + options
        program += ["--seconds", str(seconds), "--warmup-seconds", str(seconds / 4)]
        program += ["--least-steps", str(LEAST_STEPS), "--meet", str(self._folder / f"meet-{self._runs}")]
        commands = [measure.pinned(cpus[rank * threads:(rank + 1) * threads], program + ["--rank", str(rank)])
                    for rank in range(ranks)]
        outputs, memory = measure.run_all(commands, environment, TIMEOUT_S, program=self._args.python)
        results = [json.loads(output.splitlines()[-1]) for output in outputs]
        slowest = max(results, key=lambda result: result["step_ms"])
        if not math.isfinite(slowest["last_loss"]):
            raise measure.ProgramFailed(f"PyTorch's loss on {case.name} is {slowest['last_loss']}")
        return {**slowest, "variant": variant, "memory_mib": memory[:ranks]}

    def prepare(self, case, ranks, threads):
        """The fastest variant. The best of two rounds counts, so that noise seldom decides."""
        best = {}
        for _ in range(2):
            for variant in self._args.variants:
                try:
                    step_ms = self._train(case, ranks, threads, variant, self._args.seconds / 3)["step_ms"]
                except measure.ProgramFailed as failure:
                    print(f"  PyTorch, {variant}: left out: {str(failure).splitlines()[-1]}", flush=True)
                    continue
                best[variant] = min(best.get(variant, math.inf), step_ms)
        if not best:
            raise measure.ProgramFailed(f"no variant of PyTorch trains {case.name}")
        for variant, step_ms in best.items():
            print(f"  PyTorch, {variant}: {step_ms:.3f} ms a step", flush=True)
        return {"variant": min(best, key=best.get), "variants_step_ms": best}

    def run(self, case, ranks, threads, prepared):
        return self._train(case, ranks, threads, prepared["variant"], self._args.seconds)
