#!/usr/bin/env python3
"""`lockstep config` as a user meets it. Catches: a field that is not listed, an unknown name that
is not refused with a near one, a config printed with its defaults that is another config, a bad
config that --check takes or a good one that it rejects, a
reference that is not the page of the tree.

config_test.py BINARY
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/models/char_gpt.textproto"


def run(binary, *arguments):
    return subprocess.run([binary, "config", *map(str, arguments)], capture_output=True, text=True,
                          timeout=60)


def good(binary, *arguments):
    done = run(binary, *arguments)
    assert done.returncode == 0 and done.stderr == "", (arguments, done)
    return done.stdout


def lists_and_explains(binary, folder):
    listed = good(binary, "--json", folder / "all.json")
    fields = json.loads((folder / "all.json").read_text())
    lines = listed.splitlines()
    assert len(lines) == len(fields) > 150, (len(lines), len(fields))
    for line, field in zip(lines, fields):
        assert line.split()[0] == field["path"], (line, field)

    explained = good(binary, "train.lanes")
    assert explained == good(binary, "lanes"), explained
    for part in ("train.lanes\n", "default   0\n", "allowed   0..4096\n", "AUTO"):
        assert part in explained, (part, explained)
    order = good(binary, "comm.order")
    assert re.search(r"allowed +TREE +By one fixed tree.*\n +FAST +", order), order
    assert "only with schedule.kind STEP or EXPONENTIAL" in good(binary, "gamma")
    section = good(binary, "adamw", "--json", folder / "one.json")
    assert "optimizer.adamw.beta2" in section and "optimizer.adam.beta2" not in section, section
    assert ([field["path"] for field in json.loads((folder / "one.json").read_text())]
            == ["optimizer.adamw"])


def refuses(binary):
    for arguments, words in (
        (["train.lane"], ["'train.lane'", "did you mean 'train.lanes'?"]),
        (["optimiser"], ["did you mean 'optimizer'?"]),
        (["lanes", "--reference"], ["one of FIELD, --defaults and --reference"]),
        (["--set", "train.lanes=2"], ["--set", "only with --defaults"]),
        (["--defaults", "nowhere.textproto"], ["nowhere.textproto"]),
        (["--defaults", CONFIG, "--set", "train.lanes=3"], ["train.global_batch", "train.lanes, which is 3"])):
        done = run(binary, *arguments)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (arguments, done)
        for word in words:
            assert word in done.stderr, (word, done.stderr)


def reads_json(binary, folder):
    """A config in JSON is the same config in text format, whatever its file is called."""
    text = """model { mlp { hidden: [8, 4] } } data { synthetic { samples: 16 features: 3 classes: 2 } }
              train { steps: 2 global_batch: 8 } optimizer { adamw {} } schedule { kind: COSINE lr: 0.001 }"""
    members = {"model": {"mlp": {"hidden": [8, 4]}}, "data": {"synthetic": {"samples": 16, "features": 3, "classes": 2}},
               "train": {"steps": 2, "globalBatch": 8}, "optimizer": {"adamw": {}},
               "schedule": {"kind": "COSINE", "lr": 0.001}}
    (folder / "a.textproto").write_text(text)
    complete = good(binary, "--defaults", folder / "a.textproto")
    for name in ("a.json", "json.textproto"):
        (folder / name).write_bytes(b"\xEF\xBB\xBF" + json.dumps(members, indent=2).replace("\n", "\r\n").encode())
        assert good(binary, "--defaults", folder / name) == complete
    (folder / "a.yaml").write_text("model:\n  mlp:\n    hidden: [8, 4]\n")
    done = run(binary, "--check", folder / "a.yaml")
    assert done.returncode == 2 and "a.yaml: is YAML, not a config" in done.stderr, done


def checks(binary, folder):
    """All that needs no data: fields, model and the format of the data, whose files are not here."""
    assert good(binary, CONFIG, "--check") == "config is valid\n"
    assert good(binary, CONFIG, "--check", "--set", "train.lanes=4") == "config is valid\n"
    for arguments, words in (
        (["nowhere.textproto"], ["nowhere.textproto"]),
        ([CONFIG, "--json", folder / "check.json"], ["--check"]),
        ([CONFIG, "--set", "train.lanes=3"], ["train.global_batch", "train.lanes, which is 3"]),
        ([CONFIG, "--set", "comm.error_feedback=true", "--set", "comm.wire_dtype=BF16",
          "--set", "comm.residual_groups=3"], ["comm.residual_groups", "0, 1, 2, 4, 8 with train.lanes 8"]),
        ([CONFIG, "--set", "model.gpt.heads=7"], ["model.gpt"]),
        ([CONFIG, "--set", "train.mixup=0.5"], ["train.mixup"]),
        ([CONFIG, "--set", "data.image.size=32"], ["data.image"]),
        ([CONFIG, "--set", "model.onnx.file=nowhere.onnx"], ["nowhere.onnx"])):
        done = run(binary, *arguments, "--check")
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, (arguments, done)
        for word in words:
            assert word in done.stderr, (word, done.stderr)


def shows_defaults(binary, folder):
    """What is printed, comments and all, is a config: of itself it leaves nothing out."""
    printed = good(binary, "--defaults", CONFIG, "--set", "train.hash_every=7")
    assert "\n  hash_every: 7\n" in printed and "\n  timeline: false  # default\n" in printed, (
        printed)
    again = folder / "again.textproto"
    again.write_text(printed)
    assert good(binary, "--defaults", again) == printed.replace("  # default", "")


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        lists_and_explains(binary, pathlib.Path(name))
        refuses(binary)
        reads_json(binary, pathlib.Path(name))
        checks(binary, pathlib.Path(name))
        shows_defaults(binary, pathlib.Path(name))
    assert good(binary, "--reference") == (ROOT / "configs/FIELDS.md").read_text(), (
        "configs/FIELDS.md is old")
    print("config: fields listed, explained and refused; defaults and reference as they should be")


if __name__ == "__main__":
    main()
