"""The parts of the GPU check that pass or fail: see README.md."""
import json
import math
import os
import re
import shutil

import configs
from machine import last_line, plain_name

DOES_NOT_FIT = 5  # or the GPU is busy: the exit code for what this GPU, not the program, lacks


def some(machine, of, every):
    """All; if only the check itself is tried, each `every`th."""
    return of[::every] if machine.small else of


def worst(a, b, key="loss"):
    """The largest relative difference of two runs' losses; infinite if one is missing or no
    number."""
    def difference(x, y):
        good = x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
        return abs(x - y) / abs(x) if good else math.inf
    if not a or len(a) != len(b):
        return math.inf
    return max(difference(x[key], y[key]) for x, y in zip(a, b))


def in_precision(precision):
    return ["--set",
            "execution.tf32=true" if precision == "TF32" else f"execution.precision={precision}"]


def surprising_fallbacks(done):
    """Lines about native kernels in place of a library's, without those that the program knows to be
    beyond it (kKnownLimit of runtime/cuda/cudnn/cudnn_attention.h)."""
    return [line for line in done.stderr.splitlines()
            if "native kernel" in line and "a known limit" not in line]


# ---- Ops ----

class Selftest:
    """The cases of one precision in one process. If it ends in an op, it is started again without
    that op, the second time without all ops of its kind; if it names no op, without that case."""

    QUIET_S = 45  # a case that hangs
    FAULTS_OF_A_CASE = 3
    FAULTS_IN_A_ROW = 8  # without a case that ends between them: a GPU that does nothing any more

    def __init__(self, machine, report, stage, precision):
        self.machine, self.report, self.stage, self.precision = machine, report, stage, precision
        cases = machine.lockstep("selftest", "--list").stdout.strip().splitlines()
        report.check(stage, "the self-test has cases", bool(cases))
        # In BF16 all of them: a part of what is left to native kernels is known only there.
        self.remaining = cases if precision == "BF16" else some(machine, cases, 4)
        self.skipped, self.faulty = [], set()

    def run(self):
        said, faults, in_a_row = [], 0, 0
        while self.remaining:
            before = len(self.remaining)
            done = self.start()
            said += [line for line in done.stderr.splitlines() if line not in said]
            if not self.remaining:
                break
            ended_some = len(self.remaining) < before
            faults = 1 if ended_some else faults + 1
            in_a_row = 1 if ended_some else in_a_row + 1
            if not self.skip(done) or faults == self.FAULTS_OF_A_CASE:
                self.remaining, faults = self.remaining[1:], 0
            if in_a_row == self.FAULTS_IN_A_ROW:
                self.report.check(self.stage, f"{self.precision}: the self-test goes on", False,
                                  f"{in_a_row} faults in a row; not compared: "
                                  + ", ".join(self.remaining), "cases that end")
                break
        return said

    def start(self):
        only = [word for case in self.remaining for word in ("--only", case)]
        skip = [word for op in self.skipped for word in ("--skip-op", op)]
        return self.machine.lockstep("selftest", "--precision", self.precision, *only, *skip,
                                     limit_s=400, quiet_s=self.QUIET_S, watch=self.take_ended)

    def take_ended(self, printed):
        """The report has each case as soon as it ends."""
        lines = printed.splitlines()
        while self.remaining:
            where = f"{self.precision} {self.remaining[0]}"
            end = re.compile(rf"(ok|FAILED)\s+{re.escape(where)}\s+worst output off by (\S+)$")
            found = [m for m in map(end.match, lines) if m]
            if not found:
                return
            off = [" ".join(line.split()) for line in lines
                   if re.match(rf"FAILED\s+{re.escape(where)}\s.* of \S+$", line)]
            self.report.check(self.stage, where, found[0][1] == "ok",
                              "; ".join(off[:3]) or found[0][2],
                              "outputs that differ from the CPU's by rounding")
            self.remaining = self.remaining[1:]

    def skip(self, done):
        """Whether the op is known that ended the process, which is not run again then."""
        where = f"{self.precision} {self.remaining[0]}"
        fault = re.search(rf"error: {re.escape(where)}: ([^:\n]+): (.*)", done.stderr)
        op = f"{where}: {fault[1]}" if fault else where
        self.report.check(self.stage, op, False, fault[2] if fault else last_line(done),
                          "outputs to compare with the CPU's")
        if not fault or op in self.skipped:
            return False
        kind = fault[1].split()[0]
        self.skipped.append(kind if kind in self.faulty else op)
        self.faulty.add(kind)
        return True


