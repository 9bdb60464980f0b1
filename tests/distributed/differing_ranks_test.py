#!/usr/bin/env python3
"""Catches: ranks that train on although they were started with other configs, commands or data; an
error that does not name the field, both values and the ranks; a run that goes on from a checkpoint
of another one without a word.

differing_ranks_test.py BINARY: under mpirun over shared memory, MPI and TCP, and without MPI.
"""
import functools
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import lockstep_run

CONFIG = """
model { mlp { hidden: [8] outputs: 2 } }
data { table { train: "train.csv" eval: "eval.csv" target: "y" } dir: "FOLDER" }
train { global_batch: 8 lanes: 4 steps: 20 }
optimizer { sgd {} }
output { tensorboard: false }
"""
ROWS = 200

# What one rank is given, and what the error must say.
WORDS = (
    (["--set", "schedule.lr=0.5"], "schedule.lr is 0.001 on RANKS, 0.5 on rank 1"),
    (["--set", "seed=7"], "seed is 1 on RANKS, 7 on rank 1"),
    (["--set", "train.global_batch=16"], "train.global_batch is 8 on RANKS, 16 on rank 1"),
    (["--set", "model.mlp.activation=TANH"], "model.mlp.activation is RELU on RANKS, TANH"),
    (["--set", "model.mlp.dropout=0.5"], "model.mlp.dropout is 0 on RANKS, 0.5 on rank 1"),
    (["--set", "data.shuffle=false"], "data.shuffle is true on RANKS, false on rank 1"),
    (["--set", "comm.wire_dtype=BF16"], "comm.wire_dtype is FP32 on RANKS, BF16 on rank 1"),
    (["--set", "comm.order=FAST"], "comm.order is TREE on RANKS, FAST on rank 1"),
    (["--set", "optimizer.adamw={}"], "optimizer is sgd on RANKS, adamw on rank 1"),
    (["--set", "name=other"], 'name is "run" on RANKS, "other" on rank 1'),
    (["--max-steps", "5"], "--max-steps is not given on RANKS, 5 on rank 1"),
    (["--resume", "auto"], "--resume is not given on RANKS, auto on rank 1"),
)


def table(seed, rows=ROWS):
    lines = ["a,b,y"]
    for i in range(rows):
        a, b = (i * 37 + seed) % 101, (i * 53) % 89
        lines.append(f"{a},{b},{'yes' if a > b else 'no'}")
    return "\n".join(lines) + "\n"


