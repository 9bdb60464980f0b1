#!/usr/bin/env python3
"""Training on preferences beside PyTorch's formula, and beside trl.

    compare_preferences.py formula LOCKSTEP             20 steps beside PyTorch in double
    compare_preferences.py stories LOCKSTEP STORIES     DPO of a small Llama, beside trl

`formula` trains a LoRA by DPO, and a reward model, by SGD and by AdamW, and fails where a loss is off
by more than 1e-5 of its value. STORIES is a folder with stories260K.bin and tok512.bin of llama2.c. The
model writes pairs of stories, of which the one with more happy words is the better one; Lockstep and trl
train the same LoRA on them, in turns, with the seeds 1 to --seeds, and both are judged by the pairs held
out. Needs torch, transformers, peft and, for `stories`, trl and datasets.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import peft
import torch
import transformers

TREE = pathlib.Path(__file__).resolve().parents[2]
for folder in ("distributed", "integration"):
    sys.path.insert(0, str(TREE / "tests" / folder))

LOSS_TOLERANCE = 1e-5  # relative
RATES = {"sgd": 0.05, "adamw": 0.003}
STEPS = 20
MATCH = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split()

FORMULA_CONFIG = """
model {{ from: "{base}" llama {{}} }}
data {{ preferences {{ train: "pairs.jsonl" tokenizer: "base" }} shuffle: false }}
{rest}
train {{ global_batch: 8 lanes: 4 steps: {steps} log_every: 1 {preference} }}
optimizer {{ {optimizer} {{}} }}
schedule {{ lr: {lr} }}
checkpoint {{ every: 1 keep_last: {steps} async: false }}
execution {{ threads: 1 precision: FP32 }}
output {{ tensorboard: false }}
"""
STORIES_CONFIG = """
seed: {seed}
model {{ from: "base" llama {{ context: 128 }} }}
data {{ preferences {{ train: "train.jsonl" eval: "eval.jsonl" tokenizer: "base" }} }}
adapter {{ lora {{ rank: 8 alpha: 16 match: "{match}" }} }}
train {{ global_batch: 32 epochs: 2 preference {{ beta: 0.1 }} }}
optimizer {{ adamw {{}} clip_norm: 1 }}
schedule {{ lr: 2e-3 }}
execution {{ threads: {threads} length_buckets: [96] }}
output {{ tensorboard: false }}
"""


def run(lockstep, folder, *arguments):
    done = subprocess.run([lockstep, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def train(lockstep, folder, config, run_dir):
    (folder / "config.textproto").write_text(config)
    run(lockstep, folder, "train", "config.textproto", "--run-dir", run_dir, "--device", "cpu")
    lines = (folder / run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "loss" in record]


def optimizer_of(kind, parameters):
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=RATES[kind])
    return torch.optim.AdamW(parameters, lr=RATES[kind], weight_decay=0)


class Formula:
    """A Llama of two layers, and eight pairs of answers."""

    def __init__(self, lockstep, folder):
        from conversations_test import write_tokenizer
        self.lockstep, self.folder, self.failed = lockstep, folder, False
        self.config = transformers.LlamaConfig(
            vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=48,
            tie_word_embeddings=False, initializer_range=0.3)
        torch.manual_seed(3)
        transformers.LlamaForCausalLM(self.config).save_pretrained(folder / "base")
        self.config.num_labels = 1
        transformers.LlamaForSequenceClassification(self.config).save_pretrained(folder / "reward")
        write_tokenizer(folder / "base")
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "base" / "tokenizer.json"))
        draw = random.Random(5)
        text = lambda words: "".join(" " + draw.choice(["the", "other", "thing", "here"]) for _ in range(words))
        self.pairs = [{"prompt": "Q:" + text(3) + "\nA:", "chosen": text(draw.randrange(1, 5)),
                       "rejected": text(draw.randrange(5, 8))} for _ in range(8)]
        (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in self.pairs))

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def of_answers(self, function):
        """(pairs, 2): function(ids, tokens of the prompt) of each answer."""
        return torch.stack([torch.stack([
            function(self.ids(pair["prompt"] + pair[name] + "</s>"), len(self.ids(pair["prompt"])))
            for name in ("chosen", "rejected")]) for pair in self.pairs])

    def log_probs(self, model):
        def of(ids, prompt):
            logs = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1], -1)
            return sum(logs[t - 1, ids[t]] for t in range(prompt, len(ids)))
        return self.of_answers(of)

    def compare(self, name, optimizer, ours, differences, smoothing=0.0):
        theirs = []
        for _ in range(STEPS):
            d = differences()
            loss = -((1 - smoothing) * torch.nn.functional.logsigmoid(d)
                     + smoothing * torch.nn.functional.logsigmoid(-d)).mean()
            theirs.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        worst = max(abs(a["loss"] - b) / b for a, b in zip(ours, theirs, strict=True))
        self.failed |= not worst < LOSS_TOLERANCE
        print(f"{name}: losses {theirs[0]:.6f} to {theirs[-1]:.6f}, off by at most {worst:.1e}", flush=True)

    def dpo(self, kind, smoothing, beta=0.3):
        ours = train(self.lockstep, self.folder, FORMULA_CONFIG.format(
            base="base", steps=STEPS, optimizer=kind, lr=RATES[kind],
            preference=f"preference {{ beta: {beta} label_smoothing: {smoothing} }}",
            rest='adapter { lora { rank: 4 alpha: 8 match: "q_proj|v_proj|down_proj" } }'), f"dpo-{kind}-{smoothing}")
        adapter = self.folder / f"adapter-{kind}-{smoothing}"
        run(self.lockstep, self.folder, "export", f"dpo-{kind}-{smoothing}/checkpoints/step-00000001",
            "--format", "peft", "--out", adapter)
        base = transformers.LlamaForCausalLM.from_pretrained(self.folder / "base", attn_implementation="eager")
        model = peft.PeftModel.from_pretrained(base, adapter, is_trainable=True).double().eval()
        with torch.no_grad():  # the first step moves B alone, because A's gradient is 0 while B is
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.zero_()
            with model.disable_adapter():
                reference = self.log_probs(model)

        def differences():
            gains = self.log_probs(model) - reference
            return beta * (gains[:, 0] - gains[:, 1])

        trained = [p for p in model.parameters() if p.requires_grad]
        self.compare(f"DPO, {kind}, label smoothing {smoothing}", optimizer_of(kind, trained), ours, differences,
                     smoothing)

    def rewards(self, kind):
        ours = train(self.lockstep, self.folder, FORMULA_CONFIG.format(
            base="reward", steps=STEPS, optimizer=kind, lr=RATES[kind], preference="", rest=""), f"reward-{kind}")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            self.folder / "reward", attn_implementation="eager").double().eval()

        def differences():
            rewards = self.of_answers(lambda ids, _: model(torch.tensor([ids])).logits[0, 0])
            return rewards[:, 0] - rewards[:, 1]

        self.compare(f"rewards, {kind}", optimizer_of(kind, list(model.parameters())), ours, differences)


def write_base(stories, folder):
    """The model as a folder of Hugging Face. Returns its tokenizer: llama2.c's merges, best score first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
    import stories_test
    stories_test.write_folder(folder, *stories_test.read_model(stories / "stories260K.bin"))
    data, position, pieces, scores = (stories / "tok512.bin").read_bytes(), 4, [], []
    while position < len(data):
        score, length = struct.unpack_from("<fi", data, position)
        pieces.append(data[position + 8:position + 8 + length].decode().replace(" ", "\u2581"))
        scores.append(score)
        position += 8 + length
    pieces[:3] = ["<unk>", "<s>", "</s>"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = sorted((-scores[i], i, piece[:cut], piece[cut:]) for i, piece in enumerate(pieces)
                    for cut in range(1, len(piece)) if i > 258 and {piece[:cut], piece[cut:]} <= vocabulary.keys())
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[merge[2:] for merge in merges],
                                     unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in pieces[:3]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                                unk_token="<unk>", pad_token="<unk>", padding_side="left")
    fast.save_pretrained(folder)
    return fast


