#!/usr/bin/env python3
"""Starts trainings on machines that have something wrong, which the stand-in for a GPU plays
(tests/fibers). Catches: drivers, GPUs and memory that are not refused in one line with the right
exit code, ranks that differ and train on, faults of a kernel that hang or are not named.

host_gpu_machines_test.py PROGRAM: build/.../tests/host_gpu/bin/lockstep, which finds the stand-in
beside it.
"""
import pathlib
import re
import sys
import tempfile

from host_gpu_test import CONFIGS, Trial, lockstep_run


def differing_ranks(trial, config):
    """Ranks whose driver differs have other bits: refused, or warned of where the order of sums is
    free."""
    drivers = [["FAKE_CUDA_DRIVER=13000"], ["FAKE_CUDA_DRIVER=13010"]]
    arguments = ["train", config, "--device", "cuda", "--run-dir"]
    tree = lockstep_run.run(trial.program, [*arguments, trial.folder / "differing"], 2,
                            {"FAKE_GPUS": "2"}, apart=drivers)
    trial.check(tree.returncode == 2 and "must be the same on all ranks" in tree.stderr
                and "driver for CUDA 13.1" in tree.stderr, "ranks with other drivers are refused",
                tree.stderr)
    fast = lockstep_run.run(trial.program,
                            [*arguments, trial.folder / "fast", "--set", "comm.order=FAST"], 2,
                            {"FAKE_GPUS": "2"}, apart=drivers)
    trial.check(fast.returncode == 0 and "GPUs and libraries differ" in fast.stderr,
                "in FAST order they are warned of", fast.stderr)


def resumed_elsewhere(trial, config):
    """A run that is resumed with another driver has a warning, and no other one has."""
    run_dir = trial.folder / "elsewhere"
    for step, driver, warned in ((2, "13000", False), (4, "13000", False), (6, "13010", True)):
        part = trial.train(config, "--device", "cuda", "--max-steps", str(step), "--resume", "auto",
                           run_dir=run_dir, environment={"FAKE_CUDA_DRIVER": driver})
        trial.check(("computed with" in part["text"]) == warned,
                    f"driver {driver} until step {step}: warned of is {warned}", part["text"])


def faults(trial, config):
    """A kernel that touches foreign memory ends the run, alone or on one rank of two, in one line
    and with its exit code."""
    words = "an illegal memory access was encountered"
    # Before the first step, in one that is queued, in one that is replayed.
    for piece in (40, 400, 1000):
        done = lockstep_run.run(
            trial.program,
            ["train", config, "--device", "cuda", "--run-dir", trial.folder / f"fault{piece}"], 0,
            {"FAKE_CUDA_FAULT": str(piece)}, limit_s=60)
        told = [line for line in done.stderr.splitlines() if words in line]
        trial.check(done.returncode == 70 and len(told) == 1,
                    f"a fault in piece {piece} of work: exit code 70, one line", done.stderr)
        if not lockstep_run.have_mpirun():
            continue
        done = lockstep_run.run(
            trial.program,
            ["train", config, "--device", "cuda", "--run-dir", trial.folder / f"faults{piece}"], 2,
            {"FAKE_GPUS": "2"}, apart=[["FAKE_CUDA_FAULT="], [f"FAKE_CUDA_FAULT={piece}"]],
            limit_s=60)
        trial.check(done.returncode == 70 and words in done.stderr,
                    f"on one rank of two, piece {piece}: the same", done.stderr)
    named = lockstep_run.run(
        trial.program,
        ["train", config, "--device", "cuda", "--eager", "--run-dir", trial.folder / "named"], 0,
        {"FAKE_CUDA_FAULT": "410", "CUDA_LAUNCH_BLOCKING": "1"}, limit_s=60)
    op = r"error: \w+ '[^']+': .*" + words
    trial.check(named.returncode == 70 and re.search(op, named.stderr),
                "--eager and CUDA_LAUNCH_BLOCKING name the op", named.stderr)


def bad_machines(trial, config):
    cuda = [config, "--device", "cuda"]
    trial.refused(2, ["--device", "no NVIDIA driver", "allowed"], *cuda,
                  environment={"FAKE_CUDA_ERROR": "35", "FAKE_CUDA_DRIVER": "0"})
    trial.refused(2, ["driver supports CUDA 12.2", "needs 13.0"], *cuda,
                  environment={"FAKE_CUDA_ERROR": "35", "FAKE_CUDA_DRIVER": "12020"})
    trial.refused(2, ["no GPU is visible", "CUDA_VISIBLE_DEVICES"], *cuda,
                  environment={"FAKE_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""})
    trial.refused(2, ["GPU 0", "compute capability 6.0", "8.0 or newer"], *cuda,
                  environment={"FAKE_WEAK_GPU": "0"})
    strong = trial.train(*cuda, environment={"FAKE_GPUS": "2", "FAKE_WEAK_GPU": "0"})
    trial.check("(GPU 1, 0000:02:00.0)" in strong["text"],
                "a weak GPU is passed over, and the other one keeps its number", strong["text"])
    trial.refused(5, ["is busy"], *cuda, environment={"FAKE_GPU_BUSY": "1"})
    trial.refused(5, ["GiB", "train.global_batch", "would fit"], *cuda, "--set",
                  "train.global_batch=65536",
                  environment={"FAKE_GPU_BYTES": str((960 + 45) << 20)})
    # What the libraries take is found before the first step.
    small = {"FAKE_GPU_BYTES": str((960 + 100) << 20)}
    trial.train(*cuda, environment=small)
    trial.refused(5, ["GiB are free"], *cuda,
                  environment={**small, "FAKE_LIBRARY_BYTES": str(900 << 20)})
    trial.refused(2, ["execution.precision", "FP16", "BF16"], config, "--device", "cpu", "--set",
                  "execution.precision=FP16")
    auto = trial.train(
        config,
        environment={"LOCKSTEP_DEVICE": "auto", "FAKE_CUDA_ERROR": "35", "FAKE_CUDA_DRIVER": "0"})
    told = trial.train(config, environment={"LOCKSTEP_DEVICE": "cuda"})
    trial.check("stand-in" in told["text"], "LOCKSTEP_DEVICE says where", told["text"])
    trial.check("running on the CPU: no NVIDIA driver" in auto["text"],
                "auto trains on the CPU and says why", auto["text"])


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(program, pathlib.Path(folder))
        mlp, gpt = (trial.folder / f"{name}.textproto" for name in ("mlp", "gpt"))
        for config in (mlp, gpt):
            config.write_text(CONFIGS[config.stem])
        if lockstep_run.have_mpirun():
            differing_ranks(trial, gpt)
        resumed_elsewhere(trial, gpt)
        faults(trial, gpt)
        bad_machines(trial, mlp)
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
