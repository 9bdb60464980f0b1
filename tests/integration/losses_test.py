#!/usr/bin/env python3
"""Catches: a loss whose bits depend on the ranks, the ZeRO stage or a resume; labels or distributions
whose metrics are not those of the predictions, or others on other numbers of ranks; targets that no
loss means, and are not refused.

losses_test.py BINARY

The trainings are those of tests/golden, which golden_test.py compares with PyTorch.
"""
import csv
import json
import pathlib
import re
import sys
import tempfile

import lockstep_run

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
CASES = ("mlp_absolute_error", "mlp_huber", "mlp_labels", "mlp_distribution")


def mean(values):
    return sum(values) / len(values)


def auc(scores, ones):
    above = [s for s, one in zip(scores, ones) if one]
    below = [s for s, one in zip(scores, ones) if not one]
    return mean([(a > b) + (a == b) / 2 for a in above for b in below])


def average_precision(scores, ones):
    total = 0
    for threshold in (s for s, one in zip(scores, ones) if one):
        chosen = [one for s, one in zip(scores, ones) if s >= threshold]
        total += sum(chosen) / len(chosen)
    return total / sum(ones)


def f1(predicted, ones):
    right = sum(p and o for p, o in zip(predicted, ones))
    both = sum(predicted) + sum(ones)
    return 2 * right / both if both else 0


def of_columns(scores, ones, predicted, right):
    """Metrics of (columns, rows): means over columns."""
    return {"eval_accuracy": mean(right),
            "eval_f1": mean([f1(p, o) for p, o in zip(predicted, ones)]),
            "eval_auc": mean([auc(s, o) for s, o in zip(scores, ones)]),
            "eval_average_precision": mean([average_precision(s, o) for s, o in zip(scores, ones)])}


def by_sklearn(scores, ones):
    try:
        from sklearn import metrics
    except ImportError:
        return {}
    pairs = list(zip(scores, ones))
    return {"eval_auc": mean([metrics.roc_auc_score(o, s) for s, o in pairs]),
            "eval_average_precision": mean([metrics.average_precision_score(o, s)
                                            for s, o in pairs])}


class Bench:

    def __init__(self, binary, folder):
        self.binary, self.folder, self.failures = binary, folder, []

    def expect(self, holds, text):
        print(("" if holds else "FAILED: ") + text, flush=True)
        if not holds:
            self.failures.append(text)

    def config(self, name):
        """The golden training, which evaluates its own training data."""
        text = (GOLDEN / f"{name}.textproto").read_text()
        labels = re.search('train_labels: "(.*)"', text).group(1)
        text = text.replace("npy {", f'npy {{ eval_inputs: "rows.npy" eval_labels: "{labels}"')
        path = self.folder / f"{name}.textproto"
        path.write_text(re.sub('init_from: "(.*)"', f'init_from: "{GOLDEN}/\\1"', text))
        return path

    def train(self, config, run, *sets, ranks=0):
        changes = [a for change in sets for a in ("--set", change)]
        return lockstep_run.train(self.binary, config, self.folder / run, ranks,
                                  ["--data", GOLDEN, *changes])

    def command(self, name, config, run, *arguments, ranks=0):
        out = self.folder / f"{name}.json"
        done = lockstep_run.run(
            self.binary, [name, config, "--data", GOLDEN, "--checkpoint", self.folder / run,
                          "--json", out, *arguments], ranks)
        assert done.returncode == 0, done.stderr
        return json.loads(out.read_text()), done.stdout

    def refused(self, config, *sets):
        changes = [a for change in sets for a in ("--set", change)]
        return lockstep_run.run(self.binary, ["plan", config, "--data", GOLDEN, *changes], 0)


