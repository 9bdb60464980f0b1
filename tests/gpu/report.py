"""What the GPU check writes: report.json after everything that it finds, so that a check cut short
leaves it, and report.md for reading."""
import json
import pathlib
import time


class Report:
    def __init__(self, folder, environment):
        self.folder = pathlib.Path(folder)
        before = self.read_before(environment)
        self.data = {"date": time.strftime("%Y-%m-%d"), "complete": False,
                     "environment": environment, "stages": before.get("stages", {}),
                     "checks": before.get("checks", []), "figures": before.get("figures", {})}
        self.start = time.monotonic()

    def read_before(self, environment):
        """The report of the same machine and libraries that is in the folder, of which stages that
        do not run again stay."""
        try:
            before = json.loads((self.folder / "report.json").read_text())
        except (OSError, ValueError):
            return {}
        return before if before.get("environment") == environment else {}

    def begin_stage(self, stage):
        self.stage = stage
        self.data["checks"] = [c for c in self.data["checks"] if c["stage"] != stage]
        self.data["figures"] = {
            name: f for name, f in self.data["figures"].items() if f["stage"] != stage}
        self.data["stages"].pop(stage, None)

    def check(self, stage, what, passed, detail=""):
        print(f"{'ok    ' if passed else 'FAILED'} {stage}: {what}"
              + (f" ({detail})" if detail else ""), flush=True)
        self.data["checks"].append(
            {"stage": stage, "what": what, "passed": bool(passed), "detail": str(detail)})
        self.save()

    def figure(self, name, value):
        print(f"       {name}: {value}", flush=True)
        self.data["figures"][name] = {"stage": self.stage, "value": value}
        self.save()

    def stage_took(self, stage, seconds):
        print(f"       {stage} took {seconds:.1f} s", flush=True)
        self.data["stages"][stage] = round(seconds, 1)
        self.save()

    def failed(self, stage=None):
        return [c for c in self.data["checks"] if not c["passed"] and stage in (None, c["stage"])]

    def save(self, complete=False):
        self.data["complete"] = complete
        self.data["seconds"] = round(time.monotonic() - self.start, 1)
        (self.folder / "report.json").write_text(json.dumps(self.data, indent=1) + "\n")
        (self.folder / "report.md").write_text(self.text())

    def text(self):
        passed = len(self.data["checks"]) - len(self.failed())
        lines = [f"# GPU check, {self.data['date']}"
                 + ("" if self.data["complete"] else " (cut short)"), ""]
        lines += [f"- {key}: {value}" for key, value in self.data["environment"].items()]
        lines += [
            "",
            f"{passed} checks passed, {len(self.failed())} failed, in {self.data['seconds']} s.",
            ""]
        lines += [f"- FAILED {c['stage']}: {c['what']} {c['detail']}" for c in self.failed()]
        lines += ["", "| stage | passed | failed | seconds |", "| --- | ---: | ---: | ---: |"]
        for stage, seconds in self.data["stages"].items():
            of_stage, failed = (
                [c for c in self.data["checks"] if c["stage"] == stage], len(self.failed(stage)))
            lines.append(f"| {stage} | {len(of_stage) - failed} | {failed} | {seconds} |")
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
        return "\n".join(lines) + "\n"
