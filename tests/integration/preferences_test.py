#!/usr/bin/env python3
"""Catches: a DPO whose loss does not begin with log 2, whose base moves, which does not learn which answers
are better or has other bits on other ranks, in another ZeRO stage or resumed; rewards that do not agree with
the loss and the accuracy, or with a folder of Hugging Face that is written and read again; pairs without a
reference, and a bad record, that are not refused by one line.

preferences_test.py BINARY
"""
import json
import math
import pathlib
import random
import shutil
import sys
import tempfile

import lockstep_run
from conversations_test import write_tokenizer

CONFIG = """
model {{ {model} }}
data {{ preferences {{ train: "pairs.jsonl" eval: "pairs.jsonl" tokenizer: "tokenizer" }} dir: "FOLDER" }}
{adapter}
train {{ global_batch: 8 lanes: 4 steps: 8 log_every: 1 hash_every: 4 {train} }}
optimizer {{ adamw {{}} }}
schedule {{ lr: 0.05 }}
checkpoint {{ every: 4 async: false }}
execution {{ threads: 1 loss_rows: 24 }}
output {{ tensorboard: false }}
"""
LLAMA = "llama { layers: 1 heads: 2 kv_heads: 1 width: 16 mlp_width: 24 context: 20 vocabulary: 300 MORE }"
GPT = "gpt { layers: 1 heads: 2 width: 16 context: 20 vocabulary: 300 dropout: 0.1 }"
LORA = 'adapter { lora { rank: 4 alpha: 8 match: "MATCH" } }'
USAGE, DATA = 2, 3  # exit codes
TOLERANCE = 1e-5  # sums of some 20 floats


def write_data(folder):
    draw = random.Random(5)
    write_tokenizer(folder / "tokenizer")
    text = lambda letters: "".join(draw.choices(letters, k=draw.randrange(2, 8)))
    lines = [{"prompt": "Q" + text("abc"), "chosen": text("xyz"), "rejected": text("uvw")} for _ in range(14)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


class Bench:

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        write_data(folder)

    def config(self, model=LLAMA, adapter=LORA, train="", match="q_proj|v_proj|mlp"):
        text = CONFIG.format(model=model, adapter=adapter.replace("MATCH", match), train=train)
        path = self.folder / "config.textproto"
        path.write_text(text.replace("FOLDER", str(self.folder)).replace("MORE", ""))
        return path

    def run(self, *arguments, ranks=0, code=0):
        done = lockstep_run.run(self.binary, arguments, ranks, cwd=self.folder)
        assert done.returncode == code, (arguments, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def train(self, config, name, ranks=0, sets=(), *more):
        run_dir = self.folder / name
        changes = [argument for change in sets for argument in ("--set", change)]
        return lockstep_run.train(self.binary, config, run_dir, ranks, [*changes, *more])

    def losses(self, name):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [record["loss"] for record in map(json.loads, lines) if "loss" in record]

    def evaluate(self, config, name, ranks=0):
        out = self.folder / "eval.json"
        self.run("eval", config, "--checkpoint", name, "--json", out, ranks=ranks)
        return json.loads(out.read_text())

    def refused(self, config, code, *parts, command="plan", more=()):
        message = self.run(command, config, *more, code=code).strip().splitlines()[-1]
        assert all(part in message for part in parts), message


def same_bits(bench, config, label):
    whole = bench.train(config, label)
    for ranks, sets in ((2, ["comm.zero_stage=2"]), (3, []), (4, ["comm.zero_stage=3"])):
        other = bench.train(config, f"{label}-{ranks}", ranks, sets)
        assert other["weights_hash"] == whole["weights_hash"], (label, ranks, sets)
    bench.train(config, f"{label}-cut", 4, [], "--max-steps", "4")
    resumed = bench.train(config, f"{label}-cut", 2, [], "--resume", "auto")
    assert resumed["weights_hash"] == whole["weights_hash"], label


def answers(bench):
    config = bench.config(train="preference { beta: 0.5 }")
    same_bits(bench, config, "dpo")
    losses = bench.losses("dpo")
    # B is 0 at first, so that policy and reference are the same to the bit.
    assert losses[0] == math.log(2) or abs(losses[0] - math.log(2)) < 1e-7, losses
    assert losses[-1] < 0.45, losses
    found = bench.evaluate(config, "dpo")
    assert found["eval_accuracy"] == 1 and "eval_perplexity" not in found, found
    assert bench.evaluate(config, "dpo", ranks=3) == found
    gpt = bench.config(model=GPT, match="c_attn|mlp")
    bench.train(gpt, "gpt")
    assert abs(bench.losses("gpt")[0] - math.log(2)) < 0.1, bench.losses("gpt")  # dropout
    bench.refused(bench.config(adapter=""), USAGE, "data.preferences: needs adapter.lora")
    bench.refused(bench.config(match="lm_head|q_proj", model=LLAMA.replace("MORE", "tied_head: false")),
                  USAGE, "it matches the output matrix 'lm_head.weight'")
    bench.refused(config, USAGE, "`lockstep eval`", command="predict",
                  more=["--checkpoint", "dpo", "--out", "x.csv"])


def rewards(bench):
    config = bench.config(model=LLAMA.replace("MORE", "head: REWARD"), adapter="")
    same_bits(bench, config, "reward")
    found = bench.evaluate(config, "reward")
    assert found["eval_accuracy"] == 1, found

    def predict(config, *source):
        out = bench.folder / "rewards.safetensors"
        bench.run("predict", config, *source, "--out", out)
        (rows, columns), values = lockstep_run.read_tensor(out, "output")
        assert (rows, columns) == (14, 2)
        return list(zip(values[0::2], values[1::2]))

    pairs = predict(config, "--checkpoint", "reward")
    loss = sum(math.log1p(math.exp(rejected - chosen)) for chosen, rejected in pairs) / len(pairs)
    assert abs(loss - found["eval_loss"]) < TOLERANCE, (loss, found)
    bench.run("export", "reward", "--format", "huggingface", "--out", "folder")
    folder = json.loads((bench.folder / "folder/config.json").read_text())
    assert folder["architectures"] == ["LlamaForSequenceClassification"], folder
    assert list(folder["id2label"]) == ["0"], folder
    again = bench.config(model='from: "folder" llama {}', adapter="")
    bench.run("import", again, "folder", "--out", "imported")
    assert predict(again, "--checkpoint", "imported") == pairs
    gpt = bench.config(model=GPT.replace("dropout: 0.1", "head: REWARD"), adapter="")
    bench.train(gpt, "gpt-reward")
    pairs = predict(gpt, "--checkpoint", "gpt-reward")
    bench.run("export", "gpt-reward", "--format", "huggingface", "--out", "gpt-folder")
    folder = json.loads((bench.folder / "gpt-folder/config.json").read_text())
    assert folder["architectures"] == ["GPT2ForSequenceClassification"], folder
    again = bench.config(model='from: "gpt-folder" gpt {}', adapter="")
    bench.run("import", again, "gpt-folder", "--out", "gpt-imported")
    assert predict(again, "--checkpoint", "gpt-imported") == pairs


def bad_data(bench):
    good = (bench.folder / "pairs.jsonl").read_text()
    (bench.folder / "pairs.jsonl").write_text(good + json.dumps({"chosen": "a", "rejected": "a"}) + "\n")
    bench.refused(bench.config(), DATA, "pairs.jsonl:15: its two answers are the same", command="train",
                  more=["--run-dir", "bad"])


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        bench = Bench(sys.argv[1], folder)
        answers(bench)
        rewards(bench)
        bad_data(bench)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
