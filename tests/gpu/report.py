"""What the GPU check writes: report.json and report.md, anew after everything that it finds, and
their archive every few seconds. Each file is whole at any moment: a check that is cut leaves all
that had ended, what was under way and what it had not come to."""
import json
import os
import pathlib
import tarfile
import time

SAVE_EVERY_S = 5
# States of a part.
WAITING, RUNNING, ENDED, CUT, LEFT_OUT = (
    "not come to", "running", "ended", "cut by the end of the lease", "not run")


def write_atomically(path, write):
    """`write` is given the path of a file that then takes the place of this one."""
    fresh = path.with_name(f".{path.name}.new")
    write(fresh)
    os.replace(fresh, path)


class Report:
    def __init__(self, folder, parts, clock=time.monotonic, archive=None):
        """`parts`: the names of those that are to run, in their order."""
        self.folder = pathlib.Path(folder)
        self.archive = archive or self.folder.parent / (self.folder.name + ".tar.gz")
        self.clock, self.start, self.packed, self.stage = clock, clock(), clock(), None
        self.before = self.read_before()
        self.data = {"date": time.strftime("%Y-%m-%d"), "complete": False, "environment": {},
                     "parts": {name: {"state": WAITING} for name in parts}, "stages": {},
                     "checks": [], "figures": {}, "left_out": []}
        if not self.before:
            self.save()

    def read_before(self):
        try:
            return json.loads((self.folder / "report.json").read_text())
        except (OSError, ValueError):
            return {}

    def set_environment(self, environment):
        """What an earlier check found in other parts stays if the machine is the same."""
        self.data["environment"] = environment
        if self.before.get("environment") == environment:
            asked = self.data["parts"]
            for key in ("checks", "left_out"):
                self.data[key] += [c for c in self.before.get(key, []) if c["stage"] not in asked]
            self.data["figures"].update((name, f) for name, f in self.before["figures"].items()
                                        if f["stage"] not in asked)
            self.data["stages"].update(
                (name, s) for name, s in self.before["stages"].items() if name not in asked)
            kept = {n: p for n, p in self.before.get("parts", {}).items() if n not in asked}
            self.data["parts"] = {**kept, **asked}
        self.save()

    def begin_stage(self, stage):
        self.stage = stage
        self.data["parts"][stage] = {"state": RUNNING, "begun": self.seconds()}
        for key in ("checks", "left_out"):
            self.data[key] = [c for c in self.data[key] if c["stage"] != stage]
        self.save()

    def under_way(self, what):
        """The program that the running part has started."""
        part = self.data["parts"].get(self.stage)
        if part and part["state"] == RUNNING:
            part["under_way"] = what
            self.save()

    def end_stage(self, stage, state, why=""):
        """The part's line on the terminal, and everything on the disk."""
        part = self.data["parts"][stage]
        line = f"{stage}: {state}"
        if state == LEFT_OUT:
            part.update(state=state, why=why)
        else:
            seconds = round(self.seconds() - part["begun"], 1)
            self.data["parts"][stage] = {"state": state, "seconds": seconds, "why": why}
            self.data["stages"][stage] = seconds
            line += f" after {seconds} s, {self.counts(stage)}"
        print(f"== {line}" + (f": {why}" if why else ""), flush=True)
        self.save()
        self.pack()

    def check(self, stage, what, passed, came="", expected=""):
        """`came` beside `expected`: what a red line needs."""
        detail = str(came)
        if not passed and expected:
            detail = f"expected {expected}; came {came}"
        print(f"{'ok    ' if passed else 'FAILED'} {stage}: {what}"
              + (f" ({detail})" if detail else ""), flush=True)
        self.data["checks"].append(
            {"stage": stage, "what": what, "passed": bool(passed), "detail": detail})
        self.save()
        return bool(passed)

    def passed(self, what):
        """What a check has given, in this part or an earlier one; None if it has not run."""
        found = [c["passed"] for c in self.data["checks"] if c["what"] == what]
        return found[-1] if found else None

    def figure(self, name, value):
        print(f"       {name}: {value}", flush=True)
        self.data["figures"][name] = {"stage": self.stage, "value": value}
        self.save()

    def leave_out(self, what, why):
        """A piece of the running part that does not run, which is no fault of what is checked."""
        print(f"       {what}: not run: {why}", flush=True)
        self.data["left_out"].append({"stage": self.stage, "what": what, "why": why})
        self.save()

    def failed(self, stage=None):
        return [c for c in self.data["checks"] if not c["passed"] and stage in (None, c["stage"])]

    def left_out(self, stage):
        return [piece for piece in self.data["left_out"] if piece["stage"] == stage]

    def not_run(self):
        """Parts and pieces of parts."""
        return ([name for name, part in self.data["parts"].items() if part["state"] != ENDED]
                + [piece["what"] for piece in self.data["left_out"]])

    def counts(self, stage):
        of_stage, failed = (
            [c for c in self.data["checks"] if c["stage"] == stage], len(self.failed(stage)))
        return (f"{len(of_stage) - failed} passed, {failed} failed, "
                f"{len(self.left_out(stage))} left out")

    def seconds(self):
        return round(self.clock() - self.start, 1)

    def save(self, complete=False):
        self.data["complete"] = complete
        self.data["seconds"] = self.seconds()
        text = json.dumps(self.data, indent=1) + "\n"
        write_atomically(self.folder / "report.json", lambda path: path.write_text(text))
        write_atomically(self.folder / "report.md", lambda path: path.write_text(self.text()))
        if self.clock() - self.packed > SAVE_EVERY_S:
            self.pack()

    def keep_up(self):
        """For what runs long: how long it has, and the archive."""
        if self.clock() - self.packed > SAVE_EVERY_S:
            self.save()

    def pack(self):
        """All that was found in one file, for machines that give few files back."""
        def write(path):
            with tarfile.open(path, "w:gz") as tar:
                tar.add(self.folder, arcname=self.folder.name)
        write_atomically(self.archive, write)
        self.packed = self.clock()
        return self.archive

    # ---- report.md ----

    def text(self):
        passed = len(self.data["checks"]) - len(self.failed())
        lines = [f"# GPU check, {self.data['date']}"
                 + ("" if self.data["complete"] else " (not complete)"), ""]
        lines += [f"- {key}: {value}" for key, value in self.data["environment"].items()]
        lines += [
            "",
            f"{passed} checks passed, {len(self.failed())} failed, in {self.data['seconds']} s.",
            ""]
        lines += [f"- FAILED {c['stage']}: {c['what']}: {c['detail']}" for c in self.failed()]
        lines += ["", "| part | state | passed | failed | seconds |",
                  "| --- | --- | ---: | ---: | ---: |"]
        lines += [self.row(name, part) for name, part in self.data["parts"].items()]
        lines += ["", *(f"- not run, {piece['stage']}: {piece['what']}: {piece['why']}"
                        for piece in self.data["left_out"])]
        return "\n".join(lines + self.figures()) + "\n"

    def row(self, name, part):
        of_stage, failed = (
            [c for c in self.data["checks"] if c["stage"] == name], len(self.failed(name)))
        if part["state"] == RUNNING:
            seconds = round(self.data["seconds"] - part["begun"], 1)  # until now
            why = part.get("under_way", "")
        else:
            seconds, why = part.get("seconds", ""), part.get("why", "")
        state = part["state"] + (f": {why}" if why else "")
        return f"| {name} | {state} | {len(of_stage) - failed} | {failed} | {seconds} |"

    def figures(self):
        lines = []
        if self.data["figures"]:
            lines += ["", "| figure | value |", "| --- | --- |"]
        figures = {name: figure["value"] for name, figure in self.data["figures"].items()}
        for name, value in figures.items():
            if isinstance(value, (int, float)):
                lines.append(f"| {name} | {value:,.4g} |" if isinstance(value, float)
                             else f"| {name} | {value:,} |")
            elif isinstance(value, str):
                lines.append(f"| {name} | {value} |")
        for name, value in figures.items():
            if isinstance(value, list):
                lines += (["", f"## {name}", ""]
                          + ["| " + " | ".join(value[0]) + " |", "| --- " * len(value[0]) + "|"])
                lines += ["| " + " | ".join(
                    f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()) + " |"
                          for row in value]
        return lines
