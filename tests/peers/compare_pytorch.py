#!/usr/bin/env python3
"""Measures Lockstep beside PyTorch on this machine's CPUs, in one run.

    compare_pytorch.py --lockstep build/release/launcher/lockstep --fma-peak build/release/tests/peers/fma_peak
                       --python VENV/bin/python [--cases mlp,table,gpt2_124m] [--layouts 1x1,1x2,2x1]
                       [--seconds 10] [--repeats 5] [--json FILE] [--markdown FILE]

A layout RxT is R ranks of T threads, each thread with a core of its own. Work per rank is fixed, so
the global batch grows with the ranks. Both sides take turns (A B A B ...); what counts is the median
over repeats of the median step. Before and after each measurement the FMA rate of the layout's CPUs
is probed: when others used them, the measurement is repeated, and marked noisy if that did not help.

PyTorch runs in the fastest of several set-ups, found by trying each on the case and layout, and on
batches that lie ready in memory; Lockstep runs with its loader and its metrics.

Shares of the FMA peak count model FLOPs: 6 per weight and sample or token; for GPT-2 also
12 * layers * width * T per token for attention, or half of that where the causal mask is counted
(column "causal").
"""
import argparse
import json
import math
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import cases
import measure

TRIES = 3  # of a measurement that was not calm
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


def measure_calmly(machine, side, case, ranks, threads, prepared, least_calm):
    """One measurement, again when the machine was not calm before and after it; the calmest try counts."""
    best = None
    for _ in range(TRIES):
        before = machine.calm_share(ranks * threads)
        result = side.run(case, ranks, threads, prepared)
        result["calm"] = min(before, machine.calm_share(ranks * threads))
        if best is None or result["calm"] > best["calm"]:
            best = result
        if best["calm"] >= least_calm:
            break
    return best


def summarise(case, ranks, results, peak_gflops):
    """Medians over the repeats of one side."""
    step_ms = statistics.median(result["step_ms"] for result in results)
    rate = case.batch * ranks * case.units_per_sample / step_ms * 1e3
    return {
        "step_ms": step_ms,
        "rate": rate,
        "rates": [case.batch * ranks * case.units_per_sample / r["step_ms"] * 1e3 for r in results],
        "peak_share": rate * case.flops_per_unit / (peak_gflops * 1e9),
        "causal_peak_share": rate * case.causal_flops_per_unit / (peak_gflops * 1e9),
        "memory_mib": max((r["memory_mib"] for r in results), key=lambda m: m[:1]),
        "least_calm": min(r["calm"] for r in results),
        "repeats": results,
    }


def compare(args, machine, sides, case, ranks, threads):
    print(f"{case.title}, {ranks}x{threads}", flush=True)
    prepared = {side.name: side.prepare(case, ranks, threads) for side in sides}
    results = {side.name: [] for side in sides}
    for repeat in range(args.repeats):
        for side in sides:
            result = measure_calmly(machine, side, case, ranks, threads, prepared[side.name], args.least_calm)
            results[side.name].append(result)
            print(f"  {side.name} {repeat + 1}/{args.repeats}: {result['step_ms']:.3f} ms a step over "
                  f"{result['steps']} steps, machine {result['calm']:.0%} ours", flush=True)
    peak = machine.peak(ranks * threads)
    entry = {"case": case.name, "title": case.title, "layout": f"{ranks}x{threads}", "unit": case.unit,
             "peak_gflops": peak, "prepared": prepared,
             **{side.name.lower(): summarise(case, ranks, results[side.name], peak) for side in sides}}
    entry["noisy"] = any(entry[side.name.lower()]["least_calm"] < args.least_calm for side in sides)
    if len(sides) == 2:
        entry["ratio"] = entry["lockstep"]["rate"] / entry["pytorch"]["rate"]
    return entry


def cell(entry, side, text):
    return text(entry[side]) if side in entry else "-"


