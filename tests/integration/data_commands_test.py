#!/usr/bin/env python3
"""Catches: `lockstep data` commands that do not do what their --help says, record files that train
differently from the images they were packed from, bad images that are not named, and wrong exit
codes.

data_commands_test.py BINARY
"""
import io
import json
import pathlib
import random
import re
import shutil
import struct
import sys
import tarfile
import tempfile

import lockstep_run
from image_bench import ImageBench, png

CONFIG = """
model { mlp { hidden: [8] } }
data {
  SOURCE image { size: 16 resize: 16 } augment { random_resized_crop {} horizontal_flip: 0.5 }
}
train { global_batch: 8 lanes: 4 steps: 12 log_every: 1000000 }
optimizer { sgd {} }
schedule { lr: 0.01 }
output { tensorboard: false }
"""


class Bench(ImageBench):
    """A folder with images of three classes, and the binary."""

    def __init__(self, binary, folder):
        super().__init__(binary, folder, CONFIG)
        for number, name in enumerate(("cat", "dog", "eel")):
            (folder / "images" / name).mkdir(parents=True)
            for i in range(10):
                (folder / "images" / name / f"{i}.png").write_bytes(png(16 + i, 100 * number + i))


def packs(bench):
    """A record file, whether packed by one thread or three, trains to the weights of its folder."""
    wanted = bench.weights_after("folder", 'image_folder { train: "images" }')
    for threads in (1, 3):
        bench.run("data", "pack", "images", "--out", f"r{threads}", "--threads", threads,
                  "--json", "pack.json")
        packed = json.loads((bench.folder / "pack.json").read_text())
        assert packed["records"] == 30 and packed["classes"] == 3 and packed["bad"] == 0, packed
        assert (bench.weights_after(f"records{threads}", f'records {{ train: "r{threads}" }}')
                == wanted)
    assert (bench.folder / "r1").read_bytes() == (bench.folder / "r3").read_bytes()
    bench.run("data", "pack", "images", "--out", "small", "--decode", "--size", 8)
    found = bench.run("data", "inspect", "small", "--check").stdout
    assert "8 x 8 to 8 x 8" in found and "30 of 30 decode" in found and "eel" in found, found


def inspects(bench):
    """Counts, classes and sizes of a config's data and of a file; a bad image is named."""
    config = bench.config("inspect", 'image_folder { train: "images" eval: "images" }')
    inspected = bench.run("data", "inspect", config, "--data", bench.folder, "--json", "found.json")
    found = inspected.stdout
    assert (
        "30 images of 3 classes, 10 to 10 of each" in found
        and "16 x 16 to 25 x 25" in found), found
    assert json.loads((bench.folder / "found.json").read_text())["evaluation"]["samples"] == 30
    bad = bench.folder / "images" / "dog" / "3.png"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:200])
    checked = bench.run("data", "inspect", "images", "--check", code=3)
    assert "dog/3.png" in checked.stdout and "29 of 30 decode" in checked.stdout, checked.stdout
    assert "dog/3.png" in bench.run("data", "pack", "images", "--out", "x", code=3).stderr
    assert not list(bench.folder.glob("x*")), "a failed pack leaves files"
    assert "dog/3.png" in bench.run("data", "pack", "images", "--out", "x", "--skip-bad").stderr
    assert "29 images" in bench.run("data", "inspect", "x").stdout
    bad.write_bytes(whole)


def write_shard(path, members):
    """A tar file of (name, bytes)."""
    with tarfile.open(path, "w") as shard:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))


