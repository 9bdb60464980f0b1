"""What `lockstep predict` writes, beside what `lockstep eval` finds; a part of commands_test.py."""
import csv
import json
import math

import lockstep_run


def predicts(bench):
    """The outputs are those that eval judges, in the set's order, the same bytes on any number of
    ranks."""
    out, judged = bench.folder / "outputs.safetensors", bench.folder / "eval.json"
    checkpoint = ("--data", bench.folder, "--checkpoint", bench.folder / "mlp")
    files = set()
    for ranks in (0, 2, 4):
        bench.run("predict", bench.mlp, *checkpoint, "--out", out, ranks=ranks)
        files.add(out.read_bytes())
    assert len(files) == 1, "other outputs on another number of ranks"
    shape, values = lockstep_run.read_tensor(out, "output")
    assert shape == [101, 2], shape
    content = out.read_bytes()
    told = lockstep_run.read_metadata(out)
    assert json.loads(told["classes"]) == ["heavy", "light"] and "files" not in told, told
    rows = (bench.folder / "eval.csv").read_text().split()
    (bench.folder / "inputs.csv").write_text(
        "\n".join(row.rsplit(",", 1)[0] for row in rows) + "\n")
    bench.run("predict", bench.mlp, *checkpoint, "--out", out, "--json", judged, "--set",
              "data.table.eval=inputs.csv")
    assert out.read_bytes() == content, "other outputs without the target's column"
    assert json.loads(judged.read_text())["classes"] == ["heavy", "light"], judged.read_text()
    labels = [
        line.rsplit(",", 1)[1] for line in (bench.folder / "eval.csv").read_text().split()[1:]]
    right = sum(
        (values[2 * i + 1] > values[2 * i]) == (label == "light") for i, label in enumerate(labels))
    bench.run("eval", bench.mlp, *checkpoint, "--json", judged)
    accuracy = json.loads(judged.read_text())["eval_accuracy"]
    assert abs(accuracy - right / 101) < 1e-9, (accuracy, right)
    tables(bench, checkpoint, labels, values, accuracy)
    # Of a language model the losses, of which eval has the mean, and the logits that they are of.
    gpt, files = ("--data", bench.folder, "--checkpoint", bench.folder / "gpt"), set()
    for ranks in (0, 2):
        bench.run("predict", bench.gpt, *gpt, "--out", out, "--logits", ranks=ranks)
        files.add(out.read_bytes())
    assert len(files) == 1, "other losses on another number of ranks"
    (_, loss), (_, counted) = (lockstep_run.read_tensor(out, name) for name in ("loss", "counted"))
    shape, losses = lockstep_run.read_tensor(out, "token_loss")
    assert shape == [len(loss), int(counted[0])] and abs(sum(losses) - sum(loss)) < 1e-3, shape
    bench.run("eval", bench.gpt, *gpt, "--json", judged)
    mean = json.loads(judged.read_text())["eval_loss"]
    assert abs(sum(loss) / sum(counted) - mean) < 1e-5 * mean, (sum(loss) / sum(counted), mean)
    logits_shape, logits = lockstep_run.read_tensor(out, "output")
    assert logits_shape[:2] == shape, logits_shape
    row = logits[:logits_shape[2]]
    wanted = [math.log(sum(map(math.exp, row))) - value for value in row]
    assert min(abs(value - losses[0]) for value in wanted) < 1e-4, losses[0]
    documents, files = bench.folder / "documents.csv", set()
    for ranks in (0, 2):
        bench.run("predict", bench.gpt, *gpt, "--out", documents, ranks=ranks)
        files.add(documents.read_bytes())
    assert len(files) == 1, "other documents on another number of ranks"
    with documents.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == ["row", "document", "counted", "loss"], found[0]
    assert abs(sum(float(row["loss"]) for row in found) - sum(loss)) < 1e-3, found
    array = bench.folder / "losses.npy"
    bench.run("predict", bench.gpt, *gpt, "--out", array)
    assert array.read_bytes().endswith(losses.tobytes()), "other losses in the array"
    done = bench.run("predict", bench.gpt, *gpt, "--out", documents, "--logits", code=2)
    assert "--out .npy or .safetensors" in done.stderr, done.stderr
    done = bench.run("predict", bench.gpt, *gpt, "--out", documents, "--report", code=2)
    assert "--report: allowed only with models that predict a class or values" in done.stderr
    bench.run("predict", bench.mlp, *checkpoint, "--out", out, "--logits", code=2)
    bench.run("predict", bench.mlp, *checkpoint, "--out", bench.folder, code=2)


def tables(bench, checkpoint, labels, values, accuracy):
    """Tables have the outputs' probabilities by name, the labels that are there, and what eval finds;
    the same bytes on any number of ranks."""
    found, judged = {}, bench.folder / "table.json"
    for ending in ("csv", "tsv", "jsonl", "npy"):
        files, out = set(), bench.folder / f"table.{ending}"
        for ranks in (0, 2) if ending in ("csv", "npy") else (0, ):
            done = bench.run("predict", bench.mlp, *checkpoint, "--out", out, "--json", judged,
                             ranks=ranks)
            files.add(out.read_bytes())
        assert len(files) == 1, f"another {ending} on another number of ranks"
        found[ending] = files.pop()
        assert abs(json.loads(judged.read_text())["eval_accuracy"] - accuracy) < 1e-9, done.stdout
        assert "on 101 samples\n" in done.stdout, done.stdout
    rows = list(csv.DictReader(found["csv"].decode().splitlines()))
    assert list(rows[0]) == ["row", "line", "label", "predicted", "probability", "heavy", "light"]
    assert [row["label"] for row in rows] == labels
    assert rows == list(csv.DictReader(found["tsv"].decode().splitlines(), delimiter="\t"))
    objects = [json.loads(line) for line in found["jsonl"].splitlines()]
    for i, (row, one) in enumerate(zip(rows, objects, strict=True)):
        assert {name: str(value) for name, value in one.items() if name in ("row", "label", "predicted")
                } == {name: row[name] for name in ("row", "label", "predicted")}, (row, one)
        assert int(row["row"]) == i and int(row["line"]) == i + 2, row
        light = 1 / (1 + math.exp(values[2 * i] - values[2 * i + 1]))
        for name, wanted in (("light", light), ("heavy", 1 - light)):
            assert abs(float(row[name]) - wanted) < 1e-6 and float(row[name]) == one[name], (row, one)
        assert row["predicted"] == ("light" if light > 0.5 else "heavy"), row
        assert row["probability"] == row[row["predicted"]], row
    assert found["npy"].endswith(values.tobytes()) and b"'shape': (101, 2, )" in found["npy"]
    out = bench.folder / "table.csv"
    done = bench.run("predict", bench.mlp, *checkpoint, "--out", out, "--json", judged, "--report",
                     "--set", "data.table.eval=inputs.csv")
    assert "label" not in out.read_text().splitlines()[0], out.read_text()[:200]
    assert "eval_accuracy" not in json.loads(judged.read_text()) and "no labels" in done.stderr
