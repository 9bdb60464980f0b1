"""Starts programs for the GPU check: each with a limit, none past its stage's time, and what failed
is kept whole."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time


class TimeIsUp(Exception):
    """The stage has used the seconds that it has. The argument: what was under way."""


def end_session(session):
    """Ends a process and all that it started: mpirun gives each rank a process group of its own."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # it has ended meanwhile
            pass


def short(command):
    return " ".join(pathlib.Path(word).name if "/" in word else word for word in command)


class Machine:
    def __init__(self, install, work, out, small):
        self.install, self.work, self.out, self.small = install, work, out, small
        self.program = install / "bin" / "lockstep"
        self.number = self.kept = 0
        self.begin_stage("start", float("inf"))

    def begin_stage(self, name, budget_s):
        self.stage, self.stage_end = name, time.monotonic() + budget_s
        self.environment = {}  # of all that is started
        for old in self.out.glob(f"{name}-*.txt"):
            old.unlink()

    def start(self, command, limit_s=150, environment=None):
        """The CompletedProcess. One that hangs is ended with all its ranks and has exit code 124;
        what did not end with 0 is kept in OUT, with all that it printed."""
        left = self.stage_end - time.monotonic()
        if self.small:  # without a GPU, on a CPU that others use
            limit_s *= 10
        command = [str(c) for c in command]
        environment = {**self.environment, **(environment or {})}
        if left < 1:
            raise TimeIsUp(f"before {short(command)}")
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, errors="replace",
                                     start_new_session=True, env=dict(os.environ, **environment))
        except OSError as missing:
            return subprocess.CompletedProcess(command, 127, "", str(missing))
        begin, note = time.monotonic(), ""
        try:
            out, err = child.communicate(timeout=min(limit_s, left))
        except subprocess.TimeoutExpired:
            end_session(child.pid)
            out, err = self.what_it_said(child)
            note = (
                f"ended after {time.monotonic() - begin:.0f} s, in which it did not end by itself")
        except BaseException:  # the check itself is ended
            end_session(child.pid)
            raise
        done = subprocess.CompletedProcess(command, 124 if note else child.returncode, out,
                                           err + (f"\n{note}" if note else ""))
        if done.returncode != 0:
            self.keep(done, environment)
        if note and left <= limit_s:
            raise TimeIsUp(short(command))
        return done

    @staticmethod
    def what_it_said(child):
        """A process that hangs in the driver may outlive even being killed."""
        try:
            return child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            return "", "it cannot be killed"

    def keep(self, done, environment=None):
        """All that a program printed, with its command and its config."""
        self.kept += 1
        told = " ".join(f"{key}={value}" for key, value in (environment or {}).items())
        configs = [pathlib.Path(word) for word in done.args if word.endswith(".textproto")]
        config = "".join(f"\n{path.name}:\n{path.read_text()}" for path in configs if path.exists())
        (self.out / f"{self.stage}-{self.kept:02}.txt").write_text(f"{told} {' '.join(done.args)}\n"
                                                                   f"exit code {done.returncode}\n"
                                                                   f"\n{done.stdout}\n"
                                                                   f"{done.stderr}\n{config}")

    def lockstep(self, *arguments, ranks=1, limit_s=150, environment=None):
        command = [self.program, *arguments]
        if ranks > 1:
            own = self.install / "bin" / "mpirun"
            mpirun = [own if own.exists() else "mpirun", "-n", ranks, "--oversubscribe",
                      "--bind-to", "none"]
            command = mpirun + (["--allow-run-as-root"] if os.geteuid() == 0 else []) + command
        return self.start(command, limit_s, environment)

    def config(self, text, smaller=()):
        for large, small in smaller if self.small else ():
            text = text.replace(large, small)
        self.number += 1
        path = self.work / f"config{self.number}.textproto"
        path.write_text(text)
        return path

    def train(self, text, *arguments, device="cuda", smaller=(), **how):
        """(result of --json, lines of metrics.jsonl, CompletedProcess); result is None where it
        failed."""
        config = self.config(text, smaller)
        run_dir, result = config.with_suffix(""), config.with_suffix(".json")
        done = self.lockstep("train", config, "--device", device, "--run-dir", run_dir, "--json",
                             result, *arguments, **how)
        if done.returncode != 0:
            return None, [], done
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        return json.loads(result.read_text()), lines, done


def last_line(done):
    """The last line that tells of an error; else the last one."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    lines = [line for line in lines if "error: " in line] or lines
    return f"exit code {done.returncode}: {lines[-1] if lines else ''}"


def plain_name(text):
    """A file's name without blanks or signs."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def environment_of(machine):
    """What the figures are taken with, and whether a training starts at all."""
    def first_line(command):
        done = machine.start(command, 20)
        return (done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip()
                else "none")
    found = {"GPU": first_line(["nvidia-smi",
                                "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
                                "--format=csv,noheader"]),
             "Lockstep": first_line([machine.program, "--version"])}
    probe = pathlib.Path(machine.config("model { mlp { hidden: 8 } } data { synthetic { samples: 8 "
                                        "features: 4 classes: 2 } } train { global_batch: 8 steps: "
                                        "1 } " "optimizer { sgd {} } schedule { lr: 0.1 } "
                                        "output { tensorboard: false }"))
    run_dir = probe.with_suffix("")
    done = machine.lockstep("train", probe, "--device", "cuda", "--run-dir", run_dir, limit_s=60)
    if done.returncode == 0 and found["GPU"] == "none":
        found["GPU"] = "nvidia-smi shows none"
    if done.returncode == 0:
        environment = json.loads((run_dir / "environment.json").read_text())
        found["libraries"] = environment["libraries"].get("gpu", "unknown")
    else:
        found["libraries"] = last_line(done)
    nccl = ("import ctypes; v = ctypes.c_int(); "
            "ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(v)); print(v.value)")
    found["NCCL"] = first_line(["python3", "-c", nccl])
    return found, done.returncode == 0
