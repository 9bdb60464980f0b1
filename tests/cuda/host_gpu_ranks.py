"""Trainings on several GPUs, or in other orders of their work, for host_gpu_test.py. Each part is given
a Trial, and the name and the path of a config."""

import itertools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402


def many_ranks(trial, name, config, precisions):
    four = {"FAKE_GPUS": "4"}
    for precision in precisions:
        how = ["--device", "cuda", "--set", f"execution.precision={precision}"]
        alone = trial.train(config, *how)
        for ranks in (2, 4):
            many = trial.train(config, *how, ranks=ranks, environment=four)
            trial.check(many["weights_hash"] == alone["weights_hash"],
                        f"{name}: {precision} on {ranks} ranks, one GPU each: the same bits",
                        many["text"])
        for stage, ranks in ((0, 2), (2, 4), (3, 2), (3, 4)):
            sharded = trial.train(config, *how, "--set", f"comm.zero_stage={stage}", ranks=ranks,
                                  environment=four)
            trial.check(sharded["weights_hash"] == alone["weights_hash"],
                        f"{name}: {precision} on {ranks} ranks, ZeRO stage {stage}: the same bits",
                        sharded["text"])
        for wire in ("BF16", "FP16"):
            rounds = [*how, "--set", f"comm.wire_dtype={wire}"]
            one = trial.train(config, *rounds)
            trial.close(alone["losses"], one["losses"], 3e-2,
                        f"{name}: {precision}, {wire} on the wire trains alike")
            trial.check(one["weights_hash"] != alone["weights_hash"],
                        f"{name}: {precision}, {wire} on the wire rounds")
            for stage, ranks in ((0, 2), (1, 2), (1, 4), (2, 4)):
                many = trial.train(config, *rounds, "--set", f"comm.zero_stage={stage}",
                                   ranks=ranks, environment=four)
                trial.check(many["weights_hash"] == one["weights_hash"],
                            f"{name}: {precision}, {wire} on the wire, {ranks} ranks, ZeRO stage "
                            f"{stage}: the same bits", many["text"])
        for compression in ({"wire_dtype": "BF16", "error_feedback": "true"},
                            {"power_sgd_rank": 2, "zero_stage": 0}):
            compressed = [*how,
                          *(word for key, value in compression.items()
                            for word in ("--set", f"comm.{key}={value}"))]
            one = trial.train(config, *compressed)
            trial.check(one["weights_hash"] != alone["weights_hash"],
                        f"{name}: {precision}, {compression} changes the sums")
            if "wire_dtype" in compression:
                trial.close(alone["losses"], one["losses"], 3e-2,
                            f"{name}: {precision}, {compression} trains alike")
            for ranks in (2, 4):
                run_dir = trial.folder / f"{name}-{precision}-{'-'.join(compression)}-{ranks}"
                trial.train(config, *compressed, "--max-steps", "4", run_dir=run_dir, ranks=ranks,
                            environment=four)
                many = trial.train(config, *compressed, "--resume", "auto", run_dir=run_dir,
                                   ranks=6 - ranks, environment=four)
                trial.check(many["weights_hash"] == one["weights_hash"],
                            f"{name}: {precision}, {compression}, {ranks} ranks, resumed on "
                            f"{6 - ranks}: the same bits", many["text"])
        shared = trial.train(config, *how, "--share-gpu", ranks=2)
        trial.check(shared["weights_hash"] == alone["weights_hash"],
                    f"{name}: {precision}, 2 ranks share a GPU: the same bits")
        trial.check(shared["text"].count("tensor cores") == (precision == "FP32"),
                    f"{name}: {precision}: a warning, once, of tensor cores that idle in FP32",
                    shared["text"])
    tuned = trial.train(config, *how, "--set", "comm.tune_buckets=true", ranks=2, environment=four)
    record = pathlib.Path(tuned.get("run_dir", "")) / "buckets.json"
    tried = json.loads(record.read_text())["trials"] if record.exists() else []
    trial.check(tuned["weights_hash"] == alone["weights_hash"] and len(tried) > 1,
                f"{name}: {precision}, the GPU is taken for {len(tried)} sizes of buckets and then "
                "the run: the same bits", tuned["text"])
    fast = trial.train(config, "--device", "cuda", "--set", "comm.order=FAST", ranks=2,
                       environment=four)
    trial.close(alone["losses"], fast["losses"], 3e-2, f"{name}: order FAST trains alike")
    half = trial.folder / f"{name}-ranks"
    trial.train(config, *how, "--max-steps", "4", run_dir=half, ranks=4, environment=four)
    whole = trial.train(config, *how, "--resume", "auto", run_dir=half, ranks=2, environment=four)
    trial.check(whole["weights_hash"] == alone["weights_hash"],
                f"{name}: 4 ranks, resumed on 2: the same bits")
    done = lockstep_run.run(
        trial.program, ["train", config, "--device", "cuda", "--run-dir", trial.new_folder()], 2)
    trial.check(done.returncode == 2 and "--share-gpu" in done.stderr,
                f"{name}: two ranks on one GPU are refused", done.stderr)


