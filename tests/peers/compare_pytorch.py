#!/usr/bin/env python3
"""Measures Lockstep beside PyTorch on this machine's CPUs, in one run.

    compare_pytorch.py --lockstep build/release/launcher/lockstep
                       --fma-peak build/release/tests/peers/fma_peak --python VENV/bin/python
                       [--cases mlp,table,gpt2_124m] [--layouts 1x1,1x2,2x1] [--precision BF16]
                       [--seconds 10] [--repeats 5] [--set FIELD=VALUE] [--json FILE] [--markdown
                       FILE] [--cpu-time]

A layout RxT is R ranks of T threads, each thread with a core of its own. Work per rank is fixed, so
the global batch grows with the ranks. Both sides take turns (A B A B ...); what counts is the
median over repeats of the median step. Before and after each measurement the FMA rate that the
layout's CPUs give is probed: when others use them, the measurement is repeated, and marked noisy if
that does not help.

PyTorch runs in the fastest of several set-ups, found by trying each on the case and layout, and on
batches that lie ready in memory; Lockstep runs with its loader and its metrics.

With --precision BF16 Lockstep trains with execution.precision BF16 and, with several ranks,
comm.wire_dtype BF16. PyTorch trains in the fastest of: torch.autocast to bfloat16, FP32 whose
products oneDNN may compute in bfloat16, and plain FP32, which can be the fastest on CPUs without
AMX. With several ranks the fastest of these is also tried with DDP's BF16 hook for gradients.

With --cpu-time what counts is the user CPU time of a step, and the ratio is the median of the ratios
of turns that follow each other: for one thread on a machine that others use, which is not probed.

Shares of the FMA peak count model FLOPs: 6 per weight and sample or token, and for GPT-2 also
12 * layers * width * T per token for attention, or half of that without what the causal mask hides.
The peak is that of FP32 in any precision: units for bfloat16 can exceed it.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile

import cases
import measure
import trainers

TRIES = 3  # of a measurement that was not calm


def measure_calmly(machine, side, case, ranks, threads, prepared, least_calm):
    """Measures again while the machine is not calm before and after; keeps the calmest."""
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


def measure_cpu_time(side, case, ranks, threads, prepared):
    result = side.run(case, ranks, threads, prepared)
    return {**result, "step_ms": result["cpu_step_ms"], "wall_step_ms": result["step_ms"],
            "calm": math.nan}  # not probed: never below the least that is asked for


def summarise(case, ranks, results, peak_gflops):
    """Medians over the repeats of one side."""
    units = case.batch * ranks * case.units_per_sample
    rate = 1e3 * units / statistics.median(result["step_ms"] for result in results)
    return {
        "rate": rate,
        "rates": [1e3 * units / result["step_ms"] for result in results],
        "peak_share": rate * case.flops_per_unit / (peak_gflops * 1e9),
        "causal_peak_share": rate * case.causal_flops_per_unit / (peak_gflops * 1e9),
        "memory_mib": max((max(result["memory_mib"], default=0) for result in results)),
        "least_calm": min(result["calm"] for result in results),
        "repeats": results,
    }


def compare(args, machine, sides, case, ranks, threads):
    """Measures all sides in one layout; an entry of the report."""
    title = case.title_in(args.precision)
    print(f"{title}, {ranks}x{threads}", flush=True)
    prepared = {side.name: side.prepare(case, ranks, threads) for side in sides}
    results = {side.name: [] for side in sides}
    for repeat in range(args.repeats):
        for side in sides:
            arguments = (side, case, ranks, threads, prepared[side.name])
            result = (measure_cpu_time(*arguments) if args.cpu_time
                      else measure_calmly(machine, *arguments, args.least_calm))
            results[side.name].append(result)
            print(f"  {side.name} {repeat + 1}/{args.repeats}: {result['step_ms']:.4f} ms a step, "
                  f"{result['steps']} steps"
                  + ("" if args.cpu_time else f", {result['calm']:.0%} of the CPUs ours"),
                  flush=True)
    entry = {
        "case": case.name,
        "title": title,
        "precision": args.precision,
        "layout": f"{ranks}x{threads}",
        "unit": case.unit,
        "peak_gflops": machine.peak(ranks * threads),
        "prepared": prepared,
    }
    for side in sides:
        entry[side.name.lower()] = summarise(case, ranks, results[side.name], entry["peak_gflops"])
    measured = [entry[side.name.lower()] for side in sides]
    entry["noisy"] = any(side["least_calm"] < args.least_calm for side in measured)
    if len(measured) == 2:
        entry["ratio"] = entry["lockstep"]["rate"] / entry["pytorch"]["rate"]
    if len(measured) == 2 and entry["pytorch"]["memory_mib"] > 0:
        entry["memory_ratio"] = entry["lockstep"]["memory_mib"] / entry["pytorch"]["memory_mib"]
    if len(measured) == 2 and args.cpu_time:
        entry["ratios"] = [torch["step_ms"] / own["step_ms"]
                           for own, torch in zip(results["Lockstep"], results["PyTorch"])]
        entry["ratio"] = statistics.median(entry["ratios"])
    return entry


def markdown(report):
    """The table for BENCHMARKS.md."""
    lines = [
        f"{report['cpu']}, {report['cpus']} CPUs, {report['instructions']}; "
        f"PyTorch {report['torch'] or 'not measured'}. Precision: {report['precision']}.",
        "Ratio: Lockstep's rate over PyTorch's. Share: model FLOPs over the measured FMA peak of "
        "FP32; for GPT-2 with all of attention / with its causal half. Memory: peak resident MiB "
        "of the largest rank, and Lockstep's over PyTorch's.",
        "",
        "| case | ranks x threads | Lockstep /s | PyTorch /s | ratio | Lockstep share | "
        "PyTorch share | Lockstep MiB | PyTorch MiB | memory ratio | PyTorch set-up |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]

    def share(side):
        full, causal = side["peak_share"], side["causal_peak_share"]
        return f"{full:.0%}" if full == causal else f"{full:.0%} / {causal:.0%}"

    for entry in report["results"]:

        def both(text):
            return [text(entry[side]) if side in entry else "-" for side in ("lockstep", "pytorch")]

        row = [entry["title"], entry["layout"] + (" (noisy)" if entry["noisy"] else "")]
        row += both(lambda side: f"{side['rate']:,.0f} {entry['unit']}")
        row += [f"{entry['ratio']:.2f}" if "ratio" in entry else "-"]
        row += both(share)
        row += both(lambda side: f"{side['memory_mib']:,.0f}")
        row += [f"{entry['memory_ratio']:.2f}" if "memory_ratio" in entry else "-"]
        row += both(lambda side: side["repeats"][0].get("variant", ""))[1:]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def torch_version(python):
    """None, after a line that says why, where there is no PyTorch."""
    command = [python, "-c", "import torch; print(torch.__version__)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        print(f"PyTorch skipped: {error}", flush=True)
        return None
    if done.returncode == 0:
        return done.stdout.strip()
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    print(f"PyTorch skipped: {python} cannot import torch: {reason}", flush=True)
    return None


def parse_layout(parser, text):
    ranks, _, threads = text.partition("x")
    if not (ranks.isdigit() and threads.isdigit() and int(ranks) > 0 and int(threads) > 0):
        parser.error(f"--layouts: {text}: expected ranks x threads, such as 2x1")
    available = len(measure.allowed_cpus())
    if int(ranks) * int(threads) > available:
        parser.error(f"--layouts: {text}: this machine offers {available} CPUs")
    return int(ranks), int(threads)


def parse_names(parser, option, given, known):
    unknown = [name for name in given if name not in known]
    if unknown:
        parser.error(f"{option}: unknown: {', '.join(unknown)}; known: {'; '.join(known)}")
    return given


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    mpirun = "mpirun --allow-run-as-root" if os.getuid() == 0 else "mpirun"
    parser.add_argument("--lockstep", help="the binary; without it only PyTorch is measured")
    parser.add_argument("--fma-peak", required=True, help="the fma_peak tool of this folder, built")
    parser.add_argument("--python", default=sys.executable, help="a Python that can import torch")
    parser.add_argument("--cases", default=",".join(cases.CASES))
    parser.add_argument("--layouts", default="1x1,1x2,2x1")
    parser.add_argument("--precision", choices=["FP32", "BF16"], default="FP32")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lanes-per-rank", type=int, default=1, help="Lockstep's train.lanes")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE",
                        help="of Lockstep's config")
    parser.add_argument("--variants", help="set-ups of PyTorch to choose from, separated by "
                                           "semicolons; by default all of the precision")
    parser.add_argument("--least-calm", type=float, default=0.93,
                        help="share of the CPUs' FMA rate below which a measurement is noisy")
    parser.add_argument("--cpu-time", action="store_true", help="user CPU time instead of time")
    parser.add_argument("--mpirun", default=mpirun)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    known = list(trainers.variants(args.precision))
    args.variants = (known if args.variants is None
                     else parse_names(parser, "--variants", args.variants.split(";"), known))
    names = parse_names(parser, "--cases", args.cases.split(","), cases.CASES)
    args.cases = [cases.CASES[name] for name in names]
    args.layouts = [parse_layout(parser, text) for text in args.layouts.split(",")]
    return args


def main():
    args = parse_arguments()
    machine = measure.Machine(args.fma_peak)
    version = torch_version(args.python)
    cpus = len(measure.allowed_cpus())
    report = {"cpu": cpu_name(), "cpus": cpus, "torch": version, "precision": args.precision,
              "results": []}
    with tempfile.TemporaryDirectory(prefix="lockstep-peers-") as name:
        folder, sides = pathlib.Path(name), []
        if args.lockstep:
            sides.append(trainers.Lockstep(args.lockstep, args.mpirun, args.precision,
                                           args.lanes_per_rank, args.set, args.seconds, folder))
        if version:
            sides.append(trainers.PyTorch(args.python, args.precision, args.variants, args.seconds,
                                          folder, args.cpu_time))
        if not sides:
            sys.exit("nothing to measure: give --lockstep, or a --python that can import torch")
        for case in args.cases:
            for ranks, threads in args.layouts:
                report["results"].append(compare(args, machine, sides, case, ranks, threads))
                report["instructions"] = machine.instructions
                if args.json:  # after every case: an interrupted run keeps what it has
                    args.json.write_text(json.dumps(report, indent=1) + "\n")
    table = markdown(report)
    print("\n" + table, end="")
    if args.markdown:
        args.markdown.write_text(table)


if __name__ == "__main__":
    # Ends what is being measured too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        main()
    except measure.ProgramFailed as failure:
        sys.exit(f"compare_pytorch.py: {failure}")
