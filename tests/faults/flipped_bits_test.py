#!/usr/bin/env python3
"""Flips bits in the memory of running ranks, as an outsider who knows nothing of the program: it
looks for the bytes of a tensor of a checkpoint in their memory, and writes to it through /proc. The
learning rate is so small that the weights stay what the checkpoint has.

Catches: a flipped bit of the parameters that a run goes on with, in any ZeRO stage, with shared
memory and without; a wrong rank or tensor in what the run says; ranks that end otherwise; numbers
that are not finite of which nobody knows the source; a replay that does not find what a run has
computed wrongly, or finds what is right.
"""
import array
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "distributed"))
import faulty_run
import lockstep_run

TENSOR = "layers.1.weight"
NUMERIC = 7
LIMIT_S = 60
CONFIG = """
model { mlp { hidden: [512, 256] } }
data { synthetic { samples: 2000 features: 64 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: STEPS log_every: 1000000 }
optimizer { adamw {} }
schedule { lr: 1e-30 }
execution { threads: 1 }
output { tensorboard: false }
checkpoint { every: 100 keep_last: 1000 at_end: false }
"""


def ranks_of(config):
    """The processes of a run, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(str(config)) not in words or b"train" not in words[1:2]:
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        rank = [v.split(b"=")[1] for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank:
            found[int(rank[0])] = int(entry.name)
    return found


def places_of(maps, memory, pattern):
    """Where the process's memory has these bytes, as it is gone through."""
    for line in maps:
        addresses, access = line.split()[:2]
        begin, end = (int(a, 16) for a in addresses.split("-"))
        if "rw" not in access or end - begin < 1 << 16:
            continue
        try:
            memory.seek(begin)
            content = memory.read(end - begin)
        except OSError:
            continue
        at = content.find(pattern)
        while at >= 0:  # all of them: one alone may be a copy that nobody reads any more
            yield begin + at
            at = content.find(pattern, at + 1)


def flip_in_memory(pid, pattern):
    """Flips a bit wherever the process's memory has these bytes; whether it has them."""
    flipped = 0
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, \
            open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        try:
            for place in places_of(maps, memory, pattern):
                memory.seek(place + 2)
                memory.write(bytes([pattern[2] ^ 16]))
                flipped += 1
        except OSError:  # the first of them may have ended it already
            if flipped == 0:
                raise
    return flipped > 0


def flip_again(config, rank, pattern):
    """Flips a bit of a rank that may have ended, or end meanwhile: then there is nothing to flip."""
    try:
        flip_in_memory(ranks_of(config)[rank], pattern)
    except (KeyError, OSError):
        pass


def start_and_flip(binary, folder, ranks, arguments, bad):
    """The end of a run in which a bit of rank `bad` has been flipped."""
    config = folder / "config.textproto"
    config.write_text(CONFIG.replace("STEPS", "100000000"))
    run_dir = folder / "run"
    process = faulty_run.start(binary, config, run_dir, ranks, arguments)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not list(run_dir.glob("checkpoints/step-[0-9]*[0-9]/model.safetensors")):
            assert process.poll() is None and time.monotonic() < deadline, "no checkpoint"
            time.sleep(0.05)
        _, values = lockstep_run.read_tensor(
            sorted(run_dir.glob("checkpoints/step-[0-9]*[0-9]/model.safetensors"))[0], TENSOR)
        # Elements of the part that the rank owns where parts are owned: they follow each other.
        first = len(values) * bad // ranks + 1024
        pattern = values[first:first + 16].tobytes()
        assert flip_in_memory(ranks_of(config)[bad], pattern), "the tensor is not in its memory"
        struck = time.monotonic()
        # One that falls between the check of a copy and the next gather, which brings a new copy, is
        # gone without effect.
        for _ in range(60):
            try:
                process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                flip_again(config, bad, pattern)
        code, output = faulty_run.end_of(process)
        return code, output, time.monotonic() - struck
    finally:
        if process.poll() is None:
            process.kill()


def check_flips(binary):
    for stage in (0, 1, 2, 3):
        for shared in ("true", "false"):
            for ranks in (2, 4):
                bad = ranks - 1
                with tempfile.TemporaryDirectory() as folder:
                    code, output, _ = start_and_flip(
                        binary, pathlib.Path(folder), ranks,
                        ["--set", f"comm.zero_stage={stage}", "--set", "guard.every=1",
                         "--set", f"comm.shared_memory={shared}",
                         "--set", "comm.bucket_mib=100"], bad)
                case = f"stage {stage}, shared memory {shared}, {ranks} ranks"
                lines = faulty_run.error_lines(output)
                assert code == NUMERIC and lines, (case, code, output)
                # One that falls between the last check and the hash of a checkpoint is found by that.
                by_check = rf"rank \d+ on \S+: (the|its copy of the) parameter (of )?{TENSOR}"
                by_hash = rf"the weights of rank {bad} hash to \w+, those of rank 0 to \w+ "
                assert re.search(rf"step \d+: ({by_check}|{by_hash})", lines[0]), (case, lines)
                print(f"{case}: {lines[0]}")


