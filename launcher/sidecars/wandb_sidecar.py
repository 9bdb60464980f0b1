#!/usr/bin/env python3
"""Passes the metrics of a Lockstep run on to Weights & Biases while it trains.

    pip install wandb
    python3 wandb_sidecar.py RUN_DIR --project NAME

Needs no more than the run folder, so that it may run on another host. Started again, it continues the
same W&B run, as a resumed training does. WANDB_MODE=offline writes to a folder instead.
"""
import argparse
import hashlib
import pathlib

import wandb

import follow_run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, metavar="RUN_DIR")
    parser.add_argument("--project", default="lockstep")
    parser.add_argument("--entity", help="user or team; by default yours")
    options = parser.parse_args()
    for name in ("config.textproto", "metrics.jsonl"):
        follow_run.wait_for(options.run, name)
    folder = str(options.run.resolve())
    run = wandb.init(project=options.project, entity=options.entity, name=options.run.name,
                     id=hashlib.sha256(folder.encode()).hexdigest()[:16], resume="allow",
                     config=dict(follow_run.config_of(options.run), run_dir=folder))
    known = int(run.step)  # of an earlier sidecar
    exit_code = 1
    try:
        for records in follow_run.follow(options.run):
            for record in records:
                if record["step"] >= known:
                    run.log(follow_run.numbers_of(record), step=record["step"])
        end = follow_run.end_of(options.run)
        run.summary.update({f"end/{name}": value for name, value in end.items()})
        exit_code = 0 if end.get("ended") != "preempted" else 75
    except KeyboardInterrupt:
        print("stopped before the end of the run; start it again to continue")
    finally:
        run.finish(exit_code=exit_code)


if __name__ == "__main__":
    main()
