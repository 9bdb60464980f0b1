#!/usr/bin/env python3
"""`lockstep plan` for GPUs and for the configs of the tree, in every build, with CUDA and without.
Catches: a plan for a GPU that differs between builds or changes unseen (golden/plans/), a config
that does not fit the hardware that its comment names or needs more than that to start, sizes in
models/README.md that `plan` does not print, a GPU in FP32 without a warning.

plan_command_test.py BINARY [--write: write golden/plans/ and the sizes anew]
"""
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/plans"
SIZES = ROOT / "models/README.md"
CONFIGS = sorted((ROOT / "configs").glob("*/*.textproto"))

BF16, FP16 = "execution.precision=BF16", "execution.precision=FP16"
# Golden plan: config and further arguments. They differ in ops, precision and what ranks share.
PLANS = {
    "bert_base": ("models/bert_base", "--ranks 8"),
    "char_gpt_fp16": ("models/char_gpt", f"--ranks 4 --set {FP16} --set model.gpt.dropout=0.1"),
    "gpt2_124m": ("models/gpt2_124m", "--ranks 8"),
    "llama_3_8b": ("models/llama_3_8b", "--ranks 8"),
    "lora": ("models/llama_3_8b", "--ranks 1 --set adapter.lora.rank=16 "
             "--set 'adapter.lora.match=(q|k|v|o)_proj'"),
    "mobilenet_v2_fp16": ("vision/mobilenet_v2_imagenet", f"--ranks 2 --set {FP16}"),
    "qwen3_two_nodes": ("models/qwen3_0.6b", "--ranks 16 --ranks-per-node 8 --set train.lanes=16"),
    "resnet50": ("vision/resnet50_imagenet", "--ranks 8"),
    "resnext50_bf16": ("vision/resnext50_imagenet", f"--ranks 1 --set {BF16}"),
    "smollm_muon": ("models/smollm_135m", "--ranks 8 --set optimizer.muon.momentum=0.95"),
}

# Rows of the table of sizes: config, further arguments.
SMOLLM = f"--set {BF16} --set execution.recompute=BLOCKS"
ROWS = {"smollm_135m": SMOLLM, "qwen3_0.6b": "", "llama_3.2_1b": "", "llama_3_8b": "",
        "bert_base": "", "bert_large": "", "gpt_j_6b": ""}
COLUMNS = ["--ranks 1"] + [f"--ranks 8 --set comm.zero_stage={stage}" for stage in range(4)]


def plan(binary, *arguments, code=0):
    environment = {key: value for key, value in os.environ.items() if key != "LOCKSTEP_DEVICE"}
    done = subprocess.run([binary, "plan", *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, cwd=ROOT, env=environment)
    assert done.returncode == code, (arguments, done)
    return done


def plans_are_those_of_every_build(binary, folder, write):
    for name, (config, arguments) in PLANS.items():
        out = folder / "plan.json"
        plan(binary, f"configs/{config}.textproto", "--gpu", 1000, "--data", folder / "nowhere",
             "--json", out, *shlex.split(arguments))
        if write:
            (GOLDEN / f"{name}.json").write_bytes(out.read_bytes())
        assert out.read_bytes() == (GOLDEN / f"{name}.json").read_bytes(), (
            name, out.read_text())
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(PLANS)


def png(pixels):
    """A grey image of so many pixels a side."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    header = struct.pack(">IIBBBBB", pixels, pixels, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(pixels) for _ in range(pixels)))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows)
            + chunk(b"IEND", b""))


def write_data(folder):
    """What the configs need of their data before they can be planned, by the config's name."""
    data = {name: folder / name for name in ("adult_mlp", "image_folder", "text_classification")}
    for path in data.values():
        path.mkdir()
    row = ("39, {}, 77516, {}, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, "
           "0, 40, United-States, {}\n")
    (data["adult_mlp"] / "adult.data").write_text("".join(
        row.format(("State-gov", "Private", "?")[i % 3], ("Bachelors", "HS-grad")[i % 2],
                   ("<=50K", ">50K")[i % 2]) for i in range(2000)))
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            images = data["image_folder"] / part / label
            images.mkdir(parents=True)
            for i in range(40):
                (images / f"{i}.png").write_bytes(png(64))
    for part in ("train", "dev"):
        lines = [f"a film number {i}\t{i % 2}\n" for i in range(2000)]
        (data["text_classification"] / f"{part}.tsv").write_text(
            "sentence\tlabel\n" + "".join(lines))
    model = folder / "model"
    model.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "number"]
    (model / "vocab.txt").write_text("\n".join(words + [f"word{i}" for i in range(30514)]))
    (model / "config.json").write_text(json.dumps({
        "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522,
        "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu"}))
    return data, model


