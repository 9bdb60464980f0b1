#!/usr/bin/env python3
"""Measures the all-reduce of a training step, in the fixed tree's order, beside the installed MPI's
own MPI_Allreduce and PyTorch's over gloo.

    compare_allreduce.py --lockstep build/release/launcher/lockstep --mpi
    build/release/tests/peers/mpi_allreduce
                         [--python VENV/bin/python] [--ranks 2] [--sizes 4096,67108864] [--rounds 5]
                         [--repeats 20]

They take turns; what counts is the median over the rounds of each one's median.
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
import lockstep_run  # noqa: E402


def mpirun(ranks):
    command = lockstep_run.mpirun(ranks, fast_networks=True)
    if ranks > len(os.sched_getaffinity(0)):
        return command
    return [word for word in command if word != "--oversubscribe"]


def of_lockstep(options, ranks, sizes, folder):
    out = folder / "collectives.json"
    subprocess.run([*mpirun(ranks), options.lockstep, "bench", "collectives", "--device", "cpu",
                    "--collectives", "all_reduce", "--sizes", ",".join(map(str, sizes)),
                    "--repeats", str(options.repeats), "--json", out], check=True,
                   stdout=subprocess.DEVNULL)
    return {row["bytes"]: row["p50_us"] for row in json.loads(out.read_text())["timings"]}


def of_printed(command):
    """What a tool of this folder prints: lines of bytes and microseconds."""
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True)
    return {
        int(size): float(us) for size, us in (line.split() for line in done.stdout.splitlines())}


def of_mpi(options, ranks, sizes, _):
    return of_printed([*mpirun(ranks), options.mpi, options.repeats, *sizes])


def of_gloo(options, ranks, sizes, folder):
    meet = folder / "meet"
    meet.unlink(missing_ok=True)
    tool = pathlib.Path(__file__).with_name("torch_allreduce.py")
    return of_printed([*mpirun(ranks), options.python, tool, meet, options.repeats, *sizes])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--mpi", required=True, help="the mpi_allreduce tool of this folder, built")
    parser.add_argument("--python", help="a Python that can import torch, to measure gloo too")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default="4096,65536,1048576,16777216,67108864,268435456",
                        help="bytes; multiples of 256 a rank")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=20, help="of each size in a round")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    sides = {"Lockstep": of_lockstep, "MPI_Allreduce": of_mpi}
    if options.python:
        sides["gloo"] = of_gloo
    times = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, side in sides.items():
                times[name].append(side(options, options.ranks, sizes, pathlib.Path(folder)))
    peers = list(sides)[1:]
    print("| bytes | Lockstep, us |" + "".join(f" {peer}, us | ratio |" for peer in peers))
    print("| ---: | ---: |" + " ---: | ---: |" * len(peers))
    for size in sizes:
        median = {name: statistics.median(rounds[size] for rounds in times[name]) for name in sides}
        ours = median["Lockstep"]
        print(f"| {size:,} | {ours:,.1f} |"
              + "".join(f" {median[peer]:,.1f} | {median[peer] / ours:.2f} |" for peer in peers))


if __name__ == "__main__":
    main()
