#!/usr/bin/env python3
"""Catches: data files that are cut short while a run reads them and end it by a bare signal, with
another exit code, or by a hang of the other ranks.

cut_short_test.py BINARY: trains on a mapped file, alone, under mpirun and over TCP, and truncates
it once steps are made.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import lockstep_run
from image_bench import png
from rendezvous_test import Ranks, by_file

RECORDS = """
model { mlp { hidden: [8] } }
data { records { train: "data" } image { size: 16 resize: 16 } }
train { global_batch: 8 lanes: 4 steps: 1000000 log_every: 1000000 }
optimizer { sgd {} }
schedule { lr: 0.001 }
execution { threads: 1 }
output { tensorboard: false }
"""
TOKENS = """
model { gpt { layers: 1 heads: 1 width: 8 context: 16 vocabulary: 256 } }
data { tokens { train: "data" } }
train { global_batch: 8 lanes: 4 steps: 1000000 log_every: 1000000 }
optimizer { sgd {} }
schedule { lr: 0.001 }
execution { threads: 1 }
output { tensorboard: false }
"""
LIMIT_S = 60
KEPT_BYTES = 64 << 10
DATA, PEER = 3, 6


def packed_images(binary, folder):
    """A record file of some hundred KiB."""
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(10):
            (folder / "images" / name / f"{i}.png").write_bytes(png(64, i))
    done = lockstep_run.run(binary, ["data", "pack", "images", "--out", "packed"], ranks=0,
                            cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "packed").read_bytes()


def check_end(what, code, output, path, wanted=DATA):
    lines = [line for line in output.splitlines()
             if line.startswith(f"lockstep: error: {path}: the file was cut short")]
    assert code == wanted, f"{what}: exit code {code}, expected {wanted}\n{output}"
    assert lines and "SIGBUS" in lines[0], f"{what}: no line that names {path}\n{output}"


def under_mpirun(binary, folder, name, text, content, ranks):
    """Alone with ranks=0. Every rank has the file mapped; the first to read ends them all."""
    path, config, run_dir = (
        folder / "data", folder / "config.textproto", folder / f"run-{name}-{ranks}")
    path.write_bytes(content)
    config.write_text(text)
    command = (lockstep_run.mpirun(ranks) if ranks else []) + [str(binary), "train", str(config),
                                                               "--data", str(folder), "--run-dir",
                                                               str(run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               stdin=subprocess.DEVNULL)
    try:
        lockstep_run.wait_for_steps(run_dir, [process])
        os.truncate(path, KEPT_BYTES)
        began = time.monotonic()
        output, _ = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            print(process.communicate()[0])
    check_end(f"{name}, {ranks} ranks", process.returncode, output, path)
    print(f"{name}, {ranks} ranks: ended in {time.monotonic() - began:.2f} s")


def over_tcp(binary, folder, text, content):
    """One of two ranks, on a file of its own, which nothing but the connection tells of."""
    config, run_dir = folder / "config.textproto", folder / "run-tcp"
    config.write_text(text)
    started = []
    for rank, environment in enumerate(by_file(2, folder / "meet")):
        (folder / f"host{rank}").mkdir()
        (folder / f"host{rank}" / "data").write_bytes(content)
        started.append(
            Ranks(binary, config, run_dir, [environment], ["--data", folder / f"host{rank}"]))
    try:
        lockstep_run.wait_for_steps(
            run_dir, [process for ranks in started for process in ranks.processes])
    finally:
        path = folder / "host1" / "data"
        os.truncate(path, KEPT_BYTES)
        (peer_code, peer_output), (code, output) = [ranks.finish()[0] for ranks in started]
    check_end("TCP", code, output, path)
    assert peer_code == PEER and "rank 1" in peer_output, (
        f"the other rank: exit code {peer_code}\n{peer_output}")


def main(binary):
    binary = pathlib.Path(binary).resolve()
    with tempfile.TemporaryDirectory(prefix="lockstep-cut-short-") as folder:
        folder = pathlib.Path(folder)
        records = packed_images(binary, folder)
        tokens = random.Random(1).randbytes(1 << 20)
        tokens = bytes(b if i % 2 == 0 else 0 for i, b in enumerate(tokens))  # uint16 below 256
        assert len(records) > 3 * KEPT_BYTES, len(records)
        for ranks in (0, 2) if lockstep_run.have_mpirun() else (0,):
            under_mpirun(binary, folder, "records", RECORDS, records, ranks)
            under_mpirun(binary, folder, "tokens", TOKENS, tokens, ranks)
        over_tcp(binary, folder, RECORDS, records)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
