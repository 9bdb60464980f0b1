#!/usr/bin/env python3
"""Trains a case of cases.py on several hosts with Lockstep and with PyTorch's DistributedDataParallel,
in turns, one rank of one thread on each host. The hosts are network namespaces
(tests/distributed/hosts.py): as root. Gradients travel in FP32, and in BF16: comm.wire_dtype BF16
beside DDP's BF16 hook. PyTorch runs in the fastest of its set-ups (trainers.py) in a first round.

    compare_hosts.py --lockstep build/release/launcher/lockstep [--python PYTHON_WITH_TORCH]
                     [--cases gpt2_124m resnet50] [--hosts 2] [--rate 1gbit] [--rounds 3]
                     [--seconds 40] [--steps 8] [--variants NAME ...] [--set FIELD=VALUE ...]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import cases  # noqa: E402
import hosts  # noqa: E402
import measure  # noqa: E402
from trainers import VARIANTS  # noqa: E402


def pinned(host, command):
    cpus = measure.allowed_cpus()
    return measure.pinned([cpus[host % len(cpus)]], [str(word) for word in command])


def in_folder(train, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        return train(*arguments, pathlib.Path(folder))


def outputs_of(processes):
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs):
        if process.returncode != 0:
            raise SystemExit(output)
    return outputs


def lockstep_ms(made, options, case, wire, folder):
    config = folder / "config.textproto"
    config.write_text(case.config(made.count, made.count, 1, options.steps).replace(
        f"log_every: {options.steps}", "log_every: 1"))
    run = folder / "run"
    command = [os.path.abspath(options.lockstep), "train", config, "--device", "cpu",
               "--run-dir", run, "--set", f"comm.wire_dtype={wire}",
               *(word for setting in options.set for word in ("--set", setting))]
    outputs_of([made.start(host, pinned(host, command)) for host in range(made.count)])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "step_ms" in line][2:]  # the first ones are slower
    return {key: statistics.median(step[key] for step in steps)
            for key in ("step_ms", "comm_exposed_ms")}


def ddp_ms(made, options, case, wire, variant, folder):
    environment, words = VARIANTS[variant]
    command = [options.python, pathlib.Path(__file__).with_name("torch_train.py"), "--case",
               case.name, "--ranks", made.count, "--seconds", options.seconds,
               "--warmup-seconds", options.seconds / 4, "--meet", folder / "meet",
               *(["--bf16-hook"] if wire == "BF16" else []), *words]
    outputs = outputs_of([
        made.start(host, ["env", "GLOO_SOCKET_IFNAME=eth0", "OMP_NUM_THREADS=1",
                          *(f"{name}={value}" for name, value in environment.items()),
                          *pinned(host, [*command, "--rank", host])]) for host in range(made.count)])
    return max(json.loads(output.splitlines()[-1])["step_ms"] for output in outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cases", nargs="+", default=["gpt2_124m", "resnet50"])
    parser.add_argument("--wires", nargs="+", default=["FP32", "BF16"])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40, help="of PyTorch, each time")
    parser.add_argument("--steps", type=int, default=8, help="of Lockstep, each time")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS,
                        default=["as installed", "tuned", "tuned, oneDNN"], help="of PyTorch")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    missing = hosts.available()
    if missing:
        raise SystemExit(f"cannot make hosts: {missing}")
    with hosts.Hosts(options.hosts, options.rate) as made:
        for name in options.cases:
            case = cases.CASES[name]
            for wire in options.wires:
                ours, theirs = [], []
                tried = {variant: in_folder(ddp_ms, made, options, case, wire, variant)
                         for variant in options.variants}
                print(f"  {name}, {wire}: " + ", ".join(
                    f"DDP {variant} {ms:,.0f} ms" for variant, ms in tried.items()), flush=True)
                best = min(tried, key=tried.get)
                for _ in range(options.rounds):
                    theirs.append(in_folder(ddp_ms, made, options, case, wire, best))
                    ours.append(in_folder(lockstep_ms, made, options, case, wire))
                    print(f"  {name}, {wire}: DDP {theirs[-1]:,.0f} ms, "
                          f"Lockstep {ours[-1]['step_ms']:,.0f} ms, of these exposed "
                          f"{ours[-1]['comm_exposed_ms']:,.0f} ms", flush=True)
                our_ms = statistics.median(one["step_ms"] for one in ours)
                their_ms = statistics.median(theirs)
                print(f"{name}, gradients in {wire}: DDP {their_ms:,.0f} ms a step, Lockstep "
                      f"{our_ms:,.0f} ms, {their_ms / our_ms:.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
