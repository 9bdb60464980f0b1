#!/usr/bin/env python3
"""Catches: a watched run that is shown wrongly, or a terminal that watch leaves in disorder; progress
that launch prints as lines on a terminal; a page that Prometheus does not get, or that a silent client
blocks; sidecars that lose or repeat steps.

watch_test.py BINARY
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.error
import urllib.request

import lockstep_run

CONFIG = """
name: "watched"
model { mlp { hidden: [16] } }
data { synthetic { samples: 640 features: 8 classes: 3 } }
train { global_batch: 64 lanes: 2 steps: 100000000 }
optimizer { adamw {} }
schedule { lr: 0.001 }
checkpoint { every: 5000 }
execution { threads: 1 }
"""
LIMIT_S = 60  # only a fault takes so long
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SIDECARS = pathlib.Path(__file__).resolve().parents[2] / "launcher/sidecars"
# What stands for the packages of the two services: writes what it is given to the file CALLS.
NOTE = """
import json, os
def note(*call):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")
"""
WANDB = NOTE + """
class Run(dict):
    step = int(os.environ.get("KNOWN", 0))
    summary = {}
    def log(self, values, step): note("log", step, values)
    def finish(self, exit_code): note("finish", exit_code, self.summary)
def init(**options):
    note("init", options)
    return Run()
"""

MLFLOW = NOTE + """
from types import SimpleNamespace as Names
class MlflowClient:
    def __init__(self, uri): note("client", uri)
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): return "e1"
    def search_runs(self, experiments, query, max_results):
        if "KNOWN" not in os.environ: return []
        return [Names(info=Names(run_id="r1"), data=Names(metrics={"step": int(os.environ["KNOWN"])}))]
    def update_run(self, run, status): note("update", run, status)
    def create_run(self, experiment, tags, run_name):
        note("create", experiment, tags, run_name)
        return Names(info=Names(run_id="r1"))
    def log_batch(self, run, metrics=(), params=()):
        assert len(metrics) <= 1000 and len(params) <= 100
        note("log", run, [list(metric) for metric in metrics], [list(param) for param in params])
    def set_tag(self, run, name, value): note("tag", name, value)
    def set_terminated(self, run, status): note("end", run, status)
