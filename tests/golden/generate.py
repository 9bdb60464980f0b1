#!/usr/bin/env python3
"""Makes the golden files of this folder with PyTorch: data, configs, initial weights, losses.

    python3 generate.py [CASE ...]     needs torch, numpy and safetensors; transformers for llama, gptj, bert

Every case is one short training run in float64. The float32 run beside it shows how far rounding
alone moves the losses ("float32_deviation"), which is what the tolerance of the test stands on.
"""
import json
import math
import pathlib
import struct
import sys

import numpy
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

import muon
import text_models

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20
IMAGE_SHAPE, CLASSES, IMAGES = (4, 5), 5, 72  # 72 images in batches of 16: batches straddle epochs
ROWS, COLUMNS = 50, 6
TOKENS, VOCABULARY, CONTEXT = 500, 64, 16
IDX_MEAN, IDX_STD = 0.375, 0.25

ACTIVATIONS = {
    "NONE": lambda x: x,
    "RELU": F.relu,
    "GELU_TANH": lambda x: F.gelu(x, approximate="tanh"),
    "GELU_ERF": F.gelu,
    "SILU": F.silu,
    "TANH": torch.tanh,
}


# ---- data ---------------------------------------------------------------------------------------


def noise(count, seed):
    """`count` integers in 0..255 from a 32-bit linear congruential generator."""
    values, state = [], seed
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        values.append(state >> 24)
    return values


