#!/usr/bin/env python3
"""Whole runs against PyTorch: repeats the runs of tests/golden and compares every step.

    golden_test.py LOCKSTEP [--golden DIR] [--ranks 1,2] [--set FIELD=VALUE] [--mpirun COMMAND]
    [CASE ...]

Catches what op tests cannot: a wrong update rule, schedule, clipping, weight decay of the wrong
tensors, sample order, initial weights that are not loaded, a loss averaged over the wrong count.

Tolerances: rounding to float32 alone moves these losses and norms by less than 1e-6 and the weights
by less than 5e-6 (float32_deviation in the golden files). Some ten times that leaves room for other
orders of summation; GELU's tanh formula taken for the exact one already moves a loss by 8e-5.
"""
import argparse
import array
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

LOSS_TOLERANCE = 1e-5  # relative
GRAD_NORM_TOLERANCE = 1e-4  # relative
LR_TOLERANCE = 1e-6  # relative; the config holds it as float32
WEIGHT_TOLERANCE = 5e-5  # of a tensor's norm or projection, relative to its norm
# Numbers of 8 bits of precision; Muon's weights differ most, by 0.066.
BF16, BF16_TOLERANCE, BF16_WEIGHT_TOLERANCE = "execution.precision=BF16", 0.03, 0.1
TIMEOUT_S = 300


class Mismatch(Exception):
    pass


def read_safetensors(path):
    """float32 tensors by name, flat."""
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise Mismatch(f"{path.name}: {name} is {entry['dtype']}, expected F32")
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        values = array.array("f")
        values.frombytes(data[begin:end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = values
    return tensors


def relative(actual, expected, scale=None):
    """Infinite for what is not a finite number, so that NaN and null never pass."""
    if not isinstance(actual, (int, float)) or not math.isfinite(actual):
        return math.inf
    return abs(actual - expected) / (abs(expected) if scale is None else scale)


def worst(field, lines, expected):
    return max(relative(line.get(field), value) for line, value in zip(lines, expected[field]))


def worst_weight(tensors, expected):
    if tensors.keys() != expected.keys():
        differing = sorted(tensors.keys() ^ expected.keys())
        raise Mismatch(f"tensors only in the checkpoint or only expected: {differing}")
    deviation = 0
    for name, values in tensors.items():
        norm = math.sqrt(math.fsum(w * w for w in values))
        projection = math.fsum(w * math.cos(i) for i, w in enumerate(values))
        scale = expected[name]["norm"]
        deviation = max(deviation, relative(norm, expected[name]["norm"], scale),
                        relative(projection, expected[name]["projection"], scale))
    return deviation


def train(args, ranks, config, run_dir):
    command = [
        args.lockstep, "train", config.name, "--run-dir", str(run_dir), "--device", args.device]
    # The tolerances are those of floats.
    command += [argument for field in ("execution.precision=FP32", *args.set) for argument in ("--set", field)]
    if ranks > 1:
        command = shlex.split(args.mpirun) + ["-n", str(ranks)] + command
    # For CI machines: mpirun refuses root, and more ranks than cores, unless told.
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1")
    try:
        done = subprocess.run(command, cwd=config.parent, env=env, capture_output=True, text=True,
                              errors="replace", timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Mismatch(f"not done after {TIMEOUT_S} s: {shlex.join(command)}")
    if done.returncode != 0:
        raise Mismatch(f"exit code {done.returncode}: {shlex.join(command)}\n"
                       f"{done.stdout}{done.stderr}")


def compare(args, ranks, config):
    """Trains, and returns the worst deviation of loss, grad_norm, lr and final weights."""
    expected = json.loads(config.with_suffix(".json").read_text())
    with tempfile.TemporaryDirectory(prefix="lockstep-golden-") as folder:
        run_dir = pathlib.Path(folder) / "run"
        train(args, ranks, config, run_dir)
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        steps = len(expected["loss"])
        if [line.get("step") for line in lines] != list(range(1, steps + 1)):
            raise Mismatch(f"metrics.jsonl has steps {[line.get('step') for line in lines]}, "
                           f"expected 1..{steps}")
        checkpoints = sorted((run_dir / "checkpoints").glob("step-*/model.safetensors"))
        if not checkpoints:
            raise Mismatch("no checkpoint at the end of the run")
        return {
            "loss": worst("loss", lines, expected),
            "grad_norm": worst("grad_norm", lines, expected),
            "lr": worst("lr", lines, expected),
            "weights": worst_weight(read_safetensors(checkpoints[-1]), expected["final"]),
        }


def lanes_of(config):
    for line in config.read_text().splitlines():
        name, _, value = line.strip().partition(": ")
        if name == "lanes":
            return int(value)
    raise Mismatch(f"{config.name} does not set train.lanes")


def main():
    default_folder = pathlib.Path(__file__).resolve().parent.parent / "golden"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lockstep", help="path of the lockstep binary")
    parser.add_argument("cases", nargs="*", help="names of golden runs; all unless given")
    parser.add_argument("--golden", type=pathlib.Path, default=default_folder)
    parser.add_argument("--ranks", default="1", help="numbers of ranks to run on, such as 1,2")
    parser.add_argument("--device", default="cpu", help="as `lockstep train` takes it")
    parser.add_argument("--set", action="append", default=[],
                        help="path.to.field=value, for all runs")
    parser.add_argument("--mpirun", default="mpirun", help="command that starts several ranks")
    args = parser.parse_intermixed_args()
    args.lockstep = str(pathlib.Path(args.lockstep).resolve())
    if not os.access(args.lockstep, os.X_OK):
        sys.exit(f"{args.lockstep} is not a program")
    configs = sorted(args.golden.resolve().glob("*.textproto"))
    if args.cases:
        configs = [args.golden.resolve() / f"{case}.textproto" for case in args.cases]
    if not configs:
        sys.exit(f"no golden runs in {args.golden}")

    limits = {"loss": LOSS_TOLERANCE, "grad_norm": GRAD_NORM_TOLERANCE, "lr": LR_TOLERANCE,
              "weights": WEIGHT_TOLERANCE}
    if BF16 in args.set:
        # The gradient of an absolute error is a sign, which rounding turns around.
        configs = [config for config in configs if "absolute" not in config.stem]
        limits |= {"loss": BF16_TOLERANCE, "grad_norm": BF16_TOLERANCE, "weights": BF16_WEIGHT_TOLERANCE}
    print(f"{'run':24} {'ranks':>5} {'lanes':>5} " + " ".join(f"{name:>10}" for name in limits))
    print(f"{'tolerance':36} " + " ".join(f"{limit:10.0e}" for limit in limits.values()))
    failures = runs = 0
    for config in configs:
        for ranks in map(int, args.ranks.split(",")):
            lanes = lanes_of(config)
            if lanes % ranks != 0:
                continue
            runs += 1
            head = f"{config.stem:24} {ranks:5} {lanes:5} "
            try:
                deviation = compare(args, ranks, config)
            except Mismatch as mismatch:
                failures += 1
                print(f"{head}FAILED: {mismatch}", flush=True)
                continue
            passed = all(deviation[name] <= limit for name, limit in limits.items())
            failures += not passed
            print(head + " ".join(f"{deviation[name]:10.1e}" for name in limits) +
                  ("" if passed else "  FAILED"), flush=True)
    print(f"{runs - failures} of {runs} runs agree with PyTorch")
    return 1 if failures or runs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
