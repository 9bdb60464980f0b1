#!/usr/bin/env python3
"""Catches: a page of the cookbook whose commands do not work as they stand there, whose config is
rejected, or that names a command, flag or field that does not exist.

    cookbook_test.py LOCKSTEP

The commands of each page run as a reader would type them, on small data, and trainings end after
some steps. Pages for several hosts and for Slurm are only read.
"""
import csv
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import conversations_test
import image_bench
import lockstep_run
import onnx_networks

ROOT = pathlib.Path(__file__).resolve().parents[2]
COOKBOOK = ROOT / "configs/cookbook"
READ_ONLY = {"two_hosts.md", "slurm_job.md"}
# Lines that are not run: they take minutes, or repeat the line above for ever.
NOT_RUN = re.compile(r"doctor --calibrate|--on here\.textproto|^until |lockstep launch|lockstep bench|lockstep doctor")
STEPS = 4
KINDS = ("roses", "tulips")
MY_CONFIG = """
name: "my"
model { mlp { hidden: [16] } }
data { synthetic { samples: 256 features: 8 classes: 3 } }
train { global_batch: 64 lanes: 64 steps: 20 }
optimizer { adamw {} }
schedule { lr: 0.001 }
"""
CHAT_MODEL = """
name: "model"
model { llama { layers: 1 heads: 2 kv_heads: 1 width: 16 mlp_width: 32 context: 128 vocabulary: 300 } }
data { conversations { train: "chats.json" tokenizer: "tokenizer" } }
train { global_batch: 8 lanes: 2 steps: 1 }
optimizer { adamw {} }
schedule { lr: 0.001 }
"""
WRAPPERS = {
    "lockstep": """#!/bin/bash
more=()
case "$1" in
  train) more=(--max-steps {steps}) ;;
  watch) more=(--once) ;;
  plan) unset LOCKSTEP_DEVICE ;;
  scale) more=(--steps {steps} --repeats 1) ;;
  generate) more=(--tokens 4) ;;
esac
for argument in "$@"; do [ "$argument" != --max-steps ] || more=(); done
exec {binary} "$@" "${{more[@]}}"
""",
    "mpirun": """#!/bin/bash
exec {mpirun} "$@"
""",
}


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)


def commands(text):
    """The lines of the page's shell blocks, continued lines joined, without comments."""
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+# .*", "", line).strip()
            if line:
                yield line


