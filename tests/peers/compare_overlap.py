#!/usr/bin/env python3
"""Measures how much of the exchange between hosts the computation hides: the same training with
buckets, and with one bucket that holds everything, which nothing can overlap. The hosts are network
namespaces (tests/distributed/hosts.py): as root.

    compare_overlap.py --lockstep build/release/launcher/lockstep [--config
    configs/benchmarks/gpt2_124m.textproto] [--hosts 2]
                       [--rate 1gbit] [--steps 8] [--rounds 2] [--bucket-mib 25] [--batch 2]
                       [--mpi [MPI|TCP|AUTO]] [--set FIELD=VALUE ...]
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
import hosts  # noqa: E402

WHOLE_MIB = 1024  # one bucket


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--config", default=root / "configs/benchmarks/gpt2_124m.textproto")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2, help="samples of each rank")
    parser.add_argument("--mpi", nargs="?", choices=("MPI", "TCP", "AUTO"), const="MPI",
                        help="started by mpirun, with this comm.transport; else without MPI, over "
                        "Lockstep's own TCP")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE",
                        help="of both trainings' config")
    parser.add_argument("--bucket-mib", type=float, default=25)
    options = parser.parse_args()
    missing = hosts.available()
    if missing:
        raise SystemExit(f"cannot make hosts: {missing}")
    waits = {options.bucket_mib: [], WHOLE_MIB: []}
    with tempfile.TemporaryDirectory() as folder, hosts.Hosts(options.hosts, options.rate) as made:
        for round_ in range(options.rounds):
            for mib, rounds in waits.items():
                out = pathlib.Path(folder) / f"{mib}-{round_}.json"
                command = [str(word)
                           for word in (
                               os.path.abspath(options.lockstep), "train", options.config,
                               "--device", "cpu", "--run-dir", out.with_suffix(""), "--json", out,
                               "--max-steps", options.steps, "--set", f"comm.bucket_mib={mib}",
                               "--set", "execution.threads=1", "--set", "checkpoint.at_end=false",
                               "--set", "checkpoint.every=0", "--set",
                               f"train.global_batch={options.batch * options.hosts}", "--set",
                               f"train.lanes={options.hosts}",
                               *(word for setting in options.set for word in ("--set", setting)))]
                if options.mpi:
                    subprocess.run(
                        [*made.mpirun(1, fast_networks=True), *command, "--set",
                         f"comm.transport={options.mpi}"],
                        check=True, capture_output=True)
                else:
                    for process in made.without_mpi(command):
                        text, _ = process.communicate()
                        if process.returncode != 0:
                            raise SystemExit(text)
                ranks = json.loads(out.read_text())["ranks"]
                mean = {key: statistics.mean(rank[key] for rank in ranks)
                        for key in ("step_ms", "comm_exposed_ms", "straggler_ms")}
                print(f"buckets of {mib:g} MiB: step {mean['step_ms']:,.0f} ms, "
                      f"{mean['comm_exposed_ms']:,.0f} of them waits for the "
                      f"other ranks, {mean['straggler_ms']:,.0f} of these for slower ones",
                      flush=True)
                rounds.append(mean["comm_exposed_ms"] - mean["straggler_ms"])
    exposed, whole = (statistics.median(rounds) for rounds in waits.values())
    print(f"exposed communication: {exposed:,.0f} ms of {whole:,.0f} ms without overlap: "
          f"{exposed / whole:.0%}")


if __name__ == "__main__":
    main()
