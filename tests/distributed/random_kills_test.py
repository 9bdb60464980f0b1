#!/usr/bin/env python3
"""Catches: a rank that is killed at some moment nobody thought of and leaves others waiting, nobody
who says which it was and what it did, processes, shared memory, or a run folder from which the next
start does not get the same weights.

random_kills_test.py BINARY [--kills N] [--seed S]: SIGKILL to a random rank of 2 or 4, at a random
moment of a whole run: while the ranks meet, take memory, train, evaluate, save, end. Over shared
memory, MPI and TCP; started by mpirun, by `lockstep launch`, and without a launcher.
"""
import argparse
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import lockstep_run
from killed_rank_test import check_checkpoints, shared_memory_left
from rendezvous_test import by_address
from stuck_rank_test import WAYS, processes_of

CONFIG = """
model { mlp { hidden: [256, 128] dropout: 0.1 } }
data { synthetic { samples: 2000 features: 64 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: 3000 log_every: 1000000 }
optimizer { adamw {} }
schedule { kind: COSINE lr: 0.001 }
checkpoint { every: 200 }
execution { threads: 1 }
output { tensorboard: false }
"""
ALL_GONE_S = 5
LIMIT_S = 60
MPIRUN_ALONE_S = 15
STARTERS = {"mpirun": ("shared memory", "MPI", "TCP"), "launch": ("shared memory", "TCP"),
            "environment": ("shared memory", "TCP")}
# Step, phase, operation, its number and its bytes.
RECORD = r"step \d+, \w+, (in|at work after) [a-z -]+ \d+( of bucket \d+)? \(\d+ bytes\)"


class Run:
    """All processes of a start, and what they say."""

    def __init__(self, trial, starter, way, ranks, run_dir):
        self.run_dir, self.said = run_dir, open(f"{run_dir}.said", "w+", encoding="utf-8")
        self.of_mpirun = starter == "mpirun"
        train = ["train", str(trial.config), "--run-dir", str(run_dir), "--resume", "auto"]
        if "shared_memory=false" in " ".join(WAYS[way]):
            train += ["--set", "comm.shared_memory=false"]
        environments = [{}]
        if starter == "mpirun":
            command = [*lockstep_run.mpirun(ranks), trial.binary, *train, *WAYS[way]]
        elif starter == "launch":
            command = [trial.binary, "launch", "-n", str(ranks), "--max-restarts", "0", "--", *train]
        else:
            command, environments = [trial.binary, *train], by_address(
                ranks, LOCKSTEP_RENDEZVOUS_TIMEOUT_S="15")
        self.processes = [subprocess.Popen(command, env={**os.environ, **environment},
                                           stdin=subprocess.DEVNULL, stdout=self.said,
                                           stderr=self.said) for environment in environments]

    def kill(self, rank, delay):
        """The rank, so long after it is there; None where it has ended before."""
        deadline = time.monotonic() + LIMIT_S
        while rank not in processes_of(self.run_dir):
            if all(process.poll() is not None for process in self.processes):
                return None
            assert time.monotonic() < deadline, f"rank {rank} does not come\n{self.output()}"
        time.sleep(delay)
        process = processes_of(self.run_dir).get(rank)
        try:
            if process is not None:
                os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            process = None
        return process

    def end(self):
        """The seconds until all processes and ranks are gone. Open MPI 4.1.4 may wait for ever on a
        mutex of its own PMIx server after its last line, if a rank died while the ranks started; then
        its ranks are gone, and mpirun is ended here."""
        began = time.monotonic()
        try:
            for process in self.processes:
                while process.poll() is None:
                    took = time.monotonic() - began
                    if self.of_mpirun and took > MPIRUN_ALONE_S and self.mpirun_is_alone():
                        process.kill()
                        print("mpirun did not end by itself after its ranks", flush=True)
                        return 0
                    if took > LIMIT_S:
                        raise subprocess.TimeoutExpired(process.args, LIMIT_S)
                    time.sleep(0.01)
            while processes_of(self.run_dir):
                assert time.monotonic() - began < LIMIT_S, "ranks are left"
        except (subprocess.TimeoutExpired, AssertionError):
            for process in [*processes_of(self.run_dir).values(),
                            *(p.pid for p in self.processes if p.poll() is None)]:
                os.kill(process, signal.SIGKILL)
            raise SystemExit(f"not ended after {LIMIT_S} s: {self.output()}")
        return time.monotonic() - began

    def mpirun_is_alone(self):
        return not processes_of(self.run_dir) and "mpirun noticed that process" in self.output()

    def output(self):
        self.said.seek(0)
        return self.said.read()


