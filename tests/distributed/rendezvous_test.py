#!/usr/bin/env python3
"""Catches: a run without MPI whose weights differ from those under mpirun, or in which a rank that
is missing, wrong or killed leaves the others waiting; strangers at its
ports that hold it up, or are let in.

rendezvous_test.py BINARY: starts ranks as plain processes that find each other by the environment
or by a shared file.
"""
import functools
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import hosts
import lockstep_run

CONFIG = """
    model { mlp { hidden: [96, 64] activation: RELU dropout: 0.2 } }
    data { synthetic { samples: 3000 features: 60 classes: 10 } }
    train { global_batch: 64 lanes: 8 steps: STEPS log_every: 1000000 }
    optimizer { adamw { weight_decay: 0.05 } clip_norm: 1 }
    schedule { kind: COSINE lr: 0.003 warmup_steps: 5 }
    comm { bucket_mib: 0.02 }
    execution { threads: 1 }
    output { tensorboard: false }
"""
LIMIT_S = 120  # only a hang takes so long
SHORT = {"LOCKSTEP_RENDEZVOUS_TIMEOUT_S": "8"}  # where ranks will not come
# What launchers set; the surroundings of this test must not speak for it.
FOREIGN = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "LOCKSTEP_",
           "TORCHELASTIC_")


def listening_store():
    """A socket that listens as torchrun's store does. The next port, at which rank 0 will listen,
    is free."""
    while True:
        store = socket.socket()
        try:
            store.bind(("127.0.0.1", lockstep_run.free_port()))
            with socket.socket() as probe:
                probe.bind(("", store.getsockname()[1] + 1))
            store.listen()
            return store
        except (OSError, OverflowError):
            store.close()


class Ranks:
    """Processes of one run; `environments` has what each is given."""

    def __init__(self, binary, config, run_dir, environments, arguments=()):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        self.processes = [subprocess.Popen(
            [str(binary), "train", str(config), "--run-dir", str(run_dir), *map(str, arguments)],
            env={**clean, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, stdin=subprocess.DEVNULL) for environment in environments]

    def finish(self):
        """(exit code, output) of each. Kills all and fails where they do not end."""
        deadline = time.monotonic() + LIMIT_S
        results = []
        try:
            for process in self.processes:
                output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
                results.append((process.returncode, output))
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                    print("still running:", process.communicate()[0])
        return results


def by_address(ranks, port=None, **more):
    port = port or lockstep_run.free_port()
    return [{"RANK": str(r), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port), "LOCKSTEP_RENDEZVOUS_TIMEOUT_S": "60", **more}
            for r in range(ranks)]


def by_file(ranks, path, **more):
    return [{"RANK": str(r), "WORLD_SIZE": str(ranks), "LOCKSTEP_RENDEZVOUS": f"file://{path}",
             "LOCKSTEP_RENDEZVOUS_TIMEOUT_S": "60", **more} for r in range(ranks)]


