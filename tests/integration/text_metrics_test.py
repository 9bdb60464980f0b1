#!/usr/bin/env python3
"""Catches: metrics of texts and of their tokens that count padding, lose a sample of a last step that
does not fill the lanes, or mix up rows where samples are computed in shorter lengths.

text_metrics_test.py BINARY: trains encoders with execution.length_buckets on generated texts with a
class, a value, or a tag a word. The metrics of `eval`, on 1, 2 and 4 ranks and without the lengths, must
be those that plain loops make of what `predict` writes.
"""
import array
import csv
import json
import pathlib
import random
import sys
import tempfile

import lockstep_run
import task_metrics_test as reference
import text_data_test as texts

CONTEXT = 24
BUCKETS = "execution.length_buckets=6,10,16"
SAMPLES, BATCH, LANES = 37, 16, 4
STEPS = ["--set", "schedule.lr=0.002", "--set", "train.steps=84", "--set", "eval.every=84"]
# Padding adds zeros to sums of floats, which may be cut into other parts.
TOLERANCE = 1e-5


def mislabel(path, first, second, share):
    """Answers that no network can know, so that those that it has learned are not all right."""
    draw, lines = random.Random(9), path.read_text().splitlines()
    for i, line in enumerate(lines):
        for here, other in ((first, second), (second, first)):
            if line.endswith(here) and draw.random() < share:
                lines[i] = line.removesuffix(here) + other
                break
    path.write_text("\n".join(lines) + "\n")


def labels(folder):
    return [json.loads(line)["label"] for line in (folder / "eval.jsonl").read_text().splitlines()]


def classes(folder):
    rows = (folder / "eval.tsv").read_text().splitlines()[1:]
    return [int(row.split("\t")[2] == "many") for row in rows]  # few, many


def tags(folder):
    """By sample: the class of each word, at the place of its first token."""
    found = []
    for sentence in (folder / "eval.conll").read_text().strip().split("\n\n"):
        words = [int(line.split()[2] == "O") for line in sentence.splitlines()]  # B, O
        # [CLS], then two tokens a word: the word and ##s. The last place is [SEP]'s.
        found.append([(1 + 2 * i, word) for i, word in enumerate(words) if 1 + 2 * i < CONTEXT - 1])
    return found


def tagged_words(folder):
    """The rows of a table of predictions: sample, token, word, tag."""
    found = []
    for i, sentence in enumerate((folder / "eval.conll").read_text().strip().split("\n\n")):
        words = [line.split() for line in sentence.splitlines()]
        found += [(str(i), str(1 + 2 * w), word[0], word[2]) for w, word in enumerate(words)
                  if 1 + 2 * w < CONTEXT - 1]
    return found


def expected(name, folder, shape, values):
    def row(i):
        return list(values[i * shape[-1]:(i + 1) * shape[-1]])

    if name == "values":
        return reference.of_values(labels(folder), [row(i)[0] for i in range(SAMPLES)])
    if name == "tags":
        assert shape[:2] == [SAMPLES, CONTEXT], shape
        wanted = [(row(i * CONTEXT + place), word) for i, sample in enumerate(tags(folder))
                  for place, word in sample]
    else:
        wanted = [(row(i), word) for i, word in enumerate(classes(folder))]
    scores = array.array("f", [logits[1] - logits[0] for logits, _ in wanted])  # equal ones count half
    return reference.of_classes([word for _, word in wanted],
                                [logits.index(max(logits)) for logits, _ in wanted], scores)


def main(binary):
    expect = lockstep_run.Expectations()

    assert SAMPLES % BATCH < BATCH - BATCH // LANES  # a lane of the last step has nothing
    with tempfile.TemporaryDirectory(prefix="lockstep-text-metrics-") as folder:
        folder = pathlib.Path(folder)
        texts.write_texts(folder)
        mislabel(folder / "eval.tsv", "\tfew", "\tmany", 0.25)
        mislabel(folder / "eval.conll", " B", " O", 0.1)
        for name in ("classes", "values", "tags"):
            task, data = texts.CASES[name]
            config, run = folder / "config.textproto", folder / name
            config.write_text(texts.MODEL % task + f'\ndata {{ {data} dir: "{folder}" }}' + texts.REST)
            sets = ["--set", BUCKETS]
            trained = lockstep_run.train(binary, config, run, 2, [*STEPS, *sets])

            def evaluate(ranks, sets):
                out = folder / "eval.json"
                done = lockstep_run.run(
                    binary, ["eval", config, "--checkpoint", run, "--json", out, *sets], ranks)
                assert done.returncode == 0, done.stderr
                return json.loads(out.read_text())

            found = {ranks: evaluate(ranks, sets) for ranks in (0, 2, 4)}
            expect(all(each == found[0] for each in found.values()),
                   f"{name}: the same metrics on 1, 2 and 4 ranks")
            expect(all(trained[k] == v for k, v in found[0].items() if k.startswith("eval_")),
                   f"{name}: training ends with them")
            file = folder / "predicted.safetensors"
            done = lockstep_run.run(
                binary, ["predict", config, "--checkpoint", run, "--out", file], ranks=0)
            assert done.returncode == 0, done.stderr
            table, told = folder / "predicted.csv", folder / "predicted.json"
            done = lockstep_run.run(binary, ["predict", config, "--checkpoint", run, "--out", table,
                                             "--json", told, *sets], ranks=2)
            assert done.returncode == 0, done.stderr
            told = json.loads(told.read_text())
            for metric, value in found[0].items():
                expect(not metric.startswith("eval_") or
                       abs(told[metric] - value) < TOLERANCE * max(1, abs(value)),
                       f"{name}, predict: {metric} is {told.get(metric)}, and by eval {value}")
            if name == "tags":
                with table.open(newline="") as rows:
                    rows = [tuple(row[column] for column in ("row", "token", "word", "label"))
                            for row in csv.DictReader(rows)]
                expect(rows == tagged_words(folder), f"{name}: a row for each word: {rows[:3]}")
            expect(name == "values" or 0 < found[0]["eval_matthews"] < 1,
                   f"{name}: some answers are right, and not all")
            wanted = expected(name, folder, *lockstep_run.read_tensor(file, "output"))
            for where, metrics in ((BUCKETS, found[0]), ("whole lengths", evaluate(2, []))):
                for metric, value in wanted.items():
                    expect(abs(metrics[metric] - value) < TOLERANCE * max(1, abs(value)),
                           f"{name}, {where}: {metric} is {metrics[metric]}, and by the "
                           f"predictions {value}")
    return expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
