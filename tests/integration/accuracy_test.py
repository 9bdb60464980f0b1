#!/usr/bin/env python3
"""Catches: a network that runs but does not learn.

accuracy_test.py BINARY fashion_mnist|char_gpt|char_gpt_whole|adult: trains the example config on
real data, on two ranks, and checks the figure that a working implementation reaches. Skipped (exit
code 77) where the data is not on this machine.
"""
import pathlib
import sys
import tempfile

import lockstep_run

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
RANKS = 2


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def real_data(name):
    folder = lockstep_run.test_data()
    if folder is None or not (folder / name).is_dir():
        skip(f"no test data '{name}' (set LOCKSTEP_TEST_DATA)")
    return folder / name


def fashion_mnist(binary, folder):
    data = pathlib.Path("/usr/share/datasets/fashion-mnist")
    if not data.is_dir():
        skip("Debian package dataset-fashion-mnist is not installed")
    config = CONFIGS / "quickstart/fashion_mnist_mlp.textproto"
    arguments = ["--set", "train.epochs=4", "--set", "train.log_every=500"]
    first = lockstep_run.train(binary, config, folder / "a", RANKS, arguments)
    print("Fashion-MNIST:", first)
    again = lockstep_run.train(binary, config, folder / "b", 1, arguments)
    assert again["weights_hash"] == first["weights_hash"], (
        "a second run, on one rank, has other weights")
    assert first["eval_accuracy"] >= 0.88, first


def adult(binary, folder):
    data = real_data("adult")
    # The labels of the test file end in a full stop; both files are held together by the class
    # names of the first.
    arguments = ["--data", data, "--set", "data.table.train=adult-train.csv.gz", "--set",
                 "data.table.eval=adult-test.csv.gz", "--set", "data.table.eval_fraction=0",
                 "--set", "train.log_every=500"]
    result = lockstep_run.train(binary, CONFIGS / "models/adult_mlp.textproto", folder / "run",
                                RANKS, arguments)
    print("Adult:", result)
    assert result["eval_accuracy"] >= 0.84, result


def char_gpt(binary, folder, steps=250, most_loss=2.35, least_known=0.25):
    """A model that sees only the letter before cannot come below a loss of 2.48; after 250 steps
    this one has 2.26."""
    data = real_data("tinyshakespeare")
    config = CONFIGS / "models/char_gpt.textproto"
    arguments = ["--data", data, "--set", f"train.steps={steps}", "--set",
                 f"eval.every={steps // 2}", "--set", "train.log_every=250"]
    result = lockstep_run.train(binary, config, folder / "run", RANKS, arguments, limit_s=2400)
    print("Tiny Shakespeare:", result)
    assert result["eval_loss"] <= most_loss, result
    done = lockstep_run.run(binary,
                            ["generate", config, "--data", data, "--checkpoint", folder / "run",
                             "--prompt", "ROMEO:", "--tokens", 300, "--seed", 2], ranks=0)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    words = [w.strip(".,;:!?'").lower() for w in done.stdout.split()]
    vocabulary = set(w.strip(".,;:!?'").lower() for w in (data / "input.txt").read_text().split())
    known = sum(w in vocabulary for w in words) / len(words)
    print(f"{known:.0%} of the words it wrote are Shakespeare's")
    assert known >= least_known, known


def char_gpt_whole(binary, folder):
    char_gpt(binary, folder, steps=2000, most_loss=1.6, least_known=0.7)


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        skip("no mpirun")
    with tempfile.TemporaryDirectory(prefix="lockstep-accuracy-") as temporary:
        {"fashion_mnist": fashion_mnist, "adult": adult, "char_gpt": char_gpt,
         "char_gpt_whole": char_gpt_whole}[sys.argv[2]](sys.argv[1], pathlib.Path(temporary))
