#!/usr/bin/env python3
"""Catches: a signal that loses work, a checkpoint that is not exact, or a wrong exit code.

preemption_test.py BINARY: sends USR1 or TERM to running training, alone and under mpirun, expects
exit code 75 and a checkpoint, and resumes until the end: the weights must be those of a run that
was never interrupted. A rank that is killed must end the run.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import lockstep_run

CONFIG = """
model { mlp { hidden: [64, 32] dropout: 0.1 } }
data { synthetic { samples: 2000 features: 30 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: 6000 log_every: 1000000 }
optimizer { adamw {} }
schedule { kind: COSINE lr: 0.001 }
execution { threads: 1 }
output { tensorboard: false }
"""
LIMIT_S = 60


def start(binary, config, run_dir, ranks):
    command = (lockstep_run.mpirun(ranks) if ranks else []) + [str(binary), "train", str(config),
                                                               "--run-dir", str(run_dir),
                                                               "--resume", "auto"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            stdin=subprocess.DEVNULL)


def interrupted(binary, config, folder, ranks, number):
    """Interrupts at the first sign of progress, resumes, and so on until the end; returns the
    hash."""
    run_dir = folder / f"signal{number}-{ranks}"
    stops = 0
    while True:
        process = start(binary, config, run_dir, ranks)
        if stops < 3:
            lockstep_run.wait_for_steps(run_dir)
            began = time.monotonic()
            process.send_signal(number)
            output, _ = process.communicate(timeout=LIMIT_S)
            if process.returncode == 0:
                break  # it had finished before the signal came
            assert process.returncode == 75, f"exit code {process.returncode}\n{output}"
            assert "stopped on request" in output, output
            asked = lockstep_run.run(binary, ["inspect", run_dir, "--done"], ranks=0)
            assert (asked.returncode == 1
                    and "of 6000, stopped on request, weights_hash" in asked.stdout), asked.stdout
            stops += 1
            print(f"signal {number}, {ranks} ranks: stopped in {time.monotonic() - began:.2f} s")
        else:
            output, _ = process.communicate(timeout=5 * LIMIT_S)
            assert process.returncode == 0, output
            break
    assert stops > 0, "the run ended before it could be interrupted"
    return lockstep_run.metrics(run_dir)[-1]["weights_hash"]


def killed_rank(binary, config, folder):
    """SIGKILL to one rank: mpirun must end, and soon."""
    run_dir = folder / "killed"
    process = start(binary, config, run_dir, 2)
    lockstep_run.wait_for_steps(run_dir)
    children = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "lockstep"],
                              capture_output=True, text=True).stdout.split()
    assert children, "no rank found"
    os.kill(int(children[-1]), signal.SIGKILL)
    began = time.monotonic()
    process.communicate(timeout=LIMIT_S)
    print(f"rank killed: all ended in {time.monotonic() - began:.2f} s, exit code "
          f"{process.returncode}")
    assert process.returncode != 0


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-preemption-") as folder:
        folder = pathlib.Path(folder)
        config = folder / "config.textproto"
        config.write_text(CONFIG)
        expected = lockstep_run.train(binary, config, folder / "whole", 0)["weights_hash"]
        # SIGTERM to mpirun gives the ranks about a second; USR1 as long as they need.
        for ranks, number in ((0, signal.SIGUSR1), (2, signal.SIGUSR1), (0, signal.SIGTERM),
                              (0, signal.SIGINT)):
            got = interrupted(binary, config, folder, ranks, number)
            assert got == expected, (
                f"signal {number}, {ranks} ranks: weights {got}, expected {expected}")
        killed_rank(binary, config, folder)
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(sys.argv[1]))
