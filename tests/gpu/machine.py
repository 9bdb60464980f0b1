"""Starts programs for the GPU check: each with a limit, none past its stage's time, and what failed is kept whole."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time


class TimeIsUp(Exception):
    """The stage has used the seconds that it has."""


def end_session(session):
    """Ends a process and all that it started: mpirun gives each rank a process group of its own."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # it has ended meanwhile
            pass


class Machine:
    def __init__(self, install, work, out, small):
        self.install, self.work, self.out, self.small = install, work, out, small
        self.program = install / "bin" / "lockstep"
        self.number = self.failures = 0
        self.stage_end = float("inf")

    def start(self, command, limit_s=150, environment=None):
        """The CompletedProcess. One that hangs is ended with all its ranks and has exit code 124; what did not end with 0 is
        kept in OUT, with all that it printed."""
        left = self.stage_end - time.monotonic()
        if left < 1:
            raise TimeIsUp()
        command = [str(c) for c in command]
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     errors="replace", start_new_session=True, env=dict(os.environ, **(environment or {})))
        except OSError as missing:
            return subprocess.CompletedProcess(command, 127, "", str(missing))
        begin, note = time.monotonic(), ""
        try:
            out, err = child.communicate(timeout=min(limit_s, left))
        except subprocess.TimeoutExpired:
            end_session(child.pid)
            out, err = child.communicate()
            note = f"ended after {time.monotonic() - begin:.0f} s, in which it did not end by itself"
            if left <= limit_s:
                raise TimeIsUp() from None
        done = subprocess.CompletedProcess(command, 124 if note else child.returncode, out, err + (f"\n{note}" if note else ""))
        if done.returncode != 0:
            self.keep(done, environment)
        return done

    def keep(self, done, environment):
        self.failures += 1
        told = " ".join(f"{key}={value}" for key, value in (environment or {}).items())
        (self.out / f"ended-{self.failures:02}.txt").write_text(
            f"{told} {' '.join(done.args)}\nexit code {done.returncode}\n\n{done.stdout}\n{done.stderr}\n")

    def lockstep(self, *arguments, ranks=1, limit_s=150, environment=None):
        command = [self.program, *arguments]
        if ranks > 1:
            own = self.install / "bin" / "mpirun"
            mpirun = [own if own.exists() else "mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none"]
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
        """(result of --json, lines of metrics.jsonl, CompletedProcess); result is None where it failed."""
        config = self.config(text, smaller)
        run_dir, result = config.with_suffix(""), config.with_suffix(".json")
        done = self.lockstep("train", config, "--device", device, "--run-dir", run_dir, "--json", result, *arguments, **how)
        if done.returncode != 0:
            return None, [], done
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        return json.loads(result.read_text()), lines, done


def last_line(done):
    """The last line that tells of an error; else the last one."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    lines = [line for line in lines if "error: " in line] or lines
    return f"exit code {done.returncode}: {lines[-1] if lines else ''}"


def hash_of(result, done):
    return result["weights_hash"] if result else last_line(done)


def plain_name(text):
    """A file's name without blanks or signs."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def environment_of(machine):
    """What the figures were taken with."""
    def first_line(command):
        done = machine.start(command, 60)
        return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "none"
    found = {"GPU": first_line(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]),
             "Lockstep": first_line([machine.program, "--version"])}
    probe = pathlib.Path(machine.config(
        "model { mlp { hidden: 8 } } data { synthetic { samples: 8 features: 4 classes: 2 } } train { global_batch: 8 steps: 1 } "
        "optimizer { sgd {} } schedule { lr: 0.1 } "
        "output { tensorboard: false }"))
    run_dir = probe.with_suffix("")
    done = machine.lockstep("train", probe, "--device", "cuda", "--run-dir", run_dir)
    if done.returncode == 0 and found["GPU"] == "none":
        found["GPU"] = "nvidia-smi shows none"
    if done.returncode == 0:
        found["libraries"] = json.loads((run_dir / "environment.json").read_text())["libraries"].get("gpu", "unknown")
    else:
        found["libraries"] = last_line(done)
    nccl = "import ctypes; v = ctypes.c_int(); ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(v)); print(v.value)"
    found["NCCL"] = first_line(["python3", "-c", nccl])
    return found
