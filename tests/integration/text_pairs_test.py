#!/usr/bin/env python3
"""Catches: recall or a correlation that is not that of the vectors that `predict` writes, or another
one on other ranks; vectors of a file of single texts that are not those of the pairs; an exported
folder that is none of sentence-transformers', or that comes back as another network; fields that
have no effect and are not refused; a loss of 0 where vectors do not fit into memory.

text_pairs_test.py BINARY
"""
import json
import math
import pathlib
import random
import sys
import tempfile

import lockstep_run

CONFIG = """
model {{ bert {{ layers: 1 heads: 2 width: 32 mlp_width: 64 context: 12 task: EMBEDDINGS pooling: MEAN }} }}
data {{ text_pairs {{ train: "train.tsv" eval: "{eval}" tokenizer: "vocab.txt" {more} }} }}
train {{ global_batch: 32 lanes: 4 steps: 60 {train} }}
optimizer {{ adamw {{}} }}
schedule {{ lr: 0.003 }}
output {{ tensorboard: false }}
"""
WORDS = [f"w{i}" for i in range(60)]


def write_data(folder):
    draw = random.Random(5)
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")

    def pair():
        words = draw.sample(WORDS, 6)
        return " ".join(words), " ".join(draw.sample(words, 4))

    for name, rows in (("train", 400), ("eval", 70)):
        lines = ["anchor\tpositive"] + ["\t".join(pair()) for _ in range(rows)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    scored = []
    for _ in range(70):
        first, second = draw.sample(WORDS, 6), draw.sample(WORDS, 6)
        shared = draw.randint(0, 5)
        second[:shared] = first[:shared]
        scored.append({"anchor": " ".join(first), "positive": " ".join(second), "score": shared})
    (folder / "scored.jsonl").write_text("".join(json.dumps(row) + "\n" for row in scored))
    texts = [line.split("\t")[0] for line in (folder / "eval.tsv").read_text().splitlines()[1:]]
    lines = (folder / "eval.tsv").read_text().splitlines()
    (folder / "marks.tsv").write_text("\n".join([lines[0], '"' + lines[1], *lines[2:]]) + "\n")
    (folder / "single.tsv").write_text("text\n" + "\n".join(texts) + "\n")
    return [row["score"] for row in scored]


def product(a, b):
    return sum(x * y for x, y in zip(a, b))


def recall(pairs, k):
    found = 0
    for i, (anchor, own) in enumerate(pairs):
        mine = product(anchor, own)
        found += sum(j != i and product(anchor, other) >= mine
                     for j, (_, other) in enumerate(pairs)) < k
    return found / len(pairs)


def loss(pairs, batch, temperature):
    total = 0
    for i, (anchor, own) in enumerate(pairs):
        first = i // batch * batch
        candidates = [product(anchor, other) / temperature for _, other in pairs[first:first + batch]]
        total += math.log(sum(map(math.exp, candidates))) - product(anchor, own) / temperature
    return total / len(pairs)


def correlation(x, y):
    mx, my = sum(x) / len(x), sum(y) / len(y)
    xy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    return xy / math.sqrt(sum((a - mx)**2 for a in x) * sum((b - my)**2 for b in y))


def ranks(values):
    return [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]


class Bench:

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.scores = write_data(folder)

    def config(self, eval="eval.tsv", more="", train=""):
        path = self.folder / "config.textproto"
        path.write_text(CONFIG.format(eval=eval, more=more, train=train))
        return path

    def run(self, *arguments, ranks=0, code=0):
        done = lockstep_run.run(self.binary, arguments, ranks, cwd=self.folder)
        assert done.returncode == code, (arguments, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def evaluate(self, config, ranks=0):
        out = self.folder / "eval.json"
        self.run("eval", config, "--checkpoint", "run", "--json", out, ranks=ranks)
        return json.loads(out.read_text())

    def vectors(self, config, *sets):
        out = self.folder / "vectors.safetensors"
        changes = [a for change in sets for a in ("--set", change)]
        self.run("predict", config, "--checkpoint", "run", "--out", out, *changes)
        (rows, columns), values = lockstep_run.read_tensor(out, "output")
        return [list(values[i * columns:(i + 1) * columns]) for i in range(rows)]


def pairs_are_found(bench):
    config = bench.config()
    bench.run("train", config, "--run-dir", "run")
    found = bench.evaluate(config)
    assert bench.evaluate(config, ranks=2) == found, found
    assert found["eval_recall_at_1"] > 0.5, found  # it has learned: at random it is 1 / 70
    vectors = bench.vectors(config)
    pairs = [(row[:32], row[32:]) for row in vectors]
    assert all(abs(product(v, v) - 1) < 1e-5 for pair in pairs for v in pair)
    for k in (1, 5, 10):
        assert found[f"eval_recall_at_{k}"] == recall(pairs, k), (k, found, recall(pairs, k))
    assert abs(found["eval_loss"] - loss(pairs, 32, 0.05)) < 1e-4, (found, loss(pairs, 32, 0.05))
    texts = bench.folder / "single.textproto"
    texts.write_text(config.read_text().replace(
        config.read_text().split("data {")[1].split("\n")[0],
        ' labelled_text { train: "single.tsv" eval: "single.tsv" tokenizer: "vocab.txt" } }'))
    single = bench.vectors(texts)
    assert len(single[0]) == 32 and all(
        abs(a - b) < 1e-6 for row, (anchor, _) in zip(single, pairs) for a, b in zip(row, anchor))
    message = bench.run("train", texts, code=2)
    assert "use data.text_pairs" in message, message


def marks_are_text(bench):
    """One that is never closed, in the first anchor."""
    found = bench.evaluate(bench.config("marks.tsv", "quotes: false"))
    assert found["samples"] == 70, found
    message = bench.run("eval", bench.config("marks.tsv"), "--checkpoint", "run", code=3)
    assert "marks.tsv" in message and "set quotes: false" in message, message


def cosines_follow_similarities(bench):
    config = bench.config("scored.jsonl", 'similarity: "score"')
    found = bench.evaluate(config)
    cosines = [product(row[:32], row[32:]) for row in bench.vectors(config)]
    pearson = correlation(cosines, bench.scores)
    spearman = correlation(ranks(cosines), ranks(bench.scores))
    assert "eval_recall_at_1" not in found, found
    assert abs(found["eval_pearson"] - pearson) < 1e-5 and pearson > 0.5, (found, pearson)
    assert abs(found["eval_spearman"] - spearman) < 1e-5, (found, spearman)


def folder_is_one_of_sentence_transformers(bench):
    config = bench.config()
    bench.run("export", "run", "--format", "huggingface", "--out", "folder")
    folder = bench.folder / "folder"
    kinds = [part["type"] for part in json.loads((folder / "modules.json").read_text())]
    assert [kind.split(".")[-1] for kind in kinds] == ["Transformer", "Pooling", "Normalize"], kinds
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] and pooling["word_embedding_dimension"] == 32
    before = bench.evaluate(config)
    text = config.read_text().replace(config.read_text().split("\n")[1],
                                      'model { from: "folder" bert { task: EMBEDDINGS } }')
    config.write_text(text)
    bench.run("import", config, folder, "--out", "again")
    out = bench.folder / "again.json"
    bench.run("eval", config, "--checkpoint", "again", "--json", out)
    again = json.loads(out.read_text())
    assert all(again[k] == v for k, v in before.items() if k.startswith("eval_")), (before, again)


def refusals(bench):
    for train, sets, words in (
            ("", ["execution.length_buckets=[4]"], "execution.length_buckets"),
            ("", ["train.global_batch=1", "train.lanes=1"], "train.global_batch"),
            ("", ["model.bert.task=SEQUENCE_CLASSES"], "data.text_pairs"),
            ("", ["eval.best=F1"], "RECALL_AT_1"),
            ("contrastive { temperature: 0 }", [], "train.contrastive.temperature")):
        changes = [a for change in sets for a in ("--set", change)]
        message = bench.run("train", bench.config(train=train), "--run-dir", "refused", *changes, code=2)
        assert words in message, (sets, message)
    message = bench.run("plan", bench.config(), "--ranks", "2", "--set", "comm.zero_stage=2", code=2)
    assert "a loss of pairs, which interleaves the lanes of a rank" in message, message


def too_many_vectors(bench):
    """All of them would take more than 1 GiB, in `eval` too."""
    path = bench.folder / "many.textproto"
    path.write_text("""
model { bert { layers: 1 heads: 1 width: 1024 mlp_width: 8 context: 4 vocabulary: 50 task: EMBEDDINGS } }
data { synthetic { samples: 140000 } eval_fraction: 0.999 }
train { global_batch: 4 steps: 1 }
optimizer { sgd {} }
schedule { lr: 0.01 }
eval { max_samples: 8 }
output { tensorboard: false }
""")
    bench.run("train", path, "--run-dir", "many")
    message = bench.run("eval", "many", "--set", "eval.max_samples=0", code=2)
    assert "eval.max_samples: value is 0; allowed: 1 to 130673" in message, message


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-pairs-") as name:
        bench = Bench(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(name))
        for test in (pairs_are_found, marks_are_text, cosines_follow_similarities,
                     folder_is_one_of_sentence_transformers, refusals,
                     too_many_vectors):
            test(bench)
            print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