def write_images():
    """Bright columns say which class an image is of; noise covers them."""
    pixels = IMAGE_SHAPE[0] * IMAGE_SHAPE[1]
    labels = [(7 * i + i // 5) % CLASSES for i in range(IMAGES)]
    dim = noise(IMAGES * pixels, seed=1)
    data = bytes(dim[i * pixels + j] // 2 + (100 if j % CLASSES == labels[i] else 0)
                 for i in range(IMAGES) for j in range(pixels))
    header = struct.pack(">IIII", 0x00000803, IMAGES, *IMAGE_SHAPE)
    (HERE / "images.idx").write_bytes(header + data)
    (HERE / "labels.idx").write_bytes(struct.pack(">II", 0x00000801, IMAGES) + bytes(labels))


def write_table():
    """Columns of different scale and offset, a smooth target `y` and a noisy binary one `z`."""
    draw = noise(ROWS * (COLUMNS + 1), seed=2)
    lines = [",".join([f"x{j}" for j in range(COLUMNS)] + ["y", "z"])]
    for i in range(ROWS):
        raw = [draw[i * (COLUMNS + 1) + j] / 255 - 0.5 for j in range(COLUMNS + 1)]
        y = math.sin(3 * raw[0]) + raw[1] * raw[2] - 0.5 * raw[3]
        z = int(y + 0.5 * raw[COLUMNS] > 0)
        cells = [f"{raw[j] * 10**(j - 2) + j:.6f}" for j in range(COLUMNS)]
        lines.append(",".join(cells + [f"{y:.6f}", str(z)]))
    (HERE / "table.csv").write_text("\n".join(lines) + "\n")


def write_rows():
    """Features, and targets of several columns: values, yes or no, and shares of classes."""
    draw = noise(ROWS * (COLUMNS + 4), seed=4)
    raw = numpy.array(draw, numpy.float64).reshape(ROWS, -1) / 255 - 0.5
    x, extra = 2 * raw[:, :COLUMNS], raw[:, COLUMNS:]
    y = numpy.stack([numpy.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2], x[:, 3] - x[:, 4]**2,
                     x[:, 5] - x[:, 0], x[:, 1]], axis=1) + 0.5 * extra
    shares = y**2 + 1 / 64
    arrays = {"rows": x, "values": y[:, :2], "answers": y[:, :3] > 0.25,
              "shares": shares / shares.sum(axis=1, keepdims=True)}
    for name, array in arrays.items():
        numpy.save(HERE / f"{name}.npy", array.astype(numpy.float32))


def write_tokens():
    """A noisy arithmetic sequence: the next token can be guessed, but not always."""
    draw = noise(TOKENS, seed=3)
    tokens = [0]
    for i in range(1, TOKENS):
        tokens.append(draw[i] % VOCABULARY if draw[i] < 50 else (5 * tokens[-1] + 3) % VOCABULARY)
    (HERE / "tokens.u16").write_bytes(struct.pack(f"<{TOKENS}H", *tokens))


def read_images(_):
    pixels = numpy.frombuffer((HERE / "images.idx").read_bytes()[16:], numpy.uint8)
    x = (pixels.reshape(IMAGES, -1).astype(numpy.float64) / 255 - IDX_MEAN) / IDX_STD
    labels = numpy.frombuffer((HERE / "labels.idx").read_bytes()[8:], numpy.uint8)
    return torch.tensor(x), torch.tensor(labels.astype(numpy.int64))


def read_table(case):
    cells = numpy.loadtxt(HERE / "table.csv", delimiter=",", skiprows=1)
    x = cells[:, :COLUMNS]
    x = (x - x.mean(axis=0)) / x.std(axis=0)  # the population's standard deviation
    column = COLUMNS + "yz".index(case["data"]["table"]["target"])
    return torch.tensor(x), torch.tensor(cells[:, column:column + 1])


def read_rows(case):
    source = case["data"]["npy"]
    files = [numpy.load(HERE / source[f"train_{part}"]) for part in ("inputs", "labels")]
    return tuple(torch.tensor(array.astype(numpy.float64)) for array in files)


def read_tokens(_):
    tokens = numpy.frombuffer((HERE / "tokens.u16").read_bytes(), numpy.uint16).astype(numpy.int64)
    samples = (TOKENS - 1) // CONTEXT
    at = numpy.arange(samples)[:, None] * CONTEXT + numpy.arange(CONTEXT)
    return torch.tensor(tokens[at]), torch.tensor(tokens[at + 1])


# ---- models: parameters are named as in models/*.cc ---------------------------------------------


class Mlp(nn.Module):

    def __init__(self, config, features, outputs):
        super().__init__()
        widths = [features] + config.get("hidden", []) + [outputs]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
        self.activation = ACTIVATIONS[config.get("activation", "RELU")]
        self.loss_name = config.get("loss", "SOFTMAX_CROSS_ENTROPY")
        self.label_smoothing = config.get("label_smoothing", 0)
        self.huber_delta = config.get("huber_delta", 1)
        self.pos_weight = None

    def loss(self, x, y):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        if self.loss_name == "SOFTMAX_CROSS_ENTROPY":
            return F.cross_entropy(x, y, label_smoothing=self.label_smoothing)
        if self.loss_name == "BINARY_CROSS_ENTROPY":
            positive = torch.tensor(self.pos_weight).to(x) if self.pos_weight else None
            return F.binary_cross_entropy_with_logits(x, y, pos_weight=positive)
        if self.loss_name == "MEAN_ABSOLUTE_ERROR":
            return F.l1_loss(x, y)
        if self.loss_name == "HUBER":
            return F.huber_loss(x, y, delta=self.huber_delta)
        if self.loss_name == "SOFT_CROSS_ENTROPY":
            return F.cross_entropy(x, y, label_smoothing=self.label_smoothing)
        return F.mse_loss(x, y)


class Block(nn.Module):

    def __init__(self, config):
        super().__init__()
        width, bias = config["width"], config.get("bias", True)
        self.heads = config["heads"]
        self.activation = ACTIVATIONS[config.get("activation", "GELU_TANH")]
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width, bias=bias),
                                   "c_proj": nn.Linear(width, width, bias=bias)})
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width, bias=bias),
                                  "c_proj": nn.Linear(4 * width, width, bias=bias)})

    def forward(self, x):  # (B, T, C)
        qkv = self.attn.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        # (B, H, T, D) each
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.attn.c_proj(mixed)
        return x + self.mlp.c_proj(self.activation(self.mlp.c_fc(self.ln_2(x))))


class Gpt(nn.Module):

    def __init__(self, config):
        super().__init__()
        width, bias = config["width"], config.get("bias", True)
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config["vocabulary"], width),
            "wpe": nn.Embedding(config["context"], width),
            "h": nn.ModuleList(Block(config) for _ in range(config["layers"])),
            "ln_f": nn.LayerNorm(width, bias=bias),
        })
        if not config.get("tied_head", True):
            self.lm_head = nn.Linear(width, config["vocabulary"], bias=False)
        self.label_smoothing = config.get("label_smoothing", 0)

    def loss(self, tokens, targets):  # (B, T) each
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight
        for block in self.transformer.h:
            x = block(x)
        head = self.lm_head if hasattr(self, "lm_head") else self.transformer.wte
        logits = F.linear(self.transformer.ln_f(x), head.weight)  # (B, T, V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               label_smoothing=self.label_smoothing)


