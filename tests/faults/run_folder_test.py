#!/usr/bin/env python3
"""Catches: two runs in one run folder, a requeued job that disturbs the one before, and a run whose
folder is removed, moved or replaced and that goes on, or ends with other codes on some ranks.

run_folder_test.py BINARY
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import time

import lockstep_run
from faulty_run import CHECKPOINT, PREEMPTED, Trial, end_of, error_lines, start
from rendezvous_test import Ranks, by_file


class Test(Trial):
    def one_writer(self):
        run_dir = self.folder / "one_writer"
        first = start(self.binary, self.endless, run_dir, variables={"SLURM_JOB_ID": "77"})
        lockstep_run.wait_for_steps(run_dir, [first])
        named = f"process {first.pid} on host {socket.gethostname()}, since 20"
        for ranks in (0, 2):
            code, output = end_of(start(self.binary, self.short, run_dir, ranks))
            lines = error_lines(output)
            assert code == CHECKPOINT, f"{ranks} ranks: exit code {code}\n{output}"
            assert len(lines) == 1 and named in lines[0] and "job 77" in lines[0], output
            print(lines[0])
        self.requeued(first, run_dir)
        assert not (run_dir / "writer.lock").exists()

    def requeued(self, first, run_dir):
        """The same job again waits until the one before has written its checkpoint and ended."""
        second = start(self.binary, self.endless, run_dir, arguments=["--resume", "auto"],
                       variables={"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"})
        time.sleep(1)
        assert second.poll() is None, end_of(second)
        first.send_signal(signal.SIGUSR1)
        code, output = end_of(first)
        assert code == PREEMPTED, output
        # Not from metrics.jsonl, to which the second may write by now.
        saved = int(re.search(r"stopped on request at step (\d+)", output)[1])
        deadline = time.monotonic() + 60
        while lockstep_run.metrics(run_dir)[-1]["step"] <= saved:
            assert second.poll() is None and time.monotonic() < deadline, "it does not go on"
            time.sleep(0.1)
        second.send_signal(signal.SIGUSR1)
        code, output = end_of(second)
        assert code == PREEMPTED and "waiting up to 60 s" in output, output
        assert f"at step {saved}" in output, output

    def killed_holder(self):
        run_dir = self.folder / "killed"
        first = start(self.binary, self.endless, run_dir)
        lockstep_run.wait_for_steps(run_dir, [first])
        (run_dir / "checkpoints" / "step-00000007.tmp-delete").mkdir(parents=True)
        first.kill()
        first.communicate()
        assert (run_dir / "writer.lock").exists()
        code, output = end_of(start(self.binary, self.short, run_dir))
        assert code == 0, output
        left = [path.name for path in (run_dir / "checkpoints").iterdir()]
        assert left == ["step-00000050"], left

    def readers(self):
        """Who only reads is not refused."""
        run_dir = self.folder / "readers"
        first = start(self.binary, self.short, run_dir)
        assert end_of(first)[0] == 0
        held = start(self.binary, self.endless, run_dir, arguments=["--resume", "auto"])
        time.sleep(1)
        done = lockstep_run.run(self.binary, ["inspect", run_dir], ranks=0)
        held.kill()
        held.communicate()
        assert done.returncode == 0, done.stderr

    def imports(self):
        """Weights are not imported into the folder of a run that trains."""
        weights, run_dir = self.folder / "weights.safetensors", self.folder / "readers"
        done = lockstep_run.run(self.binary, ["export", run_dir, "--out", weights], ranks=0)
        assert done.returncode == 0, done.stderr
        run_dir = self.folder / "imports"
        held = start(self.binary, self.endless, run_dir)
        lockstep_run.wait_for_steps(run_dir, [held])
        for out in (run_dir, run_dir / "checkpoints", f"{run_dir}/checkpoints/"):
            done = lockstep_run.run(self.binary, ["import", self.short, weights, "--out", out], ranks=0)
            assert done.returncode == CHECKPOINT, f"{done.returncode}: {done.stderr}"
            assert f"process {held.pid} on host" in done.stderr, done.stderr
        held.kill()
        held.communicate()
        done = lockstep_run.run(self.binary, ["import", self.short, weights, "--out",
                                              run_dir / "checkpoints"], ranks=0)
        assert done.returncode == 0, done.stderr

    def folder_gone(self):
        def moved(run_dir):
            run_dir.rename(run_dir.with_suffix(".moved"))

        def replaced(run_dir):
            moved(run_dir)
            run_dir.mkdir()
            (run_dir / "metrics.jsonl").write_text("another's\n")

        for change in (shutil.rmtree, moved, replaced):
            for ranks in (0, 2):
                run_dir = self.folder / f"{change.__name__}-{ranks}"
                process = start(self.binary, self.endless, run_dir, ranks)
                lockstep_run.wait_for_steps(run_dir, [process])
                self.check_gone(change, run_dir, [(process, end_of)])

    def folder_gone_over_tcp(self):
        run_dir = self.folder / "over-tcp"
        ranks = Ranks(self.binary, self.endless, run_dir, by_file(2, self.folder / "meeting"))
        lockstep_run.wait_for_steps(run_dir, [ranks.processes[0]])
        self.check_gone(shutil.rmtree, run_dir, [(process, end_of) for process in ranks.processes])

    def check_gone(self, change, run_dir, processes):
        change(run_dir)
        lines = []
        for process, end in processes:
            code, output = end(process)
            assert code == CHECKPOINT, f"{run_dir.name}: exit code {code}\n{output}"
            lines += error_lines(output)
        assert len(lines) == 1, lines
        assert f"run folder '{run_dir}' was removed, moved or" in lines[0], lines
        left = sorted(path.name for path in run_dir.iterdir()) if run_dir.exists() else []
        assert left in ([], ["metrics.jsonl"]), f"{run_dir.name}: written into it: {left}"
        print(f"{run_dir.name}: {lines[0]}")

    def checkpoint_stays_out(self):
        """A stop asks for a checkpoint: it must not come into a folder that another one made."""
        run_dir = self.folder / "stays_out"
        process = start(self.binary, self.endless, run_dir)
        lockstep_run.wait_for_steps(run_dir, [process])
        os.kill(process.pid, signal.SIGSTOP)
        run_dir.rename(self.folder / "stays_out.moved")
        run_dir.mkdir()
        os.kill(process.pid, signal.SIGUSR1)
        os.kill(process.pid, signal.SIGCONT)
        code, output = end_of(process)
        assert code == CHECKPOINT and not list(run_dir.iterdir()), output


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-run-folder-") as folder:
        test = Test(binary, pathlib.Path(folder), short_steps=50)
        test.one_writer()
        test.killed_holder()
        test.readers()
        test.imports()
        test.folder_gone()
        test.folder_gone_over_tcp()
        test.checkpoint_stays_out()
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(sys.argv[1]))
