#!/usr/bin/env python3
"""Catches: a rank that is killed and leaves others waiting, processes, shared memory, or a run
folder from which the next start does not get the same weights; several lines, or none, about one
rank that is gone.

killed_rank_test.py BINARY: SIGKILL to one of two ranks under mpirun, which share memory, at moments
spread over a whole run: before the ranks know each other, while memory is taken, in steps and
checkpoints, at the end. Each time the same command then goes on to the weights of a run that nobody
disturbed. SIGKILL to mpirun and all ranks: the next start removes what Open MPI has left. Where
network namespaces can be made, also to ranks on two hosts that talk Lockstep's TCP.
"""
import mmap
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import hosts
import lockstep_run

CONFIG = """
model { mlp { hidden: [256, 128] dropout: 0.1 } }
data { synthetic { samples: 2000 features: 64 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: STEPS log_every: 1000000 }
optimizer { adamw {} }
schedule { kind: COSINE lr: 0.001 }
checkpoint { every: 400 }
execution { threads: 1 }
output { tensorboard: false }
"""
# When a rank is killed: so many seconds after its start, or with this step's checkpoint. Steps, not
# parts of the time that an earlier run took: a machine may be several times faster a second later.
KILLS = ({"delay": 0}, {"delay": 0.1}, {"step": 400}, {"step": 1200}, {"step": 2000})
END_S = 60  # within which all must have ended; most of it is for a machine that is busy
PEER, KILLED = 6, 128 + signal.SIGKILL


