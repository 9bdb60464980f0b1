#!/usr/bin/env python3
"""Catches: weights that depend on the network between the ranks, traffic that the plan does not know of, hosts that exchange
more than they must.

several_hosts_test.py BINARY: a small GPT on hosts that are network namespaces, 2 x 1, 2 x 2 and 4 x 1 (hosts x ranks) under a real
mpirun over TCP at 1 Gbit/s and 100 Mbit/s: the weights_hash of one rank alone, and the bytes that each network card counted within
3% of what `lockstep plan` says. Skipped where such hosts cannot be made.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import hosts
import lockstep_run

CONFIG = """
    model { gpt { layers: 2 heads: 4 width: 128 context: 32 } }
    data { synthetic { samples: 500 classes: 96 } }
    train { global_batch: 16 lanes: 4 steps: STEPS log_every: 1000 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { lr: 0.001 }
    comm { bucket_mib: 0.5 }
    execution { threads: 1 }
    output { tensorboard: false }
    checkpoint { at_end: false }
"""
SHORT, LONG = 5, 25  # steps: what lies between is traffic of steps alone


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} of {command}:\n{done.stdout}\n{done.stderr}")


def train(launcher, binary, folder, name, steps):
    config, result = folder / f"{steps}.textproto", folder / f"{name}.json"
    config.write_text(CONFIG.replace("STEPS", str(steps)))
    run([*launcher, binary, "train", config, "--run-dir", folder / name, "--json", result])
    return json.loads(result.read_text())["weights_hash"]


def main():
    binary = os.path.abspath(sys.argv[1])
    missing = hosts.available()
    if missing:
        print(f"skipped: {missing}")
        return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        alone = train([], binary, folder, "alone", LONG)
        print(f"one rank alone                 {alone}")
        for rate in ("1gbit", "100mbit"):
            for count, local in ((2, 1), (2, 2), (4, 1)):
                name = f"{count}x{local}-{rate}"
                plan = folder / f"{name}-plan.json"
                run([binary, "plan", folder / f"{LONG}.textproto", "--ranks", count * local, "--ranks-per-node", local, "--json", plan])
                planned = json.loads(plan.read_text())["network_bytes_per_step_per_rank"] * local
                sent = {}
                for steps in (SHORT, LONG):
                    with hosts.Hosts(count, rate) as made:
                        weights = train(made.mpirun(local), binary, folder, f"{name}-{steps}", steps)
                        sent[steps] = [made.sent_bytes(host) for host in range(count)]
                per_step = [(more - less) / (LONG - SHORT) for less, more in zip(sent[SHORT], sent[LONG])]
                ratio = max(per_step) / planned
                print(f"{count} hosts x {local} ranks, {rate:8}  {weights}  {max(per_step):,.0f} bytes a step and host sent, "
                      f"{planned:,} planned: {ratio:.3f}")
                if weights != alone or not 1 <= ratio <= 1.03:
                    failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
