#!/usr/bin/env python3
"""Trains on the CUDA backend without a GPU: the same program, with the kernels run on the host and
stand-ins for CUDA's libraries (tests/fibers). Catches: a launcher that unpacks an op wrongly, work
that a recorded graph repeats with the numbers of the step that was recorded, host memory that is
read too late or changed too early, memory of the device that the host touches, and precisions that
do not follow FP32.

host_gpu_test.py PROGRAM: build/.../tests/host_gpu/lockstep, which finds the stand-in beside it.
"""

import array
import functools
import json
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402
from host_gpu_ranks import any_order, between_graphs, many_ranks, two_ranks, uneven_ranks  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

CONFIGS = {
    "mlp": """
        model { mlp { hidden: [48, 24] activation: GELU_TANH dropout: 0.2 } }
        data { synthetic { samples: 500 features: 20 classes: 5 } }
        train { global_batch: 32 lanes: 4 steps: 12 hash_every: 6 }
        optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
        schedule { kind: COSINE lr: 0.01 warmup_steps: 3 }
        comm { bucket_mib: 0.004 }
        execution { precision: FP32 }
        output { tensorboard: false }
    """,
    "regression": """
        model { mlp { hidden: [24] activation: TANH loss: MEAN_SQUARED_ERROR } }
        data { synthetic { samples: 300 features: 7 classes: 3 } }
        train { global_batch: 16 lanes: 2 steps: 8 hash_every: 4 }
        optimizer { sgd { momentum: 0.9 nesterov: true } }
        schedule { lr: 0.05 }
        execution { precision: FP32 }
        output { tensorboard: false }
    """,
    "gpt": """
        model { gpt { layers: 2 heads: 2 width: 32 context: 16 dropout: 0.1 } }
        data { synthetic { samples: 200 classes: 19 } }
        train { global_batch: 8 lanes: 4 steps: 6 hash_every: 3 }
        optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
        schedule { lr: 0.01 }
        comm { bucket_mib: 0.02 }
        execution { precision: FP32 }
        output { tensorboard: false }
    """,
    "resnet": """
        model { resnet { depth: 20 shortcut: PADDED } }
        data { synthetic { samples: 100 classes: 10 height: 8 width: 8 channels: 3 } }
        train { global_batch: 8 lanes: 2 steps: 6 hash_every: 3 mixup: 0.5 }
        optimizer { sgd { momentum: 0.9 weight_decay: 0.0001 } }
        schedule { lr: 0.001 }
        comm { bucket_mib: 0.1 }
        execution { precision: FP32 }
        output { tensorboard: false }
    """,
    "lenet": """
        model { lenet { activation: TANH } }
        data { synthetic { samples: 100 classes: 10 height: 28 width: 28 channels: 1 } }
        train { global_batch: 8 lanes: 2 steps: 9 hash_every: 3 }
        optimizer { sgd { momentum: 0.9 } }
        schedule { lr: 0.1 }
        execution { precision: FP32 }
        output { tensorboard: false }
    """,
}

# Of the stand-in for cuBLASLt: that there is no algorithm for.
REFUSED = ("one", "BGRADB")


def same_as_the_cpu(trial, name, config):
    cpu, gpu = trial.follows_the_cpu(name, config, 2e-5, stop=4)
    crossed = trial.folder / f"{name}-crossed"
    trial.train(config, "--device", "cpu", "--max-steps", "4", run_dir=crossed)
    moved = trial.train(config, "--device", "cuda", "--resume", "auto", run_dir=crossed)
    trial.close(cpu["losses"], moved["losses"], 2e-5, f"{name}: begun on the CPU, ended on the GPU")
    if name == "gpt":
        back_from_the_gpu(trial, config, cpu, crossed)
    plain = trial.train(config, "--device", "cuda", environment={"FAKE_CUBLASLT_PLAIN": "1"})
    trial.close(gpu["losses"], plain["losses"], 1e-6, f"{name}: without epilogues")
    own = trial.train(config, "--device", "cuda", environment={"FAKE_CUBLASLT_REFUSES": "all"})
    trial.close(gpu["losses"], own["losses"], 2e-5, f"{name}: products by the native kernel")
    trial.check("the native kernel, which is slow" in own["text"],
                f"{name}: that they are slow is said", own["text"])
    for words in REFUSED if name in ("mlp", "gpt") else ():
        some = trial.train(config, "--device", "cuda", environment={"FAKE_CUBLASLT_REFUSES": words})
        trial.close(gpu["losses"], some["losses"], 2e-5, f"{name}: without algorithms for {words}")
    return gpu


