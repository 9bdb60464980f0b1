#!/usr/bin/env python3
"""Compares forecasts of `lockstep plan --on` with training runs on this machine.

    compare_forecast.py BINARY HARDWARE.textproto [--cases mlp,resnet18,...] [--config FILE ...]
                        [--layouts 1x1,1x2,2x1,2x1@1gbit] [--precisions FP32,BF16] [--repeats 3]
                        [--markdown FILE]

HARDWARE is what `lockstep doctor --calibrate` wrote on this machine. A layout RxT is R ranks of T
threads, RxT@RATE the same on R hosts whose network sends at RATE: network namespaces
(tests/distributed/hosts.py, as root), whose network is calibrated first. A case is one of cases.py
or the config FILE, whose batch and lanes are those of a rank. Each case is planned, then trained
`--repeats` times; what counts is the median over the repeats of a run's median step, without the
first fifth. The error is that of the middle of the forecast. Ends with 1 if one is larger than 10%.
Needs an idle machine.
"""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import cases  # noqa: E402
import hosts  # noqa: E402
import measure  # noqa: E402

STEPS = {"mlp": 1500, "table": 6000}
FEW_STEPS = 6
NETWORK_STEPS = 60
LIMIT = 0.1


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a case is trained."""
    name: str
    ranks: int
    threads: int
    machines: hosts.Hosts | None  # of one rank each; None: this one

    def command(self, words):
        words = [str(word) for word in words]
        if self.machines is not None:
            return [str(word) for word in self.machines.mpirun(1)] + words
        if self.ranks == 1:
            return measure.pinned(measure.allowed_cpus()[:self.threads], words)
        return ["mpirun", "--allow-run-as-root", "--map-by", f"slot:PE={self.threads}", "--bind-to",
                "core", "-n", str(self.ranks), *words]


@contextlib.contextmanager
def layout_of(text):
    place, _, rate = text.partition("@")
    ranks, threads = map(int, place.split("x"))
    with hosts.Hosts(ranks, rate) if rate else contextlib.nullcontext() as machines:
        yield Layout(text, ranks, threads, machines)


def config_of(case, layout):
    """The text of a case of cases.py or of a config file, for the ranks and threads of a layout."""
    if isinstance(case, cases.Case):
        steps = STEPS.get(case.name, FEW_STEPS)
        if layout.machines is not None:
            steps = min(steps, NETWORK_STEPS)
        return case.config(layout.ranks, layout.ranks, layout.threads, steps)
    text = case.read_text()
    for field in ("global_batch", "lanes"):
        text = re.sub(rf"\b{field}: (\d+)",
                      lambda match, name=field: f"{name}: {int(match[1]) * layout.ranks}", text)
    return text + f"\nexecution {{ threads: {layout.threads} }}\n"


def trained_ms(binary, config, layout, precision, folder):
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    run(layout.command([binary, "train", config, "--run-dir", run_dir, "--device", "cpu", "--set",
                        f"execution.precision={precision}"]))
    steps = [json.loads(line)["step_ms"] for line in (run_dir / "metrics.jsonl").open()]
    return statistics.median(steps[max(1, len(steps) // 5):])


def predicted_ms(binary, config, hardware, layout, precision, folder):
    out = folder / "plan.json"
    words = ["--ranks-per-node", "1"] if layout.machines is not None else []
    run([binary, "plan", config, "--on", hardware, "--ranks", str(layout.ranks), *words,
         "--set", f"execution.precision={precision}", "--json", out])
    return [1e3 * s for s in json.loads(out.read_text())["predicted_step_seconds"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("hardware", type=pathlib.Path)
    parser.add_argument("--cases", default="mlp,resnet18,resnet50,gpt2_124m,smollm_135m,bert_base")
    parser.add_argument("--config", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--layouts", default="1x1,1x2,2x1")
    parser.add_argument("--precisions", default="FP32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    binary = args.binary.resolve()
    chosen = [cases.CASES[name] for name in filter(None, args.cases.split(","))] + args.config
    lines = ["| case | precision | ranks x threads | predicted, ms a step | measured | error |",
             "| --- | --- | --- | ---: | ---: | ---: |"]
    worst = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-forecast-") as name:
        folder = pathlib.Path(name)
        for text in args.layouts.split(","):
            with layout_of(text) as layout:
                hardware = folder / "hardware.textproto"
                shutil.copy(args.hardware, hardware)
                if layout.machines is not None:
                    run(layout.command([binary, "doctor", "--calibrate", hardware]))
                for case in chosen:
                    config = folder / "case.textproto"
                    config.write_text(config_of(case, layout))
                    for precision in args.precisions.split(","):
                        low, high = predicted_ms(binary, config, hardware, layout, precision, folder)
                        ms = statistics.median(trained_ms(binary, config, layout, precision, folder)
                                               for _ in range(args.repeats))
                        error = (low + high) / 2 / ms - 1
                        worst = max(worst, abs(error))
                        title = case.name if isinstance(case, cases.Case) else case.stem
                        lines.append(f"| {title} | {precision} | {layout.name} | {low:.4g} to "
                                     f"{high:.4g} | {ms:.4g} | {100 * error:+.1f}% |")
                        print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")
    print(f"largest error {100 * worst:.1f}%")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
