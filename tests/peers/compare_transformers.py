#!/usr/bin/env python3
"""Models of Hugging Face's transformers, made from a config and a seed, beside Lockstep.

    compare_transformers.py LOCKSTEP [--steps 50] [--tokens FILE] [CASE ...]

A case is a name of the list below, or a folder of Hugging Face, and FILE has 16-bit tokens for it.
Each model is saved by save_pretrained, trained by both from the same weights with AdamW on the same
batches, and exported as a folder, which from_pretrained loads. Prints the largest differences:
of the first loss, of the losses of all steps (relative), of the first step's gradient norm, and of
the logits of the exported model on a batch, which are computed by transformers from both folders.
Ends with 1 where one is above its limit. Needs torch, transformers, numpy.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

from synthetic_text import SyntheticText

CONTEXT, VOCABULARY, BATCH, LR, DECAY = 24, 101, 8, 1e-3, 0.1
LIMITS = {"first loss": 2e-6, "losses": 1e-4, "gradient": 1e-5, "final loss": 1e-4,
          "round trip": 0}

SMALL = {"hidden_size": 60, "intermediate_size": 77, "num_hidden_layers": 3,
         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
         "max_position_embeddings": CONTEXT, "attention_dropout": 0.0}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
GPT2 = {"n_embd": 60, "n_layer": 3, "n_head": 5, "n_positions": CONTEXT, "vocab_size": VOCABULARY,
        **NO_DROPOUT}


def scaled(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, "factor": 4.0, **more}}


VIT = {"hidden_size": 60, "intermediate_size": 77, "num_hidden_layers": 3, "patch_size": 8,
       "num_attention_heads": 5, "image_size": 32, "hidden_dropout_prob": 0.0,
       "attention_probs_dropout_prob": 0.0,
       "id2label": {str(i): f"kind {i}" for i in range(10)}}
GPTJ = {**GPT2, "n_embd": 66, "n_head": 3, "rotary_dim": 10}
BERT = {"hidden_size": 60, "intermediate_size": 77, "num_hidden_layers": 3,
        "num_attention_heads": 5, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ROBERTA = {**BERT, "max_position_embeddings": CONTEXT + 2, "type_vocab_size": 1}
KINDS = {"id2label": {str(i): f"kind {i}" for i in range(7)}}
VALUES = {"num_labels": 3, "problem_type": "regression"}
CASES = {
    "bert": ("Bert", "ForMaskedLM", BERT),
    "bert_tanh": ("Bert", "ForMaskedLM", {**BERT, "hidden_act": "gelu_new", "type_vocab_size": 5,
                                          "layer_norm_eps": 1e-5}),
    "bert_classes": ("Bert", "ForSequenceClassification", {**BERT, **KINDS}),
    "bert_values": ("Bert", "ForSequenceClassification", {**BERT, **VALUES}),
    "bert_tags": ("Bert", "ForTokenClassification", {**BERT, **KINDS}),
    "roberta": ("Roberta", "ForMaskedLM", ROBERTA),
    "roberta_classes": ("Roberta", "ForSequenceClassification", {**ROBERTA, **KINDS}),
    "roberta_values": ("Roberta", "ForSequenceClassification",
                       {**ROBERTA, **VALUES, "num_labels": 2, "pad_token_id": 4,
                        "max_position_embeddings": CONTEXT + 5}),
    # One label is a value where problem_type does not say otherwise. The loss is a mean of eight
    # squares alone, so that weights and texts matter: with padding's token 4, as above, PyTorch's
    # own losses differ by 1e-4 to 3e-4 once each weight is one unit in the last place off;
    # with these by 2e-6 to 8e-6.
    "roberta_value": ("Roberta", "ForSequenceClassification", {**ROBERTA, "num_labels": 1}),
    "roberta_tags": ("Roberta", "ForTokenClassification",
                     {**ROBERTA, **KINDS, "type_vocab_size": 2}),
    "gptj": ("GPTJ", GPTJ),
    "gptj_all_of_a_head": ("GPTJ", {**GPTJ, "rotary_dim": 22, "n_inner": 91,
                                    "layer_norm_epsilon": 1e-3, "activation_function": "gelu"}),
    "gpt2_inner": ("GPT2", {**GPT2, "n_inner": 91, "layer_norm_epsilon": 1e-3}),
    "vit": ("ViT", VIT),
    "vit_no_bias": ("ViT", {**VIT, "qkv_bias": False, "hidden_act": "relu", "patch_size": 16,
                            "layer_norm_eps": 1e-6}),
    "gpt2": ("GPT2", GPT2),
    "gpt2_untied": ("GPT2", {**GPT2, "tie_word_embeddings": False}),
    "gpt2_gelu": ("GPT2", {**GPT2, "activation_function": "gelu"}),
    "llama": ("Llama", SMALL),
    "llama_tied_mha": ("Llama", {**SMALL, "tie_word_embeddings": True, "num_key_value_heads": 6}),
    "llama_mqa": ("Llama", {**SMALL, "num_key_value_heads": 1, "head_dim": 14}),
    "llama_biases": ("Llama", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    "llama_attention_bias": ("Llama", {**SMALL, "attention_bias": True,
                                       "tie_word_embeddings": True}),
    "llama_mlp_bias": ("Llama", {**SMALL, "mlp_bias": True}),
    "llama_linear": ("Llama", {**SMALL, **scaled("linear")}),
    "llama_dynamic": ("Llama", {**SMALL, **scaled("dynamic")}),
    "llama3": ("Llama", {**SMALL, **scaled("llama3", low_freq_factor=1.0, high_freq_factor=4.0,
                                           original_max_position_embeddings=8)}),
    "mistral": ("Mistral", {**SMALL, "sliding_window": None}),
    "mistral_window": ("Mistral", {**SMALL, "sliding_window": 7}),
    "qwen2_window": ("Qwen2", {**SMALL, "use_sliding_window": True, "sliding_window": 5,
                               "max_window_layers": 0}),
    "qwen3": ("Qwen3", {**SMALL, "head_dim": 14}),
    "qwen3_biases": ("Qwen3", {**SMALL, "head_dim": 14, "attention_bias": True}),
    "qwen3_tied": ("Qwen3", {**SMALL, "head_dim": 10, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {**SMALL, "num_key_value_heads": 3}),
    "qwen2_tied": ("Qwen2", {**SMALL, "tie_word_embeddings": True}),
}


def make_model(case):
    if pathlib.Path(case).is_dir():
        return transformers.AutoModelForCausalLM.from_pretrained(case).float()
    family, *head, fields = CASES[case]
    torch.manual_seed(3)
    config = getattr(transformers, family + "Config")(**fields)
    usual = {"GPT2": "LMHeadModel", "ViT": "ForImageClassification"}.get(family, "ForCausalLM")
    model = getattr(transformers, family + (head[0] if head else usual))(config)
    for module in model.modules():  # the token of padding may stand in a text like others
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    with torch.no_grad():  # far from any symmetry: biases and gains too
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.1)
            else:
                parameter.normal_(1 if "weight" in name else 0, 0.1)
    return model.float()


def noisy_sequence():
    draw = numpy.random.default_rng(5)
    tokens = numpy.zeros(60 * CONTEXT + 1, numpy.uint16)
    for i in range(1, len(tokens)):
        tokens[i] = (5 * tokens[i - 1] + 3) % VOCABULARY if draw.random() < 0.8 else draw.integers(
            VOCABULARY)
    return tokens


def make_samples(tokens, context, path):
    """Samples of `context` tokens with their targets; the tokens as a file."""
    tokens.tofile(path)
    at = numpy.arange((len(tokens) - 1) // context)[:, None] * context + numpy.arange(context)
    return [torch.tensor(tokens[i].astype(numpy.int64)) for i in (at, at + 1)]


def make_images(path):
    """Normalised images and labels; the same as a file of CIFAR-10's form."""
    draw = numpy.random.default_rng(6)
    labels = draw.integers(10, size=60)
    pixels = draw.integers(120, size=(60, 3, 32, 32)) + 12 * labels[:, None, None, None]
    pixels = pixels.astype(numpy.uint8)
    records = numpy.concatenate([labels[:, None].astype(numpy.uint8), pixels.reshape(60, -1)], 1)
    records.tofile(path)
    return torch.tensor((pixels / 255 - 0.5) / 0.25).float(), torch.tensor(labels)


