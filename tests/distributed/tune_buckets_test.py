#!/usr/bin/env python3
"""Catches: sizes of buckets that are tried on the run's own weights, data or place in it; a choice
that is not kept, that a resumed run makes anew, or that some ranks do not hear of; a trial that
leaves something behind; a request to stop meanwhile that is not heard.

tune_buckets_test.py BINARY: comm.tune_buckets in every ZeRO stage, over shared memory, MPI and TCP,
from MPI's launcher and without, stopped and resumed on other numbers of ranks.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import lockstep_run

CONFIG = """
    model { mlp { hidden: [512, 1024, 512] dropout: 0.1 } }
    data { table { train: "TABLE" target: "kind" eval_fraction: 0.2 } }
    train { global_batch: 16 lanes: 4 steps: 12 log_every: 1000000 }
    optimizer { adamw {} }
    schedule { kind: COSINE lr: 0.003 }
    eval { every: 6 }
    comm { bucket_mib: 25 }
    execution { threads: 1 }
    output { tensorboard: false }
"""
TUNED = ("--set", "comm.tune_buckets=true")


class Trial:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.config, self.number = (
            binary, folder, folder / "config.textproto", 0)
        rows = [f"{i % 7},{(i * 5) % 11},{(i % 7 + (i * 5) % 11) % 3}" for i in range(300)]
        (folder / "table.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
        self.config.write_text(CONFIG.replace("TABLE", str(folder / "table.csv")))

    def train(self, *arguments, ranks=2, run_dir=None, nodes=1, code=0):
        """The folder, the result where there is one, and what was said."""
        self.number += 1
        run_dir = run_dir or self.folder / f"run{self.number}"
        result = self.folder / f"result{self.number}.json"
        done = lockstep_run.run(
            self.binary, ["train", self.config, "--run-dir", run_dir, "--json", result, *arguments],
            ranks, nodes=nodes)
        text = done.stdout + done.stderr
        assert done.returncode == code, (
            f"{arguments}: exit code {done.returncode}, expected {code}\n{text}")
        return run_dir, json.loads(result.read_text()) if code == 0 else None, text


def record_of(run_dir):
    return json.loads((run_dir / "buckets.json").read_text())


def trials_leave_the_run_alone(trial):
    """The same weights and evaluation, wherever and however the trials run, and nothing else in the
    folder."""
    plain_dir, plain, _ = trial.train()
    wanted = (plain["weights_hash"], plain["eval_loss"])
    _, usual, _ = trial.train("--set", "comm.bucket_mib=0")
    assert (usual["exchange"]["bucket_mib"] == 0.7
            and usual["exchange"]["buckets"] > plain["exchange"]["buckets"]), usual
    assert (usual["weights_hash"], usual["eval_loss"]) == wanted, (usual, plain)
    _, usual, _ = trial.train("--set", "comm.bucket_mib=0", "--set", "comm.zero_stage=2")
    assert usual["exchange"]["bucket_mib"] == 25, usual
    for ranks, nodes, how in ((2, 1, []), (4, 2, []),
                              (2, 1, ["comm.shared_memory=false", "comm.zero_stage=0"]),
                              (2, 1, ["comm.zero_stage=0"]), (2, 1, ["comm.zero_stage=2"]),
                              (2, 1, ["comm.zero_stage=3"]),
                              (2, 1, ["comm.transport=TCP", "comm.shared_memory=false"]),
                              (2, 1, ["output.timeline=true"])):
        arguments = [word for setting in how for word in ("--set", setting)]
        run_dir, tuned, text = trial.train(*TUNED, *arguments, ranks=ranks, nodes=nodes)
        assert (tuned["weights_hash"], tuned["eval_loss"]) == wanted, (ranks, nodes, how, tuned,
                                                                       plain)
        assert tuned["step"] == 12 and len(lockstep_run.metrics(run_dir)) == 12, (how, tuned)
        record = record_of(run_dir)
        sizes = [tried["bucket_mib"] for tried in record["trials"]]
        assert sizes == [1, 4, 12] and record["ranks"] == ranks, record  # 4.2 MB of parameters
        assert ([tried["buckets"] for tried in record["trials"]]
                == sorted({tried["buckets"] for tried in record["trials"]}, reverse=True)), record
        fastest = min(record["trials"], key=lambda tried: tried["step_ms"])
        assert record["bucket_mib"] == fastest["bucket_mib"] == tuned["exchange"]["bucket_mib"], (
            record, tuned)
        assert tuned["exchange"]["buckets"] == fastest["buckets"], (record, tuned)
        told = (f"comm.bucket_mib is {record['bucket_mib']:g} from here on",
                "milliseconds a step with buckets of 1 MiB")
        assert all(text.count(line) == 1 for line in told), text
        assert all(line in (run_dir / "log.txt").read_text() for line in told), text
        left = {path.name for path in run_dir.iterdir()} - {"timeline.json"}
        assert left == {path.name for path in plain_dir.iterdir()} | {"buckets.json"}, left
        assert (
            f"bucket_mib: {record['bucket_mib']:g}\n"
            in (run_dir / "config.textproto").read_text()), record


def resumed_runs_keep_the_size(trial):
    """Whatever it is, on any number of ranks."""
    wanted = trial.train()[1]["weights_hash"]
    run_dir, _, _ = trial.train(*TUNED, "--max-steps", 4)
    record = dict(record_of(run_dir), bucket_mib=2.5)  # none that would be tried
    (run_dir / "buckets.json").write_text(json.dumps(record))
    for ranks, steps in ((2, 6), (4, 8), (1, 10), (2, -1)):
        _, resumed, text = trial.train(*TUNED, "--resume", "auto",
                                       *(["--max-steps", steps] if steps > 0 else []), ranks=ranks,
                                       run_dir=run_dir)
        assert "from here on" not in text and record_of(run_dir) == record, text
        if ranks == 1:
            assert "one rank exchanges nothing" in text, text
            continue
        assert "comm.bucket_mib is 2.5: recorded in" in text, text
        assert resumed["exchange"]["bucket_mib"] == 2.5, resumed
    assert resumed["weights_hash"] == wanted, (resumed, wanted)
    for command, words in ((["inspect", run_dir],
                            "comm.tune_buckets chose comm.bucket_mib 2.5 on 2 ranks"),
                           (["plan", trial.config, *TUNED, "--ranks", 2, "--run-dir", run_dir],
                            "comm.bucket_mib is 2.5, which"),
                           (["plan", trial.config, *TUNED, "--ranks", 2],
                            "will choose one of 1, 4, 12, 25, 50, 100")):
        done = lockstep_run.run(trial.binary, command, 0)
        assert done.returncode == 0 and words in done.stdout, done.stdout + done.stderr
    # What is no record, and a run that began without one.
    (run_dir / "buckets.json").write_text('{"bucket_mib": 2000, "ranks": 2, "trials": []}')
    _, _, text = trial.train(*TUNED, "--resume", "auto", run_dir=run_dir, code=4)
    assert "buckets.json: is not a record of comm.tune_buckets" in text, text
    done = lockstep_run.run(trial.binary,
                            ["inspect", str(next((run_dir / "checkpoints").glob("step-*"))) + "/"],
                            0)
    # The checkpoint itself is whole.
    assert done.returncode == 4 and done.stdout.count("PROBLEM") == 1, done.stdout
    _, _, text = trial.train(*TUNED, "--resume", "none", run_dir=run_dir, code=4)
    assert "already has checkpoints" in text and "buckets.json" not in text, text
    (run_dir / "buckets.json").unlink()
    _, resumed, text = trial.train(*TUNED, "--resume", "auto", run_dir=run_dir)
    assert "no other size on record" in text and resumed["exchange"]["bucket_mib"] == 25, text
    assert not (run_dir / "buckets.json").exists(), text


def stopped_meanwhile(trial):
    """The run ends with a checkpoint of its own, leaves no choice behind, and goes on to the same
    weights."""
    slow = ("--set", "train.steps=8", "--set", "eval.every=0")
    wanted = trial.train(*slow)[1]["weights_hash"]
    run_dir = trial.folder / "stopped"
    process = subprocess.Popen([*lockstep_run.mpirun(2), str(trial.binary), "train",
                                str(trial.config), "--run-dir", str(run_dir), *TUNED, *slow],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               stdin=subprocess.DEVNULL)
    try:
        text = ""
        while "comm.tune_buckets: trying" not in text:
            line = process.stdout.readline()
            assert line, text
            text += line
        process.send_signal(signal.SIGUSR1)
        text += process.communicate(timeout=lockstep_run.LIMIT_S)[0]
    finally:
        process.kill()
    assert process.returncode == 75 and "stopped before all sizes were tried" in text, (
        process.returncode, text)
    assert not (run_dir / "buckets.json").exists(), text
    _, resumed, text = trial.train(*TUNED, *slow, "--resume", "auto", run_dir=run_dir)
    assert resumed["weights_hash"] == wanted, (resumed, wanted, text)


def few_steps_and_one_rank(trial):
    run_dir, _, text = trial.train(*TUNED, "--set", "train.steps=1", "--set", "eval.every=0")
    assert len(record_of(run_dir)["trials"]) == 3, text
    run_dir = trial.folder / "of-another-run"
    run_dir.mkdir()
    (run_dir / "buckets.json").write_text(json.dumps({"bucket_mib": 7, "ranks": 2, "trials": []}))
    _, _, text = trial.train(*TUNED, ranks=0, run_dir=run_dir)
    assert "one rank exchanges nothing, comm.bucket_mib stays 25" in text, text
    assert not (run_dir / "buckets.json").exists(), text


def without_mpi(trial):
    """Ranks that find each other by a file."""
    wanted = trial.train()[1]["weights_hash"]
    run_dir = trial.folder / "without-mpi"
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("OMPI_", "PMI", "SLURM_"))}
    command = [str(trial.binary), "train", str(trial.config), "--run-dir", str(run_dir), *TUNED]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, stdin=subprocess.DEVNULL,
                                  env={**clean, "RANK": str(rank), "WORLD_SIZE": "2",
                                       "LOCKSTEP_RENDEZVOUS": f"file://{trial.folder}/meet"})
                 for rank in range(2)]
    try:
        texts = [process.communicate(timeout=lockstep_run.LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], texts
    assert f"weights_hash {wanted}" in texts[0] and len(record_of(run_dir)["trials"]) == 3, texts


def main():
    if not lockstep_run.have_mpirun():
        print("SKIP: there is no mpirun")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        trial = Trial(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(temporary))
        for check in (trials_leave_the_run_alone, resumed_runs_keep_the_size, stopped_meanwhile,
                      few_steps_and_one_rank, without_mpi):
            check(trial)
            print(f"ok    {check.__name__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
