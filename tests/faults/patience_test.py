#!/usr/bin/env python3
"""Catches: an alarm about a rank that is only slow, about a disk that only takes its time, or about
a process whose number means nothing here.

patience_test.py BINARY FAILING_CALLS [--steps N] [--limit S] [--stall S]: 2 ranks, of which one
runs a twentieth of the time, while some calls of fsync() take `stall` seconds, below the limit for
ranks that do nothing. Over shared memory, MPI and TCP; checkpoints under the steps and between
them. Then 2 ranks that share a host's name and files, but not its process numbers, as containers
may.
"""
import argparse
import functools
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import faulty_run
import lockstep_run
from rendezvous_test import FOREIGN
from stuck_rank_test import WAYS, processes_of

RUNS_S, STANDS_S = 0.005, 0.095


def slow_down(run_dir, rank, ended):
    """Until `ended` is set, or the process is gone."""
    while not ended.wait(0.05):
        process = processes_of(run_dir).get(rank)
        try:
            while process is not None and not ended.wait(RUNS_S):
                os.kill(process, signal.SIGSTOP)
                time.sleep(STANDS_S)
                os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            return


def run(binary, preloaded, options, folder, way, in_background):
    """Its exit code, and what it said."""
    run_dir = folder / f"{way.replace(' ', '_')}_{in_background}"
    process = faulty_run.start(
        binary, folder / "config.textproto", run_dir, 2,
        [*WAYS[way], "--set", f"checkpoint.every={options.steps // 4}",
         "--set", f"checkpoint.async={'true' if in_background else 'false'}",
         "--set", f"comm.timeout_s={options.limit}",
         "--set", f"comm.files_timeout_s={options.limit}"],
        variables={"LD_PRELOAD": str(preloaded),
                   "FAILING_CALLS": f"fsync:slow{1000 * options.stall:.0f}:5:{run_dir.name}"})
    ended = threading.Event()
    slower = threading.Thread(target=slow_down, args=(run_dir, 1, ended))
    slower.start()
    try:
        said = process.communicate(timeout=60 + 0.2 * options.steps + 100 * options.stall)[0]
    finally:
        ended.set()
        slower.join()
        process.kill()
    return process.returncode, said


def run_in_containers(binary, options, folder):
    """The exit codes of the ranks, and what they said; None where no namespaces can be made. Rank 1
    alone has one: there the number of rank 0's process is nobody's."""
    apart = ["unshare", "--pid", "--fork"]
    if not shutil.which("unshare"):
        return None
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        return None
    port = lockstep_run.free_port()
    processes = []
    for rank in range(2):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        environment.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
                           LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port))
        processes.append(subprocess.Popen(
            [*(apart if rank else []), str(binary), "train", str(folder / "config.textproto"),
             "--run-dir", str(folder / "containers"), "--set", f"comm.timeout_s={options.limit}"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True))
    said = [process.communicate(timeout=60 + 0.2 * options.steps)[0] for process in processes]
    return [process.returncode for process in processes], "".join(said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("preloaded", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit", type=float, default=2)
    parser.add_argument("--stall", type=float, default=0.6)
    options = parser.parse_args()
    if not lockstep_run.have_mpirun():
        print("no mpirun here: skipped")
        return 77
    hashes, failures = set(), 0
    with tempfile.TemporaryDirectory(prefix="lockstep-patience-") as folder:
        config = pathlib.Path(folder) / "config.textproto"
        config.write_text(faulty_run.CONFIG.replace("STEPS", str(options.steps)))
        cases = list(itertools.product(WAYS, (True, False)))
        results = lockstep_run.at_once(
            [functools.partial(run, options.binary.resolve(), options.preloaded.resolve(), options,
                               pathlib.Path(folder), *case) for case in cases])
        for (way, in_background), (code, said) in zip(cases, results):
            good = code == 0 and "error:" not in said
            print(f"{'ok    ' if good else 'FAILED'} {options.steps} steps over {way}, saved "
                  f"{'under' if in_background else 'between'} them: exit code {code}", flush=True)
            if not good:
                failures += 1
                print(said)
            hashes.update(re.findall(r"^weights_hash (\w+)$", said, re.MULTILINE))
        ended = run_in_containers(options.binary.resolve(), options, pathlib.Path(folder))
    if ended is None:
        print("skipped: ranks with process numbers of their own (unshare --pid is refused)")
    else:
        codes, said = ended
        print(f"{'ok    ' if codes == [0, 0] else 'FAILED'} ranks with process numbers of their "
              f"own: exit codes {codes}")
        if codes != [0, 0]:
            failures += 1
            print(said)
        hashes.update(re.findall(r"^weights_hash (\w+)$", said, re.MULTILINE))
    assert len(hashes) == 1, hashes
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
