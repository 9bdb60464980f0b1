#!/usr/bin/env python3
"""Catches: frozen parameters that move, groups and LoRAs that give other bits on another number of
ranks, in another ZeRO stage, recomputed or resumed, with Muon, with moments of two bytes or with
steps of several lengths, groups that change on the way without a word, a plan that holds gradients and moments of what
is frozen, a LoRA that is lost on the way to PEFT's folder and back or that its merge into the weights
leaves out, and fields that do nothing in silence.

finetune_test.py BINARY
"""
import array
import functools
import itertools
import json
import pathlib
import shutil
import sys
import tempfile

import lockstep_run

GPT = """
model { gpt { layers: 3 heads: 2 width: 32 context: 16 vocabulary: 50 dropout: 0.1 } }
data { synthetic {} }
train { global_batch: 8 lanes: 8 steps: 6 hash_every: 1 EXTRA }
optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
schedule { lr: 0.01 }
checkpoint { every: 2 keep_last: 9 async: false }
execution { threads: 1 }
comm { bucket_mib: 0.02 }
output { tensorboard: false }
ADAPTER
"""
RESNET = GPT.replace("gpt { layers: 3 heads: 2 width: 32 context: 16 vocabulary: 50 dropout: 0.1 }",
                     "resnet { depth: 20 }")
RESNET = RESNET.replace("synthetic {}", "synthetic { height: 12 width: 12 channels: 3 classes: 4 }")
FREEZE = 'groups { match: "wte|wpe|h\\\\.0\\\\.|ln_1" freeze: true }'
GROUPS = ('groups { match: "h\\\\.2\\\\.mlp" lr_scale: 0.1 weight_decay: 0 } '
          'groups { match: "bias$" weight_decay: 0.2 } layer_lr_decay: 0.8 ' + FREEZE)
FROZEN_NORMS = 'groups { match: "layer1|layer2|stem|conv1|bn1" freeze: true }'
LORA = ('adapter { lora { rank: 4 alpha: 8 match: "c_attn|mlp.c_fc" dropout: 0.1 '
        'train_also: "ln_f" } }')
# As (ranks, further settings); the last two are of a network, whose ranks send what others share.
WAYS = [(2, ["comm.zero_stage=0"]), (4, []), (8, ["comm.zero_stage=2"]), (4, ["comm.zero_stage=3"]),
        (2, ["comm.shared_memory=false"]), (2, ["comm.zero_stage=3", "comm.shared_memory=false"])]
OPTIMIZERS = ["sgd { momentum: 0.9 }", "adam {}", "lion {}", "lars {}", "lamb {}"]
USAGE = 2  # exit code


def sets(changes):
    return [argument for change in changes for argument in ("--set", change)]


def config_of(text, extra="", adapter=""):
    return text.replace("EXTRA", extra).replace("ADAPTER", adapter)