def write_pairs(folder, tokenizer):
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "base").eval()
    torch.manual_seed(0)
    prompts = [f"Once upon a time, there was a {kind} {animal} named {name}."
               for kind in "little big sad happy brave small kind funny old red".split()
               for animal in "cat dog bird bear fox fish frog duck mouse rabbit girl boy cow pig lion horse".split()
               for name in "Lily Tim Tom Sue Ben Mia Max Anna Sam Lucy".split()]
    random.Random(1).shuffle(prompts)
    good = re.compile("happy|smiled|fun|love|friend|nice|play|laughed|good")
    bad = re.compile("sad|cry|cried|scared|angry|hurt|mad|bad|lost")
    score = lambda text: len(good.findall(text.lower())) - len(bad.findall(text.lower()))
    pairs = []
    for begin in range(0, 640, 64):
        batch = tokenizer(prompts[begin:begin + 64], return_tensors="pt", padding=True)
        with torch.no_grad():
            written = model.generate(**batch, do_sample=True, max_new_tokens=70, num_return_sequences=2)
        texts = tokenizer.batch_decode(written[:, batch.input_ids.shape[1]:], skip_special_tokens=True)
        texts = [" " + text.split("\ufffd")[0].strip() for text in texts]
        for prompt, a, b in zip(prompts[begin:begin + 64], texts[::2], texts[1::2]):
            if score(a) != score(b):
                pairs.append({"prompt": prompt, "chosen": max(a, b, key=score), "rejected": min(a, b, key=score)})
    for name, part in (("train", pairs[:-96]), ("eval", pairs[-96:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in part))


def train_trl(folder, seed):
    import datasets
    import trl
    load = lambda name: datasets.Dataset.from_list(
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()])
    arguments = trl.DPOConfig(
        seed=seed, output_dir=str(folder / "trl"), per_device_train_batch_size=32, per_device_eval_batch_size=32,
        num_train_epochs=2, learning_rate=2e-3, lr_scheduler_type="constant", warmup_steps=0, beta=0.1,
        max_length=129, logging_steps=1000, report_to=[], save_strategy="no", use_cpu=True, max_grad_norm=1.0,
        weight_decay=0.01, bf16=False, gradient_checkpointing=False, disable_tqdm=True)
    trainer = trl.DPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder / "base"), args=arguments,
        train_dataset=load("train"), eval_dataset=load("eval"),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder / "base"),
        peft_config=peft.LoraConfig(r=8, lora_alpha=16, target_modules=MATCH, task_type="CAUSAL_LM"))
    rate = trainer.train().metrics["train_samples_per_second"]
    found = trainer.evaluate()
    return rate, found["eval_loss"], found["eval_rewards/accuracies"]


