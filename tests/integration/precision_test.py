#!/usr/bin/env python3
"""execution.precision on a CPU. Catches: AUTO that is recorded, or that a resumed run resolves anew;
a checkpoint of a GPU in 16 bits that eval, predict, generate, export or inspect refuse on a CPU, or
read without a line in the log; texts and images that are generated in another precision than eval
evaluates in; a training in BF16 that goes on in FP32 unasked, or one in FP16 whose
refusal has no remedy; a run of an older revision that ends in other bits, or that a damaged newest
checkpoint stops; a replay on another kind of device that raises a false alarm.

precision_test.py BINARY
"""
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("distributed", "golden/precision")]
import lockstep_run  # noqa: E402
import runs  # noqa: E402

BF16, FP32 = (["--set", f"execution.precision={name}"] for name in ("BF16", "FP32"))


class Trial:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.expect = lockstep_run.Expectations()
        runs.prepare(folder)

    def start(self, command, *arguments, ranks=0, apart=None):
        return lockstep_run.run(self.binary, [command, *arguments], ranks, apart=apart,
                                environment={"LOCKSTEP_DEVICE": "cpu"}, limit_s=60)

    def train(self, name, run_dir, *arguments):
        return self.start("train", self.folder / f"{name}.textproto", "--data",
                          self.folder / "data", "--run-dir", run_dir, *arguments)

    def ends(self, done, code, words, what):
        text = done.stdout + done.stderr
        good = done.returncode == code and all(word in text for word in words)
        self.expect(good, f"{what}: exit code {code}, {words}" + ("" if good else f"\n{text}"))


def new_runs(trial):
    run_dir = trial.folder / "new"
    done = trial.train("table", run_dir)
    trial.ends(done, 0, ["weights_hash"], "a config without a precision trains on a CPU")
    states = [run_dir / "config.textproto",
              *run_dir.glob("checkpoints/step-*/state.textproto")]
    trial.expect(len(states) == 3 and all("precision: FP32" in path.read_text()
                                          for path in states), f"{states} record FP32")
    trial.expect("AUTO" not in done.stderr, f"nothing is said of it: {done.stderr}")
    trial.expect("was computed on" not in trial.start("replay", run_dir, "--step", "1").stderr,
                 "a replay on the run's kind of device")
    environment = run_dir / "environment.json"
    environment.write_text(environment.read_text().replace('"cpu"', '"NVIDIA H100 80GB HBM3"'))
    trial.ends(trial.start("replay", run_dir, "--step", "1"), 0, ["was computed on GPUs", "agree"],
               "a replay on another one has a warning")
    trial.ends(trial.train("table", trial.folder / "halves", *BF16), 0,
               ["precision: BF16", "weights_hash"], "training in BF16")
    trial.ends(trial.start("replay", trial.folder / "halves", "--step", "5"), 0, ["agree"],
               "a replay of it")
    environment = trial.folder / "halves" / "environment.json"
    environment.write_text(environment.read_text().replace("products of", "other products of"))
    trial.ends(trial.start("replay", trial.folder / "halves", "--step", "5"), 0,
               ["computed with other products of bfloat16", "agree"],
               "a replay by other units has a warning")
    trial.ends(trial.train("table", trial.folder / "refused", "--set", "execution.precision=FP16"),
               2, ["execution.precision: value is FP16; allowed on cpu: AUTO, FP32 or BF16"],
               "training in FP16 is refused")
    trial.ends(trial.start("train", trial.folder / "table.textproto", *BF16, "--set",
                           "comm.wire_dtype=AUTO"), 2,
               ["comm.wire_dtype", "allowed: one of FP32, BF16, FP16"],
               "AUTO is no type of what is sent")
    plan = trial.start("plan", trial.folder / "table.textproto", "--data", trial.folder / "data")
    trial.ends(plan, 0, ["precision FP32 (AUTO)"], "plan")


def readers(trial):
    """What only reads the checkpoint of a GPU in BF16."""
    data = ["--data", trial.folder / "data"]
    table, gpt = (runs.run_folder(trial.folder, "auto_gpu", name) for name in ("table", "gpt"))
    config = trial.folder / "table.textproto"
    for what, given, note in (
        ("AUTO", [config], "precision: BF16 (AUTO, as the run recorded)"),
        ("BF16", [config, *BF16], "precision: BF16"),
        ("the recorded config", [table / "config.textproto"], "precision: BF16"),
        ("FP16", [config, "--set", "execution.precision=FP16"], "precision: FP32 (the run's is FP16"),
        ("TF32", [config, "--set", "execution.tf32=true"], "without execution.tf32")):
        out = trial.folder / "output.safetensors"
        for command, more in (("eval", []), ("predict", ["--out", out])):
            done = trial.start(command, *given, *data, "--checkpoint", table, *more)
            trial.ends(done, 0, ["step 4"], f"{command} of BF16 with {what}")
            trial.expect(done.stderr.count(note) == 1 and done.stderr.count("precision:") == 1,
                         f"{command} with {what} says so once: {done.stderr.strip()}")
    generated(trial, gpt)
    weights = trial.folder / "weights.safetensors"
    trial.ends(trial.start("export", table, "--out", weights), 0, ["tensors"], "export")
    trial.ends(trial.start("inspect", table), 0, ["every checksum holds"], "inspect")
    trial.ends(trial.start("replay", gpt, "--step", "3"), 0, ["agree"],
               "replay")
    trial.ends(trial.train("table", trial.folder / "from", "--set", f"train.init_from={weights}"),
               0, ["weights_hash"], "train.init_from of what BF16 has trained")


