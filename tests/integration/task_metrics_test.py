#!/usr/bin/env python3
"""Catches: a task's metrics that are not those of the predictions, or others on other numbers of
ranks; a best checkpoint by another metric; classes whose weights do not count in the loss; a rate that
does not fall on a plateau, or falls otherwise after a resume or in a replay; a target that is
standardised and does not come back; categories that are new in the evaluation, and not said.

task_metrics_test.py BINARY

The metrics are computed again by plain loops over what `predict` writes; where scikit-learn and
scipy are installed, by them too.
"""
import csv
import json
import math
import pathlib
import random
import sys
import tempfile

import lockstep_run

CONFIG = """
model {{ mlp {{ hidden: [8] loss: {loss} }} }}
data {{ table {{ train: "train.csv" eval: "eval.csv" target: "{target}" ignore: {ignore} }} }}
train {{ global_batch: 32 lanes: 4 steps: 60 }}
optimizer {{ adamw {{}} }}
schedule {{ lr: 0.01 }}
eval {{ every: 20 }}
output {{ tensorboard: false }}
"""
TARGETS = ("two", "three", "value")
# Sums in other orders, of floats.
TOLERANCE = 1e-5


def write_table(path, rows, seed, cities):
    draw = random.Random(seed)
    lines = ["a,b,city,two,three,value"]
    for _ in range(rows):
        a, b, city = draw.gauss(0, 1), draw.gauss(0, 1), draw.choice(cities)
        score = a + 0.5 * b + 0.8 * draw.gauss(0, 1) + 0.3 * len(city)
        two = "yes" if score > 1.5 else "no"
        three = "low" if score < 0 else "mid" if score < 1.8 else "high"
        lines.append(f"{a:.4f},{b:.4f},{city},{two},{three},{50 + 20 * score:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return [dict(zip(lines[0].split(","), line.split(","))) for line in lines[1:]]


def mean(values):
    return sum(values) / len(values)


def correlation(x, y):
    mx, my = mean(x), mean(y)
    xy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    return xy / math.sqrt(sum((a - mx)**2 for a in x) * sum((b - my)**2 for b in y))


def ranks(values):
    return [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]


def of_classes(targets, predicted, scores):
    classes = sorted({*targets, *predicted})

    def f1(c):
        right = sum(t == p == c for t, p in zip(targets, predicted))
        return 2 * right / (targets.count(c) + predicted.count(c))

    right, n = sum(t == p for t, p in zip(targets, predicted)), len(targets)
    products = [(predicted.count(c), targets.count(c)) for c in classes]
    found = {
        "eval_accuracy": right / n,
        "eval_f1": mean([f1(c) for c in classes]) if scores is None else f1(1),
        "eval_matthews": (right * n - sum(p * t for p, t in products)) /
        math.sqrt((n * n - sum(p * p for p, _ in products)) *
                  (n * n - sum(t * t for _, t in products)))}
    if scores is not None:
        ones = [s for s, t in zip(scores, targets) if t == 1]
        zeros = [s for s, t in zip(scores, targets) if t == 0]
        found["eval_auc"] = mean([(a > b) + (a == b) / 2 for a in ones for b in zeros])
    return found


def of_values(targets, predicted):
    m = mean(targets)
    return {
        "eval_mean_absolute_error": mean([abs(t - p) for t, p in zip(targets, predicted)]),
        "eval_r_squared": 1 - sum((t - p)**2 for t, p in zip(targets, predicted)) /
        sum((t - m)**2 for t in targets),
        "eval_pearson": correlation(predicted, targets),
        "eval_spearman": correlation(ranks(predicted), ranks(targets))}


def by_libraries(targets, predicted, scores, values):
    try:
        from scipy import stats
        from sklearn import metrics
    except ImportError:
        return {}
    if values:
        return {"eval_mean_absolute_error": metrics.mean_absolute_error(targets, predicted),
                "eval_r_squared": metrics.r2_score(targets, predicted),
                "eval_pearson": stats.pearsonr(predicted, targets)[0],
                "eval_spearman": stats.spearmanr(predicted, targets)[0]}
    average = "macro" if scores is None else "binary"
    found = {"eval_f1": metrics.f1_score(targets, predicted, average=average),
             "eval_matthews": metrics.matthews_corrcoef(targets, predicted)}
    if scores is not None:
        found["eval_auc"] = metrics.roc_auc_score(targets, scores)
    return found


class Bench:

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        write_table(folder / "train.csv", 400, 1, ["Oslo", "Rome", "Lima"])
        self.rows = write_table(folder / "eval.csv", 203, 2, ["Oslo", "Rome", "Lima", "Bergen"])
        self.failures = []

    def expect(self, holds, text):
        print(("" if holds else "FAILED: ") + text, flush=True)
        if not holds:
            self.failures.append(text)

    def config(self, name, target, loss):
        path = self.folder / f"{name}.textproto"
        ignore = [t for t in TARGETS if t != target]
        path.write_text(CONFIG.format(loss=loss, target=target, ignore=json.dumps(ignore)))
        return path

    def train(self, config, run, *sets, ranks=0, resume=()):
        arguments = ["--data", self.folder, *resume]
        for change in sets:
            arguments += ["--set", change]
        return lockstep_run.train(self.binary, config, self.folder / run, ranks, arguments)

    def command(self, name, config, run, *arguments, ranks=0, sets=()):
        out = self.folder / f"{name}.json"
        changes = [a for change in sets for a in ("--set", change)]
        done = lockstep_run.run(
            self.binary, [name, config, "--data", self.folder, "--checkpoint", self.folder / run,
                          "--json", out, *changes, *arguments], ranks)
        assert done.returncode == 0, done.stderr
        return json.loads(out.read_text()), done.stdout + done.stderr

    def outputs(self, config, run, sets=()):
        file = self.folder / "predicted.safetensors"
        self.command("predict", config, run, "--out", file, sets=sets)
        (rows, columns), values = lockstep_run.read_tensor(file, "output")
        return [list(values[i * columns:(i + 1) * columns]) for i in range(rows)]


def agrees(bench, name, expected, found):
    for metric, value in expected.items():
        bench.expect(abs(found[metric] - value) < TOLERANCE * max(1, abs(value)),
                     f"{name}: {metric} is {found[metric]}, and by the predictions {value}")


def metrics_of_tasks(bench):
    cases = {"two": ("two", "SOFTMAX_CROSS_ENTROPY", ()),
             "binary": ("two", "BINARY_CROSS_ENTROPY", ()),
             "three": ("three", "SOFTMAX_CROSS_ENTROPY", ()),
             "value": ("value", "MEAN_SQUARED_ERROR", ("data.table.standardise_target=true", ))}
    for name, (target, loss, sets) in cases.items():
        config = bench.config(name, target, loss)
        trained = bench.train(config, name, *sets)
        evaluated = {n: bench.command("eval", config, name, ranks=n, sets=sets) for n in (0, 1, 2, 4)}
        alone, text = evaluated[0]
        bench.expect(all(found == alone for found, _ in evaluated.values()),
                     f"{name}: the same numbers on 1, 2 and 4 ranks")
        bench.expect(all(trained[k] == v for k, v in alone.items() if k.startswith("eval_")),
                     f"{name}: training ends with the same")
        line = lockstep_run.metrics(bench.folder / name)[-1]
        bench.expect(all(line[k] == v for k, v in alone.items() if k.startswith("eval_")),
                     f"{name}: metrics.jsonl has them")
        bench.expect("'Bergen'" in text and "no training row has" in text,
                     f"{name}: the category that is new is said")
        outputs = bench.outputs(config, name, sets)
        if target == "value":
            targets, predicted = [float(row[target]) for row in bench.rows], [o[0] for o in outputs]
            expected = of_values(targets, predicted)
            # The loss is of what was standardised by the training rows.
            train = [float(line.split(",")[5])
                     for line in (bench.folder / "train.csv").read_text().splitlines()[1:]]
            variance = mean([(t - mean(train))**2 for t in train])
            expected["eval_loss"] = mean([(t - p)**2 for t, p in zip(targets, predicted)]) / variance
            bench.expect(alone["eval_r_squared"] > 0.4, f"{name}: it has learned")
            scores = None
        else:
            names = sorted({row[target] for row in bench.rows})
            targets = [names.index(row[target]) for row in bench.rows]
            if len(outputs[0]) == 1:
                scores = [o[0] for o in outputs]
                predicted = [int(s > 0) for s in scores]
            else:
                predicted = [o.index(max(o)) for o in outputs]
                scores = [o[1] - o[0] for o in outputs] if len(names) == 2 else None
            expected = of_classes(targets, predicted, scores)
        agrees(bench, name, expected, alone)
        agrees(bench, f"{name}, by the libraries",
               by_libraries(targets, predicted, scores, target == "value"), alone)
        table_of_predictions(bench, config, name, target, sets, alone)


def report_by_loops(labels, predicted):
    classes = sorted({*labels, *predicted})
    rows = []
    for c in classes:
        right = sum(t == p == c for t, p in zip(labels, predicted))
        rows.append({"class": c, "support": labels.count(c),
                     "precision": right / max(predicted.count(c), 1),
                     "recall": right / max(labels.count(c), 1),
                     "f1": 2 * right / (labels.count(c) + predicted.count(c))})
    pairs = {}
    for pair in zip(labels, predicted):
        pairs[pair] = pairs.get(pair, 0) + 1
    return rows, pairs


def table_of_predictions(bench, config, name, target, sets, evaluated):
    """A table's labels are the file's, its predictions have the metrics of `eval`, and both commands
    make the same report, which is that of the table's rows."""
    out = bench.folder / "predicted.csv"
    found, text = bench.command("predict", config, name, "--out", out, "--report", sets=sets)
    judged, judged_text = bench.command("eval", config, name, "--report", ranks=2, sets=sets)
    agrees(bench, f"{name}, predict", {k: v for k, v in evaluated.items() if k.startswith("eval_")},
           found)
    bench.expect(found["labelled"] == len(bench.rows), f"{name}: all labels are found")
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    report = found["report"]
    if target == "value":
        labels, predicted = ([float(row[column]) for row in rows] for column in ("label", "value"))
        bench.expect(all(abs(a - float(b["value"])) < 1e-3 for a, b in zip(labels, bench.rows)),
                     f"{name}: the values are those of the file")
        errors = [t - p for t, p in zip(labels, predicted)]
        agrees(bench, f"{name}, report", {"root_mean_squared_error": math.sqrt(mean([e * e for e in errors])),
                                          "mean_absolute_error": mean([abs(e) for e in errors])},
               report["outputs"][0])
        agrees(bench, f"{name}, eval's report", report["outputs"][0], judged["report"]["outputs"][0])
        return
    labels, predicted = ([row[column] for row in rows] for column in ("label", "predicted"))
    bench.expect(labels == [row[target] for row in bench.rows], f"{name}: the labels are the file's")
    bench.expect(report == judged["report"], f"{name}: predict and eval make the same report")
    wanted, pairs = report_by_loops(labels, predicted)
    for mine, one in zip(report["classes"], wanted, strict=True):
        bench.expect(mine["class"] == one["class"], f"{name}: a row for {one['class']}")
        agrees(bench, f"{name}, {one['class']}", {k: one[k] for k in one if k != "class"}, mine)
    cells = {(cell["label"], cell["predicted"]): cell["count"] for cell in report["confusion"]}
    bench.expect(cells == pairs, f"{name}: the confusion matrix is {cells}, and by the rows {pairs}")
    agrees(bench, f"{name}, mean", {"f1": mean([row["f1"] for row in wanted]),
                                    "support": len(rows)}, report["mean"])
    agrees(bench, f"{name}, weighted mean",
           {"f1": sum(row["f1"] * row["support"] for row in wanted) / len(rows)},
           report["weighted_mean"])
    table = text[text.index("class "):text.index("step ", text.index("class "))]
    bench.expect(table in judged_text and "confusion matrix" in table, f"{name}: {table}")


def best_by_metric(bench):
    config = bench.config("best", "three", "SOFTMAX_CROSS_ENTROPY")
    found = bench.train(config, "best", "eval.best=F1", "eval.every=5", "schedule.lr=0.05")
    lines = [line for line in lockstep_run.metrics(bench.folder / "best") if "eval_f1" in line]
    best = max(lines, key=lambda line: line["eval_f1"])
    bench.expect((found["best_step"], found["best_metric"]) == (best["step"], best["eval_f1"]),
                 f"the best checkpoint is that of step {best['step']}, by F1")
    refused = lockstep_run.run(
        bench.binary, ["train", config, "--data", bench.folder, "--run-dir", bench.folder / "iou",
                       "--set", "eval.best=MEAN_IOU"], 0)
    bench.expect(refused.returncode == 2 and "eval.best: value is MEAN_IOU" in refused.stderr,
                 f"a metric of pixels is refused: {refused.stderr.strip()}")


def weights_of_classes(bench):
    for name, loss, weights in (("weighted", "SOFTMAX_CROSS_ENTROPY", (0.25, 0.05)),
                                ("weighted_binary", "BINARY_CROSS_ENTROPY", (0.25, 2.0))):
        config = bench.config(name, "two", loss)
        change = "train.class_weights=" + ",".join(map(str, weights))
        hashes = {bench.train(config, f"{name}{n}", change, ranks=n)["weights_hash"]
                  for n in (1, 2, 4)}
        bench.expect(len(hashes) == 1, f"{name}: the same weights on 1, 2 and 4 ranks")
        plain = bench.train(config, f"{name}_plain")["weights_hash"]
        bench.expect(plain not in hashes, f"{name}: others than without weights")
        found, _ = bench.command("eval", config, f"{name}1", sets=(change, ))
        outputs = bench.outputs(config, f"{name}1", sets=(change, ))
        targets = [int(row["two"] == "yes") for row in bench.rows]
        scores = [o[0] if len(o) == 1 else o[1] - o[0] for o in outputs]
        losses = [math.log1p(math.exp(-s if t else s)) for s, t in zip(scores, targets)]
        weighed = (sum(weights[t] * x for x, t in zip(losses, targets)) /
                   sum(weights[t] for t in targets))
        accuracy = mean([int((s > 0) == t) for s, t in zip(scores, targets)])
        agrees(bench, name, {"eval_loss": weighed, "eval_accuracy": accuracy}, found)
    # The gradient too: with weights of equal size the training is the same.
    config = bench.config("equal", "three", "SOFTMAX_CROSS_ENTROPY")
    losses = [bench.train(config, f"equal{i}", *change)["loss"]
              for i, change in enumerate([(), ("train.class_weights=0.5,0.5,0.5", )])]
    bench.expect(abs(losses[0] - losses[1]) < 1e-4 * losses[0],
                 f"equal weights change nothing: loss {losses[0]} and {losses[1]}")
    refused = lockstep_run.run(
        bench.binary, ["train", config, "--data", bench.folder, "--run-dir", bench.folder / "no",
                       "--set", "train.class_weights=1,2"], 0)
    bench.expect(refused.returncode == 2 and "of which there are 3" in refused.stderr,
                 f"two weights for three classes are refused: {refused.stderr.strip()}")


def plateau(bench):
    config = bench.config("plateau", "three", "SOFTMAX_CROSS_ENTROPY")
    sets = ("schedule.kind=PLATEAU", "schedule.lr=0.2", "schedule.patience=1",
            "schedule.plateau_factor=0.5", "schedule.min_lr=0.02", "eval.every=3", "train.steps=90",
            "checkpoint.every=30", "train.hash_every=1")
    whole = bench.train(config, "plateau", *sets)
    lines = lockstep_run.metrics(bench.folder / "plateau")
    best, bad, rate, falls = math.inf, 0, 0.2, 0
    for line in lines:
        bench_rate = line["lr"]
        if abs(bench_rate - rate) > 1e-6:
            bench.expect(False, f"step {line['step']}: the rate is {bench_rate}, and not {rate}")
            return
        if "eval_loss" not in line:
            continue
        bad = 0 if line["eval_loss"] < best else bad + 1
        best = min(best, line["eval_loss"])
        if bad > 1:  # as torch.optim.lr_scheduler.ReduceLROnPlateau(patience=1, threshold=0)
            bad, falls, rate = 0, falls + 1, max(rate * 0.5, 0.02)
    bench.expect(falls > 2, f"the rate has fallen {falls} times, down to {rate}")
    for n in (2, 4):
        found = bench.train(config, f"plateau{n}", *sets, ranks=n)
        bench.expect(found["weights_hash"] == whole["weights_hash"], f"the same on {n} ranks")
    bench.train(config, "resumed", *sets, resume=("--max-steps", 50))
    found = bench.train(config, "resumed", *sets, ranks=2, resume=("--resume", "auto"))
    bench.expect(found["weights_hash"] == whole["weights_hash"], "the same after a resume at 50")
    replayed = lockstep_run.run(bench.binary,
                                ["replay", bench.folder / "plateau", "--step", 58], 0)
    bench.expect(replayed.returncode == 0, f"a replay agrees: {replayed.stdout.strip()}")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-metrics-") as folder:
        bench = Bench(binary, pathlib.Path(folder))
        for part in (metrics_of_tasks, best_by_metric, weights_of_classes, plateau):
            part(bench)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
