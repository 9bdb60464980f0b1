#!/usr/bin/env python3
"""Catches: types, extents and elements of constants that differ from what ONNX says of its ops, on the
node cases of the `onnx` package: each is bound with its inputs as constants (what is computed must be
the expected outputs), with its inputs open (their types and extents), and lowered and run with its
inputs as parameters (elements of outputs), on the CPU or with LOCKSTEP_DEVICE=cuda on the CUDA
library beside ONNX_NODES. What is refused there is counted by reason.

LOCKSTEP_ONNX=FOLDER onnx_nodes_test.py LOCKSTEP ONNX_NODES [--list OUTCOME]

FOLDER is where the wheel is unpacked: pip download --no-deps onnx==1.22.0 && unzip onnx-*.whl. Without
it the test is skipped.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
# Of the 1,765 cases of onnx 1.22.0: what was right when this was written. Fewer are a loss.
FOLDED = 785
INFERRED = 1050
RUN = 741


def outcomes(program, folders):
    """For each case: name, how folding went, how inference went, how running went."""
    lines = []
    while len(lines) < len(folders):
        rest = folders[len(lines):]
        done = subprocess.run([program, *map(str, rest)], capture_output=True, text=True, check=False)
        found = [line.split("\t") for line in done.stdout.splitlines()]
        lines += found
        if done.returncode == 0 and len(found) != len(rest):
            sys.exit(f"{len(rest)} cases gave {len(found)} lines")
        if done.returncode != 0:
            lines.append([rest[len(found)].name, *["wrong the program ended: " + done.stderr.strip()[:200].replace("\n", " ")] * 3])
    return lines


def reason(outcome):
    """What was refused: the op, and what is said of it without names and numbers."""
    op = re.search(r"node ([\w.]+) ", outcome)
    said = re.sub(r"[\d(),. ]+", " ", outcome.rsplit("): ", 1)[-1]).strip()
    return f"{op[1] if op else '?'}: {said}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("program")
    parser.add_argument("--list", help="print the cases with this outcome")
    arguments = parser.parse_args()
    root = os.environ.get("LOCKSTEP_ONNX")
    if not root:
        print("skipped: LOCKSTEP_ONNX names no unpacked wheel of onnx")
        return SKIPPED
    folders = sorted(pathlib.Path(root, "onnx/backend/test/data/node").iterdir())
    if not folders:
        sys.exit(f"{root} has no cases")
    lines = outcomes(arguments.program, folders)
    failed = False
    for place, what, least in ((1, "inputs known", FOLDED), (2, "inputs open", INFERRED), (3, "run", RUN)):
        counts = collections.Counter(line[place].split(" ")[0] for line in lines)
        print(f"{what}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
        failed |= counts["wrong"] > 0 or counts["right"] < least
        for line in lines:
            if line[place].startswith("wrong") or (
                    arguments.list and line[place].startswith(arguments.list)):
                print(f"  {line[0]}: {line[place]}")
    refused = collections.Counter(reason(line[3]) for line in lines if line[3].startswith("refused"))
    for why, count in refused.most_common():
        print(f"  not run: {count:4} {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
