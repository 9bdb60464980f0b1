#!/usr/bin/env python3
"""Catches: a fault of the machine that `lockstep doctor` does not name, an exit code that does not
follow from the findings, a start (alone, under mpirun, without MPI, with ranks that do not meet) in
which it does not work, and files that it leaves behind.

doctor_test.py BINARY: plants faults that need no special hardware. Those that need root (a full and
a read-only disk, hosts as network namespaces) are skipped without it.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

import hosts
import lockstep_run


HARDWARE = (pathlib.Path(__file__).resolve().parents[2]
            / "configs/hardware/xeon-8480.textproto")
BY_CHANCE = {"disk.slow"}  # of other work on this machine


def names_of(report):
    return {found["name"] for found in report["findings"] if found["level"] != "ok"} - BY_CHANCE


class Trial:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.expect = lockstep_run.Expectations()

    def words(self, run_dir="runs"):
        return ["doctor", "--run-dir", str(self.folder / run_dir), "--json",
                str(self.folder / "found.json")]

    def report(self):
        return json.loads((self.folder / "found.json").read_text())

    def run(self, run_dir="runs", code=0, inside=(), ranks=0, **how):
        """The names of warnings and errors. inside: what the program is started with."""
        command = [*inside, self.binary, *self.words(run_dir)]
        if ranks > 0:
            command = lockstep_run.mpirun(ranks) + command
        environment = dict(os.environ, **how.pop("environment", {}))
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              env=environment, stdin=subprocess.DEVNULL, timeout=100, **how)
        if done.returncode != code:
            self.expect(False, f"exit code {done.returncode}, not {code}: {command}: "
                               f"{done.stdout}{done.stderr}")
        self.text = done.stdout
        return names_of(self.report())

    def finds(self, name, usual, found):
        """Exactly this, besides what is wrong with this machine anyway."""
        self.expect(found - usual == {name}, f"finds {name}: {sorted(found)}, usually {sorted(usual)}")


def low_limit(which, value):
    return lambda: resource.setrlimit(which, (value, resource.getrlimit(which)[1]))


def alone(trial):
    usual = trial.run()
    report = trial.report()
    areas = {found["name"].split(".")[0] for found in report["findings"]}
    trial.expect({"start", "cpus", "simd", "memory", "disk", "network", "gpus"} <= areas,
                 f"every area is reported: {areas}")
    trial.expect(all(found["cost"] and found["remedy"] for found in report["findings"]
                     if found["level"] != "ok"), "costs and remedies")
    trial.expect(trial.text.count("\n") <= 10 + len(usual), f"few lines:\n{trial.text}")
    trial.expect(not (trial.folder / "runs").exists(), "the folder is removed again")
    trial.finds("limits.nofile", usual,
                trial.run(preexec_fn=low_limit(resource.RLIMIT_NOFILE, 64)))
    trial.finds("limits.fsize", usual,
                trial.run(preexec_fn=low_limit(resource.RLIMIT_FSIZE, 1 << 20)))
    trial.finds("network.variable", usual,
                trial.run(environment={"NCCL_SOCKET_IFNAME": "nonesuch0"}))
    trial.finds("start.one_of_allocation", usual, trial.run(environment={"SLURM_NTASKS": "4"}))
    (trial.folder / "a_file").write_text("")
    trial.finds("disk.failure", usual,
                trial.run(trial.folder / "a_file", code=2))
    srun = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0"}
    trial.finds("start.apart", usual,
                trial.run(code=2, environment=dict(srun, SLURM_PROCID="0")))
    later = subprocess.run([trial.binary, "doctor"], capture_output=True, text=True,
                           env=dict(os.environ, **srun, SLURM_PROCID="1"), timeout=100)
    trial.expect(later.returncode == 2 and later.stdout == "" and "does not find" in later.stderr,
                 f"another process prints why alone: {later.stdout}{later.stderr}")
    if len(os.sched_getaffinity(0)) > 1:
        trial.finds("cpus.threads", usual, trial.run(environment={"OMP_NUM_THREADS": "1"}))


def small_disks(trial):
    if os.geteuid() != 0:
        return print("not tried: disks that are full or read-only, which need root")
    for options, name in (("size=16k", "disk.space"), ("ro", "disk.failure")):
        mount = ["unshare", "--mount", "sh", "-c",
                 f'mount -t tmpfs -o {options} none "$0" && exec "$@"', trial.folder / "disk"]
        (trial.folder / "disk").mkdir(exist_ok=True)
        tried = subprocess.run([*map(str, mount), "true"], capture_output=True)
        if tried.returncode != 0:
            return print("not tried: disks that are full or read-only, which cannot be mounted")
        found = trial.run("disk/runs", code=2, inside=mount)
        trial.expect(name in found, f"a disk with {options}: {found}")


def on_ranks(trial):
    usual = trial.run(ranks=2)
    trial.expect(len(trial.report()["facts"]["ranks"]) == 2, "facts of both ranks")
    trial.expect("2 ranks on 1 host, by mpirun" in trial.text,
                 f"the start: {trial.text.splitlines()[:1]}")
    cpu = str(min(os.sched_getaffinity(0)))
    crowded = trial.run(ranks=2, inside=["taskset", "-c", cpu])
    trial.expect("cpus.crowded" in crowded, f"two ranks on one CPU: {crowded}")
    levels = {rank["cpus"]["best_simd"] for rank in trial.report()["facts"]["ranks"]}
    if levels & {"AVX512", "AMX"}:
        lockstep_run.run(trial.binary, trial.words(), apart=[["LOCKSTEP_SIMD=AVX2"], ["LOCKSTEP_SIMD="]])
        found = names_of(trial.report())
        trial.expect(found - usual == {"simd.lowered", "simd.differ"}, f"vector units: {found}")
    if len(os.sched_getaffinity(0)) > 1:
        on_cores = subprocess.run(
            [*lockstep_run.mpirun(2), "sh", "-c",
             'exec taskset -c $OMPI_COMM_WORLD_RANK "$@"', "sh", trial.binary,
             *trial.words()], capture_output=True, text=True, timeout=100)
        trial.expect(on_cores.returncode == 0 and "cpus.crowded" not in names_of(trial.report()),
                     "a CPU for each rank is enough")


def without_mpi(trial):
    port = str(lockstep_run.free_port())
    ranks = [subprocess.Popen([trial.binary, *trial.words()], text=True,
                              env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2",
                                       MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for rank in range(2)]
    out = [rank.communicate(timeout=100)[0] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    trial.expect(codes == [0, 0], f"exit codes without MPI: {codes}")
    trial.expect("2 ranks on 1 host, by RANK and WORLD_SIZE" in out[0] and out[1] == "",
                 "rank 0 alone prints")


def calibrated_network(trial, made):
    """A rank on each host measures their network, for the file of one of the hosts."""
    file = trial.folder / "hosts.textproto"
    command = [trial.binary, "doctor", "--calibrate", file]
    missing = [rank.communicate(timeout=100)[0] for rank in made.without_mpi(command)]
    trial.expect("no such file; first measure one of the hosts" in missing[0],
                 f"--calibrate without the file of a host: {missing}")
    shutil.copy(HARDWARE.with_name("h100.textproto"), file)
    refused = [rank.communicate(timeout=100)[0] for rank in made.without_mpi(command)]
    trial.expect("describes a GPU" in refused[0], f"the file of a GPU: {refused}")
    shutil.copy(HARDWARE, file)
    done = [rank.communicate(timeout=100)[0] for rank in made.without_mpi(command)]
    text = file.read_text()
    rate = re.search(r"\n  gbytes_per_s: ([0-9.e-]+)", text)
    trial.expect('network: "network"' in text and rate and 0.008 < float(rate[1]) < 0.025,
                 f"a network of 100 Mbit/s: {rate and rate[0]}; {done}")


def two_hosts(trial):
    reason = hosts.available()
    if reason:
        return print(f"not tried: two hosts, {reason}")
    with hosts.Hosts(2, "100mbit") as made:
        hosts.ip("-n", made.name(1), "link", "set", "eth0", "mtu", "1400")
        done = [rank.communicate(timeout=100)[0] for rank in
                made.without_mpi([trial.binary, *trial.words()])]
        calibrated_network(trial, made)
    report = trial.report()
    pairs = report["facts"]["pairs"]
    trial.expect(len(pairs) == 1 and 0 < pairs[0]["gbit"] < 0.2,
                 f"the rate between the hosts, of 100 Mbit/s: {pairs}")
    found = names_of(report)
    trial.expect({"pairs.slow", "network.mtu"} <= found, f"two hosts: {sorted(found)}" + (
        "" if "pairs.slow" in found else f"{done}"))


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(binary, pathlib.Path(folder))
        alone(trial)
        small_disks(trial)
        without_mpi(trial)
        if lockstep_run.have_mpirun():
            on_ranks(trial)
            two_hosts(trial)
        return trial.expect.exit_code()


if __name__ == "__main__":
    sys.exit(main())