def as_ours(case, tensors):
    """Tensors of a model by the names of models/*.cc."""
    kind = text_models.kind_of(case)
    return text_models.as_ours(kind, case, tensors) if kind else tensors


def make_model(case):
    """With weights far from any symmetry: also biases and norm gains are random."""
    torch.manual_seed(4)
    kind = text_models.kind_of(case)
    if kind:
        model = kind(next(iter(case["model"].values())))
    elif "gpt" in case["model"]:
        model = Gpt(case["model"]["gpt"])
    else:
        labels = "idx" in case["data"]
        pixels = IMAGE_SHAPE[0] * IMAGE_SHAPE[1]
        outputs = read_rows(case)[1].shape[1] if "npy" in case["data"] else 1
        model = Mlp(case["model"]["mlp"], pixels if labels else COLUMNS,
                    CLASSES if labels else outputs)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                spread = parameter.shape[1]**-0.5 if "mlp" in case["model"] else 0.1
                parameter.normal_(0, spread)
            else:
                gain = ("ln_" in name or "norm" in name.lower()) and name.endswith("weight")
                parameter.normal_(1 if gain else 0, 0.05)
    return model


# ---- training -----------------------------------------------------------------------------------


def learning_rate(schedule, step):
    """The rates as configs/FIELDS.md has them under schedule."""
    lr, low = schedule["lr"], schedule.get("min_lr", 0)
    warmup = schedule.get("warmup_steps", 0)
    if step < warmup:
        return lr * (step + 1) / warmup
    x = (step - warmup) / (STEPS - warmup)
    kind = schedule.get("kind", "CONSTANT")
    if kind == "CONSTANT":
        return lr
    if kind == "LINEAR":
        return lr + (low - lr) * x
    if kind == "COSINE":
        return low + (lr - low) * 0.5 * (1 + math.cos(math.pi * x))
    if kind == "STEP":
        return lr * schedule["gamma"]**sum(step >= m for m in schedule["milestones"])
    if kind == "POLYNOMIAL":
        return low + (lr - low) * (1 - x)**schedule["power"]
    assert kind == "WARMUP_STABLE_DECAY"
    decayed = max(0, step - (STEPS - schedule["decay_steps"]))
    return lr + (low - lr) * decayed / schedule["decay_steps"]


def make_optimizer(case, model):
    config = case["optimizer"]
    if "muon" in config:
        return muon.Muon(model, config["muon"])
    kind = next(k for k in ("sgd", "adam", "adamw") if k in config)
    options = config[kind]
    decay = options.get("weight_decay", 0)
    groups = [{"params": [], "weight_decay": 0 if not config.get("decay_bias_and_norm") else decay},
              {"params": [], "weight_decay": decay}]
    for parameter in model.parameters():
        groups[parameter.dim() == 2]["params"].append(parameter)
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=1, momentum=options.get("momentum", 0),
                               nesterov=options.get("nesterov", False))
    adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    betas = (options.get("beta1", 0.9), options.get("beta2", 0.999))
    return adam(groups, lr=1, betas=betas, eps=options.get("epsilon", 1e-8))


def train(case, weights, dtype):
    """Returns losses, gradient norms before clipping, learning rates and the final weights."""
    model = make_model(case)
    model.pos_weight = case["train"].get("pos_weight")
    model.load_state_dict(weights)
    model.to(dtype)
    x, y = READERS[next(iter(case["data"]))](case)
    x, y = (t.to(dtype) if t.is_floating_point() else t for t in (x, y))
    optimizer = make_optimizer(case, model)
    clip = case["optimizer"].get("clip_norm", 0) or math.inf
    batch = case["train"]["global_batch"]
    losses, norms, rates = [], [], []
    for step in range(STEPS):
        rows = torch.arange(step * batch, (step + 1) * batch) % len(x)
        rates.append(learning_rate(case["schedule"], step))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        model.zero_grad()
        loss = model.loss(x[rows], y[rows])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, rates, model.state_dict()


