#!/usr/bin/env python3
"""Runs `lockstep doctor` on the stand-in for GPUs and for NVML (tests/fibers). Catches: GPUs that are
sick, slow, hang or do not reach each other and are not named, and warnings about sound ones.

host_gpu_doctor_test.py PROGRAM: build/.../tests/host_gpu/bin/lockstep, which finds the stand-in
beside it, NVML in nvml/ and the driver in driver/.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    failures = []
    libraries = os.pathsep.join([str(program.parent / "nvml"), str(program.parent / "driver"),
                                 os.environ.get("LD_LIBRARY_PATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder) / "found.json"

        def names(*arguments, **environment):
            """Of the findings about GPUs that are not ok."""
            variables = dict(os.environ, LD_LIBRARY_PATH=libraries, FAKE_GPUS="2", **environment)
            done = subprocess.run([program, "doctor", "--run-dir", folder, "--json", found,
                                   *arguments], env=variables, capture_output=True, text=True,
                                  timeout=100)
            report = json.loads(found.read_text())
            nonlocal text, gpus
            text, gpus = done.stdout + done.stderr, report["facts"]["ranks"][0]["gpus"]
            errors = any(item["level"] == "error" for item in report["findings"])
            check(done.returncode == (2 if errors else 0), f"exit code {done.returncode}")
            return {item["name"] for item in report["findings"]
                    if item["level"] != "ok" and item["name"].startswith("gpus.")}

        def check(holds, what):
            print(("" if holds else "FAILED: ") + what)
            if not holds:
                failures.append(what)
                print("\n".join(line for line in text.split("\n") if " gpus " in line))

        def finds(expected, *arguments, **environment):
            got = names(*arguments, **environment)
            check(got == set(expected), f"{environment}: {sorted(got)}")

        text, gpus = "", {}
        finds([])
        check(len(gpus["gpus"]) == 2 and len(gpus["pairs"]) == 1 and gpus["pairs"][0]["gbytes"] > 0,
              f"two GPUs, and a copy between them: {gpus}")
        check(gpus["driver"].startswith("570.86.10 for CUDA ") and gpus["cudnn"], "versions")
        finds(["gpus.ecc"], FAKE_NVML_UNCORRECTED="1")
        finds(["gpus.ecc_corrected"], FAKE_NVML_CORRECTED="100000")
        finds(["gpus.throttled"], FAKE_NVML_LIMITS=str(0x40))
        finds([], FAKE_NVML_LIMITS="4")  # a power cap is normal
        finds(["gpus.hot"], FAKE_NVML_TEMPERATURE="93")
        finds(["gpus.taken"], FAKE_NVML_USED=str(5 << 30))
        finds(["gpus.slow_link"], FAKE_NVML_TOPOLOGY="switch")  # the host is slower than NVLink
        finds(["gpus.copy"], FAKE_PEER_COPIES_LOST="1")
        check("other bytes than its source" in text, "copies that do not arrive")
        finds(["gpus.copy"], "--limit", "2", FAKE_CUDA_HANG="0:2")
        check("does not end within 0.4 s" in text, "copies that hang")
        finds(["gpus.cudnn"], FAKE_CUDNN_MISSING="1")
        finds(["gpus.unusable"], "--limit", "0.3", FAKE_NVML_HANGS="nvmlInit_v2")
        check("the driver did not answer within 0.9 s" in text, "a driver that hangs")
        finds(["gpus.unusable"], FAKE_CUDA_ERROR="35", FAKE_CUDA_DRIVER="12020")
        check("update the driver" in text, "a driver that is too old")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
