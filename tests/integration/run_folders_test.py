#!/usr/bin/env python3
"""Catches: a run folder or a checkpoint as CONFIG that is another config, or another checkpoint, than its name
promises; a run that begins again, or elsewhere, where it should go on; a command that accepts no run folder.

run_folders_test.py BINARY
"""
import json
import pathlib
import shutil
import sys
import tempfile

from commands_test import Bench


def hash_of(bench, *arguments, ranks=0):
    """(weights_hash, output) of eval."""
    out = bench.folder / "result.json"
    done = bench.run("eval", *arguments, "--json", out, ranks=ranks)
    return json.loads(out.read_text())["weights_hash"], done.stdout + done.stderr


def explicit(bench, checkpoint):
    return hash_of(bench, bench.mlp, "--data", bench.folder, "--checkpoint", checkpoint)[0]


def weights(bench):
    """eval takes the checkpoint that CONFIG promises."""
    run, root = bench.folder / "mlp", bench.folder / "mlp/checkpoints"
    best, newest = (root / "best").read_text().strip(), sorted(root.glob("step-*"))[-1]
    for ranks in (0, 2):
        found, log = hash_of(bench, "mlp/", ranks=ranks)
        assert found == explicit(bench, root / "best") and f"{best}, the best of the run" in log, log
    assert hash_of(bench, root)[0] == explicit(bench, root / "best"), "checkpoints/ as CONFIG"
    assert hash_of(bench, run, "--checkpoint", newest)[0] == explicit(bench, newest), "--checkpoint"
    for checkpoint in sorted(root.glob("step-*")) + [root / "best"]:
        assert hash_of(bench, checkpoint)[0] == explicit(bench, checkpoint), f"{checkpoint} as CONFIG"
    shutil.copytree(run, bench.folder / "moved")
    (bench.folder / "moved/checkpoints/best").unlink()
    found, log = hash_of(bench, "moved")
    assert found == explicit(bench, newest) and f"{newest.name}, the newest of the run" in log, log


def runs_go_on(bench):
    """train continues in the folder, which has moved, and does not begin again."""
    moved = bench.folder / "moved"
    newest = sorted((moved / "checkpoints").glob("step-*"))[-1]
    done = bench.run("train", "moved", "--set", "train.steps=61")
    assert "its run continues there" in done.stderr, done.stderr
    assert "resuming from moved/checkpoints/" + newest.name in done.stderr, done.stderr
    assert (moved / "checkpoints/step-00000061").is_dir()
    bench.run("train", moved, "--resume", "none", code=4)
    bench.run("train", moved, "--run-dir", bench.folder / "again", "--max-steps", "1")
    first = (bench.folder / "again/metrics.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["step"] == 1, first
    assert "is a checkpoint" in bench.run("train", newest, code=2).stderr
    bench.run("launch", "-n", "2", "--", "train", moved, "--set", "train.steps=62")
    assert (moved / "checkpoints/step-00000062").is_dir()


def commands(bench):
    """Other commands take a run folder, and name what is wrong with one."""
    moved = bench.folder / "moved"
    newest = sorted((moved / "checkpoints").glob("step-*"))[-1]
    for command in (("plan", moved), ("data", "inspect", moved), ("config", moved, "--check"),
                    ("config", "--defaults", moved), ("plan", newest), ("data", "inspect", newest),
                    ("generate", "gpt", "--prompt", "a small", "--tokens", "3"),
                    ("predict", "mlp", "--data", bench.folder, "--out", bench.folder / "of_run.safetensors")):
        bench.run(*command)
    # Weights that import has written are no run that could go on.
    bench.run("export", moved, "--out", "weights.safetensors")
    bench.run("import", bench.mlp, "weights.safetensors", "--out", "imported")
    assert hash_of(bench, "imported", "--data", bench.folder)[0] == explicit(bench, newest), "import's folder as CONFIG"
    assert "is a checkpoint" in bench.run("train", "imported", code=2).stderr
    (moved / "checkpoints").rename(bench.folder / "elsewhere")
    assert "has no checkpoint yet" in bench.run("eval", moved, code=4).stderr
    assert "without config.textproto" in bench.run("eval", bench.folder, code=2).stderr


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-run-folders-") as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        bench.train(bench.mlp, "mlp", "--set", "checkpoint.keep_last=9")
        bench.train(bench.gpt, "gpt", "--max-steps", "4")
        for part in (weights, runs_go_on, commands):
            part(bench)
            print(part.__name__, "passed", flush=True)


if __name__ == "__main__":
    main()