def projection(tensor):
    """One number that every element moves: the sum of w[i] cos(i)."""
    flat = tensor.double().flatten()
    return (flat * torch.cos(torch.arange(len(flat), dtype=torch.float64))).sum().item()


# ---- cases --------------------------------------------------------------------------------------


def images(**options):
    source = {"train_images": "images.idx", "train_labels": "labels.idx",
              "mean": IDX_MEAN, "std": IDX_STD}
    return {"model": {"mlp": {"hidden": [32, 16], **options}}, "data": {"idx": source},
            "weights": "mlp"}


def table(target, ignored, **options):
    source = {"train": "table.csv", "target": target, "ignore": [ignored]}
    return {"model": {"mlp": {"hidden": [32, 16], **options}}, "data": {"table": source},
            "weights": "table"}


def rows(targets, **options):
    source = {"train_inputs": "rows.npy", "train_labels": f"{targets}.npy"}
    return {"model": {"mlp": {"hidden": [32, 16], "activation": "TANH", **options}},
            "data": {"npy": source}, "weights": targets}


def gpt(**options):
    model = {"layers": 2, "heads": 4, "width": 32, "context": CONTEXT, "vocabulary": VOCABULARY}
    source = {"train": "tokens.u16", "format": "RAW_UINT16"}
    return {"model": {"gpt": {**model, **options}}, "data": {"tokens": source}}


def llama(**options):
    model = {"layers": 2, "heads": 4, "kv_heads": 2, "width": 32, "mlp_width": 88,
             "context": CONTEXT, "vocabulary": VOCABULARY, "norm_epsilon": 1e-5,
             "rope_theta": 100.0}
    source = {"train": "tokens.u16", "format": "RAW_UINT16"}
    return {"model": {"llama": {**model, **options}}, "data": {"tokens": source}}


def bert(task, **options):
    model = {"layers": 2, "heads": 4, "width": 32, "mlp_width": 40, "context": CONTEXT,
             "vocabulary": VOCABULARY, "segments": 2, "task": task, "norm_epsilon": 0.0009765625}
    return {"model": {"bert": {**model, **options}}, "data": {"synthetic": {"samples": 60}}}


def run(base, lanes, optimizer, schedule, weights=None, batch=16, **train_fields):
    train_section = {"global_batch": batch, "lanes": lanes, "steps": STEPS, **train_fields}
    return {**base, "train": train_section, "optimizer": optimizer, "schedule": schedule,
            "weights": weights or base["weights"]}


def cosine(lr, warmup):
    return {"kind": "COSINE", "lr": lr, "warmup_steps": warmup, "min_lr": lr / 8}


