#!/usr/bin/env python3
"""Catches: `launch` that waits for ever for a process that SIGKILL does not end, does not say which, or
cannot be interrupted; such a process, or one behind a network that is down, that writes into the
run folder when another start has it.

given_up_rank_test.py BINARY: ranks are frozen by a control group of version 1, in which SIGKILL does
not end them; hosts are network namespaces.
"""
import contextlib
import functools
import itertools
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

import hosts
import launch_test
import lockstep_run
from stuck_rank_test import processes_of

FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
_numbers = itertools.count()
CONFIG = launch_test.CONFIG + "comm { timeout_s: 2 files_timeout_s: 20 }\n"


@contextlib.contextmanager
def freezer():
    """A function that freezes processes; at the end they run on."""
    group = FREEZER / f"lockstep-test-{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    state = group / "freezer.state"

    def freeze(*processes):
        for process in processes:
            (group / "cgroup.procs").write_text(str(process))
        state.write_text("FROZEN")

    freeze.group = group
    freeze.thaw = lambda: state.write_text("THAWED")
    try:
        yield freeze
    finally:
        state.write_text("THAWED")
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            for process in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            time.sleep(0.01)
        group.rmdir()


def can_freeze():
    try:
        with freezer():
            return True
    except OSError as error:
        print(f"without frozen ranks: {error}")
        return False


class Trial(launch_test.Trial):
    def __init__(self, binary, folder):
        super().__init__(binary, folder)
        self.config.write_text(CONFIG)


def children_of(process):
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout
    return [int(number) for number in found.split()]


def wait_for_text(run, text, limit_s=60):
    deadline = time.monotonic() + limit_s
    while text not in run.output():
        assert run.process.poll() is None and time.monotonic() < deadline, run.output()
        time.sleep(0.02)


def frozen_alone(trial):
    """Where no host is left `launch` ends, and says what was given up."""
    with freezer() as freeze:
        run = trial.launch("frozen", "-n", 2, "--allow-fewer", train=launch_test.ENDLESS)
        run.wait_for_steps()
        victim = processes_of(run.run_dir)[1]
        freeze(victim)
        run.process.wait(launch_test.LIMIT_S)
        said = run.output()
        assert run.process.returncode == 6, f"{run.process.returncode}\n{said}"
        named = f"(process {victim}) cannot be killed: state D (uninterruptible sleep), frozen by " \
                f"the control group {freeze.group}"
        assert "rank 1 on" in said and named in said and "host localhost is lost" in said, said
        assert "starts again" not in said and run.summary()["starts"] == 1, said
        kept = json.loads((run.run_dir / "starts" / "0001" / "start.json").read_text())
        assert {rank["rank"]: rank["code"] for rank in kept["ranks"]} == {0: 6, 1: None}, kept
        # Another start by hand may go on: rank 0 has ended.
        assert processes_of(run.run_dir) == {1: victim}


def frozen_rank_0(trial):
    """The lock's holder is given up; the next `launch` takes its lock, since its generation is void,
    and what it does when it runs again changes nothing."""
    with freezer() as freeze:
        run = trial.launch("frozen 0", "-n", 2, train=launch_test.ENDLESS)
        run.wait_for_steps()
        victim = processes_of(run.run_dir)[0]
        freeze(victim)
        run.process.wait(launch_test.LIMIT_S)
        assert run.process.returncode == 6, run.output()
        alone = lockstep_run.run(trial.binary, ["train", trial.config, "--run-dir", run.run_dir,
                                                "--resume", "auto"], ranks=0)
        assert alone.returncode == 4 and "is in use by process" in alone.stderr, alone.stderr
        again = trial.launch("frozen 0", "-n", 2, train=["--max-steps", "600"])
        again.process.wait(launch_test.LIMIT_S)
        assert again.process.returncode == 0, again.output()
        before = contents(run.run_dir)
        freeze.thaw()
        wait_until_gone(victim)
        assert contents(run.run_dir) == before, "a rank that was given up has written"


def killed_launch(trial):
    """`launch` is killed while its ranks cannot end, and has given none of them up: the next one
    takes the lock, since its holder of this host has got SIGKILL."""
    with freezer() as freeze:
        run = trial.launch("killed", "-n", 2, train=launch_test.ENDLESS)
        run.wait_for_steps()
        victims = processes_of(run.run_dir)
        freeze(*victims.values())
        alone = trial.launch("alive", "-n", 2, folder="killed")
        assert alone.process.wait(launch_test.LIMIT_S) == 4, "they have got no SIGKILL yet"
        run.process.kill()
        run.process.wait(launch_test.LIMIT_S)
        again = trial.launch("again", "-n", 2, train=["--max-steps", "600"], folder="killed")
        again.process.wait(launch_test.LIMIT_S)
        assert again.process.returncode == 0, again.output()
        before = contents(run.run_dir)
        freeze.thaw()
        for victim in victims.values():
            wait_until_gone(victim)
        assert contents(run.run_dir) == before, "a rank that was killed has written"


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob("*")
            if path.is_file()}