def back_from_the_gpu(trial, config, cpu, of_the_cpu):
    """A GPU pads the vocabulary in memory: its weights have the CPU's shapes in files, and moments,
    which are slices of the flat buffer there, find their parameters again."""
    back = trial.folder / "back"
    trial.train(config, "--device", "cuda", "--max-steps", "4", run_dir=back)
    model = pathlib.Path("checkpoints", "step-00000004", "model.safetensors")
    shapes = [shapes_of(run_dir / model) for run_dir in (of_the_cpu, back)]
    trial.check(shapes[0] == shapes[1] and [19, 32] in shapes[0].values(),
                "gpt: the weights of a GPU have the CPU's names and shapes", str(shapes))
    moved = trial.train(config, "--device", "cpu", "--resume", "auto", run_dir=back)
    trial.close(cpu["losses"], moved["losses"], 2e-5, "gpt: begun on the GPU, ended on the CPU")


def precisions(trial, name, config, fp32):
    for precision, tolerance in (("BF16", 2e-2), ("FP16", 3e-3)):
        how = ["--device", "cuda", "--set", f"execution.precision={precision}"]
        run = trial.train(config, *how)
        trial.close(fp32["losses"], run["losses"], tolerance, f"{name}: {precision} follows FP32")
        again = trial.train(config, *how, "--eager")
        trial.check(run["weights_hash"] == again["weights_hash"],
                    f"{name}: {precision}, the same bits twice")
        half = trial.folder / f"{name}-{precision}"
        trial.train(config, *how, "--max-steps", "4", run_dir=half)
        whole = trial.train(config, *how, "--resume", "auto", run_dir=half)
        trial.check(run["weights_hash"] == whole["weights_hash"],
                    f"{name}: {precision} resumed, the same bits")
    # 2^20 times a gradient is above what FP16 holds: some steps are skipped until the factor has
    # fallen.
    run = trial.train(config, "--device", "cuda", "--set", "execution.precision=FP16", "--set",
                      "execution.loss_scale=1048576", "--set",
                      "execution.loss_scale_growth_steps=2")
    skipped = [m["skipped_steps"] for m in run["metrics"]]
    scales = [m["loss_scale"] for m in run["metrics"]]
    trial.check(
        skipped and 0 < skipped[-1] < len(skipped) and max(scales[skipped[-1]:]) > min(scales),
        f"{name}: FP16 skips {skipped[-1:]} steps, and the factor grows again",
        f"{skipped} {scales}")
    trial.check(run["losses"][-1:] < run["losses"][:1], f"{name}: FP16 trains after skipped steps")


def convolutions(trial, name, config, fp32):
    """On the stand-in for cuDNN, and past it, each pass for itself: what it has no engine for is
    said once and trains alike."""
    runs = {"FP32": fp32}
    for what, setting, tolerance in (("TF32", "execution.tf32=true", 2e-2),
                                     ("BF16", "execution.precision=BF16", 2e-2)):
        runs[what] = run = trial.train(config, "--device", "cuda", "--set", setting)
        trial.close(fp32["losses"], run["losses"], tolerance,
                    f"{name}: {what} on cuDNN follows FP32")
        trial.check(run["weights_hash"] != fp32["weights_hash"], f"{name}: {what} is not FP32")
    for what, run in runs.items():
        trial.check("native kernel" not in run["text"],
                    f"{name}: {what}, every convolution on cuDNN", run["text"])
    slower = "a convolution uses the native kernel, which is slower than cuDNN's: "
    for environment, warning in (
        ({"FAKE_CUDNN_MISSING": "1"}, slower + "libcudnn"),
        ({"FAKE_CUDNN_REFUSES": "forward"}, slower + "no deterministic engine"),
        ({"FAKE_CUDNN_UNBUILT": "input"}, slower + "the plan of an engine"),
        ({"FAKE_CUDNN_REFUSES": "weight"}, slower + "no deterministic engine"),
        ({"FAKE_CUDNN_REFUSES": "wide"}, "gradients of convolutions' weights are rounded"),
        ({"FAKE_CUDNN_REFUSES": "fused"}, "")):
        how = " ".join(f"{key[11:]} {value}" for key, value in environment.items())
        for precision, tolerance in (("FP32", 2e-5), ("BF16", 2e-2)):
            # The native kernels take their time: one step runs directly, one records, two replay.
            arguments = [config, "--device", "cuda", "--set", f"execution.precision={precision}",
                         "--max-steps", "4"]
            run = trial.train(*arguments, environment=environment)
            trial.close(runs[precision]["losses"][:4], run["losses"], tolerance,
                        f"{name}: {precision}, {how}: trains alike")
            eager = trial.train(*arguments, "--eager", environment=environment)
            trial.check(eager["weights_hash"] == run["weights_hash"],
                        f"{name}: {precision}, {how}: the same bits eagerly")
            # In FP32 gradients are floats anyhow; of LeNet's 1 and 6 channels a wide engine is not
            # expected.
            told = run["text"].count(warning) if warning else "native kernel" not in run["text"]
            wanted = 0 if how == "REFUSES wide" and (precision == "FP32" or name == "lenet") else 1
            trial.check(told == wanted, f"{name}: {precision}, {how}: said {wanted} times",
                        run["text"])
    for word in ("forward", "weight"):
        trial.refused(70, ["cuDNN's convolution failed"], config, "--device", "cuda",
                      environment={"FAKE_CUDNN_FAILS": word})


