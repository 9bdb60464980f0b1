#!/usr/bin/env python3
"""Catches: labelled texts, tagged texts or hidden tokens that other ranks, or a run that goes on, read
in another way; balanced classes, groups of lengths and steps of several lengths that depend on who
asks; balanced classes from which the rare one is not learnt; a loss that is not the mean over what is
counted; tokens that are not those read; predictions that want labels; combinations of fields that are
not refused.

text_data_test.py BINARY: trains small encoders on generated texts with 1, 2 and 4 ranks, and with 2
from the middle on: the weights_hash must be the same.
"""
import json
import pathlib
import random
import sys
import tempfile

import lockstep_run

MODEL = "model { bert { layers: 2 heads: 2 width: 32 mlp_width: 64 context: 24 dropout: 0.1 task: %s } }"
REST = """
train { global_batch: 16 lanes: 4 steps: 24 log_every: 6 }
optimizer { adamw {} }
schedule { lr: 0.003 }
checkpoint { every: 12 }
eval { every: 24 }
execution { threads: 1 }
output { tensorboard: false }
"""
WORDS = "one two three four five six seven eight nine ten".split()
USAGE, DATA = 2, 3  # exit codes


def write_texts(folder):
    draw = random.Random(5)
    (folder / "vocab.txt").write_text("\n".join(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]))
    for name, count in (("train", 330), ("eval", 37)):
        texts = [draw.choices(WORDS, k=draw.randrange(1, 30)) for _ in range(count)]
        # Three of ten texts are of the other class.
        rows = [(" ".join(t), " ".join(t[::-1][:5]), "few" if t[0] in WORDS[:3] else "many")
                for t in texts]
        with open(folder / f"{name}.tsv", "w") as out:
            out.write("first\tsecond\tlabel\n")
            out.writelines("\t".join(row) + "\n" for row in rows)
        with open(folder / f"{name}.jsonl", "w") as out:
            out.writelines(json.dumps({"text": a, "label": len(a)}) + "\n" for a, _, _ in rows)
        (folder / f"{name}.conll").write_text("\n".join(
            "".join(f"{word}s X {'B' if word in WORDS[:4] else 'O'}\n" for word in t)
            for t in texts))
        ids = [[2, *(5 + WORDS.index(word) for word in t), 3] for t in texts]
        borders = [sum(map(len, ids[:i])) for i in range(count)]
        (folder / f"{name}.bin").write_bytes(
            b"".join(i.to_bytes(2, "little") for sample in ids for i in sample))
        (folder / f"{name}.documents").write_bytes(
            b"".join(b.to_bytes(8, "little") for b in borders))


LABELLED = ('labelled_text { train: "train.tsv" eval: "eval.tsv" tokenizer: "vocab.txt" text: "first" '
            'second_text: "second" }')
TOKENS = ('tokens { train: "train.bin" eval: "eval.bin" tokenizer: "vocab.txt" mask_share: 0.3 '
          'train_documents: "train.documents" eval_documents: "eval.documents" packing: %s }')
CASES = {
    "classes": ("SEQUENCE_CLASSES", LABELLED),
    "balanced and grouped": ("SEQUENCE_CLASSES",
                             LABELLED + " balance_classes: true group_by_length: true"),
    # With group_by_length, so that steps are of each length.
    "values, in lengths": ("SEQUENCE_VALUES", 'labelled_text { train: "train.jsonl" eval: "eval.jsonl" '
                                              'tokenizer: "vocab.txt" } group_by_length: true'),
    "values": ("SEQUENCE_VALUES", 'labelled_text { train: "train.jsonl" eval: "eval.jsonl" '
                                  'tokenizer: "vocab.txt" } group_by_length: true'),
    "tags": ("TOKEN_CLASSES", 'tagged_text { train: "train.conll" eval: "eval.conll" '
                              'tokenizer: "vocab.txt" }'),
    "hidden tokens": ("MASKED_TOKENS", TOKENS % "PADDED" + " group_by_length: true"),
    "hidden tokens, packed": ("MASKED_TOKENS", TOKENS % "BEST_FIT"),
}
LENGTHS = ["--set", "execution.length_buckets=8,16"]
RARE = """
model { mlp { hidden: 8 } }
data { table { train: "rare.csv" eval: "even.csv" target: "class" } dir: "FOLDER" balance_classes: %s }
train { global_batch: 64 lanes: 2 steps: 120 }
optimizer { adamw {} }
schedule { lr: 0.02 }
eval { every: 120 }
output { tensorboard: false }
"""


