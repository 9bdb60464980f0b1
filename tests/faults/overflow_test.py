#!/usr/bin/env python3
"""Numbers that overflow float32, in data of which the bad samples are known, and steps that explode.

Catches: an overflow that is called an error of the machine; a message that names another op, lane,
value or sample; an overflow of the loss, of an evaluation or of a moment that passes in silence;
skipped steps that the last line leaves out; a warning of exploding first steps that is missing, or
that a normal run gets.
"""
import array
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "distributed"))
import lockstep_run

NUMERIC = 7
SAMPLES, FEATURES = 64, 8
BAD = 37  # lane 1 of step 3, as nothing is shuffled
CONFIG = """
model { mlp { hidden: [16] LOSS } }
data { npy { train_inputs: "x.npy" train_labels: "y.npy" } shuffle: false }
train { global_batch: 16 lanes: 4 steps: 8 }
optimizer { sgd {} }
schedule { lr: 0.01 }
execution { threads: 1 }
output { tensorboard: false }
"""
SAME = "computed again it is the same, so the machine is not at fault"


def write_npy(path, dtype, shape, values):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") +
                     header.encode() + values.tobytes())


def floats(columns, scale=1.0):
    return array.array("f", [scale * ((i * 7919 % 13) / 6.5 - 1) for i in range(SAMPLES * columns)])


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.runs = binary, folder, 0
        self.write("x.npy", FEATURES, floats(FEATURES))
        self.write("y.npy", 1, floats(1))
        self.values = self.config("values", "loss: MEAN_SQUARED_ERROR")
        self.classes = self.config("classes", "", "classes.npy")
        labels = array.array("i", [i % 2 for i in range(SAMPLES)])
        write_npy(folder / "classes.npy", "<i4", (SAMPLES,), labels)

    def write(self, name, columns, values):
        write_npy(self.folder / name, "<f4", (SAMPLES, columns), values)

    def config(self, name, loss, labels="y.npy"):
        path = self.folder / f"{name}.textproto"
        path.write_text(CONFIG.replace("LOSS", loss).replace("y.npy", labels))
        return path

    def train(self, config, *settings, code=NUMERIC, ranks=0):
        self.runs += 1
        self.run = self.folder / f"run{self.runs}"
        done = lockstep_run.run(self.binary, [
            "train", config, "--data", self.folder, "--run-dir", self.run,
            *(word for setting in settings for word in ("--set", setting))], ranks)
        text = done.stdout + done.stderr
        assert done.returncode == code, (done.returncode, text)
        return text


def expect(text, *parts):
    for part in parts:
        assert re.search(part, text), (part, text)


def targets_overflow_the_loss(bench):
    targets = floats(1)
    targets[BAD] = 1e20
    bench.write("y20.npy", 1, targets)
    for ranks, rank in ((0, 0), (2, 0), (4, 1)):
        text = bench.train(bench.values, "data.npy.train_labels=y20.npy", ranks=ranks)
        expect(text, rf"step 3: loss is inf .*: rank {rank} on \S+, lane 1: the loss of the "
                     r"mean_squared_error '\S+' is the first that is not finite",
               r"targets up to 1e\+20", r"; targets reach 1e\+20 in sample 37 of \S*x\.npy and \S*y20\.npy", SAME,
               r"start again with targets scaled to about 1, or a lower schedule\.lr than 0\.01")
        assert "passing error" not in text and "inputs reach" not in text, text
    # FP16 sums do not hide it: no loss scale would help, as the pass is in FP32.
    text = bench.train(bench.values, "data.npy.train_labels=y20.npy", "comm.wire_dtype=FP16")
    expect(text, "step 3: loss is inf", SAME)


def inputs_overflow_the_weights(bench):
    inputs = floats(FEATURES)
    inputs[BAD * FEATURES:(BAD + 1) * FEATURES] = array.array("f", [3e38] * FEATURES)
    bench.write("x38.npy", FEATURES, inputs)
    text = bench.train(bench.classes, "data.npy.train_inputs=x38.npy", ranks=2)
    expect(text, "x38.npy: 1 of 64 samples has features beyond 1e.18, such as 3e.38 "
                 "in feature 0 of sample 37",
           r"step 3: the gradient's norm is \S+ \(0\.\d+ in step 1\): inputs reach 3e\+38 in sample 37",
           r"step 4: .*lane 0: the activation \S+ of the linear 'layers\.\S+' is the first that is "
           r"not finite, for all 4 samples of the lane \(it reads layers\.0 up to \S+, "
           r"layers\.1\.weight up to \S+",
           r"; in step 3 inputs reach 3e\+38 in sample 37 of \S*x38\.npy; " + SAME,
           "start again with inputs scaled to about 1")
    table = bench.folder / "t.csv"
    rows = [f"{i % 5},{i % 3},{i % 7 + 0.5}" for i in range(SAMPLES)]
    rows[BAD] = "1,1,1e30"
    table.write_text("a,b,c\n" + "\n".join(rows) + "\n")
    config = bench.folder / "table.textproto"
    config.write_text(bench.values.read_text().replace(
        'npy { train_inputs: "x.npy" train_labels: "y.npy" }',
        'table { train: "t.csv" target: "c" standardise_target: false }'))
    expect(bench.train(config), r"targets reach 1e\+30 in line 39 of \S*t\.csv", SAME)


