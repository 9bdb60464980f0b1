"""Starts the lockstep binary as a user would: alone or under mpirun, with a time limit, and reads
what it leaves."""
import array
import atexit
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

_numbers = itertools.count()
LIMIT_S = 300  # far above what most runs take: reaching it means that something hangs


@functools.cache
def sessions():
    """The folder of Open MPI's own files, until this process ends."""
    folder = tempfile.mkdtemp(prefix="lockstep-mpi-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def is_open_mpi(program):
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return "Open MPI" in version or "OpenRTE" in version


def mpirun(ranks, fast_networks=False):
    """The command line that starts `ranks` ranks on this machine, however few cores it has. By default
    Open MPI does not look for networks faster than TCP, which takes a third of a start."""
    command = [os.environ.get("MPIRUN", "mpirun"), "-n", str(ranks)]
    if is_open_mpi(command[0]):
        # Each in a folder to itself: one that another removes as it ends lets a start fail.
        command += ["--oversubscribe", "--bind-to", "none", "--mca", "orte_tmpdir_base",
                    f"{sessions()}/{next(_numbers)}"]
        if not fast_networks:
            command += ["--mca", "pml", "ob1"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return command


def at_once(tasks, count=2):
    """Calls the functions, `count` at a time, and returns their results in order. Ranks that wait for
    each other leave cores idle."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda task: task(), tasks))


def run(binary, arguments, ranks=1, environment=None, limit_s=LIMIT_S, cwd=None, nodes=1,
        apart=None):
    """Runs to the end and returns the CompletedProcess. ranks=0 starts it without mpirun. With
    several nodes the ranks are told that they are on so many. apart: for each rank the variables,
    as "NAME=VALUE", that it alone is given."""
    program = [str(binary)] + [str(a) for a in arguments]
    command = (mpirun(ranks) if ranks > 0 else []) + program
    parts = (
        [(ranks // nodes, [f"LOCKSTEP_NODE={node}"]) for node in range(nodes)] if nodes > 1 else [])
    parts = [(1, variables) for variables in apart] if apart else parts
    if parts:
        command = mpirun(parts[0][0]) + ["env", *parts[0][1]] + program
        for count, variables in parts[1:]:
            command += [":", "-n", str(count), "env", *variables] + program
    env = dict(os.environ, **(environment or {}))
    return subprocess.run(command, capture_output=True, text=True, errors="replace",
                          timeout=limit_s, env=env, cwd=cwd, stdin=subprocess.DEVNULL)


# Below the ports that the kernel gives to connections, here and in other network namespaces.
PORTS = range(15000, 25000)
_reserved = []  # open sockets, whose names no other process can take


def free_port():
    """A port at which nothing listens here, and which no other test gets while this process
    lives."""
    while True:
        port = random.choice(PORTS)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0lockstep-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            name.close()
            continue
        _reserved.append(name)
        return port


def sets(*changes):
    """The arguments that change fields of a config, each "FIELD=VALUE"."""
    return [argument for change in changes for argument in ("--set", change)]


class Expectations:
    """Called with what must hold and a text that says so: prints it, and keeps it where it fails."""

    def __init__(self):
        self.failures = []

    def __call__(self, holds, text):
        print(("" if holds else "FAILED: ") + text[:2000], flush=True)
        if not holds:
            self.failures.append(text)

    def exit_code(self):
        return 1 if self.failures else 0


def read_tensor(path, name):
    """Shape and values of a tensor of floats in a safetensors file."""
    content = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start])[name]
    begin, end = entry["data_offsets"]
    assert entry["dtype"] == "F32", entry
    values = array.array("f")
    values.frombytes(content[start + begin:start + end])
    return entry["shape"], values


def read_metadata(path):
    """What a safetensors file says of itself, by name."""
    content = pathlib.Path(path).read_bytes()
    return json.loads(content[8:8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def train(binary, config, run_dir, ranks=1, arguments=(), limit_s=LIMIT_S, nodes=1):
    """Trains and returns the result that --json wrote. Raises RuntimeError with all output on
    failure."""
    run_dir = pathlib.Path(run_dir)
    result_file = run_dir.with_suffix(".result.json")
    done = run(binary, ["train", config, "--run-dir", run_dir, "--json", result_file, *arguments],
               ranks, limit_s=limit_s, nodes=nodes)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(result_file.read_text())


def metrics(run_dir):
    """The lines of metrics.jsonl."""
    return [json.loads(line)
            for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()]


def wait_for_steps(run_dir, processes=(), limit_s=60):
    """Until metrics.jsonl, which is written once a second, has more than now: steps are being made.
    Fails where one of the processes has ended."""
    deadline = time.monotonic() + limit_s
    metrics = pathlib.Path(run_dir) / "metrics.jsonl"

    def size():
        return metrics.stat().st_size if metrics.exists() else 0

    before = size()
    while size() <= before:
        before = min(before, size())  # a start that is no resume begins the file anew
        for process in processes:
            assert process.poll() is None, f"ended early with {process.returncode}"
        assert time.monotonic() < deadline, "no steps"
        time.sleep(0.02)


def test_data():
    """The folder with real data for tests, or None."""
    default = pathlib.Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
    folder = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", default))
    return folder if folder.is_dir() else None


def have_mpirun():
    return shutil.which(os.environ.get("MPIRUN", "mpirun")) is not None