CASES = {
    "linear_classifier": run(images(hidden=[]), 1, {"sgd": {}}, {"lr": 0.125}, "linear"),
    "mlp_relu_sgd": run(images(activation="RELU"), 1,
                        {"sgd": {"momentum": 0.875, "weight_decay": 0.015625}}, {"lr": 0.0625}),
    "mlp_gelu_tanh_nesterov": run(images(activation="GELU_TANH", label_smoothing=0.125), 4,
                                  {"sgd": {"momentum": 0.875, "nesterov": True}, "clip_norm": 0.5},
                                  {"kind": "LINEAR", "lr": 0.125, "min_lr": 0.03125}),
    "mlp_gelu_erf_adamw": run(images(activation="GELU_ERF"), 2,
                              {"adamw": {"weight_decay": 0.125}, "clip_norm": 0.5},
                              cosine(0.0078125, 5)),
    "mlp_silu_adam": run(images(activation="SILU"), 4,
                         {"adam": {"beta1": 0.75, "beta2": 0.9375, "weight_decay": 0.03125},
                          "decay_bias_and_norm": True},
                         {"kind": "POLYNOMIAL", "lr": 0.0078125, "power": 2}),
    "mlp_tanh_regression": run(table("y", "z", activation="TANH", loss="MEAN_SQUARED_ERROR"), 2,
                               {"sgd": {"momentum": 0.75}},
                               {"kind": "WARMUP_STABLE_DECAY", "lr": 0.03125, "warmup_steps": 4,
                                "decay_steps": 8, "min_lr": 0.00390625}),
    "mlp_binary": run(table("z", "y", activation="RELU", loss="BINARY_CROSS_ENTROPY"), 4,
                      {"adamw": {"weight_decay": 0.0625}},
                      {"kind": "STEP", "lr": 0.0078125, "milestones": [8, 15], "gamma": 0.25}),
    "mlp_absolute_error": run(rows("values", loss="MEAN_ABSOLUTE_ERROR"), 4,
                              {"sgd": {"momentum": 0.75}}, {"lr": 0.03125}),
    "mlp_huber": run(rows("values", loss="HUBER", huber_delta=0.375), 4,
                     {"adamw": {"weight_decay": 0.0625}}, cosine(0.0078125, 5)),
    "mlp_labels": run(rows("answers", loss="BINARY_CROSS_ENTROPY"), 4,
                      {"adamw": {"weight_decay": 0.0625}}, cosine(0.0078125, 5),
                      pos_weight=[0.5, 2.0, 4.0]),
    "mlp_distribution": run(rows("shares", loss="SOFT_CROSS_ENTROPY", label_smoothing=0.125), 4,
                            {"sgd": {"momentum": 0.875}}, {"lr": 0.125}),
    "gpt_tied": run(gpt(), 2, {"adamw": {"beta2": 0.953125, "epsilon": 1e-5, "weight_decay": 0.125},
                               "clip_norm": 1}, cosine(0.00390625, 4), "gpt_tied", batch=8),
    "gpt_untied": run(gpt(tied_head=False, bias=False, label_smoothing=0.0625), 4,
                      {"adamw": {"epsilon": 1e-6, "weight_decay": 0.0625}, "clip_norm": 0.75,
                       "decay_bias_and_norm": True}, cosine(0.00390625, 2), "gpt_untied", batch=8),
    "llama": run(llama(), 2, {"adamw": {"beta2": 0.953125, "epsilon": 1e-5, "weight_decay": 0.125},
                              "clip_norm": 1}, cosine(0.00390625, 4), "llama", batch=8),
    # Heads that are wider than their share, one head of keys and values, biases.
    "llama_qwen2": run(llama(heads=3, kv_heads=1, head_size=14, qkv_bias=True, tied_head=False,
                             activation="GELU_TANH", label_smoothing=0.0625), 4,
                       {"adamw": {"epsilon": 1e-6, "weight_decay": 0.0625}},
                       cosine(0.00390625, 2), "llama_qwen2", batch=8),
    # Biases in all products of the blocks.
    "llama_biases": run(llama(qkv_bias=True, output_bias=True, mlp_bias=True), 2,
                        {"adamw": {"epsilon": 1e-6, "weight_decay": 0.0625}},
                        cosine(0.00390625, 2), "llama_biases", batch=8),
    # Norms of heads.
    "llama_qwen3": run(llama(head_size=12, qk_norm=True), 2,
                       {"adamw": {"epsilon": 1e-6, "weight_decay": 0.0625}},
                       cosine(0.00390625, 2), "llama_qwen3", batch=8),
    # A window shorter than the context.
    "llama_mistral": run(llama(sliding_window=5, tied_head=False), 4,
                         {"adamw": {"epsilon": 1e-6}}, cosine(0.00390625, 2), "llama_mistral",
                         batch=8),
    # Frequencies of each kind: kept, divided, and between.
    "llama_scaled": run(llama(rope_scaling="LLAMA3", rope_factor=4.0, rope_low_freq_factor=1.0,
                              rope_high_freq_factor=2.0, rope_original_context=12), 1,
                        {"adamw": {"epsilon": 1e-6}}, cosine(0.00390625, 2), "llama", batch=8),
    "gptj": run(gpt(layers=1, positions="ROTARY", rotary_size=6, parallel_block=True,
                    attention_bias=False, tied_head=False, head_bias=True, mlp_width=40,
                    norm_epsilon=0.0009765625), 2,
                {"adamw": {"epsilon": 1e-6, "weight_decay": 0.0625}}, cosine(0.00390625, 2), "gptj",
                batch=8),
    # Biases of keys change nothing, so that their gradients are noise: not for a small epsilon.
    "bert": run(bert("MASKED_TOKENS"), 2,
                {"adamw": {"epsilon": 1e-4, "weight_decay": 0.0625}, "clip_norm": 1},
                cosine(0.00390625, 2), "bert", batch=8),
    "roberta_classes": run(bert("SEQUENCE_CLASSES", layout="ROBERTA", padding_token=1, classes=5,
                                activation="GELU_TANH", label_smoothing=0.0625), 4,
                           {"adamw": {"epsilon": 1e-4}}, cosine(0.00390625, 2), "roberta_classes",
                           batch=8),
    "bert_mean": run(bert("SEQUENCE_CLASSES", pooling="MEAN", classes=5), 4,
                     {"adamw": {"epsilon": 1e-4}, "clip_norm": 1}, cosine(0.00390625, 2),
                     "bert_mean", batch=8),
    # Muon: more rows than columns and fewer, parts of three sizes; weights of llama's own layers.
    "llama_muon": run(llama(layers=4, width=24, mlp_width=64), 4,
                      {"muon": {"weight_decay": 0.0625, "adamw_lr_scale": 0.25, "epsilon": 1e-5},
                       "clip_norm": 1}, cosine(0.015625, 4), "llama_muon", batch=8),
    "gpt_muon": run(gpt(), 2, {"muon": {"momentum": 0.875, "nesterov": False, "iterations": 4,
                                        "scale": "MATCH_RMS_ADAMW", "epsilon": 1e-5}},
                    cosine(0.00390625, 2), "gpt_tied", batch=8),
}
READERS = {"idx": read_images, "table": read_table, "npy": read_rows, "tokens": read_tokens,
           "synthetic": text_models.read_texts}