def markdown(report):
    lines = [
        f"{report['cpu']}, {report['cpus']} CPUs, {report['instructions']}; PyTorch {report['torch'] or 'not measured'}.",
        "Ratio: Lockstep's rate over PyTorch's. Share: model FLOPs of the measured FMA peak; GPT-2: all of "
        "attention / the causal half. Memory: peak resident MiB of the largest rank.",
        "",
        "| case | ranks x threads | Lockstep /s | PyTorch /s | ratio | Lockstep share | PyTorch share | "
        "Lockstep MiB | PyTorch MiB | PyTorch set-up |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]

    def share(side):
        full, causal = side["peak_share"], side["causal_peak_share"]
        return f"{full:.0%}" if full == causal else f"{full:.0%} / {causal:.0%}"

    for entry in report["results"]:
        row = [entry["title"], entry["layout"]]
        row += [cell(entry, side, lambda s: f"{s['rate']:,.0f} {entry['unit']}") for side in ("lockstep", "pytorch")]
        row.append(f"{entry['ratio']:.2f}" if "ratio" in entry else "-")
        row += [cell(entry, side, share) for side in ("lockstep", "pytorch")]
        row += [cell(entry, side, lambda s: f"{s['memory_mib'][0]:,.0f}" if s["memory_mib"] else "-")
                for side in ("lockstep", "pytorch")]
        row.append(cell(entry, "pytorch", lambda s: s["repeats"][0]["variant"]))
        lines.append("| " + " | ".join(row) + (" (noisy) |" if entry["noisy"] else " |"))
    return "\n".join(lines) + "\n"


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def torch_version(python):
    """None, with a line that says so, where there is no PyTorch."""
    try:
        done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                              capture_output=True)
    except OSError as error:
        print(f"PyTorch skipped: {error}", flush=True)
        return None
    if done.returncode == 0:
        return done.stdout.strip()
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    print(f"PyTorch skipped: {python} cannot import torch ({reason})", flush=True)
    return None


def parse_layout(text):
    ranks, _, threads = text.partition("x")
    if not (ranks.isdigit() and threads.isdigit() and int(ranks) > 0 and int(threads) > 0):
        raise argparse.ArgumentTypeError(f"{text}: expected ranks x threads, such as 2x1")
    return int(ranks), int(threads)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", help="the binary; without it only PyTorch is measured")
    parser.add_argument("--fma-peak", required=True, help="the fma_peak tool of this folder, built")
    parser.add_argument("--python", default=sys.executable, help="a Python that can import torch")
    parser.add_argument("--cases", default=",".join(cases.CASES))
    parser.add_argument("--layouts", default="1x1,1x2,2x1")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variants", default=";".join(VARIANTS),
                        help="PyTorch set-ups to choose from, separated by semicolons: " + "; ".join(VARIANTS))
    parser.add_argument("--least-calm", type=float, default=0.93,
                        help="share of the CPUs' FMA rate below which a measurement is noisy")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root" if os.getuid() == 0 else "mpirun")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    args.variants = args.variants.split(";")
    for name, given, known in (("--cases", args.cases.split(","), cases.CASES),
                               ("--variants", args.variants, VARIANTS)):
        unknown = [value for value in given if value not in known]
        if unknown:
            parser.error(f"{name}: unknown {', '.join(unknown)}; known: {', '.join(known)}")
    args.cases = [cases.CASES[name] for name in args.cases.split(",")]
    try:
        args.layouts = [parse_layout(text) for text in args.layouts.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(f"--layouts: {error}")
    available = len(measure.allowed_cpus())
    if max(ranks * threads for ranks, threads in args.layouts) > available:
        parser.error(f"--layouts: this machine offers {available} CPUs")
    return args


def main():
    args = parse_arguments()
    machine = measure.Machine(args.fma_peak)
    version = torch_version(args.python)
    with tempfile.TemporaryDirectory(prefix="lockstep-peers-") as folder:
        sides = [Lockstep(args, pathlib.Path(folder))] if args.lockstep else []
        sides += [PyTorch(args, pathlib.Path(folder))] if version else []
        if not sides:
            sys.exit("nothing to measure: give --lockstep, or a --python that can import torch")
        report = {"cpu": cpu_name(), "cpus": len(measure.allowed_cpus()), "torch": version, "results": []}
        for case in args.cases:
            for ranks, threads in args.layouts:
                entry = compare(args, machine, sides, case, ranks, threads)
                report["results"].append(entry)
                report["instructions"] = machine.instructions
                if args.json:  # after every case: an interrupted run keeps what it has
                    args.json.write_text(json.dumps(report, indent=1) + "\n")
    table = markdown(report)
    print("\n" + table, end="")
    if args.markdown:
        args.markdown.write_text(table)


if __name__ == "__main__":
    try:
        main()
    except measure.ProgramFailed as failure:
        sys.exit(f"compare_pytorch.py: {failure}")