def as_slurm(ranks, port):
    return [{"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(r),
             "SLURM_NTASKS": str(ranks), "SLURM_STEP_NUM_TASKS": str(ranks),
             "SLURM_LOCALID": str(r), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
            for r in range(ranks)]


def as_torchrun(ranks, port):
    """The variables of torchrun, whose own store listens at MASTER_PORT."""
    return [{**environment, "LOCAL_RANK": environment["RANK"], "LOCAL_WORLD_SIZE": str(ranks),
             "GROUP_RANK": "0", "ROLE_RANK": environment["RANK"], "TORCHELASTIC_RUN_ID": "none",
             "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
            for environment in by_address(ranks, port)]


class Strangers:
    """Connect to a port again and again: silent, with half a word, with rubbish, with a request of
    another program."""
    WORDS = (b"", b"lo", b"lockstep", os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 2000)

    def __init__(self, port):
        self.port, self.visits, self.open, self.ended = port, 0, [], threading.Event()
        self.threads = [threading.Thread(target=self.visit, args=(words,)) for words in self.WORDS]

    def visit(self, words):
        while not self.ended.wait(0.02):
            try:
                stranger = socket.create_connection(("127.0.0.1", self.port), timeout=1)
                self.open.append(stranger)
                stranger.sendall(words)
                self.visits += 1
            except OSError:  # nobody listens now
                pass

    def wait_for_visits(self, count):
        deadline = time.monotonic() + LIMIT_S
        while self.visits < count:
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.02)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        for stranger in self.open:
            stranger.close()


class Test:
    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = folder
        self.numbers = itertools.count()
        self.config = folder / "config.textproto"
        self.config.write_text(CONFIG.replace("STEPS", "50"))
        self.long = folder / "long.textproto"
        self.long.write_text(CONFIG.replace("STEPS", "10000000"))

    def new_run_dir(self):
        self.run_dir = self.folder / f"run{next(self.numbers)}"
        return self.run_dir

    def start(self, environments, config=None, arguments=()):
        return Ranks(self.binary, config or self.config, self.new_run_dir(), environments, arguments)

    def start_more(self, environments):
        """More ranks of the long run that was started last."""
        return Ranks(self.binary, self.long, self.run_dir, environments)

    def hash_of(self, environments):
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        for code, output in self.start(environments, arguments=["--json", result]).finish():
            assert code == 0, f"exit code {code}\n{output}"
        return json.loads(result.read_text())["weights_hash"]

    def failed(self, what, environments, code, *words, of=None):
        """Every rank (or those in `of`) ends with `code` and one line that has the words."""
        results = self.start(environments).finish()
        for rank, (got, output) in enumerate(results):
            if of is not None and rank not in of:
                continue
            lines = [line for line in output.splitlines() if line]
            assert got == code, f"{what}: process {rank} ended with {got}\n{output}"
            assert len(lines) == 1, f"{what}: process {rank} said\n{output}"
            for word in words:
                assert word in lines[0], f"{what}: '{word}' is not in: {lines[0]}"
        print(f"{what}: {results[0][1].strip()}")

    def same_bits(self):
        expected = (
            lockstep_run.train(self.binary, self.config, self.folder / "mpi", 2)["weights_hash"])
        runs = {}
        for ranks in (1, 2, 4):
            runs[f"{ranks} by address"] = by_address(ranks)
            runs[f"{ranks} by file"] = by_file(ranks, self.folder / "meeting")
            runs[f"{ranks} as srun"] = as_slurm(ranks, lockstep_run.free_port())
        for name, environments in runs.items():
            got = self.hash_of(environments)
            print(f"{name:20} {got}")
            assert got == expected, f"{name}: weights {got}, under mpirun {expected}"
        assert not (self.folder / "meeting").exists(), "the rendezvous file is still there"
        with listening_store() as store:
            got = self.hash_of(as_torchrun(2, store.getsockname()[1]))
        assert got == expected, f"as torchrun: weights {got}, under mpirun {expected}"

    def ranks_that_do_not_come(self):
        """What finds each of them, after a wait."""
        yield functools.partial(self.failed, "missing", by_address(3, **SHORT)[:2], 6,
                                "rank 2 of 3 did not come to 127.0.0.1:")
        yield functools.partial(self.failed, "missing, by file",
                                by_file(3, self.folder / "missing", **SHORT)[:2], 6,
                                "rank 2 of 3 did not come to file://")
        yield functools.partial(self.failed, "no rank 0", by_address(2, **SHORT)[1:], 6,
                                "rank 0 did not answer at 127.0.0.1:")

    def wrong_starts(self):
        host = socket.gethostname()
        twice = by_address(3)
        twice[2]["RANK"] = "1"
        self.failed("duplicate", twice, 6, f"rank 1 came twice: from {host} and from {host}")
        sizes = by_address(3)
        sizes[1]["WORLD_SIZE"] = "2"
        self.failed("world size", sizes, 6, f"rank 1 on {host} was started as one of 2 ranks")
        self.failed("bad port", by_address(2, port=70000), 2,
                    "MASTER_PORT is '70000'; allowed: a whole number from 1 to 65535")
        self.failed("no port", [{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}], 2,
                    "MASTER_PORT is ''")
        self.failed("no meeting point", [{"RANK": "0", "WORLD_SIZE": "2"}], 2,
                    "no rendezvous is given")
        self.failed("no size", [{"RANK": "0"}, {"RANK": "1"}], 2,
                    "but WORLD_SIZE is not set; set RANK and WORLD_SIZE")
        self.failed("local alone", [{"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1"}], 2,
                    "but RANK and WORLD_SIZE are not set")
        self.failed("bad file", by_file(2, "relative"), 2,
                    "LOCKSTEP_RENDEZVOUS is 'file://relative'; allowed: file:///absolute")

    def port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            environments = by_address(2, port, **SHORT)
            lockstep_run.at_once(
                [functools.partial(self.failed, "port in use", environments, 6,
                                   f"port {port} (MASTER_PORT)", of=[0]),
                 functools.partial(self.failed, "no Lockstep at the port", environments[1:], 6,
                                   f"rank 0 did not answer at 127.0.0.1:{port}")])

    def killed(self, victim):
        ranks = self.start(by_address(4), config=self.long)
        lockstep_run.wait_for_steps(self.run_dir)
        ranks.processes[victim].send_signal(signal.SIGKILL)
        began = time.monotonic()
        results = ranks.finish()
        print(f"rank {victim} killed: all ended in {time.monotonic() - began:.2f} s")
        for rank, (code, output) in enumerate(results):
            if rank == victim:
                continue
            errors = [line for line in output.splitlines() if "error:" in line]
            assert code == 6, f"rank {rank} ended with {code}\n{output}"
            assert (
                len(errors) == 1
                and f"lost rank {victim} on {socket.gethostname()}" in errors[0]), output

    def stopped(self):
        """A rank that is there but does nothing is named once LOCKSTEP_COMM_TIMEOUT_S has
        passed."""
        ranks = self.start(by_address(4, LOCKSTEP_COMM_TIMEOUT_S="2"), config=self.long)
        lockstep_run.wait_for_steps(self.run_dir)
        ranks.processes[1].send_signal(signal.SIGSTOP)
        for rank in (0, 2, 3):
            output, _ = ranks.processes[rank].communicate(timeout=LIMIT_S)
            assert ranks.processes[rank].returncode == 6, output
            assert "nothing moved for 2 s in" in output and "rank 1 on" in output, output
        ranks.processes[1].send_signal(signal.SIGCONT)
        ranks.finish()

    def limit_of_rank_0(self):
        """mpirun does not bring the environment to other hosts: rank 0's limits count on all ranks,
        and only those."""
        self.new_run_dir()
        pids = self.folder / "pids"
        pids.mkdir()
        program = ["sh", "-c", 'echo $$ > "$0/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"',
                   str(pids), str(self.binary), "train", str(self.long), "--run-dir",
                   str(self.run_dir), "--set", "comm.transport=TCP", "--set",
                   "comm.shared_memory=false"]
        process = subprocess.Popen([*lockstep_run.mpirun(1), "env", "LOCKSTEP_COMM_TIMEOUT_S=2",
                                    *program, ":", "-n", "1", "env",
                                    "LOCKSTEP_COMM_TIMEOUT_S=100000", *program],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   stdin=subprocess.DEVNULL)
        try:
            lockstep_run.wait_for_steps(self.run_dir)
            os.kill(int((pids / "0").read_text()), signal.SIGSTOP)
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.kill(int((pids / "0").read_text()), signal.SIGKILL)
            process.kill()
            raise SystemExit(f"rank 1 does not know rank 0's limit: {process.communicate()[0]}")
        assert "nothing moved for 2 s in" in output and "no bytes from rank 0 on" in output, output

    def strangers(self):
        """Several at once, during the rendezvous and the training, with and without a token: the
        run neither waits for them nor ends, and each address is told once."""
        for secret in ("", "0123456789abcdef0123456789abcdef"):
            more = {"LOCKSTEP_TOKEN": secret} if secret else {}
            environments = by_address(4, **more)
            port = int(environments[0]["MASTER_PORT"])
            with Strangers(port) as crowd:
                ranks = self.start(environments[:3], config=self.long)
                crowd.wait_for_visits(50)
                late = self.start_more(environments[3:])
                began = time.monotonic()
                lockstep_run.wait_for_steps(self.run_dir, late.processes)
                took = time.monotonic() - began
                lockstep_run.wait_for_steps(self.run_dir, late.processes)
                late.processes[0].send_signal(signal.SIGUSR1)
                results = ranks.finish() + late.finish()
            for code, output in results:
                assert code == 75, f"ended with {code}\n{output}"
            told = [line for line in results[0][1].splitlines() if "dropped a connection" in line]
            assert len(told) == 1 and "from 127.0.0.1, which " in told[0], results[0][1]
            assert took < 20, f"{took} s until the first steps"
            print(f"strangers, {'with' if secret else 'without'} a token: steps after {took:.2f} s; "
                  f"{told[0]}")

    def tokens(self):
        """Ranks that were given other tokens, or none, are told apart."""
        mixed = by_address(3, LOCKSTEP_TOKEN="0123456789abcdef", **SHORT)
        mixed[2]["LOCKSTEP_TOKEN"] = "another, of its own"
        results = self.start(mixed).finish()
        assert [code for code, _ in results] == [6, 6, 6], results
        assert "as rank 2 on" in results[0][1] and "has another token" in results[0][1], results
        assert "rank 2 of 3 did not come" in results[0][1], results
        assert "this rank has another token" in results[2][1], results
        # In one launcher's run nobody waits for the rank whose token is wrong, or missing.
        for other in ("another, of its own", ""):
            mixed = as_slurm(3, lockstep_run.free_port())
            for rank, environment in enumerate(mixed):
                environment["LOCKSTEP_TOKEN"] = other if rank == 2 else "0123456789abcdef"
            results = self.start(mixed).finish()
            assert [code for code, _ in results] == [6, 6, 6], results
            for rank in (0, 1):
                assert "rank 2 at 127.0.0.1 has another LOCKSTEP_TOKEN" in results[rank][1], results
            assert "did not come" not in results[0][1], results
        self.failed("short token", by_address(2, LOCKSTEP_TOKEN="secret"), 2,
                    "LOCKSTEP_TOKEN has 6 characters; allowed: 16 or more")

    def preempted(self):
        """USR1 to one rank stops all of them with a checkpoint."""
        ranks = self.start(by_address(4), config=self.long)
        lockstep_run.wait_for_steps(self.run_dir)
        ranks.processes[2].send_signal(signal.SIGUSR1)
        for rank, (code, output) in enumerate(ranks.finish()):
            assert code == 75, f"rank {rank} ended with {code}\n{output}"


VISITOR = """
import os, socket, sys, time
kept = []
while True:
    try:
        kept.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1))
        kept[-1].sendall((b"", b"lockstep", os.urandom(999))[len(kept) % 3])
        print("visit", flush=True)
    except OSError:
        pass
    time.sleep(0.02)
"""


def strangers_of_another_host(test):
    """Three hosts: two ranks on each of two, and on the third somebody who visits rank 0. Ranks
    listen at their host's address, not at all of it."""
    missing = hosts.available()
    if missing:
        print(f"without hosts: {missing}")
        return
    port, secret = 29555, "0123456789abcdef0123456789abcdef"
    with hosts.Hosts(3) as made:
        test.new_run_dir()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}

        def start(rank):
            environment = {**clean, "RANK": str(rank), "WORLD_SIZE": "4", "LOCKSTEP_TOKEN": secret,
                           "MASTER_ADDR": f"{hosts.NET}.1", "MASTER_PORT": str(port)}
            return subprocess.Popen(
                [*made.inside(rank // 2), test.binary, "train", str(test.long), "--run-dir",
                 str(test.run_dir), "--device", "cpu"], env=environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        ranks = [start(rank) for rank in (0, 1, 2)]
        visitor = subprocess.Popen([*made.inside(2), sys.executable, "-c", VISITOR,
                                    f"{hosts.NET}.1", str(port)], stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(20):
                visitor.stdout.readline()
            for host in (0, 1):
                listening = subprocess.run([*made.inside(host), "ss", "-Hltn"], check=True,
                                           capture_output=True, text=True).stdout.splitlines()
                addresses = [line.split()[3] for line in listening]
                assert len(addresses) == 2 - host and all(
                    address.startswith(f"{hosts.NET}.{host + 1}:") for address in addresses), (
                        addresses)
            began = time.monotonic()
            ranks.append(start(3))
            lockstep_run.wait_for_steps(test.run_dir, ranks)
            took = time.monotonic() - began
            lockstep_run.wait_for_steps(test.run_dir, ranks)
            ranks[3].send_signal(signal.SIGUSR1)
            for rank in ranks:
                output, _ = rank.communicate(timeout=LIMIT_S)
                assert rank.returncode == 75, output
                if rank is ranks[0]:
                    told = [line for line in output.splitlines() if "dropped a connection" in line]
                    assert len(told) == 1 and f"from {hosts.NET}.3, which" in told[0], output
        finally:
            for process in [visitor, *ranks]:
                process.kill()
                process.wait()
        assert took < 20, f"{took} s until the first steps"
        print(f"strangers of another host: steps after {took:.2f} s; {told[0]}")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-rendezvous-") as folder:
        test = Test(binary, pathlib.Path(folder))
        waits = [*test.ranks_that_do_not_come(), test.tokens, test.port_in_use]
        lockstep_run.at_once([*waits, test.same_bits, test.wrong_starts], len(waits) + 1)
        test.strangers()
        strangers_of_another_host(test)
        for victim in (0, 1, 3):
            test.killed(victim)
        test.stopped()
        test.limit_of_rank_0()
        test.preempted()
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(sys.argv[1]))