def configs_fit_their_hardware(binary, folder):
    """The comment of each config names its hardware by a line `lockstep plan CONFIG ...`, with
    nothing else to set but data and model that it needs; where it names ranks to start, the plan is
    for as many."""
    data, model = write_data(folder)
    for config in CONFIGS:
        comment = "".join(line[1:] for line in config.read_text().splitlines(keepends=True)
                          if line.startswith("#"))
        name = str(config.relative_to(ROOT))
        lines = re.findall(r"^ +lockstep plan (.*)$", comment, re.MULTILINE)
        assert lines, f"{name}: its comment names no hardware: `lockstep plan {name} ...`"
        for line in lines:
            words = shlex.split(line)
            assert words[0] == name and "--ranks" in words, line
            assert all(word in ("--set", "model.from=MODEL") for word in words
                       if "set" in word or "=" in word), line
            assert "--gpu" in words or "--host-memory" in words, line
            ranks = words[words.index("--ranks") + 1]
            assert all(n == ranks for n in re.findall(r"mpirun -n (\d+)", comment)), name
            if "--gpu" not in words:
                words += ["--device", "cpu"]
            places = {"DIR": data.get(config.stem), "model.from=MODEL": f"model.from={model}"}
            plan(binary, *(places.get(word, word) for word in words))


def size(binary, folder, config, arguments):
    out = folder / "size.json"
    plan(binary, f"configs/models/{config}.textproto", "--gpu", 1000, "--data", folder / "nowhere",
         "--json", out, *shlex.split(arguments))
    return json.loads(out.read_text())


def sizes_are_true(binary, folder, write):
    """The table of models/README.md, and what the text below it says of traffic."""
    page = SIZES.read_text()
    h100 = 79.1 - 1.5  # GiB, as gpu_models.cc has it
    for name, further in ROWS.items():
        plans = [size(binary, folder, name, f"{column} {further}") for column in COLUMNS]
        cells = [f"{p['memory_bytes_gpu']:,}" if p["memory_bytes_gpu"] < h100 * 2**30
                 else "does not fit" for p in plans]
        row = (f"| [`{name}`](../configs/models/{name}.textproto) | {plans[0]['parameters']:,} | "
               + " | ".join(cells) + " |")
        if write:
            page = re.sub(rf"^\| \[`{re.escape(name)}`\]\(\.\./configs/models/\S*\) \| [\d,]+ \|.*$",
                          row, page, flags=re.MULTILINE)
            SIZES.write_text(page)
        assert row in page.splitlines(), f"models/README.md lacks the row\n{row}"
    words = re.search(r"`llama_3_8b` sends (\S+) GiB a step and rank in stages 1 and 2, and (\S+) in "
                      r"stage 3; with 64 lanes (\S+) in stage 2 and (\S+) in stage 3",
                      " ".join(page.split()))
    sent = [size(binary, folder, "llama_3_8b", f"--ranks 8 --set comm.zero_stage={stage} {lanes}")
            ["wire_bytes_per_step_per_rank"] / 2**30
            for stage, lanes in ((1, ""), (3, ""), (2, "--set train.lanes=64"),
                                 (3, "--set train.lanes=64"))]
    assert words and list(words.groups()) == [f"{gib:.2f}" for gib in sent], (words, sent)
    lora = size(binary, folder, "llama_3_8b", PLANS["lora"][1])["memory_bytes"]
    whole = size(binary, folder, "llama_3_8b", "--ranks 1")["memory_bytes"]
    for row in ("gradients", "optimizer moments"):
        assert f"{lora[row]:,}" in page and f"{whole[row]:,}" in page, (lora, whole)


def warns_of_idle_tensor_cores(binary):
    config = "configs/models/gpt2_124m.textproto"
    for arguments, expected in ((("--gpu", "H100"), True), (("--device", "cuda"), True),
                                (("--device", "cpu"), False),
                                (("--gpu", "H100", "--set", BF16), False),
                                (("--gpu", "A10", "--set", "execution.tf32=true"), False)):
        done = plan(binary, config, *arguments)
        lines = [line for line in done.stderr.splitlines() if "tensor cores" in line]
        assert len(lines) == expected, (arguments, done)
        if expected:
            assert f"--set {BF16}" in lines[0] and "--set execution.tf32=true" in lines[0], lines


def refuses(binary):
    config = "configs/models/bert_base.textproto"
    done = plan(binary, config, "--gpu", "H1", code=2)
    assert all(word in done.stderr for word in ("--gpu", "H1", "H100", "A100-80GB", "GiB")), done
    assert "--device" not in done.stderr, done
    done = plan(binary, config, "--gpu", "H100", "--device", "cpu", code=2)
    assert "--device cpu" in done.stderr, done
    done = plan(binary, "configs/models/llama_3_8b.textproto", "--gpu", "A10", code=5)
    assert "a GPU of kind A10" in done.stderr, done


def main():
    binary, write = pathlib.Path(sys.argv[1]).resolve(), "--write" in sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="lockstep-plan-") as name:
        folder = pathlib.Path(name)
        plans_are_those_of_every_build(binary, folder, write)
        configs_fit_their_hardware(binary, folder)
        sizes_are_true(binary, folder, write)
    warns_of_idle_tensor_cores(binary)
    refuses(binary)
    print("all good")


if __name__ == "__main__":
    main()