class Kitchen:
    """A folder with what the readers of all pages bring, and the programs that they call."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        (folder / "configs").symlink_to(ROOT / "configs")
        tools = folder / "bin"
        tools.mkdir()
        program, _, _, *options = lockstep_run.mpirun(2)  # without "-n 2"
        mpirun = " ".join([shutil.which(program), *options])
        for name, text in WRAPPERS.items():
            (tools / name).write_text(text.format(binary=binary, mpirun=mpirun, steps=STEPS))
            (tools / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        self.bring()

    def bring(self):
        draw = random.Random(1)
        for kind in KINDS:
            (self.folder / "pictures" / kind).mkdir(parents=True)
            for number in range(20):
                (self.folder / "pictures" / kind / f"{number}.png").write_bytes(
                    image_bench.png(32, draw.randrange(1000)))
        (self.folder / "new_pictures").mkdir()
        for number in range(3):
            (self.folder / "new_pictures" / f"{number}.png").write_bytes(image_bench.png(40, number))
        rows = [(draw.uniform(0, 9), draw.choice(["north", "south"])) for _ in range(200)]
        for name, column, value in (("customers", "churned", lambda a, b: "yes" if a > 4 else "no"),
                                    ("houses", "price", lambda a, b: 1000 * a + len(b))):
            text = "".join(f"{a:.3f},{b},{value(a, b)}\n" for a, b in rows)
            (self.folder / f"{name}.csv").write_text(f"age,region,{column}\n{text}")
        (self.folder / "new.csv").write_text("age,region\n1.5,north\n7,south\n")
        (self.folder / "chats.json").write_text(json.dumps([
            {"conversations": [{"from": "human", "value": f"What is {i} and {i}?"},
                               {"from": "gpt", "value": str(2 * i)}]} for i in range(60)]))
        onnx_networks.SIDE, onnx_networks.CLASSES = 32, len(KINDS)
        (self.folder / "net.onnx").write_bytes(onnx_networks.cnn())
        (self.folder / "my.textproto").write_text(MY_CONFIG)
        self.bring_chat_model()

    def bring_chat_model(self):
        """A Hugging Face folder with a chat template: trained a step here, and exported."""
        conversations_test.write_tokenizer(self.folder / "tokenizer", conversations_test.zoo.CHATML)
        (self.folder / "model.textproto").write_text(CHAT_MODEL)
        for command in ("train model.textproto --max-steps 1",
                        "export runs/model --format huggingface --out MODEL"):
            done = lockstep_run.run(self.binary, command.split(), 0, cwd=self.folder)
            assert done.returncode == 0, done.stderr

    def cook(self, page):
        text = (COOKBOOK / page).read_text()
        for block in blocks(text, "textproto"):
            name = re.match(r"# (\S+)\n", block)
            if name:
                (self.folder / name[1]).write_text(block)
        for command in commands(text):
            if NOT_RUN.search(command):
                continue
            done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment,
                                  capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, (
                f"{page}: {command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
            print(f"{page}: {command}")


    def classify(self):
        """The script of into_production.md gives each picture the class that `predict` gives it."""
        if not all(importlib.util.find_spec(name) for name in ("numpy", "onnxruntime", "PIL")):
            print("skipped for into_production.md: no onnxruntime, numpy and PIL")
            return
        script, = blocks((COOKBOOK / "into_production.md").read_text(), "python")
        (self.folder / "classify.py").write_text(script)
        with open(self.folder / "predictions.csv", newline="") as file:
            expected = {row["file"]: row["predicted"] for row in csv.DictReader(file)}
        done = subprocess.run([sys.executable, "classify.py", *(f"pictures/{name}" for name in expected)],
                              cwd=self.folder, capture_output=True, text=True, timeout=120)
        found = dict(line.removeprefix("pictures/").split() for line in done.stdout.splitlines())
        assert found == expected, f"{found}, expected {expected}\n{done.stderr}"


def check_names(binary, page):
    """Every command, flag and field that a page names exists."""
    text = (COOKBOOK / page).read_text()
    helps = {}
    for line in commands(text):
        for call in re.findall(r"lockstep ([a-z]+(?: [a-z]+)?)([^|;]*)", line):
            words = call[0].split()
            words = words if words[0] == "data" else words[:1]
            flags = re.findall(r"(?<=\s)--[a-z-]+", call[1].split(" -- ")[0])
            if words[0] not in helps:
                done = subprocess.run([binary, *words, "--help"], capture_output=True, text=True)
                assert done.returncode == 0, f"{page}: {' '.join(words)} is no command"
                helps[words[0]] = done.stdout
            for flag in flags:
                assert re.search(rf"{flag}\b", helps[words[0]]), f"{page}: {' '.join(words)} has no {flag}"
    for field in sorted(set(re.findall(r"--set ([a-z_.0-9]+)=", text))):
        done = subprocess.run([binary, "config", field], capture_output=True, text=True)
        assert done.returncode == 0, f"{page}: {done.stderr}"


def main():
    binary = os.path.abspath(sys.argv[1])
    pages = re.findall(r"\]\((\w+\.md)\)", (COOKBOOK / "README.md").read_text())
    assert {*pages, "README.md"} == {path.name for path in COOKBOOK.glob("*.md")}
    for page in pages:
        check_names(binary, page)
    with tempfile.TemporaryDirectory(prefix="lockstep-cookbook-") as folder:
        kitchen = Kitchen(binary, pathlib.Path(folder))
        for page in pages:
            if page not in READ_ONLY:
                kitchen.cook(page)
        kitchen.classify()


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    main()
