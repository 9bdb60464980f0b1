#!/usr/bin/env python3
"""Trains on the stand-in for GPUs with a stand-in for NVML (tests/fibers/nvml_on_host.cc). Catches: a
throttled rank, an ECC error or an Xid that nobody learns of, warnings at every step, metrics that
lack or invent values, energy that is lost or counts twice, a driver that hangs and holds a run up,
and links that are described wrongly.

host_gpu_state_test.py PROGRAM: build/.../tests/host_gpu/bin/lockstep, which finds the stand-in
beside it, and NVML in nvml/ and old_nvml/.
"""
import json
import os
import pathlib
import sys
import tempfile

from host_gpu_test import CONFIGS, Trial, lockstep_run

SLOW = "below the other ranks' median of 1980 MHz, and they wait for it"


def gpu_fields(lines):
    return {name for line in lines for name in line if name.startswith("gpu_")}


class States:
    def __init__(self, program, folder):
        self.trial, self.folder, self.count = Trial(program, folder), folder, 0
        self.program, self.bin = program, pathlib.Path(program).resolve().parent
        self.config = folder / "mlp.textproto"
        self.config.write_text(CONFIGS["mlp"])

    def library(self, name):
        old = os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": f"{self.bin / name}{':' + old if old else ''}"}

    def run(self, ranks=0, apart=None, nvml="nvml", arguments=(), **environment):
        """The result, the lines of metrics.jsonl, and what was printed."""
        self.count += 1
        run_dir = self.folder / f"run{self.count}"
        result = run_dir.with_suffix(".json")
        environment = {f"FAKE_NVML_{name}": value for name, value in environment.items()}
        environment |= {"FAKE_GPUS": str(max(ranks, 1))} | (self.library(nvml) if nvml else {})
        done = lockstep_run.run(
            self.program,
            ["train", self.config, "--device", "cuda", "--run-dir", run_dir, "--json", result,
             *arguments], ranks, environment, limit_s=60, apart=apart)
        text = done.stdout + done.stderr
        self.trial.check(done.returncode == 0, f"run {self.count} ends", text)
        if done.returncode != 0:
            return {"ranks": [{}] * max(ranks, 1)}, [{}], text
        return json.loads(result.read_text()), lockstep_run.metrics(run_dir), text


def alone(states):
    check = states.trial.check
    plain, without, text = states.run(nvml=None)
    check(not gpu_fields(without) and "MHz" not in text, "without NVML: no field, no line", text)
    debug = states.run(nvml=None, arguments=["--log-level", "debug"])[2]
    check(debug.count("no state of") == 1, "... but for one debug line", debug)

    result, lines, text = states.run(ENERGY="1000,3601000", LIMITS="4", USED=str(3 << 30),
                                     CORRECTED="5", UNCORRECTED="2")
    last = lines[-1]
    check(result["weights_hash"] == plain["weights_hash"], "NVML changes no bit")
    expected = {"gpu_clock_mhz_min": 1980, "gpu_clock_mhz_max": 1980, "gpu_max_clock_mhz": 1980,
                "gpu_memory_clock_mhz_min": 2619, "gpu_power_w": 500, "gpu_temperature_c_max": 60,
                "gpu_memory_used_bytes": 3 << 30, "gpu_ecc_corrected": 0, "gpu_ecc_uncorrected": 0,
                "gpu_limited_ranks": 1, "gpu_limits": "power cap", "gpu_clock_mhz_min_rank": 0}
    check(expected.items() <= last.items(), "a run's last line has the state", f"{last}")
    check(0 < last.get("gpu_memory_beside_plan_bytes", 0) < 3 << 30, "memory beside the plan",
          f"{last}")
    check("GPU: 1980 to 1980 MHz, 500 W, " in text, "the summary has it", text)
    check("GPU memory in use on rank 0: 3.00 GiB, of which the plan has 0.04 GiB" in text,
          "the log has the memory beside the plan", text)
    check("ECC" not in text and "slowed down" not in text,
          "neither a power cap nor errors of the past are warned of", text)
    every = states.run(arguments=["--set", "train.log_every=4"])[1]
    check([line["step"] for line in every if "gpu_power_w" in line] == [4, 8, 12],
          "train.log_every decides which lines have it")
    idle = states.run(LIMITS="1", UTILIZATION="0", CLOCK="210")
    check("gpu_clock_mhz_min" not in idle[1][-1] and "gpu_power_w" in idle[1][-1]
          and "210" not in idle[2], "the clock of an idle GPU counts for nothing", idle[2])

    _, lines, text = states.run(XIDS="48,94,777")
    check(all(text.count(f"Xid {xid}: ") == 1 for xid in (48, 94, 777))
          and lines[-1].get("gpu_xid") == 777, "Xids are named", text)
    text = states.run(LIMITS=str(0x88))[2]
    check(text.count("is slowed down: hardware slowdown, power brake; 1980 of 1980 MHz") == 1,
          "a slowdown is warned of once", text)
    _, lines, text = states.run(LOST="40")
    check("Xid 79: the GPU has fallen off the bus" in text, "a lost GPU is named", text)


