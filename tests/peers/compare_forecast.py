#!/usr/bin/env python3
"""Compares forecasts of `lockstep plan --on` with training runs on this machine.

    compare_forecast.py BINARY HARDWARE.textproto [--cases mlp,resnet18,...] [--layouts 1x1,1x2,2x1]
                        [--precisions FP32,BF16] [--repeats 3] [--markdown FILE]

HARDWARE is what `lockstep doctor --calibrate` wrote on this machine. A layout RxT is R ranks of T
threads. Each case is planned, then trained `--repeats` times; what counts is the median over the
repeats of a run's median step, without the first fifth. The error is that of the middle of the
forecast. Ends with 1 if one is larger than 10%. Needs an idle machine.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import cases
import measure

STEPS = {"mlp": 1500, "table": 6000}
FEW_STEPS = 6
LIMIT = 0.1


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def trained_ms(binary, config, ranks, threads, precision, folder):
    run_dir = folder / "run"
    subprocess.run(["rm", "-rf", run_dir], check=True)
    command = [binary, "train", config, "--run-dir", run_dir, "--device", "cpu", "--set",
               f"execution.precision={precision}"]
    if ranks == 1:
        command = measure.pinned(measure.allowed_cpus()[:threads], [str(word) for word in command])
    else:
        command = ["mpirun", "--allow-run-as-root", "--map-by", f"slot:PE={threads}", "--bind-to",
                   "core", "-n", str(ranks), *command]
    run(command)
    steps = [json.loads(line)["step_ms"] for line in (run_dir / "metrics.jsonl").open()]
    return statistics.median(steps[max(1, len(steps) // 5):])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("hardware", type=pathlib.Path)
    parser.add_argument("--cases", default="mlp,resnet18,resnet50,gpt2_124m,smollm_135m,bert_base")
    parser.add_argument("--layouts", default="1x1,1x2,2x1")
    parser.add_argument("--precisions", default="FP32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    binary = args.binary.resolve()
    lines = ["| case | precision | ranks x threads | predicted, ms a step | measured | error |",
             "| --- | --- | --- | ---: | ---: | ---: |"]
    worst = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-forecast-") as name:
        folder = pathlib.Path(name)
        for case in (cases.CASES[name] for name in args.cases.split(",")):
            for precision in args.precisions.split(","):
                for layout in args.layouts.split(","):
                    ranks, threads = map(int, layout.split("x"))
                    config, out = folder / "case.textproto", folder / "plan.json"
                    config.write_text(case.config(ranks, ranks, threads,
                                                  STEPS.get(case.name, FEW_STEPS)))
                    run([binary, "plan", config, "--on", args.hardware, "--ranks", str(ranks),
                         "--set", f"execution.precision={precision}", "--json", out])
                    low, high = (1e3 * s for s in
                                 json.loads(out.read_text())["predicted_step_seconds"])
                    ms = statistics.median(
                        trained_ms(binary, config, ranks, threads, precision, folder)
                        for _ in range(args.repeats))
                    error = (low + high) / 2 / ms - 1
                    worst = max(worst, abs(error))
                    lines.append(f"| {case.name} | {precision} | {layout} | {low:.4g} to {high:.4g} "
                                 f"| {ms:.4g} | {100 * error:+.1f}% |")
                    print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")
    print(f"largest error {100 * worst:.1f}%")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