ENCODERS = ("bert", "roberta")


def text_task_of(model):
    of_values = model.config.problem_type == "regression" or model.config.num_labels == 1
    if "ForSequence" in type(model).__name__ and of_values:
        return "sequence_values"
    return {"ForMaskedLM": "masked_tokens", "ForSequenceClassification": "sequence_classes",
            "ForTokenClassification": "token_classes"}["For" + type(model).__name__.split("For")[1]]


def make_texts(model):
    """The samples (N, 4, T) of data.synthetic for the model, and their targets."""
    config, task = model.config, text_task_of(model)
    outputs = 0 if task == "masked_tokens" else config.num_labels
    made = SyntheticText(task, CONTEXT, config.vocab_size, config.type_vocab_size, outputs)
    return [torch.tensor(part) for part in made.samples(60)]


def logits_of(model, x):
    """Of tokens (B, T), images (B, C, H, W), or samples of texts (B, 4, T), whose rows are tokens,
    documents, positions and segments."""
    if x.dim() == 2:
        return model(input_ids=x).logits
    if x.dim() == 4:
        return model(pixel_values=x).logits
    first = 0 if model.config.model_type == "bert" else model.config.pad_token_id + 1
    return model(input_ids=x[:, 0], attention_mask=(x[:, 1] >= 0).long(),
                 position_ids=x[:, 2] + first, token_type_ids=x[:, 3]).logits


def loss_of(model, x, y):
    logits = logits_of(model, x)
    if y.is_floating_point():
        return torch.nn.functional.mse_loss(logits, y)
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten(), ignore_index=-1)