def evaluation_overflows(bench):
    targets = floats(1)
    targets[BAD] = 1e20
    bench.write("eval.npy", 1, targets)
    text = bench.train(bench.values, "data.npy.eval_inputs=x.npy", "data.npy.eval_labels=eval.npy",
                       ranks=2)
    expect(text, r"step 8: the evaluation's loss is inf: rank 0 on \S+, evaluation: the loss of "
                 r"the mean_squared_error \S+ is the first that is not finite",
           r"targets reach 1e\+20 in sample 37 of \S*x\.npy and \S*eval\.npy", "start again with targets scaled")


def weights_overflow(bench):
    text = bench.train(bench.classes, "schedule.lr=1e30")
    expect(text, r"step 2: .* is the first that is not finite, for .* \(it reads .* up to "
                 r"\S+e\+\d\d.*\); computed again", SAME,
           r"start again with a lower schedule\.lr than 1e\+30, more warmup_steps, or "
           r"optimizer\.clip_norm")
    assert " reach " not in text, text


def moments_overflow(bench):
    bench.write("y19.npy", 1, floats(1, 1e18))
    bench.write("xs.npy", FEATURES, floats(FEATURES, 100))
    data = ("data.npy.train_labels=y19.npy", "data.npy.train_inputs=xs.npy")
    text = bench.train(bench.values, "optimizer.adamw={}", *data)
    expect(text, "step 1: loss is .*the square of that norm overflows float32 in the optimizer's "
                 "moment exp_avg_sq", SAME)
    bench.train(bench.values, "optimizer.adamw={}", "optimizer.clip_norm=1", *data, code=0)


def skipped_steps_are_counted(bench):
    bench.write("y100.npy", 1, floats(1, 100))
    text = bench.train(bench.values, "comm.wire_dtype=FP16", "data.npy.train_labels=y100.npy",
                       "schedule.lr=0.0001", code=0)
    skipped = lockstep_run.metrics(bench.run)[-1]["skipped_steps"]
    assert skipped > 0 and "error" not in text, (skipped, text)
    s = "s" if skipped > 1 else ""
    last = rf"done at step 8 .*, {skipped} step{s} skipped \(gradients overflowed FP16\)"
    expect(text, last)
    expect((bench.run / "log.txt").read_text().splitlines()[-1], last)
    assert json.loads((bench.run / "end.json").read_text())["skipped_steps"] == skipped
    text = bench.train(bench.values, "data.npy.train_labels=y20.npy", "train.steps=10",
                       "guard.on_not_finite=SKIP_STEP", code=0)
    expect(text, r"step 3: loss is inf .*; the step is skipped",
           r"done at step 10 .*, 2 steps skipped \(loss or gradient was not finite\)")
    assert "skipped" not in bench.train(bench.values, code=0)
    assert "skipped_steps" not in json.loads((bench.run / "end.json").read_text())


def first_steps_explode(bench):
    quiet = bench.train(bench.classes, code=0) + bench.train(bench.values, code=0)
    assert "in step 1" not in quiet and "clip_norm" not in quiet, quiet
    bench.write("x6.npy", FEATURES, floats(FEATURES, 1e6))
    large = "data.npy.train_inputs=x6.npy"
    before = bench.train(bench.classes, large, "optimizer.adamw={}", "train.steps=3", code=0)
    expect(before, r"step 1: the gradient's norm is \S+: inputs reach 1e\+06 in sample "
                   r"\d+ of \S*x6\.npy; give inputs scaled to about 1, or lower schedule\.lr 0\.01; "
                   r"optimizer\.clip_norm would limit the updates")
    assert before.count("would limit the updates") == 1, before
    clipped = bench.train(bench.classes, large, "optimizer.clip_norm=1", "train.steps=3", code=0)
    expect(clipped, "optimizer.clip_norm 1 limits the updates")
    text = bench.train(bench.values, "schedule.lr=50", "train.steps=3", code=0)
    expect(text, r"step [23]: the (loss|gradient's norm) is \S+ \(\S+ in step 1\): "
                 r"schedule\.lr 50 is probably too high")


def main():
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(sys.argv[1], pathlib.Path(name))
        for test in (targets_overflow_the_loss, inputs_overflow_the_weights, evaluation_overflows,
                     weights_overflow, moments_overflow, skipped_steps_are_counted,
                     first_steps_explode):
            test(bench)
            print(f"{test.__name__}: as expected")


if __name__ == "__main__":
    main()