def inspects_shards(bench):
    """A sample without its class is named and counted, and hides neither its neighbours nor another
    bad image."""
    write_shard(bench.folder / "s.tar",
                (("a.png", png(16, 1)), ("b.png", png(16, 2)), ("b.cls", b"1"),
                 ("c.png", png(16, 3)[:200]), ("c.cls", b"0")))
    config = bench.config("shards", 'tar_shards { train: "s.tar" }')
    for arguments in (["s.tar"], [config, "--data", bench.folder]):
        checked = bench.run("data", "inspect", *arguments, "--check", "--json", "found.json",
                            code=3)
        assert "1 of 2 decode" in checked.stdout and "s.tar: c.png" in checked.stdout, (
            checked.stdout)
        assert "'a' has no class" in checked.stderr and "2 bad" in checked.stderr, checked.stderr
        assert json.loads((bench.folder / "found.json").read_text())["bad_records"] == 1
    assert "--skip-bad" in bench.run("data", "pack", "s.tar", "--out", "x", code=3).stderr
    assert "2 bad left out" in bench.run("data", "pack", "s.tar", "--out", "x", "--skip-bad").stdout


def benches(bench):
    """Speeds are measured; a bad image ends it with its name, or is counted."""
    config = bench.config("bench", 'image_folder { train: "images" }')
    measure = ["data", "bench", config, "--data", bench.folder, "--seconds", 0.3, "--threads", 2,
               "--json", "bench.json"]
    bench.run(*measure)
    found = json.loads((bench.folder / "bench.json").read_text())
    assert found["threads"] == 2 and found["samples_per_s"] > 0 and found["decode_us"] > 0, found
    bad = bench.folder / "images" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:200])
    assert "dog/3.png" in bench.run(*measure, code=3).stderr
    skipped = bench.run(*measure, "--set", "data.bad_records=SKIP", "--set",
                        "data.max_bad_fraction=0.1")
    assert "1 bad image was replaced" in skipped.stdout, skipped.stdout
    found = json.loads((bench.folder / "bench.json").read_text())
    assert found["bad_records"] == 1 and found["whole_decode_per_core_s"] > 0, found


def counts(bench):
    """Training and evaluation end with the number of bad images, summed over ranks; with FAIL
    there can be none."""
    assert ("bad_records" not in lockstep_run.train(
        bench.binary, bench.config("good", 'image_folder { train: "images" }'),
        bench.folder / "good", 0, ["--data", bench.folder]))
    bad = bench.folder / "images" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:200])
    config = bench.config("counts",
                          'image_folder { train: "images" eval: "images" } bad_records: SKIP '
                          'max_bad_fraction: 0.1')
    options = ["--data", bench.folder, "--run-dir", "run", "--json", "result.json"]
    evaluate = ["eval", config, "--checkpoint", "run", *options]
    trained = bench.run("train", config, *options)
    assert ", 2 bad records" in trained.stdout, trained.stdout  # one in each of two sets
    assert json.loads((bench.folder / "result.json").read_text())["bad_records"] == 2
    assert ", 1 bad record\n" in bench.run(*evaluate).stdout
    if lockstep_run.have_mpirun():
        done = lockstep_run.run(bench.binary, evaluate, ranks=2, cwd=bench.folder)
        assert done.returncode == 0 and ", 1 bad record\n" in done.stdout, done.stdout + done.stderr
    assert json.loads((bench.folder / "result.json").read_text())["bad_records"] == 1
    predicted = bench.run("predict", *evaluate[1:4], "--data", bench.folder, "--out", "predicted.safetensors",
                          "--json", "predicted.json")
    assert predicted.stdout.endswith(", 1 bad record\n"), predicted.stdout
    assert json.loads((bench.folder / "predicted.json").read_text())["bad_records"] == 1
    bench.run("predict", *evaluate[1:4], "--data", bench.folder, "--out", "predicted.csv")
    empty = [row for row in (bench.folder / "predicted.csv").read_text().splitlines() if row.endswith(",,,,")]
    assert len(empty) == 1 and empty[0].startswith("dog/3.png,"), empty