def commands(trial, config):
    run_dir = trial.folder / "commands"
    trained = trial.train(config, "--device", "cuda", run_dir=run_dir,
                          *["--set", "data.synthetic.samples=64"])
    trial.check(trained["weights_hash"] is not None, "trained for the other commands")
    for device in ("cpu", "cuda"):
        done = lockstep_run.run(trial.program,
                                ["generate", config, "--device", device, "--checkpoint", run_dir,
                                 "--prompt-tokens", "1,2,3", "--tokens", "6", "--temperature", "0"],
                                0)
        trial.check(done.returncode == 0, f"generate on {device}", done.stdout + done.stderr)
        if device == "cpu":
            expected = done.stdout
    trial.check(done.stdout == expected, "the GPU writes what the CPU writes",
                f"{expected}\n{done.stdout}")


def table_config(trial, name, train="", optimizer="adamw {}", lr=0.01):
    """Of a small table, a part of which is for evaluations."""
    table = trial.folder / f"{name}.csv"
    rows = [
        f"{i % 7},{(i * 5) % 11},{(i * 3) % 4},{(i % 7 + (i * 5) % 11) % 3}" for i in range(240)]
    table.write_text("\n".join(["a,b,c,kind", *rows]) + "\n")
    config = trial.folder / f"{name}.textproto"
    config.write_text(f"""
        model {{ mlp {{ hidden: [16] }} }}
        data {{ table {{ train: "{table}" target: "kind" eval_fraction: 0.3 }} }}
        train {{ global_batch: 16 lanes: 2 steps: 6 {train} }}
        optimizer {{ {optimizer} }}
        schedule {{ lr: {lr} }}
        eval {{ every: 3 }}
        execution {{ precision: FP32 }}
        output {{ tensorboard: false }}
    """)
    return config


def evaluation(trial):
    config = table_config(trial, "table")
    for precision in ("FP32", "BF16"):
        how = ["--device", "cuda", "--set", f"execution.precision={precision}"]
        run_dir = trial.folder / f"table-{precision}"
        trained = trial.train(config, *how, run_dir=run_dir)
        result = trial.new_folder()
        done = lockstep_run.run(trial.program,
                                ["eval", config, *how, "--checkpoint", run_dir, "--json", result],
                                0)
        good = (done.returncode == 0
                and json.loads(result.read_text())["eval_loss"] == trained.get("eval_loss"))
        trial.check(good, f"eval in {precision} finds the loss that training found",
                    done.stdout + done.stderr)