def epsilon_of(model):
    """Of AdamW. Biases of keys change no output where positions do not turn: their gradients are
    rounding, which a smaller epsilon would make steps of."""
    return 1e-6 if model.config.model_type in ENCODERS else 1e-8


def train_there(model, x, y, steps):
    """The loss and the gradient's norm of every step."""
    images = model.config.model_type == "vit"

    def is_decayed(name, parameter):
        return parameter.dim() > 1 and not (images and ("cls_token" in name or "position" in name))

    named = list(model.named_parameters())
    decayed = [p for n, p in named if is_decayed(n, p)]
    others = [p for n, p in named if not is_decayed(n, p)]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY},
                                   {"params": others, "weight_decay": 0}], lr=LR,
                                  betas=(0.9, 0.95), eps=epsilon_of(model))
    lines = []
    for step in range(steps):
        batch = torch.arange(step * BATCH, (step + 1) * BATCH) % len(x)  # batches straddle epochs
        optimizer.zero_grad()
        loss = loss_of(model, x[batch], y[batch])
        loss.backward()
        norm = torch.sqrt(sum((p.grad.double()**2).sum() for p in model.parameters()))
        lines.append({"loss": loss.item(), "grad_norm": norm.item()})
        optimizer.step()
    return lines


TEXTS = "synthetic { samples: 60 }"
TOKENS = 'tokens { train: "FOLDER/tokens.u16" format: RAW_UINT16 }'
IMAGES = ('cifar { train: "FOLDER/images.bin" } '
          'image { mean: [0.5, 0.5, 0.5] std: [0.25, 0.25, 0.25] }')


def make_data(model, folder, tokens=None):
    """Inputs and targets for the model, and the same as what stands in the config's data."""
    if model.config.model_type == "vit":
        return *make_images(folder / "images.bin"), IMAGES
    if model.config.model_type in ENCODERS:
        return *make_texts(model), TEXTS
    sequence = numpy.fromfile(tokens, numpy.uint16) if tokens else noisy_sequence()
    context = model.config.max_position_embeddings
    return *make_samples(sequence, context, folder / "tokens.u16"), TOKENS


def train_here(args, folder, steps, data, epsilon=1e-8):
    config = folder / "config.textproto"
    config.write_text(f"""
name: "compare"
model {{ from: "{folder}/there" }}
data {{ {data.replace("FOLDER", str(folder))} shuffle: false }}
train {{ global_batch: {BATCH} lanes: 2 steps: {steps} }}
optimizer {{ adamw {{ beta1: 0.9 beta2: 0.95 epsilon: {epsilon} weight_decay: {DECAY} }} }}
schedule {{ lr: {LR} }}
output {{ run_dir: "{folder}/run" }}
""")
    for command in (["train", config, "--device", "cpu"],
                    ["export", folder / "run", "--format", "huggingface", "--out",
                     folder / "here"],
                    ["import", config, folder / "there", "--out", folder / "imported"],
                    ["export", folder / "imported", "--format", "huggingface", "--out",
                     folder / "again"]):
        done = subprocess.run([args.lockstep, *map(str, command)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def relative(a, b):
    return abs(a - b) / abs(b)


def compare(args, case):
    model = make_model(case)
    with tempfile.TemporaryDirectory(prefix="lockstep-transformers-") as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "there", max_shard_size="100KB")
        load = type(model).from_pretrained
        x, y, data = make_data(model, folder, args.tokens)
        here = train_here(args, folder, args.steps, data, epsilon_of(model))
        before = {n: t.clone() for n, t in model.state_dict().items()}
        there = train_there(model, x, y, args.steps)
        final = loss_of(load(folder / "here"), x[:BATCH], y[:BATCH]).item()
        again = load(folder / "again").state_dict()
        return {
            "first loss": relative(here[0]["loss"], there[0]["loss"]),
            "losses": max(relative(a["loss"], b["loss"]) for a, b in zip(here, there)),
            "gradient": relative(here[0]["grad_norm"], there[0]["grad_norm"]),
            "final loss": relative(final, loss_of(model, x[:BATCH], y[:BATCH]).item()),
            "round trip": 0 if again.keys() == before.keys() and all(
                torch.equal(again[n], before[n]) for n in before) else 1,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tokens", help="raw 16-bit tokens; else made here")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    print(f"{'model':16} " + " ".join(f"{name:>11}" for name in LIMITS))
    print(f"{'limit':16} " + " ".join(f"{limit:11.0e}" for limit in LIMITS.values()))
    for case in args.cases or list(CASES):
        worst = compare(args, case)
        fits = all(worst[name] <= limit for name, limit in LIMITS.items())
        failed += not fits
        print(f"{pathlib.Path(case).name:16} " + " ".join(f"{worst[name]:11.1e}" for name in LIMITS) +
              ("" if fits else "  FAILED"), flush=True)
    print(f"{len(args.cases or CASES) - failed} of {len(args.cases or CASES)} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