def selftest(machine, report, stage, precision):
    said = Selftest(machine, report, stage, precision).run()
    # Some of the convolutions are there to need it: in groups, dilated, with odd channels.
    own = [line for line in said if "native kernel" in line]
    report.figure(f"kinds of convolutions of the self-test in {precision} beside cuDNN",
                  sum("convolution" in line for line in own))
    if precision in ("BF16", "FP16"):
        attention = [line for line in own if "attention" in line and "a known limit" not in line]
        report.check(stage, f"{precision}: attention runs on cuDNN, but for its known limits",
                     not attention, "; ".join(attention[:3]), "no warning that cuDNN refuses it")


def kernels(machine, report):
    """Every op against the CPU in BF16, in one process that goes on after a fault."""
    selftest(machine, report, "kernels", "BF16")


def precisions(machine, report):
    """Every op against the CPU in FP32, FP16 and TF32."""
    for precision in ("FP32", "FP16", "TF32"):
        if machine.fits(report, f"the self-test in {precision}", 40):
            selftest(machine, report, "precisions", precision)


# ---- Whole trainings ----

def same_hash(machine, report, stage, what, *runs):
    """Whether two runs, each (result, CompletedProcess), have both ended well and with the same
    weights."""
    lacking = [done for _, done in runs if done.returncode == DOES_NOT_FIT]
    if lacking:
        report.leave_out(what, last_line(lacking[0]))
        return False
    hashes = [result["weights_hash"] if result else last_line(done) for result, done in runs]
    good = all(result for result, _ in runs) and hashes[0] == hashes[1]
    if not good:
        for result, done in runs:
            if result:  # what failed is kept already
                machine.keep(done)
    return report.check(stage, what, good, hashes[0] if good else hashes[1], hashes[0])


class SameBits:
    """Runs of one config that must end with the same weights."""

    def __init__(self, machine, report, stage, name, text, *how):
        self.machine, self.report, self.stage, self.name, self.text, self.how = (
            machine, report, stage, name, text, how)
        self.first = self.train()

    def train(self, *arguments, **options):
        return self.machine.train(self.text, *self.how, *arguments, smaller=configs.SMALL,
                                  **options)[::2]

    def compare(self, what, run):
        return same_hash(self.machine, self.report, self.stage,
                         f"{self.name}: {what}: the same weights", self.first, run)

    def check(self, what, *arguments, **options):
        return self.compare(what, self.train(*arguments, **options))

    def resumed(self):
        half = self.machine.config(self.text, configs.SMALL)
        steps = "2" if self.machine.small else "6"
        for step in (["--max-steps", steps], ["--resume", "auto"]):
            done = self.machine.lockstep("train", half, "--device", "cuda", *self.how, "--run-dir",
                                         half.with_suffix(""), "--json", half.with_suffix(".json"),
                                         *step)
            if done.returncode != 0:
                return self.compare("saved half-way and resumed", (None, done))
        return self.compare("saved half-way and resumed",
                            (json.loads(half.with_suffix(".json").read_text()), done))


