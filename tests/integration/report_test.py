#!/usr/bin/env python3
"""Catches: a page of `lockstep report` that is not well-formed, loads something, or lacks a part;
one that cannot be made of a run that goes on, was killed, or has old or damaged records; two runs
whose differences are not named; a peak that is lost in a long run, and a page that grows with it.

report_test.py BINARY
"""
import json
import pathlib
import re
import sys
import tempfile

import lockstep_run
import report_page

CONFIG = """
name: "reported"
model { mlp { hidden: [16, 8] } }
data { table { train: "train.csv" eval: "train.csv" target: "label" } }
train { global_batch: 16 lanes: 4 steps: 60 log_every: 1000000 }
optimizer { adamw {} }
schedule { lr: 0.01 }
eval { every: 20 best: ACCURACY }
checkpoint { every: 20 }
output { tensorboard: false timeline: true }
"""


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        rows = (f"{i % 7},{i % 5},{'even' if i % 2 == 0 else 'odd'}" for i in range(200))
        (folder / "train.csv").write_text("size,weight,label\n" + "\n".join(rows) + "\n")
        self.config = folder / "config.textproto"
        self.config.write_text(CONFIG)
        ranks = 2 if lockstep_run.have_mpirun() else 0
        self.run = folder / "first"
        lockstep_run.train(binary, self.config, self.run, ranks, ["--data", folder])
        self.lines = (self.run / "metrics.jsonl").read_text().splitlines(keepends=True)

    def report(self, *arguments, code=0):
        done = lockstep_run.run(self.binary, ["report", *arguments], 0, cwd=self.folder)
        assert done.returncode == code, (arguments, done.returncode, done.stderr)
        return done

    def killed(self, name, lines):
        """A folder with nothing but these metrics."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(lines))
        return folder


def holds(text, *parts):
    for part in parts:
        assert part in text, f"'{part}' is not in the page"


def of_a_run(bench):
    page = bench.run / "report.html"
    assert bench.report(bench.run).stdout == f"report {page}\n"
    text = report_page.check(page)
    holds(text, "done: step 60 of 60", "Evaluation: accuracy", "best checkpoint", "Learning rate",
          "Time of a step by phase", "How each rank spends its steps", "planned, rank 0",
          "peak memory of a rank", "No forecast was made", "The full config", "prefers-color-scheme")
    end = json.loads((bench.run / "end.json").read_text())
    assert end["peak_memory_bytes"] > 1 << 20, end
    environment = json.loads((bench.run / "environment.json").read_text())
    assert environment["planned_bytes"] == sum(environment["planned_memory"].values()) > 0, environment
    loss = json.loads(bench.lines[-1])["loss"]
    shown = re.search("loss at the last step</span><b>([^<]*)</b>", text).group(1)
    assert abs(float(shown) - loss) <= 1e-4 * loss, (shown, loss)
    seen = report_page.seen_by_a_browser(page)
    assert seen is None or seen.count("<svg ") == text.count("<svg ") > 5, seen


def of_a_killed_run(bench):
    """Without an evaluation, and with half a line at its end."""
    killed = bench.killed("killed <&>", [line for line in bench.lines[:30] if "eval_" not in line]
                          + [bench.lines[30][:25]])
    bench.report(killed)
    holds(report_page.check(killed / "report.html"), "killed &lt;&amp;&gt;",
          "stopped without an end: step 30;", "No evaluation is in metrics.jsonl",
          "environment.json is missing", "config.textproto is missing",
          "The plan of the memory is not recorded")


def of_two_runs(bench):
    other = bench.killed("other", [*bench.lines[:2], "damaged\n",
                                   bench.lines[2].replace('"loss": ', '"loss": 1')])
    same = "The same loss, bit for bit, up to step 2. The losses differ from step 3 on."
    bench.report(bench.run, "--against", other, "--out", bench.folder / "two.html")
    holds(report_page.check(bench.folder / "two.html"), same, "1 line that cannot be read",
          "Configs are not compared", "first: training", "other: training")
    config = (bench.run / "config.textproto").read_text()
    assert "lr: 0.01" in config, config
    (other / "config.textproto").write_text(config.replace("lr: 0.01", "lr: 0.25"))
    bench.report(bench.run, "--against", other, "--out", bench.folder / "two.html")
    text = report_page.check(bench.folder / "two.html")
    holds(text, "schedule.lr</td><td class=\"l\">0.01</td><td class=\"l\">0.25</td>")


def of_a_long_run(bench):
    """100,000 steps with one peak: the page stays small, and the peak is in it."""
    line = ('{{"step": {}, "loss": {}, "lr": 0.1, "grad_norm": 1, "step_ms": 2.5, '
            '"samples_per_s": 100}}\n')
    long = bench.killed("long", [line.format(step, 777 if step == 54321 else 1 + step % 10 / 10)
                                 for step in range(1, 100001)])
    bench.report(long)
    text = report_page.check(long / "report.html")
    assert len(text) < 500_000, len(text)
    holds(text, ">800</text>", "4 min 10 s")


def refuses(bench):
    empty = bench.killed("empty", [])
    for arguments, code, words in ((["never"], 4, "'never' is not a run folder"),
                                   ([bench.config], 4, "it is a file"),
                                   ([bench.folder], 4, "is not a run folder: it has no"),
                                   ([empty], 4, "has no step yet"),
                                   ([bench.run, "--against", "never"], 4, "'never'"),
                                   ([bench.run, "--out", "page.pdf"], 2, "must end with .html")):
        stderr = bench.report(*arguments, code=code).stderr
        assert words in stderr and stderr.count("\n") == 1, stderr


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-report-") as folder:
        bench = Bench(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(folder).resolve())
        for check in (of_a_run, of_a_killed_run, of_two_runs, of_a_long_run, refuses):
            check(bench)
            print(f"{check.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
