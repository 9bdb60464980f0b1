"""Trainings whose lanes share recorded graphs, for host_gpu_graphs_test.py."""

import array
import itertools
import random

MLP = """
    model { mlp { hidden: [24, 12] dropout: 0.2 } }
    data { synthetic { samples: 300 features: 10 classes: 4 } }
    train { global_batch: 24 steps: 5 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { lr: 0.01 }
    comm { bucket_mib: 0.002 }
    execution { precision: FP32 threads: 1 }
    output { tensorboard: false }
"""
PADDED = """
    model { gpt { layers: 1 heads: 2 width: 16 context: 32 vocabulary: 50 dropout: 0.1 } }
    data { tokens { train: "tokens.bin" train_documents: "documents.bin" packing: PADDED } dir: "FOLDER" }
    train { global_batch: 12 lanes: 6 steps: 8 }
    optimizer { adamw {} }
    schedule { lr: 0.01 }
    comm { bucket_mib: 0.01 }
    execution { precision: FP32 threads: 1 length_buckets: [4, 12] }
    output { tensorboard: false }
"""


def with_ranks(trial, ranks):
    return {"ranks": ranks, "environment": {"FAKE_GPUS": str(ranks)}} if ranks > 1 else {}


def uneven_lanes(trial):
    """Any number of lanes, in turn on a rank: replayed on one rank as eager on two."""
    config = trial.folder / "lanes.textproto"
    config.write_text(MLP)
    for lanes, batch in ((1, 24), (2, 24), (5, 25), (7, 28), (24, 24)):
        how = [config, "--device", "cuda", "--set", f"train.lanes={lanes}", "--set",
               f"train.global_batch={batch}"]
        alone = trial.train(*how)
        others = [(2, ["--eager"])] if lanes > 1 else [(1, ["--eager"])]
        if lanes == 7:
            others += [(1, ["--eager"]), *((ranks, ["--set", f"comm.zero_stage={stage}"])
                                           for ranks, stage in itertools.product((2, 4), range(4)))]
        if lanes == 24:
            others += [(3, []), (1, ["--set", "comm.bucket_mib=1"])]
        for ranks, arguments in others:
            run = trial.train(*how, *arguments, **with_ranks(trial, ranks))
            trial.check(run["weights_hash"] == alone["weights_hash"],
                        f"{lanes} lanes on {ranks} ranks {' '.join(arguments)}: the bits of one "
                        "rank, replayed", run["text"])


def lengths(trial):
    """Lanes of several lengths, each of which replays the graph of its length and pattern."""
    draw, tokens, borders = random.Random(3), array.array("H"), array.array("Q")
    for length in (2, 4, 5, 12, 13, 32, *(1 + int(draw.expovariate(1 / 6)) for _ in range(150))):
        borders.append(len(tokens))
        tokens.extend(draw.randrange(50) for _ in range(length))
    (trial.folder / "tokens.bin").write_bytes(tokens.tobytes())
    (trial.folder / "documents.bin").write_bytes(borders.tobytes())
    config = trial.folder / "lengths.textproto"
    config.write_text(PADDED.replace("FOLDER", str(trial.folder)))
    how = [config, "--device", "cuda"]
    cpu = trial.train(config, "--device", "cpu")
    alone = trial.train(*how)
    trial.close(cpu["losses"], alone["losses"], 2e-5, "lengths: the losses of the CPU")
    whole = trial.train(*how, "--set", "execution.length_buckets=")
    trial.check(whole["losses"] != alone["losses"], "lengths: dropout shows that short graphs ran")
    for ranks, arguments in ((1, ["--eager"]), (2, []), (2, ["--set", "comm.zero_stage=0"]),
                             (2, ["--set", "comm.zero_stage=2"])):
        run = trial.train(*how, *arguments, **with_ranks(trial, ranks))
        trial.check(run["weights_hash"] == alone["weights_hash"],
                    f"lengths: {ranks} ranks {' '.join(arguments)}: the bits of one rank, replayed",
                    run["text"])
    trial.refused(2, ["execution.lanes_per_pass: value is 2; allowed with execution.length_buckets: 1"],
                  *how, "--set", "execution.lanes_per_pass=2")
    half = trial.folder / "lengths-half"
    trial.train(*how, "--max-steps", "3", run_dir=half)
    run = trial.train(*how, "--resume", "auto", run_dir=half, **with_ranks(trial, 2))
    trial.check(run["weights_hash"] == alone["weights_hash"], "lengths: resumed, the same bits")
