#!/usr/bin/env python3
"""Catches: steps of several lengths that lose tokens or count padding, lengths that depend on who
computes a lane, and numbers that are not finite searched for in tensors of another length.

length_buckets_test.py BINARY: trains a GPT on padded documents with and without
execution.length_buckets. Losses, of the evaluation too, must agree; weights_hash must be the same on
1, 2 and 4 ranks, in every ZeRO stage, with recomputation, and after going on from a checkpoint on
another number of ranks. With dropout, whose masks go by the elements of a tensor, other losses show
that shorter graphs have run. And what `lockstep plan` prints, and what is refused.
"""
import array
import json
import pathlib
import random
import sys
import tempfile

import lockstep_run

CONFIG = """
model { gpt { layers: 2 heads: 2 width: 32 context: 64 vocabulary: 50 } }
data {
  tokens { train: "tokens.bin" train_documents: "documents.bin" packing: PADDED
           eval: "tokens.bin" eval_documents: "documents.bin" }
  dir: "FOLDER"
}
train { global_batch: 16 lanes: 4 steps: 24 log_every: 10 }
eval { every: 12 }
optimizer { adamw {} }
schedule { lr: 0.01 }
comm { bucket_mib: 0.01 }
execution { threads: 1 loss_rows: 100 }
output { tensorboard: false }
"""
BUCKETS = "execution.length_buckets=8,16,32"
# Padding adds zeros to sums of floats, which may be cut into other parts.
LOSS_TOLERANCE = 1e-6
USAGE, NUMERIC = 2, 7  # exit codes


def write_documents(folder):
    """Mostly short ones; some fill the context, some lie at the lengths' borders."""
    draw, tokens, borders = random.Random(3), array.array("H"), array.array("Q")
    lengths = [2, 8, 9, 10, 16, 17, 18, 33, 34, 64, 65, 66]
    for length in lengths + [1 + int(draw.expovariate(1 / 12)) for _ in range(250)]:
        borders.append(len(tokens))
        tokens.extend((draw.randrange(50) if i % 3 == 0 else (7 * tokens[-1] + 1) % 50)
                      for i in range(length))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "documents.bin").write_bytes(borders.tobytes())


def main(binary):
    expect = lockstep_run.Expectations()

    with tempfile.TemporaryDirectory(prefix="lockstep-lengths-") as folder:
        folder = pathlib.Path(folder)
        write_documents(folder)
        config = folder / "config.textproto"
        config.write_text(CONFIG.replace("FOLDER", str(folder)))

        def train(name, *changes, ranks=1, arguments=()):
            return lockstep_run.train(binary, config, folder / name, ranks,
                                      [*lockstep_run.sets(*changes), *arguments])

        def losses(name, key="loss"):
            return [line[key] for line in lockstep_run.metrics(folder / name) if key in line]

        def close(one, other):
            return len(one) == len(other) > 0 and all(
                abs(a - b) <= LOSS_TOLERANCE * abs(a) for a, b in zip(one, other))

        train("whole")
        short = train("short", BUCKETS)
        for key in ("loss", "eval_loss"):
            expect(close(losses("whole", key), losses("short", key)),
                   f"{key}: {losses('whole', key)[-1]} whole, {losses('short', key)[-1]} short")
        expect(losses("short")[-1] < losses("short")[0], "the loss falls")

        for ranks, changes in [(2, []), (4, []), (2, ["comm.zero_stage=0"]),
                               (4, ["comm.zero_stage=2"]), (2, ["comm.zero_stage=3"]),
                               (4, ["comm.zero_stage=3"]), (1, ["execution.recompute=BLOCKS"]),
                               (2, ["guard.enabled=true"])]:
            name = f"ranks{ranks}" + "".join(changes).replace("=", "_")
            other = train(name, BUCKETS, *changes, ranks=ranks)
            expect(other["weights_hash"] == short["weights_hash"],
                   f"{name}: {other['weights_hash']}, {short['weights_hash']}")
        train("resumed", BUCKETS, ranks=2, arguments=["--max-steps", "10"])
        other = train("resumed", BUCKETS, ranks=4, arguments=["--resume", "auto"])
        expect(other["weights_hash"] == short["weights_hash"], f"resumed: {other['weights_hash']}")

        dropout = "model.gpt.dropout=0.2"
        train("whole-dropout", dropout)
        short = train("short-dropout", BUCKETS, dropout)
        expect(not close(losses("whole-dropout"), losses("short-dropout")), "masks are of lengths")
        other = train("short-dropout-2", BUCKETS, dropout, ranks=2)
        expect(other["weights_hash"] == short["weights_hash"], "dropout on 2 ranks")

        out = folder / "plan.json"
        done = lockstep_run.run(binary, ["plan", config, "--json", out, *lockstep_run.sets(BUCKETS)], ranks=0)
        expect(done.returncode == 0 and "lanes of up to 16 tokens: 0.2" in done.stdout, "plan")
        arenas = json.loads(out.read_text())["arena_bytes_by_length"]
        expect(arenas["8"] < arenas["16"] < arenas["32"], f"arenas {arenas}")

        def refused(code, parts, *changes):
            done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "refused",
                                             *lockstep_run.sets(*changes)], ranks=0)
            message = (done.stdout + done.stderr).strip().splitlines()[-1]
            expect(done.returncode == code and all(part in message for part in parts),
                   f"exit code {done.returncode}: {message}")

        field = "execution.length_buckets"
        refused(USAGE, [field, "64", "context"], f"{field}=8,64")
        refused(USAGE, [field, "8", "increasing"], f"{field}=16,8")
        refused(USAGE, [field, "PADDED"], BUCKETS, "data.tokens.packing=NONE",
                "data.tokens.train_documents=", "data.tokens.eval_documents=")
        refused(NUMERIC, ["not finite", "lane"], BUCKETS, "schedule.lr=1e30")
    return expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
