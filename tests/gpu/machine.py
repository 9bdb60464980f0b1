"""Starts programs for the GPU check: each with a limit, none past its part's time, and what failed
is kept whole."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

POLL_S = 0.2


class TimeIsUp(Exception):
    """The part has used the seconds that it has. The argument: what was under way."""


def end_session(session):
    """Ends a process and all that it started: mpirun gives each rank a process group of its own."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # it has ended meanwhile
            pass


def not_enough(left_s, needs_s):
    return f"{left_s:.0f} s left, needs about {needs_s} s"


def short(command):
    """For a line: without folders, and not all of a long one."""
    words = " ".join(pathlib.Path(word).name if "/" in word else word for word in command)
    return words if len(words) <= 120 else words[:117] + "..."


class Machine:
    def __init__(self, install, work, out, small, under_way=lambda text: None,
                 while_waiting=lambda: None, clock=time.monotonic):
        self.install, self.work, self.out, self.small = install, work, out, small
        self.under_way = under_way  # is told of every program that starts
        self.while_waiting = while_waiting  # is called all the time that one runs
        self.program = install / "bin" / "lockstep"
        self.number = self.kept = 0
        self.has_torch = None  # not asked yet
        self.clock = clock
        self.begin_stage("start", float("inf"))

    def begin_stage(self, name, budget_s):
        self.stage, self.stage_end = name, self.clock() + budget_s
        self.environment = {}  # of all that is started
        self.kept = 0
        for old in self.out.glob(f"{name}-*.txt"):
            old.unlink()

    def left(self):
        return self.stage_end - self.clock()

    def fits(self, report, what, needs_s):
        """Whether there is time for a piece of the part; if not, the report says so."""
        if self.left() >= needs_s:
            return True
        report.leave_out(what, not_enough(self.left(), needs_s))
        return False

    def start(self, command, limit_s=150, environment=None, quiet_s=None, watch=None):
        """The CompletedProcess. One that hangs (or prints nothing for `quiet_s`) is ended with all
        its ranks and has exit code 124; what did not end with 0 is kept in OUT, with all that it
        printed. `watch` is given what it has printed, as it goes on."""
        left = self.left()
        if self.small:  # without a GPU, on a CPU that others use
            limit_s *= 10
            quiet_s = quiet_s and 10 * quiet_s
        command = [str(c) for c in command]
        environment = {**self.environment, **(environment or {})}
        if left < 1:
            raise TimeIsUp(f"before {short(command)}")
        self.under_way(short(command))
        self.number += 1
        printed = [self.work / f"printed{self.number}.{name}" for name in ("out", "err")]
        try:
            with open(printed[0], "wb") as out, open(printed[1], "wb") as err:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                         start_new_session=True,
                                         env=dict(os.environ, **environment))
        except OSError as missing:
            return subprocess.CompletedProcess(command, 127, "", str(missing))
        try:
            note = self.wait(child, printed, min(limit_s, left), quiet_s, watch)
        except BaseException:  # the check itself is ended
            end_session(child.pid)
            raise
        out, err = (path.read_text(errors="replace") for path in printed)
        done = subprocess.CompletedProcess(command, 124 if note else child.returncode, out,
                                           err + (f"\n{note}" if note else ""))
        if done.returncode != 0:
            self.keep(done, environment)
        if note and self.left() <= 0:
            raise TimeIsUp(short(command))
        return done

    def wait(self, child, printed, limit_s, quiet_s, watch):
        """Until it ends, or is ended: then why."""
        begin = changed = self.clock()
        size = 0
        while True:
            try:
                child.wait(timeout=min(POLL_S, limit_s))
            except subprocess.TimeoutExpired:
                pass
            self.while_waiting()
            if watch:
                watch(printed[0].read_text(errors="replace"))
            if child.returncode is not None:
                return ""
            now, before = self.clock(), size
            size = sum(path.stat().st_size for path in printed)
            changed = now if size != before else changed
            late, quiet = now - begin >= limit_s, quiet_s and now - changed >= quiet_s
            if not late and not quiet:
                continue
            end_session(child.pid)
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:  # it hangs in the driver
                return f"still running after {now - begin:.0f} s, and it cannot be killed"
            return (f"still running after {now - begin:.0f} s; it was ended" if late else
                    f"printed nothing for {quiet_s:.0f} s; it was ended")

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

    def lockstep(self, *arguments, ranks=1, limit_s=150, **how):
        command = [self.program, *arguments]
        if ranks > 1:
            own = self.install / "bin" / "mpirun"
            mpirun = [own if own.exists() else "mpirun", "-n", ranks, "--oversubscribe",
                      "--bind-to", "none"]
            command = mpirun + (["--allow-run-as-root"] if os.geteuid() == 0 else []) + command
        return self.start(command, limit_s, **how)

    def config(self, text, smaller=()):
        for large, small in smaller if self.small else ():
            text = text.replace(large, small)
        self.number += 1
        path = self.work / f"config{self.number}.textproto"
        path.write_text(text)
        return path

    def train(self, text, *arguments, device="cuda", smaller=(), **how):
        """(result of --json, lines of metrics.jsonl, CompletedProcess); result is None if it
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