class Trial:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.config = folder / "config.textproto"
        self.config.write_text(CONFIG)
        self.count = collections.Counter()
        self.slowest_s = 0
        began = time.monotonic()
        self.expected = lockstep_run.train(binary, self.config, folder / "whole", 2)["weights_hash"]
        self.whole_s = time.monotonic() - began

    def flight_of(self, run_dir, process, rank):
        """What the record in the run folder says that the rank did; empty where it has none."""
        done = lockstep_run.run(self.binary, ["inspect", run_dir, "--flight"], ranks=0)
        found = re.search(rf"rank {rank} on \S+, process {process}: (.*)", done.stdout)
        return found.group(1) if found else ""

    def kill(self, number, draw):
        starter = draw.choice(list(STARTERS))
        way, ranks = draw.choice(STARTERS[starter]), draw.choice((2, 4))
        victim = draw.randrange(ranks)
        delay = draw.uniform(0, 1.05) * self.whole_s * (1 if ranks == 2 else 1.5)
        what = f"{starter}, {way}: rank {victim} of {ranks} after {delay:.2f} s"
        before, run_dir = set(os.listdir("/dev/shm")), self.folder / f"run{number}"
        run = Run(self, starter, way, ranks, run_dir)
        process = run.kill(victim, delay)
        took, output = run.end(), run.output()
        problems = []
        moment = "too late"
        if process is not None:
            record = self.flight_of(run_dir, process, victim)
            named = re.search(rf"^(lockstep|launch): .*rank {victim} on \S+", output, re.M)
            moment = record.split(", ")[1] if record else "before the record"
            codes = {p.returncode for p in run.processes}
            # Without a launcher nobody knows of it but by its absence.
            never_came = (starter == "environment"
                          and re.search(rf"rank {victim} (of {ranks} did not come|did not answer)",
                                        output) is not None)
            moment = "before it came" if never_came else moment
            named = named or never_came
            if moment == "ended" and codes <= {0, 137, -9}:
                named = True  # nobody waited for it any more
            if record and not never_came and moment not in ("starting", "loading", "ended"):
                if not re.search(RECORD, record):
                    problems.append(f"its record is '{record}'")
                if not named and starter != "mpirun":
                    problems.append("no survivor names it")
                self.count["told by a survivor or launch"] += bool(named)
            elif starter != "mpirun" and not named:
                problems.append("no survivor names it")
            if took > ALL_GONE_S and not never_came:
                problems.append(f"all were gone only after {took:.1f} s")
            self.slowest_s = max(self.slowest_s, took)
        left = shared_memory_left(before)
        if left:
            problems.append(f"left in /dev/shm: {left}")
        check_checkpoints(self.binary, run_dir)
        again = lockstep_run.train(self.binary, self.config, run_dir, 2, ["--resume", "auto"])
        if again["weights_hash"] != self.expected:
            problems.append(f"weights {again['weights_hash']}, expected {self.expected}")
        files = [path.name for path in run_dir.rglob("*") if ".tmp" in path.name
                 or path.name == "writer.lock"]
        if files:
            problems.append(f"left in the run folder: {files}")
        self.count[moment] += 1
        self.count["failed"] += bool(problems)
        if problems:
            print(f"FAILED {what}, {moment}: {'; '.join(problems)}\n{output}", flush=True)
        return moment != "too late"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as folder:
        trial = Trial(os.path.abspath(options.binary), pathlib.Path(folder))
        number = hits = 0
        while hits < options.kills:
            hits += trial.kill(number, draw)
            number += 1
    failed = trial.count.pop("failed", 0)
    print(f"seed {options.seed}: {hits} kills, {failed} failed; the slowest was "
          f"over after {trial.slowest_s:.2f} s; "
          + ", ".join(f"{what} {count}" for what, count in sorted(trial.count.items())))
    return min(failed, 1)


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main())
