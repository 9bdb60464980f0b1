#!/usr/bin/env python3
"""Catches: a run that an interrupted system call, a full disk under its metrics or a checkpoint
that cannot be removed ends, lines of metrics.jsonl that such a disk tears or loses, ranks that end
differently if rank 0 cannot write, and a run folder without a lock where the file system has
none.

failing_calls_test.py BINARY LIBRARY: LIBRARY, preloaded, makes system calls fail.
"""
import errno
import pathlib
import sys
import tempfile

import lockstep_run
from faulty_run import CHECKPOINT, CONFIG, ENDLESS, end_of, error_lines, start
from rendezvous_test import Ranks, by_file

CHECKPOINTS = 'checkpoint { every: 20 keep_last: 1 }\n'


class Test:
    def __init__(self, binary, library, folder):
        self.binary = binary
        self.library = library
        self.folder = folder
        self.endless = folder / "endless.textproto"
        self.endless.write_text(ENDLESS)
        self.short = folder / "short.textproto"
        self.short.write_text(CONFIG.replace("STEPS", "60") + CHECKPOINTS)

    def failing(self, *rules):
        return {"LD_PRELOAD": self.library, "FAILING_CALLS": " ".join(rules)}

    def train(self, name, *rules, config=None, arguments=()):
        run_dir = self.folder / name
        code, output = end_of(start(self.binary, config or self.short, run_dir,
                                    arguments=arguments, variables=self.failing(*rules)))
        return run_dir, code, output

    def interrupted(self):
        """Every second call of a kind is interrupted."""
        run_dir, code, output = self.train("whole")
        assert code == 0, output
        expected = lockstep_run.metrics(run_dir)[-1]["weights_hash"]
        rules = [f"{call}:{errno.EINTR}:2" for call in ("open", "read", "write", "fsync",
                                                        "rename", "unlinkat", "lock")]
        for rule in [*rules, " ".join(rules)]:
            run_dir, code, output = self.train("interrupted" + rule[:4] + str(len(rule)), rule)
            assert code == 0, f"{rule}: exit code {code}\n{output}"
            assert lockstep_run.metrics(run_dir)[-1]["weights_hash"] == expected, rule
            self.resumed(run_dir, rule)
            print(f"{rule}: {expected}")

    def resumed(self, run_dir, rule):
        process = start(self.binary, self.short, run_dir, variables=self.failing(rule),
                        arguments=["--resume", "auto"])
        code, output = end_of(process)
        assert code == 0 and "nothing left to do" in output, f"{rule}: {code}\n{output}"

    def old_checkpoint_stays(self):
        """What cannot be removed is told and left; the next start removes it."""
        rule = f"unlinkat:{errno.EBUSY}:1:model.safetensors"
        run_dir, code, output = self.train("stays", rule)
        assert code == 0 and "it is left in place" in output, f"{code}\n{output}"
        names = lambda: sorted(path.name for path in (run_dir / "checkpoints").iterdir())
        assert names() == ["step-00000020.tmp-delete", "step-00000040.tmp-delete",
                           "step-00000060"], names()
        self.resumed(run_dir, "")
        assert names() == ["step-00000060"], names()

    def without_locks(self):
        """The heartbeat keeps a second one out, too."""
        rules = f"lock:{errno.ENOLCK}:1"
        run_dir = self.folder / "without_locks"
        first = start(self.binary, self.endless, run_dir, variables=self.failing(rules))
        lockstep_run.wait_for_steps(run_dir, [first])
        code, output = end_of(start(self.binary, self.short, run_dir,
                                    variables=self.failing(rules)))
        first.kill()
        first.communicate()
        assert code == CHECKPOINT and f"process {first.pid} on host" in output, output
        assert "has no locks" in output, output

    def metrics_return(self):
        """The disk takes none of the files that a run can do without, and then all of them."""
        config = self.folder / "returns.textproto"
        config.write_text(CONFIG.replace("STEPS", "300").replace("tensorboard: false", "timeline: true")
                          + "checkpoint { every: 20 keep_last: 1 }\n")
        run_dir, code, output = self.train("room", config=config)
        assert code == 0, output
        expected = lockstep_run.metrics(run_dir)
        optional = ("metrics.jsonl", "tfevents", "config.textproto", "environment.json")
        for error in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE):
            rules = [f"write:{error}:1-2:{part}" for part in optional]
            rules += ["write:short:3:metrics.jsonl", f"open:{error}:=1:tfevents",
                      f"write:{error}:=1:end.json"]
            run_dir, code, output = self.train(f"full{error}", *rules, config=config)
            assert code == 0, f"{error}: {code}\n{output}"
            lines = lockstep_run.metrics(run_dir)
            assert [line["step"] for line in lines] == list(range(1, 301)), output
            assert lines[-1]["weights_hash"] == expected[-1]["weights_hash"]
            for name in ("config.textproto", "environment.json", "end.json", "timeline.json"):
                assert (run_dir / name).stat().st_size > 0, f"{error}: {name}\n{output}"
            warnings = [line for line in output.splitlines() if "metrics.jsonl" in line]
            assert [("cannot write" in line, "written again; nothing" in line)
                    for line in warnings] == [(True, False), (False, True)], output
            print(warnings[0])

    def metrics_lost(self):
        """A disk that stays full: the run ends well, and tells what its folder lacks."""
        rules = [f"write:{errno.ENOSPC}:1:{part}"
                 for part in ("metrics.jsonl", "environment.json", "timeline.json")]
        config = self.folder / "lost.textproto"
        config.write_text(CONFIG.replace("STEPS", "60").replace("tensorboard: false", "timeline: true"))
        run_dir, code, output = self.train("lost", *rules, config=config)
        assert code == 0 and "metrics.jsonl': 60 records are missing" in output, f"{code}\n{output}"
        assert "environment.json' is missing" in output, output
        assert "without a timeline" in output, output
        assert not (run_dir / "metrics.jsonl").read_text(), output

    def log_cannot_be_written(self):
        """What log.txt lacks is written once it can be, or is counted; it ends nothing."""
        warning = "log.txt': No space left on device; its lines are kept in memory"
        run_dir, code, output = self.train("log_once", f"write:{errno.ENOSPC}:=1:log.txt")
        log = (run_dir / "log.txt").read_text()
        assert code == 0 and output.count(warning) == 1, f"{code}\n{output}"
        assert "parameters" in log and "done at step 60 of 60" in log, log
        run_dir, code, output = self.train("no_log", f"write:{errno.ENOSPC}:1:log.txt")
        assert code == 0 and output.count(warning) == 1, f"{code}\n{output}"
        assert "lines are lost: No space left on device" in output, output
        assert "LOG ERROR" not in output and not (run_dir / "log.txt").read_text()
        run_dir, code, output = self.train("slow_log", "write:slow1000:1:log.txt")
        assert code == 0 and "weights_hash" in (run_dir / "log.txt").read_text(), output

    def one_code(self):
        """Rank 0 cannot write a checkpoint: no rank ends with another code, and one tells."""
        environments = by_file(2, self.folder / "meeting")
        environments[0].update(self.failing(f"write:{errno.ENOSPC}:1:state.textproto"))
        ranks = Ranks(self.binary, self.short, self.folder / "one_code", environments)
        lines = []
        for process in ranks.processes:
            code, output = end_of(process)
            assert code == CHECKPOINT, f"exit code {code}\n{output}"
            lines += error_lines(output)
        assert len(lines) == 1 and "No space left on device" in lines[0], lines
        print(lines[0])


def main(binary, library):
    with tempfile.TemporaryDirectory(prefix="lockstep-failing-calls-") as folder:
        test = Test(binary, library, pathlib.Path(folder))
        test.interrupted()
        test.old_checkpoint_stays()
        test.without_locks()
        test.metrics_return()
        test.metrics_lost()
        test.log_cannot_be_written()
        test.one_code()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