class Trial:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.failures, self.numbers = binary, folder, 0, itertools.count()
        for name in ("data", "row", "cell"):
            (folder / name).mkdir()
            (folder / name / "train.csv").write_text(table(0))
            (folder / name / "eval.csv").write_text(table(5, 40))
        (folder / "row" / "train.csv").write_text(table(0, ROWS + 1))
        changed = table(0).splitlines()
        changed[100] = changed[100].replace(",", ".5,", 1)
        (folder / "cell" / "train.csv").write_text("\n".join(changed) + "\n")
        self.config = folder / "config.textproto"
        self.config.write_text(CONFIG.replace("FOLDER", str(folder / "data")))

    def check(self, good, what, output):
        print(f"{'ok    ' if good else 'FAILED'} {what}")
        if not good:
            self.failures += 1
            print(output)

    def command(self, run_dir, *arguments):
        return [str(self.binary), "train", str(self.config), "--run-dir", str(run_dir),
                *map(str, arguments)]

    def new_run_dir(self):
        return self.folder / f"run{next(self.numbers)}"

    def under_mpirun(self, run_dir, ranks, common, given):
        """`given` is what rank 1 is given beside `common`."""
        command = lockstep_run.mpirun(1)
        for rank in range(ranks):
            if rank > 0:
                command += [":", "-n", "1"]
            command += self.command(run_dir, *common, *(given if rank == 1 else []))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)
        return [done.returncode], done.stderr

    def without_mpi(self, run_dir, ranks, common, given):
        port = lockstep_run.free_port()
        clean = {key: value for key, value in os.environ.items()
                 if not key.startswith(("OMPI_", "PMI", "SLURM_"))}
        processes = [
            subprocess.Popen(self.command(run_dir, *common, *(given if rank == 1 else [])),
                             env={**clean, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                                  "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             stdin=subprocess.DEVNULL) for rank in range(ranks)]
        errors = "".join(process.communicate(timeout=60)[1] for process in processes)
        return [process.returncode for process in processes], errors

    def refused(self, how, ranks, common, given, words):
        run_dir = self.new_run_dir()
        codes, errors = how(run_dir, ranks, common, given)
        others = "rank 0" if ranks == 2 else "ranks 0, 2 and 3"
        lines = [line for line in errors.splitlines() if line.startswith("lockstep: error:")]
        good = (set(codes) == {2} and len(lines) == 1 and words.replace("RANKS", others) in lines[0]
                and not run_dir.exists())
        self.check(good, f"{how.__name__}, {ranks} ranks, {' '.join(common)}: "
                   f"{' '.join(map(str, given))} on rank 1", f"{codes}\n{errors}")


def every_transport(trial):
    cases = []
    for ranks, common in ((2, []), (4, ["--set", "comm.shared_memory=false"]),
                          (2, ["--set", "comm.transport=TCP"])):
        for given, words in WORDS[:4] if common else WORDS:
            cases.append((trial.under_mpirun, ranks, common, given, words))
        for data in ("row", "cell"):
            cases.append((trial.under_mpirun, ranks, common, ["--data", trial.folder / data],
                          "training"))
    for given, words in WORDS:
        cases.append((trial.without_mpi, 2, [], given, words))
    cases.append((trial.without_mpi, 4, [], ["--data", trial.folder / "cell"], "training"))
    lockstep_run.at_once([functools.partial(trial.refused, *case) for case in cases])


def what_may_differ(trial):
    """Threads, the folder of the data and what is said are a rank's own."""
    other = trial.folder / "same"
    other.mkdir()
    for name in ("train.csv", "eval.csv"):
        (other / name).write_text((trial.folder / "data" / name).read_text())
    codes, errors = trial.under_mpirun(
        trial.new_run_dir(), 2, [],
        ["--data", other, "--set", "execution.threads=2", "--log-level", "debug"])
    trial.check(codes == [0], "the same data in another folder, other threads: they train", errors)


def resumed(trial):
    """A run goes on from its own checkpoints, not from those of another one."""
    run_dir = trial.new_run_dir()

    def start(*arguments):
        return lockstep_run.run(trial.binary, ["train", trial.config, "--run-dir", run_dir,
                                               *arguments], ranks=0)

    def told(what, code, words, *arguments):
        done = start("--resume", "auto", "--max-steps", "10", *arguments)
        trial.check(done.returncode == code and re.search(words, done.stderr), what,
                    f"{done.returncode}\n{done.stdout}{done.stderr}")

    done = start("--max-steps", "5")
    assert done.returncode == 0, done.stderr
    for field, value, before in (("model.mlp.activation", "TANH", "RELU"),
                                 ("model.mlp.dropout", "0.5", "0"),
                                 ("comm.wire_dtype", "BF16", "FP32")):
        told(f"{field} decides the bits", 4,
             f"written with {field} {before}, the config has {value}.*--allow-change {field}",
             "--set", f"{field}={value}")
    told("another field is no leave", 4, "--allow-change model.mlp.activation", "--set",
         "model.mlp.activation=TANH", "--allow-change", "model.mlp.dropout")
    told("a name that is no field", 2, "lernrate", "--allow-change", "lernrate")
    told("other data are other samples", 4, "training data.*--allow-change data", "--data",
         trial.folder / "cell")
    told("what may change is told", 0,
         r"changed since: train\.steps from 20 to 30, schedule\.lr from 0\.001 to 0\.5",
         "--set", "schedule.lr=0.5", "--set", "train.steps=30")
    done = start("--resume", "auto", "--set", "model.mlp.activation=TANH", "--allow-change",
                 "model.mlp", "--set", "comm.zero_stage=2", "--set", "checkpoint.every=3")
    told_of = "changed since: model.mlp.activation from RELU to TANH"
    trial.check(done.returncode == 0 and told_of in done.stderr and "zero_stage" not in done.stderr,
                "with leave it goes on, and what changes no bit is not told", done.stderr)


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-differing-") as folder:
        trial = Trial(binary, pathlib.Path(folder))
        if lockstep_run.have_mpirun():
            every_transport(trial)
            what_may_differ(trial)
        else:
            print("skipped: no mpirun")
        resumed(trial)
        print(f"{trial.failures} failures")
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
