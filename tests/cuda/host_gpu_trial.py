"""Runs of a program, and what is found wrong with them; for host_gpu_test.py."""

import itertools
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402


class Trial:
    def __init__(self, program, folder):
        self.program, self.folder, self.failures, self.numbers = program, folder, [], itertools.count()

    def check(self, good, what, output=""):
        print(f"ok     {what}" if good else f"FAILED {what}\n{output}")
        if not good:
            self.failures.append(what)

    def new_folder(self):
        return self.folder / f"run{next(self.numbers)}"

    def train(self, config, *arguments, ranks=0, environment=None, run_dir=None):
        """The result, with the losses of all steps, and what was printed."""
        run_dir = run_dir or self.new_folder()
        result = run_dir.with_suffix(".json")
        done = lockstep_run.run(
            self.program, ["train", config, "--run-dir", run_dir, "--json", result, *arguments],
            ranks, environment)
        text = done.stdout + done.stderr
        if done.returncode != 0:
            self.check(False, f"exit code {done.returncode} of {' '.join(map(str, arguments))}",
                       text)
            return {"weights_hash": None, "losses": [], "eval_loss": math.nan, "metrics": [],
                    "text": text}
        lines = lockstep_run.metrics(run_dir)
        return dict(json.loads(result.read_text()), losses=[m["loss"] for m in lines],
                    metrics=lines, text=text)

    def follows_the_cpu(self, name, config, tolerance, stop):
        """What a training on the CPU and one on the GPU give. The losses of both must be close, and eager
        steps and a run that is resumed after `stop` steps have the GPU's bits."""
        cpu = self.train(config, "--device", "cpu")
        gpu = self.train(config, "--device", "cuda")
        # Sums in another order and products in one rounding less.
        self.close(cpu["losses"], gpu["losses"], tolerance, f"{name}: losses of the GPU follow the CPU's")
        eager = self.train(config, "--device", "cuda", "--eager")
        self.check(eager["weights_hash"] == gpu["weights_hash"],
                   f"{name}: replayed graphs give the bits of eager steps")
        half = self.folder / f"{name}-half"
        self.train(config, "--device", "cuda", "--max-steps", str(stop), run_dir=half)
        whole = self.train(config, "--device", "cuda", "--resume", "auto", run_dir=half)
        self.check(whole["weights_hash"] == gpu["weights_hash"], f"{name}: resumed, the same bits")
        return cpu, gpu

    def close(self, a, b, tolerance, what):
        worst = max((abs(x - y) / abs(x) for x, y in zip(a, b)), default=1)
        self.check(len(a) == len(b) > 0 and worst <= tolerance,
                   f"{what}: within {worst:.2g} of {tolerance:g}", f"{a}\n{b}")

    def refused(self, code, words, *arguments, environment=None):
        done = lockstep_run.run(self.program,
                                ["train", *arguments, "--run-dir", self.new_folder()], 0,
                                environment)
        lines = done.stderr.strip().splitlines()
        good = done.returncode == code and all(word in (lines or [""])[-1] for word in words)
        self.check(good, f"refused with {code}: {' ... '.join(words)}",
                   f"{done.returncode}\n{done.stdout}{done.stderr}")
