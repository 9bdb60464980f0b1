#!/usr/bin/env python3
"""Catches: types, extents and elements of constants that differ from what ONNX says of its ops, on the
node cases of the `onnx` package: each is bound with its inputs as constants (what is computed must be
the expected outputs) and with its inputs open (their types and extents).

LOCKSTEP_ONNX=FOLDER onnx_nodes_test.py LOCKSTEP ONNX_NODES [--list OUTCOME]

FOLDER is where the wheel is unpacked: pip download --no-deps onnx==1.22.0 && unzip onnx-*.whl. Without
it the test is skipped.
"""
import argparse
import collections
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
# Of the 1,765 cases of onnx 1.22.0: what was right when this was written. Fewer are a loss.
FOLDED = 785
INFERRED = 1050


def outcomes(program, folders):
    """For each case: name, how folding went, how inference went."""
    done = subprocess.run([program, *map(str, folders)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}: {done.stderr}")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    if len(lines) != len(folders):
        sys.exit(f"{len(folders)} cases gave {len(lines)} lines")
    return lines


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
    for place, what, least in ((1, "inputs known", FOLDED), (2, "inputs open", INFERRED)):
        counts = collections.Counter(line[place].split(" ")[0] for line in lines)
        print(f"{what}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
        failed |= counts["wrong"] > 0 or counts["right"] < least
        for line in lines:
            if line[place].startswith("wrong") or (
                    arguments.list and line[place].startswith(arguments.list)):
                print(f"  {line[0]}: {line[place]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
