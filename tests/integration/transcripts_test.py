#!/usr/bin/env python3
"""Catches: a CTC loss that is not the mean over the samples, other bits on two ranks, in ZeRO stages or
after a resume; error rates that are not those of the texts that `predict` writes; frames and symbols that
do not fit and are not refused.

transcripts_test.py BINARY

The frames and the network are written here, byte by byte; loss and error rates are computed again by
plain loops.
"""
import json
import math
import pathlib
import random
import struct
import sys
import tempfile

import lockstep_run
from onnx_train_test import FLOAT, model, node

T, F, STACK, HIDDEN = 12, 4, 2, 12  # frames, features; frames that the network joins
SYMBOLS = "abc "
CLASSES = len(SYMBOLS) + 1
CONFIG = """
model { onnx { file: "net.onnx" loss: CTC ctc_blank: 4 } }
data { transcripts { train: "train.jsonl" eval: "eval.jsonl" symbols: ["a", "b", "c", " "] } }
train { global_batch: 16 lanes: 4 steps: 60 hash_every: 30 }
optimizer { adamw { weight_decay: 0 } }
schedule { lr: 0.03 }
eval { every: 30 best: CHARACTER_ERROR_RATE }
checkpoint { every: 30 async: false }
execution { threads: 1 }
output { tensorboard: false }
"""


def write_npy(path, rows):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {F}), }}"
    header += " " * ((-11 - len(header)) % 64) + "\n"
    values = [value for row in rows for value in row]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}f", *values))


def write_data(folder, name, samples, seed):
    """Each symbol lasts for two or four frames in which its feature is large."""
    draw, found, lines = random.Random(seed), [], []
    (folder / name).mkdir()
    for i in range(samples):
        text = draw.choice("abc") + "".join(draw.choice(SYMBOLS) for _ in range(draw.randrange(2))) + draw.choice("abc")
        rows = [[draw.gauss(2.0 if SYMBOLS.index(c) == f else 0.0, 0.3) for f in range(F)]
                for c in text for _ in range(2 * draw.randint(1, 2))]
        repeats = sum(a == b for a, b in zip(text, text[1:]))
        if len(rows) > T or len(text) + repeats > len(rows) // 2:
            text, rows = "a", rows[:2]
        write_npy(folder / name / f"{i}.npy", rows)
        lines.append(json.dumps({"frames": f"{name}/{i}.npy", "text": text}))
        found.append((rows, text))
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return found


