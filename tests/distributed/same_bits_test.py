#!/usr/bin/env python3
"""Catches: weights that depend on the number of MPI ranks, on what they share out, on the size of
the buckets that they exchange, or on an interruption.

same_bits_test.py BINARY [--all]: an MLP with dropout and a 4-layer GPT, 50 steps on 1, 2, 4 and 8
ranks under mpirun, and 25 steps, save, resume on another number of ranks, 25 steps; 4 and 8 ranks
on 2 and 4 nodes: all weights_hash must be equal. Each config takes half of the resumptions and one
layout of nodes, in turn; with --all, all of them. An MLP on augmented pictures that several threads
read, with another number of threads for every run, and a ResNet-20 with batch norms on such
pictures, mixed, in 6 steps. MLPs with LARS and LAMB, whose tensors' norms are of the slices of all
ranks, and a GPT with Muon, whose matrices travel over MPI and TCP, in 6 steps. Every run is in
another ZeRO stage, 0 to 3, and with buckets of another size: from many that cut tensors and slices
to a single one. The loss and the gradient's norm of every step must be equal too, to the last bit
of a double. Four of the configs round gradients to 16 bits before they are summed, one of them with
error feedback, in stages 0 and 1; two multiply floats as three bfloat16 numbers. A Llama on packed
documents, its blocks computed again and its logits some rows at a time. A GPT whose gradients travel
as factors, in stage 0. The networks of integration/onnx_networks.py, from their ONNX files, in 6
steps.
"""
import array
import functools
import itertools
import pathlib
import random
import sys
import tempfile

import lockstep_run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import onnx_networks  # noqa: E402

