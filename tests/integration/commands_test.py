#!/usr/bin/env python3
"""Catches: a command that does not do what README and --help say after a training: eval that gives
other figures, a resumed run that trains on after its end, files that a refused command has changed.

commands_test.py BINARY
"""
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import lockstep_run
from predicted_outputs import predicts

MLP = """
model { mlp { hidden: [16, 8] dropout: 0.1 } }
data { table { train: "train.csv" eval: "eval.csv" target: "label" } }
train { global_batch: 16 lanes: 4 steps: 60 log_every: 1000000 }
optimizer { adamw {} }
schedule { lr: 0.01 }
eval { every: 20 }
output { tensorboard: false }
"""
GPT = """
model { gpt { layers: 1 heads: 2 width: 16 context: 16 vocabulary: 300 } }
data { text { train: "text.txt" eval_fraction: 0.2 } }
train { global_batch: 8 lanes: 4 steps: 20 log_every: 1000000 }
optimizer { adamw {} }
schedule { lr: 0.01 }
output { tensorboard: false }
"""


def table(rows, seed):
    draw = random.Random(seed)
    lines = ["size,weight,label"]
    for _ in range(rows):
        size, weight = draw.uniform(-1, 1), draw.uniform(-1, 1)
        lines.append(f"{size:.4f},{weight:.4f},{'heavy' if size + weight > 0 else 'light'}")
    return "\n".join(lines) + "\n"


