#!/usr/bin/env python3
"""Catches: weights that depend on the network between the ranks, traffic that the plan does not
know of, hosts that exchange more than they must.

several_hosts_test.py BINARY: a small GPT on hosts that are network namespaces, 2 x 1, 2 x 2 and 4 x
1 (hosts x ranks) under a real mpirun at 1 Gbit/s and 100 Mbit/s, over Open MPI's TCP and over
Lockstep's, in all ZeRO stages and with gradients of 16 bits: the weights_hash of one rank alone,
and the bytes that each network card counted within 3% of what `lockstep plan` says. AUTO must
choose Lockstep's TCP, but not on one host. Ranks that cannot meet must be refused where TCP is
asked for, and use MPI where it is not. Skipped where such hosts cannot be made.
"""
import functools
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
EVERY = ((2, 1), (2, 2), (4, 1))  # hosts, ranks on each
MEASURED = (("100mbit", EVERY, {"transport": "TCP"}),
            ("100mbit", [(2, 1), (2, 2)], {"transport": "TCP", "power_sgd_rank": 4, "zero_stage": 0}),
            ("1gbit", EVERY, {"transport": "MPI"}),
            ("1gbit", EVERY, {"transport": "TCP"}),
            ("1gbit", [(2, 1)], {"transport": "TCP", "zero_stage": 0}),
            ("1gbit", [(2, 2)], {"transport": "TCP", "zero_stage": 2}),
            ("1gbit", [(2, 1), (2, 2)], {"transport": "TCP", "zero_stage": 3}),
            ("1gbit", EVERY, {"transport": "TCP", "wire_dtype": "BF16"}),
            ("1gbit", [(2, 1), (2, 2)], {"transport": "TCP", "wire_dtype": "BF16", "zero_stage": 0}),
            ("1gbit", [(2, 2)], {"transport": "MPI", "wire_dtype": "BF16", "zero_stage": 2}),
            ("1gbit", [(2, 2)],
             {"transport": "TCP", "wire_dtype": "BF16", "error_feedback": "true"}))
SHORT, LONG = 5, 25  # steps: what lies between is traffic of steps alone
# Of a step and host: its totals, and the headers of small messages, which the plan leaves out.
SMALL_BYTES = 4096


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=300, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} of {command}:\n{done.stdout}\n{done.stderr}")


def settings(comm):
    return [word for field, value in comm.items() for word in ("--set", f"comm.{field}={value}")]


def train(launcher, binary, folder, name, steps, **comm):
    result = folder / f"{name}.json"
    run([*launcher, binary, "train", folder / f"{steps}.textproto", "--run-dir", folder / name,
         "--json", result, *settings(comm)])
    return json.loads(result.read_text())


def measure(binary, folder, rate, count, local, comm):
    """The longer run's result, and what the busiest host sent in a step."""
    sent = [[0] * count]
    with hosts.Hosts(count, rate) as made:
        for steps in (SHORT, LONG):
            name = "-".join(map(str, (count, local, rate, *comm.values(), steps)))
            result = train(made.mpirun(local), binary, folder, name, steps, **comm)
            sent.append([made.sent_bytes(host) for host in range(count)])
    return result, max((after - 2 * between + before) / (LONG - SHORT)
                       for before, between, after in zip(*sent))


def check(binary, folder, alone, rate, count, local, comm):
    """Whether a run has the weights of one rank and sends what its plan tells, which knows the rate
    of the network; the run measures it where it decides."""
    plan = folder / "-".join(map(str, ("plan", count, local, rate, *comm.values())))
    run([binary, "plan", folder / f"{LONG}.textproto", "--ranks", count * local,
         "--ranks-per-node", local, "--json", plan, *settings(comm),
         *settings({"link_gbit": {"100mbit": 0.1, "1gbit": 1}[rate]})])
    planned = json.loads(plan.read_text())["network_bytes_per_step_per_rank"] * local
    result, sent = measure(binary, folder, rate, count, local, comm)
    weights = result["weights_hash"]
    good = (weights == alone[sums_of(comm)] and planned <= sent <= 1.03 * planned + SMALL_BYTES
            and result["transport"].endswith(comm["transport"].lower()))
    print(f"{'ok    ' if good else 'FAILED'} {count} hosts x {local} ranks, {rate:8} {comm}  {weights}  "
          f"{sent:,.0f} bytes a step and host sent, {planned:,} planned: {sent / planned:.3f}, over "
          f"{result['transport']}", flush=True)
    return good


