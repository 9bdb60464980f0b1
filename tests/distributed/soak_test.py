#!/usr/bin/env python3
"""Catches: a supervised run that does not live through deaths for long: a start that ends without a
kill, a kill after which nothing trains, memory, descriptors or files that grow, other bits.

soak_test.py BINARY [--minutes M] [--every S] [--ranks N]: `lockstep launch`, and SIGKILL to a
random rank each S seconds; at the end a request to stop. The weights must be those of a run that
nobody disturbed (--compare no leaves that out).
"""
import argparse
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import lockstep_run
from killed_rank_test import shared_memory_left
from launch_test import Launch
from stuck_rank_test import processes_of

CONFIG = """
model { mlp { hidden: [WIDTH, WIDTH] dropout: 0.1 } }
data { synthetic { samples: 20000 features: 256 classes: 10 } }
train { global_batch: 64 lanes: 4 steps: 100000000 log_every: 100000000 }
optimizer { adamw {} }
schedule { kind: CONSTANT lr: 0.0001 }
checkpoint { every: EVERY keep_last: 2 }
execution { threads: 1 }
output { tensorboard: false }
"""
RECOVERY_S = 60  # far above what it takes, on a machine that is busy


def status(process, name):
    """A number of /proc/PID/status."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name + ":")).split()[1])


def descriptors(process):
    return len(os.listdir(f"/proc/{process}/fd"))


def wait_for_ranks(run, ranks, dead):
    """Until so many ranks train, none of them `dead`."""
    deadline = time.monotonic() + RECOVERY_S
    while True:
        found = processes_of(run.run_dir)
        if len(found) == ranks and not dead & set(found.values()):
            break
        assert run.process.poll() is None, f"launch has ended\n{run.output()}"
        assert time.monotonic() < deadline, f"no new start\n{run.output()}"
        time.sleep(0.05)
    run.wait_for_steps()
    return found


class Trial:
    def __init__(self, binary, folder, width, every):
        self.binary, self.folder = binary, folder
        self.config = folder / "config.textproto"
        self.config.write_text(CONFIG.replace("WIDTH", width).replace("EVERY", every))


def soak(trial, options):
    before_shm = set(os.listdir("/dev/shm"))
    run = Launch(trial, "soak", ["-n", options.ranks], [])
    draw = random.Random(options.seed)
    kills, dead, recoveries, memory, files = 0, set(), [], [], []
    ranks = wait_for_ranks(run, options.ranks, dead)
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        time.sleep(max(0.0, min(options.every * draw.uniform(0.7, 1.3), end - time.monotonic())))
        if time.monotonic() >= end:
            break
        assert processes_of(run.run_dir) == ranks, f"a start ended without a kill\n{run.output()}"
        os.kill(ranks[draw.randrange(options.ranks)], signal.SIGKILL)
        kills += 1
        began = time.monotonic()
        dead |= set(ranks.values())
        ranks = wait_for_ranks(run, options.ranks, dead)
        recoveries.append(time.monotonic() - began)
        memory.append(status(run.process.pid, "VmRSS"))
        files.append(descriptors(run.process.pid))
    run.process.send_signal(signal.SIGTERM)
    said, summary = run.end(75), run.summary()
    # Open MPI's are of other programs: `launch` starts ranks without it.
    left = {n for n in shared_memory_left(before_shm) if not n.startswith("vader_segment")}
    unexplained = summary["restarts"] - kills
    print(f"{options.minutes:g} minutes, {options.ranks} ranks: {kills} kills, {len(recoveries)} "
          f"recoveries in {min(recoveries):.1f} to {max(recoveries):.1f} s (mean "
          f"{sum(recoveries) / kills:.1f} s), {unexplained} unexplained ends; {summary['steps_lost']} "
          f"steps lost ({summary['seconds_lost']:.1f} s); effective time "
          f"{100 * summary['effective']:.1f}%; launch: {memory[0]} to {memory[-1]} KiB resident, "
          f"{files[0]} to {files[-1]} descriptors; left in /dev/shm: {len(left)}", flush=True)
    assert unexplained == 0, said
    assert not left, left
    assert files[-1] == files[0], f"descriptors of launch: {files}"
    assert memory[-1] <= memory[0] + 1024, f"KiB of launch: {memory}"
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--every", type=float, default=6, help="seconds between kills")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", default="64")
    parser.add_argument("--checkpoint-every", default="500")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", choices=("yes", "no"), default="yes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as folder:
        trial = Trial(os.path.abspath(options.binary), pathlib.Path(folder), options.width,
                      options.checkpoint_every)
        run = soak(trial, options)
        if options.compare == "no":
            return 0
        last = lockstep_run.metrics(run.run_dir)[-1]
        whole = lockstep_run.train(trial.binary, trial.config, trial.folder / "whole", 0,
                                   ["--max-steps", last["step"]], limit_s=120 * options.minutes + 60)
        assert whole["weights_hash"] == last["weights_hash"], (whole, last)
        print(f"the weights after {last['step']} steps are those of an undisturbed run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
