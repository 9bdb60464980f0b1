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
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

import cases
import measure
import sides

TRIES = 3  # of a measurement that was not calm


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
