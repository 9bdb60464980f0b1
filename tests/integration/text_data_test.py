#!/usr/bin/env python3
"""Catches: labelled texts, tagged texts or hidden tokens that other ranks, or a run that goes on, read
in another way; balanced classes and groups of lengths that depend on who asks; a loss that is not the
mean over what is counted; combinations of fields that are not refused.

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
    "values": ("SEQUENCE_VALUES", 'labelled_text { train: "train.jsonl" eval: "eval.jsonl" '
                                  'tokenizer: "vocab.txt" } group_by_length: true'),
    "tags": ("TOKEN_CLASSES", 'tagged_text { train: "train.conll" eval: "eval.conll" '
                              'tokenizer: "vocab.txt" }'),
    "hidden tokens": ("MASKED_TOKENS", TOKENS % "PADDED" + " group_by_length: true"),
    "hidden tokens, packed": ("MASKED_TOKENS", TOKENS % "BEST_FIT"),
}


def main(binary):
    failures = []

    def expect(holds, text):
        print(("" if holds else "FAILED: ") + text, flush=True)
        if not holds:
            failures.append(text)

    def write_config(folder, task, data):
        config = folder / "config.textproto"
        config.write_text(MODEL % task + f'\ndata {{ {data} dir: "{folder}" }}' + REST)
        return config

    with tempfile.TemporaryDirectory(prefix="lockstep-texts-") as folder:
        folder = pathlib.Path(folder)
        write_texts(folder)
        for name, (task, data) in CASES.items():
            config = write_config(folder, task, data)
            where = folder / name.replace(" ", "_").replace(",", "")
            results = {ranks: lockstep_run.train(binary, config, f"{where}-{ranks}", ranks)
                       for ranks in (1, 2, 4)}
            hashes = {ranks: result["weights_hash"] for ranks, result in results.items()}
            expect(len(set(hashes.values())) == 1, f"{name}: {hashes}")
            losses = [line["loss"] for line in lockstep_run.metrics(f"{where}-1") if "loss" in line]
            # Balanced classes are a harder question, and few steps too short for it.
            expect(losses[-1] < losses[0] or "balanced" in name,
                   f"{name}: the loss falls: {losses[0]} to {losses[-1]}")
            half = lockstep_run.train(binary, config, f"{where}-again", 2, ["--max-steps", "12"])
            again = lockstep_run.train(binary, config, f"{where}-again", 4, ["--resume", "auto"])
            expect(again["weights_hash"] == hashes[1] != half["weights_hash"],
                   f"{name}: gone on {again['weights_hash']}")
            evals = {ranks: result["eval_loss"] for ranks, result in results.items()}
            expect(len(set(evals.values())) == 1, f"{name}: evaluation losses {evals}")

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
        with open(folder / "bad.jsonl", "w") as out:
            out.write('{"text": "one", "label": 1}\n{"text": "two", "label": }\n')
        refused(DATA, ["bad.jsonl:2", "bad_records"], "SEQUENCE_VALUES", CASES["values"][1],
                "data.labelled_text.train=bad.jsonl")

        planned = lockstep_run.run(binary, [
            "plan", write_config(folder, *CASES["classes"]), "--data", folder / "nowhere",
            "--set", "model.bert.classes=2", "--set", "model.bert.vocabulary=16"], ranks=0)
        expect(planned.returncode == 0 and "is not here: assumed 2 classes" in planned.stdout,
               f"plan without data: {(planned.stdout + planned.stderr).splitlines()[-1:]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
