#!/usr/bin/env python3
"""`lockstep plan` for GPUs and for the configs of the tree, in every build, with CUDA and without.
Catches: a plan for a GPU that differs between builds or changes unseen (golden/plans/), a config
that does not fit the hardware that its comment names or needs more than that to start, one that a
GPU would train in FP32 or with more lanes than the ranks need, sizes in models/README.md that `plan`
does not print, a GPU in FP32 by default or without a warning, a prediction without its parts.

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

FOR_LESS_MEMORY = {"train.lanes", "execution.recompute"}
FP32, BF16, FP16 = (f"execution.precision={name}" for name in ("FP32", "BF16", "FP16"))
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
    "resnet50": ("vision/resnet50_imagenet", f"--ranks 8 --set {FP32}"),
    "resnext50_bf16": ("vision/resnext50_imagenet", f"--ranks 1 --set {BF16}"),
    "smollm_muon": ("models/smollm_135m",
                    f"--ranks 8 --set {FP32} --set optimizer.muon.momentum=0.95"),
}

# Rows of the table of sizes: config, further arguments.
ROWS = {"smollm_135m": "", "qwen3_0.6b": "", "llama_3.2_1b": "", "llama_3_8b": "",
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
    nothing else to set but data and model that it needs; further lines, for other hardware, may also
    set lanes or recomputation. If it names ranks to start, the plan is for as many. On a GPU it
    trains in BF16, and each rank of the first line has one lane."""
    data, model = write_data(folder)
    out = folder / "shipped.json"
    for config in CONFIGS:
        comment = "".join(line[1:] for line in config.read_text().splitlines(keepends=True)
                          if line.startswith("#"))
        name = str(config.relative_to(ROOT))
        lines = re.findall(r"^ +lockstep plan (.*)$", comment, re.MULTILINE)
        assert lines, f"{name}: its comment names no hardware: `lockstep plan {name} ...`"
        for number, line in enumerate(lines):
            words = shlex.split(line)
            settings = {word.partition("=")[0] for word in words if "=" in word}
            assert words[0] == name and "--ranks" in words, line
            assert settings <= {"model.from"} | (FOR_LESS_MEMORY if number > 0 else set()), line
            assert "--gpu" in words or "--host-memory" in words, line
            ranks = words[words.index("--ranks") + 1]
            assert all(n == ranks for n in re.findall(r"mpirun -n (\d+)", comment)), name
            if "--gpu" not in words:
                words += ["--device", "cpu"]
            places = {"DIR": data.get(config.stem), "model.from=MODEL": f"model.from={model}"}
            words = [places.get(word, word) for word in words]
            plan(binary, *words, "--json", out)
            planned = json.loads(out.read_text())
            if "--gpu" not in words:
                here = [word for word in words if word not in ("--device", "cpu")]
                del here[here.index("--host-memory"):here.index("--host-memory") + 2]
                plan(binary, *here, "--gpu", "H100", "--json", out)
                planned = json.loads(out.read_text())
            assert planned["precision"] == "BF16", (name, planned)
            if "--gpu" in words and number == 0:
                assert planned["lanes_per_rank"] == 1, (name, planned)


def size(binary, folder, config, arguments):
    out = folder / "size.json"
    plan(binary, f"configs/models/{config}.textproto", "--gpu", 1000, "--data", folder / "nowhere",
         "--json", out, *shlex.split(arguments))
    return json.loads(out.read_text())


def sizes_are_true(binary, folder, write):
    """The table of models/README.md, and what the text below it says of traffic."""
    page = SIZES.read_text()
    h100 = 79.1 - 1.5  # GiB, as gpu_models.cc and gpu_option.cc have it
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


def chooses_the_precision(binary):
    """And warns of a GPU that would compute in FP32."""
    config = "configs/models/gpt2_124m.textproto"
    for arguments, precision, expected in (
        (("--gpu", "H100"), "BF16 (AUTO)", False), (("--device", "cuda"), "BF16 (AUTO)", False),
        (("--device", "cpu"), "FP32 (AUTO)", False),
        (("--gpu", "H100", "--set", FP32), "FP32", True),
        (("--gpu", "H100", "--set", FP16), "FP16", False),
        (("--gpu", "A10", "--set", "execution.tf32=true"), "FP32 (AUTO with execution.tf32)",
         False)):
        done = plan(binary, config, "--set", "train.lanes=128", *arguments)
        assert f"precision {precision}," in done.stdout, (arguments, done)
        lines = [line for line in done.stderr.splitlines() if "tensor cores" in line]
        assert len(lines) == expected, (arguments, done)
        if expected:
            assert f"--set {BF16}" in lines[0] and "--set execution.tf32=true" in lines[0], lines


def predicts(binary, folder):
    """The least time of a step: not below that of its products, with all keys of --json, and less
    on a faster GPU; a number of GiB has none."""
    out, seconds = folder / "predicted.json", {}
    for gpu in ("A100-80GB", "H100", "NVIDIA B200", "80"):
        done = plan(binary, "configs/models/gpt2_124m.textproto", "--ranks", 8, "--gpu", gpu,
                    "--set", BF16, "--json", out)
        planned = json.loads(out.read_text())
        if gpu == "80":
            assert not any("predicted" in key for key in planned), planned
            assert "predicted" not in done.stdout, done
            continue
        products = planned["predicted_products"]
        assert "predicted for" in done.stdout and "not measured" in done.stdout, done
        assert planned["predicted_gpu"] == gpu.rpartition(" ")[2], planned
        flops = sum(2 * p["m"] * p["n"] * p["k"] * p["count_per_step_per_rank"] for p in products)
        assert 0.8 < flops / planned["flops_per_step_per_rank"] < 1, planned
        total = sum(p["seconds"] * p["count_per_step_per_rank"] for p in products)
        assert abs(total / planned["predicted_product_seconds"] - 1) < 1e-6, planned
        assert total < planned["predicted_step_seconds"] < 2 * total, planned
        assert 0.4 < planned["predicted_mfu"] < 1, planned
        seconds[gpu] = planned["predicted_step_seconds"]
    assert seconds["NVIDIA B200"] < seconds["H100"] < seconds["A100-80GB"], seconds
    # Also of convolutions, in groups, and of logits by rows: products have nearly all operations, but
    # for attention.
    for config, least in (("vision/resnext50_imagenet", 0.98), ("models/bert_base", 0.9),
                          ("models/llama_3_8b", 0.85)):
        plan(binary, f"configs/{config}.textproto", "--ranks", 8, "--gpu", "H100", "--data",
             folder / "nowhere", "--json", out)
        planned = json.loads(out.read_text())
        flops = sum(2 * p["m"] * p["n"] * p["k"] * p["groups"] * p["count_per_step_per_rank"]
                    for p in planned["predicted_products"])
        assert least < flops / planned["flops_per_step_per_rank"] < 1, (config, planned)


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
        predicts(binary, folder)
    chooses_the_precision(binary)
    refuses(binary)
    print("all good")


if __name__ == "__main__":
    main()