def uneven_ranks(trial, name, config):
    """Numbers of ranks that are no powers of two, or do not divide the lanes; a table of which few
    rows have tokens."""
    lanes = ["--device", "cuda", "--set", "train.lanes=12", "--set", "train.global_batch=12",
             "--set", "data.synthetic.classes=801"]
    alone = trial.train(config, *lanes)
    for ranks, stage in itertools.product((3, 5), (0, 2)):
        many = trial.train(config, *lanes, "--set", f"comm.zero_stage={stage}", ranks=ranks,
                           environment={"FAKE_GPUS": "5"})
        trial.check(many["weights_hash"] == alone["weights_hash"] and many["losses"] == alone["losses"],
                    f"{name}: 12 lanes on {ranks} ranks, ZeRO stage {stage}: the same bits",
                    many["text"])


def any_order(trial, name, config, ranks, seeds):
    """Streams and replayed graphs in other orders than the one that work is given in: only events
    hold it back."""
    for first, precision in enumerate(("FP32", "BF16")):  # which take turns
        how = ["--device", "cuda", "--set", f"execution.precision={precision}"]
        given = trial.train(config, *how, ranks=ranks, environment={"FAKE_GPUS": "4"})
        for seed in seeds[first::2]:
            run = trial.train(config, *how, ranks=ranks,
                              environment={"FAKE_GPUS": "4", "FAKE_CUDA_ORDER": str(seed)})
            trial.check(
                run["weights_hash"] == given["weights_hash"],
                f"{name}: {precision} on {max(ranks, 1)} ranks, order {seed}: the same bits",
                run["text"])


def between_graphs(trial, name, config):
    """NCCL outside of what is recorded, call by call between two graphs."""
    for arguments in ((), ("--set", "comm.zero_stage=3"), ("--set", "comm.wire_dtype=BF16")):
        how = ["--device", "cuda", *arguments]
        captured = trial.train(config, *how, ranks=2, environment={"FAKE_GPUS": "2"})
        for order in ({}, {"FAKE_CUDA_ORDER": "7"}):
            apart = trial.train(
                config, *how, ranks=2,
                environment={"FAKE_GPUS": "2", "LOCKSTEP_NCCL_BETWEEN_GRAPHS": "1", **order})
            trial.check(apart["weights_hash"] == captured["weights_hash"],
                        f"{name}: NCCL between graphs {arguments} {order}: the same bits",
                        apart["text"])
    done = lockstep_run.run(
        trial.program, ["train", config, "--device", "cuda", "--run-dir", trial.folder / "never"],
        2, {"FAKE_GPUS": "2", "LOCKSTEP_NCCL_BETWEEN_GRAPHS": "yes"})
    trial.check(done.returncode == 2
                and "LOCKSTEP_NCCL_BETWEEN_GRAPHS: value is 'yes'; allowed: 0 and 1" in done.stderr,
                "LOCKSTEP_NCCL_BETWEEN_GRAPHS=yes is refused", done.stderr)


def two_ranks(trial, name, config):
    """Running statistics are reduced like gradients."""
    for precision in ("FP32", "BF16"):
        how = ["--device", "cuda", "--set", f"execution.precision={precision}"]
        alone = trial.train(config, *how)
        many = trial.train(config, *how, ranks=2, environment={"FAKE_GPUS": "2"})
        trial.check(many["weights_hash"] == alone["weights_hash"],
                    f"{name}: {precision} on 2 ranks: the same bits", many["text"])
        devices = (
            json.loads((pathlib.Path(many["run_dir"]) / "environment.json").read_text())["devices"])
        trial.check(len(devices) == 2 and all("stand-in" in device for device in devices),
                    f"{name}: environment.json has {devices}")
