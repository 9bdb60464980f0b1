#!/usr/bin/env python3
"""Holds Lockstep's safetensors reader and writer against the format's own Python library.

Usage: check_safetensors.py SAFETENSORS_TOOL. Exit status 77: the library is not installed here.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def run(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def check_ours(tool, folder):
    """The library reads what Lockstep wrote."""
    saved = pathlib.Path(run(tool, "write", folder).strip())
    flat = np.arange(64, dtype=np.float32) - 10
    model = load_file(saved / "model.safetensors")
    expected = {
        "w": flat[:15].reshape(3, 5), 'names/\u00e9 "q"': flat[16:20], "s": flat[24].reshape(())}
    assert sorted(model) == sorted(expected), sorted(model)
    for name, values in expected.items():
        assert model[name].dtype == np.float32 and model[name].shape == values.shape, name
        assert np.array_equal(model[name], values), name
    with safe_open(saved / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt", "lockstep_step": "7"}, file.metadata()
    for rank in range(2):
        shard = load_file(saved / f"optimizer-{rank:05d}-of-00002.safetensors")
        assert list(shard) == [f"exp_avg.{rank * 32}"], list(shard)
        assert np.array_equal(shard[f"exp_avg.{rank * 32}"], flat[rank * 32:rank * 32 + 32])


def check_theirs(tool, folder):
    """Lockstep reads what the library wrote: fp32, and every fp16 there is."""
    path = pathlib.Path(folder) / "theirs.safetensors"
    tensors = {
        "single": np.random.default_rng(1).standard_normal((7, 3, 2), dtype=np.float32),
        "half": np.arange(65536, dtype=np.uint16).view(np.float16),
    }
    save_file(tensors, path, metadata={"origin": "check"})
    lines = dict(line.split(" ", 1) for line in run(tool, "read", path).splitlines())
    assert sorted(lines) == sorted(tensors), sorted(lines)
    for name, values in tensors.items():
        words = np.array([int(word, 16) for word in lines[name].split()], dtype=np.uint32)
        wide = values.astype(np.float32).ravel()
        found = words.view(np.float32)
        nan = np.isnan(wide)
        assert np.array_equal(np.isnan(found), nan), name
        assert np.array_equal(words[~nan], wide.view(np.uint32)[~nan]), name


def main():
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        check_ours(tool, folder)
        check_theirs(tool, folder)
    print("safetensors: ours and theirs agree")


if __name__ == "__main__":
    main()