def energy(states):
    """By the counter, by power if there is none, and by neither."""
    check = states.trial.check
    for ranks in (0, 2) if lockstep_run.have_mpirun() else (0,):
        result, lines, text = states.run(ranks, ENERGY="+2000")
        count = max(ranks, 1)
        sums = sum(line.get("energy_joules", 0) for line in lines)
        cpu, gpu = result.get("energy_cpu_joules", 0), result.get("energy_gpu_joules", 0)
        check(gpu >= 2 * count and abs(sums - cpu - gpu) < 0.1
              and abs(12 * result["joules_per_step"] - cpu - gpu) < 0.1
              and abs(lines[-1]["energy_total_joules"] - result["energy_total_joules"]) < 0.1,
              f"{count} GPUs: the energy of all lines is that of the run", f"{result}{lines}")
        check(f"{count} GPU{'s' if ranks else ''} (NVML)" in text and " J a step)" in text,
              "... and the log has it", text)
        if ranks == 0:
            end = json.loads((pathlib.Path(result["run_dir"]) / "end.json").read_text())
            check(end["energy_gpu_joules"] == gpu, "... and end.json", f"{end}")
    counter, power = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"
    result, _, text = states.run(REFUSES=counter)
    check(0 < result["energy_gpu_joules"] < 500 * 60
          and "1 GPU (NVML's power, added up over time)" in text, "without the counter", text)
    result, _, text = states.run(REFUSES=f"{counter},{power}")
    check("energy_gpu_joules" not in result and
          "GPU of rank 0: NVML reports neither its energy nor its power" in text,
          "without power", text)
    result, _, text = states.run(nvml=None)
    check("libnvidia-ml.so.1 is not found" in result["energy_not_readable"]
          and "libnvidia-ml.so.1 is not found" in text, "without NVML", text)


def lacking(states):
    """Libraries that lack functions or refuse them, and a driver that hangs."""
    check = states.trial.check
    _, lines, text = states.run(nvml="old_nvml", LIMITS="64", TEMPERATURE="93")
    last = lines[-1]
    check(last.get("gpu_memory_used_bytes") == 1 << 30 and "kWh" in text
          and "slowed down: thermal slowdown (hardware); 1980 of 1980 MHz, 93 C" in text,
          "an old driver's NVML is read by its own names", text + f"{last}")
    refused = "nvmlDeviceGetTotalEccErrors,nvmlDeviceGetPowerUsage,nvmlEventSetCreate"
    names = gpu_fields(states.run(REFUSES=refused)[1])
    check("gpu_clock_mhz_min" in names and not {"gpu_ecc_corrected", "gpu_power_w"} & names,
          "what a GeForce does not support is left out", f"{names}")
    check(not gpu_fields(states.run(REFUSES="all")[1]), "nothing supported, no field")
    for function in ("nvmlDeviceGetPowerUsage", "nvmlInit_v2"):
        result, lines, text = states.run(HANGS=function)
        check(not gpu_fields(lines) and text.count("has not answered for") == 1,
              f"{function} hangs: the run does not, and reports it once", text)
    text = states.run(2, HANGS="nvmlDeviceGetNvLinkState")[2]
    check("did not report what connects the GPUs" in text and "MHz" in text,
          "a hanging question about links is given up", text)


def ranks(states):
    check = states.trial.check
    throttled = ["FAKE_NVML_CLOCK=1410", "FAKE_NVML_LIMITS=64", "FAKE_NVML_TEMPERATURE=91"]
    for count, slow in ((2, 1), (4, 2)):
        apart = [["A=1"]] * count
        apart[slow] = throttled
        result, lines, text = states.run(count, apart, TOPOLOGY="switch")
        check(text.count(SLOW) == 1 and f"rank {slow} on " in text and "29% below" in text
              and "reason: thermal slowdown (hardware), 91 C" in text,
              f"{count} ranks: the slow one is named once", text)
        check(all(line.get("gpu_clock_mhz_min_rank", slow) == slow for line in lines)
              and lines[-1].get("gpu_clock_mhz_min") == 1410
              and lines[-1].get("gpu_power_w") == 500 * count, "... and in the metrics",
              f"{lines[-1]}")
        check(f"GPUs: 1410 to 1980 MHz (lowest on rank {slow})" in text
              and f"clock held down: rank {slow} (thermal slowdown (hardware))" in text,
              "... and in the summary", text)
        clocks = [rank.get("gpu_clock_mhz_max") for rank in result["ranks"]]
        check(clocks == [1410 if r == slow else 1980 for r in range(count)], "... and in --json")
        check(f"between GPUs 0-{count - 1}: NVLink 4, 18 links each" in text, "links are named", text)
        check(f"ranks 0-{count - 1} on GPUs 0-{count - 1}: threads are not bound" in text,
              "one line has the binding of all ranks", text)
    text = states.run(2, [["A=1"], ["FAKE_NVML_CLOCK=1890"]])[2]
    check(SLOW not in text, "4.5% less is not warned of", text)
    apart = [["A=1"], ["FAKE_NVML_CLOCK=1410", "FAKE_NVML_MAX_CLOCK=1410"]]
    text = states.run(2, apart, arguments=["--set", "comm.order=FAST"])[2]
    check(SLOW not in text, "another model's clock is not compared", text)
    _, lines, text = states.run(2, [["A=1"], ["FAKE_NVML_HANGS=nvmlDeviceGetPowerUsage"]])
    check(lines[-1].get("gpu_power_w") == 500 and "[rank 1]" in text,
          "the driver of one rank hangs: the others' values are there", text)
    text = states.run(4, TOPOLOGY="bridges")[2]
    check("GPUs 0-1, 2-3: NVLink 3, 4 links each; all others: PCIe across sockets" in text,
          "bridges connect pairs", text)
    text = states.run(2, nvml="old_nvml", TOPOLOGY="switch")[2]
    check("GPUs 0-1: NVLink 4, 18 links each" in text, "an old driver's links to a switch", text)
    text = states.run(2, nvml=None)[2]
    check("between GPUs 0-1: peer access" in text, "without NVML CUDA is asked", text)


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-state-") as folder:
        states = States(program, pathlib.Path(folder))
        alone(states)
        energy(states)
        lacking(states)
        if lockstep_run.have_mpirun():
            ranks(states)
        return 1 if states.trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