def accuracy_on_even_classes(binary, folder, balance):
    """Of a classifier of two normal distributions of which one is rare in training. The best one finds
    84% of each class where they are equally frequent, and 32% of the rare one as often as it is here."""
    draw = random.Random(7)
    for name, rows, share in (("rare", 4000, 0.05), ("even", 1000, 0.5)):
        with open(folder / f"{name}.csv", "w") as out:
            out.write("x,class\n")
            for row in range(rows):
                rare = row < share * rows
                out.write(f"{draw.gauss(2 if rare else 0, 1):.4f},{int(rare)}\n")
    config = folder / "rare.textproto"
    config.write_text((RARE % balance).replace("FOLDER", str(folder)))
    lockstep_run.train(binary, config, folder / f"rare-{balance}", 0)
    return lockstep_run.metrics(folder / f"rare-{balance}")[-1]["eval_accuracy"]


def main(binary):
    expect = lockstep_run.Expectations()

    def write_config(folder, task, data):
        config = folder / "config.textproto"
        config.write_text(MODEL % task + f'\ndata {{ {data} dir: "{folder}" }}' + REST)
        return config

    with tempfile.TemporaryDirectory(prefix="lockstep-texts-") as folder:
        folder = pathlib.Path(folder)
        write_texts(folder)
        all_hashes = {}
        for name, (task, data) in CASES.items():
            config = write_config(folder, task, data)
            where = folder / name.replace(" ", "_").replace(",", "")
            extra = LENGTHS if "lengths" in name else []
            results = {ranks: lockstep_run.train(binary, config, f"{where}-{ranks}", ranks, extra)
                       for ranks in (1, 2, 4)}
            hashes = {ranks: result["weights_hash"] for ranks, result in results.items()}
            expect(len(set(hashes.values())) == 1, f"{name}: {hashes}")
            losses, others = ([line["loss"] for line in lockstep_run.metrics(f"{where}-{ranks}")]
                              for ranks in (1, 2))
            expect(losses == others, f"{name}: the losses of each step are the same on 2 ranks")
            all_hashes[name] = hashes[1]
            # Balanced classes are a harder question, and few steps too short for it.
            expect(losses[-1] < losses[0] or "balanced" in name,
                   f"{name}: the loss falls: {losses[0]} to {losses[-1]}")
            half = lockstep_run.train(binary, config, f"{where}-again", 2, ["--max-steps", "12", *extra])
            again = lockstep_run.train(binary, config, f"{where}-again", 4,
                                       ["--resume", "auto", *extra])
            expect(again["weights_hash"] == hashes[1] != half["weights_hash"],
                   f"{name}: gone on {again['weights_hash']}")
            evals = {ranks: result["eval_loss"] for ranks, result in results.items()}
            expect(len(set(evals.values())) == 1, f"{name}: evaluation losses {evals}")
        # Other lengths have other masks of dropout: the steps did take them.
        expect(all_hashes["values"] != all_hashes["values, in lengths"], "lengths make other bits")

        line = lockstep_run.metrics(folder / "values-1")[-1]
        with open(folder / "train.jsonl") as texts:
            lengths = [min(len(json.loads(text)["text"].split()) + 2, 24) for text in texts]
        mean = line["tokens_per_s"] / line["samples_per_s"]
        expect(abs(mean / (sum(lengths) / len(lengths)) - 1) < 0.02, f"{mean:.2f} tokens in a sample")

        accuracies = {balance: accuracy_on_even_classes(binary, folder, balance)
                      for balance in ("false", "true")}
        expect(accuracies["false"] < 0.75 < 0.8 < accuracies["true"],
               f"a rare class with balance_classes: {accuracies}")

        # The saved config knows how many classes there are: no training file, and no labels.
        def predicted(out, *changes):
            sets = [argument for change in changes for argument in ("--set", change)]
            done = lockstep_run.run(binary, [
                "predict", folder / "classes-1/config.textproto", "--checkpoint", folder / "classes-1",
                "--out", folder / out, *sets], ranks=0)
            expect(done.returncode == 0, f"predict {changes}: {(done.stdout + done.stderr).strip()}")
            return lockstep_run.read_tensor(folder / out, "output")

        with open(folder / "eval.tsv") as labelled, open(folder / "unlabelled.tsv", "w") as out:
            out.writelines("\t".join([str(i), *row.split("\t")[:2]]) + "\n" if i else "n\tfirst\tsecond\n"
                           for i, row in enumerate(labelled))
        expect(predicted("with.safetensors") ==
               predicted("without.safetensors", "data.labelled_text.eval=unlabelled.tsv",
                         "data.labelled_text.train=nowhere.tsv"), "outputs are those of labelled texts")

        # Rows are no longer lines, so what is missing is told.
        with open(folder / "eval.tsv") as labelled, open(folder / "broken.tsv", "w") as out:
            out.writelines(row.replace("\n", "\tx\n") if i == 2 else row for i, row in enumerate(labelled))
        for policy, rows in (("SKIP", 36), ("REPLACE", 37)):
            done = lockstep_run.run(binary, [
                "predict", folder / "classes-1/config.textproto", "--checkpoint", folder / "classes-1",
                "--out", folder / "out.safetensors", "--json", folder / "out.json", *lockstep_run.sets(
                    "data.labelled_text.eval=broken.tsv", f"data.bad_records={policy}",
                    "data.max_bad_fraction=0.1")], ranks=0)
            told = json.loads((folder / "out.json").read_text()) if done.returncode == 0 else {}
            expect(f"{rows} samples" in done.stdout and ", 1 bad record\n" in done.stdout
                   and told["bad_records"] == 1, f"predict, {policy}: {(done.stdout + done.stderr).strip()}")

        def refused(code, parts, task, data, *changes):
            config = write_config(folder, task, data)
            sets = [argument for change in changes for argument in ("--set", change)]
            done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "refused", *sets],
                                    ranks=0)
            message = (done.stdout + done.stderr).strip().splitlines()[-1]
            expect(done.returncode == code and all(part in message for part in parts),
                   f"exit code {done.returncode}: {message}")

        refused(USAGE, ["data.labelled_text", "SEQUENCE_CLASSES"], "TOKEN_CLASSES", LABELLED)
        refused(USAGE, ["data.balance_classes", "class label"], "TOKEN_CLASSES",
                CASES["tags"][1] + " balance_classes: true")
        refused(USAGE, ["data.group_by_length", "padded"], "MASKED_TOKENS",
                'tokens { train: "train.bin" tokenizer: "vocab.txt" } group_by_length: true',
                "eval.every=0")
        refused(USAGE, ["data.text", "data tokenize"], "MASKED_TOKENS", 'text { train: "train.tsv" }',
                "eval.every=0")
        refused(USAGE, ["data.labelled_text.tokenizer"], "SEQUENCE_CLASSES", LABELLED,
                "data.labelled_text.tokenizer=")
        refused(USAGE, ["data.labelled_text.text", "'label'"], "SEQUENCE_CLASSES", LABELLED,
                "data.labelled_text.text=label")
        with open(folder / "bad.jsonl", "w") as out:
            out.write('{"text": "one", "label": 1}\n{"text": "two", "label": }\n')
        refused(DATA, ["bad.jsonl:2", "bad_records"], "SEQUENCE_VALUES", CASES["values"][1],
                "data.labelled_text.train=bad.jsonl")

        planned = lockstep_run.run(binary, [
            "plan", write_config(folder, *CASES["classes"]), "--data", folder / "nowhere",
            "--set", "model.bert.classes=2", "--set", "model.bert.vocabulary=16"], ranks=0)
        expect(planned.returncode == 0 and "does not exist: assumed 2 classes" in planned.stdout,
               f"plan without data: {(planned.stdout + planned.stderr).splitlines()[-1:]}")
    return expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
