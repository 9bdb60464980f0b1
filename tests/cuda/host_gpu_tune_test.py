#!/usr/bin/env python3
"""Trains with execution.tune on the stand-in for a GPU, whose libraries offer several algorithms
that add in different orders. Catches: an algorithm that the file does not name, other bits on other
numbers of ranks or after a resume, a file of another GPU, library or network that is used, a broken
line that is passed over, ranks with different files, a change of the file that a resumed run does
not report, a replay without the run's algorithms.

host_gpu_tune_test.py PROGRAM: as in host_gpu_test.py.
"""

import functools
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "distributed"))
import lockstep_run  # noqa: E402
from host_gpu_test import CONFIGS  # noqa: E402
from host_gpu_trial import Trial  # noqa: E402

CUDA = ("--device", "cuda")
CONFIGS = {
    **{name: CONFIGS[name] for name in ("mlp", "gpt")},
    "resnet": CONFIGS["resnet"].replace("steps: 6", "steps: 2").replace("hash_every: 3", ""),
}
OTHER_BITS = "training continues with other bits"
REMEDY = "remove the file or name another one in execution.tune"


def tune(file):
    return "--set", f"execution.tune={file}"


def other_algorithm(text):
    """The file with the library's first algorithm for the products of which another was faster."""
    first = "id=20 tile=18 stages=4 split=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=0"
    changed = re.sub(r"(product.* -> )id=\S+ [^#]*", rf"\1{first}  ", text)
    return changed


def same_bits(trial, name, config):
    """The file is written by one rank or several, and gives its bits on any number of them."""
    file = trial.folder / f"{name}.txt"
    plain = trial.train(config, *CUDA)
    tuned = trial.train(config, *CUDA, *tune(file))
    text = file.read_text() if file.exists() else ""
    trial.check(text.startswith("#") and "\ngpu: stand-in" in text and "\nproduct m=" in text
                and f"wrote '{file}'" in tuned["text"],
                f"{name}: the file has the GPU and a line for each product", text + tuned["text"])
    trial.check(tuned["weights_hash"] != plain["weights_hash"],
                f"{name}: the fastest algorithms are not the library's first", text)
    trial.close(plain["losses"], tuned["losses"], 1e-4, f"{name}: they train alike")
    copy = pathlib.Path(tuned.get("run_dir", "")) / "algorithms.txt"
    trial.check(copy.is_file() and copy.read_text() == text, f"{name}: the run has a copy", text)
    eager = trial.train(config, *CUDA, *tune(file), "--eager")
    trial.check(eager["weights_hash"] == tuned["weights_hash"] and "wrote" not in eager["text"],
                f"{name}: with the file, in eager steps, the same bits", eager["text"])
    if not lockstep_run.have_mpirun():
        return
    for ranks, of_ranks in ((2, file), (4, file), (2, trial.folder / f"{name}-2.txt")):
        many = trial.train(config, *CUDA, *tune(of_ranks), ranks=ranks,
                           environment={"FAKE_GPUS": "4"})
        trial.check(many["weights_hash"] == tuned["weights_hash"],
                    f"{name}: {ranks} ranks with {of_ranks.name}: the same bits", many["text"])


