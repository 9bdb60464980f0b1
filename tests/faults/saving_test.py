#!/usr/bin/env python3
"""Catches: a checkpoint that is torn by a death or a fault at any of its operations, in the
foreground or while the run goes on; ranks that end differently where one cannot save, or a run that
ends although it is to go on; a slow disk that is taken for a stuck rank; a run that goes beyond its
time.

saving_test.py BINARY LIBRARY: LIBRARY, preloaded, makes system calls fail.
"""
import errno
import functools
import itertools
import json
import pathlib
import signal
import sys
import tempfile
import time

import lockstep_run
from faulty_run import CHECKPOINT, CONFIG, ENDLESS, PREEMPTED, end_of, error_lines, start
from rendezvous_test import Ranks, by_file

SMALL = """
model { mlp { hidden: [8] dropout: 0.1 } }
data { synthetic { samples: 500 features: 10 classes: 3 } }
train { global_batch: 32 lanes: 4 steps: STEPS log_every: 1000000 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.01 }
execution { threads: 1 }
output { tensorboard: false }
"""
OPERATIONS = [("write", errno.ENOSPC), ("write", errno.EIO), ("write", errno.EDQUOT),
              ("write", "short"), ("write", errno.EINTR), ("open", errno.EIO),
              ("open", errno.EDQUOT), ("fsync", errno.EIO), ("fsync", errno.ENOSPC),
              ("fsync", errno.EINTR), ("fsync", "slow300")]
OPERATIONS_OF_RANK_0 = [("mkdir", errno.ENOSPC), ("rename", errno.EIO), ("rename", errno.EINTR)]
HARMLESS = (errno.EINTR, "short", "slow300")