def write_network(path, time_first=False):
    """Joins two frames, and computes a hidden layer and log-probabilities."""
    draw = random.Random(5)
    uniform = lambda *extents: (list(extents), [draw.uniform(-0.4, 0.4) for _ in range(math.prod(extents))])
    weights = {"hidden.weight": uniform(STACK * F, HIDDEN), "hidden.bias": uniform(HIDDEN),
               "head.weight": uniform(HIDDEN, CLASSES), "head.bias": uniform(CLASSES)}
    shape = ([3], [0, T // STACK, STACK * F])
    nodes = [node("Reshape", ["x", "shape"], ["joined"]), node("MatMul", ["joined", "hidden.weight"], ["m"]),
             node("Add", ["m", "hidden.bias"], ["h"]), node("Tanh", ["h"], ["a"]),
             node("MatMul", ["a", "head.weight"], ["n"]), node("Add", ["n", "head.bias"], ["y"]),
             node("LogSoftmax", ["y"], ["log_p"], axis=-1)]
    output = ("log_p", ["N", T // STACK, CLASSES])
    if time_first:
        nodes.append(node("Transpose", ["log_p"], ["first"], perm=[1, 0, 2]))
        output = ("first", [T // STACK, "N", CLASSES])
    path.write_bytes(model(nodes, {**weights, "shape": shape}, [("x", ["N", T, F], FLOAT)], output))
    return weights


def log_probabilities(weights, rows):
    """Of the network, for one sample."""
    rows = rows + [[0.0] * F] * (T - len(rows))
    layer = lambda x, name, width: [b + sum(v * weights[name + ".weight"][1][i * width + k] for i, v in enumerate(x))
                                    for k, b in enumerate(weights[name + ".bias"][1])]
    found = []
    for t in range(0, T, STACK):
        y = layer([math.tanh(v) for v in layer(sum(rows[t:t + STACK], []), "hidden", HIDDEN)], "head", CLASSES)
        total = math.log(sum(math.exp(v) for v in y))
        found.append([v - total for v in y])
    return found


def ctc_loss(log_p, text):
    """By the probabilities of the states (Graves et al. 2006)."""
    states = [4]
    for c in text:
        states += [SYMBOLS.index(c), 4]
    alpha = [0.0] * len(states)
    for t, frame in enumerate(log_p):
        before, alpha = alpha, [0.0] * len(states)
        for s, symbol in enumerate(states):
            paths = (1.0 if s < 2 else 0.0) if t == 0 else before[s] + (before[s - 1] if s > 0 else 0)
            if t > 0 and s > 1 and symbol not in (4, states[s - 2]):
                paths += before[s - 2]
            alpha[s] = paths * math.exp(frame[symbol])
    return -math.log(sum(alpha[-2:]))


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        before, row = row, [i + 1]
        for j, y in enumerate(b):
            row.append(min(before[j] + (x != y), before[j + 1] + 1, row[j] + 1))
    return row[-1]


class Bench:

    def __init__(self, binary, folder):
        self.binary, self.folder, self.failures = binary, folder, 0

    def expect(self, holds, text):
        print(("" if holds else "FAILED: ") + text, flush=True)
        self.failures += not holds

    def command(self, *arguments, ranks=0):
        return lockstep_run.run(self.binary, arguments, ranks=ranks, cwd=self.folder)

    def train(self, name, *arguments, ranks=0):
        done = self.command("train", "config.textproto", "--run-dir", name, *arguments, ranks=ranks)
        if done.returncode != 0:
            self.expect(False, f"{name}: {(done.stdout + done.stderr).strip()[-400:]}")
            return []
        return [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]

    def refused(self, code, parts, *arguments):
        done = self.command("train", "config.textproto", "--run-dir", "refused", *arguments)
        message = (done.stdout + done.stderr).strip().splitlines()[-1]
        self.expect(done.returncode == code and all(part in message for part in parts), f"refused: {message}")


KEPT = ("loss", "weights_hash", "eval_loss", "eval_word_error_rate", "eval_character_error_rate")


def kept(rows):
    return [{key: row[key] for key in KEPT if key in row} for row in rows if "loss" in row or "eval_loss" in row]


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        (bench.folder / "config.textproto").write_text(CONFIG)
        train = write_data(bench.folder, "train", 16, 1)
        wanted = write_data(bench.folder, "eval", 30, 2)
        weights = write_network(bench.folder / "net.onnx")

        one = bench.train("one")
        loss = sum(ctc_loss(log_probabilities(weights, rows)[:(len(rows) + 1) // 2], text) for rows, text in train) / 16
        first = next(row["loss"] for row in one if "loss" in row)
        bench.expect(abs(first - loss) < 1e-5, f"the first loss is {first}, by a plain loop {loss}")
        two = bench.train("two", "--set", "comm.zero_stage=STAGE_2", ranks=2)
        bench.expect(kept(one) == kept(two) != [], "two ranks in ZeRO stage 2 have the bits of one")
        bench.train("part", "--max-steps", "30")
        bench.expect(kept(bench.train("part", "--resume", "auto")) == kept(one), "a resumed run has the same bits")

        done = bench.command("predict", "one", "--out", "texts.jsonl", "--json", "predict.json")
        rows = [json.loads(line) for line in (bench.folder / "texts.jsonl").read_text().splitlines()]
        bench.expect([row["label"] for row in rows] == [text for _, text in wanted], "predict writes the texts that were wanted")
        pairs = [(row["label"], row["predicted"]) for row in rows]
        rates = {"eval_word_error_rate": [(a.split(), b.split()) for a, b in pairs],
                 "eval_character_error_rate": [(a.strip(), b.strip()) for a, b in pairs]}
        scores = json.loads((bench.folder / "predict.json").read_text())
        last = next(row for row in one if "eval_loss" in row and row["step"] == scores["step"])
        for name, parts in rates.items():
            rate = sum(distance(a, b) for a, b in parts) / sum(len(a) for a, _ in parts)
            bench.expect(rate == last[name] == scores[name] and rate < 0.5, f"{name} is {last[name]}, of the texts {rate}")
        bench.expect(abs(scores["eval_loss"] - last["eval_loss"]) < 1e-5, f"predict's loss is {scores['eval_loss']}")

        write_network(bench.folder / "first.onnx", time_first=True)
        bench.refused(2, ['"first" of first.onnx', "y.transpose(0, 1)"], "--set", "model.onnx.file=first.onnx")
        (bench.folder / "long.jsonl").write_text('{"frames": "train/0.npy", "text": "abcabcabcabc"}\n')
        bench.refused(3, ["long.jsonl:1: its text has 12 symbols"], "--set", "data.transcripts.train=long.jsonl")
        (bench.folder / "config.textproto").write_text(CONFIG.replace("transcripts {", "npy {").replace(
            'train: "train.jsonl" eval: "eval.jsonl" symbols: ["a", "b", "c", " "]', 'train_inputs: "x.npy" train_labels: "y.npy"').replace("eval { every: 30 best: CHARACTER_ERROR_RATE }", ""))
        bench.refused(2, ["data.npy", "data.transcripts", "transcripts with its loss"])
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
