#!/usr/bin/env python3
"""Catches: lanes that one pass computes (execution.lanes_per_pass) with other bits than lanes one
after the other, or another number of ranks; slices of lanes that overlap; a last pass with fewer
lanes that is not computed; a pass that joins no op; settings that must be refused.

host_gpu_passes_test.py PROGRAM: as in host_gpu_test.py. The stand-in for cuBLASLt sums each element
in one order, whatever else a product has.
"""
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

REST = """
    data { synthetic { samples: 200 classes: 19 } }
    train { global_batch: 12 lanes: 6 steps: 4 hash_every: 2 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { lr: 0.01 }
    comm { bucket_mib: 0.02 }
    output { tensorboard: false }
"""
CONFIGS = {
    # Biases, dropout, GELU in an epilogue, a tied table.
    "gpt": "model { gpt { layers: 2 heads: 2 width: 32 context: 16 dropout: 0.1 } }" + REST,
    # Products of weights as batches.
    "llama": """model { llama { layers: 2 heads: 4 kv_heads: 2 width: 32 mlp_width: 64 context: 16 } }
             """ + REST,
}


def nodes(run):
    return [int(n) for n in re.findall(r"CUDA graphs: (\d+) nodes", run["text"])][-1:]


def same_bits(trial, name, config):
    for precision in ("FP32", "BF16") if name == "gpt" else ("BF16",):
        how = ["--device", "cuda", "--set", f"execution.precision={precision}", "--log-level",
               "debug"]
        one = trial.train(config, *how)
        for lanes in (4, 6):
            run = trial.train(config, *how, "--set", f"execution.lanes_per_pass={lanes}")
            trial.check(run["weights_hash"] == one["weights_hash"],
                        f"{name}: {precision}, passes of {lanes} lanes: the same bits", run["text"])
            trial.check(nodes(run) < nodes(one),
                        f"{name}: {precision}, passes of {lanes} lanes: {nodes(run)} nodes, not "
                        f"{nodes(one)}", run["text"])
        passes = [*how, "--set", "execution.lanes_per_pass=4"]
        eager = trial.train(config, *passes, "--eager")
        trial.check(eager["weights_hash"] == one["weights_hash"],
                    f"{name}: {precision}, eager: the same bits")
        for ranks in (2, 3) if lockstep_run.have_mpirun() else ():
            run = trial.train(config, *passes, ranks=ranks, environment={"FAKE_GPUS": str(ranks)})
            trial.check(run["weights_hash"] == one["weights_hash"],
                        f"{name}: {precision}, {ranks} ranks: the same bits", run["text"])


def refusals(trial, config):
    four = ["--set", "execution.lanes_per_pass=4"]
    field = "execution.lanes_per_pass: value is 4; allowed"
    trial.refused(2, [field, "on cpu: 1"], config, "--device", "cpu", *four)
    trial.refused(2, [field, "with comm.power_sgd_rank: 1"], config, "--device", "cuda", *four,
                  "--set", "comm.power_sgd_rank=2")


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-passes-") as folder:
        trial = Trial(program, pathlib.Path(folder))
        for name, text in CONFIGS.items():
            config = trial.folder / f"{name}.textproto"
            config.write_text(text)
            same_bits(trial, name, config)
        refusals(trial, config)
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
