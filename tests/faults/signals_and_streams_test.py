#!/usr/bin/env python3
"""Catches: a signal or a closed stream that ends a run without a checkpoint, and log lines that
land in a file of the run because a standard stream was closed.

signals_and_streams_test.py BINARY
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

import lockstep_run
from faulty_run import CHECKPOINT, PREEMPTED, Trial, end_of, error_lines, start


class Test(Trial):
    def hang_up(self):
        run_dir = self.folder / "hang_up"
        process = start(self.binary, self.endless, run_dir)
        lockstep_run.wait_for_steps(run_dir, [process])
        process.send_signal(signal.SIGHUP)
        code, output = end_of(process)
        assert code == PREEMPTED and "stopped on request" in output, f"{code}\n{output}"
        assert list((run_dir / "checkpoints").glob("step-*")), output

    def no_hang_up(self):
        """nohup's promise holds."""
        run_dir = self.folder / "nohup"
        process = start(self.binary, self.endless, run_dir,
                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        lockstep_run.wait_for_steps(run_dir, [process])
        process.send_signal(signal.SIGHUP)
        try:
            process.wait(timeout=1)
            raise AssertionError("it ended")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
        assert end_of(process)[0] == PREEMPTED

    def closed_streams(self):
        for closed in ((0,), (1, 2), (0, 1, 2)):
            run_dir = self.folder / ("closed" + "".join(map(str, closed)))
            process = start(self.binary, self.short, run_dir, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL,
                            preexec_fn=lambda: [os.close(fd) for fd in closed])
            assert process.wait(timeout=60) == 0
            lines = (run_dir / "metrics.jsonl").read_text().splitlines()
            assert [json.loads(line)["step"] for line in lines] == list(range(1, 61)), lines
            assert "parameters" in (run_dir / "log.txt").read_text()

    def file_size_limit(self):
        run_dir = self.folder / "file_size"
        limit = 24 << 10  # less than the weights take, more than the log
        process = start(self.binary, self.short, run_dir, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)))
        code, output = end_of(process)
        lines = error_lines(output)
        assert code == CHECKPOINT and len(lines) == 1, f"{code}\n{output}"
        assert "File too large" in lines[0], output
        left = list(run_dir.glob("**/*.tmp"))
        assert not left, left
        print(lines[0])


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-streams-") as folder:
        test = Test(binary, pathlib.Path(folder), short_steps=60)
        test.hang_up()
        test.no_hang_up()
        test.closed_streams()
        test.file_size_limit()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
