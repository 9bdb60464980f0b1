#!/usr/bin/env python3
"""Trains networks of ONNX files on the CUDA backend without a GPU (host_gpu_test.py says how).
Catches: ops that only such networks have and that compute something else there than on the CPU,
forward or backward; steps that replayed graphs, several ranks or a resume change; precisions that
do not follow FP32.

host_gpu_onnx_test.py PROGRAM [NETWORK ...]: build/.../tests/host_gpu/bin/lockstep, which finds the
stand-in beside it.
"""
import pathlib
import sys
import tempfile

sys.path[:0] = [
    str(pathlib.Path(__file__).resolve().parents[1] / folder)
    for folder in ("distributed", "integration")
]
import lockstep_run  # noqa: E402
import onnx_networks  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

REST = """
train { global_batch: 8 lanes: 4 steps: 6 hash_every: 3 }
optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
schedule { lr: 0.01 }
comm { bucket_mib: 0.002 }
execution { precision: FP32 }
output { tensorboard: false }
"""


def compare(trial, name):
    config = trial.folder / f"{name}.textproto"
    config.write_text(onnx_networks.config(trial.folder, name, REST))
    _, gpu = trial.follows_the_cpu(name, config, 1e-6, stop=3)
    if lockstep_run.have_mpirun():
        for stage, ranks in ((0, 2), (3, 4)):
            many = trial.train(config,
                               "--device",
                               "cuda",
                               "--set",
                               f"comm.zero_stage={stage}",
                               ranks=ranks,
                               environment={"FAKE_GPUS": "4"})
            trial.check(many["weights_hash"] == gpu["weights_hash"],
                        f"{name}: {ranks} ranks, ZeRO stage {stage}: the same bits", many["text"])
    narrow = (("BF16", 2e-2), ("FP16", 3e-3)) if name != "denoiser" else ()  # which is FP32
    for precision, tolerance in narrow:
        how = ["--device", "cuda", "--set", f"execution.precision={precision}"]
        run = trial.train(config, *how)
        trial.close(gpu["losses"], run["losses"], tolerance, f"{name}: {precision} follows FP32")
        again = trial.train(config, *how, "--eager")
        trial.check(run["weights_hash"] == again["weights_hash"],
                    f"{name}: {precision}, the same bits twice")


def main(program, *names):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(program, pathlib.Path(folder))
        onnx_networks.write(trial.folder)
        for name in names or onnx_networks.NETWORKS:
            compare(trial, name)
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
