#!/usr/bin/env python3
"""Catches: weights, losses or evaluations that depend on the number of ranks if it is no power of two
or does not divide the lanes, in any ZeRO stage, over any transport, on nodes, with compressed
gradients, with norms of all lanes, or after a resumption; and a start that hides what uneven shares
cost.

any_ranks_test.py BINARY [NAME ...]: each config on 1 rank, and on other numbers up to its lanes, each
with another stage and transport: all must have the same weights_hash, and the same loss and norm in
every step, to the last bit.
"""
import functools
import pathlib
import random
import sys
import tempfile

import lockstep_run

REST = """
    execution { threads: 1 PRECISION }
    output { tensorboard: false }
"""
MLP = """
    model { mlp { hidden: [48, 32] dropout: 0.1 } }
    data { synthetic { samples: 600 features: 20 classes: 5 } }
    train { global_batch: BATCH LANES steps: 6 log_every: 50 hash_every: 3 }
    optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
    schedule { lr: 0.01 }
"""
GPT = """
    model { gpt { layers: 1 heads: 2 width: 32 context: 16 dropout: 0.1 } }
    data { text { train: "FOLDER/words.txt" eval_fraction: 0.1 } }
    train { global_batch: BATCH LANES steps: 6 log_every: 50 hash_every: 3 ema_decay: 0.9 }
    eval { every: 3 max_samples: 50 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { lr: 0.003 }
"""
# With a table of many more rows than a step has tokens: the rows of its embedding travel.
TIED = (GPT.replace('text { train: "FOLDER/words.txt" eval_fraction: 0.1 }', "synthetic { samples: 300 classes: 2001 }")
        .replace("    eval { every: 3 max_samples: 50 }\n", "").replace(" ema_decay: 0.9", ""))
LLAMA = TIED.replace("gpt { layers: 1 heads: 2 width: 32 context: 16 dropout: 0.1 }", """llama {
        layers: 1 heads: 2 kv_heads: 1 width: 32 mlp_width: 64 context: 16 tied_head: true }""")
RESNET = """
    model { resnet { depth: 20 NORM } }
    data { synthetic { samples: 64 classes: 5 height: 8 width: 8 channels: 3 } }
    train { global_batch: BATCH LANES steps: 4 log_every: 50 hash_every: 2 }
    optimizer { sgd { momentum: 0.9 } clip_norm: 1 }
    schedule { lr: 0.05 }
"""


def config(text, batch, lanes, norm="", comm="", precision="FP32"):
    return (text.replace("BATCH", str(batch)).replace("LANES", f"lanes: {lanes}" if lanes else "")
            .replace("NORM", norm) + f"comm {{ bucket_mib: 0.02 {comm} }}"
            + REST.replace("PRECISION", f"precision: {precision}"))


MPI, TCP, ALONE = "comm.transport=MPI", "comm.transport=TCP", "comm.shared_memory=false"
MUON = "optimizer { muon {} clip_norm: 1 }"
# Name: config; runs: ranks, nodes, ZeRO stage, changes; resumptions: ranks before and after.
CASES = {
    "mlp of 12 lanes": (
        config(MLP, 60, 12),
        [(2, 1, 3, [TCP]), (3, 1, 0, [MPI]), (5, 1, 2, [ALONE]), (6, 2, 1, []), (7, 1, 1, []), (8, 1, 3, [MPI]),
         (12, 3, 0, [TCP])],
        [(7, 5, 1), (3, 8, 2)]),
    "llama of 7 lanes": (
        config(LLAMA, 14, 7),
        [(2, 1, 1, [ALONE]), (3, 1, 2, []), (5, 1, 3, [TCP]), (6, 3, 1, []), (7, 1, 0, [ALONE])],
        [(3, 7, 3)]),
    "gpt of 24 lanes, rounded with error feedback": (
        config(TIED, 24, 24, comm="wire_dtype: BF16 error_feedback: true residual_groups: 12"),
        [(5, 1, 0, [ALONE]), (6, 2, 1, []), (7, 1, 1, [])],
        [(5, 3, 1)]),
    "mlp of 24 lanes, rounded": (
        config(MLP, 24, 24, comm="wire_dtype: BF16"),
        [(5, 1, 2, []), (7, 1, 0, [ALONE]), (12, 4, 1, [])],
        []),
    "gpt of 12 lanes as factors": (
        config(GPT, 12, 12, comm="power_sgd_rank: 2 residual_groups: 6 zero_stage: 0"),
        [(3, 1, 0, []), (4, 2, 0, []), (5, 1, 0, [TCP])],
        [(5, 2, 0)]),
    "gpt of 7 lanes with Muon": (
        config(GPT.replace("optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }", MUON), 7, 7),
        [(3, 1, 1, []), (5, 1, 2, [])],
        []),
    "resnet of 8 lanes": (
        config(RESNET, 16, 8),
        [(3, 1, 2, []), (6, 2, 1, []), (7, 1, 3, [TCP])],
        []),
    "resnet of 7 lanes with norms of all": (
        config(RESNET, 14, 7, norm="sync_batch_norm: true"),
        [(3, 1, 1, []), (5, 1, 0, [ALONE]), (7, 1, 3, [])],
        []),
    "llama of 7 lanes in BF16": (
        config(LLAMA, 14, 7, precision="BF16"),
        [(1, 1, 1, ["execution.recompute=BLOCKS"]), (1, 1, 2, ["execution.threads=3"]), (2, 1, 0, [ALONE]),
         (3, 1, 2, []), (5, 1, 3, [TCP]), (6, 3, 1, ["comm.bucket_mib=1"])],
        [(3, 7, 3), (2, 1, 1)]),
    "gpt of 6 lanes in BF16, rounded with error feedback": (
        config(GPT, 12, 6, comm="wire_dtype: BF16 error_feedback: true residual_groups: 6", precision="BF16"),
        [(2, 1, 1, []), (3, 1, 0, [ALONE])],
        [(3, 2, 1)]),
    "resnet of 7 lanes with norms of all in BF16": (
        config(RESNET, 14, 7, norm="sync_batch_norm: true", precision="BF16"),
        [(3, 1, 1, []), (7, 1, 3, [])],
        []),
    "mlp of AUTO lanes": (
        config(MLP, 24, 0),
        [(3, 1, 1, []), (6, 1, 2, [])],
        []),
}


