#!/usr/bin/env python3
"""Catches: a `lockstep scale` that does not end with a whole report, whose parts do not add up,
that runs another thing than it reports, that goes on where it must refuse, that leaves ranks behind
when it is ended, that loses what it has measured when a later run fails, or passes it for a whole
report, and that trips over what it left itself.

scale_test.py BINARY
"""
import csv
import html
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import hosts
import lockstep_run
import report_page

CONFIG = """
name: "tiny_scale"
model { mlp { hidden: [32] } }
data { synthetic { samples: 4096 features: 16 classes: 4 } }
train { global_batch: 32 lanes: 4 steps: 100000 }
optimizer { adamw {} }
schedule { lr: 0.01 }
"""
PARTS = {"exchange", "stragglers", "data_wait", "optimizer", "gaps", "compute"}


def check_parts(world):
    assert set(world["lost_parts_ms"]) == PARTS and set(world["step_parts_ms"]) == PARTS, world
    assert close(sum(world["step_parts_ms"].values()), world["step_ms"]), world
    assert close(sum(world["lost_parts_ms"].values()), world["lost_ms"]), world


def check_energy(trained, run_dir, report):
    """Energy, or why it cannot be read, stands in every place."""
    known = {"energy_total_joules", "joules_per_step", "energy_sources"} <= trained.keys()
    assert known or "energy_not_readable" in trained, trained
    end = json.loads((run_dir / "end.json").read_text())
    for name in (name for name in trained if "energy" in name or "joules" in name):
        assert end[name] == trained[name], (name, end, trained)
    last = lockstep_run.metrics(run_dir)[-1]
    assert known == ({"energy_joules", "joules_per_step", "energy_total_joules"} <= last.keys()), last
    log = (run_dir / "log.txt").read_text().splitlines()
    assert sum("energy" in line for line in log) == 1, log
    for name in ("energy_sources", "energy_not_readable"):
        assert report.get(name) == trained.get(name), (name, report, trained)
    assert all(("joules_per_step" in world) == known for world in report["worlds"]), report


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.config = folder / "tiny.textproto"
        self.config.write_text(CONFIG)
        mpirun = os.environ.get("MPIRUN")
        self.flags = ["--mpirun", mpirun] if mpirun else []

    def run(self, *arguments, code=0, ranks=0):
        flags = [] if "--mpirun" in arguments else self.flags
        done = lockstep_run.run(self.binary, ["scale", self.config, *flags, *arguments], ranks,
                                cwd=self.folder)
        assert done.returncode == code, (f"{arguments}: exit code {done.returncode}, expected "
                                         f"{code}\n{done.stdout}\n{done.stderr}")
        return done

    def refuses(self, expected, *arguments, code=2, ranks=0):
        """One line that says `expected`, and nothing has run."""
        done = self.run(*arguments, code=code, ranks=ranks)
        said = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
        assert len(said) == 1 and expected in said[0], f"{arguments}: {done.stderr}"
        assert " run 1/" not in done.stdout, done.stdout


def close(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1)


