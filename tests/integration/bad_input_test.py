#!/usr/bin/env python3
"""Catches: bad input that hangs, crashes, is accepted, or is refused without saying what is wrong.

Mistakes at the command line and in configs, which end before ranks do anything together, are in
mistakes_test.py.

bad_input_test.py BINARY [NAME ...]: each case runs alone and on two ranks under mpirun, and must
end within the limit with the documented exit code and exactly one line "lockstep: error: ..." that
names what the case lists.
"""
import concurrent.futures
import gzip
import os
import pathlib
import shutil
import struct
import sys
import tempfile

import lockstep_run
import onnx_train_test as onnx

LIMIT_S = 120
AT_ONCE = 4  # most of a case's time mpirun waits
USAGE, DATA, CHECKPOINT, MEMORY, NUMERIC = 2, 3, 4, 5, 7

MLP = """
model { mlp { hidden: 8 } }
data { synthetic { samples: 64 features: 6 classes: 3 } }
train { global_batch: 8 lanes: 4 steps: 4 log_every: 100 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.1 }
output { tensorboard: false }
"""
GPT = """
model { gpt { layers: 1 heads: 2 width: 8 context: 8 } }
data { text { train: "text.txt" } }
train { global_batch: 4 lanes: 4 steps: 4 log_every: 100 }
optimizer { adamw {} }
output { tensorboard: false }
"""
IDX = MLP.replace("synthetic { samples: 64 features: 6 classes: 3 }",
                  'idx { train_images: "images.idx" train_labels: "labels.idx" }')
TABLE = MLP.replace("synthetic { samples: 64 features: 6 classes: 3 }",
                    'table { train: "table.csv" target: "label" }')
TOKENS = GPT.replace('text { train: "text.txt" }', 'tokens { train: "tokens.u16" }')