def resumed(trial, config):
    """A resumed run finds the copy in its folder, and reports other algorithms."""
    file, other = trial.folder / "resumed.txt", trial.folder / "other.txt"
    whole = trial.train(config, *CUDA, *tune(file))
    run_dir = trial.folder / "resumed"
    trial.train(config, *CUDA, *tune(file), "--max-steps", "4", run_dir=run_dir)
    text = file.read_text()
    file.unlink()
    # Its copy, and so no file is written again.
    part = trial.train(config, *CUDA, *tune(file), "--max-steps", "8", "--resume", "auto",
                       run_dir=run_dir)
    trial.check(f"'{file}' does not exist, the run goes on with its copy" in part["text"]
                and not file.exists() and OTHER_BITS not in part["text"],
                "without its file a run goes on with the copy in its folder", part["text"])
    replay = lockstep_run.run(trial.program, ["replay", run_dir, "--step", "6", *CUDA], 0)
    trial.check(replay.returncode == 0, "a replay uses the run's algorithms",
                replay.stdout + replay.stderr)
    end = trial.train(config, *CUDA, *tune(file), "--resume", "auto", run_dir=run_dir)
    trial.check(end["weights_hash"] == whole["weights_hash"], "resumed: the same bits", end["text"])

    other.write_text(other_algorithm(text))
    for what, arguments in (("another file", tune(other)), ("no file", ())):
        run_dir = trial.folder / what.replace(" ", "-")
        trial.train(config, *CUDA, *tune(trial.folder / f"{run_dir.name}.txt"), "--max-steps", "4",
                    run_dir=run_dir)
        run = trial.train(config, *CUDA, *arguments, "--resume", "auto", run_dir=run_dir)
        trial.check(
            run["text"].count(OTHER_BITS) == 1 and ", algorithms " in run["text"]
            and run["weights_hash"] != whole["weights_hash"],
            f"resumed with {what}: it is reported, and there are other bits", run["text"])
    replay = ["replay", trial.folder / "resumed", "--step", "6", *CUDA]
    older = lockstep_run.run(trial.program, replay, 0, {"FAKE_CUBLASLT_VERSION": "140000"})
    trial.check(older.returncode == 2 and "the algorithms are for cublaslt '130000'" in older.stderr,
                "a replay with another library is refused", older.stderr)
    (trial.folder / "resumed" / "algorithms.txt").unlink()
    lost = lockstep_run.run(trial.program, replay, 0)
    trial.check(lost.returncode == 4 and "algorithms.txt' does not exist" in lost.stderr,
                "a replay without the run's algorithms is refused", lost.stderr)


def bad_files(trial, config):
    """One line each: the file, the line, what is wrong, what to do; exit code 2."""
    good = trial.folder / "good.txt"
    trial.train(config, *CUDA, *tune(good))
    text = good.read_text()
    lines = text.splitlines()
    # One that the run asks for: others were timed to compare them with epilogues.
    number = next(i for i, line in enumerate(lines) if " epilogue=bias " in line)
    line, where = lines[number], f":{number + 1}: "
    request, arrow, algorithm = line.partition(" -> ")

    def refused(name, changed, words, environment=None):
        path = trial.folder / f"{name}.txt"
        path.write_text("\n".join(changed) + "\n")
        trial.refused(2, [str(path), *words, REMEDY], config, *CUDA, *tune(path),
                      environment=environment)

    def with_line(new):
        return lines[:number] + [new] + lines[number + 1:]

    fact = next(i for i, line in enumerate(lines) if line.startswith("cublaslt: "))
    broken = [
        ("cut", with_line(line[:20]), [where, "is not a request"]),
        ("renamed", with_line(line.replace(" k=", " q=")), [where, "is not a request"]),
        ("twice", with_line(line) + [line], ["again", f"line {number + 1}"]),
        ("lacking", lines[:number] + lines[number + 1:], ["has no algorithm for", request]),
        ("unknown", with_line(request + arrow + algorithm.replace("id=", "id=9")),
         [where, "refuses the algorithm", request]),
        ("atomics", with_line(request + arrow + re.sub("reduction=.", "reduction=1", algorithm)),
         [where, "fixed order"]),
        ("short", with_line(request + arrow + "id=20"), [where, "a number for id"]),
        ("headless", lines[:fact], ["has no line for 'cublaslt'"]),
        ("another_gpu", [re.sub("^gpu: .*", "gpu: NVIDIA H100", line) for line in lines],
         ["the algorithms are for gpu 'NVIDIA H100'"])]
    for case in broken:
        refused(*case)
    refused("version", lines, [f":{fact + 1}: ", "cublaslt '130000'", "'130100'"],
            {"FAKE_CUBLASLT_VERSION": "130100"})
    refused("cudnn", lines, ["cudnn '90000'", "'91900'"], {"FAKE_CUDNN_VERSION": "91900"})
    empty = trial.folder / "empty.txt"
    empty.write_text("")
    trial.refused(2, [str(empty), "is empty"], config, *CUDA, *tune(empty))
    trial.refused(2, ["execution.tune", "the folder", "does not exist"], config, *CUDA,
                  *tune(trial.folder / "nowhere" / "file.txt"))
    trial.refused(2, ["execution.tune", str(good), "cpu"], config, "--device", "cpu", *tune(good))

    # Two hosts, each with a file of this name.
    if not lockstep_run.have_mpirun():
        return
    folders = [trial.folder / "host0", trial.folder / "host1"]
    for folder, content in zip(folders, (text, other_algorithm(text))):
        folder.mkdir()
        (folder / "file.txt").write_text(content)
    there = ["train", config, *CUDA, *tune("/proc/self/cwd/file.txt"), "--run-dir"]
    done = lockstep_run.run(trial.program, [*there, trial.folder / "two-files"], 2,
                            {"FAKE_GPUS": "2"}, apart=[[f"--chdir={folder}"] for folder in folders])
    trial.check(done.returncode == 2 and "has the checksum" in done.stderr
                and "on rank 1, but on rank 0" in done.stderr, "ranks with other files are refused",
                done.stderr)
    # The other host has none: it gets that of rank 0.
    (folders[1] / "file.txt").unlink()
    done = lockstep_run.run(trial.program, [*there, trial.folder / "one-file"], 2,
                            {"FAKE_GPUS": "2"}, apart=[[f"--chdir={folder}"] for folder in folders])
    trial.check(done.returncode == 0, "a rank without the file uses rank 0's", done.stderr)