class Test:
    def __init__(self, binary, library, folder):
        self.binary, self.library, self.folder = binary, library, folder
        self.runs = itertools.count()
        self.config = self.write("config", CONFIG.replace("STEPS", "60"), "every: 20")
        self.small = self.write("small", SMALL.replace("STEPS", "40"), "every: 20 keep_last: 1")
        self.endless = self.write("endless", ENDLESS, "every: 20")

    def write(self, name, text, checkpoint):
        path = self.folder / f"{name}.textproto"
        path.write_text(f"{text}checkpoint {{ {checkpoint} }}\n")
        return path

    def failing(self, *rules):
        return {"LD_PRELOAD": self.library, "FAILING_CALLS": " ".join(rules)}

    def whole(self, config, *arguments):
        """The hash of a run that nothing disturbs."""
        run_dir = self.folder / f"whole-{next(self.runs)}"
        code, output = end_of(start(self.binary, config, run_dir,
                                    arguments=[*arguments, "--json", f"{run_dir}.json"]))
        assert code == 0, output
        return json.loads(pathlib.Path(f"{run_dir}.json").read_text())["weights_hash"]

    def resumed(self, config, run_dir, what, *arguments):
        """The hash with which the run ends when it goes on."""
        code, output = end_of(start(
            self.binary, config, run_dir,
            arguments=["--resume", "auto", "--json", run_dir / "result", *arguments]))
        assert code == 0, f"{what}: {code}\n{output}"
        left = [path.name for path in (run_dir / "checkpoints").iterdir() if ".tmp" in path.name]
        assert not left, f"{what}: {left}"
        return json.loads((run_dir / "result").read_text())["weights_hash"]

    def killed_at_every_operation(self, mode):
        """Dies before the 1st, 2nd, ... change of a file of a checkpoint, until it does not."""
        expected = self.whole(self.small)
        deaths, code = 0, -signal.SIGKILL
        while code == -signal.SIGKILL:
            deaths += 1
            run_dir = self.folder / f"killed-{mode}-{deaths}"
            code, output = end_of(start(
                self.binary, self.small, run_dir, arguments=["--set", f"checkpoint.async={mode}"],
                variables=self.failing(f"change:kill:={deaths}:/checkpoints")))
            assert code in (0, -signal.SIGKILL), f"{deaths}: {code}\n{output}"
            got = self.resumed(self.small, run_dir, f"death {deaths}, async {mode}")
            assert got == expected, f"death {deaths}, async {mode}: {got}, not {expected}"
        assert deaths > 40, deaths
        print(f"async {mode}: killed at each of {deaths - 1} operations")

    def fails_at_an_operation(self, expected, rank, call, fault, mode, policy):
        """The second of three checkpoints fails on one of two ranks."""
        what = f"{call} {fault} on rank {rank}, async {mode}, {policy}"
        run_dir = self.folder / f"fails-{rank}-{call}-{fault}-{mode}-{policy}"
        every = 2 if fault == errno.EINTR else 1  # the call that is made again succeeds
        part = "step-00000040.tmp" + ("" if call in ("mkdir", "rename") else "/")
        rule = f"{call}:{fault}:{every}:{part}"
        results = self.two_ranks(self.config, run_dir, rank, rule,
                                 "--set", f"checkpoint.async={mode}",
                                 "--set", f"checkpoint.on_failure={policy}",
                                 "--json", f"{run_dir}.json")
        self.check_end(what, results, run_dir, fault, policy)
        assert self.resumed(self.config, run_dir, what) == expected, what

    def every_fault(self):
        """What tries each of them."""
        cases = [(rank, *operation) for rank in (0, 1) for operation in OPERATIONS]
        cases += [(0, *operation) for operation in OPERATIONS_OF_RANK_0]
        expected = self.whole(self.config)
        return [functools.partial(self.fails_at_an_operation, expected, *case, *how) for case in cases
                for how in (("true", "STOP"), ("true", "CONTINUE"), ("false", "CONTINUE"))]

    def two_ranks(self, config, run_dir, rank, rule, *arguments, **variables):
        environments = by_file(2, self.folder / f"{run_dir.name}.meeting", **variables)
        environments[rank].update(self.failing(rule))
        return Ranks(self.binary, config, run_dir, environments, arguments).finish()

    def check_end(self, what, results, run_dir, fault, policy):
        codes = [code for code, _ in results]
        outputs = "\n".join(output for _, output in results)
        names = sorted(p.name for p in (run_dir / "checkpoints").iterdir() if p.is_dir())
        if fault in HARMLESS:
            assert codes == [0, 0], f"{what}: {codes}\n{outputs}"
            assert names == ["step-00000040", "step-00000060"], f"{what}: {names}"
        elif policy == "STOP":
            assert codes == [CHECKPOINT] * 2, f"{what}: {codes}\n{outputs}"
            assert len(error_lines(outputs)) == 1, f"{what}: {outputs}"
            assert names == ["step-00000020"], f"{what}: {names}"
        else:
            assert codes == [0, 0], f"{what}: {codes}\n{outputs}"
            assert "could not be written; the run continues" in outputs, f"{what}: {outputs}"
            assert names == ["step-00000020", "step-00000060"], f"{what}: {names}"
            result = json.loads(pathlib.Path(f"{run_dir}.json").read_text())
            assert result["failed_checkpoints"] == 1, f"{what}: {result}"

    def failures_are_counted(self):
        run_dir = self.folder / "counted"
        code, output = end_of(start(
            self.binary, self.endless, run_dir,
            arguments=["--max-steps", 4000, "--set", "checkpoint.on_failure=CONTINUE",
                       "--set", "checkpoint.every=1000"],
            variables=self.failing(f"fsync:{errno.EIO}:1:step-00001000.tmp/model")))
        assert code == 0, output
        failed = [line.get("failed_checkpoints", 0) for line in lockstep_run.metrics(run_dir)]
        assert failed[999] == 0 and failed[-1] == 1, failed
        assert "Input/output error" in (run_dir / "log.txt").read_text()

    def slow_disk(self, mode):
        """Longer than peers may be silent: on one rank, over TCP."""
        results = self.two_ranks(
            self.config, self.folder / f"slow-{mode}", 1, "fsync:slow2500:1:step-00000040",
            "--set", f"checkpoint.async={mode}", "--set", "comm.timeout_s=1",
            LOCKSTEP_COMM_TIMEOUT_S="1")
        assert [code for code, _ in results] == [0, 0], results

    def too_slow_disk(self):
        results = self.two_ranks(
            self.config, self.folder / "too-slow", 1, "fsync:slow9000:1:step-00000040",
            "--set", "checkpoint.async=false", "--set", "comm.files_timeout_s=1",
            LOCKSTEP_COMM_TIMEOUT_S="1")
        assert [code for code, _ in results] == [6, 6], results

    def the_next_waits(self):
        """Checkpoints that are due faster than the disk takes them."""
        run_dir = self.folder / "next-waits"
        code, output = end_of(start(
            self.binary, self.config, run_dir, arguments=["--set", "checkpoint.every=10"],
            variables=self.failing("fsync:slow200:1:model.safetensors")))
        assert code == 0 and output.count("waiting for the previous checkpoint") == 1, output
        assert lockstep_run.metrics(run_dir)[-1]["weights_hash"] == self.whole(self.config)

    def in_the_background(self, run_dir):
        """An endless run whose second checkpoint is being written while it makes steps."""
        process = start(self.binary, self.endless, run_dir, arguments=["--set", "checkpoint.every=50"],
                        variables=self.failing("fsync:slow3000:1:step-00000100.tmp/model"))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            steps = lockstep_run.metrics(run_dir) if (run_dir / "metrics.jsonl").exists() else []
            unfinished = (run_dir / "checkpoints" / "step-00000100.tmp").exists()
            if unfinished and steps and steps[-1]["step"] > 110:
                return process
            time.sleep(0.02)
        process.kill()
        raise AssertionError(f"no step while a checkpoint was written\n{process.communicate()[0]}")

    def killed_in_the_background(self):
        run_dir = self.folder / "killed"
        process = self.in_the_background(run_dir)
        process.kill()
        end_of(process)
        names = [path.name for path in (run_dir / "checkpoints").iterdir()]
        assert sorted(names) == ["step-00000050", "step-00000100.tmp"], names
        got = self.resumed(self.endless, run_dir, "killed in the background", "--max-steps", 150)
        assert got == self.whole(self.endless, "--max-steps", 150), got

    def stopped_in_the_background(self):
        """What is being written is finished, then what the run has come to."""
        run_dir = self.folder / "stopped"
        process = self.in_the_background(run_dir)
        process.send_signal(signal.SIGTERM)
        code, output = end_of(process)
        assert code == PREEMPTED, f"{code}\n{output}"
        names = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
        assert len(names) == 2 and not any(".tmp" in name for name in names), names
        log = (run_dir / "log.txt").read_text()
        assert "step 100: checkpoint written" in log, log

    def by_the_clock(self):
        run_dir = self.folder / "clock"
        config = self.write("by-minutes", ENDLESS, "every_minutes: 0.005")
        process = start(self.binary, config, run_dir, arguments=["--walltime", "6s", "--set",
                                                                "checkpoint.walltime_margin_s=1"])
        began = time.monotonic()
        code, output = end_of(process)
        took = time.monotonic() - began
        assert code == PREEMPTED and took > 2, f"{code} after {took} s\n{output}"
        log = (run_dir / "log.txt").read_text()
        assert "of the run's time" in log and log.count("checkpoint written") > 5, log

    def before_slurms_end(self, ranks):
        run_dir = self.folder / f"slurm-{ranks}"
        end = int(time.time() + 12)
        code, output = end_of(start(self.binary, self.endless, run_dir, ranks=ranks,
                                    arguments=["--set", "checkpoint.walltime_margin_s=2"],
                                    variables={"SLURM_JOB_END_TIME": str(end)}))
        assert code == PREEMPTED, f"{code}\n{output}"
        saved = (run_dir / "checkpoints").stat().st_mtime
        assert end - 6 < saved < end, f"{end - saved} s before the end\n{output}"


def main(binary, library):
    with tempfile.TemporaryDirectory(prefix="lockstep-saving-") as folder:
        test = Test(binary, library, pathlib.Path(folder))
        by_mode = [functools.partial(part, mode) for mode in ("true", "false")
                   for part in (test.killed_at_every_operation, test.slow_disk)]
        by_ranks = [functools.partial(test.before_slurms_end, ranks)
                    for ranks in ((0, 2) if lockstep_run.have_mpirun() else (0,))]
        faults = test.every_fault()
        # Three at a time: disks that are slow and clocks let them wait.
        lockstep_run.at_once(
            [*by_mode, *by_ranks, test.by_the_clock, test.too_slow_disk, test.failures_are_counted,
             test.the_next_waits, test.killed_in_the_background, test.stopped_in_the_background,
             *faults], 3)
        print(f"{len(faults)} faults, as configured")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
