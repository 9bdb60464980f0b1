#!/usr/bin/env python3
"""Catches: a supervised run that is not started again after a death, or is after a user's error;
work or processes that are left behind; a signal that is lost, or kills; other bits than mpirun's.

launch_test.py BINARY: `lockstep launch` on this host and, where network namespaces can be made, on
two.
"""
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import hosts
import lockstep_run
from stuck_rank_test import processes_of

CONFIG = """
model { mlp { hidden: [256, 128] dropout: 0.1 } }
data { synthetic { samples: 2000 features: 64 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: 6000 log_every: 1000000 }
optimizer { adamw {} }
schedule { kind: COSINE lr: 0.001 }
checkpoint { every: 400 }
execution { threads: 1 }
output { tensorboard: false }
"""
ENDLESS = ["--set", "train.steps=100000000", "--set", "checkpoint.every=0"]
LIMIT_S = 120
GONE_S = 5  # within which nothing may be left


class Launch:
    """`lockstep launch` of a run; `before`: what runs it; `folder`: of a run of another name."""

    def __init__(self, trial, name, words, train=(), before=(), folder=None):
        self.run_dir = trial.folder / (folder or name)
        self.report = trial.folder / f"{name}.json"
        self.said = open(trial.folder / f"{name}.said", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [*before, trial.binary, "launch", *map(str, words), "--json", str(self.report), "--",
             "train", str(trial.config), "--run-dir", str(self.run_dir), *train],
            stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, cwd=trial.folder)

    def wait_for_steps(self):
        lockstep_run.wait_for_steps(self.run_dir, [self.process])

    def end(self, code):
        """What it said, once it has ended with this code and no rank is left."""
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit(f"not ended after {LIMIT_S} s: {self.output()}")
        assert self.process.returncode == code, (
            f"exit code {self.process.returncode}, expected {code}\n{self.output()}")
        assert not processes_of(self.run_dir), f"ranks are left\n{self.output()}"
        return self.output()

    def output(self):
        self.said.seek(0)
        return self.said.read()

    def summary(self):
        return json.loads(self.report.read_text())

    def hash(self):
        return lockstep_run.metrics(self.run_dir)[-1]["weights_hash"]


class Trial:
    def __init__(self, binary, folder, config=CONFIG):
        self.binary, self.folder = binary, folder
        self.config = folder / "config.textproto"
        self.config.write_text(config)
        self.expected = lockstep_run.train(binary, self.config, folder / "mpirun",
                                           2)["weights_hash"]

    def launch(self, name, *words, **more):
        return Launch(self, name, words, **more)


def undisturbed(trial):
    for ranks in (1, 2, 4):
        run = trial.launch(f"undisturbed{ranks}", "-n", ranks)
        said = run.end(0)
        assert run.hash() == trial.expected, f"{run.hash()}, under mpirun {trial.expected}\n{said}"
        assert run.summary()["restarts"] == 0 and not (run.run_dir / "starts").exists(), said
    run = trial.launch("undisturbed2", "-n", 2)
    assert "nothing left to do" in run.end(0), run.output()
    run = trial.launch("tagged", "-n", 2, "--tag-output", train=["--max-steps", "5"])
    assert "[rank 0] weights_hash" in run.end(0), run.output()


def killed(trial):
    """By a signal, at two moments: the run goes on from a checkpoint, and says what was lost."""
    run = trial.launch("killed", "-n", 2)
    for victim in (1, 0):
        run.wait_for_steps()
        os.kill(processes_of(run.run_dir)[victim], signal.SIGKILL)
        began = time.monotonic()
        while f"launch: rank {victim} on" not in run.output():
            assert time.monotonic() - began < GONE_S, run.output()
            time.sleep(0.02)
    said, summary = run.end(0), run.summary()
    assert run.hash() == trial.expected, f"{run.hash()}, expected {trial.expected}\n{said}"
    assert "was ended by signal 9 (Killed); it was at step " in said, said
    assert summary["restarts"] == 2 and summary["seconds"] > summary["seconds_kept"] > 0, summary
    for start in ("0001", "0002"):
        kept = run.run_dir / "starts" / start
        ended = json.loads((kept / "start.json").read_text())
        assert {rank["code"] for rank in ended["ranks"]} == {137, 6}, ended
        assert (kept / "flight" / "rank-1.ring").exists()
        assert "lost rank" in (kept / "said.txt").read_text()


