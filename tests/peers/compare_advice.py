#!/usr/bin/env python3
"""Tries the answers of `lockstep plan --advise` on this machine.

    compare_advice.py BINARY HARDWARE.textproto [--cases mlp,gpt,...] [--ranks 1,2] [--repeats 2]
                      [--seconds 0.7] [--markdown FILE]

HARDWARE is what `lockstep doctor --calibrate` wrote on this machine. Each case is trained with the
settings that --advise prints by time, with the config as it is, and with single changes that
--advise could have made, for about `--seconds` each. What counts is the least median step of
`--repeats` rounds. The first answer must be no slower than the fastest setting that was tried, up
to the noise. Ends with 1 if it is. Needs an idle machine.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import measure

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "integration"), str(TESTS / "distributed")]
import onnx_networks

NOISE = 0.03
ADAMW = "optimizer { adamw { weight_decay: 0.01 } } schedule { lr: 0.001 }"
SGD = "optimizer { sgd { momentum: 0.9 } } schedule { lr: 0.01 }"
TOKENS = "synthetic { samples: 2048 classes: 8192 }"
GPT = "layers: 4 heads: 4 width: 256 context: 128 vocabulary: 8192"
BERT = "bert { layers: 4 heads: 4 width: 256 context: 64 vocabulary: 8192 dropout: 0 }"


def images(side, classes):
    return f"synthetic {{ samples: 2048 height: {side} width: {side} classes: {classes} }}"


# Model, data, batch, lanes, optimizer.
CASES = {
    "mlp": ("mlp { hidden: 512 hidden: 512 }", "synthetic { features: 784 classes: 10 }", 256, 8,
            SGD),
    "table": ("mlp { hidden: 32 loss: BINARY_CROSS_ENTROPY }",
              "synthetic { features: 64 classes: 1 }", 256, 8, SGD),
    "cnn": ("lenet { classes: 10 }", images(28, 10), 128, 8, SGD),
    "resnet18": ("resnet { depth: 18 stem: CIFAR }", images(32, 10), 32, 2, SGD),
    "vit": ("vit { patch: 4 layers: 4 heads: 4 width: 192 classes: 10 }", images(32, 10), 32, 4,
            ADAMW),
    "gpt": (f"gpt {{ {GPT} }}", TOKENS, 16, 8, ADAMW),
    "llama": ("llama { layers: 6 heads: 6 kv_heads: 2 width: 192 mlp_width: 512 context: 128 "
              "vocabulary: 8192 tied_head: true }", TOKENS, 16, 4, ADAMW),
    "bert": (BERT, TOKENS, 32, 8, ADAMW),
    "onnx_cnn": ("onnx { file: 'FOLDER/cnn.onnx' }", "", 64, 8, SGD),
    "onnx_lstm": ("onnx { file: 'FOLDER/recurrent.onnx' }", "synthetic { samples: 64 }", 32, 4,
                  ADAMW),
    "lora": (f"gpt {{ {GPT} }}", TOKENS, 16, 4, ADAMW + " adapter { lora { rank: 8 } }"),
}
# Other lanes would make other networks of these.
NORMALISE = ("resnet18", "onnx_cnn")
CHANGES = ["execution.recompute=BLOCKS", "execution.precision=BF16", "optimizer.moments=BF16"]
OF_SEVERAL_RANKS = ["comm.zero_stage=STAGE_0", "comm.zero_stage=STAGE_2", "comm.zero_stage=STAGE_3"]


def write_networks(folder):
    """Networks large enough for their ops to take most of the time."""
    onnx_networks.SIDE, onnx_networks.T, onnx_networks.C, onnx_networks.V = 32, 32, 64, 512
    (folder / "recurrent.onnx").write_bytes(onnx_networks.recurrent())
    (folder / "cnn.onnx").write_bytes(onnx_networks.cnn())


def config_of(name, folder):
    model, data, batch, lanes, rest = CASES[name]
    data = data or images(onnx_networks.SIDE, onnx_networks.CLASSES)
    return f"""model {{ {model.replace("FOLDER", str(folder))} }}
