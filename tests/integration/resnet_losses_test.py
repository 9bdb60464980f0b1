#!/usr/bin/env python3
"""Catches: a forward or backward pass of a convolutional network, a batch norm or an update that
drifts from PyTorch's.

resnet_losses_test.py BINARY: 50 steps of a ResNet-20 from Lockstep's initial weights; every loss
must be within 1e-3 of tests/golden/resnet20_losses.json, which PyTorch made in double precision
(tests/golden/resnet20_losses.py).
"""
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "golden"), str(ROOT / "tests" / "tools")]
import resnet20_losses  # noqa: E402


def main(binary):
    expected = (
        json.loads((ROOT / "tests" / "golden" / "resnet20_losses.json").read_text())["losses"])
    with tempfile.TemporaryDirectory(prefix="lockstep-resnet-") as folder:
        run = resnet20_losses.train_lockstep(binary, pathlib.Path(folder), resnet20_losses.STEPS)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    if len(losses) != len(expected):
        print(f"{len(losses)} steps, expected {len(expected)}")
        return 1
    worst = max(abs(a - b) for a, b in zip(losses, expected))
    print(f"{len(losses)} steps, loss {losses[0]:.6f} to {losses[-1]:.6f}; farthest from PyTorch: "
          f"{worst:.2e}")
    return 0 if worst <= 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