"""
ENTITIES = """
def Metric(*fields): return fields
def Param(*fields): return fields
"""


class Terminal:
    """A program on a pseudo-terminal, with all that it has printed there."""

    def __init__(self, command, columns, rows, **environment):
        self.columns, self.text = columns, ""
        self.process, self.master = pty.fork()
        if self.process == 0:
            time.sleep(0.05)  # until the terminal has its size
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm", **environment})
        self.resize(columns, rows)
        self.modes_before = self.modes_after = termios.tcgetattr(self.master)

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, found):
        """Until `found` is in what is printed from now on, which it returns."""
        begin, end = len(self.text), time.monotonic() + LIMIT_S
        while not found(self.text[begin:]):
            assert time.monotonic() < end, self.text[-3000:]
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the program has ended
                    assert found(self.text[begin:]), self.text[-3000:]
        return self.text[begin:]

    def end(self):
        """Reads the rest, and returns the exit code; -N: ended by signal N."""
        while True:
            try:
                part = os.read(self.master, 65536)
            except OSError:
                part = b""
            if not part:
                break
            self.text += part.decode(errors="replace")
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        self.modes_after = termios.tcgetattr(self.master)
        os.close(self.master)
        return code


def last_frame(text):
    """The lines of the newest complete frame that watch has drawn."""
    frames = text.split("\x1b[H")
    frame = next(frame for frame in reversed(frames) if frame.endswith("\x1b[J") or LEAVE in frame)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame.split("\x1b[J")[0]).split("\r\n")


def watches(binary, run):
    """The screen follows the run and the terminal's size, and leaves the terminal as it was."""
    utf8 = {"LC_ALL": "C.UTF-8"}
    screen = Terminal([binary, "watch", str(run)], 100, 24, **utf8)
    first = screen.read_until(lambda text: text.count("\x1b[J") >= 2)
    frame = last_frame(first)
    assert frame[0].startswith("watched  "), frame
    assert frame[1].startswith("running: step ") and "process " in frame[1], frame
    assert any(re.fullmatch(r"step      \d+/100000000 +0%  \[ +\]", line) for line in frame), frame
    assert any("\u2800" < c <= "\u28ff" for c in "".join(frame)), "no curve"
    assert len(frame) == 24 and frame[-1] == "q quits; the run goes on", frame
    assert first.startswith(ENTER) and "\x1b[32mrunning" in first, first[:200]
    step = int(re.search(r"running: step (\d+)", frame[1])[1])
    screen.read_until(lambda text: any(
        int(found) > step for found in re.findall(r"running: step (\d+)", text)))
    screen.resize(40, 12)
    small = screen.read_until(lambda text: text.count("\x1b[J") >= 2)
    frame = last_frame(small)
    assert len(frame) == 12 and max(map(len, frame)) <= 40, frame
    os.write(screen.master, b"q")
    code = screen.end()
    assert code == 0 and screen.text.count(LEAVE) == 1, (code, screen.text[-200:])
    # Signals end it as they end other programs, after the terminal is restored.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        screen = Terminal([binary, "watch", str(run)], 80, 24, NO_COLOR="1", LC_ALL="C")
        screen.read_until(lambda text: "q quits" in text)
        os.kill(screen.process, number)
        assert screen.end() == -number, number
        assert screen.modes_after == screen.modes_before, number
        assert screen.text.endswith("\x1b[?7h\x1b[?25h" + LEAVE), screen.text[-100:]
        assert "\x1b[32m" not in screen.text and "*" in screen.text and screen.text.isascii()
    plain = subprocess.run([binary, "watch", run], capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    assert plain.returncode == 0 and "\x1b" not in plain.stdout, plain
    assert "watched  " in plain.stdout and "\nsaved     step " in plain.stdout, plain.stdout
    for command, environment in ((["watch", str(run)], {"TERM": "dumb"}), (["watch", str(run), "--once"], {})):
        once = Terminal([binary, *command], 80, 24, **environment)
        assert once.end() == 0 and "\x1b" not in once.text, once.text
        assert "\nsaved     step " in once.text, once.text


def get(port, path="/metrics", method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return answer.headers, answer.read().decode()


def serves(binary, config, run, port):
    """The page has the newest step, whatever other clients do; a port in use ends a second run."""
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    headers, page = get(port)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", headers
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
    assert f'lockstep_info{{name="watched",run_dir="{run}",version="0.1.0"}}' in values, page
    assert values["lockstep_ranks"] == "2" and values["lockstep_starts_total"] == "1", page
    assert values["lockstep_last_step"] == "100000000" and float(values["lockstep_loss"]) > 0, page
    step, time_s = float(values["lockstep_step"]), float(values["lockstep_last_step_time_seconds"])
    assert step > 0 and abs(time_s - time.time()) < 30, page
    assert values["lockstep_samples_total"] == str(int(64 * step)), page
    end = time.monotonic() + LIMIT_S
    while "\nlockstep_checkpoint_step " not in page:
        assert time.monotonic() < end, page
        page = get(port)[1]
    assert get(port, method="HEAD")[1] == ""
    try:
        assert not get(port, "/")
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
    for client in silent:
        client.close()
    for field, value in (("port", port), ("address", "not-an-address")):
        changes = lockstep_run.sets(f"output.prometheus_port={port}", f"output.prometheus_{field}={value}")
        done = lockstep_run.run(binary, ["train", config, "--run-dir", run.parent / "refused", *changes], 0)
        assert done.returncode == 2 and not (run.parent / "refused").exists(), done
        assert f"output.prometheus_port: value is {port}, at output.prometheus_address" in done.stderr


def passes_on(sidecar, run, folder, *arguments, **known):
    """What a sidecar gives to its package, until the run has ended."""
    (folder / "mlflow").mkdir(exist_ok=True)
    for name, text in (("wandb.py", WANDB), ("mlflow/__init__.py", ""), ("mlflow/tracking.py", MLFLOW),
                       ("mlflow/entities.py", ENTITIES)):
        (folder / name).write_text(text)
    calls = folder / "calls"
    calls.unlink(missing_ok=True)
    subprocess.run([sys.executable, SIDECARS / f"{sidecar}_sidecar.py", run, *arguments], check=True,
                   timeout=LIMIT_S,
                   env=dict(os.environ, PYTHONPATH=str(folder), CALLS=str(calls), **known))
    return [json.loads(line) for line in calls.read_text().splitlines()]


def passes_on_to_both(binary, config, run, folder, port):
    """All steps once, also by a sidecar that was started again after a resume."""
    lockstep_run.train(binary, config, run, 0, ["--max-steps", 20])
    lines = lockstep_run.metrics(run)
    times = [line["time"] for line in lines]
    assert times == sorted(times) and abs(times[-1] - time.time()) < LIMIT_S, times
    begin, *logs, finish = passes_on("wandb", run, folder, "--project", "p")
    assert begin[1]["project"] == "p" and begin[1]["config"]["schedule.lr"] == 0.001, begin
    assert [(step, values["loss"]) for _, step, values in logs] == [
        (line["step"], line["loss"]) for line in lines], logs
    assert finish[:2] == ["finish", 0] and finish[2]["end/ended"] == "max steps", finish
    client, create, params, log, *tags, end = passes_on("mlflow", run, folder, "--tracking-uri", "u")
    assert client[1] == "u" and create[2:] == [{"lockstep.run_dir": str(run)}, run.name], create
    assert ["schedule.lr", "0.001"] in params[3] and not params[2], params
    losses = [metric[1:] for metric in log[2] if metric[0] == "loss"]
    assert losses == [[line["loss"], int(1000 * line["time"]), line["step"]] for line in lines], losses
    assert ["tag", "end.ended", "max steps"] in tags and end == ["end", "r1", "FINISHED"], (tags, end)
    # The port does not matter for a resumed run.
    lockstep_run.train(binary, config, run, 0,
                       ["--max-steps", 25, "--resume", "auto", "--set", f"output.prometheus_port={port}"])
    begin_again, *logs, _ = passes_on("wandb", run, folder, KNOWN="21")
    assert begin_again[1]["id"] == begin[1]["id"], (begin, begin_again)
    assert [log[1] for log in logs] == list(range(21, 26)), logs
    _, update, log, *_ = passes_on("mlflow", run, folder, KNOWN="20")
    assert update == ["update", "r1", "RUNNING"], update
    assert {metric[3] for metric in log[2]} == set(range(21, 26)), log


def follows(run):
    """Steps that a resumed run computes again come once."""
    sys.path.insert(0, str(SIDECARS))
    import follow_run
    run.mkdir()
    metrics = run / "metrics.jsonl"

    def lines(first, last, when):
        return "".join(f'{{"step": {i}, "time": {when + i}}}\n' for i in range(first, last + 1))

    metrics.write_text(lines(1, 5, 0) + '{"step": 6, "ti')
    follower = follow_run.follow(run, pause_s=0.01)
    assert [record["step"] for record in next(follower)] == [1, 2, 3, 4, 5]
    metrics.write_text(lines(1, 3, 0) + lines(4, 8, 100))  # resumed at 3, and longer than before
    assert [record["step"] for record in next(follower)] == [6, 7, 8]
    metrics.write_text(lines(1, 3, 0))
    (run / "end.json").write_text("{}")
    assert list(follower) == []
    config = 'name: "a"\nmodel {\n  mlp {\n    hidden: 16\n    hidden: 8\n    activation: RELU\n  }\n}\n'
    (run / "config.textproto").write_text(config)
    assert follow_run.config_of(run) == {
        "name": "a", "model": "mlp", "model.mlp.hidden": [16, 8], "model.mlp.activation": "RELU"}


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        follows(folder / "followed")
        config, run = folder / "c.textproto", folder / "run"
        config.write_text(CONFIG)
        missing = lockstep_run.run(binary, ["watch", run], 0)
        assert missing.returncode == 4 and "does not exist; --wait waits for it" in missing.stderr, missing
        port = lockstep_run.free_port()
        launched = Terminal([binary, "launch", "-n", "2", "--", "train", str(config), "--run-dir", str(run),
                             "--set", f"output.prometheus_port={port}"], 90, 24)
        shown = launched.read_until(lambda text: text.count("\r\x1b[K") > 5)
        line = re.findall(r"\r\x1b\[K([^\r\n]*%[^\r\n]*)", shown)[-2]
        assert "/100000000  loss " in line and 60 < len(line) < 90, line
        assert not re.search(r"\nstep \d+/", shown), "progress as lines on a terminal"
        serves(binary, config, run, port)
        watches(binary, run)
        os.kill(launched.process, signal.SIGTERM)
        assert launched.end() == 75, launched.text[-2000:]
        assert re.search(r"ETA [^\r\n]*\r\n", launched.text), launched.text[-2000:]
        done = subprocess.run([binary, "watch", run], capture_output=True, text=True)
        assert "\nnot done: step " in done.stdout and "stopped on request" in done.stdout, done.stdout
        end = json.loads((run / "end.json").read_text())
        start = json.loads((run / "environment.json").read_text())["start_time"]
        assert start == end["start_time"] < end["end_time"], (start, end)

        passes_on_to_both(binary, config, folder / "short", folder, port)
    print("watch: as it should be")


if __name__ == "__main__":
    main()
