#!/usr/bin/env python3
"""Catches: ranks that mix up what they send each other, or wait for ever, where one of them does
another operation, one of another size, the same ones in another order, or leaves one out; an end
that does not say what both sides did.

differing_operations_test.py BINARY PROGRAM
"""
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time

import lockstep_run

TIMEOUT_S = 2
SLACK_S = 6  # on a machine that others use
PEER = 6


def check(what, code, output, took):
    lines = [line for line in output.splitlines() if "error:" in line]
    told = [line for line in lines if len(re.findall(r"\d+ bytes", line)) >= 2]
    good = code == PEER and told and took is not None
    print(f"{'ok    ' if good else 'FAILED'} {what}: exit code {code}, in {took:.2f} s: {lines[:1]}")
    if not good:
        print(output)
    return 0 if good else 1


def without_mpi(program, difference, folder, ranks):
    port = lockstep_run.free_port()
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("OMPI_", "PMI", "SLURM_"))}
    processes = [subprocess.Popen(
        [program, difference, folder, str(TIMEOUT_S), "MPI"], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        env=dict(clean, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                 MASTER_PORT=str(port))) for rank in range(ranks)]
    try:
        texts = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return max(process.returncode for process in processes), "".join(texts)


def run(program, difference, way, ranks):
    with tempfile.TemporaryDirectory(prefix="lockstep-differ-") as folder:
        began = time.monotonic()
        if way == "TCP without MPI":
            code, output = without_mpi(program, difference, folder, ranks)
        else:
            done = lockstep_run.run(program, [difference, folder, TIMEOUT_S, way], ranks, limit_s=60)
            code, output = done.returncode, done.stdout + done.stderr
        return check(f"{difference}, {way}, {ranks} ranks", code, output, time.monotonic() - began)


def main(program):
    cases = itertools.product(("kind", "size", "order", "skipped"), ("MPI", "TCP", "TCP without MPI"),
                              (2, 3))
    # Three at a time: most of them wait for a limit.
    failures = sum(lockstep_run.at_once(
        [functools.partial(run, program, *case) for case in cases], 3))
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(sys.argv[2]))