def predicts(bench):
    """Images without classes, in one folder and without the training images, give the outputs that
    they give in the folders of their classes."""
    config = bench.config("predicts", 'image_folder { train: "images" eval: "images" }')
    run_dir, out = bench.folder / "predicts", bench.folder / "outputs.safetensors"
    lockstep_run.train(bench.binary, config, run_dir, 0, ["--data", bench.folder])
    checkpoint = ("--data", bench.folder, "--checkpoint", run_dir, "--out", out)
    bench.run("predict", config, *checkpoint, "--json", "predicted.json")
    wanted = lockstep_run.read_tensor(out, "output")
    assert wanted[0] == [30, 3], wanted[0]
    told = json.loads((bench.folder / "predicted.json").read_text())
    images = bench.folder / "images"
    assert told["classes"] == sorted(path.name for path in images.iterdir()), told
    files = [str(path.relative_to(images)) for path in images.glob("*/*.png")]
    assert told["files"] == sorted(files, key=lambda file: file.split("/")), told
    assert json.loads(lockstep_run.read_metadata(out)["files"]) == told["files"]
    new = bench.folder / "new"
    new.mkdir()
    for image in (bench.folder / "images").glob("*/*.png"):
        (new / f"{image.parent.name}_{image.name}").write_bytes(image.read_bytes())
    bench.run("predict", run_dir / "config.textproto", *checkpoint, "--set",
              "data.image_folder.eval=new", "--set", "data.image_folder.train=gone")
    assert lockstep_run.read_tensor(out, "output") == wanted
    files = json.loads(lockstep_run.read_metadata(out)["files"])
    assert files == [file.replace("/", "_") for file in told["files"]], files
    predicts_shards(bench, checkpoint, told["files"], wanted)


def predicts_shards(bench, checkpoint, files, wanted):
    """Members of two tar files give the outputs of the images that they are, and are named."""
    names = []
    for shard, part in (("one.tar", files[:17]), ("two.tar", files[17:])):
        members = []
        for file in part:
            members += [(file, (bench.folder / "images" / file).read_bytes()),
                        (file.replace(".png", ".cls"), b"0")]
        write_shard(bench.folder / shard, members)
        names += [f"{shard}/{file}" for file in part]
    config = bench.config("predicts_shards",
                          'tar_shards { eval: "one.tar" eval: "two.tar" train: "" classes: 3 }')
    bench.run("predict", config, *checkpoint)
    out = checkpoint[-1]
    assert lockstep_run.read_tensor(out, "output") == wanted
    assert json.loads(lockstep_run.read_metadata(out)["files"]) == names


def holds_out(bench):
    """Folders of classes train a config that names train and val: a part of the images is held out, the
    run folder's config says which, and `eval`, `predict` and a resumed run take the same ones."""
    images = bench.folder / "images"
    config = bench.config("held", 'image_folder { train: "train" eval: "val" }')
    train = ("train", config, "--data", images, "--run-dir", "held", "--set", "eval.every=6")
    told = bench.run(*train).stderr
    assert told.count(f"the 3 folders of '{images}' are the classes (cat, dog, eel)") == 1, told
    held = int(re.search(r"data.eval_fraction of 0.1 holds out (\d+) of 30 training samples", told)[1])
    recorded = bench.folder / "held" / "config.textproto"
    text = recorded.read_text()
    assert all(field in text for field in ('train: "."', 'eval: ""', "eval_fraction: 0.1")), text
    files = []
    for given in (config, recorded):
        checkpoint = (given, "--checkpoint", "held", "--data", images)
        assert f" on {held} samples" in bench.run("eval", *checkpoint).stdout
        bench.run("predict", *checkpoint, "--out", "held.safetensors", "--json", "held.json")
        files.append(json.loads((bench.folder / "held.json").read_text())["files"])
    assert files[0] == files[1] and len(files[0]) == held, files
    assert "done at step 14" in bench.run(*train, "--resume", "auto", "--set", "train.steps=14").stdout
    new = bench.folder / "unlabelled"
    new.mkdir()
    (new / "1.png").write_bytes(png(16, 1))
    bench.run("predict", recorded, *checkpoint[1:], "--set", f"data.image_folder.eval={new}", "--out",
              "new.safetensors")
    assert lockstep_run.read_tensor(bench.folder / "new.safetensors", "output")[0] == [1, 3]
    refused = bench.run("train", config, "--data", images, "--set", "data.image_folder.eval=cat", "--set",
                        "data.image_folder.train=.", "--set", "data.eval_fraction=0.2", code=2).stderr
    assert "data.eval_fraction: value is 0.2; allowed: 0 when data.image_folder.eval is given" in refused
    finds_folders(bench, config, files[0])