class Bench:
    """A folder with configs and data, and the binary."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        (folder / "train.csv").write_text(table(300, 1))
        (folder / "eval.csv").write_text(table(101, 2))
        (folder / "text.txt").write_text("a small text, again and again. " * 60)
        self.mlp, self.gpt = folder / "mlp.textproto", folder / "gpt.textproto"
        self.mlp.write_text(MLP)
        self.gpt.write_text(GPT)

    def run(self, *arguments, ranks=0, code=0):
        done = lockstep_run.run(self.binary, [*arguments], ranks, cwd=self.folder)
        assert done.returncode == code, (
            f"{arguments}: exit code {done.returncode}, expected {code}\n{done.stderr}")
        return done

    def train(self, config, run, *arguments, ranks=0):
        return lockstep_run.train(self.binary, config, self.folder / run, ranks,
                                  ["--data", self.folder, *arguments])


def evaluates(bench):
    """eval gives the figures that training gave, on any number of ranks."""
    for config, run in ((bench.mlp, "mlp"), (bench.gpt, "gpt")):
        trained = bench.train(config, run)
        for ranks in (0, 1, 2, 4):
            out = bench.folder / "eval.json"
            bench.run("eval", config, "--data", bench.folder, "--checkpoint", bench.folder / run,
                      "--json", out, ranks=ranks)
            found = json.loads(out.read_text())
            assert found["eval_loss"] == trained["eval_loss"], (ranks, found, trained)
            for figure in ("eval_accuracy", "eval_top5_accuracy", "eval_perplexity"):
                assert found.get(figure) == trained.get(figure), (ranks, found, trained)
            if config == bench.gpt:
                assert math.isclose(found["eval_perplexity"], math.exp(found["eval_loss"])), found
                assert found["eval_accuracy"] <= found["eval_top5_accuracy"] < 1, found
            assert found["weights_hash"] == trained["weights_hash"], (ranks, found, trained)
    best = bench.run("eval", bench.mlp, "--data", bench.folder, "--checkpoint",
                     bench.folder / "mlp/checkpoints/best")
    assert "on 101 samples" in best.stdout, best.stdout
    few = bench.run("eval", bench.mlp, "--data", bench.folder, "--checkpoint", bench.folder / "mlp",
                    "--set", "eval.max_samples=7")
    assert "on 7 samples" in few.stdout, few.stdout


def averages(bench):
    """The average of the weights can be evaluated and exported; what has none says so."""
    trained = bench.train(bench.mlp, "averaged", "--set", "train.ema_decay=0.9")
    out = bench.folder / "eval.json"
    checkpoint = ("--data", bench.folder, "--checkpoint", bench.folder / "averaged", "--json", out)
    losses = []
    for flags in ([], ["--average"]):
        bench.run("eval", bench.mlp, *checkpoint, *flags)
        losses.append(json.loads(out.read_text())["eval_loss"])
        bench.run("export", bench.folder / "averaged", "--out",
                  bench.folder / f"weights{len(losses)}.safetensors", *flags)
    assert losses[1] == trained["eval_loss"] != losses[0], (losses, trained)
    started = bench.run("train", bench.mlp, "--data", bench.folder, "--run-dir",
                        bench.folder / "from-average", "--set",
                        f"train.init_from={bench.folder}/weights2.safetensors", "--set",
                        "schedule.lr=1e-30", "--set", "train.steps=1", "--json", out)
    assert json.loads(out.read_text())["eval_loss"] == trained["eval_loss"], started.stdout
    done = bench.run("eval", bench.mlp, "--data", bench.folder, "--checkpoint",
                     bench.folder / "mlp", "--average", code=4)
    assert "train.ema_decay" in done.stderr, done.stderr
    kept = (bench.folder / "weights1.safetensors").read_bytes()
    bench.run("export", bench.folder / "mlp", "--out", bench.folder / "weights1.safetensors",
              "--average", code=4)
    assert (bench.folder / "weights1.safetensors").read_bytes() == kept, (
        "a refused export has changed its file")


def benches(bench):
    """Every op of a network whose norms need all lanes can be timed alone."""
    config, out = bench.folder / "norms.textproto", bench.folder / "ops.json"
    config.write_text("""
        model { resnet { depth: 20 sync_batch_norm: true } }
        data { synthetic { samples: 8 classes: 3 height: 16 width: 16 channels: 3 } }
        train { global_batch: 8 lanes: 4 steps: 1 }
        optimizer { sgd {} }
        schedule { lr: 0.1 }
    """)
    bench.run("bench", "ops", config, "--repeats", 1, "--json", out)
    assert "gather_lanes" in out.read_text(), out.read_text()
    found = json.loads(out.read_text())
    for row in found["ops"]:
        assert row["units"] in ("multiply-adds", "AMX tiles") and row["peak_tflops"] > 0, row
        shares = {row["units"]: row["tflops"] / row["peak_tflops"],
                  "a large copy": row["gbytes_per_s"] / found["copy_gbytes_per_s"]}
        best = max(shares, key=shares.get)
        assert row["ceiling"] == best and abs(row["share_of_ceiling"] - shares[best]) < 1e-6, row
    done = bench.run("bench", "ops", bench.gpt, "--data", "nowhere", "--repeats", 1, "--json", out)
    told = json.loads(out.read_text())["assumed"]
    assert "text.txt does not exist" in told and told in done.stdout, done.stdout


def exchanges(bench):
    """Every collective is checked and timed, in both orders, within a node and between two."""
    out = bench.folder / "collectives.json"
    command = ("bench", "collectives", "--sizes", "4,100KiB", "--orders", "TREE,FAST", "--repeats",
               3, "--json", out)
    for ranks, nodes in ((2, 1), (4, 1), (4, 2)):
        done = lockstep_run.run(bench.binary, command, ranks, nodes=nodes)
        assert done.returncode == 0, (ranks, nodes, done.stderr)
        found = json.loads(out.read_text())
        assert (found["ranks"], found["nodes"]) == (ranks, nodes), found
        rows = {(row["collective"], row["order"], row["bytes"]) for row in found["timings"]}
        assert len(rows) == 2 * 2 * 2 + 2 * 2, rows
        assert all(row["p99_us"] >= row["p50_us"] > 0 for row in found["timings"]), found
    for transport, carries in (("TCP", "tcp"), ("AUTO", "mpi"), ("MPI", "mpi")):
        bench.run(*command, "--no-shared-memory", "--transport", transport, ranks=2)
        found = json.loads(out.read_text())["transport"]
        assert found == carries, f"--transport {transport}: {found}"
    for wire in ("BF16", "FP16"):
        for ranks, nodes in ((2, 1), (4, 2)):
            rounded = ("bench", "collectives", "--sizes", "6,100KiB", "--wire", wire, "--repeats",
                       3, "--json", out)
            done = lockstep_run.run(bench.binary, rounded, ranks, nodes=nodes)
            assert done.returncode == 0, (wire, ranks, nodes, done.stderr)
            found = json.loads(out.read_text())
            assert found["transport"] == "mpi", found
            for row in found["timings"]:
                sums = row["collective"] in ("all_reduce", "reduce_scatter")
                assert row["dtype"] == (wire if sums else "FP32"), row
            # Vectors are padded to 64 numbers a rank.
            least = {row["collective"]: row["bytes"] for row in reversed(found["timings"])}
            assert (
                least["all_reduce"] == 64 * ranks * 2
                and least["all_gather"] == 64 * ranks * 4), least
        done = bench.run("bench", "collectives", "--wire", wire, "--orders", "TREE,FAST", ranks=2,
                         code=2)
        assert f"--wire: value is {wire}; allowed with --orders FAST: FP32" in done.stderr, (
            done.stderr)
    bench.run("bench", "collectives", "--wire", "FP8", code=2)
    done = bench.run("bench", "collectives", "--sizes", "1KiB", ranks=0, code=2)
    assert "at least 2" in done.stderr, done.stderr
    bench.run("bench", "collectives", "--sizes", "many", code=2)
    done = bench.run("bench", "collectives", "--sizes", "8GiB", "--orders", "FAST", ranks=2, code=2)
    assert "FAST order over MPI: less than 8GiB" in done.stderr, done.stderr


def sends(bench):
    """TCP by name carries whatever ranks of one host send, to the same bits."""
    alone = bench.train(bench.mlp, "sends-alone")["weights_hash"]
    tcp = ("--set", "comm.transport=TCP", "--set")
    changes = (("comm.shared_memory=false", "tcp"), ("comm.zero_stage=3", "tcp"),
               ("comm.zero_stage=1", "shared memory"), ("comm.zero_stage=0", "shared memory"),
               ("comm.zero_stage=0 comm.shared_memory=false", "tcp"))
    for number, (change, carries) in enumerate(changes):
        found = bench.train(bench.mlp, f"sends{number}", *tcp,
                            *" --set ".join(change.split()).split(), ranks=2)
        assert (found["transport"], found["weights_hash"]) == (carries, alone), (change, found)


def limits_vector_units(bench):
    """LOCKSTEP_SIMD limits the units of each rank, environment.json names them, and the bits stay."""
    def trained(name, environments):
        run, result = bench.folder / name, bench.folder / f"{name}.json"
        done = lockstep_run.run(
            bench.binary, ["train", bench.mlp, "--data", bench.folder, "--run-dir", run, "--json", result,
                           "--set", "model.mlp.hidden=100,33", "--set", f"execution.bf16x3={bf16x3}"],
            len(environments), apart=environments)
        assert done.returncode == 0, done.stderr
        units = json.loads((run / "environment.json").read_text())["simd"]
        return json.loads(result.read_text())["weights_hash"], units, done.stderr

    for bf16x3 in ("false", "true"):
        whole, [best], _ = trained(f"units-{bf16x3}", [["LOCKSTEP_SIMD="]])
        if best == "baseline":
            print("skipped: this processor has no AVX2")
            return
        found, units, log = trained(f"avx2-{bf16x3}", [["LOCKSTEP_SIMD=AVX2"], ["LOCKSTEP_SIMD="]])
        assert (found, units) == (whole, ["AVX2", best]), (found, whole, units, best)
        without_amx = 1 if best == "AMX" else 2
        warned = f"{without_amx} of 2 ranks, the first is rank 0, cannot use AMX" in log
        assert warned == (bf16x3 == "true"), log


def generates(bench):
    """The text is bytes although the vocabulary has room for more; its length is what was asked
    for."""
    out = bench.folder / "generate.json"
    bench.run("generate", bench.gpt, "--checkpoint", bench.folder / "gpt", "--prompt", "a ",
              "--tokens", 200, "--temperature", 50, "--json", out)
    tokens = json.loads(out.read_text())["tokens"]
    assert len(tokens) == 200 and max(tokens) < 256, tokens
    generate = ("generate", bench.gpt, "--checkpoint", bench.folder / "gpt")
    bench.run(*generate, "--temperature", "nan", code=2)
    # Several prompts at once are what each is alone; a stop text ends its own alone, and is left out.
    prompts = bench.folder / "prompts.txt"
    prompts.write_bytes(b"\xEF\xBB\xBFa \r\nthe king\n")
    likeliest = ("--tokens", 30, "--temperature", 0, "--json", out)
    bench.run(*generate, *likeliest, "--prompts", prompts, "--prompt", "of")
    together = json.loads(out.read_text())["sequences"]
    assert len(together) == 3 and {one["end"] for one in together} == {"length"}, together
    alone = []
    for prompt in ("of", "a ", "the king"):
        text = bench.run(*generate, *likeliest, "--prompt", prompt).stdout
        alone.append(json.loads(out.read_text())["sequences"][0])
        assert text == prompt + alone[-1]["text"] + "\n", text
    assert together == alone, (together, alone)
    stop = bytes(alone[0]["tokens"][3:5])  # bytes, perhaps of no character
    bench.run(*generate, *likeliest, "--prompt", "of", "--stop",
              stop.decode(errors="surrogateescape"))
    stopped = json.loads(out.read_text())["sequences"][0]
    assert stopped["end"] == "stop text" and stop in bytes(stopped["tokens"]), stopped
    assert stopped["tokens"] == alone[0]["tokens"][:len(stopped["tokens"])], (stopped, alone[0])
    assert alone[0]["text"].startswith(stopped["text"]), (stopped, alone[0])
    last = alone[1]["tokens"][-1]
    bench.run(*generate, *likeliest, "--prompt", "a ", "--end-token", f"{last},299")
    ended = json.loads(out.read_text())["sequences"][0]
    assert ended["end"] == "end token", ended
    assert ended["tokens"] == alone[1]["tokens"][:alone[1]["tokens"].index(last)], ended
    bench.run(*generate, "--top-p", 1.5, code=2)
    bench.run("generate", bench.gpt, "--prompt", "a", code=2)  # no weights
    for content, told in ((b"", "is empty"), (b"a\n\nb\n", "prompts.txt:2: the line is empty"),
                          ("a\n".encode("utf-16"), "prompts.txt is UTF-16 text")):
        prompts.write_bytes(content)
        done = bench.run(*generate, "--prompts", prompts, code=3)
        assert "--prompts: " in done.stderr and told in done.stderr, done.stderr
    ids = bench.folder / "ids.textproto"
    ids.write_text(GPT.replace('text { train: "text.txt" eval_fraction: 0.2 }',
                               'tokens { train: "ids.bin" }'))
    absent = bench.folder / "absent"
    for arguments, told in (
            (("--prompts", absent), f"--prompts: cannot open '{absent}'"),
            (("--prompt", ""), "--prompt: has no tokens"), (("--stop", ""), "--stop: value is ''"),
            (("--end-token", 300), "--end-token: value is 300; allowed: 0 to 299"),
            (("--end-token", -5), "--end-token: value is -5; allowed: 0 to 299"),
            (("--prompt-tokens", 300), "--prompt-tokens: value is 300; allowed: 0 to 299")):
        done = bench.run(*generate, *arguments, code=2)
        assert told in done.stderr, (arguments, done.stderr)
    done = bench.run("generate", ids, "--checkpoint", bench.folder / "gpt", "--prompt-tokens", 1,
                     "--stop", "a", code=2)
    assert "--stop: the model was trained on token ids" in done.stderr, done.stderr


def ends(bench):
    """A run that is at its end trains no further, however often it is resumed."""
    first = bench.train(bench.mlp, "ends")
    again = bench.train(bench.mlp, "ends", "--resume", "auto")
    assert again["weights_hash"] == first["weights_hash"] and "loss" not in again, again
    stop = ("--set", "eval.every=1", "--set", "eval.early_stop_patience=1", "--set",
            "schedule.lr=0.5", "--set", "train.steps=500")
    first = bench.train(bench.mlp, "patience", *stop)
    assert first["early_stopped"], first
    again = bench.train(bench.mlp, "patience", "--resume", "auto", *stop)
    assert again["weights_hash"] == first["weights_hash"] and again["step"] == first["step"], (
        first, again)


def slices(bench):
    """A run done in slices evaluates and stops as one done at once."""
    stop = ("--set", "eval.every=10", "--set", "eval.early_stop_patience=2", "--set",
            "train.steps=300")
    whole = bench.train(bench.mlp, "whole", *stop)
    for until in (3, 17, 29, 31, 80, 300):
        sliced = bench.train(bench.mlp, "sliced", "--resume", "auto", "--max-steps", until, *stop)
    assert sliced["weights_hash"] == whole["weights_hash"] and sliced["step"] == whole["step"], (
        whole, sliced)


def refuses(bench):
    """A refusal changes nothing in the run folder, and comes before the work."""
    files = {p: p.read_bytes() for p in (bench.folder / "ends").rglob("*") if p.is_file()
             and p.name != "log.txt"}
    train = ("train", bench.mlp, "--data", bench.folder, "--run-dir")
    for change in ("seed=7", "data.shuffle=false", "train.steps=10"):
        bench.run(*train, bench.folder / "ends", "--resume", "auto", "--set", change, code=4)
    now = {p: p.read_bytes() for p in (bench.folder / "ends").rglob("*") if p.is_file()
           and p.name != "log.txt"}
    assert files == now, [str(p) for p in files.keys() | now.keys() if files.get(p) != now.get(p)]
    done = bench.run(*train, bench.folder / "no-json", "--json",
                     bench.folder / "nowhere/result.json", code=2)
    assert "--json" in done.stderr and not (bench.folder / "no-json").exists(), done.stderr
    bench.run(*train, bench.folder / "late", "--set", "train.steps=0", "--set", "train.epochs=1",
              "--set", "schedule.kind=WARMUP_STABLE_DECAY", "--set", "schedule.decay_steps=100",
              code=2)
    with open("/dev/full", "w") as full:
        done = subprocess.run([bench.binary, "plan", bench.mlp, "--data", bench.folder],
                              stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 4, done


def plans_without_data(bench):
    """The plan of data that are not here is that of data that are, but for what lies in memory;
    else it says what is missing."""
    out = bench.folder / "plan.json"
    found = {}
    for where in (bench.folder, bench.folder / "nowhere"):
        done = bench.run("plan", bench.gpt, "--data", where, "--json", out)
        found[where] = json.loads(out.read_text())
    here, assumed = found.values()
    told = assumed.pop("assumed")
    assert told in done.stdout, done.stdout
    assert "text.txt does not exist" in told and "model.gpt.vocabulary" in told, told
    assert here["memory_bytes"].pop("data set") == len("a small text, again and again. ") * 60, here
    assert assumed["memory_bytes"].pop("data set") == 0, assumed
    for plan in (here, assumed):
        plan.pop("memory_bytes_total")
    assert here == assumed, (here, assumed)
    done = bench.run("plan", bench.mlp, "--data", bench.folder / "nowhere", code=3)
    assert "nowhere/train.csv' does not exist" in done.stderr and "features" in done.stderr, (
        done.stderr)


def diverges(bench):
    """Numbers that are not finite are never saved as good."""
    done = bench.run("train", bench.mlp, "--data", bench.folder, "--run-dir", bench.folder / "nan",
                     "--set", "train.steps=1", "--set", "optimizer.sgd={}", "--set",
                     "schedule.lr=1e37", code=7)
    assert "no checkpoint has been written" in done.stderr, done.stderr
    assert not list((bench.folder / "nan").glob("checkpoints/step-*")), (
        "a checkpoint of numbers that are not finite")


def runs_from_elsewhere(bench):
    """The config that a run records holds in every folder, and resumes with the config of the start,
    whose paths are relative."""
    out = bench.folder / "eval.json"
    first = ("train", "mlp.textproto", "--run-dir", "runs/elsewhere", "--data", ".")
    bench.run(*first, "--max-steps", "20")
    run = bench.folder / "runs/elsewhere"
    for path in ("", "/runs/elsewhere"):
        assert f'"{bench.folder.resolve()}{path}"' in (run / "config.textproto").read_text(), path
    config = run / "config.textproto"
    for command in (["eval", config, "--checkpoint", run, "--json", out],
                    ["predict", config, "--checkpoint", run, "--out", bench.folder / "o.safetensors"],
                    ["train", config, "--resume", "auto", "--max-steps", "40"]):
        done = lockstep_run.run(bench.binary, command, ranks=0, cwd="/")
        assert done.returncode == 0 and "changed" not in done.stderr, (command, done.stderr)
    done = bench.run(*first, "--resume", "auto")
    assert "changed" not in done.stderr, done.stderr
    whole = bench.train(bench.mlp, "complete")
    assert whole["weights_hash"] in done.stdout + done.stderr, (whole, done.stdout, done.stderr)
    # The folder and what the run began with move together: relative paths lead to the same files.
    start = ("train", "mlp.textproto", "--run-dir", "runs/begun", "--set",
             "train.init_from=complete/checkpoints/step-00000060/model.safetensors")
    bench.run(*start, "--max-steps", "20")
    moved = bench.folder.with_name(bench.folder.name + "-moved")
    bench.folder.rename(moved)
    try:
        done = lockstep_run.run(bench.binary, [*start, "--resume", "auto"], ranks=0, cwd=moved)
        assert done.returncode == 0 and "changed" not in done.stderr, done.stderr
    finally:
        moved.rename(bench.folder)


def logs(bench):
    """log.txt tells the run."""
    text = (bench.folder / "ends/log.txt").read_text()
    for part in ("device cpu", "evaluation loss", "checkpoint written", "done at step 60",
                 "nothing left to do"):
        assert part in text, f"'{part}' is not in log.txt:\n{text}"


def tells_whether_done(bench):
    """`inspect --done` asks the run folder, not the exit code of whoever started the ranks."""

    def asked(name, code, words):
        said = bench.run("inspect", bench.folder / name, "--done", code=code).stdout
        assert words in said and said.count("\n") == 1, said

    asked("never", 1, "not done: no start in ")
    bench.train(bench.mlp, "part", "--max-steps", 20)
    asked("part", 0, "done: step 20 of 60, as --max-steps said, weights_hash ")
    bench.train(bench.mlp, "part", "--resume", "auto")
    asked("part", 0, "done: step 60 of 60, weights_hash ")
    # A start that is refused has not begun; one that fails later has.
    bench.run("train", bench.mlp, "--run-dir", bench.folder / "part", code=4)
    asked("part", 0, "done: step 60 of 60, weights_hash ")
    diverging = ["--set", "train.steps=90", "--set", "schedule.lr=1e30", "--resume", "auto"]
    bench.run("train", bench.mlp, "--run-dir", bench.folder / "part", *diverging, code=7)
    asked("part", 1, "its newest checkpoint has step 60")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-commands-") as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        for part in (evaluates, predicts, averages, benches, exchanges, sends,
                     limits_vector_units, generates, ends, slices, refuses, plans_without_data,
                     diverges, runs_from_elsewhere, logs, tells_whether_done):
            part(bench)
            print(part.__name__, "passed", flush=True)


if __name__ == "__main__":
    main()