def large_batches(trial, name, optimizer, lr):
    """Rates by tensor, from norms that the host adds up in the middle of a step, and the average of
    the weights, which takes their place for an evaluation."""
    config = table_config(trial, name, "ema_decay: 0.8", optimizer, lr)
    cpu = trial.train(config, "--device", "cpu")
    for precision, tolerance in (("FP32", 2e-5), ("BF16", 2e-2), ("FP16", 1e-2)):
        how = [config, "--device", "cuda", "--set", f"execution.precision={precision}"]
        gpu = trial.train(*how)
        trial.close([*cpu["losses"], cpu["eval_loss"]], [*gpu["losses"], gpu["eval_loss"]],
                    tolerance, f"{name}: {precision} follows the CPU, and the average's evaluation")
        if precision == "FP16":  # whose scaled gradients are what differs
            continue
        weights = trial.train(*how, "--set", "train.ema_decay=0")
        trial.check(weights["weights_hash"] == gpu["weights_hash"]
                    and weights["eval_loss"] != gpu["eval_loss"],
                    f"{name}: {precision}, the average is evaluated and does not touch the weights",
                    str((weights, gpu)))
        half = trial.folder / f"{name}-{precision}-half"
        trial.train(*how, "--max-steps", "4", run_dir=half)
        others = {"eager steps": trial.train(*how, "--eager"),
                  "resumed": trial.train(*how, "--resume", "auto", run_dir=half)}
        if lockstep_run.have_mpirun():
            others["2 ranks"] = trial.train(*how, ranks=2, environment={"FAKE_GPUS": "2"})
        for what, other in others.items():
            same = [other[key] == gpu[key] for key in ("weights_hash", "eval_loss")]
            trial.check(all(same),
                        f"{name}: {precision}, {what}: the same bits of weights and average",
                        f"{other}\n{gpu}")


def skipped_steps(trial, optimizer):
    """A gradient that FP16 cannot hold leaves moments at zero and the average at the first
    weights."""
    run_dir = trial.folder / "skipped"
    config = table_config(trial, "skipped", "ema_decay: 0.8", optimizer)
    run = trial.train(config, "--device", "cuda", "--set", "execution.precision=FP16", "--set",
                      "execution.loss_scale=16777216", "--max-steps", "1", run_dir=run_dir)
    trial.check([m["skipped_steps"] for m in run["metrics"]] == [1], "the first step is skipped",
                run["text"])
    folder = run_dir / "checkpoints" / "step-00000001"
    weights = sorted(
        x for values in floats(folder / "model.safetensors").values() for x in values if x != 0)
    kept = {"exp_avg": [], "exp_avg_sq": [], "ema": []}
    for name, values in floats(folder / "optimizer-00000-of-00001.safetensors").items():
        kept[name.rpartition(".")[0]] += [x for x in values if x != 0]
    trial.check(weights == sorted(kept["ema"]) and not kept["exp_avg"] and not kept["exp_avg_sq"],
                "a skipped step touches neither moments nor average", f"{weights[:5]} {kept}")


def header_of(data):
    """What a safetensors file has about its tensors, and where their data begin."""
    begin = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:begin]), begin


def shapes_of(path):
    header, _ = header_of(path.read_bytes())
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}


def floats(path):
    """The tensors of a safetensors file of floats."""
    data = path.read_bytes()
    header, begin = header_of(data)
    return {name: array.array(
        "f", data[begin + tensor["data_offsets"][0]:begin + tensor["data_offsets"][1]])
            for name, tensor in header.items() if name != "__metadata__"}


def synchronised_norms(trial, config):
    """Lanes that run together and gather from each other, within a recorded graph and between
    ranks."""
    how = ["--set", "model.resnet.sync_batch_norm=true", "--max-steps", "4"]
    cpu = trial.train(config, *how, "--device", "cpu")
    gpu = trial.train(config, *how, "--device", "cuda")
    trial.close(cpu["losses"], gpu["losses"], 2e-5,
                "synchronised norms: losses of the GPU follow the CPU's")
    eager = trial.train(config, *how, "--device", "cuda", "--eager")
    trial.check(eager["weights_hash"] == gpu["weights_hash"],
                "synchronised norms: replayed graphs give the bits of eager steps")
    if lockstep_run.have_mpirun():
        two = trial.train(config, *how, "--device", "cuda", ranks=2, environment={"FAKE_GPUS": "2"})
        trial.check(two["weights_hash"] == gpu["weights_hash"],
                    "synchronised norms: 2 ranks, the same bits", two["text"])