def same_bits(bench, name):
    config = bench.config(name)
    first = bench.train(config, name)
    for ranks, stage in ((2, 1), (3, 2), (4, 3)):
        other = bench.train(config, f"{name}{ranks}", f"comm.zero_stage={stage}", ranks=ranks)
        bench.expect(other["weights_hash"] == first["weights_hash"],
                     f"{name}: the same weights on {ranks} ranks in ZeRO stage {stage}")
    alone, _ = bench.command("eval", config, name)
    bench.expect(alone == bench.command("eval", config, name, ranks=3)[0],
                 f"{name}: the same metrics on 3 ranks")
    predicted, _ = bench.command("predict", config, name, "--out", bench.folder / f"{name}.csv")
    for metric in (m for m in alone if m.startswith("eval_")):
        bench.expect(abs(alone[metric] - predicted[metric]) < 1e-5 * max(1, abs(alone[metric])),
                     f"{name}: {metric} is {alone[metric]}, and of predictions {predicted[metric]}")
    with (bench.folder / f"{name}.csv").open(newline="") as file:
        return alone, [list(map(float, row)) for row in list(csv.reader(file))[1:]]


def expect_metrics(bench, name, expected, found):
    for metric, value in expected.items():
        bench.expect(abs(found[metric] - value) < 1e-6, f"{name}: {metric} is {found[metric]}, {value}")


def labels_and_distributions(bench, found, rows):
    # row, three labels, three probabilities
    ones = [[r[1 + c] > 0.5 for r in rows["mlp_labels"]] for c in range(3)]
    scores = [[r[4 + c] for r in rows["mlp_labels"]] for c in range(3)]
    predicted = [[s > 0.5 for s in column] for column in scores]
    right = [p == o for a, b in zip(predicted, ones) for p, o in zip(a, b)]
    expect_metrics(bench, "labels", of_columns(scores, ones, predicted, right), found["mlp_labels"])
    expect_metrics(bench, "labels, sklearn", by_sklearn(scores, ones), found["mlp_labels"])
    # row, four shares, the class, its probability, four probabilities
    shares = [r[1:5] for r in rows["mlp_distribution"]]
    classes = [s.index(max(s)) for s in shares]
    occur = sorted(set(classes))
    scores = [[r[7 + c] for r in rows["mlp_distribution"]] for c in occur]
    ones = [[k == c for k in classes] for c in occur]
    answers = [int(r[5]) for r in rows["mlp_distribution"]]
    expected = of_columns(scores, ones, [[a == c for a in answers] for c in occur],
                          [a == k for a, k in zip(answers, classes)])
    if not set(answers) <= set(occur):
        del expected["eval_f1"]
    expect_metrics(bench, "distribution", expected, found["mlp_distribution"])
    expect_metrics(bench, "distribution, sklearn", by_sklearn(scores, ones), found["mlp_distribution"])
    report, text = bench.command("eval", bench.config("mlp_labels"), "mlp_labels", "--report")
    bench.expect(len(report["report"]["labels"]) == 3 and "label  precision" in text,
                 "a report has each label")


def refusals(bench):
    labels, shares = bench.config("mlp_labels"), bench.config("mlp_distribution")
    for config, sets, code, text in (
            (labels, ["train.pos_weight=1,2"], 2, "one for each output, of which there are 3"),
            (labels, ["model.mlp.outputs=2", "train.pos_weight="], 2, "the data has 3 target columns"),
            (labels, ["model.mlp.loss=SOFT_CROSS_ENTROPY", "train.pos_weight="], 3,
             "answers.npy: the 3 targets of sample"),
            (shares, ["train.class_weights=1,1,1,1"], 2, "train.class_weights"),
            (shares, ["model.mlp.loss=OUTPUT", "model.mlp.label_smoothing=0"], 2, "model.mlp.loss")):
        done = bench.refused(config, *sets)
        bench.expect(done.returncode == code and text in done.stderr,
                     f"{' '.join(sets)} is refused: {done.stderr.strip()}")


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="lockstep-losses-") as folder:
        bench = Bench(binary, pathlib.Path(folder))
        found, rows = {}, {}
        for name in CASES:
            found[name], rows[name] = same_bits(bench, name)
        labels_and_distributions(bench, found, rows)
        refusals(bench)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