data {{ {data} }}
train {{ global_batch: {batch} lanes: {lanes} steps: 1000 }}
{rest}
checkpoint {{ at_end: false }}
output {{ tensorboard: false }}
"""


def run(command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def sets(setting):
    return [word for each in setting for word in ("--set", each)]


class Trial:
    """A setting, and what it was predicted and measured to take."""

    def __init__(self, ranks, setting, kind, predicted_ms):
        self.ranks, self.setting, self.kind = ranks, setting, kind
        self.predicted_ms, self.measured_ms = predicted_ms, []

    def key(self):
        return (self.ranks, tuple(sorted(self.setting)))

    def text(self):
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''} " + (" ".join(self.setting)
                                                                      or "as it is")

    def ms(self):
        return min(self.measured_ms)


def planned_ms(binary, config, hardware, ranks, setting, out):
    """None if the plan is refused."""
    done = run([binary, "plan", config, "--on", hardware, "--ranks", ranks, "--json", out,
                *sets(setting)])
    if done.returncode != 0:
        return None
    return 500 * sum(json.loads(out.read_text())["predicted_step_seconds"])


def trials_of(binary, name, config, hardware, ranks, out):
    done = run([binary, "plan", config, "--on", hardware, "--ranks", ranks, "--advise", "--json",
                out])
    if done.returncode != 0:
        sys.exit(f"plan --advise ended with {done.returncode}:\n{done.stderr}")
    trials = {}

    def add(ranks, setting, kind, ms):
        trial = Trial(ranks, setting, kind, ms)
        if ms is not None:
            trials.setdefault(trial.key(), trial)

    for place, answer in enumerate(json.loads(out.read_text())["advice"]["by_time"]):
        add(answer["ranks"], answer["set"], f"answer {place + 1}",
            500 * sum(answer["predicted_step_seconds"]))
    lanes = int(re.search(r"lanes: (\d+)", config.read_text())[1])
    changes = CHANGES + (OF_SEVERAL_RANKS if ranks > 1 else [])
    if name not in NORMALISE:
        changes += [f"train.lanes={count}" for count in (lanes // 2, lanes * 2, ranks)
                    if count >= ranks]
    for ranks_there, setting in [(ranks, []), (3 - ranks, []), *((ranks, [c]) for c in changes)]:
        kind = "as it is" if not setting and ranks_there == ranks else "other"
        add(ranks_there, setting, kind,
            planned_ms(binary, config, hardware, ranks_there, setting, out))
    return list(trials.values())


def train(binary, config, trial, steps, folder):
    """Whether the run went well."""
    run_dir = folder / "run"
    subprocess.run(["rm", "-rf", run_dir], check=True)
    command = [binary, "train", config, "--run-dir", run_dir, "--device", "cpu", *sets(trial.setting),
               "--set", f"train.steps={steps}"]
    cpus = measure.allowed_cpus()
    if trial.ranks == 1:
        command = measure.pinned(cpus, [str(word) for word in command])
    else:
        command = ["mpirun", "--allow-run-as-root", "--map-by",
                   f"slot:PE={len(cpus) // trial.ranks}", "--bind-to", "core", "-n", trial.ranks,
                   *command]
    done = run(command)
    if done.returncode != 0:
        print(f"  {trial.text()}: ended with {done.returncode}: {done.stderr[-300:]}")
        return False
    times = [json.loads(line)["step_ms"] for line in (run_dir / "metrics.jsonl").open()]
    trial.measured_ms.append(statistics.median(times[max(1, len(times) // 5):]))
    return True


def compare(binary, hardware, name, ranks, args, folder):
    """Prints a row for each trial. Returns by how much the first answer is slower than the fastest."""
    config = folder / "case.textproto"
    config.write_text(config_of(name, folder))
    trials = trials_of(binary, name, config, hardware, ranks, folder / "plan.json")
    for _ in range(args.repeats):
        for trial in list(trials):
            steps = max(4, min(5000, int(1000 * args.seconds / trial.predicted_ms)))
            if not train(binary, config, trial, steps, folder):
                trials.remove(trial)
    first, fastest = trials[0], min(trials, key=Trial.ms)
    lines = []
    for trial in sorted(trials, key=Trial.ms):
        lines.append(f"| {name} | {ranks} | {trial.kind} | {trial.text()} | {trial.predicted_ms:.4g} "
                     f"| {trial.ms():.4g} | {100 * (trial.predicted_ms / trial.ms() - 1):+.1f}% |")
        print(lines[-1], flush=True)
    slower = first.ms() / fastest.ms() - 1 if first.kind == "answer 1" else float("inf")
    print(f"{name}, {ranks} ranks: the first answer is {100 * slower:.1f}% slower than the fastest "
          f"of {len(trials)}{'' if slower <= NOISE else ': NOT the fastest'}", flush=True)
    return slower, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("hardware", type=pathlib.Path)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    lines = ["| case | asked for ranks | setting | | predicted, ms a step | measured | error |",
             "| --- | ---: | --- | --- | ---: | ---: | ---: |"]
    failed = []
    with tempfile.TemporaryDirectory(prefix="lockstep-advice-") as folder_name:
        folder = pathlib.Path(folder_name)
        write_networks(folder)
        for name in args.cases.split(","):
            for ranks in map(int, args.ranks.split(",")):
                slower, rows = compare(args.binary.resolve(), args.hardware, name, ranks, args,
                                       folder)
                lines += rows
                if slower > NOISE:
                    failed.append(f"{name} on {ranks}")
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")
    print("not the fastest: " + (", ".join(failed) or "none"))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
