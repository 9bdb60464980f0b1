#!/usr/bin/env python3
"""What the checksums of a run cost: trainings with guard.enabled on and off take turns, and what
counts is the median over the rounds of the ratio of their steps' times.

    python3 tests/peers/compare_guard.py --lockstep build/release/launcher/lockstep --rounds 7

A time is the lower quartile of a run's steps, without the first fifth: other work on the machine
makes steps longer, never shorter. Data are synthetic, so that nothing need be here.
"""
import argparse
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs" / "benchmarks"
CASES = {  # config, and how many steps are timed
    "MLP 784-512-512-10": ("mlp_784_512_512_10", 600, []),
    "GPT-2 124M": ("gpt2_124m", 8, []),
    "ResNet-50": ("resnet50_224", 10, ["train.global_batch=4", "train.lanes=2"]),
}


def step_ms(binary, case, ranks, enabled):
    name, steps, settings = case
    settings = [f"train.steps={steps}", "execution.threads=1", "checkpoint.at_end=false",
                "output.tensorboard=false", "checkpoint.every=0", "eval.every=0",
                f"guard.enabled={str(enabled).lower()}", *settings]
    with tempfile.TemporaryDirectory() as folder:
        done = lockstep_run.run(
            binary, ["train", CONFIGS / f"{name}.textproto", "--run-dir", folder + "/run",
                     *(word for setting in settings for word in ("--set", setting))],
            ranks, limit_s=3600)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        times = [line["step_ms"] for line in lockstep_run.metrics(folder + "/run")]
    times = sorted(times[len(times) // 5:])
    return times[len(times) // 4]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="a part of the names of the cases to measure")
    options = parser.parse_args()
    print("| case | ranks | without, ms | with, ms | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, case in CASES.items():
        if options.only and options.only not in name:
            continue
        for ranks in (1, 2):
            pairs = []
            for number in range(options.rounds):
                order = (True, False) if number % 2 else (False, True)
                times = {on: step_ms(options.lockstep, case, ranks, on) for on in order}
                pairs.append((times[False], times[True]))
            without, with_it = (statistics.median(p[i] for p in pairs) for i in (0, 1))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"| {name} | {ranks} | {without:.2f} | {with_it:.2f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
