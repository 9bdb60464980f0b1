#!/usr/bin/env python3
"""Catches: a GPU that hangs, within a CUDA graph or outside, for which all ranks are blamed, or the
wrong one; an operation that the rank has reached, or that others do not wait for; a single rank that
waits for its GPU forever; memory of graphs that the plan does not count, counts for eager steps, or
that is exceeded unseen; lanes that replay the graph of another lane wrongly, or do not share one; a
GPU that waits for the host between its gradients and their update.

host_gpu_graphs_test.py PROGRAM: as in host_gpu_test.py.
"""

import concurrent.futures
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402
from host_gpu_lanes import lengths, uneven_lanes  # noqa: E402
from host_gpu_test import CONFIGS  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

BUCKETS = 8
CONFIG = """
    model { mlp { hidden: [48, 24] } }
    data { synthetic { samples: 500 features: 20 classes: 5 } }
    train { global_batch: 32 lanes: 4 steps: 12 }
    optimizer { adamw { weight_decay: 0.1 } }
    comm { bucket_mib: 0.004 timeout_s: 1 files_timeout_s: 4 }
    execution { threads: 1 }
    output { tensorboard: false }
"""
# Launches of the graph of gradients, after 2 and 3 steps, if there is one: of a rank's only lane, or
# of all lanes. Of two lanes the first has the gathers and the last one the buckets.
AFTER_2, AFTER_3 = 3, 5
FIRST_AFTER_2, LAST_AFTER_2, LAST_AFTER_3 = 3, 4, 7
LATE = r"rank {late} on \S+ \(process \d+\) has not reached the {what}, step {step}, for which " \
       r"{others} waited [\d.]+ s: its GPU hangs in a computation"