def refused(launcher, binary, folder, exit_code, *words):
    """TCP is asked for, and cannot be."""
    done = subprocess.run([str(word)
                           for word in (*launcher, binary, "train", folder / f"{SHORT}.textproto",
                                        "--run-dir", folder / "refused", "--set",
                                        "comm.transport=TCP")], capture_output=True, text=True,
                          timeout=300, stdin=subprocess.DEVNULL)
    lines = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
    print(f"exit code {done.returncode}: {lines}", flush=True)
    assert done.returncode == exit_code and len(lines) == 1, done.stderr
    for word in ("comm.transport: value is TCP", "OMPI_MCA_btl_tcp_if_include",
                 "comm.transport: MPI", *words):
        assert word in lines[0], f"'{word}' is not in: {lines[0]}"


def transports(binary, folder, alone):
    """What AUTO chooses, and what becomes of ranks that cannot meet."""
    on_one = train(lockstep_run.mpirun(2), binary, folder, "one-host", SHORT, transport="TCP")
    assert on_one["transport"] == "shared memory", on_one["transport"]
    with hosts.Hosts(2) as made:
        mpirun = made.mpirun(1, fast_networks=True)
        chosen = train(mpirun, binary, folder, "auto", LONG)
        assert (chosen["transport"], chosen["weights_hash"]) == ("tcp", alone), chosen
        bench = folder / "bench.json"
        run([*mpirun, binary, "bench", "collectives", "--transport", "TCP", "--sizes", "64KiB",
             "--repeats", "3", "--json", bench])
        assert json.loads(bench.read_text())["transport"] == "tcp", bench.read_text()
        # For the ranks alone: mpirun has its own.
        elsewhere = ["env", "OMPI_MCA_btl_tcp_if_include=203.0.113.0/24"]
        refused([*mpirun, *elsewhere], binary, folder, 2, made.name(0), "203.0.113.0/24")
        closed = [*mpirun, *made.close_to_lockstep(), "env", "LOCKSTEP_RENDEZVOUS_TIMEOUT_S=3"]
        refused(closed, binary, folder, 6, f"rank 1 on {made.name(1)}", f"{hosts.NET}.1:",
                "Network is unreachable")
        chosen = train(closed, binary, folder, "auto-closed", LONG)
        assert (chosen["transport"], chosen["weights_hash"]) == ("mpi", alone), chosen
    return True


def sums_of(comm):
    """What of the settings changes the bits of the sums."""
    return comm.get("wire_dtype", "FP32"), "error_feedback" in comm, comm.get("power_sgd_rank", 0)


def main():
    binary = os.path.abspath(sys.argv[1])
    missing = hosts.available()
    if missing:
        print(f"skipped: {missing}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for steps in (SHORT, LONG):
            (folder / f"{steps}.textproto").write_text(CONFIG.replace("STEPS", str(steps)))
        alone = {}
        for comm in ({"wire_dtype": "FP32"}, {"wire_dtype": "BF16"},
                     {"wire_dtype": "BF16", "error_feedback": "true"},
                     {"power_sgd_rank": 4, "zero_stage": 0}):
            sums = sums_of(comm)
            alone[sums] = (
                train([], binary, folder, f"alone{len(alone)}", LONG, **comm)["weights_hash"])
            print(f"one rank alone, {comm}: {alone[sums]}")
        assert len(set(alone.values())) == len(alone), "settings that change nothing"
        # They wait for the network most of the time.
        good = lockstep_run.at_once(
            [functools.partial(transports, binary, folder, alone[sums_of({})])] +
            [functools.partial(check, binary, folder, alone, rate, *layout, comm)
             for rate, layouts, comm in MEASURED for layout in layouts], 3)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
