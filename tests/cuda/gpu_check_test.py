#!/usr/bin/env python3
"""Runs the check of tests/gpu on the stand-in for a GPU. Catches: parts that cannot run, that
outlast their time, or that leave a hung run behind; red lines for what cuDNN does not do; a batch
"that no GPU holds" which one does; a report that does not say what failed.

gpu_check_test.py PROGRAM: build/.../tests/host_gpu/bin/lockstep
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import configs  # noqa: E402

GIB = 1 << 30


def run_check(program, out, *options, gpu_bytes, environment=None):
    env = dict(os.environ, FAKE_GPU_BYTES=str(gpu_bytes), **(environment or {}))
    env.pop("LOCKSTEP_DEVICE", None)
    done = subprocess.run(
        [ROOT / "tests/gpu/run.sh", program.parent.parent, out, "--small", *options], env=env,
        text=True, stdin=subprocess.DEVNULL, capture_output=True)
    return done, json.loads((out / "report.json").read_text())


def nothing_runs(program):
    """A process that was killed may take a while to be gone where others have the cores."""
    until = time.monotonic() + 30
    while left := subprocess.run(["pgrep", "-f", f"{program} train.*lockstep-gpu-"],
                                 capture_output=True, text=True).stdout:
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.2)


def whole_check(program, folder):
    out = folder / "whole"
    done, report = run_check(program, out, "--budget", "2000", gpu_bytes=80 * GIB)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert len(report["checks"]) > 50 and "dit" in done.stdout, report
    assert all(part["state"] == "ended" for part in report["parts"].values()), report["parts"]
    # What a machine without a GPU has not.
    assert all(re.search("PyTorch|compute-sanitizer|bench ops", piece["what"])
               for piece in report["left_out"]), report["left_out"]
    assert "stand-in" in report["environment"]["libraries"], report["environment"]
    with tarfile.open(folder / "whole.tar.gz") as archive:
        names = archive.getnames()
    assert ("whole/report.json" in names
            and all(re.fullmatch(r"[A-Za-z0-9./-]+", name) for name in names)), names


def a_larger_gpu(program, folder):
    done, report = run_check(program, folder / "larger", "--only", "refusals", gpu_bytes=141 * GIB)
    assert done.returncode == 0, report
    config = folder / "gpt.textproto"
    config.write_text(configs.GPT)
    plan = subprocess.run(
        [program, "plan", config, "--device", "cuda", "--gpu", "B200", *configs.TOO_LARGE],
        text=True, capture_output=True)
    assert plan.returncode == 5, plan.stdout + plan.stderr


def short_of_time(program, folder):
    """The run that is under way when the time is up ends, with its ranks, and the report says
    so."""
    begin = time.monotonic()
    done, report = run_check(program, folder / "short", "--only", "ranks,refusals", "--budget", "3",
                             gpu_bytes=80 * GIB)
    assert time.monotonic() - begin < 40, "each stage has 3 s"
    late = [c for c in report["checks"] if "an end within 3 s" in c["detail"]]
    assert done.returncode == 1 and late and not late[0]["passed"], report
    assert report["parts"]["refusals"]["state"] == "ended", report
    nothing_runs(program)


def what_fails_is_kept(program, folder):
    out = folder / "failing"
    done, report = run_check(program, out, "--only", "kernels", gpu_bytes=80 * GIB,
                             environment={"FAKE_CUDA_FAULT": "200"})
    failed = [c for c in report["checks"] if not c["passed"]]
    assert done.returncode == 1 and failed, report
    # The case, and within it the op.
    assert (re.search(
        r"BF16 (mlp|gpt|llama|resnet|images).*: [a-z_]+ ", failed[0]["what"])), failed[0]
    assert "illegal memory access" in failed[0]["detail"], failed[0]
    # The process goes on without that op, with the rest of its case.
    case = failed[0]["what"].split(":")[0]
    assert any(c["what"] == case and c["passed"] for c in report["checks"]), report["checks"]
    kept = sorted(out.glob("kernels-*.txt"))
    assert kept and "illegal memory access" in kept[-1].read_text()


def runs_that_fail_alike_are_not_the_same(program, folder):
    """And what another stage has found stays in the report."""
    out = folder / "alike"
    run_check(program, out, "--only", "refusals", gpu_bytes=80 * GIB)
    _, report = run_check(program, out, "--only", "bits", gpu_bytes=80 * GIB,
                          environment={"FAKE_CUDA_FAULT": "200"})
    found = [c["passed"] for c in report["checks"] if c["stage"] == "bits"]
    assert found and not any(found), report
    assert any(c["stage"] == "refusals" for c in report["checks"]), report
    assert list(out.glob("bits-*.txt"))


def a_gpu_that_does_nothing(program, folder):
    """One training that fails is enough to know."""
    done, report = run_check(program, folder / "nothing", gpu_bytes=80 * GIB,
                             environment={"FAKE_CUDA_FAULT": "5"})
    assert (done.returncode == 1 and [c["stage"] for c in report["checks"]] == ["start"]
            and not report["complete"]), report


def ended_by_a_signal(program, folder):
    """Its runs end with it, and what was found is packed."""
    out = folder / "ended"
    env = dict(os.environ, FAKE_GPU_BYTES=str(80 * GIB))
    env.pop("LOCKSTEP_DEVICE", None)
    check = subprocess.Popen(
        [ROOT / "tests/gpu/run.sh", program.parent.parent, out, "--small", "--only", "ranks"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    for line in check.stdout:
        if line.startswith("== ranks"):
            break
    time.sleep(1)
    check.terminate()
    check.communicate(timeout=60)
    assert check.returncode == 1 and (folder / "ended.tar.gz").exists()
    nothing_runs(program)


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-check-") as folder:
        for test in (a_larger_gpu, short_of_time, what_fails_is_kept,
                     runs_that_fail_alike_are_not_the_same, a_gpu_that_does_nothing,
                     ended_by_a_signal, whole_check):
            print(f"== {test.__name__}", flush=True)
            test(program, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
