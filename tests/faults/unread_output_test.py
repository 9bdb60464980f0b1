#!/usr/bin/env python3
"""Catches: work that stands still, a rank that stays dead or a signal that is lost because nobody reads
what is printed; a result that is lost while the exit code is 0; a pipe that other processes share and
that is non-blocking afterwards; a signal that was ignored at the start and ends the run all the same.

unread_output_test.py BINARY
"""
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import lockstep_run
from faulty_run import CHECKPOINT, LIMIT_S, PREEMPTED, Trial, end_of, start
from stuck_rank_test import processes_of

TALKATIVE = ["--set", "train.log_every=1"]
# Steps that take microseconds, each with a line of some 110 bytes.
QUICK = """
model { mlp { hidden: [4] } }
data { synthetic { samples: 64 features: 4 classes: 2 } }
train { global_batch: 4 lanes: 2 steps: 100000000 log_every: 1 }
optimizer { sgd {} }
schedule { lr: 0.001 }
execution { threads: 1 }
output { tensorboard: false }
"""
TEN_MEGABYTES = 95_000  # lines


class UnreadPipe:
    """A pipe that is full and that nobody reads, for the output of a process."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        other = os.open(f"/proc/self/fd/{self.writer}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            while True:
                os.write(other, b"." * 4096)
        except BlockingIOError:
            os.close(other)

    def text(self):
        """All that was written, once every process with the pipe has ended."""
        assert not fcntl.fcntl(self.writer, fcntl.F_GETFL) & os.O_NONBLOCK
        os.close(self.writer)
        with open(self.reader, errors="replace", encoding="utf-8") as file:
            return file.read().lstrip(".")


def ignoring(*numbers):
    return lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers]


def launch(binary, config, run_dir, ranks=2, arguments=(), options=(), **how):
    return subprocess.Popen(
        [str(binary), "launch", "-n", str(ranks), *options, "--", "train", str(config), "--run-dir",
         str(run_dir), *arguments], stdin=subprocess.DEVNULL, text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **how})


def ignored_signals(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            mask = int(line.split()[1], 16)
            return {number for number in range(1, 32) if mask >> (number - 1) & 1}
    return set()


def checkpoints(run_dir):
    return list((run_dir / "checkpoints").glob("step-*"))


def newest_step(run_dir):
    """In metrics.jsonl, which is written once a second."""
    with open(run_dir / "metrics.jsonl", "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().split(b"\n")[1:-1]
    return json.loads(lines[-1])["step"] if lines else 0


class Test(Trial):
    def __init__(self, binary, folder, short_steps):
        super().__init__(binary, folder, short_steps)
        self.quick = folder / "quick.textproto"
        self.quick.write_text(QUICK)

    def goes_on(self, run_dir, process):
        for _ in range(2):
            lockstep_run.wait_for_steps(run_dir, [process])

    def prints_ten_megabytes(self, run_dir, process):
        lockstep_run.wait_for_steps(run_dir, [process])
        began = time.monotonic()
        while newest_step(run_dir) < TEN_MEGABYTES:
            assert process.poll() is None and time.monotonic() - began < LIMIT_S
            time.sleep(0.05)

    def ignored(self):
        """What a shell or nohup has made the program ignore ends nothing; SIGUSR1 always counts."""
        numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
        for name, begin in (("train", start), ("launch", launch)):
            run_dir = self.folder / f"ignored_{name}"
            process = begin(self.binary, self.endless, run_dir, preexec_fn=ignoring(*numbers))
            lockstep_run.wait_for_steps(run_dir, [process])
            for number in numbers:
                process.send_signal(number)
            if name == "launch":
                for rank in processes_of(run_dir).values():
                    assert ignored_signals(rank) >= set(numbers), ignored_signals(rank)
                    os.kill(rank, signal.SIGINT)
            self.goes_on(run_dir, process)
            process.send_signal(signal.SIGUSR1)
            code, output = end_of(process)
            assert code == PREEMPTED and checkpoints(run_dir), f"{name}: {code}\n{output}"

    def heeded(self):
        """One alone is ignored: the others are not."""
        run_dir = self.folder / "heeded"
        process = launch(self.binary, self.endless, run_dir, preexec_fn=ignoring(signal.SIGHUP))
        lockstep_run.wait_for_steps(run_dir, [process])
        for rank in processes_of(run_dir).values():
            assert signal.SIGINT not in ignored_signals(rank)
        process.send_signal(signal.SIGINT)
        assert end_of(process)[0] == PREEMPTED

    def unread_train(self):
        run_dir = self.folder / "unread_train"
        pipe = UnreadPipe()
        process = start(self.binary, self.quick, run_dir, stdout=pipe.writer, stderr=pipe.writer)
        self.prints_ten_megabytes(run_dir, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == PREEMPTED, process.returncode
        log = (run_dir / "log.txt").read_text()
        assert checkpoints(run_dir) and "stopped on request" in log, log
        assert "cannot write to the standard output: 1 line is lost: nobody reads" in log, log
        lost = re.search(r"standard error stream: (\d+) lines are lost", log)
        assert lost and int(lost[1]) > TEN_MEGABYTES, log
        assert pipe.text() == ""

    def unread_launch(self):
        """Nobody reads: a killed rank comes back all the same, and SIGTERM reaches the ranks."""
        run_dir = self.folder / "unread_launch"
        pipe = UnreadPipe()
        process = launch(self.binary, self.quick, run_dir, ranks=1, stdout=pipe.writer,
                         stderr=pipe.writer, arguments=["--set", "checkpoint.every=20000"])
        self.prints_ten_megabytes(run_dir, process)
        first = processes_of(run_dir)[0]
        os.kill(first, signal.SIGKILL)
        began = time.monotonic()
        while processes_of(run_dir).get(0, first) == first:
            assert time.monotonic() - began < LIMIT_S and process.poll() is None
            time.sleep(0.05)
        self.goes_on(run_dir, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == PREEMPTED, process.returncode
        assert (run_dir / "starts" / "0001" / "start.json").exists()
        assert "stopped on request" in (run_dir / "log.txt").read_text()
        assert not processes_of(run_dir)
        assert pipe.text() == ""

    def stopped_terminal(self):
        """Ctrl-S, and no Ctrl-Q."""
        run_dir = self.folder / "stopped_terminal"
        master, slave = os.openpty()
        process = start(self.binary, self.endless, run_dir, stdout=slave, stderr=slave,
                        variables={"TERM": "xterm"})
        lockstep_run.wait_for_steps(run_dir, [process])
        assert b"\r" in os.read(master, 1 << 16)
        os.write(master, b"\x13")
        self.goes_on(run_dir, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == PREEMPTED and checkpoints(run_dir), process.returncode
        for terminal in (master, slave):
            os.close(terminal)

    def read_again(self):
        """What is read late comes in order, to the last line."""
        run_dir = self.folder / "read_again"
        pipe = UnreadPipe()
        process = start(self.binary, self.short, run_dir, arguments=TALKATIVE, stdout=pipe.writer,
                        stderr=pipe.writer)
        began = time.monotonic()
        while not (run_dir / "end.json").exists():
            assert process.poll() is None and time.monotonic() - began < LIMIT_S
            time.sleep(0.01)
        while b"weights_hash" not in os.read(pipe.reader, 1 << 20):
            pass
        assert process.wait(LIMIT_S) == 0, process.returncode

    def full(self):
        """A result that cannot be written is an error, a log that cannot is not."""
        with open("/dev/full", "w", encoding="utf-8") as full:
            for name, begin in (("train", start), ("launch", launch)):
                run_dir = self.folder / f"full_{name}"
                process = begin(self.binary, self.short, run_dir, stdout=full,
                                stderr=subprocess.PIPE)
                _, errors = process.communicate(timeout=LIMIT_S)
                assert process.returncode == CHECKPOINT, f"{process.returncode}\n{errors}"
                assert "error: cannot write to the standard output: " in errors, errors
                assert "No space left on device" in errors, errors
                process = begin(self.binary, self.short, self.folder / f"full_errors_{name}",
                                stdout=subprocess.PIPE, stderr=full)
                output, _ = process.communicate(timeout=LIMIT_S)
                assert process.returncode == 0 and "weights_hash" in output, output
            for arguments in (["plan", self.short], ["config"], ["train", "--help"],
                              ["--version"]):
                done = subprocess.run([self.binary, *map(str, arguments)], stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False)
                assert done.returncode == CHECKPOINT, f"{arguments}: {done.returncode}"
                assert "cannot write to the standard output" in done.stderr, done.stderr
            done = subprocess.run([self.binary, "plan", self.short, "--json", "-"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, check=False)
            assert done.returncode == CHECKPOINT, f"{done.returncode}\n{done.stderr}"
            assert "write 'the standard output': No space left on device" in done.stderr, done.stderr
            process = start(self.binary, self.endless, self.folder / "full_preempted", stdout=full,
                            stderr=subprocess.PIPE)
            lockstep_run.wait_for_steps(self.folder / "full_preempted", [process])
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=LIMIT_S)
            assert process.returncode == PREEMPTED, f"{process.returncode}\n{errors}"

    def non_blocking(self):
        """A parent has made its pipe non-blocking: what does not fit at once is not lost."""
        run_dir = self.folder / "non_blocking"
        assert end_of(start(self.binary, self.short, run_dir))[0] == 0
        for arguments in (["plan", self.short, "--host-memory", "8"], ["plan", self.short, "--json", "-"], ["config"],
                          ["inspect", run_dir], ["train", "--help"]):
            command = [self.binary, *map(str, arguments)]
            whole = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            pipe = UnreadPipe()
            os.set_blocking(pipe.writer, False)
            process = subprocess.Popen(command, stdout=pipe.writer, stderr=subprocess.DEVNULL)
            os.close(pipe.writer)
            try:
                process.wait(timeout=0.2)
                raise AssertionError(f"{arguments}: it ended, code {process.returncode}")
            except subprocess.TimeoutExpired:
                pass
            with open(pipe.reader, encoding="utf-8") as file:
                assert file.read().lstrip(".") == whole, arguments
            assert process.wait(LIMIT_S) == 0, f"{arguments}: {process.returncode}"

    def closed(self):
        """A result for a standard output that is closed is an error."""
        for arguments in (["plan", self.short, "--host-memory", "8"], ["plan", self.short, "--json", "-"], ["--help"],
                          ["train", self.short, "--run-dir", self.folder / "x", "--json", "-"]):
            done = subprocess.run([self.binary, *map(str, arguments)], stderr=subprocess.PIPE,
                                  text=True, preexec_fn=lambda: os.close(1), check=False)
            assert done.returncode == CHECKPOINT, f"{arguments}: {done.returncode}"
            assert "Bad file descriptor" in done.stderr, done.stderr

    def unread_json(self):
        """A training is over though nobody reads its result."""
        json_too = ["--json", "-"]
        for name, begin, how in (("train", start, {"arguments": json_too}),
                                 ("launch", launch, {"options": json_too})):
            pipe = UnreadPipe()
            run_dir = self.folder / f"unread_json_{name}"
            process = begin(self.binary, self.short, run_dir, stdout=pipe.writer,
                            stderr=subprocess.DEVNULL, **how)
            assert process.wait(LIMIT_S) == CHECKPOINT, f"{name}: {process.returncode}"
            assert (run_dir / "end.json").exists()
            assert pipe.text() == ""

    def json_alone(self):
        """--json - gives JSON and nothing else on the standard output."""
        for arguments in (["plan", self.short], ["config", "train.lanes"],
                          ["train", self.short, "--run-dir", self.folder / "json"]):
            done = subprocess.run([self.binary, *map(str, arguments), "--json", "-"],
                                  capture_output=True, text=True, check=False)
            assert done.returncode == 0 and json.loads(done.stdout), done
            assert done.stderr, "what the command prints for people"

    def readers_gone(self):
        """The work is done and its log has all, but the result has reached nobody."""
        read, write = os.pipe()
        os.close(read)
        for name, begin in (("train", start), ("launch", launch)):
            run_dir = self.folder / f"readers_gone_{name}"
            process = begin(self.binary, self.short, run_dir, stdout=write, stderr=write)
            assert process.wait(LIMIT_S) == CHECKPOINT, process.returncode
            assert "done at step 60 of 60" in (run_dir / "log.txt").read_text()
            process = begin(self.binary, self.short, self.folder / f"one_reader_gone_{name}",
                            stdout=subprocess.PIPE, stderr=write)
            assert end_of(process)[0] == 0
        done = subprocess.run([self.binary, "plan", str(self.short)], stdout=write,
                              stderr=subprocess.PIPE, preexec_fn=ignoring(signal.SIGPIPE),
                              check=False)
        assert done.returncode == CHECKPOINT and b"standard output" in done.stderr, done

    def log_is_a_link(self):
        run_dir = self.folder / "linked_log"
        run_dir.mkdir()
        elsewhere = self.folder / "elsewhere"
        (run_dir / "log.txt").symlink_to(elsewhere)
        code, output = end_of(start(self.binary, self.short, run_dir))
        assert code == CHECKPOINT, output
        assert "log.txt' is a link, and a run does not write through links; remove it" in output, output
        assert not elsewhere.exists()


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-unread-") as folder:
        test = Test(binary, pathlib.Path(folder), short_steps=60)
        for trial in (test.ignored, test.heeded, test.unread_train, test.unread_launch,
                      test.stopped_terminal, test.read_again, test.full, test.non_blocking,
                      test.closed, test.unread_json, test.json_alone,
                      test.readers_gone, test.log_is_a_link):
            began = time.monotonic()
            trial()
            print(f"{trial.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