def second_interrupt(trial):
    """Whatever does not end: the agent and its ranks, or a remote shell."""
    with freezer() as freeze:
        run = trial.launch("interrupted", "-n", 2, train=launch_test.ENDLESS)
        run.wait_for_steps()
        freeze(*children_of(run.process.pid), *processes_of(run.run_dir).values())
        interrupt_twice(run)
    shell = trial.folder / "hangs"
    shell.write_text("#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 1000; done\n")
    shell.chmod(0o755)
    hostfile = trial.folder / "far"
    hostfile.write_text("far.invalid slots=2\n")
    run = trial.launch("greeting", "-n", 2, "--hostfile", hostfile, "--rsh", shell)
    while not children_of(run.process.pid):
        time.sleep(0.02)
    interrupt_twice(run, codes=(6, 75))


def interrupt_twice(run, codes=(6,)):
    run.process.send_signal(signal.SIGINT)
    # A second one before the first is read would be the same one.
    while is_pending(run.process.pid, signal.SIGINT):
        time.sleep(0.01)
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    run.process.wait(launch_test.LIMIT_S)
    print(f"      ended {time.monotonic() - began:.2f} s after the second interrupt")
    assert run.process.returncode in codes, f"{run.process.returncode}\n{run.output()}"


def is_pending(process, number):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.split("ShdPnd:")[1].split()[0], 16) >> (number - 1) & 1 == 1


