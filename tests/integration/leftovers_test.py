#!/usr/bin/env python3
"""Catches: what Finder, Explorer, Jupyter and tar on a Mac leave behind taken as images or classes,
and output files whose name promises another format than they have.

leftovers_test.py BINARY
"""
import io
import json
import pathlib
import sys
import tarfile
import tempfile

import lockstep_run
from image_bench import ImageBench, png

CONFIG = """
model { mlp { hidden: [8] } }
data { SOURCE image { size: 8 } }
train { global_batch: 4 lanes: 2 steps: 4 log_every: 1000000 }
optimizer { sgd {} }
schedule { lr: 0.01 }
output { tensorboard: false }
"""
ATTRIBUTES = b"\0\x05\x16\x07" + bytes(100)  # an AppleDouble file


class Bench(ImageBench):
    """A folder with eight images of two classes, and the same with leftovers: as folders, and as a tar
    file of a Mac."""

    def __init__(self, binary, folder):
        super().__init__(binary, folder, CONFIG)
        images = {f"{name}/{i}": png(8, 10 * label + i)
                  for label, name in enumerate(("cat", "dog")) for i in range(4)}
        for name, image in images.items():
            self.write(f"clean/{name}.png", image)
            self.write(f"left/{name}.PNG", image)
            self.write(f"left/{pathlib.Path(name).parent}/._{pathlib.Path(name).name}.PNG", ATTRIBUTES)
        for name in (".ipynb_checkpoints/0-checkpoint.png", "._cat", ".DS_Store", "cat/.DS_Store",
                     "__MACOSX/cat/0.png"):
            self.write(f"left/{name}", png(8, 1))
        for name in ("Thumbs.db", "cat/desktop.ini"):
            self.write(f"left/{name}", b"x")
        with tarfile.open(folder / "mac.tar", "w", format=tarfile.PAX_FORMAT) as shard:
            for name, image in images.items():
                below, number = name.split("/")
                label = str(int(below == "dog")).encode()
                for member, data in ((f"._{number}.PNG", ATTRIBUTES), (f"{number}.PNG", image),
                                     (f"._{number}.CLS", ATTRIBUTES), (f"{number}.CLS", label)):
                    info = tarfile.TarInfo(f"./{below}/{member}")
                    info.size = len(data)
                    info.pax_headers = {"SCHILY.xattr.com.apple.quarantine": "0081",
                                        "LIBARCHIVE.xattr.com.apple.FinderInfo": "AAAA"}
                    shard.addfile(info, io.BytesIO(data))

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def trains_alike(bench):
    """The same bits from clean folders, from folders with leftovers, and from a record file of them;
    the same images from the tar file."""
    wanted = bench.weights_after("run-clean", 'image_folder { train: "clean" }')
    assert bench.weights_after("run-left", 'image_folder { train: "left" }') == wanted
    packed = bench.run("data", "pack", "left", "--out", "left.rec").stdout
    assert "8 images of 2 classes" in packed, packed
    assert "13 hidden files and folders passed over, 2 other files ignored" in packed, packed
    assert bench.weights_after("run-records", 'records { train: "left.rec" }') == wanted
    found = bench.run("data", "inspect", "mac.tar", "--check").stdout
    assert "8 images of 2 classes, 4 to 4 of each" in found and "8 of 8 decode" in found, found
    assert "(16 hidden members passed over)" in found, found
    bench.weights_after("run-tar", 'tar_shards { train: "*.tar" shuffle_buffer: 1 }')


def predicts(bench):
    """Rows are the images, without what lies beside them."""
    source = 'image_folder { train: "left" eval: "left" }'
    bench.weights_after("run", source)
    bench.run("predict", bench.config("run", source), "--data", bench.folder, "--checkpoint", "run",
              "--out", "out.SafeTensors", "--json", "out.json")
    told = json.loads((bench.folder / "out.json").read_text())
    assert told["classes"] == ["cat", "dog"] and told["samples"] == 8, told
    assert told["files"] == [f"{name}/{i}.PNG" for name in ("cat", "dog") for i in range(4)], told


def names_of_outputs(bench):
    """A name that promises another format is rejected before the work, with the endings allowed."""
    source = 'image_folder { train: "clean" eval: "clean" }'
    bench.weights_after("run", source)
    predict = ["predict", bench.config("run", source), "--data", bench.folder, "--checkpoint", "run"]
    images = ["data", "pack", "clean"]
    for allowed, arguments in (
        (".csv or .tsv or .jsonl or .npy or .safetensors", [*predict, "--out", "x.parquet"]),
        (".safetensors", [*predict, "--out", "x"]),
        ("give a value", [*predict, "--out", ""]),
        (".safetensors or .onnx", ["export", "run", "--out", "x.bin"]),
        (".onnx", ["export", "run", "--format", "onnx", "--out", "x.safetensors"]),
        ("a folder is written",
         ["export", "run", "--format", "huggingface", "--out", "x.safetensors"]),
        ("a folder is written", ["import", "run.textproto", "none", "--out", "x.safetensors"]),
        ("a folder is written",
         ["data", "tokenize", "run.textproto", "--tokenizer", "none", "--out", "x.bin"]),
        (".rec or", [*images, "--out", "x.tar"]), (".png", ["sample", "run", "--out", "x.jpg"]),
        (".json", [*images, "--out", "x.rec", "--json", "x.csv"])):
        done = bench.run(*arguments, code=2)
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        assert len(errors) == 1 and allowed in errors[0], (arguments, done.stderr)
        assert not list(bench.folder.glob("x*")), arguments
    bench.run("export", "run", "--out", "x.SAFETENSORS")


def names_that_look_the_same(bench):
    """A run folder is not made beside one that looks the same, in which it would go on."""
    config = bench.config("config", 'image_folder { train: "clean" }')
    lockstep_run.train(bench.binary, config, bench.folder / "U\u0308bung", 0, ["--data", bench.folder])
    done = bench.run("train", config, "--data", bench.folder, "--run-dir", "\u00dcbung", code=4)
    assert "U+0055 U+0308" in done.stderr and "U+00DC" in done.stderr, done.stderr
    done = bench.run("export", "\u00dcbung", "--out", "x.safetensors", code=4)
    assert "U+0055 U+0308" in done.stderr, done.stderr


def main(binary):
    failures = 0
    for check in (trains_alike, predicts, names_of_outputs, names_that_look_the_same):
        with tempfile.TemporaryDirectory(prefix="lockstep-leftovers-") as folder:
            try:
                check(Bench(pathlib.Path(binary).resolve(), pathlib.Path(folder)))
                print(f"{check.__name__}: ok")
            except (AssertionError, RuntimeError) as error:
                print(f"{check.__name__}: FAILED: {error}")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