class Test:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.failures = binary, folder, []
        self.names = itertools.count()

    def expect(self, holds, text):
        print(("" if holds else "FAILED: ") + text, flush=True)
        if not holds:
            self.failures.append(text)

    def config(self, text):
        path = self.folder / f"config-{next(self.names)}.textproto"
        path.write_text(text)
        return path

    def train(self, config, ranks=0, changes=(), arguments=()):
        run_dir = self.folder / f"run-{next(self.names)}"
        return run_dir, lockstep_run.train(self.binary, config, run_dir, ranks,
                                           [*sets(changes), *arguments])

    def command(self, *arguments):
        done = lockstep_run.run(self.binary, arguments, ranks=0)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments}: {done.stdout}\n{done.stderr}")
        return done.stdout

    def tensors(self, run_dir, step):
        content = (run_dir / "checkpoints" / f"step-{step:08d}" / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        entries = json.loads(content[8:start])
        entries.pop("__metadata__", None)
        return {name: content[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
                for name, entry in entries.items()}

    def same_bits(self, label, text, ways=tuple(WAYS), settings=()):
        """Trains in all ways and resumed; returns the folder of the run on one rank."""
        config = self.config(text)

        def resumed():
            stage = [] if settings else ["comm.zero_stage=2"]
            cut, _ = self.train(config, 4, [*settings, *stage], ["--max-steps", "3"])
            return cut, lockstep_run.train(self.binary, config, cut, 2,
                                           [*sets(settings), "--resume", "auto"])

        runs = {"resumed": resumed}
        runs |= {f"{ranks} ranks {changes}":
                 functools.partial(self.train, config, ranks, [*settings, *changes])
                 for ranks, changes in ways}
        runs["whole"] = functools.partial(self.train, config, 0, settings)
        results = dict(zip(runs, lockstep_run.at_once(runs.values())))
        whole_dir, whole = results.pop("whole")
        for what, (_, other) in results.items():
            self.expect(other["weights_hash"] == whole["weights_hash"],
                        f"{label}, {what}: {other['weights_hash']}, {whole['weights_hash']}")
        return whole_dir

    def moved(self, label, run_dir, is_frozen):
        before, after = self.tensors(run_dir, 2), self.tensors(run_dir, 6)
        wrong = [name for name in before if (before[name] == after[name]) != is_frozen(name)]
        self.expect(not wrong, f"{label}: moved what is frozen, or the other way round: {wrong}")
        self.expect(any(map(is_frozen, before)) and not all(map(is_frozen, before)),
                    f"{label}: some are frozen")

    def refused(self, text, *parts):
        done = lockstep_run.run(self.binary, ["train", self.config(text), "--run-dir",
                                              self.folder / "refused"], ranks=0)
        message = (done.stdout + done.stderr).strip().splitlines()[-1]
        self.expect(done.returncode == USAGE and all(part in message for part in parts),
                    f"exit code {done.returncode}: {message}")

    def rows(self, text, ranks):
        out = self.folder / "plan.json"
        self.command("plan", self.config(text), "--ranks", str(ranks), "--json", out)
        return json.loads(out.read_text())["memory_bytes"]


def groups(test):
    run_dir = test.same_bits("frozen", config_of(GPT, GROUPS))
    frozen = lambda name: not name.endswith("bias") and any(
        part in name for part in ["wte", "wpe", "h.0.", "ln_1"])  # the first group counts
    test.moved("frozen", run_dir, frozen)
    _, plain = test.train(test.config(config_of(GPT, GROUPS)))
    recomputed = test.same_bits("recomputed", config_of(GPT, GROUPS), [(4, ["comm.zero_stage=3"])],
                                ["execution.recompute=BLOCKS"])
    test.expect(lockstep_run.metrics(recomputed)[-1]["weights_hash"] == plain["weights_hash"],
                "recomputed blocks give the same bits")
    for optimizer in OPTIMIZERS:
        text = config_of(GPT, GROUPS).replace("adamw { weight_decay: 0.1 }", optimizer)
        run_dir = test.same_bits(optimizer, text, [(4, ["comm.zero_stage=2"])])
        test.moved(optimizer, run_dir, frozen)
    test.same_bits("PowerSGD", config_of(GPT, GROUPS), [(2, []), (4, [])],
                   ["comm.power_sgd_rank=2", "comm.zero_stage=0"])
    test.same_bits("error feedback", config_of(GPT, GROUPS), [(2, []), (4, ["comm.zero_stage=0"])],
                   ["comm.wire_dtype=BF16", "comm.error_feedback=true"])
    average = test.same_bits("average", config_of(GPT, GROUPS + " ema_decay: 0.5"),
                             [(2, []), (4, ["comm.zero_stage=3"])])
    test.command("export", average, "--average", "--out", test.folder / "average.safetensors")
    _, before = lockstep_run.read_tensor(test.folder / "average.safetensors",
                                         "transformer.wte.weight")
    test.expect(before.tobytes() == test.tensors(average, 6)["transformer.wte.weight"],
                "the average of what is frozen is what it is")
    plain, less = test.rows(config_of(GPT), 2), test.rows(config_of(GPT, FREEZE), 2)
    for row in ["gradients", "optimizer moments"]:
        test.expect(less[row] < 0.75 * plain[row], f"{row}: {less[row]} of {plain[row]} bytes")
    test.expect(less["parameters"] >= plain["parameters"], "all parameters are there")


def groups_with_others(test):
    """What has layouts of its own: matrices of Muon, moments of two bytes, shorter graphs."""
    frozen = lambda name: any(part in name for part in ["wte", "wpe", "h.0.", "ln_1"])
    adamw = "adamw { weight_decay: 0.1 } clip_norm: 1"
    documents = test.folder / "documents.bin"
    tokens = test.folder / "documents-tokens.bin"
    lengths = [2 + 5 * i % 16 for i in range(64)]
    documents.write_bytes(array.array("Q", itertools.accumulate([0] + lengths[:-1])).tobytes())
    tokens.write_bytes(array.array("H", (7 * i * i % 50 for i in range(sum(lengths)))).tobytes())
    padded = f'tokens {{ train: "{tokens}" train_documents: "{documents}" packing: PADDED }}'
    for label, before, after, settings in (
            ("frozen, Muon", adamw, "muon { weight_decay: 0.1 } clip_norm: 1", []),
            ("frozen, moments of two bytes", adamw, adamw + " moments: BF16", []),
            ("frozen, several lengths", "synthetic {}", padded,
             ["execution.length_buckets=4,8"])):
        text = config_of(GPT, FREEZE).replace(before, after)
        run_dir = test.same_bits(label, text, [(2, ["comm.zero_stage=2"])], settings)
        test.moved(label, run_dir, frozen)


def changed_groups(test):
    """Of a run that goes on: other groups are another run, which must be asked for."""
    cut, _ = test.train(test.config(config_of(GPT, FREEZE)), arguments=["--max-steps", "2"])
    thawed = test.config(config_of(GPT, FREEZE.replace("wte|wpe|", "")))
    goes_on = ["train", thawed, "--resume", "auto", "--run-dir"]
    done = lockstep_run.run(test.binary, [*goes_on, cut], ranks=0)
    message = (done.stdout + done.stderr).strip().splitlines()[-1]
    test.expect(done.returncode != 0 and "--allow-change train.groups" in message,
                f"exit code {done.returncode}: {message}")
    hashes = []
    for ranks in (1, 2):
        copy = test.folder / f"thawed-{ranks}"
        shutil.copytree(cut, copy)
        result = lockstep_run.train(test.binary, thawed, copy, ranks,
                                    ["--resume", "auto", "--allow-change", "train.groups",
                                     *sets(["comm.zero_stage=2"] if ranks > 1 else [])])
        hashes.append(result["weights_hash"])
        test.moved(f"thawed, {ranks} ranks", copy,
                   lambda name: any(part in name for part in ["h.0.", "ln_1"]))
    test.expect(len(set(hashes)) == 1, f"thawed: {hashes}")


def norms(test):
    run_dir = test.same_bits("frozen norms", config_of(RESNET, FROZEN_NORMS),
                             [(2, []), (4, ["comm.zero_stage=3"])])
    follows = lambda name: ".running_" in name
    frozen_parts = ["layer1", "layer2", "stem", "conv1", "bn1"]
    below = lambda name: any(name.startswith(part) for part in frozen_parts)
    test.moved("frozen norms, whose statistics follow", run_dir,
               lambda name: not follows(name) and (below(name) or ".conv1" in name or
                                                   ".bn1" in name))


def lora(test):
    text = config_of(GPT, "", LORA)
    run_dir = test.same_bits("LoRA", text)
    test.moved("LoRA", run_dir, lambda name: ".lora_" not in name and "ln_f" not in name)
    test.same_bits("LoRA, recomputed", text, [(4, ["comm.zero_stage=3"])],
                   ["execution.recompute=BLOCKS"])
    plain, less = test.rows(config_of(GPT), 1), test.rows(text, 1)
    for row in ["gradients", "optimizer moments"]:
        test.expect(less[row] < 0.4 * plain[row], f"{row}: {less[row]} of {plain[row]} bytes")
    # To PEFT's folder and back.
    test.command("export", run_dir, "--format", "peft", "--out", test.folder / "adapter")
    base = test.config(config_of(GPT))
    again = text.replace("rank: 4", f'from: "{test.folder / "adapter"}" rank: 4')
    again = again.replace("lr: 0.01", "lr: 1e-30")  # moves nothing that a float shows
    again_dir, _ = test.train(test.config(again), arguments=["--max-steps", "2"])
    there, back = test.tensors(run_dir, 6), test.tensors(again_dir, 2)
    learned = [name for name in there if ".lora_B" in name]
    test.expect(learned and all(there[name] == back[name] for name in learned),
                f"{len(learned)} matrices come back bit for bit")
    test.expect(all(any(there[name]) for name in learned), "they have learned something")
    for change, parts in [("rank: 4", ["r", "8", "adapter.lora.rank"]),
                          ("alpha: 8", ["lora_alpha", "adapter.lora.alpha"]),
                          ('match: "c_attn|mlp.c_fc"', ["c_fc"])]:
        other = {"rank: 4": "rank: 8", "alpha: 8": "alpha: 9"}.get(change, 'match: "c_attn"')
        done = lockstep_run.run(test.binary, ["train", test.config(again.replace(change, other)),
                                              "--run-dir", test.folder / "refused"], ranks=0)
        message = (done.stdout + done.stderr).strip().splitlines()[-1]
        test.expect(done.returncode != 0 and all(part in message for part in parts),
                    f"exit code {done.returncode}: {message}")
    # Merged weights say what base and LoRA say together.
    test.command("export", run_dir, "--format", "huggingface", "--out", test.folder / "merged")
    evaluated = test.folder / "eval.json"
    losses = []
    tokens = test.folder / "tokens.bin"
    tokens.write_bytes(array.array("H", (7 * i * i % 50 for i in range(2000))).tobytes())
    data = f'tokens {{ train: "{tokens}" eval: "{tokens}" format: RAW_UINT16 }}'
    of_file = lambda config: test.config(config.replace("synthetic {}", data))
    for config, checkpoint in [(of_file(text), run_dir), (of_file(config_of(GPT)), None)]:
        if checkpoint is None:
            test.command("import", base, test.folder / "merged", "--out",
                         test.folder / "imported" / "checkpoints")
            checkpoint = test.folder / "imported"
        test.command("eval", config, "--checkpoint", checkpoint, "--json", evaluated)
        losses.append(json.loads(evaluated.read_text())["eval_loss"])
    # W + s B A is rounded to a float once more, which moves no logit by more than some 1e-6.
    test.expect(abs(losses[0] - losses[1]) < 1e-5 * losses[0],
                f"evaluation with the LoRA {losses[0]}, merged {losses[1]}")


def refusals(test):
    test.refused(config_of(GPT, 'groups { match: "(" }'), "train.groups[0].match", "'('", "regular")
    test.refused(config_of(GPT, 'groups { match: "wte" } groups { match: "nowhere" }'),
                 "train.groups[1].match", "'nowhere'", "transformer.wte.weight")
    test.refused(config_of(GPT, 'groups { match: "." freeze: true }'), "train.groups",
                 "at least one")
    test.refused(config_of(GPT, 'groups { match: "wte" weight_decay: -0.5 }'),
                 "train.groups[0].weight_decay", "-0.5")
    test.refused(config_of(RESNET, "layer_lr_decay: 0.5"), "train.layer_lr_decay", "resnet")
    test.refused(config_of(GPT, "", 'adapter { lora { match: "nowhere" } }'),
                 "adapter.lora.match", "'nowhere'", "c_attn")
    test.refused(config_of(GPT, "", 'adapter { lora { train_also: "nowhere" } }'),
                 "adapter.lora.train_also", "'nowhere'")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-finetune-") as folder:
        test = Test(binary, pathlib.Path(folder))
        refusals(test)
        groups(test)
        groups_with_others(test)
        changed_groups(test)
        norms(test)
        lora(test)
    return 1 if test.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