def generated(trial, gpt):
    """`generate` computes in the precision in which `eval` does."""
    FP16 = ["--set", "execution.precision=FP16"]
    for given, note in (([], "precision: BF16 (AUTO, as the run recorded)"),
                        (BF16, "precision: BF16"), (FP32, ""),
                        (FP16, "precision: FP32 (the run's is FP16")):
        done = trial.start("generate", trial.folder / "gpt.textproto", *given, "--checkpoint", gpt,
                           "--prompt-tokens", "1,2", "--tokens", "3")
        trial.ends(done, 0, [note], f"generate {given}")
        trial.expect(done.stderr.count("precision:") == (note != ""),
                     f"generate {given} says so once: {done.stderr.strip()}")


def older(trial):
    """Runs of an older revision on a CPU, whose default was FP32, go on to its bits."""
    for name in runs.CONFIGS:
        for config in ("as it was written", "as the run recorded it"):
            run_dir = runs.run_folder(trial.folder, "44bad6b_cpu", name)
            hash_then = json.loads((run_dir / "end.json").read_text())["weights_hash"]
            own = run_dir / "config.textproto" if "recorded" in config else (
                trial.folder / f"{name}.textproto")
            damaged = run_dir / "checkpoints/step-00000006"  # as a host leaves it that has crashed
            damaged.mkdir()
            (damaged / "model.safetensors").write_bytes(b"")
            done = trial.start("train", own, "--run-dir", run_dir, "--data",
                               trial.folder / "data", "--resume", "auto")
            trial.ends(done, 0, ["at step 4", f"weights_hash {hash_then}"],
                       f"{name}: an older run, config {config}")
            trial.expect("AUTO" not in done.stderr and "changed" not in done.stderr,
                         f"{name}: without a difference: {done.stderr}")


def resumed(trial):
    for name in runs.CONFIGS:
        run_dir = runs.run_folder(trial.folder, "auto_gpu", name)
        trial.ends(trial.train(name, trial.folder / f"{name}-other", "--resume", run_dir), 0,
                   ["precision: BF16 (AUTO, as the run recorded)", "at step 4", "weights_hash"],
                   f"{name}: BF16 is resumed on a CPU")
        trial.ends(trial.train(name, run_dir, "--resume", "auto", *FP32), 4,
                   ["written with execution.precision BF16"], f"{name}: not in FP32 unasked")
        trial.ends(trial.train(name, run_dir, "--resume", "auto", *FP32, "--allow-change",
                               "execution.precision"), 0, ["at step 4", "weights_hash"],
                   f"{name}: but with the remedy")
        # FP32 was the default of GPUs, and is resumed as such.
        older = runs.run_folder(trial.folder, "44bad6b_gpu", name)
        trial.ends(trial.train(name, older, "--resume", "auto"), 0, ["at step 4", "weights_hash"],
                   f"{name}: a run of an older revision on a GPU")
        trial.expect("precision: FP32" in (older / "config.textproto").read_text(),
                     f"{name}: which stays FP32")


def ranks(trial):
    """The resolved precisions are compared."""
    if not lockstep_run.have_mpirun():
        return
    config = trial.folder / "gpt.textproto"
    for name, good in (("FP32", True), ("BF16", False)):
        other = trial.folder / f"gpt-{name}.textproto"
        other.write_text(config.read_text() + f"execution {{ precision: {name} }}\n")
        configs = [[f"CONFIG={path}"] for path in (config, other)]
        done = lockstep_run.run(
            "sh", ["-c", f'exec {trial.binary} train "$CONFIG" --run-dir {trial.folder}/of-{name}'],
            2, {"LOCKSTEP_DEVICE": "cpu"}, apart=configs)
        trial.ends(done, 0 if good else 2, ["weights_hash" if good else "execution.precision"],
                   f"AUTO on one rank and {name} on the other")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-precision-") as folder:
        trial = Trial(pathlib.Path(binary).resolve(), pathlib.Path(folder))
        for part in (new_runs, readers, older, resumed, ranks):
            part(trial)
        return trial.expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