ENUM_FIELDS = {"activation", "loss", "kind", "format", "rope_scaling", "positions", "task",
               "layout", "scale", "pooling"}


def to_textproto(fields, indent=""):
    lines = []
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                lines.append(f"{indent}{name} {{")
                lines += to_textproto(item, indent + "  ") + [f"{indent}}}"]
            elif isinstance(item, str) and name not in ENUM_FIELDS:
                lines.append(f'{indent}{name}: "{item}"')
            else:
                text = str(item).lower() if isinstance(item, bool) else item
                lines.append(f"{indent}{name}: {text}")
    return lines


def write_case(name, case):
    weights = {key: tensor.clone() for key, tensor in make_model(case).state_dict().items()}
    weights_file = f"{case['weights']}.safetensors"
    (HERE / weights_file).write_bytes(safetensors.torch.save(as_ours(case, weights)))
    config = {
        "name": name,
        "model": case["model"],
        "data": {**case["data"], "shuffle": False},
        "train": {**case["train"], "init_from": weights_file},
        "optimizer": case["optimizer"],
        "schedule": case["schedule"],
        "execution": {"threads": 1},
        "output": {"tensorboard": False},
    }
    text = "# Made by generate.py. Paths are relative to this folder: run from here.\n"
    (HERE / f"{name}.textproto").write_text(text + "\n".join(to_textproto(config)) + "\n")

    losses, norms, rates, final = train(case, weights, torch.float64)
    losses32, norms32, _, final32 = train(case, weights, torch.float32)
    final, final32 = as_ours(case, final), as_ours(case, final32)
    deviation = {
        "loss": max(abs(a / b - 1) for a, b in zip(losses32, losses)),
        "grad_norm": max(abs(a / b - 1) for a, b in zip(norms32, norms)),
        "projection": max(abs(projection(final32[k]) - projection(t)) / t.norm().item()
                          for k, t in final.items()),
    }
    expected = {
        "loss": losses,
        "grad_norm": norms,
        "lr": rates,
        "final": {k: {"norm": t.norm().item(), "projection": projection(t)}
                  for k, t in final.items()},
        "float32_deviation": deviation,
    }
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{name:24} loss {losses[0]:.4f} -> {losses[-1]:.4f}, float32 off by "
          f"{deviation['loss']:.1e} {deviation['grad_norm']:.1e} {deviation['projection']:.1e}")


def main():
    torch.set_num_threads(1)
    write_images()
    write_table()
    write_rows()
    write_tokens()
    for name in sys.argv[1:] or CASES:
        write_case(name, CASES[name])


if __name__ == "__main__":
    main()