def measures(bench):
    """Both modes on 1 and 2 ranks: every file, figures that agree with each other, and the bits
    that are promised."""
    out = bench.folder / "both"
    done = bench.run("--ranks", "1,2", "--repeats", 1, "--steps", 20, "--out", out)
    report = json.loads((out / "scaling.json").read_text())
    assert (
        report["name"] == "tiny_scale" and report["device"] == "cpu"
        and report["order"] == "TREE"), report
    assert report["parameters"] == 16 * 32 + 32 + 32 * 4 + 4, report["parameters"]
    assert (report["zero_stage"], report["wire_dtype"], report["set"]) == ("AUTO", "FP32", []), report
    assert "incomplete" not in report and "incomplete" not in done.stdout, done.stdout
    assert "the steps that count took only" in report["caution"], report["caution"]
    assert report["caution"] in done.stdout, done.stdout
    worlds = {(world["mode"], world["ranks"]): world for world in report["worlds"]}
    assert set(worlds) == {("strong", 1), ("strong", 2), ("weak", 1), ("weak", 2)}, worlds.keys()
    for (mode, ranks), world in worlds.items():
        growth = ranks if mode == "weak" else 1
        assert world["global_batch"] == 32 * growth and world["lanes"] == 4 * growth, world
        base = worlds[mode, 1]
        check_parts(world)
        assert close(world["samples_per_s"], world["global_batch"] / world["step_ms"] * 1000), world
        efficiency = world["samples_per_s"] / (base["samples_per_s"] * ranks)
        assert close(world["efficiency"], efficiency), world
        assert (world["verdict"] and world["hosts"] == 1 and world["buckets"] == 1
                and world["host_sends_bytes"] == 0), world
    assert len(report["runs"]) == 4 and len(report["runs"][1]["rank_times"]) == 2, report["runs"]
    strong = {run["weights_hash"] for run in report["runs"] if run["mode"] == "strong"}
    assert len(strong) == 1, strong
    compared = {"mode": "strong", "checked": True, "equal": True}
    assert compared.items() <= report["weights"][0].items(), report["weights"]
    trained = lockstep_run.train(bench.binary, bench.config, bench.folder / "same", 0,
                                 ["--max-steps", 20])
    assert trained["weights_hash"] in strong, "scale trained something else than the config says"
    check_energy(trained, bench.folder / "same", report)
    rows = list(csv.DictReader((out / "scaling.csv").open()))
    assert ([(row["mode"], row["ranks"]) for row in rows]
            == [("strong", "1"), ("strong", "2"), ("weak", "1"), ("weak", "2")])
    assert close(float(rows[1]["lost_ms"]), worlds["strong", 2]["lost_ms"]), rows[1]
    text = (out / "scaling.md").read_text()
    assert text in done.stdout and "## Strong scaling" in text and "## Weak scaling" in text, (
        done.stdout)
    assert done.stdout.count(" run 1/1 ") == 4, done.stdout
    assert not list(out.glob("runs/*/checkpoints/*")), "checkpoints were written"
    draws(bench, out, report)