def parity(machine, report):
    """Whole steps of one rank against the CPU, the precisions against FP32, replay against eager,
    over 100 steps."""
    for name, text in (("MLP", configs.MLP), ("GPT", configs.GPT), ("ResNet-20", configs.RESNET)):
        _, cpu, done = machine.train(text, device="cpu", smaller=configs.SMALL)
        result, gpu, gpu_done = machine.train(text, smaller=configs.SMALL)
        if not cpu or not gpu:
            report.check("parity", f"{name} trains", False, last_line(gpu_done if cpu else done),
                         "exit code 0")
            continue

        def follows(what, a, b, limit, done=None):
            report.check("parity", f"{name}: {what}", b and worst(a, b) < limit,
                         f"{worst(a, b):.2g}" if b else last_line(done), f"less than {limit:g}")
        # Dropout is the same, rounding is not: a run's losses drift apart slowly.
        follows("the first 10 losses follow the CPU's", cpu[:10], gpu[:10], 1e-4)
        follows("100 losses follow the CPU's", cpu, gpu, 1e-2)
        eager, _, eager_done = machine.train(text, "--eager", smaller=configs.SMALL)
        same_hash(machine, report, "parity", f"{name}: replayed steps have the bits of eager ones",
                  (result, gpu_done), (eager, eager_done))
        for precision, limit in some(machine, (("BF16", 0.05), ("TF32", 0.02), ("FP16", 0.02)), 3):
            # So small that FP16 skips no step, which would set its losses back.
            scale = ["--set", "execution.loss_scale=1024"] if precision == "FP16" else []
            _, lines, done = machine.train(text, *in_precision(precision), *scale,
                                           smaller=configs.SMALL)
            follows(f"100 losses in {precision} follow FP32", gpu, lines, limit, done)


def bits(machine, report):
    """On one rank: the same bits from run to run, replayed or queued anew, recomputed, saved and
    resumed."""
    gpt, resnet = configs.few_steps(configs.GPT), configs.few_steps(configs.RESNET)
    for precision in some(machine, ("BF16", "FP32"), 2):
        for name, text in (("GPT", gpt), ("ResNet-20", resnet),
                           ("GPT with LAMB", configs.with_lamb(gpt))):
            runs = SameBits(machine, report, "bits", f"{name}, {precision}", text,
                            *in_precision(precision))
            runs.check("a second run")
            runs.check("eager steps", "--eager")
            if name == "GPT":
                runs.check("recomputed blocks", "--set", "execution.recompute=BLOCKS")
            runs.resumed()


# ---- Ranks ----

SHARED = {"limit_s": 100}
BETWEEN_GRAPHS = {"LOCKSTEP_NCCL_BETWEEN_GRAPHS": "1"}
TWO_RANKS = "GPT, FP32, 3 steps"


