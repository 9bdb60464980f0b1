#!/usr/bin/env python3
"""`lockstep plan` for GPUs and for the configs of the tree, in every build, with CUDA and without.
Catches: a plan for a GPU that differs between builds or changes unseen (golden/plans/), a config
that does not fit the hardware that its comment names or needs more than that to start, one that a
GPU would train in FP32, without tensor cores or with more lanes than the ranks need, sizes in models/README.md that `plan`
does not print, a GPU in FP32 by default or without a warning, a prediction without its parts.

plan_command_test.py BINARY [--write: write golden/plans/ and the sizes anew]
"""
import csv
import json
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import report_page

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/plans"
SIZES = ROOT / "models/README.md"
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*/*.textproto")
                 if path.parent.name != "hardware")

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
            assert "--on" in words or "--host-memory" in words, line
            ranks = words[words.index("--ranks") + 1]
            assert all(n == ranks for n in re.findall(r"mpirun -n (\d+)", comment)), name
            if "--on" not in words:
                words += ["--device", "cpu"]
            places = {"DIR": data.get(config.stem), "model.from=MODEL": f"model.from={model}"}
            words = [places.get(word, word) for word in words]
            plan(binary, *words, "--json", out)
            planned = json.loads(out.read_text())
            if "--on" not in words:
                here = [word for word in words if word not in ("--device", "cpu")]
                del here[here.index("--host-memory"):here.index("--host-memory") + 2]
                plan(binary, *here, "--on", "H100", "--json", out)
                planned = json.loads(out.read_text())
            assert planned["precision"] == "BF16", (name, planned)
            slow = [op for op in planned["counted_kernels"] if op["fma_flops"] > 0]
            assert not slow, f"{name}: products of a GPU that are not on tensor cores: {slow}"
            if "--on" in words and number == 0:
                assert planned["lanes_per_rank"] == 1, (name, planned)


def size(binary, folder, config, arguments):
    out = folder / "size.json"
    plan(binary, f"configs/models/{config}.textproto", "--gpu", 1000, "--data", folder / "nowhere",
         "--json", out, *shlex.split(arguments))
    return json.loads(out.read_text())


def sizes_are_true(binary, folder, write):
    """The table of models/README.md, and what the text below it says of traffic."""
    page = SIZES.read_text()
    h100 = 79.1 - 1.5  # GiB, as h100.textproto and hardware_option.cc have it
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
    """The time of a step: above the least time of its products, and less on a faster GPU; a range
    around nothing is none; a number of GiB has none."""
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
        assert done.stdout.startswith("predicted, not measured"), done
        assert planned["predicted_on"] == gpu.rpartition(" ")[2], planned
        flops = sum(2 * p["m"] * p["n"] * p["k"] * p["count_per_step_per_rank"] for p in products)
        assert 0.8 < flops / planned["flops_per_step_per_rank"] < 1, planned
        total = sum(p["least_seconds"] * p["count_per_step_per_rank"] for p in products)
        low, high = planned["predicted_step_seconds"]
        assert total < planned["predicted_least_seconds"] < low < high < 4 * total, planned
        assert 0.2 < planned["predicted_mfu"][0] < planned["predicted_mfu"][1] < 1, planned
        seconds[gpu] = high
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


def describes_cpu_nodes_and_files(binary, folder):
    """CPU nodes by name, and a file of one's own; every figure of --explain has a source."""
    out, config = folder / "node.json", "configs/models/gpt2_124m.textproto"
    done = plan(binary, config, "--data", folder, "--on", "Xeon-8480", "--ranks", 2, "--explain",
                "--json", out)
    planned = json.loads(out.read_text())
    assert "2 ranks of 56 threads on Xeon-8480" in done.stdout, done
    assert "why a range" in done.stdout and "assumed" in done.stdout, done
    assert planned["predicted_on"] == "Xeon-8480" and "predicted_kwh" in planned, planned
    own = folder / "own.textproto"
    own.write_text((ROOT / "configs/hardware/xeon-8480.textproto").read_text()
                   .replace('name: "Xeon-8480"', 'name: "own"')
                   .replace("memory_gbytes_per_s: 614.4", "memory_gbytes_per_s: 61.44"))
    plan(binary, config, "--data", folder, "--on", own, "--ranks", 2, "--json", out)
    slower = json.loads(out.read_text())
    assert slower["predicted_step_seconds"][0] > planned["predicted_step_seconds"][0], slower
    done = plan(binary, config, "--on", "Xeon-8480", "--device", "cuda", code=2)
    assert "has no GPU" in done.stderr, done
    own.write_text('name: "own" memory_gbytes_per_s: 100 watt: 3')
    done = plan(binary, config, "--on", own, code=2)
    assert "unknown field 'watt' in a hardware file; did you mean 'watts'?" in done.stderr, done
    own.write_text('name: "own" memory_gbytes_per_s: 100')
    done = plan(binary, config, "--on", own, code=2)
    assert "memory_gbytes_per_s has 0 sources" in done.stderr, done


def price_network_and_queue_count(binary, folder):
    out, config = folder / "terms.json", "configs/models/gpt2_124m.textproto"

    def planned(*arguments):
        plan(binary, config, "--data", folder, "--set", "train.lanes=16", "--ranks", 16, "--on",
             "H100", "--json", out, *arguments)
        return json.loads(out.read_text())
    usual, slow = planned(), planned("--network", "1")
    assert usual["predicted_nodes"] == 2, usual
    assert slow["predicted_exposed_seconds"][0] > 0.2, slow
    assert slow["predicted_step_seconds"][0] > 2 * usual["predicted_step_seconds"][1], slow
    dear = planned("--price", 100, "--watts", 1000)
    hours = usual["predicted_run_seconds"][1] / 3600
    assert abs(dear["predicted_usd"][1] / (hours * 2 * 100) - 1) < 1e-6, dear
    assert abs(dear["predicted_kwh"][1] / (hours * 2) - 1) < 1e-6, dear
    assert planned("--walltime", "12m")["predicted_restarts"] > 0
    interrupted = planned("--interruptions", 0.5)
    assert interrupted["predicted_run_seconds"][1] > usual["predicted_run_seconds"][1], interrupted
    assert 1 < interrupted["predicted_best_checkpoint_steps"] < 1e5, interrupted
    for flag in ("--walltime", "--deadline"):
        done = plan(binary, config, "--on", "H100", flag, "soon", code=2)
        assert f"{flag}: value is 'soon'; allowed: 90m" in done.stderr, done
    done = plan(binary, config, "--on", "H100", "--gpu", "H200", code=2)
    assert "one of them" in done.stderr, done
    done = plan(binary, config, "--on", "H100", "--network", "NVLink 99", code=2)
    assert "NVLink 4" in done.stderr, done


def compares(binary, folder):
    out, config = folder / "compare.json", "configs/models/gpt2_124m.textproto"
    common = ("--data", folder, "--json", out)
    picture = folder / "sweep.svg"
    plan(binary, config, "--data", folder, "--on", "H100", "--sweep", "ranks=1,2", "--plot", picture)
    text = report_page.check(picture)
    assert "predicted, not measured" in text and "gpt2_124m.textproto; Lockstep" in text, text
    figures = list(csv.DictReader((folder / "sweep.csv").open()))
    assert [(row["panel"], row["x"]) for row in figures] == [
        (label, ranks) for label in ("predicted s a step", "predicted efficiency, %",
                                     "predicted cost of the run, $") for ranks in ("1", "2")], figures
    assert all(float(row["low"]) <= float(row["y"]) <= float(row["high"]) for row in figures), figures
    plan(binary, config, *common, "--on", "H100", "--sweep", "ranks=1..1024")
    sweep = json.loads(out.read_text())["sweep"]
    assert [row["ranks"] for row in sweep] == [2 ** i for i in range(11)], sweep
    run = [row for row in sweep if "why_not" not in row]
    efficiency = [row["predicted_efficiency"] for row in run]
    assert len(run) >= 8 and abs(efficiency[0] - 1) < 1e-9, sweep
    assert 0.1 < efficiency[-1] < 0.99 and max(efficiency) < 1.05, sweep
    assert [row["set"] for row in run if row["ranks"] == 16] == ["train.lanes=16"], sweep
    for arguments, word in ((("--plot", "a.png", "--sweep", "ranks=1,2"), "must end with .svg"),
                            (("--plot", "a.svg"), "--sweep or --compare")):
        assert word in plan(binary, config, "--on", "H100", *arguments, code=2).stderr
    for bad in ("ranks=", "ranks=4..2", "ranks=2,1", "lanes=1,2", "ranks=1..x"):
        done = plan(binary, config, "--on", "H100", "--sweep", bad, code=2)
        assert "ranks=1..1024" in done.stderr, done
    plan(binary, config, *common, "--compare", "Xeon-8480,L40S,8xH100")
    compared = json.loads(out.read_text())
    rows = compared["comparison"]
    assert [(row["on"], row["ranks"]) for row in rows] == [
        ("Xeon-8480", 1), ("L40S", 1), ("H100", 8)], compared
    assert compared["fastest"] == "8 x H100", compared
    plan(binary, config, *common, "--budget", 40, "--deadline", "24h")
    within = json.loads(out.read_text())["within"]
    for row in within["by_cost"] + within["by_time"]:
        assert row["fits"] and row["predicted_usd"][1] <= 40, row
        assert row["predicted_run_seconds"][1] <= 24 * 3600, row
    assert "nothing" in plan(binary, config, *common, "--budget", 0.01).stdout
    plan(binary, config, *common, "--on", "H100", "--ranks", 8, "--buy", 250000)
    assert 5 < json.loads(out.read_text())["predicted_break_even_months"] < 100


def published_figures_are_predicted(binary, folder):
    """The model of tuned trainers is as good as its page says, on rows that no constant was fitted
    to."""
    out = folder / "published.json"
    done = plan(binary, "--validate", "launcher/published/rows.tsv", "--json", out)
    rows = [row for row in json.loads(out.read_text())["rows"] if row["use"] == "scored"]
    errors = sorted(abs(row["error"]) for row in rows)
    assert len(rows) > 300 and "scored" in done.stdout, done.stdout
    assert errors[len(errors) // 2] < 0.12, errors[len(errors) // 2]
    assert errors[len(errors) * 8 // 10] < 0.25, errors[len(errors) * 8 // 10]


def tuned_trainers_stand_beside_the_forecast(binary, folder):
    """A line and members of their own; without published figures the reason."""
    out, config = folder / "tuned.json", "configs/models/llama_3_8b.textproto"

    def planned(on, code=0):
        done = plan(binary, config, "--data", folder, "--ranks", 8, "--on", on, "--explain",
                    "--json", out, code=code)
        return done.stdout, json.loads(out.read_text())

    text, known = planned("H100")
    line = next(line for line in text.splitlines() if "  well-tuned trainer  " in line)
    assert "predicted from published figures, another program" in line, line
    low, high = known["predicted_step_seconds"]
    assert low / 2 < known["predicted_tuned_step_seconds"] < 2 * high, known
    assert known["predicted_tuned_parameters"] == 8030261248, known
    text, unknown = planned("T4", code=5)
    assert "  well-tuned trainer  " not in text, text
    assert "well-tuned trainer: not predicted: no published figures of GPUs" in text, text
    assert [key for key in unknown if "tuned" in key] == ["predicted_tuned_unknown"], unknown


def measures_this_machine(binary, folder):
    """A hardware file of the smallest network alone; with it, most of that network's ops are scaled
    from measured ones."""
    file, out = folder / "here.textproto", folder / "here.json"
    done = subprocess.run([binary, "doctor", "--calibrate", file, "--only", "mlp_small", "--types",
                           "FP32"], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "hardware file" in done.stdout, done
    assert "MEASURED" in file.read_text() and not (folder / "here.textproto.runs").exists()
    plan(binary, "configs/benchmarks/mlp_784_512_512_10.textproto", "--on",
         file, "--json", out)
    planned = json.loads(out.read_text())
    assert planned["predicted_measured_share"] > 0.9, planned
    low, high = planned["predicted_step_seconds"]
    assert 1e-5 < low < high < 1, planned
    keeps_the_forecast(binary, folder, file)


def keeps_the_forecast(binary, folder, file):
    """`train` keeps the forecast that it made beside what it measured."""
    run_dir, out = folder / "run", folder / "train.json"
    done = subprocess.run(
        [binary, "train", "configs/benchmarks/mlp_784_512_512_10.textproto", "--run-dir", run_dir,
         "--device", "cpu", "--max-steps", "30", "--json", out, "--set", "output.timeline=true"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "LOCKSTEP_HARDWARE": str(file)})
    assert done.returncode == 0, done
    log = done.stdout + done.stderr
    assert "predicted on here:" in log and "the forecast is" in log, done
    kept = json.loads((run_dir / "end.json").read_text())["forecast"]
    low, high = kept["step_ms"]
    assert kept["on"] == "here" and 0 < low < high, kept
    assert abs(kept["error"] - ((low + high) / 2 / kept["measured_step_ms"] - 1)) < 1e-9, kept
    assert json.loads(out.read_text())["forecast"] == kept, kept
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert {line["predicted_step_ms"] for line in lines} == {round((low + high) / 2, 3)}, lines[0]
    assert abs(lines[-1]["forecast_error"] - kept["error"]) < 1e-9, (lines[-1], kept)
    assert not any("forecast_error" in line for line in lines[:-1]), lines
    replays(binary, folder, run_dir, file)
    done = subprocess.run([binary, "train", "configs/benchmarks/mlp_784_512_512_10.textproto",
                           "--on", "H1000", "--run-dir", folder / "none"], cwd=ROOT,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--on: value is 'H1000'" in done.stderr, done
    assert not (folder / "none").exists()


def replays(binary, folder, run_dir, file):
    """A run's timeline gives its step back on the hardware that it was measured on, and predicts
    others; what is no timeline of this network is refused in one line."""
    out, timeline = folder / "replay.json", run_dir / "timeline.json"
    done = plan(binary, "--replay", timeline, "--from", file, "--on", file, "--json", out,
                "--explain")
    planned = json.loads(out.read_text())
    replay, (low, high) = planned["replay"], planned["predicted_step_seconds"]
    # At least the measured ops, and without the waits that the step has on a busy machine.
    ops = sum(part["measured_seconds"] for part in replay["parts"])
    assert 0.8 * ops < (low + high) / 2 < 1.2 * replay["measured_step_seconds"], planned
    assert replay["matched_ops"] == replay["ops"] > 5 and not replay["whole"], replay
    assert abs(replay["matched_share"] - 1) < 1e-9, replay
    assert f"measured timeline of {timeline} on here" in done.stdout, done
    assert all(abs(part["predicted_ratio"] - 1) < 1e-9 for part in replay["parts"]), replay
    plan(binary, "--replay", run_dir, "--from", file, "--on", "H100", "--json", out)
    gpu = json.loads(out.read_text())
    assert gpu["predicted_on"] == "H100" and gpu["replay"]["matched_share"] > 0.5, gpu
    damaged = folder / "damaged"
    shutil.copytree(run_dir, damaged)
    (damaged / "timeline.json").write_text(timeline.read_text()[:3000])
    common = ("--from", file, "--on", file)
    for arguments, code, word in (
            (("--replay", damaged, *common), 4, "is damaged"),
            (("--replay", folder / "nowhere", *common), 4, "output.timeline=true"),
            (("--replay", run_dir, *common, "--set", "train.global_batch=64"), 2, "a lane"),
            (("--replay", run_dir, *common, "--set", "model.mlp.hidden=64"), 2, "another size"),
            (("--replay", run_dir, "--on", file), 2, "--from"),
            (("--replay", run_dir, "--from", "H100", "--on", file), 2, "was on 'cpu'"),
            (("--replay", run_dir, "--from", file), 2, "--on"),
            (("configs/models/bert_base.textproto", "--from", file), 2, "--replay"),
            ((), 2, "CONFIG is required")):
        done = plan(binary, *arguments, code=code)
        lines = [line for line in done.stderr.splitlines() if "error:" in line]
        assert len(lines) == 1 and word in lines[0], (arguments, done)


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
        describes_cpu_nodes_and_files(binary, folder)
        price_network_and_queue_count(binary, folder)
        compares(binary, folder)
        published_figures_are_predicted(binary, folder)
        tuned_trainers_stand_beside_the_forecast(binary, folder)
        measures_this_machine(binary, folder)
    chooses_the_precision(binary)
    refuses(binary)
    print("all good")


if __name__ == "__main__":
    main()
