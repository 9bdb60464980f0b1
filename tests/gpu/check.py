#!/usr/bin/env python3
"""Runs the parts of the GPU check: see README.md. Started by run.sh."""
import argparse
import math
import pathlib
import signal
import sys
import tempfile
import traceback

import report as reports
from machine import Machine, TimeIsUp, environment_of, not_enough
from parts import PARTS
from report import Report

BUDGET_S = 480  # of each part, if there is no lease
PACKING_S = 5   # of a lease, kept for its end


def run_part(part, machine, report, budget_s, is_all_that_is_left):
    """`is_all_that_is_left`: of a lease, less than the part would have for itself."""
    print(f"== {part.name}: {part.title}", flush=True)
    machine.begin_stage(part.name, budget_s)
    report.begin_stage(part.name)
    state, why = reports.ENDED, ""
    try:
        part.run(machine, report)
    except TimeIsUp as late:
        if is_all_that_is_left:
            state, why = reports.CUT, f"under way: {late}"
        else:
            report.check(part.name, "the part ends in its time", False,
                         f"{late} under way then; the rest of it did not run",
                         f"an end within {budget_s:.0f} s")
    except Exception as error:  # a part that fails leaves the others to run
        (machine.out / f"{part.name}-error.txt").write_text(traceback.format_exc())
        report.check(part.name, "the part runs", False, repr(error), "no error of the check itself")
    report.end_stage(part.name, state, why)


def run_parts(parts, machine, report, budget_of, until=math.inf):
    """Those that still fit before `until`, a time of the machine's clock, one after another."""
    for part in parts:
        left = until - machine.clock()
        if left < part.needs_s:
            report.end_stage(part.name, reports.LEFT_OUT, not_enough(max(left, 0), part.needs_s))
            continue
        budget = budget_of(part)
        run_part(part, machine, report, min(budget, left), left < budget)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="The GPU check.")
    parser.add_argument("install", type=pathlib.Path)
    parser.add_argument("out", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--lease", type=int, metavar="SECONDS",
                        help="in all, from the start of the check")
    parser.add_argument("--quick", action="store_true", help="the checks without the benchmarks")
    parser.add_argument("--only", default="", metavar="PART,...",
                        help="some parts alone; 'list' names them")
    parser.add_argument("--budget", type=int, default=BUDGET_S, metavar="SECONDS",
                        help="that each part may take without a lease")
    parser.add_argument("--archive", type=pathlib.Path, help="of all that is in OUT: OUT.tar.gz")
    parser.add_argument("--small", action="store_true",
                        help="tiny models, and not all of the runs: to try the check itself")
    options = parser.parse_args(arguments)
    names = [part.name for part in PARTS]
    asked = [name for name in options.only.split(",") if name]
    unknown = [name for name in asked if name not in names and asked != ["list"]]
    if unknown:
        parser.error(f"--only: no part is called '{unknown[0]}'; allowed: {', '.join(names)}")
    options.parts = [part for part in PARTS if part.name in asked
                     or not asked and not (options.quick and part.is_benchmark)]
    options.list = asked == ["list"]
    return options


def check(options, work):
    report = Report(options.out, [part.name for part in options.parts], archive=options.archive)
    machine = Machine(options.install, work, options.out, options.small, report.under_way,
                      report.keep_up)
    until = machine.clock() + options.lease - PACKING_S if options.lease else math.inf
    try:
        environment, starts = environment_of(machine)
        if options.small:
            environment["models"] = "tiny: only the check itself is tried"
        report.set_environment(environment)
        if not starts:
            report.stage = "start"
            report.check("start", "a training of one step runs on the GPU", False,
                         environment["libraries"], "exit code 0")
            return report
        run_parts(options.parts, machine, report,
                  lambda part: part.lease_s if options.lease else options.budget, until)
        report.save(complete=not report.not_run())
    finally:
        print(f"report: {options.out / 'report.md'}; all in {report.pack()}", flush=True)
    return report


def main():
    options = parse(sys.argv[1:])
    if options.list:
        print("\n".join(f"{part.name:12} {part.title}" for part in PARTS))
        return 0
    # So that what runs is ended and what was found is packed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-", ignore_cleanup_errors=True) as work:
        report = check(options, pathlib.Path(work))
    failed, not_run = len(report.failed()), len(report.not_run())
    print(f"{len(report.data['checks']) - failed} passed, {failed} failed, {not_run} not run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
