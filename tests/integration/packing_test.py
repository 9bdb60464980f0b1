#!/usr/bin/env python3
"""Catches: padding or tokens across borders that count in the loss, recomputation or rows of logits
that change packed samples, fields that go together and are not asked for.

packing_test.py BINARY: trains a GPT on documents of generated tokens, packed into samples; with
recomputation and logits some rows at a time its weights_hash must be the same. Then evaluates its
weights on the same documents, each in a sample of its own: the loss, which is the mean over the
tokens that are counted, must be that of packed ones.
"""
import array
import json
import pathlib
import random
import sys
import tempfile

import lockstep_run

CONFIG = """
model { gpt { layers: 2 heads: 2 width: 32 context: 40 vocabulary: 50 } }
data {
  tokens { train: "tokens.bin" train_documents: "documents.bin" packing: BEST_FIT
           eval: "tokens.bin" eval_documents: "documents.bin" }
  dir: "FOLDER"
}
train { global_batch: 8 lanes: 2 steps: 20 log_every: 10 }
optimizer { adamw {} }
schedule { lr: 0.01 }
execution { threads: 1 }
output { tensorboard: false }
"""
# Sums over the same tokens in other orders, in floats.
LOSS_TOLERANCE = 1e-5
USAGE, DATA = 2, 3  # exit codes


def write_documents(folder):
    draw, tokens, borders = random.Random(3), array.array("H"), array.array("Q")
    for length in [1, 2, 40, 41, 42, 90] + [draw.randrange(1, 60) for _ in range(150)]:
        borders.append(len(tokens))
        tokens.extend((draw.randrange(50) if i % 3 == 0 else (7 * tokens[-1] + 1) % 50)
                      for i in range(length))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "documents.bin").write_bytes(borders.tobytes())
    return sum(max(0, b - a - 1) for a, b in zip(borders, [*borders[1:], len(tokens)]))


def main(binary):
    expect = lockstep_run.Expectations()

    with tempfile.TemporaryDirectory(prefix="lockstep-packing-") as folder:
        folder = pathlib.Path(folder)
        write_documents(folder)
        config = folder / "config.textproto"
        config.write_text(CONFIG.replace("FOLDER", str(folder)))
        whole = lockstep_run.train(binary, config, folder / "whole")
        losses = [line["loss"] for line in lockstep_run.metrics(folder / "whole")]
        expect(losses[-1] < losses[0], f"the loss falls: {losses[0]} to {losses[-1]}")
        for label, changes in {"recomputed": ["execution.recompute=BLOCKS"],
                               "logits of 7 tokens at a time": ["execution.loss_rows=7"]}.items():
            run_dir = folder / changes[0].replace("=", "_")
            other = lockstep_run.train(binary, config, run_dir, 1, lockstep_run.sets(*changes))
            expect(other["weights_hash"] == whole["weights_hash"],
                   f"{label}: {other['weights_hash']}, {whole['weights_hash']}")

        def evaluate(*changes):
            out = folder / "eval.json"
            done = lockstep_run.run(binary, ["eval", config, "--checkpoint", folder / "whole",
                                             "--json", out, *lockstep_run.sets(*changes)])
            if done.returncode != 0:
                raise RuntimeError(f"{done.stdout}\n{done.stderr}")
            return json.loads(out.read_text())["eval_loss"]

        packed, padded = evaluate(), evaluate("data.tokens.packing=PADDED")
        expect(abs(packed - padded) <= LOSS_TOLERANCE * packed, f"packed {packed}, padded {padded}")
        one_sequence = evaluate("data.tokens.packing=NONE", "data.tokens.train_documents=",
                                "data.tokens.eval_documents=")
        expect(abs(packed - one_sequence) > 100 * LOSS_TOLERANCE * packed,
               f"as one sequence {one_sequence}")

        def refused(code, parts, *changes):
            done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "refused",
                                             *lockstep_run.sets(*changes)], ranks=0)
            message = (done.stdout + done.stderr).strip().splitlines()[-1]
            expect(done.returncode == code and all(part in message for part in parts),
                   f"exit code {done.returncode}: {message}")

        refused(USAGE, ["data.tokens.train_documents", "packing"], "data.tokens.packing=NONE")
        refused(USAGE, ["data.tokens.eval_documents", "''"], "data.tokens.eval_documents=")
        (folder / "short.bin").write_bytes(b"123")
        refused(DATA, ["short.bin", "3 bytes"], "data.tokens.train_documents=short.bin")
    return expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