def epilogues(trial, config):
    """What an epilogue does is left to a kernel of its own where that is faster."""
    file = trial.folder / "epilogues.txt"
    trial.train(config, *CUDA, *tune(file), "--set", "execution.precision=BF16", "--max-steps", "1")
    lines = [line for line in file.read_text().splitlines() if "epilogue=" in line]
    chosen = {epilogue: {line.partition(" -> ")[2].split()[0].startswith("id=")
                         for line in lines if f" epilogue={epilogue} " in line}
              for epilogue in ("gelu_gradient", "bias_gradient", "bias_gelu_saved")}
    trial.check(chosen == {"gelu_gradient": {False}, "bias_gradient": {True},
                           "bias_gelu_saved": {True}},
                "a fused epilogue is used if it is the faster", "\n".join(lines))


def without_attributes(trial, config):
    """A library that makes no algorithm from attributes: its first stays, and the file says so."""
    file = trial.folder / "first.txt"
    plain = trial.train(config, *CUDA)
    tuned = trial.train(config, *CUDA, *tune(file), environment={"FAKE_CUBLASLT_MAKES_NONE": "1"})
    trial.check(tuned["weights_hash"] == plain["weights_hash"] and " -> first " in file.read_text(),
                "algorithms that cannot be made again: the library's first", file.read_text())


def convolutions(trial, config):
    file = trial.folder / "convolutions.txt"
    plain = trial.train(config, *CUDA)
    tuned = trial.train(config, *CUDA, *tune(file))
    text = file.read_text()
    engines = set(re.findall(r"\nconvolution pass=(\w+) .* -> (\S+)", text))
    trial.check(engines == {(word, "eng3_k2=1")
                            for word in ("forward", "backward_input", "backward_weight")},
                "the faster engine of each convolution", text)
    trial.check(tuned["weights_hash"] != plain["weights_hash"], "it is used", tuned["text"])
    again = trial.train(config, *CUDA, *tune(file))
    trial.check(again["weights_hash"] == tuned["weights_hash"], "and used again", again["text"])
    bad = trial.folder / "engine.txt"
    bad.write_text(text.replace("eng3_k2=1", "eng7"))
    trial.refused(2, [str(bad), "refuses the algorithm 'eng7'"], config, *CUDA, *tune(bad))


def main(program):
    with tempfile.TemporaryDirectory(prefix="lockstep-host-gpu-") as folder:
        trial = Trial(pathlib.Path(program).resolve(), pathlib.Path(folder))
        configs = {name: trial.folder / f"{name}.textproto" for name in CONFIGS}
        for name, text in CONFIGS.items():
            configs[name].write_text(text)
        parts = [(convolutions, configs["resnet"]), (same_bits, "gpt", configs["gpt"]),
                 (resumed, configs["mlp"]), (bad_files, configs["mlp"]),
                 (epilogues, configs["gpt"]), (without_attributes, configs["mlp"])]
        lockstep_run.at_once([functools.partial(part, trial, *rest) for part, *rest in parts])
        return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
