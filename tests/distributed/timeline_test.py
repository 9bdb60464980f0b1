#!/usr/bin/env python3
"""Catches: a timeline.json that lacks an op, an exchange, a gather or a wait, that shows them at
the wrong time, ranks whose clocks are not brought together, and a rank that comes late and is not
named, or another in its place.

timeline_test.py BINARY: a small MLP on 2 ranks that share memory, 4 ranks on what they take for two
nodes, 2 ranks of which one is stopped for a while, and 2 ranks of which one has a clock that is far
ahead (in a time namespace; left out where there is none).
"""
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import lockstep_run

CONFIG = """
    model { mlp { hidden: [128, 128] } }
    data { synthetic { samples: 512 features: 64 classes: 4 } }
    train { global_batch: 64 lanes: LANES steps: STEPS log_every: 1000 }
    optimizer { adamw {} }
    schedule { lr: 0.01 }
    comm { bucket_mib: 0.03 }
    execution { threads: 1 }
    output { timeline: true tensorboard: false }
    checkpoint { at_end: false }
"""
LANES = 4
STEPS = 8
AHEAD_S = 1000
CLOCKS_AGREE = re.compile(r"the ranks' clocks agree to within ([0-9.]+) ms \(rank \d+ on \S+\)")
# Of a rank that the operating system does not run at once: of most steps' ends on a machine that
# others use.
SLOW_TO_WAKE_US = 20_000
STOPPED_S = 0.5  # a rank: far above what the operating system makes one wait
OPS = ["linear layers.0", "linear layers.1", "linear layers.2", "softmax_cross_entropy",
       "linear_backward layers.2", "linear_backward layers.1", "linear_backward layers.0"]
ROUNDING_US = 2  # metrics.jsonl is in thousandths of a ms, each wait in thousandths of a us


def events_of(run_dir):
    """Those with a duration."""
    return [event for event in json.loads((run_dir / "timeline.json").read_text())
            if event["ph"] == "X"]


def spans_of(run_dir):
    """By rank, those with a duration, as (category, name, start, end) in us."""
    spans = collections.defaultdict(list)
    for event in events_of(run_dir):
        spans[event["pid"]].append(
            (event["cat"], event["name"], event["ts"], event["ts"] + event["dur"]))
    return spans


def ops_in_their_lanes(of_rank, lanes):
    """All of them in each lane, one after the other, and none elsewhere."""
    passes = [(start, end) for _, name, start, end in of_rank if name == "forward and backward"]
    assert len(passes) == lanes * STEPS, passes
    ops = [span for span in of_rank if span[0] == "op"]
    for begin, end in passes:
        inside = [span for span in ops if begin <= span[2] and span[3] <= end]
        assert [name for _, name, *_ in inside] == OPS, inside
        assert all(one[3] <= next_one[2] for one, next_one in zip(inside, inside[1:])), inside
    assert len(ops) == len(passes) * len(OPS), len(ops)