def train(binary, path, run_dir, ranks, nodes, stage, changes=(), arguments=()):
    sets = lockstep_run.sets(f"comm.zero_stage={stage}", *changes)
    return lockstep_run.train(binary, path, run_dir, ranks, [*sets, *arguments], nodes=nodes)


def bits_of(run_dir, bits, label, expect):
    """Compares each step's loss and norm, and each evaluation's loss, with those of other runs."""
    for line in lockstep_run.metrics(run_dir):
        for field in ("loss", "grad_norm", "eval_loss", "weights_hash"):
            if field not in line:
                continue
            known = bits.setdefault((line["step"], field), line[field])
            if known != line[field]:
                expect(False, f"{label}: step {line['step']}: {field} is {line[field]}, on 1 rank {known}")


def check(binary, folder, name, expect):
    text, runs, resumptions = CASES[name]
    path = folder / "config.textproto"
    path.write_text(text.replace("FOLDER", str(folder)))
    (folder / "words.txt").write_text("".join(random.Random(2).choices("abcdefgh \n", k=4000)))
    bits = {}
    stage = 0 if "power_sgd" in text else 1
    one = train(binary, path, folder / "one", 0, 1, stage)["weights_hash"]
    bits_of(folder / "one", bits, name, expect)
    for number, (ranks, nodes, stage, changes) in enumerate(runs):
        label = f"{name}: {ranks} ranks on {nodes} node(s), stage {stage} {' '.join(changes)}"
        found = train(binary, path, folder / f"run{number}", ranks, nodes, stage, changes)["weights_hash"]
        expect(found == one, f"{label}: {found}, on 1 rank {one}")
        bits_of(folder / f"run{number}", bits, label, expect)
    for number, (before, after, stage) in enumerate(resumptions):
        label = f"{name}: half on {before} ranks, half on {after}, stage {stage}"
        run_dir, half = folder / f"resumed{number}", 2 if "steps: 4" in text else 3
        train(binary, path, run_dir, before, 1, stage, [], ["--max-steps", str(half)])
        found = train(binary, path, run_dir, after, 1, stage, [], ["--resume", "auto"])["weights_hash"]
        expect(found == one, f"{label}: {found}, on 1 rank {one}")
        bits_of(run_dir, bits, label, expect)


def launched(binary, folder, expect):
    """Without MPI, AUTO lanes, uneven shares: the log reports them, and the config records them."""
    path = folder / "launched.textproto"
    path.write_text(config(MLP, 24, 0))
    one = train(binary, path, folder / "alone", 0, 1, 1)["weights_hash"]
    done = lockstep_run.run(binary, ["launch", "-n", "7", "--", "train", path, "--run-dir", folder / "seven"], ranks=0)
    expect(done.returncode == 0, f"launch -n 7: exit code {done.returncode}: {done.stderr}")
    said = done.stdout + done.stderr
    for part in ("lanes: 8 (AUTO: 3 samples a lane)",
                 "8 lanes on 7 ranks: 1 rank has 2 lanes and 6 have 1, so at most 57% of the ranks' time is used"):
        expect(said.count(part) == 1, f"logged {said.count(part)} times: {part}")
    expect(one in said, f"launch -n 7 has the weights of 1 rank, {one}")
    recorded = (folder / "seven" / "config.textproto").read_text()
    expect("lanes: 8\n" in recorded, "the run records 8 lanes")
    # The recorded number stays, also if the config leaves it to AUTO and had another one before.
    four = train(binary, path, folder / "four", 3, 1, 1, ["train.lanes=4"], ["--max-steps", "3"])
    whole = train(binary, path, folder / "four", 2, 1, 1, [], ["--resume", "auto"])["weights_hash"]
    expect(whole == train(binary, path, folder / "again", 0, 1, 1, ["train.lanes=4"])["weights_hash"],
           f"a run of 4 lanes goes on with 4 ({four['weights_hash']})")


def main(binary, names):
    expect = lockstep_run.Expectations()
    parts = [functools.partial(check, name=name) for name in names or CASES]

    def run(part):
        with tempfile.TemporaryDirectory(prefix="lockstep-any-ranks-") as folder:
            part(binary, pathlib.Path(folder), expect=expect)

    lockstep_run.at_once([functools.partial(run, part)
                          for part in parts + ([] if names else [launched])])
    return expect.exit_code()


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