CONFIGS = {
    "mlp": """
        model { mlp { hidden: [96, 64] activation: RELU dropout: 0.2 } }
        data { synthetic { samples: 3000 features: 60 classes: 10 } }
        train { global_batch: 64 lanes: 8 steps: 50 log_every: 50 hash_every: 25 }
        optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
        schedule { kind: COSINE lr: 0.003 warmup_steps: 5 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "gpt": """
        model { gpt { layers: 4 heads: 4 width: 64 context: 32 dropout: 0.1 } }
        data { text { train: "FOLDER/words.txt" eval_fraction: 0.06 } }
        train { global_batch: 16 lanes: 8 steps: 50 log_every: 25 hash_every: 25 ema_decay: 0.9 }
        eval { every: 25 }
        optimizer { adamw { beta2: 0.99 weight_decay: 0.1 } clip_norm: 1 }
        schedule { kind: COSINE lr: 0.003 warmup_steps: 5 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "lars": """
        model { mlp { hidden: [96, 64] } }
        data { synthetic { samples: 3000 features: 60 classes: 10 } }
        train { global_batch: 64 lanes: 8 steps: 6 log_every: 50 hash_every: 3 ema_decay: 0.9 }
        optimizer { lars { weight_decay: 0.001 trust_coefficient: 0.1 } clip_norm: 1 }
        schedule { lr: 0.05 }
        comm { wire_dtype: BF16 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "lamb": """
        model { mlp { hidden: [96, 64] } }
        data { synthetic { samples: 3000 features: 60 classes: 10 } }
        train { global_batch: 64 lanes: 8 steps: 6 log_every: 50 hash_every: 3 ema_decay: 0.9 }
        optimizer { lamb { weight_decay: 0.01 } clip_norm: 1 }
        schedule { lr: 0.05 }
        comm { wire_dtype: FP16 }
        execution { threads: 1 bf16x3: true }
        output { tensorboard: false }
    """,
    "muon": """
        model { gpt { layers: 2 heads: 2 width: 32 context: 16 } }
        data { text { train: "FOLDER/words.txt" } }
        train { global_batch: 16 lanes: 8 steps: 6 log_every: 50 hash_every: 3 ema_decay: 0.9 }
        optimizer { muon { weight_decay: 0.1 } moments: BF16 clip_norm: 1 }
        schedule { lr: 0.02 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "feedback": """
        model { mlp { hidden: [96, 64] } }
        data { synthetic { samples: 3000 features: 60 classes: 10 } }
        train { global_batch: 64 lanes: 16 steps: 12 log_every: 50 hash_every: 6 }
        optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
        schedule { lr: 0.003 }
        comm { wire_dtype: BF16 error_feedback: true residual_groups: 8 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "factors": """
        model { gpt { layers: 2 heads: 2 width: 32 context: 16 } }
        data { text { train: "FOLDER/words.txt" } }
        train { global_batch: 16 lanes: 16 steps: 12 log_every: 50 hash_every: 6 ema_decay: 0.9 }
        optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
        schedule { lr: 0.003 }
        comm { power_sgd_rank: 2 residual_groups: 8 zero_stage: 0 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "packed": """
        model { llama { layers: 2 heads: 4 kv_heads: 2 width: 32 mlp_width: 48 context: 48
                        vocabulary: 64 qk_norm: true sliding_window: 20 } }
        data {
          tokens { train: "tokens.bin" train_documents: "documents.bin" packing: BEST_FIT
                   eval: "tokens.bin" eval_documents: "documents.bin" }
          dir: "FOLDER"
        }
        train { global_batch: 16 lanes: 8 steps: 14 log_every: 50 hash_every: 7 }
        eval { every: 7 }
        optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
        schedule { lr: 0.003 }
        execution { threads: 1 recompute: BLOCKS loss_rows: 20 }
        output { tensorboard: false }
    """,
    "pictures": """
        model { mlp { hidden: [64] } }
        data {
          cifar { train: "pictures.bin" } dir: "FOLDER"
          augment {
            pad_and_crop {} horizontal_flip: 0.5
            colour_jitter { brightness: 0.4 contrast: 0.4 hue: 0.1 }
          }
        }
        train { global_batch: 32 lanes: 8 steps: 50 log_every: 50 hash_every: 25 }
        optimizer { sgd { momentum: 0.9 } }
        schedule { kind: COSINE lr: 0.01 warmup_steps: 5 }
        execution { threads: 1 }
        output { tensorboard: false }
    """,
    "resnet": """
        model { resnet { depth: 20 label_smoothing: 0.1 } }
        data {
          cifar { train: "pictures.bin" } dir: "FOLDER"
          augment { pad_and_crop {} horizontal_flip: 0.5 }
        }
        train { global_batch: 16 lanes: 8 steps: 6 log_every: 50 hash_every: 3 mixup: 0.4 }
        optimizer { sgd { momentum: 0.9 nesterov: true weight_decay: 0.001 } clip_norm: 1 }
        schedule { kind: COSINE lr: 0.05 warmup_steps: 2 }
        comm { wire_dtype: BF16 }
        execution { threads: 1 bf16x3: true }
        output { tensorboard: false }
    """,
}
ONNX_TRAINING = """
        train { global_batch: 16 lanes: 8 steps: 6 log_every: 50 hash_every: 3 }
        optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
        schedule { lr: 0.003 }
        execution { threads: 1 }
        output { tensorboard: false }
    """
ONNX = {f"onnx {name}": onnx_networks.config("FOLDER", name, ONNX_TRAINING)
        for name in onnx_networks.NETWORKS}
CONFIGS |= ONNX
# Steps to the interruption; 25 elsewhere.
HALVES = {"lars": 3, "lamb": 3, "muon": 3, "feedback": 6, "factors": 6, "packed": 7, "resnet": 3,
          **dict.fromkeys(ONNX, 3)}


def write_pictures(path):
    """300 records of CIFAR-10's layout."""
    draw = random.Random(1)
    path.write_bytes(
        b"".join(bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(300)))


def write_documents(folder):
    """Some 100 documents, of which an epoch of samples of 48 tokens takes 5 steps."""
    draw, tokens, borders = random.Random(3), array.array("H"), array.array("Q")
    for _ in range(110):
        borders.append(len(tokens))
        tokens.extend(draw.randrange(64) for _ in range(draw.choice((1, 2, 7, 20, 33, 60, 130))))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "documents.bin").write_bytes(borders.tobytes())


RESUMPTIONS = ((1, 2), (2, 4), (8, 1), (4, 8))  # ranks before and after
LAYOUTS = ((4, 2), (8, 2), (8, 4))  # ranks, nodes
RUNS = 11  # of each config, 21 with --all: others from config to config
STAGES = {"feedback": (1, 0), "factors": (0,)}
# Of ranks under mpirun. Three, so that each meets every stage.
TRANSPORTS = {"muon": ("TCP", "MPI", "TCP")}


class Settings:
    """What differs from run to run: reading threads, a ZeRO stage, a size of buckets and, if the config
    has several, a transport."""

    def __init__(self, number, name):
        def turns(*values):
            return itertools.islice(itertools.cycle(values), number * RUNS % len(values), None)

        self.threads = turns(1, 3, 2, 4)
        self.stages = turns(*STAGES.get(name, (3, 2, 1, 0)))
        # Five, so that every size meets every stage.
        self.buckets_mib = turns(0.02, 25, 0.1, 0.035, 0.3)
        self.transports = turns(*TRANSPORTS.get(name, ("AUTO",)))

    def next(self):
        return lockstep_run.sets(
            f"data.decode_threads={next(self.threads)}", f"comm.zero_stage={next(self.stages)}",
            f"comm.bucket_mib={next(self.buckets_mib)}", f"comm.transport={next(self.transports)}")


def check(binary, all_runs, number, name):
    """The failures of one config."""
    text, failures, settings = CONFIGS[name], 0, Settings(number, name)
    resumptions = RESUMPTIONS if all_runs else RESUMPTIONS[number % 2::2]
    layouts = LAYOUTS if all_runs else LAYOUTS[number % 3:][:1]
    half_steps = HALVES.get(name, 25)

    def train(config, run_dir, ranks, arguments=(), nodes=1):
        return lockstep_run.train(binary, config, run_dir, ranks, [*settings.next(), *arguments],
                                  nodes=nodes)

    with tempfile.TemporaryDirectory(prefix="lockstep-same-bits-") as folder:
        folder = pathlib.Path(folder)
        config = folder / "config.textproto"
        config.write_text(text.replace("FOLDER", str(folder)))
        write_pictures(folder / "pictures.bin")
        write_documents(folder)
        onnx_networks.write(folder)
        (folder / "words.txt").write_text(
            "".join(random.Random(2).choices("abcdefgh \n", k=20_000)))
        runs, steps = {}, {}
        for ranks in (1, 2, 4, 8):
            result = train(config, folder / f"ranks{ranks}", ranks)
            runs[f"{ranks} ranks"] = result["weights_hash"]
            middle = [m["weights_hash"] for m in lockstep_run.metrics(folder / f"ranks{ranks}")
                      if m["step"] == half_steps]
            runs[f"{ranks} ranks, middle"] = "middle " + middle[0]
        for before, after in resumptions:
            run_dir = folder / f"resumed{before}to{after}"
            half = train(config, run_dir, before, ["--max-steps", str(half_steps)])
            runs[f"{before} ranks, stopped in the middle"] = "middle " + half["weights_hash"]
            whole = train(config, run_dir, after, ["--resume", "auto"])
            runs[f"half on {before} ranks, half on {after}"] = whole["weights_hash"]
        for ranks, nodes in layouts:
            label, run_dir = (
                f"{nodes} nodes of {ranks // nodes}", folder / f"nodes{nodes}x{ranks // nodes}")
            half = train(config, run_dir, ranks, ["--max-steps", str(half_steps)], nodes)
            runs[f"{label}, stopped in the middle"] = "middle " + half["weights_hash"]
            whole = train(config, run_dir, 2, ["--resume", "auto"])
            runs[f"half on {label}, half on 2 ranks"] = whole["weights_hash"]
            runs[label] = (train(
                config, folder / f"whole{nodes}x{ranks // nodes}", ranks,
                ["--set", f"comm.zero_stage={0 if name == 'factors' else 1}"], nodes)[
                    "weights_hash"])
        without = lockstep_run.run(
            binary,
            ["train", config, "--run-dir", folder / "self", "--json", folder / "self.json"],
            ranks=0)
        if without.returncode != 0:
            print(without.stderr)
            failures += 1
        else:
            runs["without mpirun"] = (
                lockstep_run.json.loads((folder / "self.json").read_text())["weights_hash"])
        # A float that the norm scales hides its last bits: these lines have all of them.
        for run_dir in [path for path in folder.iterdir() if (path / "metrics.jsonl").exists()]:
            for line in lockstep_run.metrics(run_dir):
                found = (line["loss"], line["grad_norm"])
                if steps.setdefault(line["step"], found) != found:
                    print(f"{name}: FAILED: {run_dir.name}: step {line['step']} has (loss, "
                          f"norm) {found}, elsewhere {steps[line['step']]}")
                    failures += 1
        if "eval {" in text:
            for run_dir in [
                path for path in folder.iterdir() if (path / "metrics.jsonl").exists()]:
                for metrics in lockstep_run.metrics(run_dir):
                    if "eval_loss" in metrics:
                        runs[f"{run_dir.name}, evaluation at step {metrics['step']}"] = (
                            f"step {metrics['step']}: {metrics['eval_loss']}")
            losses = {h for h in runs.values() if h.startswith("step ")}
            if len(losses) != 2:
                print(f"{name}: FAILED: evaluations differ: {losses}")
                failures += 1
        ends = {h for h in runs.values() if not h.startswith(("middle", "step "))}
        middles = {h for h in runs.values() if h.startswith("middle")}
        for label, value in runs.items():
            print(f"{name}: {label:40} {value}")
        if len(ends) != 1 or len(middles) != 1:
            print(f"{name}: FAILED: weights differ")
            failures += 1
    return failures


def main(binary, all_runs):
    return 1 if sum(lockstep_run.at_once(
        [functools.partial(check, binary, all_runs, *config) for config in enumerate(CONFIGS)])) else 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(sys.argv[1], "--all" in sys.argv[2:]))
