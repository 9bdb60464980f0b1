#!/usr/bin/env python3
"""What 16-bit runs do on tensor cores and FP32 runs do not, on the stand-in of host_gpu_test.py.
Catches: GELU fused with a product on a GPU on which that is slow or in FP32, where it is inexact;
products of Muon in BF16, or sums of Adafactor, that do not learn as FP32 or whose bits differ from
run to run; padding that poisons attention through cuDNN; MFU by the rate of another GPU.

host_gpu_halves_test.py PROGRAM
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

GPT = """
    model { gpt { layers: 1 heads: 2 width: 16 context: 8 } }
    data { synthetic { samples: 200 classes: 19 } }
    train { global_batch: 8 lanes: 2 steps: 8 hash_every: 4 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { lr: 0.01 }
    comm { bucket_mib: 0.02 }
    output { tensorboard: false }
"""


def fused_gelu(trial, config):
    """GELU in the epilogues of products: in 16 bits on Hopper alone, which rounds less; never in
    FP32."""
    def on(capability, precision="BF16", **environment):
        return trial.train(config, "--device", "cuda", "--set", f"execution.precision={precision}",
                           environment={"FAKE_GPU_CAPABILITY": str(capability), **environment})
    ada, hopper = on(89), on(90)
    blackwell = on(100, FAKE_CUDNN_VERSION="91800")
    refused = on(90, FAKE_CUBLASLT_REFUSES="DGELU,GELU_AUX_BIAS,GELU_BIAS")
    trial.close(hopper["losses"], ada["losses"], 2e-2, f"GELU by itself and fused train alike")
    trial.check(ada["weights_hash"] != hopper["weights_hash"], f"GELU is fused on Hopper")
    trial.check(ada["weights_hash"] == refused["weights_hash"] == blackwell["weights_hash"],
                f"GELU is not fused on Ada, Blackwell, and without algorithms for it")
    trial.check(on(89, "FP32")["weights_hash"] == on(90, "FP32")["weights_hash"],
                f"GELU is not fused in FP32")


def muon(trial):
    """Orthogonalized updates: products in FP32 in FP32 runs, in BF16 in 16-bit ones."""
    config = trial.folder / "muon.textproto"
    config.write_text(GPT.replace(
        "adamw { weight_decay: 0.1 }", "muon { momentum: 0.95 weight_decay: 0.1 }"))
    fp32 = trial.train(config, "--device", "cuda", "--set", "execution.precision=FP32")
    trial.check(fp32["losses"][-1] < 0.98 * fp32["losses"][0], "muon: it learns",
                str(fp32["losses"]))
    for precision, tolerance in (("BF16", 2e-2), ("FP16", 2e-2)):
        how = [config, "--device", "cuda", "--set", f"execution.precision={precision}"]
        run = trial.train(*how)
        trial.close(fp32["losses"], run["losses"], tolerance, f"muon: {precision} learns as FP32")
        if precision == "BF16":  # the products of FP16 are the same
            same_bits(trial, f"muon: {precision}", how, run, stages=(0, 2))


def same_bits(trial, name, how, run, stages):
    others = {"eager": trial.train(*how, "--eager"),
              "in another order": trial.train(*how, environment={"FAKE_CUDA_ORDER": "5"})}
    half = trial.folder / name.replace(": ", "-")
    trial.train(*how, "--max-steps", "4", run_dir=half)
    others["resumed"] = trial.train(*how, "--resume", "auto", run_dir=half)
    if lockstep_run.have_mpirun():
        for stage in stages:
            others[f"2 ranks, ZeRO stage {stage}"] = trial.train(
                *how, "--set", f"comm.zero_stage={stage}", ranks=2, environment={"FAKE_GPUS": "2"})
    for what, other in others.items():
        trial.check(other["weights_hash"] == run["weights_hash"], f"{name}, {what}: the same bits",
                    other["text"])


def adafactor(trial):
    """Sums over rows and columns on the device, averages on the host."""
    config = trial.folder / "adafactor.textproto"
    config.write_text(GPT.replace("adamw { weight_decay: 0.1 }", "adafactor { weight_decay: 0.1 }"))
    cpu = trial.train(config, "--device", "cpu")
    how = [config, "--device", "cuda", "--set", "execution.precision=BF16"]
    run = trial.train(*how)
    trial.close(cpu["losses"], run["losses"], 2e-2, "adafactor: BF16 learns as the CPU in FP32")
    same_bits(trial, "adafactor: BF16", how, run, stages=(2,))


def padding(trial):
    """Padded texts: attention through cuDNN, which leaves rows of padding undefined."""
    config = trial.folder / "bert.textproto"
    config.write_text(GPT.replace(
        "gpt { layers: 1 heads: 2 width: 16 context: 8 }",
        "bert { layers: 1 heads: 2 width: 16 mlp_width: 24 context: 12 vocabulary: 23 "
        "task: SEQUENCE_CLASSES }"))
    how = [config, "--device", "cuda", "--set", "execution.precision=BF16"]
    run = trial.train(*how)
    native = trial.train(*how, environment={"FAKE_CUDNN_REFUSES": "attention"})
    trial.close(native["losses"], run["losses"], 2e-2, "padding: cuDNN and native kernels alike")
    warning = "attention uses native kernels"
    trial.check(warning in native["text"] and warning not in run["text"], "padding: cuDNN takes it",
                run["text"])
    others = {"eager": trial.train(*how, "--eager")}
    if lockstep_run.have_mpirun():
        others["2 ranks"] = trial.train(*how, ranks=2, environment={"FAKE_GPUS": "2"})
    for what, other in others.items():
        trial.check(other["weights_hash"] == run["weights_hash"],
                    f"padding: {what}: the same bits", other["text"])


def model_flops_utilisation(trial, config):
    """MFU has the rate of the GPU that the driver names, and is missing for an unknown one."""
    how = [config, "--device", "cuda", "--max-steps", "2", "--set", "execution.precision=BF16"]
    for gpu, expected in (("NVIDIA H100 80GB HBM3", True), ("NVIDIA GeForce RTX 3090", True),
                          ("NVIDIA GeForce RTX 3090 Ti", False)):
        run = trial.train(*how, environment={"FAKE_GPU_NAME": gpu})
        shown = [m.get("mfu") or 0 for m in run["metrics"]]
        trial.check(all((value > 0) == expected for value in shown) and shown,
                    f"MFU of {gpu}: {'shown' if expected else 'not shown'}", str(run["metrics"]))


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(program, pathlib.Path(folder))
        config = trial.folder / "gpt.textproto"
        config.write_text(GPT)
        fused_gelu(trial, config)
        muon(trial)
        adafactor(trial)
        padding(trial)
        model_flops_utilisation(trial, config)
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