def nccl_environment(machine):
    machine.environment = {"NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}


def two_ranks(machine, report):
    """Two ranks share the GPU through NCCL, over sockets: eager, replayed, and with NCCL between
    the graphs."""
    nccl_environment(machine)
    two = SameBits(machine, report, "two_ranks", TWO_RANKS, configs.few_steps(configs.GPT),
                   "--max-steps", "3")
    hang = {"limit_s": 45}
    if not two.check("2 ranks, eager", "--share-gpu", "--eager", ranks=2, **hang):
        return  # nothing else can work
    two.check("2 ranks, replayed", "--share-gpu", ranks=2, **hang)
    # The way out if the one before fails.
    two.check("2 ranks, NCCL between graphs", "--share-gpu", ranks=2, environment=BETWEEN_GRAPHS,
              **hang)


def ranks(machine, report):
    """Several ranks share the GPU in all ways to share out."""
    def went_well(how):
        return report.passed(f"{TWO_RANKS}: 2 ranks, {how}: the same weights")
    gpt, resnet = configs.few_steps(configs.GPT), configs.few_steps(configs.RESNET)
    nccl_environment(machine)
    if went_well("eager") is False:
        return report.leave_out("several ranks", "two ranks do not even train eager: two_ranks")
    if went_well("replayed") is False:
        if not went_well("NCCL between graphs"):
            return report.leave_out("several ranks", "two ranks train only eager: two_ranks")
        machine.environment.update(BETWEEN_GRAPHS)
    for precision in some(machine, ("FP32", "BF16"), 2):
        how = in_precision(precision)
        runs = SameBits(machine, report, "ranks", f"GPT, {precision}", gpt, *how)
        for stage in some(machine, (0, 1, 2, 3), 3):
            runs.check(f"2 ranks, ZeRO stage {stage}", "--share-gpu", "--set",
                       f"comm.zero_stage={stage}", ranks=2, **SHARED)
        runs.check("4 ranks", "--share-gpu", ranks=4, **SHARED)
        runs.check("2 ranks, smaller buckets", "--share-gpu", "--set", "comm.bucket_mib=0.5",
                   ranks=2, **SHARED)
        SameBits(machine, report, "ranks", f"ResNet-20, {precision}", resnet, *how).check(
            "2 ranks", "--share-gpu", ranks=2, **SHARED)
    for wire in some(machine, ("BF16", "FP16"), 2):
        runs = SameBits(machine, report, "ranks", f"GPT, BF16, {wire} on the wire", gpt,
                        *in_precision("BF16"), "--set", f"comm.wire_dtype={wire}")
        for stage in some(machine, (0, 1, 2), 2):
            runs.check(f"2 ranks, ZeRO stage {stage}", "--share-gpu", "--set",
                       f"comm.zero_stage={stage}", ranks=2, **SHARED)
    for compression in (("wire_dtype=BF16", "error_feedback=true"),
                        ("zero_stage=0", "power_sgd_rank=2")):
        sets = [word for setting in compression for word in ("--set", f"comm.{setting}")]
        runs = SameBits(machine, report, "ranks", f"GPT, BF16, {', '.join(compression)}", gpt,
                        *in_precision("BF16"), *sets)
        runs.check("2 ranks", "--share-gpu", ranks=2, **SHARED)
    lamb = SameBits(machine, report, "ranks", "GPT with LAMB, BF16", configs.with_lamb(gpt),
                    *in_precision("BF16"))
    lamb.check("2 ranks", "--share-gpu", ranks=2, **SHARED)
    return None


# That the memory taken equals the plan every run checks by itself: it ends with exit code 70 if it
# does not.
def refusals(machine, report):
    """No GPU, a batch too large and two ranks on one GPU end with a clear line and the documented
    exit code."""
    config = machine.config(configs.GPT)
    for what, code, word, arguments, how in (
            ("no GPU visible", 2, "GPU", [], {"environment": {"CUDA_VISIBLE_DEVICES": ""}}),
            ("a batch that no GPU holds", 5, "would fit", configs.TOO_LARGE, {}),
            ("two ranks on one GPU", 2, "--share-gpu", [], {"ranks": 2})):
        done = machine.lockstep("train", config, "--device", "cuda", "--run-dir",
                                config.with_suffix(""), *arguments, **how)
        report.check("refusals", what, done.returncode == code and word in done.stderr,
                     last_line(done), f"exit code {code} and '{word}'")


# ---- The sanitizer ----

FOUND_ERRORS = 9


def sanitizer(machine, report):
    """compute-sanitizer on a tiny run or two a tool."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        return report.leave_out("compute-sanitizer", "not on this machine")
    # The libraries' kernels are checked for what they do to memory alone: their races are by design. That a
    # library asks for functions which a driver has not is no error.
    own = ["--kernel-regex", "kns=lockstep"]
    gpt, lamb, images = configs.TINY, configs.with_lamb(configs.TINY), configs.TINY_IMAGES
    for name, precision, how, kind, text in (("memcheck", "BF16", [], "GPT", gpt),
                                             ("racecheck", "BF16", own, "GPT", gpt),
                                             ("memcheck", "BF16", [], "images", images),
                                             ("memcheck", "FP32", [], "GPT", gpt),
                                             ("synccheck", "BF16", own, "GPT", gpt),
                                             ("memcheck", "BF16", [], "LAMB", lamb),
                                             ("racecheck", "BF16", own, "images", images)):
        what = f"{name}, {precision}, {kind}"
        if not machine.fits(report, what, 20):
            continue
        config = machine.config(text)
        train = [machine.program, "train", config, "--device", "cuda", "--eager", "--run-dir",
                 config.with_suffix(""), *in_precision(precision)]
        done = machine.start([tool, "--tool", name, "--error-exitcode", FOUND_ERRORS,
                              "--report-api-errors", "no", "--print-limit", "20", *how, *train],
                             limit_s=180)
        (machine.out / f"sanitizer-{plain_name(what)}.txt").write_text(done.stdout + done.stderr)
        # Some machines lend a GPU without what the tool needs of it.
        if done.returncode not in (0, FOUND_ERRORS) and machine.start(train).returncode == 0:
            return report.leave_out("compute-sanitizer", "does not work here: " + last_line(done))
        report.check("sanitizer", what, done.returncode == 0, last_line(done),
                     "a run without errors")
    return None