class Cases:
    """Collects the cases; files are made in one folder that all of them share."""

    def __init__(self, folder):
        self.folder = folder
        self.list = []

    def add(self, name, code, words, arguments, ranks=(0, 2), apart=None):
        self.list.append((name, code, words, [str(a) for a in arguments], ranks, apart))

    def file(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def train(self, name, code, words, text, *arguments, ranks=(0, 2), apart=None):
        config = self.file(f"{name}/config.textproto", text)
        self.add(name, code, words,
                 ["train", config, "--run-dir", self.folder / name / "run", *arguments], ranks,
                 apart)

    def apart(self, name, words, text, *environments):
        """One rank for each environment."""
        self.train(name, USAGE, words, text, ranks=(len(environments),), apart=environments)

    def set(self, name, words, override, text=MLP, code=USAGE, ranks=(0, 2)):
        self.train(name, code, words, text, "--set", override, ranks=ranks)

    def data(self, name, words, text, files, code=DATA):
        for file_name, content in files.items():
            self.file(f"{name}/{file_name}", content)
        self.train(name, code, words, text, "--data", self.folder / name)


def command_line(cases):
    cases.train("unknown_flag", USAGE, ["--epochs", "--set train.epochs=3"], MLP, "--epochs", "3")
    cases.add("config_missing", USAGE, ["nowhere.textproto"], ["train", "nowhere.textproto"])
    cases.set("threads", ["execution.threads", "1024", "allowed here: 0 to", "4 for each CPU"],
              "execution.threads=1024")
    os.mkfifo(cases.folder / "pipe")
    cases.add("config_is_a_pipe", USAGE, ["it is a pipe, not a regular file"],
              ["train", cases.folder / "pipe"])
    cases.add("checkpoint_is_a_device", CHECKPOINT, ["it is a device, not a regular file"],
              ["train", cases.file("shared/init.textproto", MLP), "--run-dir",
               cases.folder / "init", "--set", "train.init_from=/dev/zero"])
    cases.add("config_is_a_folder", USAGE, [str(cases.folder)], ["train", cases.folder])


def config(cases):
    cases.train("unknown_field", USAGE, ["hiden", "hidden"], MLP.replace("hidden", "hiden"))
    cases.train("binary_config", USAGE, ["config.textproto"], "\x00\x01\x02")
    cases.train("deep", USAGE, ["config.textproto"], "model { " * 10000)
    cases.set("lanes_and_ranks", ["train.lanes", "1", "ranks"], "train.lanes=1", ranks=(2,))
    cases.set("batch_not_divisible", ["train.global_batch", "10", "4"], "train.global_batch=10")


def data(cases):
    images = struct.pack(">IIII", 0x803, 4, 2, 2) + bytes(range(16))
    labels = struct.pack(">II", 0x801, 4) + bytes([0, 1, 2, 0])
    good = {"images.idx": images, "labels.idx": labels}
    cases.data("outputs", ["model.mlp.outputs", "2", "3"],
               IDX.replace("hidden: 8", "hidden: 8 outputs: 2"), good)
    cases.data("idx_missing", ["images.idx"], IDX, {"labels.idx": labels})
    cases.data("idx_truncated", ["images.idx"], IDX, {**good, "images.idx": images[:-3]})
    cases.data("idx_too_long", ["images.idx"], IDX, {**good, "images.idx": images + b"x"})
    cases.data("idx_magic", ["images.idx"], IDX, {**good, "images.idx": b"PK\x03\x04" + images[4:]})
    cases.data("idx_empty", ["labels.idx"], IDX, {**good, "labels.idx": b""})
    cases.data("idx_counts", ["images.idx", "labels.idx"], IDX,
               {**good, "labels.idx": struct.pack(">II", 0x801, 3) + bytes([0, 1, 2])})
    cases.data("idx_lying_header", ["images.idx"], IDX,
               {**good, "images.idx": struct.pack(">IIII", 0x803, 0x7FFFFFFF, 28, 28) + bytes(16)})
    cases.data("gzip_torn", ["images.idx"], IDX, {**good, "images.idx": gzip.compress(images)[:-6]})
    cases.data("idx_folder", ["images.idx"], IDX, {"images.idx/file": b"", "labels.idx": labels})
    rows = "size,colour,label\n" + "".join(
        f"{i},red,{'yes' if i % 2 else 'no'}\n" for i in range(20))
    cases.data("table_no_column", ["label", "size"], TABLE,
               {"table.csv": rows.replace("label", "answer")})
    cases.data("table_fields", ["table.csv:4"], TABLE,
               {"table.csv": rows.replace("2,red,no", "2,red")})
    cases.data("table_empty", ["table.csv"], TABLE, {"table.csv": "size,colour,label\n"})
    cases.data("table_numeric", ["colour", "red"],
               TABLE.replace('target: "label"', 'target: "label" numeric: "colour"'),
               {"table.csv": rows})
    cases.data("table_quote", ["table.csv"], TABLE, {"table.csv": rows + '5,"never closed,yes\n'})
    cases.data("text_short", ["text.txt", "9"], GPT, {"text.txt": "tiny"})
    cases.data("text_missing", ["text.txt"], GPT, {})
    cases.data("tokens_odd", ["tokens.u16"], TOKENS, {"tokens.u16": bytes(101)})
    cases.data("tokens_vocabulary", ["tokens.u16", "300"],
               TOKENS.replace("context: 8", "context: 8 vocabulary: 200"),
               {"tokens.u16": struct.pack("<40H", *([5] * 39 + [300]))})
    cases.data("llmc_magic", ["tokens.u16"],
               TOKENS.replace('"tokens.u16"', '"tokens.u16" format: LLMC'),
               {"tokens.u16": bytes(2048)})


def checkpoints(cases, binary):
    """Cases around one good run, copied and damaged."""
    config_path = cases.file("good/config.textproto", MLP)
    lockstep_run.train(binary, config_path, cases.folder / "good/run", 0)
    text = MLP.replace("steps: 4", "steps: 8")

    def damaged(name, words, change, text=text, code=CHECKPOINT, resume=True):
        run = cases.folder / name / "run"
        shutil.copytree(cases.folder / "good/run", run)
        if change:
            change(run / "checkpoints/step-00000004")
        cases.train(name, code, words, text,
                    *(["--resume", run / "checkpoints/step-00000004"] if resume else []))

    def flip(file):
        def change(folder):
            content = bytearray((folder / file).read_bytes())
            content[-5] ^= 4
            (folder / file).write_bytes(content)
        return change

    def cut(file):
        return lambda folder: os.truncate(folder / file, (folder / file).stat().st_size - 7)

    def remove(file):
        return lambda folder: (folder / file).unlink()

    shard = "optimizer-00000-of-00001.safetensors"
    damaged("already_trained", ["--resume auto", "run"], None, resume=False)
    damaged("weights_bit", ["model.safetensors"], flip("model.safetensors"))
    damaged("moments_bit", [shard], flip(shard))
    damaged("state_bit", ["state.textproto"], flip("state.textproto"))
    damaged("weights_cut", ["model.safetensors"], cut("model.safetensors"))
    damaged("moments_cut", [shard], cut(shard))
    damaged("weights_gone", ["model.safetensors"], remove("model.safetensors"))
    damaged("state_gone", ["no checkpoint", "step-00000004"], remove("state.textproto"))
    damaged("other_width", ["model.mlp.hidden", "--allow-change"], None,
            text=text.replace("hidden: 8", "hidden: 16"))
    damaged("other_optimizer", ["sgd", "adamw"], None,
            text=text.replace("sgd { momentum: 0.9 }", "adamw {}"))
    damaged("other_seed", ["seed"], None, text="seed: 5\n" + text)
    damaged("other_batch", ["train.global_batch"], None,
            text=text.replace("global_batch: 8", "global_batch: 16"))
    cases.train("resume_nowhere", CHECKPOINT, ["no-such"], MLP, "--resume", "no-such")
    cases.set("init_from_missing", ["weights.safetensors"], "train.init_from=weights.safetensors",
              code=CHECKPOINT)
    garbage = cases.file("garbage.safetensors", b"\xff" * 64)
    cases.set("init_from_garbage", ["garbage.safetensors"], f"train.init_from={garbage}",
              code=CHECKPOINT)
    cases.file("run_dir_is_a_file/run", "in the way")
    cases.train("run_dir_is_a_file", CHECKPOINT, ["run"], MLP)


def onnx_files(cases):
    def refused(name, words, content):
        path = cases.file(f"{name}/net.onnx", content)
        cases.add(name, USAGE, ["net.onnx", *words], ["inspect", path])

    def model(nodes=None, weights=None, opset=17, more=b""):
        nodes = nodes or [onnx.node("Mul", ["x", "w"], ["y"])]
        weights = {"w": ([2], [1, 2])} if weights is None else weights
        return onnx.model(nodes, weights, [("x", ["batch", 2])], ("y", ["batch", 2]), opset=opset) + more

    def tensor(*fields):  # a second initializer, v
        return onnx.field(7, onnx.field(5, onnx.field(2, 1) + onnx.field(8, "v") + b"".join(fields)))

    def entry(key, value):
        return onnx.field(13, onnx.field(1, key) + onnx.field(2, value))

    whole, extents, outside = model(), onnx.field(1, 2), onnx.field(14, 1)
    refused("onnx_empty", ["is empty"], b"")
    refused("onnx_text", ["not an ONNX file"], "a text, no network")
    refused("onnx_cut_short", ["not an ONNX file, or damaged or truncated"], whole[:-20])
    refused("onnx_opset", ["opset 24", "9 to 23"], model(opset=24))
    refused("onnx_no_source", ["node Mul", "'z'"], model([onnx.node("Mul", ["x", "z"], ["y"])]))
    refused("onnx_cycle", ["cycle"], model([onnx.node("Mul", ["x", "h"], ["y"]), onnx.node("Add", ["y", "x"], ["h"])]))
    refused("onnx_twice", ["'y' is defined by"], model([onnx.node("Mul", ["x", "w"], ["y"])] * 2))
    refused("onnx_raw_data", ["'v'", "4 bytes", "must have 8"], model(more=tensor(extents, onnx.field(9, b"abcd"))))
    refused("onnx_extents", ["'v'", "none may be below 0"], model(more=tensor(onnx.field(1, -2))))
    refused("onnx_huge", ["'v'", "more than fits in memory"], model(more=tensor(*[onnx.field(1, 1 << 40)] * 2)))
    refused("onnx_climbs", ["'v'", "within the folder"],
            model(more=tensor(extents, entry("location", "../net.onnx"), outside)))
    refused("onnx_absent_data", ["'v'", "weights", "No such file"],
            model(more=tensor(extents, entry("location", "weights"), outside)))
    refused("onnx_short_data", ["'v'", "8 bytes at 9999999 of 'net.onnx'"],
            model(more=tensor(extents, entry("location", "net.onnx"), entry("offset", "9999999"), outside)))
    refused("onnx_domain", ["node elsewhere.Odd", "'elsewhere'"],
            model([onnx.node("Odd", ["x"], ["y"]) + onnx.field(7, "elsewhere")]))
    cases.add("onnx_missing", USAGE, ["nowhere.onnx"], ["inspect", "nowhere.onnx"])
    good = cases.file("onnx_flags/net.onnx", whole)
    cases.add("onnx_flags", USAGE, ["--done", "net.onnx"], ["inspect", good, "--done"])


def the_rest(cases):
    cases.set("does_not_fit", ["GiB", "global_batch"], "train.global_batch=16777216", code=MEMORY,
              text=MLP.replace("hidden: 8", "hidden: [4096, 4096]"))
    cases.set("diverges", ["step", "lr"], "schedule.lr=1e38", code=NUMERIC)


def ranks_that_differ(cases):
    cases.apart("devices_differ",
                ["--device", "LOCKSTEP_DEVICE", "auto on rank 1", "cpu on rank 0, 2"], MLP,
                ["LOCKSTEP_DEVICE=cpu"], ["LOCKSTEP_DEVICE=auto"], ["LOCKSTEP_DEVICE=cpu"])
    cases.apart("comm_timeout", ["LOCKSTEP_COMM_TIMEOUT_S", "soon", "seconds"], MLP,
                ["LOCKSTEP_COMM_TIMEOUT_S=soon"], [])
    cases.apart("rendezvous_timeout", ["LOCKSTEP_RENDEZVOUS_TIMEOUT_S", "0", "seconds"], MLP,
                ["LOCKSTEP_RENDEZVOUS_TIMEOUT_S=0"], [])
    cases.apart("simd_of_one", ["rank 1: ", "LOCKSTEP_SIMD is 'SSE9'", "allowed here: "], MLP, [],
                ["LOCKSTEP_SIMD=SSE9"])
    cases.apart("device_of_one", ["rank 1: ", "LOCKSTEP_DEVICE", "tpu", "cuda"], MLP,
                ["LOCKSTEP_DEVICE=cpu"], ["LOCKSTEP_DEVICE=tpu"])


def check(binary, case, ranks):
    """(a list of what is wrong, empty when all is well, the refusal)."""
    name, code, words, arguments, _, apart = case
    try:
        done = lockstep_run.run(binary, arguments, ranks, limit_s=LIMIT_S, apart=apart)
    except lockstep_run.subprocess.TimeoutExpired:
        return [f"hangs: no end within {LIMIT_S} s"], ""
    problems = []
    if done.returncode != code:
        problems.append(f"exit code {done.returncode}, expected {code}")
    errors = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")
              and "error: " in line]
    if len(errors) != 1:
        problems.append(f"{len(errors)} error lines, expected 1")
    for word in words:
        if not any(word in line for line in errors):
            problems.append(f"'{word}' is not named")
    if problems:
        problems.append(done.stderr[-1500:])
    return problems, (errors or [""])[0]


