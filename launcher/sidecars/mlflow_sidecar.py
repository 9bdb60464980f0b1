#!/usr/bin/env python3
"""Passes the metrics of a Lockstep run on to MLflow while it trains.

    pip install mlflow-skinny
    python3 mlflow_sidecar.py RUN_DIR --experiment NAME --tracking-uri http://HOST:5000

Needs no more than the run folder, so that it may run on another host. Started again, it continues the
same MLflow run, as a resumed training does.
"""
import argparse
import pathlib

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

import follow_run

MOST_METRICS, MOST_PARAMS = 1000, 100  # in a batch
RUN_DIR = "lockstep.run_dir"  # the tag by which a run is found again


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, metavar="RUN_DIR")
    parser.add_argument("--experiment", default="lockstep")
    parser.add_argument("--tracking-uri", help="by default MLFLOW_TRACKING_URI")
    options = parser.parse_args()
    for name in ("config.textproto", "metrics.jsonl"):
        follow_run.wait_for(options.run, name)
    client, folder = MlflowClient(options.tracking_uri), str(options.run.resolve())
    experiment = client.get_experiment_by_name(options.experiment)
    experiment = experiment.experiment_id if experiment else client.create_experiment(options.experiment)
    found = client.search_runs([experiment], f"tags.`{RUN_DIR}` = '{folder}'", max_results=1)
    if found:
        run, known = found[0].info.run_id, int(found[0].data.metrics.get("step", -1))
        client.update_run(run, status="RUNNING")
    else:
        run, known = client.create_run(experiment, tags={RUN_DIR: folder},
                                       run_name=options.run.name).info.run_id, -1
        params = [Param(name, str(value)[:500])
                  for name, value in follow_run.config_of(options.run).items()]
        for i in range(0, len(params), MOST_PARAMS):
            client.log_batch(run, params=params[i:i + MOST_PARAMS])
    status = "KILLED"
    try:
        for records in follow_run.follow(options.run):
            metrics = [Metric(name, value, int(1000 * record["time"]), record["step"])
                       for record in records if record["step"] > known
                       for name, value in follow_run.numbers_of(record).items()]
            for i in range(0, len(metrics), MOST_METRICS):
                client.log_batch(run, metrics=metrics[i:i + MOST_METRICS])
        end = follow_run.end_of(options.run)
        for name, value in end.items():
            client.set_tag(run, f"end.{name}", value)
        status = "FINISHED" if end.get("ended") != "preempted" else "KILLED"
    except KeyboardInterrupt:
        print("stopped before the end of the run; start it again to continue")
    finally:
        client.set_terminated(run, status)


if __name__ == "__main__":
    main()