def compare_stories(options, folder):
    write_pairs(folder, write_base(options.stories, folder / "base"))
    results = {"Lockstep": [], "trl": []}
    for seed in range(1, options.seeds + 1):
        records = train(options.lockstep, folder, STORIES_CONFIG.format(
            seed=seed, threads=options.threads, match="|".join(MATCH)), f"run-{seed}")
        rate = statistics.median(record["samples_per_s"] for record in records)
        results["Lockstep"].append((rate, records[-1]["eval_loss"], records[-1]["eval_accuracy"]))
        results["trl"].append(train_trl(folder, seed))
    for name, found in results.items():
        rates, losses, accuracies = zip(*found)
        print(f"{name}: {statistics.median(rates):.1f} pairs/s; held out: loss {statistics.mean(losses):.3f}, "
              f"in the right order {statistics.mean(accuracies):.3f} ({min(accuracies):.3f} to {max(accuracies):.3f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("formula", "stories"))
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("stories", type=pathlib.Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.lockstep = options.lockstep.resolve()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "stories":
            return compare_stories(options, pathlib.Path(folder))
        formula = Formula(options.lockstep, pathlib.Path(folder))
        for kind in RATES:
            formula.dpo(kind, 0.0)
            formula.dpo(kind, 0.2)
            formula.rewards(kind)
        sys.exit("a loss is off" if formula.failed else 0)


if __name__ == "__main__":
    main()