def check_all(binary, case):
    """(ranks, *check()) alone and on ranks, one after the other: both have the same run folder."""
    return [(ranks, *check(binary, case, ranks)) for ranks in case[4] if ranks == 0
            or lockstep_run.have_mpirun()]


def main():
    # What is refused must not depend on the GPUs of this machine.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    binary, wanted = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="lockstep-bad-input-") as folder:
        cases = Cases(pathlib.Path(folder))
        command_line(cases)
        config(cases)
        data(cases)
        checkpoints(cases, binary)
        onnx_files(cases)
        the_rest(cases)
        ranks_that_differ(cases)
        wanted_cases = [case for case in cases.list if not wanted or case[0] in wanted]
        failed = runs = 0
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for case, of_case in zip(wanted_cases,
                                     pool.map(lambda case: check_all(binary, case), wanted_cases)):
                for ranks, problems, refusal in of_case:
                    print(f"{case[0]} ({'alone' if ranks == 0 else f'{ranks} ranks'})", flush=True)
                    runs += 1
                    if problems:
                        failed += 1
                        print("  FAILED: " + "\n  ".join(problems))
                    elif ranks == 0:
                        print(f"  {refusal[:230]}")
    print(f"{len(cases.list)} cases, {runs} runs, {failed} failed")
    return 1 if failed or (not wanted and len(cases.list) < 40) else 0


if __name__ == "__main__":
    sys.exit(main())
