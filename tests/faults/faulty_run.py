"""Runs for the tests of this folder: started as a user would, and watched until they make steps."""
import os
import subprocess

import lockstep_run
from rendezvous_test import FOREIGN

CONFIG = """
model { mlp { hidden: [64, 32] dropout: 0.1 } }
data { synthetic { samples: 2000 features: 30 classes: 5 } }
train { global_batch: 32 lanes: 4 steps: STEPS log_every: 1000000 }
optimizer { adamw {} }
schedule { kind: COSINE lr: 0.001 }
execution { threads: 1 }
output { tensorboard: false }
"""
ENDLESS = CONFIG.replace("STEPS", "100000000")
LIMIT_S = 60  # only a hang takes so long
CHECKPOINT, PREEMPTED = 4, 75


class Trial:
    """The program, a folder for its runs, and two configs: one that does not end, one that does."""

    def __init__(self, binary, folder, short_steps):
        self.binary, self.folder = binary, folder
        self.endless = folder / "endless.textproto"
        self.endless.write_text(ENDLESS)
        self.short = folder / "short.textproto"
        self.short.write_text(CONFIG.replace("STEPS", str(short_steps)))


def start(binary, config, run_dir, ranks=0, arguments=(), **how):
    """A training that goes on; ranks=0: without mpirun. `how`: of Popen, and `variables`."""
    command = (lockstep_run.mpirun(ranks) if ranks else []) + [
        str(binary), "train", str(config), "--run-dir", str(run_dir), *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    environment.update(how.pop("variables", {}))
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL,
           **how}
    return subprocess.Popen(command, text=True, errors="replace", env=environment, **how)


def end_of(process):
    """(exit code, output); kills a process that does not end."""
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
    return process.returncode, output


def error_lines(output):
    return [line for line in output.splitlines() if "error:" in line]
