#!/usr/bin/env python3
"""What the checksums of a run cost: trainings with guard.enabled on and off take turns, and the
steps of all rounds are held against each other.

    python3 tests/peers/compare_guard.py --lockstep build/release/launcher/lockstep --rounds 7

For each, the 2nd and the 10th percentile of the steps are printed, because other work on the machine
makes steps longer, never shorter. Data are synthetic, so no files are needed.
"""
import argparse
import pathlib
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


def steps_ms(binary, case, ranks, enabled):
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
    return times[len(times) // 10:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="a part of the names of the cases to measure")
    options = parser.parse_args()
    print("| case | ranks | steps | without, ms | with, ms | ratio |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, case in CASES.items():
        if options.only and options.only not in name:
            continue
        for ranks in (1, 2):
            times = {True: [], False: []}
            for number in range(options.rounds):
                for on in (True, False) if number % 2 else (False, True):
                    times[on] += steps_ms(options.lockstep, case, ranks, on)
            for part in (0.02, 0.1):
                without, with_it = (sorted(times[on])[int(part * len(times[on]))]
                                    for on in (False, True))
                print(f"| {name} | {ranks} | {len(times[True])}, {part:.0%} | {without:.3f} | "
                      f"{with_it:.3f} | {with_it / without:.3f} |", flush=True)


if __name__ == "__main__":
    main()