def draws(bench, out, report):
    """Pictures with hardware and date, their figures beside them, and one page of all."""
    for name in ("throughput", "efficiency", "lost_time"):
        text = report_page.check(out / f"{name}.svg")
        assert report["date"] in text and "ideal" in text, text
    rates = {(row["series"], row["x"]): row
             for row in csv.DictReader((out / "throughput.csv").open())}
    for world in report["worlds"]:
        row = rates[world["mode"], str(world["ranks"])]
        assert close(float(row["y"]), world["samples_per_s"]), (row, world)
        # The step is the sum of its parts, so its last bits differ from those of its only run.
        assert close(float(row["low"]), float(row["y"])), row
        assert close(float(row["high"]), float(row["y"])), row
        ideal = rates[f"ideal {world['mode']}", str(world["ranks"])]
        assert close(float(ideal["y"]), world["ideal_samples_per_s"]), (ideal, world)
    done = lockstep_run.run(bench.binary, ["report", out], 0, cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    text = report_page.check(out / "report.html")
    assert "Scaling of tiny_scale" in text and text.count("data:image/svg+xml;base64,") == 3, text
    for world in report["worlds"]:
        assert html.escape(world["verdict"]) in text, world


def marks_oversubscription(bench):
    """More threads than CPUs are measured all the same, and said to be so."""
    cpus = len(os.sched_getaffinity(0))
    done = bench.run("--ranks", "1,2", "--mode", "strong", "--repeats", 1, "--steps", 4, "--out",
                     bench.folder / "over", "--set", f"execution.threads={cpus}")
    report = json.loads((bench.folder / "over/scaling.json").read_text())
    assert report["threads"] == cpus and report["set"] == [f"execution.threads={cpus}"], report
    assert f"| --set | `execution.threads={cpus}` |" in done.stdout, done.stdout
    if cpus > 1:
        assert [world["oversubscribed"] for world in report["worlds"]] == [False, True], (
            report["worlds"])
        assert "more threads than CPUs: shows that it works, not how it scales" in done.stdout, (
            done.stdout)


def tells_of_other_work(bench):
    """Loops of another program on a quarter of the CPUs show in the report."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"])
             for _ in range(max(1, os.cpu_count() // 4))]
    try:
        done = bench.run("--ranks", "1,2", "--mode", "strong", "--repeats", 1, "--steps", 1000,
                         "--out", bench.folder / "other")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    report = json.loads((bench.folder / "other/scaling.json").read_text())
    for world in report["worlds"]:
        check_parts(world)
        if "Open MPI" in report["launcher"]:
            assert 0.1 < world["other_work_cpus"], world
            assert (
                "other work took" in world["verdict"] and "other work took" in report["caution"]), (
                    world, done.stdout)


def on_some_cpus(bench):
    """Under an affinity mask ranks are not bound to CPUs that it does not have."""
    if os.cpu_count() < 2 or not hasattr(os, "sched_setaffinity"):
        return
    everywhere = os.sched_getaffinity(0)
    last = max(everywhere)
    try:
        os.sched_setaffinity(0, {last})
        done = bench.run("--ranks", "1", "--mode", "strong", "--repeats", 1, "--steps", 20, "--out",
                         bench.folder / "some")
    finally:
        os.sched_setaffinity(0, everywhere)
    report = json.loads((bench.folder / "some/scaling.json").read_text())
    world, = report["worlds"]
    if "Open MPI" in report["launcher"]:
        assert world["binding"] == f"none: within 1 of the host's {os.cpu_count()} CPUs", (
            done.stdout)


def over_several_hosts(bench):
    """Hosts that are network namespaces, named by a hostfile: what they send is told. Left out
    where there are none."""
    missing = hosts.available()
    if missing:
        print(f"several hosts: left out, {missing}")
        return
    out = bench.folder / "hosts-out"
    with hosts.Hosts(2, "1gbit") as made:
        hostfile = bench.folder / "two-hosts"
        hostfile.write_text("".join(f"{hosts.NET}.{host + 1} slots=1\n" for host in range(2)))
        command = [*made.inside(0), bench.binary, "scale", bench.config, "--ranks", "1,2",
                   "--mode", "strong", "--repeats", 1, "--steps", 8, "--hostfile", hostfile,
                   "--mpirun", " ".join(made.mpirun_words()), "--out", out]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=300, cwd=bench.folder, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    report = json.loads((out / "scaling.json").read_text())
    assert [world["hosts"] for world in report["worlds"]] == [1, 2], report["worlds"]
    assert len(report["hosts"]) == 2, report["hosts"]
    assert report["worlds"][0]["host_sends_bytes"] == 0 < report["worlds"][1]["host_sends_bytes"], (
        report["worlds"])
    assert report["weights"][0]["checked"] and report["weights"][0]["equal"], report["weights"]
    for world in report["worlds"]:
        check_parts(world)


def refuses(bench):
    bench.refuses("increase", "--ranks", "2,1")
    bench.refuses("increase", "--ranks", "1,1")
    bench.refuses("--ranks", "--ranks", "0,1")
    bench.refuses("--ranks: value is ''", "--ranks", "")
    for wrong in ("1,x", "1,,2", "1,", "1, 2", "99999999999", "4097"):
        bench.refuses(f"--ranks: value is '{wrong}'; allowed: whole numbers from 1 to 4096",
                      "--ranks", wrong)
    bench.refuses("5 in strong scaling: train.lanes", "--ranks", "1,5")
    bench.refuses("numbers that share 4 lanes as 3 do", "--ranks", "3,4", "--mode", "weak")
    bench.refuses("--mode", "--ranks", "1,2", "--mode", "sideways")
    bench.refuses("--hostfile", "--ranks", "1,2", "--hostfile", "no-such-file")
    bench.refuses("--mpirun", "--ranks", "1,2", "--mpirun", "no-such-mpirun -x")
    bench.refuses("train.global_batch", "--ranks", "1,2", "--set", "train.global_batch=-1")
    (bench.folder / "hosts").write_text("localhost slots=2\n")
    bench.refuses("up to 2", "--ranks", "1,2,4", "--hostfile", "hosts")
    bench.refuses("alone", "--ranks", "1,2", ranks=2)


def notices_other_weights(bench):
    """A launcher that falsifies what two ranks have found: the report is written, says so, and the
    exit code is 7."""
    launcher = bench.folder / "falsify"
    command = lockstep_run.mpirun(1)
    real = shlex.join([command[0], *command[3:]])  # without -n 1
    launcher.write_text(f"""#!/bin/sh
        [ "$1" != --version ] || exec echo falsify
        {real} "$@" || exit
        for result; do :; done  # the last word
        [ "$2" != 2 ] ||
          sed -i 's/"weights_hash": "[^"]*"/"weights_hash": "00000000deadbeef"/' "$result"
    """)
    launcher.chmod(0o755)
    out = bench.folder / "falsified"
    done = bench.run("--ranks", "1,2", "--mode", "strong", "--repeats", 1, "--steps", 4, "--out",
                     out, "--mpirun", launcher, code=7)
    assert (
        "weights differ: strong 1-1 ends with" in done.stderr
        and "00000000deadbeef" in done.stderr), done.stderr
    report = json.loads((out / "scaling.json").read_text())
    assert report["launcher"] == "falsify" and report["weights"][0]["equal"] is False, (
        report["weights"])
    assert "weights differ" in (out / "scaling.md").read_text()


def says_why_a_run_failed(bench):
    """A run that fails ends all, with its own words and exit code. What was measured before it is
    reported, as incomplete."""
    blocked = bench.folder / "blocked/runs"
    blocked.mkdir(parents=True)
    out = blocked.parent
    (blocked / "strong-1-1").write_text("not a folder")
    (blocked / "strong-2-1").write_text("not a folder")
    (out / "scaling.md").write_text("of another day")
    arguments = ["--ranks", "1,2", "--repeats", 1, "--steps", 4, "--out", out]
    bench.run(*arguments, code=4)
    assert ([path.name for path in out.glob("scaling.*")] == ["scaling.md"]
            and (out / "scaling.md").read_text() == "of another day")
    (blocked / "strong-1-1").unlink()
    done = bench.run(*arguments, code=4)
    assert "strong run of 2 ranks failed with exit code 4" in done.stderr, done.stderr
    assert "strong-2-1" in done.stderr.split("exit code 4:")[1], done.stderr
    reason = is_incomplete(out)
    assert "strong run of 2 ranks failed with exit code 4" in reason, reason
    assert ("strong on 1 rank: 1, strong on 2 ranks: 0, weak on 1 rank: 0, weak on 2 ranks: 0"
            in reason), reason
    bench.run("--ranks", "1", "--mode", "strong", "--steps", 100000, "--limit", 1, "--out",
              bench.folder / "late", "--set", "model.mlp.hidden=2000,2000,2000", code=6)


def is_incomplete(out):
    """A report of one rank's strong run alone, which says that it is not the whole. Returns what it
    says."""
    report = json.loads((out / "scaling.json").read_text())
    assert ([(world["mode"], world["ranks"]) for world in report["worlds"]] == [("strong", 1)]
            and len(report["runs"]) == 1), report
    text = (out / "scaling.md").read_text()
    assert (text.startswith(
        f"# Scaling of tiny_scale (incomplete)\n\n**Incomplete**: {report['incomplete']}\n")), text
    row, = csv.DictReader((out / "scaling.csv").open())
    assert row["report"] == "incomplete", row
    assert "(incomplete)" in report_page.check(out / "throughput.svg")
    return report["incomplete"]


def ended_by_a_signal(bench):
    """TERM and INT end the ranks too; what was measured before is reported. The same command can be
    given again."""
    out = bench.folder / "signalled"
    arguments = ["--ranks", "1,2", "--mode", "strong", "--repeats", "1", "--steps", "400", "--out",
                 str(out), "--set", "model.mlp.hidden=500,500,500", "--set",
                 "train.global_batch=512"]
    for number, in_run in ((signal.SIGTERM, "strong-1-1"), (signal.SIGINT, "strong-2-1")):
        end_by(bench, number, arguments, out / "runs" / in_run)
        assert list((out / "runs" / in_run).glob("checkpoints/*")), (
            "no checkpoint: the ranks were not ended as they should be")
        if in_run == "strong-1-1":
            assert not list(out.glob("scaling.*")), "a report of nothing"
    assert is_incomplete(out).endswith("interrupted by SIGINT")
    bench.run(*arguments)
    assert "incomplete" not in (out / "scaling.md").read_text()


def end_by(bench, number, arguments, run_folder):
    """Starts the command and signals it while it trains in that folder."""
    command = [str(bench.binary), "scale", str(bench.config), *arguments, *bench.flags]
    shutil.rmtree(run_folder, ignore_errors=True)
    # A shell's background jobs ignore INT, and so would what they start.
    started = subprocess.Popen(command, cwd=bench.folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    mark = str(bench.folder / "tiny.textproto")

    def ranks():
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if mark in words and "train" in words:
                found.append(process.name)
        return found

    limit = time.time() + 60
    metrics = run_folder / "metrics.jsonl"
    while (not (metrics.exists() and metrics.stat().st_size) and time.time() < limit
           and started.poll() is None):
        time.sleep(0.02)
    assert ranks(), "no rank has started"
    started.send_signal(number)
    assert started.wait(60) == -number, started.returncode
    limit = time.time() + 30
    while ranks() and time.time() < limit:
        time.sleep(0.1)
    assert not ranks(), "ranks go on without the command that started them"


def main():
    if not lockstep_run.have_mpirun():
        print("no mpirun here: skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(folder).resolve())
        for check in (measures, marks_oversubscription, tells_of_other_work, on_some_cpus,
                      over_several_hosts, refuses, notices_other_weights, says_why_a_run_failed,
                      ended_by_a_signal):
            check(bench)
            print(f"{check.__name__}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