def unread(trial):
    """Nobody reads what it says, which ends nothing but counts at the end; and a rank dies before the
    ranks have met, when the agents of hosts may be gone before `launch` is."""
    process = subprocess.Popen(
        [trial.binary, "launch", "-n", "2", "--", "train", trial.config, "--run-dir",
         trial.folder / "unread", "--max-steps", "5"], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    assert process.wait(LIMIT_S) == 4, process.returncode
    for number in range(4):
        run = trial.launch(f"early{number}", "-n", 4, "--max-restarts", 0)
        while 0 not in processes_of(run.run_dir):
            assert run.process.poll() is None, run.output()
        os.kill(processes_of(run.run_dir)[0], signal.SIGKILL)
        assert "rank 0 on" in run.end(6), run.output()


def gives_up(trial):
    """Where no start brings a checkpoint the restarts are counted."""
    run = trial.launch("vain", "-n", 2, "--max-restarts", 1, train=ENDLESS)
    for _ in range(2):
        run.wait_for_steps()
        os.kill(processes_of(run.run_dir)[0], signal.SIGKILL)
    said = run.end(6)
    assert "1 restarts in a row without a new checkpoint" in said, said
    assert run.summary()["starts"] == 2 and run.summary()["steps_lost"] > 0, run.summary()


def preempted(trial):
    """Each signal ends the ranks with a checkpoint; the same command goes on to the same bits."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        run = trial.launch("preempted", "-n", 2)
        run.wait_for_steps()
        run.process.send_signal(number)
        said = run.end(75)
        assert "stopped on request" in said and run.summary()["steps_lost"] == 0, said
    run = trial.launch("preempted", "-n", 2)
    run.end(0)
    assert run.hash() == trial.expected, f"{run.hash()}, expected {trial.expected}"
    # Before its ranks listen to signals, and while it waits to start again.
    for moment in (0, 0.1, 0.3):
        run = trial.launch("early", "-n", 2, train=ENDLESS)
        time.sleep(moment)
        run.process.send_signal(signal.SIGTERM)
        run.end(75 if run.process.wait(LIMIT_S) == 75 else -signal.SIGTERM)
    # A second interrupt kills ranks that do not end.
    run = trial.launch("stubborn", "-n", 2, train=ENDLESS)
    run.wait_for_steps()
    for process in processes_of(run.run_dir).values():
        os.kill(process, signal.SIGSTOP)
    for _ in range(2):
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    assert "was ended by signal 9" in run.end(6), run.output()


def refused(trial):
    """What every start would end with is not tried again."""
    for name, train, code, words in (
            ("bad field", ["--set", "train.lanes=3"], 2, "train.lanes"),
            ("other run", ["--set", "seed=9"], 4, "seed"),
            ("no data", ["--set", "data.dir=nowhere", "--set", "model.mlp.hidden=7,7"], 4, "hidden")):
        run = trial.launch("undisturbed2", "-n", 2, train=train)
        said = run.end(code)
        assert words in said and "starts again" not in said, f"{name}: {said}"
    for arguments, words in ((["launch", "--", "train", trial.config, "--device", "cuda"],
                              "-n is required"),
                             (["launch", "-n", "2", "--", "eval", trial.config], "allowed: train"),
                             (["launch", "-n", "2", "--", "train", trial.config, "--bogus"],
                              "--bogus")):
        done = lockstep_run.run(trial.binary, arguments, ranks=0)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "--max-restarts" in lockstep_run.run(trial.binary, ["launch", "--help"],
                                                ranks=0).stdout


def domains(trial):
    """Without -n there is a rank for each NUMA domain, here two that hwloc only claims to be. All
    threads of each run on its CPUs."""
    if not {0, 1} <= os.sched_getaffinity(0):
        print("without NUMA domains: CPUs 0 and 1 are needed")
        return
    claim = ["env", "HWLOC_SYNTHETIC=numa:2 core:1 pu:1", "HWLOC_THISSYSTEM=1"]
    result = trial.folder / "plan.json"

    def plan(*words):
        return subprocess.run([*claim, trial.binary, "plan", trial.config, "--json", result, *words],
                              capture_output=True, text=True, check=True).stdout

    planned = plan()
    if "NUMA" not in planned:
        print("without NUMA domains: built without hwloc")
        return
    assert (f"this host has 2 NUMA domains of 1 core: start 2 ranks a node with 1 thread each: "
            f"lockstep launch -- train {trial.config}\n") in planned, planned
    proposal = {"reason": "2 NUMA domains of 1 core",
                "command": f"lockstep launch -- train {trial.config}",
                "ranks": [{"cpus": cpu, "cores": 1, "threads": 1} for cpu in "01"]}
    assert json.loads(result.read_text())["domain_ranks"] == proposal, result.read_text()
    planned = plan("--set", "train.lanes=1", "--set", "execution.threads=2")
    proposal["error"] = ("train.lanes: 1 lane cannot be shared by 2 ranks; allowed: up to 1 rank, or "
                         "--set train.lanes=2")
    for rank in proposal["ranks"]:
        rank["threads"] = 2
    assert json.loads(result.read_text())["domain_ranks"] == proposal, result.read_text()
    assert f"launch would reject that: {proposal['error']}\n" in planned, planned
    hostfile = trial.folder / "this_host"
    hostfile.write_text("localhost\n")
    for name, words in (("domains", []), ("domains of hosts", ["--hostfile", hostfile])):
        run = trial.launch(name, *words, before=claim)
        run.wait_for_steps()
        ranks = processes_of(run.run_dir)
        for rank, process in ranks.items():
            for thread in os.listdir(f"/proc/{process}/task"):
                assert os.sched_getaffinity(int(thread)) == {rank}, (rank, thread)
        said = run.end(0)
        assert len(ranks) == 2 and run.hash() == trial.expected, said
        assert "launch: 2 ranks, because -n is not given" in said, said
    hostfile.write_text("localhost slots=3\n")
    said = trial.launch("more than domains", "--hostfile", hostfile, before=claim,
                        train=["--max-steps", "5"]).end(0)
    assert "is not bound to a NUMA domain: 3 ranks on this host, which has 2 NUMA" in said, said


def parents(trial):
    """Ranks do not outlive `launch` nor its agent, and an agent that is killed is another death."""
    run = trial.launch("orphans", "-n", 2, train=ENDLESS)
    run.wait_for_steps()
    run.process.kill()
    deadline = time.monotonic() + GONE_S
    while processes_of(run.run_dir):
        assert time.monotonic() < deadline, "ranks outlive launch"
        time.sleep(0.02)
    run = trial.launch("agent", "-n", 2)
    run.wait_for_steps()
    agent = subprocess.run(["pgrep", "-P", str(run.process.pid)], capture_output=True,
                           text=True).stdout.split()
    assert len(agent) == 1, agent
    os.kill(int(agent[0]), signal.SIGKILL)
    said = run.end(0)
    assert "host localhost is lost" in said and run.hash() == trial.expected, said


def on_two_hosts(trial):
    """Agents over a remote shell. A host that does not answer any more: the run goes on with the
    other's ranks, to the same bits."""
    missing = hosts.available()
    if missing:
        print(f"without hosts: {missing}")
        return
    with hosts.Hosts(2) as made:
        shell = trial.folder / "rsh"
        gone = trial.folder / "gone"
        shell.write_text(f"""#!/bin/sh
if [ -e {gone} ] && [ "$1" = {hosts.NET}.2 ]; then echo "no route to $1" >&2; exit 255; fi
exec {made.agent} "$@"
""")
        shell.chmod(0o755)
        hostfile = trial.folder / "hostfile"
        hostfile.write_text("".join(f"{hosts.NET}.{host + 1} slots=2\n" for host in range(2)))
        words = ["-n", 4, "--hostfile", hostfile, "--rsh", shell]
        run = trial.launch("hosts", *words, before=made.inside(0))
        said = run.end(0)
        assert run.hash() == trial.expected and "2 nodes of 2 ranks" in said, said
        hostfile.write_text(f"{hosts.NET}.1 slots=3\n{hosts.NET}.2 slots=1\n")
        run = trial.launch("fewer", *words, "--allow-fewer", before=made.inside(0))
        run.wait_for_steps()
        gone.touch()
        os.kill(processes_of(run.run_dir)[3], signal.SIGKILL)
        said = run.end(0)
        assert run.hash() == trial.expected, f"{run.hash()}, expected {trial.expected}\n{said}"
        assert f"host {hosts.NET}.2 is lost" in said and "no route to" in said, said
        assert "continues with 3 of 4 ranks" in said, said
        assert "4 lanes on 3 ranks: 1 rank has 2 lanes and 2 have 1" in said, said
        run = trial.launch("too few", *words, "--max-restarts", 0, before=made.inside(0))
        assert "4 ranks for 3 slots on the hosts that answer" in run.end(6), run.output()


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-launch-") as folder:
        trial = Trial(binary, pathlib.Path(folder))

        def run(*parts):
            for part in parts:
                part(trial)
                print(f"ok    {part.__name__}", flush=True)

        lockstep_run.at_once([functools.partial(run, *parts) for parts in (
            [preempted], [on_two_hosts], [undisturbed, refused], [killed], [unread], [gives_up],
            [parents], [domains])])
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(os.path.abspath(sys.argv[1])))