def who_came_last(run_dir, ranks, per_node):
    """The arguments of each meeting say what the starts of its spans do."""
    meetings = collections.defaultdict(list)
    for event in events_of(run_dir):
        is_meeting = (event["cat"] in ("exchange", "gather")
                      or event["name"] in ("wait for all ranks", "wait for norms of layers"))
        assert is_meeting == ("args" in event), event
        if is_meeting:
            group = range(ranks)
            if event["name"].endswith("between nodes"):
                group = range(event["pid"] % per_node, ranks, per_node)
            elif event["name"].endswith("in the node"):
                group = range(event["pid"] // per_node * per_node,
                              (event["pid"] // per_node + 1) * per_node)
            meetings[event["cat"], event["name"], group].append(event)
    for (_, name, group), events in meetings.items():
        by_rank = [sorted((event for event in events if event["pid"] == rank),
                          key=lambda event: event["ts"]) for rank in group]
        for at_once in zip(*by_rank, strict=True):
            starts = [event["ts"] for event in at_once]
            for event in at_once:
                told = event["args"]
                assert abs(told["behind_ms"] * 1000 - (max(starts) - min(starts))) <= ROUNDING_US, (
                    name, at_once)
                assert (
                    abs(told["arrived_ms"] * 1000 - (event["ts"] - min(starts))) <= ROUNDING_US), (
                        name, at_once)
                assert starts[group.index(told["last"])] >= max(starts) - ROUNDING_US, (name,
                                                                                        at_once)


def check(run_dir, ranks, buckets, levels, per_node=None):
    spans = spans_of(run_dir)
    assert set(spans) == set(range(ranks)), spans.keys()
    for rank, of_rank in spans.items():
        steps = {name: (start, end) for category, name, start, end in of_rank
                 if name.startswith("step ")}
        assert list(steps) == [f"step {number}" for number in range(1, STEPS + 1)], steps
        for name, (begin, end) in steps.items():
            inside = [span for span in of_rank if begin <= span[2] and span[3] <= end]
            exchanges = collections.Counter(
                what for category, what, *_ in inside if category == "exchange")
            for level in levels:
                found = collections.Counter(int(what.split()[1].rstrip(","))
                                            for what in exchanges.elements()
                                            if what.endswith(level))
                assert found == {number: 1 for number in range(buckets)}, (
                    f"rank {rank}, {name}, {level}: {exchanges}")
            assert exchanges.total() == buckets * len(levels), exchanges
            gathers = [what for category, what, *_ in inside if category == "gather"]
            assert len(gathers) == buckets == len(set(gathers)), f"rank {rank}, {name}: {gathers}"
        # None that is cut in two by the end of a step.
        crossing = [
            span for span in of_rank for begin, end in steps.values() if span[2] < end < span[3]]
        assert not crossing, crossing
        ops_in_their_lanes(of_rank, LANES // ranks)
    who_came_last(run_dir, ranks, per_node or ranks)
    waits_add_up(run_dir, spans)
    return spans


def waits_add_up(run_dir, spans):
    """To what the metrics of rank 0 say."""
    steps = {name: (start, end) for _, name, start, end in spans[0] if name.startswith("step ")}
    waited = {name: sum(to - since for category, _, since, to in spans[0] if category == "wait"
                        and begin <= since and to <= end) for name, (begin, end) in steps.items()}
    for line in lockstep_run.metrics(run_dir):
        found, told = waited[f"step {line['step']}"], 1000 * line["comm_exposed_ms"]
        assert abs(found - told) <= ROUNDING_US, (
            f"step {line['step']}: waits of {found} us, comm_exposed_ms says {told} us")


def factors(binary, config, run_dir):
    """Two sums of factors in place of the buckets, each exchanged and gathered once a step."""
    lockstep_run.train(binary, config, run_dir, 2,
                       ["--set", "comm.power_sgd_rank=1", "--set", "comm.zero_stage=0"])
    spans = spans_of(run_dir)
    waits_add_up(run_dir, spans)
    for category in ("exchange", "gather"):
        found = [name for kind, name, *_ in spans[0] if kind == category]
        assert len(found) == 2 * STEPS and all(name.startswith("bucket 0, ") for name in found), (
            found)


def ends_together(spans):
    """All ranks leave a step's last exchange at about the same time, however late one of them
    comes."""
    ends = [[end for _, name, _, end in spans[rank] if name == "wait for all ranks"]
            for rank in sorted(spans)]
    apart = sorted(max(of_step) - min(of_step) for of_step in zip(*ends))
    return apart[len(apart) // 2]


def two_processes(words, before_rank_1=(), meanwhile=lambda processes: None, exit_code=0):
    """Two ranks, each as if on a node of its own. What they have said."""
    with tempfile.TemporaryDirectory() as meeting:
        processes, said = [], []
        for rank in range(2):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2",
                               LOCKSTEP_RENDEZVOUS=f"file://{meeting}/meet",
                               LOCKSTEP_NODE=str(rank))
            processes.append(subprocess.Popen([*(before_rank_1 if rank == 1 else []), *words],
                                              env=environment, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True,
                                              stdin=subprocess.DEVNULL))
        try:
            meanwhile(processes)
            for process in processes:
                said.append(process.communicate(timeout=lockstep_run.LIMIT_S)[0])
                assert process.returncode == exit_code, said[-1]
        finally:
            for process in processes:
                process.kill()
    return said


def with_a_rank_that_is_late(binary, config, run_dir):
    """Rank 1 does nothing for a while, some times: it is named where rank 0 then waits for it in an
    exchange, and rank 0 nowhere. It may be stopped between two exchanges, too, where they wait for
    other things."""
    stopped = []

    def stop(processes):
        limit = time.monotonic() + lockstep_run.LIMIT_S
        while not (run_dir / "metrics.jsonl").is_file() and time.monotonic() < limit:
            time.sleep(0.01)
        for _ in range(5):
            time.sleep(0.03)
            began = time.monotonic()
            processes[1].send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)
            processes[1].send_signal(signal.SIGCONT)
            stopped.append(time.monotonic() - began)
        time.sleep(0.1)
        processes[0].send_signal(signal.SIGUSR1)

    # Two buckets, so that the stops are not forgotten.
    words = [binary, "train", config, "--run-dir", run_dir, "--set", "train.steps=1000000",
             "--set", "comm.bucket_mib=0.1"]
    two_processes([str(word) for word in words], meanwhile=stop, exit_code=75)
    late = [event for event in events_of(run_dir) if "args" in event
            and event["args"]["behind_ms"] > 1000 * STOPPED_S / 2]
    assert {event["args"]["last"] for event in late} == {1}, late
    assert (all((event["args"]["arrived_ms"] == event["args"]["behind_ms"]) == (event["pid"] == 1)
                for event in late)), late
    steps = [event for event in events_of(run_dir) if event["name"].startswith("step ")
             and event["pid"] == 0]
    found = {step["name"]: sum(step["ts"] <= event["ts"]
                               and event["ts"] + event["dur"] <= step["ts"] + step["dur"]
                               for event in late if event["pid"] == 0) for step in steps}
    found = {name: count for name, count in found.items() if count > 0}
    print(f"rank 1, stopped for {' and '.join(f'{s:.3f}' for s in stopped)} s, is named in {found}")
    assert 2 <= len(found) <= len(stopped), (found, late)


def with_a_clock_ahead(binary, config, run_dir):
    """Rank 1 in a time namespace. To within how many us the clocks agree by the log; None where
    there are no such namespaces."""
    ahead = ["unshare", "--time", "--fork", "--monotonic", str(AHEAD_S), "--boottime", str(AHEAD_S)]
    if os.geteuid() != 0 or subprocess.run([*ahead, "true"], capture_output=True).returncode != 0:
        return None
    said = two_processes([str(binary), "train", str(config), "--run-dir", str(run_dir)],
                         before_rank_1=ahead)
    assert CLOCKS_AGREE.search(said[0]) and not CLOCKS_AGREE.search(said[1]), said
    return 1000 * float(CLOCKS_AGREE.search(said[0])[1])


def nothing_left_to_do(binary, config, run_dir):
    """A process without a step leaves the timeline of the one before."""
    saved = ["--set", "checkpoint.at_end=true"]
    lockstep_run.train(binary, config, run_dir, 2, saved)
    kept = (run_dir / "timeline.json").read_text()
    again = lockstep_run.train(binary, config, run_dir, 2, [*saved, "--resume", "auto"])
    assert "loss" not in again and (run_dir / "timeline.json").read_text() == kept, again


def more_than_is_kept(binary, config, run_dir):
    """The log says that the beginning is missing."""
    done = lockstep_run.run(binary,
                            ["train", config, "--run-dir", run_dir, "--set", "train.steps=1500",
                             "--set", "comm.bucket_mib=0.005"], 2)
    assert done.returncode == 0, done.stderr
    found = re.search(r"the oldest (\d+) spans of rank [01] on \S+ were dropped",
                      done.stdout + done.stderr)
    assert found and CLOCKS_AGREE.search(done.stdout + done.stderr), done.stdout + done.stderr
    first = min(
        int(name.split()[1]) for _, name, *_ in spans_of(run_dir)[0] if name.startswith("step "))
    print(f"{found[0]}: the first step is {first}")
    assert first > 1, first


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    if not lockstep_run.have_mpirun():
        print("no mpirun here: skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = folder / "config.textproto"
        config.write_text(CONFIG.replace("STEPS", str(STEPS)).replace("LANES", str(LANES)))
        plan = folder / "plan.json"
        subprocess.run([str(binary), "plan", str(config), "--ranks", "2", "--json", str(plan)],
                       check=True, capture_output=True)
        buckets = json.loads(plan.read_text())["buckets"]
        assert buckets >= 3, buckets
        lockstep_run.train(binary, config, folder / "two", 2)
        check(folder / "two", 2, buckets, ["in the node"])
        print(f"2 ranks: {buckets} buckets in each of {STEPS} steps")
        lamb = folder / "lamb.textproto"
        lamb.write_text(config.read_text().replace("adamw", "lamb"))
        lockstep_run.train(binary, lamb, folder / "lamb", 2)
        for rank, of_rank in check(folder / "lamb", 2, buckets, ["in the node"]).items():
            norms = [name for _, name, *_ in of_rank if name == "wait for norms of layers"]
            assert len(norms) == 2 * STEPS, f"rank {rank}: {norms}"
        lockstep_run.train(binary, config, folder / "nodes", 4, nodes=2)
        check(folder / "nodes", 4, buckets, ["in the node", "between nodes"], per_node=2)
        print("2 nodes x 2 ranks: on both levels")
        factors(binary, config, folder / "factors")
        nothing_left_to_do(binary, config, folder / "again")
        more_than_is_kept(binary, config, folder / "long")
        with_a_rank_that_is_late(binary, config, folder / "late")
        within = with_a_clock_ahead(binary, config, folder / "ahead")
        if within is not None:
            apart = ends_together(
                check(folder / "ahead", 2, buckets, ["between nodes"], per_node=1))
            print(f"a clock {AHEAD_S} s ahead, brought together to within {within:.0f} us: the "
                  f"ranks end a step {apart:.0f} us apart")
            assert within < SLOW_TO_WAKE_US and apart < within + SLOW_TO_WAKE_US, (
                "clocks were not brought together")
        else:
            print("no time namespaces here: clocks of other hosts not tried")
    return 0


if __name__ == "__main__":
    sys.exit(main())