def stale_writer(trial):
    """A rank that runs on after its start has been given up."""
    run_dir = trial.folder / "stale"
    environment = dict(os.environ, LOCKSTEP_GENERATION="3", LOCKSTEP_LAUNCH_ID="cafe")
    process = subprocess.Popen(
        [trial.binary, "train", trial.config, "--run-dir", run_dir, *launch_test.ENDLESS, "--set",
         "checkpoint.every=50"], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lockstep_run.wait_for_steps(run_dir, [process])
    assert "generation 3\nlaunch cafe\n" in (run_dir / "generation").read_text()
    os.kill(process.pid, signal.SIGSTOP)
    # As `launch` does: the rank may be in the middle of reading it.
    (run_dir / "generation.new").write_text("generation 4\nlaunch cafe\n")
    (run_dir / "generation.new").rename(run_dir / "generation")
    time.sleep(0.1)
    before = contents(run_dir)
    os.kill(process.pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=launch_test.LIMIT_S)
    assert process.returncode == 4 and "now belongs to generation 4 of its starts" in errors, errors
    after = contents(run_dir)
    changed = [str(path) for path in {*before, *after} if after.get(path) != before.get(path)]
    # Its own log and flight recorder, its lock and what it had begun of a checkpoint are its own.
    own = ("log.txt", "rank-0.ring", "writer.lock")
    assert all(path.endswith(own) or ".g3.tmp/" in path for path in changed), changed
    # The same generation does not get in any more; a later one does.
    for number, code in (("3", 4), ("5", 0)):
        done = lockstep_run.run(trial.binary, ["train", trial.config, "--run-dir", run_dir,
                                               "--resume", "auto"], ranks=0,
                                environment={"LOCKSTEP_GENERATION": number,
                                             "LOCKSTEP_LAUNCH_ID": "cafe"})
        assert done.returncode == code, done.stderr


class Agent:
    """`launch --agent`, to which the test speaks as `launch` does."""
    HEADER = struct.Struct("<IB3xiiI")  # magic number, kind, rank, value, bytes that follow
    MAGIC, START, BEGUN, UNDEAD = 0x6c61734c, 1, 2, 6

    def __init__(self, trial, *words, **order):
        self.process = subprocess.Popen([trial.binary, "launch", "--agent", *words],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        text = json.dumps({"folder": "/", "words": ["sleep", "1000"], "silence_s": 0,
                           "blocked_s": 0, "ranks": [{"rank": 0, "variables": []}],
                           **order}).encode()
        self.process.stdin.write(
            self.HEADER.pack(self.MAGIC, self.START, -1, 0, len(text)) + text)
        self.process.stdin.flush()

    def next(self, wanted):
        """Value and text of the next message of this kind."""
        while True:
            magic, kind, _, value, size = self.HEADER.unpack(
                self.process.stdout.read(self.HEADER.size))
            text = self.process.stdout.read(size)
            assert magic == self.MAGIC, magic
            if kind == wanted:
                return value, text


def silent_launch(trial):
    """An agent ends its ranks if `launch` says nothing any more, although the connection is there."""
    agent = Agent(trial, silence_s=1)
    rank, _ = agent.next(Agent.BEGUN)
    assert agent.process.wait(launch_test.LIMIT_S) == 1, agent.process.returncode
    wait_until_gone(rank)


def blocked_rank(trial):
    """A rank that the kernel keeps is killed after a while, and named where that does not end it; the
    agent of a later start tells whether it is still there."""
    with freezer() as freeze:
        agent = Agent(trial, blocked_s=1)
        rank, _ = agent.next(Agent.BEGUN)
        freeze(rank)
        value, text = agent.next(Agent.UNDEAD)
        told = json.loads(text)
        assert value == rank and told["state"].startswith("state D ("), told
        agent.process.stdin.close()
        assert agent.process.wait(launch_test.LIMIT_S) == 1, agent.process.returncode
        given_up = f"{rank}:{told['started']},{os.getpid()}:1"
        for there in (True, False):
            later = Agent(trial, "--given-up", given_up)
            hello = json.loads(later.next(0)[1])
            assert (f"process {rank}: state D" in hello["undead"]) == there, hello
            assert f"process {os.getpid()}:" not in hello["undead"], hello
            later.process.kill()
            freeze.thaw()
            wait_until_gone(rank)


def wait_until_gone(process):
    """Or has ended, and whoever has it now has not asked how."""
    def is_there():
        try:
            text = pathlib.Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return False
        return text.rsplit(")", 1)[1].split()[0] not in "ZX"

    deadline = time.monotonic() + launch_test.GONE_S
    while is_there():
        assert time.monotonic() < deadline, f"process {process} lives"
        time.sleep(0.02)


def two_hosts(trial, made):
    """The arguments and the file whose being there cuts the way to the second host."""
    shell, cut = trial.folder / f"{made.tag}-rsh", trial.folder / f"{made.tag}-cut"
    shell.write_text(f"""#!/bin/sh
if [ -e {cut} ] && [ "$1" = {hosts.NET}.2 ]; then exec sleep 1000; fi
exec {made.agent} "$@"
""")
    shell.chmod(0o755)
    hostfile = trial.folder / f"{made.tag}-hosts"
    hostfile.write_text("".join(f"{hosts.NET}.{host + 1} slots=2\n" for host in range(2)))
    return ["-n", 4, "--hostfile", hostfile, "--rsh", shell, "--allow-fewer"], cut


def frozen_on_two_hosts(trial, made):
    """The run goes on without the host of a frozen rank, to the same bits."""
    words, _ = two_hosts(trial, made)
    with freezer() as freeze:
        run = trial.launch("frozen fewer", *words, before=made.inside(0))
        run.wait_for_steps()
        victim = processes_of(run.run_dir)[0]  # which has the lock of the run folder
        began = time.monotonic()
        freeze(victim)
        wait_for_text(run, f"(process {victim}) cannot be killed")
        named_s = time.monotonic() - began
        wait_for_text(run, "continues with 2 of 4 ranks")
        print(f"      named {named_s:.1f} s after it froze, gone on {time.monotonic() - began:.1f} s after")
        run.process.wait(launch_test.LIMIT_S)
        said = run.output()
        assert run.process.returncode == 0, said
        assert f"host {hosts.NET}.1 is left out: processes that were given up there still exist" in said, said
        assert run.hash() == trial.expected, f"{run.hash()}, expected {trial.expected}\n{said}"


def partition(trial, made):
    """The network between the hosts is down, and the second one's agent is not heard: the run goes on
    when the first one's ranks know."""
    words, cut = two_hosts(trial, made)
    run = trial.launch("partition", *words, before=made.inside(0))
    run.wait_for_steps()
    ranks = processes_of(run.run_dir)
    agent = int(pathlib.Path(f"/proc/{ranks[3]}/stat").read_text().rsplit(")", 1)[1].split()[1])
    began = time.monotonic()
    cut.touch()
    hosts.ip("link", "set", f"{made.name(1)}v", "down")
    os.kill(agent, signal.SIGSTOP)
    try:
        wait_for_text(run, f"host {hosts.NET}.2 is lost: no sign of life for 5 s")
        lost_s = time.monotonic() - began
        wait_for_text(run, "continues with 2 of 4 ranks")
        print(f"      lost {lost_s:.1f} s after, gone on {time.monotonic() - began:.1f} s after")
        said = run.end(0)
        assert run.hash() == trial.expected, f"{run.hash()}, expected {trial.expected}\n{said}"
    finally:
        cut.unlink()
        hosts.ip("link", "set", f"{made.name(1)}v", "up")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-given-up-") as folder:
        trial = Trial(binary, pathlib.Path(folder))
        parts = [stale_writer, silent_launch]
        on_hosts = [partition]
        if can_freeze():
            parts += [blocked_rank, frozen_alone, frozen_rank_0, killed_launch, second_interrupt]
            on_hosts.append(frozen_on_two_hosts)

        def run(part, **more):
            part(trial, **more)
            print(f"ok    {part.__name__}", flush=True)

        def run_on_hosts(part):
            with hosts.Hosts(2) as made:
                run(part, made=made)

        tasks = [functools.partial(run, part) for part in parts]
        missing = hosts.available()
        if missing:
            print(f"without hosts: {missing}")
        else:
            tasks += [functools.partial(run_on_hosts, part) for part in on_hosts]
        # The longest first; all of them wait for limits.
        lockstep_run.at_once(tasks[::-1], 3)
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(os.path.abspath(sys.argv[1])))