class Hangs:
    def __init__(self, trial):
        self.trial = trial
        self.config = trial.folder / "hang.textproto"
        self.config.write_text(CONFIG)

    def run(self, number, ranks, hang, *arguments, environment=None):
        """Of a run in which what `hang` says of each rank hangs: what it printed, checked."""
        apart = [[f"FAKE_CUDA_HANG={hang.get(rank, '9999:1')}"] for rank in range(ranks)]
        run_dir = self.trial.folder / f"hang{number}"
        done = lockstep_run.run(
            self.trial.program,
            ["train", self.config, "--device", "cuda", "--run-dir", run_dir, *arguments], ranks,
            {"FAKE_GPUS": str(ranks), **(environment or {})}, apart=apart)
        text = done.stdout + done.stderr
        errors = [line for line in text.splitlines() if "error: " in line]
        self.trial.check(done.returncode == 6 and len(errors) == 1,
                         f"case {number}: exit code 6 and one error", text)
        return (errors or [""])[0], text, run_dir

    def named(self, number, ranks, late, hang, step, what, *arguments, gathers=BUCKETS,
              environment=None):
        error, text, _ = self.run(number, ranks, {late: hang}, *arguments, environment=environment)
        rest = [str(rank) for rank in range(ranks) if rank != late]
        others = (f"rank {rest[0]} has" if len(rest) == 1 else
                  f"ranks {', '.join(rest[:-1])} and {rest[-1]} have")
        if what is None:  # as the stand-in counts: the graph's gathers, then the buckets in order
            found = re.search(r"piece (\d+) of (\d+) hangs, before the graph's exchange (\d+)", text)
            reached = int(found[3]) if found else -1
            bucket = reached - gathers
            what = (rf"exchange of bucket {bucket} \([^)]+\)" if bucket >= 0 else
                    r"all-gather of bucket \d \([^)]+\)")
        pattern = LATE.format(late=late, what=what, step=step, others=others)
        self.trial.check(re.search(pattern, error),
                         f"case {number}: rank {late} of {ranks} hangs at {hang}: {what}",
                         f"{pattern}\n{text}")

    def the_last_piece(self, number):
        """The other rank waits in the gather of the sums, which follows the graph."""
        error, text, run_dir = self.run(number, 2, {1: f"{LAST_AFTER_2}:last"})
        self.trial.check(
            re.search(r"rank 1 on \S+ \(process \d+\) has not reached the all-gather, step 2, for "
                      r"which rank 0 has waited [\d.]+ s: its GPU hangs in a computation after the "
                      rf"exchange of bucket {BUCKETS - 1} \(layers\.0", error),
            f"case {number}: a GPU that hangs after the last bucket", text)
        done = lockstep_run.run(self.trial.program, ["inspect", run_dir, "--flight"], 0)
        self.trial.check(
            re.search(r"rank 1 .*, its GPU at work after the exchange of bucket", done.stdout),
            f"case {number}: the record shows how far the GPU is", done.stdout + done.stderr)

    def all_ranks(self, number):
        error, text, _ = self.run(number, 2, dict.fromkeys(range(2), f"{LAST_AFTER_3}:x1"))
        self.trial.check(
            re.search(r"the GPUs of all ranks have been in the exchange of bucket 1 \([^)]+\), "
                      r"step 3, for [\d.]+ s: NCCL or the network hangs; .*ncclras", error),
            f"case {number}: an exchange that no rank ends", text)

    def all(self):
        between = {"LOCKSTEP_NCCL_BETWEEN_GRAPHS": "1"}
        first = r"(exchange|all-gather|broadcast|reduce-scatter)"
        cases = [
            lambda: self.named(1, 2, 1, f"{FIRST_AFTER_2}:1", 2, None),  # before any bucket
            lambda: self.named(2, 2, 0, f"{LAST_AFTER_3}:14", 3, None, gathers=0),
            lambda: self.named(3, 4, 3, f"{AFTER_3}:28", 3, None),
            lambda: self.named(4, 2, 1, f"{AFTER_2}:20", 2, first + r" of bucket \d \([^)]+\)",
                               "--set", "comm.zero_stage=3"),
            lambda: self.named(5, 2, 1, "0:680", r"\d+", first + r" of bucket \d \([^)]+\)",
                               "--eager"),
            lambda: self.named(6, 2, 1, f"{AFTER_2}:1", 2, first + r" of bucket \d \([^)]+\)",
                               environment=between),
            lambda: self.the_last_piece(7),
            lambda: self.all_ranks(8)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # they mostly wait
            for done in [pool.submit(case) for case in cases]:
                done.result()


def alone(trial):
    """A single rank, which nobody waits for, and the memory of a GPU that hangs cannot be freed."""
    config = trial.folder / "alone.textproto"
    config.write_text(CONFIG)
    for number, (hang, arguments) in enumerate(((f"{AFTER_2}:1", ()), ("0:300", ("--eager",)))):
        done = lockstep_run.run(
            trial.program, ["train", config, "--device", "cuda", "--run-dir",
                            trial.folder / f"alone{number}", *arguments], 0,
            {"FAKE_CUDA_HANG": hang}, limit_s=60)
        text = done.stdout + done.stderr
        errors = [line for line in text.splitlines() if "error: " in line]
        trial.check(
            done.returncode == 6 and len(errors) == 1 and
            re.search(r"rank 0 on \S+ \(process \d+\) has not finished the work of the GPU, step \d+, "
                      r"for [\d.]+ s: its GPU hangs in a computation", errors[0]),
            f"a single rank hangs at {hang} {' '.join(arguments)}", text)
    # Commands without a run folder of their own have no watchdog.
    whole = trial.folder / "alone"
    trial.train(config, "--device", "cuda", run_dir=whole)
    done = lockstep_run.run(trial.program, ["replay", whole, "--step", "12", "--device", "cuda"], 0,
                            {"FAKE_CUDA_HANG": "0:200"}, limit_s=60)
    trial.check(done.returncode == 6 and done.stderr.count("error: ") == 1 and
                "has not finished its work within 4 s: it hangs" in done.stderr,
                "a replay that hangs", done.stdout + done.stderr)


def planned_rows(trial, config, *arguments):
    result = trial.folder / "plan.json"
    done = lockstep_run.run(
        trial.program, ["plan", config, "--device", "cuda", "--json", result, *arguments], 0)
    trial.check(done.returncode == 0, f"plan {' '.join(arguments)}", done.stdout + done.stderr)
    return json.loads(result.read_text())["memory_bytes"], done.stdout


def memory(trial):
    """The estimate is above what graphs have on the stand-in, and not by more than a few times."""
    for name, text in CONFIGS.items():
        config = trial.folder / f"{name}.textproto"
        config.write_text(text)
        for arguments in ((), ("--set", "train.lanes=1")):
            rows, table = planned_rows(trial, config, *arguments)
            run = trial.train(config, "--device", "cuda", "--max-steps", "3", "--log-level", "debug",
                              *arguments)
            nodes = [int(n) for n in re.findall(r"CUDA graphs: (\d+) nodes", run["text"])]
            planned = rows.get("CUDA graphs", 0) / (16 * 1024)
            trial.check(nodes and planned / 4 < nodes[-1] <= planned,
                        f"{name} {' '.join(arguments)}: {nodes[-1:]} nodes, {planned:.0f} planned",
                        table + run["text"])
    config = trial.folder / "mlp.textproto"
    nodes = {}
    for lanes in (4, 32):  # two recordings more than 8 lanes need
        run = trial.train(config, "--device", "cuda", "--max-steps", "3", "--log-level", "debug",
                          "--set", f"train.lanes={lanes}")
        nodes[lanes] = int((re.findall(r"CUDA graphs: (\d+) nodes", run["text"]) or ["0"])[-1])
    trial.check(0 < nodes[32] < 3 * nodes[4], f"many lanes share graphs: {nodes} nodes")
    rows, table = planned_rows(trial, config)
    eager, _ = planned_rows(trial, config, "--eager")
    trial.check("CUDA graphs" in table and "CUDA graphs" not in eager,
                "a row for graphs, but not for eager steps", table)
    for node_bytes, exceeded in ((16 * 1024, False), (128 * 1024, True)):
        run = trial.train(config, "--device", "cuda", "--max-steps", "3",
                          environment={"FAKE_GRAPH_NODE_BYTES": str(node_bytes)})
        trial.check(run["text"].count("are planned") == exceeded,
                    f"graphs of {node_bytes} bytes a node: a warning {exceeded}", run["text"])
    # Just too little for the graphs.
    graphs = rows["CUDA graphs"]
    device = sum(bytes for name, bytes in rows.items()
                 if name not in ("training batches", "evaluation batches", "evaluation predictions",
                                 "data set", "snapshot of weights", "snapshot of moments"))
    little = {"FAKE_GPU_BYTES": str((960 << 20) + device - graphs // 2)}
    trial.refused(5, ["GiB are free"], config, "--device", "cuda", environment=little)
    trial.train(config, "--device", "cuda", "--eager", "--max-steps", "2", environment=little)


def never_dry(trial):
    """The update is queued behind the gradients, and the next step behind the update: more steps do
    not let the GPU wait for the host more often. If the host decides, they do."""
    config = trial.folder / "mlp.textproto"
    for ranks in (0, 2) if lockstep_run.have_mpirun() else (0,):
        for optimizer, waits in (("adamw", False), ("lamb", True)):
            text = CONFIGS["mlp"].replace("adamw {", f"{optimizer} {{")
            config.write_text(text.replace("hash_every: 6", ""))
            counts = []
            for steps in ("5", "9"):
                run = trial.train(config, "--device", "cuda", "--max-steps", steps, ranks=ranks,
                                  environment={"FAKE_CUDA_COUNT": "1", "FAKE_GPUS": "2"})
                counts.append(sum(map(int, re.findall(r"ran dry (\d+) times", run["text"]))))
            more = counts[1] - counts[0]
            trial.check(counts[0] > 0 and (more >= 4 if waits else more == 0),
                        f"{optimizer} on {max(ranks, 1)} ranks: 4 more steps let a GPU wait {more} "
                        "times more", f"{counts}\n{run['text']}")


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(program, pathlib.Path(folder))
        if lockstep_run.have_mpirun():
            Hangs(trial).all()
        alone(trial)
        memory(trial)
        never_dry(trial)
        uneven_lanes(trial)
        lengths(trial)
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
