"""Follows the folder of a Lockstep run: for sidecars that pass its metrics on. Standard library only."""
import json
import pathlib
import time


def config_of(run):
    """The fields of RUN/config.textproto by path: {"schedule.lr": 0.001, "optimizer": "adamw"}."""
    fields, path = {}, []
    for line in (pathlib.Path(run) / "config.textproto").read_text().splitlines():
        text = line.strip()
        if text.endswith("{"):
            path.append(text[:-1].strip())
            if ".".join(path[:-1]) in ("model", "optimizer", "data"):
                fields[path[0]] = path[1]
        elif text == "}":
            path.pop()
        elif ": " in text:
            name, value = text.split(": ", 1)
            try:
                value = json.loads(value)
            except ValueError:
                pass  # an enum value
            key = ".".join([*path, name])
            fields[key] = [fields[key], value] if key in fields else value
    return fields


def wait_for(run, name, pause_s=1.0):
    while not (pathlib.Path(run) / name).exists():
        time.sleep(pause_s)


def follow(run, pause_s=1.0):
    """Yields lists of new records of RUN/metrics.jsonl until the run has ended, each step once.

    A resumed run removes the lines after its checkpoint and computes them again, to the same values:
    the line before the next one to be read is then another one, and the file is read again.
    """
    run = pathlib.Path(run)
    newest, at, last_line = -1, 0, b""
    while True:
        ended = (run / "end.json").exists()  # before the read, so that no line is missed
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(at - len(last_line))
            if file.read(len(last_line)) != last_line:
                at, last_line = 0, b""
                file.seek(0)
            lines = file.read().splitlines(keepends=True)
        records = []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            at, last_line = at + len(line), line
            record = json.loads(line)
            if record["step"] > newest:
                newest = record["step"]
                records.append(record)
        if records:
            yield records
        elif ended:
            return
        else:
            time.sleep(pause_s)


def numbers_of(record):
    """The fields that are numbers: what can be plotted."""
    return {name: value for name, value in record.items() if type(value) in (int, float)}


def end_of(run):
    """RUN/end.json; {} if the run has not ended by itself."""
    try:
        return json.loads((pathlib.Path(run) / "end.json").read_text())
    except FileNotFoundError:
        return {}
