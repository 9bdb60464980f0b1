#!/usr/bin/env python3
"""Catches: ranks that wait for ever for one that is stopped or loops, or end without its name; an
alarm about ranks that are only slow; a rank that is killed and leaves no word of what it did.

stuck_rank_test.py BINARY SPIN: on one host, over shared memory, MPI and TCP, with and without MPI; and,
where network namespaces can be made, on two hosts.
"""
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import hosts
import lockstep_run

CONFIG = """
model { mlp { hidden: [256, 128] } }
data { synthetic { samples: 2000 features: 64 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: 1000000 }
optimizer { sgd {} }
execution { threads: 1 }
comm { timeout_s: LIMIT files_timeout_s: START }
output { tensorboard: false }
"""
LIMIT_S, START_LIMIT_S = 2, 4
SLACK_S = 8  # on a machine that others use: mpirun takes a second to end the rest
WAYS = {"shared memory": [],
        "MPI": ["--set", "comm.shared_memory=false", "--set", "comm.transport=MPI"],
        "TCP": ["--set", "comm.shared_memory=false", "--set", "comm.transport=TCP"]}


def processes_of(run_dir):
    """Of each rank that trains into the folder."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
            if pathlib.Path(os.readlink(path.parent / "exe")).name != "lockstep":
                continue
            if str(run_dir).encode() not in words:
                continue
            variables = dict(v.split(b"=", 1) for v in path.read_bytes().split(b"\0") if b"=" in v)
        except OSError:
            continue
        rank = variables.get(b"OMPI_COMM_WORLD_RANK", variables.get(b"PMI_RANK",
                                                                    variables.get(b"RANK")))
        if rank is not None:
            found[int(rank)] = int(path.parent.name)
    return found


class Trial:
    def __init__(self, binary, spin, folder):
        self.binary, self.spin, self.folder = binary, spin, folder
        self.failures, self.number = 0, 0
        self.config = folder / "config.textproto"
        self.config.write_text(CONFIG.replace("LIMIT", str(LIMIT_S)).replace("START", str(START_LIMIT_S)))

    def check(self, good, what, output):
        print(f"{'ok    ' if good else 'FAILED'} {what}")
        if not good:
            self.failures += 1
            print(output)

    def start(self, ranks, how, with_mpi=True, made=None, until=None):
        """The started processes, once all ranks train, or until() says so; what they say goes into
        files. made: the hosts that the ranks are spread over."""
        self.number += 1
        self.run_dir = self.folder / f"run{self.number}"
        command = [str(self.binary), "train", str(self.config), "--run-dir", str(self.run_dir), *how]
        self.said = [self.folder / f"said{self.number}.{i}" for i in range(1 if with_mpi else ranks)]
        processes = []
        port = lockstep_run.free_port()
        mpirun = made.mpirun(ranks // made.count) if made else lockstep_run.mpirun(ranks)
        clean = {key: value for key, value in os.environ.items()
                 if not key.startswith(("OMPI_", "PMI", "SLURM_"))}
        for i, path in enumerate(self.said):
            variables = {"RANK": str(i), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port),
                         "MASTER_ADDR": f"{hosts.NET}.1" if made else "127.0.0.1"}
            alone = made.inside(i) if made else []
            with path.open("w") as said:
                processes.append(subprocess.Popen(
                    [*(mpirun if with_mpi else alone), *command], stdout=said,
                    stderr=said, env=dict(clean, **({} if with_mpi else variables)),
                    stdin=subprocess.DEVNULL))
        metrics = self.run_dir / "metrics.jsonl"
        until = until or (lambda: metrics.exists() and metrics.stat().st_size > 0)
        deadline = time.monotonic() + 60
        while not until():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.001)
        return processes

    def output(self):
        return "\n".join(path.read_text() for path in self.said)

    def end(self, processes, limit_s):
        """Seconds that all took to end; None where they did not, which ends them."""
        began = time.monotonic()
        try:
            for process in processes:
                process.wait(max(0.01, limit_s - (time.monotonic() - began)))
            return time.monotonic() - began
        except subprocess.TimeoutExpired:
            return None

    def clear(self, processes, ranks):
        for number in ranks.values():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in processes:
            process.kill()
            process.wait()


def stopped(trial, ranks, victim, way, with_mpi=True, made=None, loops=False):
    """One rank is stopped, or made to loop in what it computes."""
    processes = trial.start(ranks, WAYS[way], with_mpi, made)
    found = processes_of(trial.run_dir)
    assert sorted(found) == list(range(ranks)), found
    if loops:
        ring = trial.run_dir / "flight" / f"rank-{victim}.ring"
        done = subprocess.run([trial.spin, str(found[victim]), ring])
        if done.returncode == 77:
            print("an endless loop: skipped: no process may be traced here")
            return trial.clear(processes, found)
        assert done.returncode == 0, done.returncode
    else:
        os.kill(found[victim], signal.SIGSTOP)
    waited = [p for i, p in enumerate(processes) if with_mpi or i != victim]
    took = trial.end(waited, LIMIT_S + SLACK_S)
    output = trial.output()
    lines = [line for line in output.splitlines() if "error:" in line]
    named = [line for line in lines if re.search(
        rf"rank {victim} on \S+ \(process {found[victim]}\) has done nothing for [\d.]+ s: step \d+, "
        r"(training|loading), .* \d+", line)]
    # What a remote rank says last is not always brought by mpirun.
    stack = f"rank {victim}: stack of its main thread" in output or not loops or made
    codes = [process.returncode for process in waited]
    trial.check(took is not None and took >= LIMIT_S * 0.8 and named and len(lines) == 1
                and stack and set(codes) == {6},
                f"rank {victim} of {ranks} {'loops' if loops else 'stopped'}, over {way}"
                f"{'' if with_mpi else ', without MPI'}"
                f"{f', on {made.count} hosts' if made else ''}: ended in {took and round(took, 2)} s",
                f"codes {codes}\n{output}")
    trial.clear(processes, found)


def stopped_at_start(trial, way):
    """Before the first step, as soon as there is a record of the rank."""
    processes = trial.start(
        2, WAYS[way], until=lambda: (trial.run_dir / "flight" / "rank-1.ring").exists())
    found = {1: processes_of(trial.run_dir)[1]}
    os.kill(found[1], signal.SIGSTOP)
    took = trial.end(processes, LIMIT_S + SLACK_S)
    trial.check(took is not None and re.search(
        rf"error: rank 1 on \S+ \(process {found[1]}\) has done nothing for [\d.]+ s: step \d+, ",
        trial.output()), f"a rank stopped while the run starts, over {way}: ended in "
        f"{took and round(took, 2)} s", trial.output())
    trial.clear(processes, found)


def killed(trial, way="shared memory", made=None):
    """The others name it, and what it did; so does `inspect` afterwards."""
    processes = trial.start(2, WAYS[way], made=made)
    found = processes_of(trial.run_dir)
    os.kill(found[1], signal.SIGKILL)
    trial.end(processes, SLACK_S)
    trial.check(re.search(r"lost rank 1 on \S+: [^;]+; it was at step \d+, (training|loading)",
                          trial.output()), f"a killed rank's last step is told, over {way}"
                f"{f', on {made.count} hosts' if made else ''}", trial.output())
    trial.clear(processes, found)
    report = trial.folder / "flight.json"
    done = lockstep_run.run(trial.binary, ["inspect", trial.run_dir, "--flight", "--json", report],
                            ranks=0)
    ranks = json.loads(report.read_text())["ranks"] if report.exists() else []
    trial.check(done.returncode == 0 and [r["rank"] for r in ranks] == [0, 1]
                and ranks[1]["process"] == found[1] and "ended" not in ranks[1]["last"]
                and ranks[1]["entries"], "inspect --flight shows what each rank did last",
                f"{done.returncode}\n{done.stdout}{done.stderr}")


def only_slow(trial):
    """A rank that computes, be it slowly, and one that is stopped for less than the limit."""
    processes = trial.start(2, WAYS["shared memory"])
    found = processes_of(trial.run_dir)
    for _ in range(30):  # runs a twentieth of the time
        os.kill(found[1], signal.SIGSTOP)
        time.sleep(0.19)
        os.kill(found[1], signal.SIGCONT)
        time.sleep(0.01)
    os.kill(found[1], signal.SIGSTOP)
    time.sleep(LIMIT_S * 0.6)
    os.kill(found[1], signal.SIGCONT)
    time.sleep(0.5)
    trial.check(all(process.poll() is None for process in processes) and "error" not in
                trial.output(), "slow ranks are left alone", trial.output())
    trial.clear(processes, found)


def failures_of(binary, spin, folder, *cases):
    """Of cases, three at a time, as they wait for limits. Each has a folder to itself."""
    def run(case):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            trial = Trial(binary, spin, pathlib.Path(own))
            case(trial)
            return trial.failures

    return sum(lockstep_run.at_once([functools.partial(run, case) for case in cases], 3))


def main(binary, spin):
    case = functools.partial
    alone = [case(stopped, ranks=2, victim=1, way="TCP", with_mpi=False)]
    if lockstep_run.have_mpirun():
        for way in WAYS:
            alone += [case(stopped, ranks=2, victim=1, way=way),
                      case(stopped, ranks=2, victim=1, way=way, loops=True),
                      case(stopped_at_start, way=way)]
        alone += [case(stopped, ranks=4, victim=0, way="shared memory"), killed]
    with tempfile.TemporaryDirectory(prefix="lockstep-stuck-") as folder:
        failures = failures_of(binary, spin, folder, *alone)
        if lockstep_run.have_mpirun():
            failures += failures_of(binary, spin, folder, only_slow)
        why = hosts.available()
        if why:
            print(f"several hosts: skipped: {why}")
        else:
            with hosts.Hosts(2) as made:
                on_hosts = [case(stopped, ranks=2, victim=1, way="TCP", with_mpi=False, made=made)]
                for way in ("MPI", "TCP"):
                    on_hosts += [case(stopped, ranks=4, victim=victim, way=way, made=made)
                                 for victim in (0, 2, 3)]
                    on_hosts += [case(stopped, ranks=4, victim=2, way=way, made=made, loops=True),
                                 case(killed, way=way, made=made)]
                failures += failures_of(binary, spin, folder, *on_hosts)
        print(f"{failures} failures")
        return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