def check_not_finite(binary):
    """Samples of which one is so large that a layer's products are infinite: the bad ones of a batch
    of 16 are known, as nothing is shuffled."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        inputs = array.array("f", [0.1 * (i % 7) for i in range(64 * 16)])
        inputs[37 * 16:38 * 16] = array.array("f", [3e38] * 16)  # lane 1 of step 3
        write_npy(folder / "inputs.npy", "<f4", (64, 16), inputs)
        write_npy(folder / "labels.npy", "<i4", (64,), array.array("i", [i % 2 for i in range(64)]))
        config = folder / "config.textproto"
        config.write_text("""
model { mlp { hidden: [64] activation: RELU } }
data { npy { train_inputs: "inputs.npy" train_labels: "labels.npy" } shuffle: false }
train { global_batch: 16 lanes: 4 steps: 12 log_every: 1000000 }
optimizer { sgd {} }
schedule { lr: 0.01 }
checkpoint { every: 2 }
output { tensorboard: false }
""")

        def train(ranks, run, *settings):
            done = lockstep_run.run(binary, [
                "train", config, "--data", folder, "--run-dir", folder / run,
                *(word for setting in settings for word in ("--set", setting))], ranks)
            return done.returncode, done.stdout + done.stderr

        # The rank that has lane 1, and what its op is called.
        for ranks, rank in ((1, 0), (2, 0), (4, 1)):
            code, text = train(ranks, f"stop{ranks}")
            assert code == NUMERIC, text
            assert re.search(rf"step 3: .*: rank {rank} on \S+, lane 1: the activation \S+ of the "
                             r"linear 'layers\.0\S*' is the first that is not finite, for sample 37 of "
                             r"\S+ \(it reads features up to 3e\+38, layers\.0\.weight up to ", text), text
            assert "computed again it is the same" in text, text
            assert "checkpoint of step 2 is good" in text, text
        print(next(line for line in text.splitlines() if "error:" in line))
        # A run that skips the step comes to the same bits on any number of ranks, and after a stop.
        skip = "guard.on_not_finite=SKIP_STEP"
        hashes = []
        for ranks in (1, 4):
            code, text = train(ranks, f"skip{ranks}", skip)
            assert code == 0 and text.count("the step is skipped") >= 3, text
            lines = lockstep_run.metrics(folder / f"skip{ranks}")
            assert [line.get("skipped_steps", 0) for line in lines] == [
                0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3], lines
            hashes.append(lines[-1]["weights_hash"])
        assert hashes[0] == hashes[1], hashes
        # Every step of 64 samples has the bad one: the bound holds.
        code, text = train(2, "bound", skip, "guard.max_skips=2", "train.global_batch=64")
        assert code == NUMERIC and "step 3: " in text, text
        # Going back does not help against data: the run ends the second time.
        code, text = train(2, "back", "guard.on_not_finite=ROLL_BACK")
        assert code == NUMERIC and text.count("going back to step 2") == 1, text


def write_npy(path, dtype, shape, values):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") +
                     header.encode() + values.tobytes())


def check_replay(binary):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = folder / "config.textproto"
        config.write_text(CONFIG.replace("STEPS", "40").replace("1e-30", "0.001").replace(
            "every: 100 keep_last: 1000", "every: 10 keep_last: 9"))
        run_dir = folder / "run"
        lockstep_run.train(binary, config, run_dir, 2)
        before = {p: p.stat().st_mtime_ns for p in run_dir.rglob("*")}
        for ranks, step in ((1, 25), (2, 40), (4, 7)):
            done = lockstep_run.run(binary, ["replay", run_dir, "--step", step], ranks)
            assert done.returncode == 0, done.stdout + done.stderr
            first = (step - 1) // 10 * 10 + 1
            assert f"steps {first} to {step} agree with the run's record" in done.stdout, done.stdout
        assert before == {p: p.stat().st_mtime_ns for p in run_dir.rglob("*")}
        # What a machine that computed step 33 wrongly would have recorded.
        metrics = run_dir / "metrics.jsonl"
        lines = metrics.read_text().splitlines()
        for at in range(33, 40):
            line = json.loads(lines[at])
            line["state_digest"] = "0123456789abcdef"
            lines[at] = json.dumps(line)
        metrics.write_text("\n".join(lines) + "\n")
        result = folder / "replay.json"
        done = lockstep_run.run(binary, ["replay", run_dir, "--step", 39, "--json", result], 2)
        assert done.returncode == NUMERIC, done.stdout + done.stderr
        assert "step 34 differs from the run's record: the state_digest of what it began with" in (
            done.stdout), done.stdout
        assert json.loads(result.read_text())["differs_at"] == 34
        # With nothing recorded.
        metrics.unlink()
        done = lockstep_run.run(binary, ["replay", run_dir, "--step", 12], 2)
        assert done.returncode == 0 and "agree with a second computation" in done.stdout, (
            done.stdout + done.stderr)
        done = lockstep_run.run(binary, ["replay", run_dir, "--step", 41], 1)
        assert done.returncode == 2 and "--step" in done.stderr, done.stderr


def main():
    binary = sys.argv[1]
    {"flips": check_flips, "not_finite": check_not_finite, "replay": check_replay}[sys.argv[2]](
        binary)


if __name__ == "__main__":
    main()