def finds_folders(bench, config, held):
    """Folders of sets under other names, or without evaluation images, are found; what has no classes is
    refused with what is expected."""
    sets = bench.folder / "sets"
    shutil.copytree(bench.folder / "images", sets / "train")

    def inspect(*arguments, data=sets, code=0):
        return bench.run("data", "inspect", config, "--data", data, *arguments, code=code)

    found = inspect("--json", "found.json")
    assert f"'{sets}/train' trains; there is no 'val'" in found.stderr, found.stderr
    assert f"data.eval_fraction of 0.1 holds out {len(held)} of 30" in found.stdout, found.stdout
    inside = bench.config("inside", 'image_folder { train: "train" }')
    bench.run("predict", inside, "--checkpoint", "held", "--data", sets, "--set", "data.eval_fraction=0.1",
              "--out", "inside.safetensors", "--json", "inside.json")
    assert json.loads((bench.folder / "inside.json").read_text())["files"] == held
    shutil.copytree(bench.folder / "images" / "dog", sets / "Valid" / "dog")
    assert "Valid' evaluates" in inspect().stderr
    shutil.copytree(sets / "Valid", sets / "validation")
    assert "several folders" in inspect(code=2).stderr
    assert "holds out" in inspect("--set", "data.eval_fraction=0.3").stdout
    (sets / "val").mkdir()
    refused = inspect(code=3).stderr
    assert f"{sets}/val: no .jpg" in refused and "data.eval_fraction=0.1" in refused, refused
    for name in (".git", "__MACOSX"):
        (bench.folder / "flat" / name).mkdir(parents=True)
    (bench.folder / "flat" / "1.png").write_bytes(png(16, 1))
    refused = inspect(data=bench.folder / "flat", code=3).stderr
    assert "flat' has 1 image but no folders" in refused and "/CLASS/*.jpg" in refused, refused
    shutil.copytree(bench.folder / "images", bench.folder / "outer" / "photos")
    assert "outer/photos' has folders" in inspect(data=bench.folder / "outer", code=3).stderr
    vehicles = bench.folder / "vehicles"  # a class may be called as a set is
    for name in ("bus", "train"):
        shutil.copytree(bench.folder / "images" / "cat", vehicles / name)
    assert "are the classes (bus, train)" in inspect(data=vehicles).stderr