def image_evaluation(trial):
    """Batch norms with the running statistics, in what the ops read of them."""
    random.seed(1)
    for name, count in (("train", 24), ("eval", 7)):
        pictures = (bytes([random.randrange(10)]) + random.randbytes(3072) for _ in range(count))
        (trial.folder / f"{name}.bin").write_bytes(b"".join(pictures))
    config = trial.folder / "pictures.textproto"
    config.write_text(f"""
        model {{ resnet {{ depth: 20 }} }}
        data {{
          cifar {{ train: "{trial.folder}/train.bin" eval: "{trial.folder}/eval.bin" }}
          image {{ size: 8 resize: 8 }}
          augment {{ horizontal_flip: 0.5 }}
        }}
        train {{ global_batch: 8 lanes: 2 steps: 4 }}
        optimizer {{ sgd {{ momentum: 0.9 }} }}
        schedule {{ lr: 0.001 }}
        eval {{ every: 2 }}
        output {{ tensorboard: false }}
    """)
    losses = {}
    for device, precision in (("cpu", "FP32"), ("cuda", "FP32"), ("cuda", "BF16"),
                              ("cuda", "FP16")):
        how = ["--device", device, "--set", f"execution.precision={precision}"]
        # A factor at which cuDNN's 16-bit gradient of the first layer overflows in none of the
        # steps.
        if precision == "FP16":
            how += ["--set", "execution.loss_scale=1024"]
        run_dir = trial.folder / f"pictures-{device}-{precision}"
        losses[device, precision] = trial.train(config, *how, run_dir=run_dir).get("eval_loss")
        result = trial.new_folder()
        done = lockstep_run.run(trial.program,
                                ["eval", config, *how, "--checkpoint", run_dir, "--json", result],
                                0)
        good = (done.returncode == 0
                and json.loads(result.read_text())["eval_loss"] == losses[device, precision])
        trial.check(good,
                    f"images: eval on {device} in {precision} finds the loss that training found",
                    done.stdout + done.stderr)
    fp32 = [losses["cpu", "FP32"]]
    for precision, tolerance in (("FP32", 2e-5), ("BF16", 2e-2), ("FP16", 3e-3)):
        trial.close(fp32, [losses["cuda", precision]], tolerance,
                    f"images: evaluated in {precision} as on the CPU")


def recomputed(trial, name, config):
    recomputed = trial.train(config, "--device", "cuda", "--set", "execution.recompute=BLOCKS")
    kept = trial.train(config, "--device", "cuda")
    trial.check(recomputed["weights_hash"] == kept["weights_hash"],
                f"{name}: recomputed blocks give the same bits")


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(program, pathlib.Path(folder))
        configs = {name: trial.folder / f"{name}.textproto" for name in CONFIGS}
        for name, text in CONFIGS.items():
            configs[name].write_text(text)

        def on_one_rank(name):
            fp32 = same_as_the_cpu(trial, name, configs[name])
            precisions(trial, name, configs[name], fp32)
            if name in ("resnet", "lenet"):
                convolutions(trial, name, configs[name], fp32)

        def with_config(part, name, *more):
            part(trial, name, configs[name], *more)

        lamb = "lamb { weight_decay: 0.01 } clip_norm: 1"
        lars = "lars { trust_coefficient: 0.1 weight_decay: 0.01 }"
        parts = [(on_one_rank, "resnet")]  # the longest first
        if lockstep_run.have_mpirun():
            parts += [(with_config, many_ranks, "gpt", ("FP32", "BF16")),
                      (with_config, many_ranks, "mlp", ("FP32",)),
                      (with_config, uneven_ranks, "gpt"), (with_config, between_graphs, "gpt"),
                      (with_config, two_ranks, "resnet"),
                      (with_config, any_order, "gpt", 2, range(4)),
                      (with_config, any_order, "mlp", 4, range(10, 14))]
        else:
            print("no mpirun: several ranks are left out")
        parts += [(with_config, any_order, "resnet", 0, range(4)),
                  *((on_one_rank, name) for name in CONFIGS if name != "resnet"),
                  (synchronised_norms, trial, configs["resnet"]), (image_evaluation, trial),
                  (large_batches, trial, "lamb", lamb, 0.1), (large_batches, trial, "lars", lars, 1),
                  (with_config, recomputed, "gpt"), (commands, trial, configs["gpt"]),
                  (evaluation, trial), (skipped_steps, trial, lamb)]
        lockstep_run.at_once([functools.partial(*part) for part in parts])
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