class Run:
    """A training under mpirun whose ranks write their process numbers, what they say and how they
    end to `folder`."""

    def __init__(self, mpirun, binary, config, run_dir, folder, arguments=()):
        self.folder = folder
        self.run_dir = run_dir
        folder.mkdir()
        script = folder / "rank.sh"
        # Whatever mpirun sends its ranks, the shell lives to tell the exit code.
        script.write_text("""trap "" TERM CONT
at="$1/$OMPI_COMM_WORLD_RANK"; shift
"$@" 2> "$at.said" & echo $! > "$at.new"; mv "$at.new" "$at.pid"
wait $!; code=$?; echo $code > "$at.code"; exit $code
""")
        self.process = subprocess.Popen([*mpirun, "sh", str(script), str(folder), str(binary),
                                         "train", str(config), "--run-dir", str(run_dir),
                                         *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True,
                                        stdin=subprocess.DEVNULL)

    def kill(self, rank, delay=0, step=0):
        """So long after there is such a rank, and once it has saved that step. False where it has
        ended already."""
        path = self.folder / f"{rank}.pid"
        while not path.exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.005)
        time.sleep(delay)
        while newest_step(self.run_dir) < step and self.process.poll() is None:
            time.sleep(0.005)
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end(self):
        """The exit code of mpirun, once it and all ranks are gone."""
        try:
            output, _ = self.process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit(
                f"not ended after {END_S} s: {self.process.communicate()[0]}\n{self.said()}")
        deadline = time.monotonic() + END_S
        for path in self.folder.glob("*.pid"):
            while pathlib.Path("/proc", path.read_text().strip()).exists():
                assert time.monotonic() < deadline, f"rank {path.stem} is still there\n{output}"
                time.sleep(0.01)
        return self.process.returncode

    def said(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.said")))

    def code(self, rank):
        """None where mpirun ended the shell before it had written one."""
        path = self.folder / f"{rank}.code"
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None


def newest_step(run_dir):
    """Of its checkpoints; 0 without any."""
    return max((int(path.name.removeprefix("step-"))
                for path in (run_dir / "checkpoints").glob("step-????????")), default=0)


def maps_of_all():
    """What all processes that this one may look into have mapped."""
    texts = []
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            texts.append(maps.read_text())
        except OSError:  # it has ended
            pass
    return "".join(texts)


def shared_memory_left(before):
    """Files in /dev/shm that are new and that no process has."""
    deadline = time.monotonic() + 3
    while True:
        left = set(os.listdir("/dev/shm")) - before
        text = maps_of_all() if left else ""
        left = {name for name in left if f"/dev/shm/{name}" not in text}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def check_checkpoints(binary, run_dir):
    """Whatever a reader would take for a checkpoint is whole. Returns how many there are."""
    found = sorted((run_dir / "checkpoints").glob("step-????????"))
    for folder in found:
        done = lockstep_run.run(binary, ["inspect", folder], ranks=0)
        assert done.returncode == 0, f"{folder}: {done.stdout}{done.stderr}"
    return len(found)


def on_one_host(binary, folder):
    config = folder / "config.textproto"
    config.write_text(CONFIG.replace("STEPS", "3000"))
    mpirun = lockstep_run.mpirun(2)
    whole = Run(mpirun, binary, config, folder / "whole", folder / "of-whole")
    assert whole.end() == 0, whole.said()
    expected = lockstep_run.metrics(folder / "whole")[-1]["weights_hash"]
    hits = 0
    for i, moment in enumerate(KILLS):
        before = set(os.listdir("/dev/shm"))
        run_dir = folder / f"run{i}"
        run = Run(mpirun, binary, config, run_dir, folder / f"of-run{i}")
        hit = run.kill(i % 2, **moment)
        hits += hit
        began = time.monotonic()
        code = run.end()
        took = time.monotonic() - began
        assert code != 0 or not hit or run.code(i % 2) == 0, (
            f"mpirun ended with 0 of a rank that was killed\n{run.said()}")
        left = shared_memory_left(before)
        assert not left, f"left in /dev/shm: {left}"
        checkpoints = check_checkpoints(binary, run_dir)
        again = lockstep_run.train(binary, config, run_dir, 2, ["--resume", "auto"])
        assert again["weights_hash"] == expected, (
            f"weights {again['weights_hash']}, expected {expected}")
        check_checkpoints(binary, run_dir)
        print(f"killed at {moment}{'' if hit else ', which was too late'}: ended in "
              f"{took:.2f} s with exit code {code}, "
              f"{checkpoints} checkpoints kept, the same weights", flush=True)
    assert hits >= 3, f"only {hits} of {len(KILLS)} ranks lived to be killed"


def on_two_hosts(binary, folder):
    """Two ranks on each. Whoever tells names the rank that is gone; in general one does. Those that
    mpirun leaves the time end with the code of a lost peer."""
    missing = hosts.available()
    if missing:
        print(f"without hosts: {missing}")
        return
    config = folder / "long.textproto"
    config.write_text(CONFIG.replace("STEPS", "100000000").replace("every: 400", "every: 0"))
    for victim in (0, 3):
        with hosts.Hosts(2) as made:
            run_dir = folder / f"hosts{victim}"
            run = Run(made.mpirun(2), binary, config, run_dir, folder / f"of-hosts{victim}",
                      ["--set", "comm.transport=TCP"])
            deadline = time.monotonic() + END_S
            while (not (run_dir / "metrics.jsonl").exists()
                   or (run_dir / "metrics.jsonl").stat().st_size == 0):
                assert run.process.poll() is None and time.monotonic() < deadline, (
                    f"no steps: {run.said()}")
                time.sleep(0.02)
            assert run.kill(victim)
            began = time.monotonic()
            code = run.end()
            lines = [line for line in run.said().splitlines() if "error:" in line]
            codes = {rank: run.code(rank) for rank in range(4) if rank != victim}
            print(f"rank {victim} of 4 on 2 hosts killed: ended in {time.monotonic() - began:.2f} "
                  f"s with exit code {code}, " f"ranks {codes}; {lines}", flush=True)
            assert code in (KILLED, PEER), (f"exit code {code} of mpirun, {KILLED} where it sees "
                                            f"first that a rank was killed, else {PEER}")
            # On a busy machine mpirun may have killed all ranks before one could say why.
            assert lines or set(codes.values()) == {None}, codes
            assert all(f"lost rank {victim} on " in line for line in lines), lines
            assert set(codes.values()) <= {PEER, None}, f"{codes}; None: mpirun was quicker"


def after_a_killed_launcher(binary, folder):
    """What Open MPI leaves in /dev/shm when mpirun itself is killed is gone after the next start,
    what others have is not."""
    config = folder / "short.textproto"
    config.write_text(CONFIG.replace("STEPS", "100000"))
    run = Run(lockstep_run.mpirun(2), binary, config, folder / "launcher", folder / "of-launcher")
    metrics = folder / "launcher" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size > 0):
        assert run.process.poll() is None, run.process.communicate()[0]
        time.sleep(0.05)
    segments = pathlib.Path("/dev/shm")
    mine = f"vader_segment.{socket.gethostname().split('.')[0]}.{os.geteuid()}."
    run.process.kill()
    for rank in range(2):
        run.kill(rank)
    run.process.communicate()
    deadline = time.monotonic() + END_S
    while (any(f"{segments}/{path.name}" in maps_of_all() for path in segments.glob(mine + "*"))
           and time.monotonic() < deadline):
        time.sleep(0.1)
    mapped, fresh = segments / (mine + "test.mapped"), segments / (mine + "test.fresh")
    try:
        for path in (mapped, fresh):
            path.write_bytes(bytes(4096))
        for path in set(segments.glob(mine + "*")) - {fresh}:
            os.utime(path, (0, 0))  # as if the runs had been long ago
        old = set(segments.glob(mine + "*")) - {fresh, mapped}
        with open(mapped, "r+b") as file, mmap.mmap(file.fileno(), 4096):
            lockstep_run.train(binary, config, folder / "next", 2, ["--max-steps", "5"])
            assert mapped.exists() and fresh.exists(), (
                "took what a process has, or may be about to have")
        left = {path.name for path in old if path.exists()}
        assert not left, f"left in /dev/shm after the next start: {left}"
    finally:
        for path in (mapped, fresh):
            path.unlink(missing_ok=True)
    print(f"ok    after a killed mpirun the next start removed {len(old)} segments")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-killed-") as folder:
        after_a_killed_launcher(binary, pathlib.Path(folder))
        on_one_host(binary, pathlib.Path(folder))
        on_two_hosts(binary, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(os.path.abspath(sys.argv[1])))
