#!/usr/bin/env python3
"""Sentence embeddings beside sentence-transformers.

    compare_embeddings.py LOCKSTEP MRPC VOCABULARY

MRPC is a folder with train.tsv and dev.tsv of GLUE's MRPC, VOCABULARY the vocab.txt of BERT. Both
programs train a BERT of three layers of width 192 with the same first weights on the paraphrases among
the training pairs, in the same batches, with the multiple negatives ranking loss, and are judged by the
dev pairs: how often the paraphrase is the nearest of all (recall), and the rank correlation of
similarities and labels (Spearman). They run in turns, --turns times; rates are pairs a second over all
steps. Needs torch, transformers, sentence-transformers, scipy.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import scipy.stats
import sentence_transformers
import torch
import transformers
from sentence_transformers import losses, models

BATCH, EPOCHS, RATE, CONTEXT = 64, 3, 3e-4, 64
CONFIG = """
model {{ from: "base" bert {{ task: EMBEDDINGS pooling: MEAN context: {context} }} }}
data {{ shuffle: false text_pairs {{ train: "train.jsonl" eval: "eval.jsonl" }} }}
train {{ global_batch: {batch} epochs: 1 lanes: 2 }}
optimizer {{ adamw {{}} }}
schedule {{ lr: {rate} }}
execution {{ threads: {threads} }}
output {{ tensorboard: false }}
"""


def read_pairs(path):
    lines = path.read_text(encoding="utf-8-sig").splitlines()[1:]
    return [(cells[3], cells[4], int(cells[0])) for cells in (line.split("\t") for line in lines)]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def make_base(folder, vocabulary):
    folder.mkdir()
    (folder / "vocab.txt").write_text(vocabulary.read_text())
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    transformers.BertModel(transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=192, num_hidden_layers=3, num_attention_heads=6,
        intermediate_size=768, max_position_embeddings=CONTEXT, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0), add_pooling_layer=False).save_pretrained(folder)


def train_peer(folder, batches, answers, dev):
    """pairs a second, losses, recall@1, Spearman"""
    word = models.Transformer(str(folder / "base"), max_seq_length=CONTEXT)
    model = sentence_transformers.SentenceTransformer(
        modules=[word, models.Pooling(word.get_word_embedding_dimension(), "mean"), models.Normalize()],
        device="cpu")
    tokenize = getattr(model, "preprocess", None) or model.tokenize
    loss_of = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0)
    model.train()
    found, start = [], time.perf_counter()
    for batch in batches:
        loss = loss_of([tokenize([pair[side] for pair in batch]) for side in (0, 1)], None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    rate = len(batches) * BATCH / (time.perf_counter() - start)
    model.eval()
    encode = lambda pairs: [torch.tensor(model.encode([pair[side] for pair in pairs], show_progress_bar=False))
                            for side in (0, 1)]
    a, b = encode(answers)
    recall = ((a @ b.T).argmax(1) == torch.arange(len(a))).float().mean().item()
    a, b = encode(dev)
    spearman = scipy.stats.spearmanr((a * b).sum(1), [label for _, _, label in dev])[0]
    return rate, found, recall, spearman


def run(lockstep, folder, *arguments):
    done = subprocess.run([lockstep, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


def train_ours(lockstep, folder, turn, threads):
    (folder / "config.textproto").write_text(
        CONFIG.format(context=CONTEXT, batch=BATCH, rate=RATE, threads=threads))
    run(lockstep, folder, "train", "config.textproto", "--run-dir", f"run-{turn}", "--device", "cpu")
    lines = (folder / f"run-{turn}" / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if "loss" in record]
    run(lockstep, folder, "eval", "config.textproto", "--checkpoint", f"run-{turn}", "--json", "scored.json",
        "--set", "data.text_pairs.eval=scored.jsonl", "--set", "data.text_pairs.similarity=score")
    scored = json.loads((folder / "scored.json").read_text())
    rate = 1000 * BATCH * len(steps) / sum(step["step_ms"] for step in steps)
    return rate, [step["loss"] for step in steps], steps[-1]["eval_recall_at_1"], scored["eval_spearman"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("mrpc", type=pathlib.Path)
    parser.add_argument("vocabulary", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train = [pair for pair in read_pairs(options.mrpc / "train.tsv") if pair[2] == 1]
    dev = read_pairs(options.mrpc / "dev.tsv")
    answers = [pair for pair in dev if pair[2] == 1]
    draw, order = random.Random(1), []
    for _ in range(EPOCHS):
        order += draw.sample(train, len(train))
    batches = [order[begin:begin + BATCH] for begin in range(0, len(order) - BATCH + 1, BATCH)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_base(folder / "base", options.vocabulary)
        write_lines(folder / "train.jsonl", ({"anchor": a, "positive": b} for batch in batches for a, b, _ in batch))
        write_lines(folder / "eval.jsonl", ({"anchor": a, "positive": b} for a, b, _ in answers))
        write_lines(folder / "scored.jsonl", ({"anchor": a, "positive": b, "score": label} for a, b, label in dev))
        results = {"sentence-transformers": [], "Lockstep": []}
        for turn in range(options.turns):
            results["sentence-transformers"].append(train_peer(folder, batches, answers, dev))
            results["Lockstep"].append(train_ours(options.lockstep.resolve(), folder, turn, options.threads))
    for name, found in results.items():
        _, found_losses, recall, spearman = found[0]
        print(f"{name}: {statistics.median(rate for rate, *_ in found):.0f} pairs/s, last loss "
              f"{found_losses[-1]:.6f}, recall@1 {recall:.4f}, Spearman {spearman:.4f}")
    theirs, ours = (found[0][1] for found in results.values())
    worst = max(abs(a - b) / b for a, b in zip(ours[:20], theirs))
    print(f"losses of the first 20 steps are off by at most {worst:.1e}")


if __name__ == "__main__":
    main()
