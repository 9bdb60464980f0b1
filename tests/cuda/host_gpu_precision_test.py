#!/usr/bin/env python3
"""execution.precision AUTO on the CUDA backend without a GPU (host_gpu_test.py says how). Catches:
AUTO that is not BF16, or another type once the run is resumed; a run of an older revision that is
resumed in BF16; networks that need floats and get 16 bits; ranks that compare AUTO with its meaning.

host_gpu_precision_test.py PROGRAM: build/.../tests/host_gpu/bin/lockstep, which finds the stand-in
beside it.
"""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path[:0] = [
    str(pathlib.Path(__file__).resolve().parents[1] / folder)
    for folder in ("distributed", "integration", "golden/precision")
]
import lockstep_run  # noqa: E402
import onnx_networks  # noqa: E402
import runs  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

CUDA = ["--device", "cuda"]
BF16, FP32 = (["--set", f"execution.precision={name}"] for name in ("BF16", "FP32"))
AUTO, RECORDED = "precision: {} (AUTO)", "precision: {} (AUTO, as the run recorded)"


def recorded(run_dir):
    """The precisions in the run's config and its checkpoints."""
    texts = [path.read_text() for path in (
        run_dir / "config.textproto", *run_dir.glob("checkpoints/step-*/state.textproto"))]
    return {text.split("precision: ")[1][:4] for text in texts}


def new_runs(trial, config, data):
    run_dir = trial.folder / "new"
    auto = trial.train(config, *CUDA, *data, run_dir=run_dir)
    named = trial.train(config, *CUDA, *data, *BF16)
    floats = trial.train(config, *CUDA, *data, "--set", "execution.tf32=true")
    trial.check(AUTO.format("BF16") in auto["text"], "AUTO is BF16, and the log says so",
                auto["text"])
    trial.check(auto["weights_hash"] == named["weights_hash"] != floats["weights_hash"],
                "with the bits of BF16")
    trial.check("precision: FP32 (AUTO with execution.tf32)" in floats["text"],
                "AUTO with tf32 is FP32", floats["text"])
    trial.check(recorded(run_dir) == {"BF16"}, f"the run records {recorded(run_dir)}")
    trial.refused(2, ["execution.bf16x3"], config, *CUDA, *data, "--set", "execution.bf16x3=true")
    half = trial.folder / "half"
    trial.train(config, *CUDA, *data, "--max-steps", "4", run_dir=half)
    whole = trial.train(config, *CUDA, *data, "--resume", "auto", run_dir=half)
    trial.check(whole["weights_hash"] == auto["weights_hash"]
                and RECORDED.format("BF16") in whole["text"], "resumed, the same bits",
                whole["text"])
    for how, words in (([], RECORDED.format("BF16")), (BF16, "precision: BF16"),
                       (["--set", "execution.bf16x3=true"], "without execution.bf16x3")):
        result = trial.folder / "eval.json"
        done = lockstep_run.run(trial.program, ["eval", config, *CUDA, *data, *how, "--checkpoint",
                                                run_dir, "--json", result], 0)
        same = (done.returncode == 0
                and json.loads(result.read_text())["eval_loss"] == auto["eval_loss"])
        trial.check(done.returncode == 0 and words in done.stderr
                    and same == ("bf16x3" not in words),
                    f"eval {how}: {words}", done.stdout + done.stderr)
    replayed = lockstep_run.run(trial.program, ["replay", run_dir, *CUDA, "--step", "6"], 0)
    trial.check(replayed.returncode == 0 and "agree" in replayed.stdout, "replay",
                replayed.stdout + replayed.stderr)


def older_runs(trial, data):
    """Whose default was FP32, with their own configs, which name no precision."""
    for name in runs.CONFIGS:
        config = trial.folder / f"{name}.textproto"
        folders = [runs.run_folder(trial.folder, "44bad6b_gpu", name) for _ in range(2)]
        auto = trial.train(config, *CUDA, *data, "--resume", "auto", run_dir=folders[0])
        named = trial.train(config, *CUDA, *data, "--resume", "auto", *FP32, run_dir=folders[1])
        trial.check(RECORDED.format("FP32") in auto["text"]
                    and auto["weights_hash"] == named["weights_hash"],
                    f"{name}: a run of an older revision goes on in FP32", auto["text"])
        trial.check(recorded(folders[0]) == {"FP32"}, f"{name}: and records it")


def hosts_copies(trial, config, data):
    """A run of which only the hosts' copies are left."""
    run_dir = trial.folder / "copies"
    how = [*CUDA, *data, "--set", f"checkpoint.local.folder={trial.folder / 'host'}", "--set",
           "checkpoint.local.every=2"]
    trial.train(config, *how, *FP32, "--max-steps", "6", "--set", "checkpoint.every=0", "--set",
                "checkpoint.at_end=false", "--set", "eval.every=0", run_dir=run_dir)
    shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)
    run = trial.train(config, *how, "--resume", "auto", "--set", "eval.every=0", run_dir=run_dir)
    trial.check(RECORDED.format("FP32") in run["text"] and "resuming from" in run["text"],
                "hosts' copies are resumed in the run's precision", run["text"])


def networks(trial):
    """Of ONNX files: one that needs floats, and one that does not."""
    onnx_networks.write(trial.folder)
    rest = ("train { global_batch: 8 lanes: 4 steps: 2 } optimizer { adamw {} } "
            "output { tensorboard: false }")
    for name, words in (("denoiser", "precision: FP32 (AUTO, because 16 bits cannot"),
                        (next(n for n in onnx_networks.NETWORKS if n != "denoiser"),
                         AUTO.format("BF16"))):
        config = trial.folder / f"{name}.textproto"
        config.write_text(onnx_networks.config(trial.folder, name, rest))
        run = trial.train(config, *CUDA)
        trial.check(words in run["text"], f"{name}: {words}", run["text"])
        if name == "denoiser":
            trial.check("execution.precision=BF16 uses" not in run["text"],
                        "no advice to use what it would be refused with", run["text"])


def ranks(trial, config):
    """One is given AUTO, the other what AUTO means."""
    named = trial.folder / "named.textproto"
    named.write_text(config.read_text() + "execution { precision: BF16 }\n")
    floats = trial.folder / "floats.textproto"
    floats.write_text(config.read_text() + "execution { precision: FP32 }\n")
    older = runs.run_folder(trial.folder, "44bad6b_gpu", "gpt")
    for configs, run_dir, words in (
            ((config, named), trial.folder / "ranks", AUTO.format("BF16")),
            ((floats, config), older, "precision: FP32"),
    ):
        done = lockstep_run.run(
            "sh", ["-c", f'exec {trial.program} train "$CONFIG" --device cuda --resume auto '
                   f"--data {trial.folder}/data --run-dir {run_dir}"], 2, {"FAKE_GPUS": "2"},
            apart=[[f"CONFIG={path}"] for path in configs])
        trial.check(done.returncode == 0 and done.stderr.count(words) == 1,
                    "the resolved precisions are compared", done.stdout + done.stderr)


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(pathlib.Path(program).resolve(), pathlib.Path(folder))
        runs.prepare(trial.folder)
        data = ["--data", trial.folder / "data"]
        table = trial.folder / "table.textproto"
        new_runs(trial, table, data)
        older_runs(trial, data)
        hosts_copies(trial, table, data)
        networks(trial)
        if lockstep_run.have_mpirun():
            ranks(trial, trial.folder / "gpt.textproto")
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