def npy(descr, shape, values):
    """A file as numpy.save() writes it."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + values


def reads_arrays(bench):
    """NumPy's arrays train, are evaluated and predicted, and planned for without their files; what
    is wrong with one is said in one line."""
    draw = random.Random(5)
    for name, count in (("train", 24), ("eval", 8)):
        (bench.folder / f"x_{name}.npy").write_bytes(
            npy("|u1", (count, 16, 16, 3), draw.randbytes(count * 768)))
        labels = [i % 3 for i in range(count)]
        (bench.folder / f"y_{name}.npy").write_bytes(
            npy("<i8", (count,), struct.pack(f"<{count}q", *labels)))
    fields = " ".join(f'{name}_inputs: "x_{name}.npy" {name}_labels: "y_{name}.npy"'
                      for name in ("train", "eval"))
    config = bench.config("arrays", f"npy {{ {fields} }}")
    run_dir = bench.folder / "run"
    assert bench.weights_after("arrays", f"npy {{ {fields} }}") == lockstep_run.train(
        bench.binary, config, run_dir, 0, ["--data", bench.folder])["weights_hash"]
    evaluated = bench.run("eval", config, "--data", bench.folder, "--checkpoint", run_dir)
    assert "8 samples" in evaluated.stdout, evaluated.stdout
    bench.run("predict", config, "--data", bench.folder, "--checkpoint", run_dir, "--out",
              "outputs.safetensors")
    shape, _ = lockstep_run.read_tensor(bench.folder / "outputs.safetensors", "output")
    assert shape == [8, 3], shape
    found = bench.run("data", "inspect", config, "--data", bench.folder).stdout
    assert "24 images of 3 classes, 8 to 8 of each" in found, found
    planned = bench.run("plan", config, "--data", "nowhere", "--set", "model.mlp.outputs=3").stdout
    assert "x_train.npy does not exist" in planned and "images of 3 channels" in planned, planned
    whole = bench.folder / "x_train.npy"
    whole.write_bytes(whole.read_bytes()[:-1])
    done = bench.run("train", config, "--data", bench.folder, "--run-dir", "cut", code=3)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and "x_train.npy: truncated" in errors[0], done.stderr


def warns_of_labels(bench):
    """Each command that trains, plans or shows data says that labels begin at 1, and that a step
    takes samples several times; both are no error, but data.strict makes one of the first."""
    write_shard(bench.folder / "s.tar", [member for i in range(6) for member in (
        (f"{i}.png", png(16, i)), (f"{i}.cls", b"%d" % (i % 3 + 1)))])
    config = bench.config("labels", 'tar_shards { train: "s.tar" }')
    given = [config, "--data", bench.folder]
    labels, samples = "the labels are 1 to 3", "6 training samples are fewer than"
    for command, arguments in ((["train"], ["--run-dir", "run"]), (["plan"], []),
                               (["bench", "ops"], ["--repeats", 1])):
        found = bench.run(*command, *given, *arguments, "--set", "train.global_batch=16").stderr
        assert found.count(labels) == 1 and found.count(samples) == 1, (command, found)
    for arguments in (["s.tar"], given):
        found = bench.run("data", "inspect", *arguments, "--json", "found.json").stderr
        assert found.count(labels) == 1, found
        assert labels in json.loads((bench.folder / "found.json").read_text())["doubts"][0]
    done = bench.run("plan", *given, "--set", "data.strict=true", code=3)
    assert labels in done.stderr and "data.strict" in done.stderr, done.stderr


def refuses(bench):
    """Usage errors end with 2, data errors with 3, each in one line."""
    bench.run("data", "inspect", "images")
    for code, arguments in (
        (2, ["data"]), (2, ["data", "pack", "images"]), (2, ["data", "bench", "absent"]),
        (2, ["data", "pack", "images", "--out", "o", "--decode"]),
        (2, ["data", "pack", "images", "--out", "o", "--size", "9"]),
        (2, ["data", "pack", "images", "--out", "o", "--decode", "--size", "9", "--keep-jpeg"]),
        (2, ["data", "pack", "images", "--out", "absent/o"]),
        (2, ["data", "pack", "images", "--out", "images"]),
        (3, ["data", "pack", "absent", "--out", "o"]), (3, ["data", "inspect", "absent.tar"])):
        done = bench.run(*arguments, code=code)
        assert done.stderr.count("\n") == 1 and "error" in done.stderr, (arguments, done.stderr)
    for name in ("pack", "inspect", "bench"):
        assert "--threads" in bench.run("data", name, "--help").stdout


def main(binary):
    failures = 0
    for check in (packs, inspects, inspects_shards, benches, counts, predicts, holds_out, reads_arrays,
                  warns_of_labels, refuses):
        with tempfile.TemporaryDirectory(prefix="lockstep-data-") as folder:
            try:
                check(Bench(pathlib.Path(binary).resolve(), pathlib.Path(folder)))
                print(f"{check.__name__}: ok")
            except (AssertionError, RuntimeError) as error:
                print(f"{check.__name__}: FAILED: {error}")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
