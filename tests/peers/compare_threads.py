#!/usr/bin/env python3
"""What the default number of threads costs: the time of a training at the default over the best of
1, 2, ... N threads, for the configs that are shipped and the examples of the pages.

    python3 tests/peers/compare_threads.py --lockstep build/release/launcher/lockstep
    python3 tests/peers/compare_threads.py --lockstep ... --conditions quota --only 'lenet|char_gpt'   # as root

Conditions: `idle`; `busy`, with eight processes beside it that compute all the time; `quota`, in a
control group that allows one CPU (version 1 or 2; needs root). Settings take turns, and each figure is
the median of the rounds. Configs whose data are not here get synthetic ones of the same shape; networks
that train on clusters get a small batch. gpt_j_6b and the Llamas do not fit into 24 GiB and are left out.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
IMAGES = "synthetic { samples: 256 height: 224 width: 224 classes: 1000 }"
ONE = ["train.global_batch=1", "train.lanes=1"]
# Config, its steps here, the section of data in place of its own ("" keeps that), and settings.
CASES = [
    ("benchmarks/mlp_784_512_512_10", 300, "", []),
    ("benchmarks/table_64_32_1", 20000, "", []),
    ("benchmarks/gpt2_124m", 1, "", []),
    ("benchmarks/smollm_135m", 1, "", ONE),
    ("benchmarks/resnet50_224", 2, "", ["train.global_batch=4"]),
    ("quickstart/fashion_mnist_mlp", 300, "", []),
    ("quickstart/tiny_gpt_licences", 8, "", []),
    ("models/adult_mlp", 6000, "synthetic { samples: 26048 features: 104 }", []),
    ("models/char_gpt", 8, "synthetic { samples: 4096 classes: 65 }", []),
    ("models/gpt2_124m", 1, "synthetic { samples: 64 classes: 50257 }", ONE),
    ("models/smollm_135m", 1, "synthetic { samples: 64 classes: 49152 }", [*ONE, "model.llama.context=512"]),
    ("models/qwen3_0.6b", 1, "synthetic { samples: 64 classes: 151936 }",
     [*ONE, "model.llama.context=128", "execution.precision=FP32"]),
    ("models/bert_base", 1, "synthetic { samples: 64 }", [*ONE, "execution.precision=FP32"]),
    ("models/bert_large", 1, "synthetic { samples: 64 }",
     [*ONE, "model.bert.context=128", "execution.precision=FP32"]),
    ("vision/dit_fashion_mnist", 20, "", []),
    ("vision/lenet5_fashion_mnist", 200, "", []),
    ("vision/image_folder", 4, "images", []),
    ("vision/resnet20_cifar10", 8, "synthetic { samples: 1024 }", []),
    ("vision/resnet50_imagenet", 1, IMAGES, ["train.global_batch=8", "schedule.warmup_steps=0"]),
    ("vision/resnext50_imagenet", 1, IMAGES, ["train.global_batch=8", "schedule.warmup_steps=0"]),
    ("vision/mobilenet_v2_imagenet", 2, IMAGES, ["train.global_batch=8"]),
    # A regression of 442 rows and 10 columns, as in scikit-learn's diabetes table.
    ("models/adult_mlp", 10000, "synthetic { samples: 442 features: 10 classes: 1 }",
     ["model.mlp.hidden=32", "model.mlp.loss=MEAN_SQUARED_ERROR", "eval.best=LOSS", "train.epochs=1000",
      "train.global_batch=32"]),
    # A classifier of sentences of the size of MiniLM.
    ("models/bert_base", 2, "synthetic { samples: 256 classes: 2 }",
     ["model.bert.task=SEQUENCE_CLASSES", "model.bert.layers=6", "model.bert.width=384",
      "model.bert.mlp_width=1536", "model.bert.context=64", "execution.precision=FP32",
      "execution.recompute=NOTHING", "train.global_batch=32", "train.lanes=4"]),
]
BUSY_PROCESSES = 8
PERIOD_US = 100000


def without_section(text, name):
    """The config without this section."""
    start = re.search(rf"^{name} *\{{", text, re.M)
    end, depth = start.end(), 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[:start.start()] + text[end:]


def write_png(path, pixels, size):
    def chunk(kind, content):
        return (struct.pack(">I", len(content)) + kind + content +
                struct.pack(">I", zlib.crc32(kind + content)))
    rows = b"".join(b"\0" + pixels[3 * size * i:3 * size * (i + 1)] for i in range(size))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_images(folder):
    for part, count in (("train", 64), ("val", 8)):
        for i in range(count):
            write_png(folder / part / f"class{i % 4}" / f"{i}.png", os.urandom(3 * 96 * 96), 96)


class ControlGroup:
    """A group that allows one CPU; join() gives the words that start a command in it."""

    def __init__(self):
        v1 = pathlib.Path("/sys/fs/cgroup/cpu")
        self.folder = (v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"lockstep_{os.getpid()}"
        self.folder.mkdir()
        if v1.is_dir():
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(PERIOD_US))
        else:
            (self.folder / "cpu.max").write_text(f"{PERIOD_US} {PERIOD_US}")

    def __enter__(self):
        return ["sh", "-c", f"echo $$ > {self.folder}/cgroup.procs && exec \"$@\"", "sh"]

    def __exit__(self, *_):
        self.folder.rmdir()


@contextlib.contextmanager
def beside_busy_processes():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(BUSY_PROCESSES)]
    try:
        yield []
    finally:
        for process in busy:
            process.kill()
            process.wait()


def condition(name):
    return {"idle": lambda: contextlib.nullcontext([]), "busy": beside_busy_processes,
            "quota": ControlGroup}[name]()


def seconds(options, before, config, case, threads, folder):
    _, steps, _, settings = case
    result = folder / "result.json"
    command = [*before, options.lockstep, "train", config, "--run-dir", folder / f"run{threads}",
               "--resume", "none", "--json", result, "--max-steps", str(steps),
               *lockstep_run.sets(f"execution.threads={threads}", "eval.every=0", "checkpoint.every=0",
                                  "checkpoint.at_end=false", "output.tensorboard=false", *settings)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    subprocess.run(["rm", "-rf", folder / f"run{threads}"], check=True)
    return json.loads(result.read_text())["train_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--conditions", default="idle,busy,quota")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="N of 1..N threads (the CPUs)")
    parser.add_argument("--only", default="", help="a regular expression: the configs to measure")
    options = parser.parse_args()
    print("| config | condition | default, s | best, s | with threads | ratio |\n"
          "| --- | --- | ---: | ---: | ---: | ---: |")
    for case in CASES:
        name, _, data, settings = case
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            text = (CONFIGS / f"{name}.textproto").read_text()
            if data == "images":
                write_images(folder)
                case = (name, case[1], data, [*settings, f"data.dir={folder}"])
            elif data:
                text = without_section(text, "data") + f"\ndata {{ {data} }}\n"
            config = folder / "config.textproto"
            config.write_text(text)
            for where in options.conditions.split(","):
                times = {threads: [] for threads in range(options.threads + 1)}
                with condition(where) as before:
                    for turn in range(options.rounds):
                        for threads in sorted(times, reverse=turn % 2):
                            times[threads].append(
                                seconds(options, before, config, case, threads, folder))
                medians = {threads: statistics.median(t) for threads, t in times.items()}
                best = min((t, threads) for threads, t in medians.items() if threads > 0)
                print(f"| {name} {' '.join(settings[:1])} | {where} | {medians[0]:.3f} | {best[0]:.3f} |"
                      f" {best[1]} | {medians[0] / best[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
