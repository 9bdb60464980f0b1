#!/usr/bin/env python3
"""Catches: checkpoints of older revisions that this one does not load, or goes on from to other
bits.

old_checkpoints_test.py BINARY: goes on from each of tests/golden/checkpoints, on one rank and on two.
"""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden" / "checkpoints"))
import corpus


def main(binary):
    binary = pathlib.Path(binary).resolve()
    ends = json.loads((corpus.HERE / "ends.json").read_text())
    revisions = sorted(path for path in corpus.HERE.iterdir() if path.is_dir() and
                       not path.name.startswith("_"))
    assert len(revisions) >= 3, revisions
    with tempfile.TemporaryDirectory(prefix="lockstep-old-checkpoints-") as folder:
        folder = pathlib.Path(folder)
        corpus.prepare(folder)
        for revision in revisions:
            for name in corpus.CONFIGS:
                for ranks in (1, 2):
                    run_dir = folder / f"{revision.name}-{name}-{ranks}"
                    shutil.copytree(revision / name, run_dir)
                    output = corpus.train(binary, folder, name, run_dir, ranks, "--resume", "auto")
                    what = f"{name} of {revision.name} on {ranks} ranks"
                    assert f"at step {corpus.SAVED_STEP}" in output, f"{what}:\n{output}"
                    got = corpus.hash_in(output)
                    assert got == ends[name], f"{what}: {got}, not {ends[name]}\n{output}"
                print(f"{revision.name} {name}: {ends[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
