#!/usr/bin/env python3
"""`lockstep plan --advise`, and the settings that refusals for memory name. Catches: settings that do
not fit, are not sorted, or take another time than the plan with them; "the same bits" that are
others; a refusal that names a setting with which the run does not fit either.

advice_test.py BINARY
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from plan_command_test import plan


def advises(binary, folder):
    """The settings fit and are sorted; the plan with those of the first has its time, memory and
    cost."""
    out, config = folder / "advice.json", "configs/models/llama_3_8b.textproto"
    common = ("--data", folder, "--ranks", 8, "--on", "A100-40GB", "--json", out)
    done = plan(binary, config, *common, "--advise")
    assert "and so by cost" in done.stdout, done
    advice = json.loads(out.read_text())["advice"]
    times = [sum(each["predicted_step_seconds"]) for each in advice["by_time"]]
    memory = [each["memory_bytes"] for each in advice["by_memory"]]
    assert memory == sorted(memory), advice
    # Of times that differ by a percent, that with fewest changes comes first.
    assert all(before < 1.01 * after for before, after in itertools.pairwise(times)), advice
    assert all(each["fits"] for each in advice["by_time"] + advice["by_memory"]), advice
    first = advice["by_time"][0]
    assert first["set"], advice  # as it is, it does not fit
    plan(binary, config, *common, *sets_of(first))
    planned = json.loads(out.read_text())
    assert planned["memory_bytes_gpu"] == first["memory_bytes"], (planned, first)
    for key in ("predicted_step_seconds", "predicted_run_seconds", "predicted_usd",
                "predicted_kwh"):
        for ours, theirs in zip(planned[key], first[key], strict=True):
            assert abs(ours - theirs) < 1e-9 * theirs, (key, planned, first)
    done = plan(binary, config, "--data", folder, "--ranks", 8, "--advise", code=2)
    assert "--on" in done.stderr, done
    # LoRA fits where nothing else does, and is listed apart.
    done = plan(binary, config, "--data", folder, "--on", "RTX-4090", "--advise", "--json", out,
                "--set", f"train.init_from={folder}/weights.safetensors")
    advice = json.loads(out.read_text())["advice"]
    assert "nothing fits" in done.stdout and list(advice) == ["with_lora"], done
    assert all(each["set"][0] == "adapter.lora.rank=8" for each in advice["with_lora"]), advice


def sets_of(advice):
    return [word for each in advice["set"] for word in ("--set", each)]


SMALL_GPT = """
model { gpt { layers: 2 heads: 2 width: 32 context: 64 vocabulary: 4096 } }
data { synthetic { samples: 64 classes: 4096 } }
train { global_batch: 16 lanes: 4 steps: 2 }
optimizer { adamw {} }
execution { threads: 1 }
output { tensorboard: false }
checkpoint { at_end: false }
"""


def advice_is_true(binary, folder):
    """With settings of "the same bits" a training ends with the same weights, with others it does
    not. On CPUs the ranks of a node are searched too."""
    config, out = folder / "gpt.textproto", folder / "advice.json"
    config.write_text(SMALL_GPT)
    plan(binary, config, "--on", "Xeon-8480", "--advise", "--json", out)
    advice = [each for rows in json.loads(out.read_text())["advice"].values() for each in rows]
    assert len({each["ranks"] for each in advice}) > 1, advice
    changes = {tuple(each["set"]): each["same_bits"] for each in advice}
    changes |= {("optimizer.moments=BF16",): False, ("comm.wire_dtype=BF16",): False,
                ("execution.recompute=BLOCKS",): True, ("execution.loss_rows=8",): True,
                ("comm.bucket_mib=1",): True}

    def weights(change):
        done = subprocess.run(
            [binary, "train", config, "--run-dir", folder / "run", "--device", "cpu", "--json", out,
             *(word for each in change for word in ("--set", each))],
            capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return json.loads(out.read_text())["weights_hash"]
    as_it_is = weights(())
    for change, same_bits in changes.items():
        assert (weights(change) == as_it_is) == same_bits, (change, same_bits)


def refusals_name_a_setting_that_fits(binary, folder):
    """The line that the refusal names makes the run fit, on GPUs and in a host's memory. If it names
    none, --advise finds none either."""
    config, out = "configs/models/llama_3_8b.textproto", folder / "refused.json"
    cases = [(config, ("--ranks", 8, "--on", "A100-40GB")), (config, ("--ranks", 1, "--on", "H200"))]
    cases.append((folder / "gpt.textproto", ("--ranks", 2, "--host-memory", 0.012)))
    cases.append((config, ("--ranks", 16, "--ranks-per-node", 16, "--on", "Xeon-8480", "--set",
                           "train.lanes=16", "--set", "train.global_batch=512")))
    for config, arguments in cases:
        common = (*arguments, "--data", folder, "--json", out)
        done = plan(binary, config, *common, code=5)
        found = re.search(r"with ((?:--set \S+ ?)+) it would fit", done.stderr)
        if found is None:
            assert "nothing fits" in plan(binary, config, *common, "--advise").stdout, done
            continue
        changed = any(name in found[1] for name in ("train.lanes", "optimizer.moments"))
        assert changed == ("other bits" in done.stderr), done
        plan(binary, config, *common, *found[1].split())
        if "A100-40GB" not in arguments:
            continue
        memory = json.loads(out.read_text())["memory_bytes_gpu"]
        plan(binary, config, *common, "--advise")
        assert json.loads(out.read_text())["advice"]["by_memory"][0]["memory_bytes"] <= memory, done


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="lockstep-advice-") as name:
        folder = pathlib.Path(name)
        advises(binary, folder)
        advice_is_true(binary, folder)
        refusals_name_a_setting_that_fits(binary, folder)
    print("all good")


if __name__ == "__main__":
    main()
