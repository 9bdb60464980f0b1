#!/usr/bin/env python3
"""Networks that torch.onnx.export has written, beside PyTorch.

    compare_onnx.py [--steps 20] [--modes eval,train] [--optimizers sgd,adamw] LOCKSTEP [CASE ...]

Each network is made from a seed, exported and trained from the file and by PyTorch from the same weights on the
same batches. What learns must be what PyTorch's named_parameters() have a gradient for, and nothing else.

The judge is PyTorch in double precision. Compared are losses, and the updates of each tensor, which are its last
elements less its first ones: the norm of the difference from the judge's update, over the norm of that, of elements
whose gradient is more than rounding. The weights themselves would hide a tensor that never moves. Printed are the largest relative difference of losses and
the updates of the worst tensor, beside those of PyTorch in single precision. Ends with 1 if ours are above the limits and
far above PyTorch's own: a tensor whose gradient is 0 but for rounding, as a bias before a batch norm, moves by
chance in both, and a network with many batch norms makes much of the last bit.

    mode      torch.onnx.export
    eval      dynamo, opset 23, optimize=False, of the model in evaluation mode
    train     the same in training mode
    default   dynamo with its defaults, in evaluation mode: parameters have other names, or are functions of PyTorch's
    script    TorchScript, in evaluation mode: the file does not declare its parameters

Batch norms of the evaluation mode's file take the batch's statistics in training, as PyTorch does; default and script
fold them, which cannot be compared. Networks of text are those of compare_transformers.py, and have its data.
Needs torch, torchvision, transformers, diffusers, onnxscript, numpy, safetensors.
"""
import argparse
import copy
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy
import onnx
import torch
import torchvision
from safetensors.torch import load_file
from torch import nn

import compare_transformers
import onnx_forms
import onnx_updates
import onnx_zoo

warnings.filterwarnings("ignore")
BATCH, CLASSES, SIDE, FEATURES = 16, 10, 32, 60
ORDER = torch.randperm(16, generator=torch.Generator().manual_seed(2))
LIMIT, OWN = 1e-4, 10  # of losses and updates; and how many times as far as PyTorch's
SLOWER = {"efficientnet_b0": 0.01}  # times the rate: batch norms of 16 single pixels amplify what steps round
OPTIMIZERS = {"sgd": ("sgd { momentum: 0.9 }", 1e-3, lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)),
              "adamw": ("adamw { weight_decay: 0 }", 1e-4,
                        lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0))}


class Residual(nn.Module):
    """Depthwise convolutions, sums, uneven padding, a pool that rounds up, splits, selections."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.pool = nn.AvgPool2d(2)
        self.ends = nn.LayerNorm(8)
        self.head = nn.Linear(8 + 16, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = x + torch.relu(self.point(self.deep(x)))
        x = nn.functional.max_pool2d(self.pool(nn.functional.pad(x, (1, 0, 2, 1))), 3, 2, ceil_mode=True)
        both = torch.cat((x, torch.tanh(x)), 1)
        a, b = both.split(8, 1)
        means = torch.cat((self.ends(a.mean((2, 3))), torch.flatten(torch.cat((a, b), 1)[:, :, 3:5, 2], 1)[:, ::2].index_select(1, ORDER)), 1)
        return self.head(means)


class UNet(nn.Module):
    """Norms by groups, images made smaller and larger in all ways, a skip."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(4, 16), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.GroupNorm(3, 24), nn.SiLU(),
                                  nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False))
        self.deep = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.InstanceNorm2d(24, affine=True), nn.SiLU(),
                                  nn.Upsample(scale_factor=2, mode="nearest"))
        self.up = nn.ConvTranspose2d(24, 16, 4, stride=2, padding=1)
        self.deeper = nn.ConvTranspose2d(16, 16, 3, stride=2, padding=1, output_padding=1, groups=4)
        self.last = nn.Sequential(nn.Conv2d(48, 12, 3, padding=1), nn.GroupNorm(6, 12), nn.SiLU(),
                                  nn.MaxPool2d(3, 2, 1, dilation=2))
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        up = self.up(self.deep(self.down(x)))
        small = nn.functional.interpolate(x, size=(16, 16), mode="bilinear", align_corners=False)
        return self.head(self.last(torch.cat((x, up, self.deeper(small)), 1)).mean((2, 3)))


class Recurrent(nn.Module):
    """Features as a sequence, through recurrent layers in one direction and in both."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(24, 10, batch_first=True)
        self.head = nn.Linear(10 + 12, CLASSES)

    def forward(self, x):
        y, (_, cells) = self.lstm(x.reshape(-1, 10, 6))
        return self.head(torch.cat((self.gru(y)[0][:, -1], cells[0]), 1))


class Sound(nn.Module):
    """Features as a wave: long strides as wav2vec has them, norms by groups, pools, then causal blocks with dilation."""

    def __init__(self):
        super().__init__()
        self.wave = nn.Sequential(nn.Conv1d(1, 16, 10, stride=2, bias=False), nn.GroupNorm(16, 16), nn.GELU(),
                                  nn.Conv1d(16, 24, 3, padding="same"), nn.BatchNorm1d(24), nn.ReLU(), nn.MaxPool1d(2))
        self.blocks = nn.ModuleList(nn.Conv1d(24, 24, 3, padding=2 * d, dilation=d, groups=g) for d, g in ((1, 1), (2, 24), (4, 2)))
        self.up = nn.ConvTranspose1d(24, 12, 4, stride=2, padding=1)
        self.head = nn.Linear(12 + 24, CLASSES)

    def forward(self, x):
        x = self.wave(x.reshape(-1, 1, FEATURES))
        for block in self.blocks:
            x = x + torch.relu(block(x)[:, :, :-2 * block.dilation[0]])
        up = nn.functional.interpolate(self.up(x), scale_factor=2, mode="linear")
        return self.head(torch.cat((nn.functional.adaptive_avg_pool1d(up, 1).flatten(1), nn.functional.avg_pool1d(x, 3).amax(2)), 1))


class Volumes(nn.Module):
    """Features as volumes."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1, bias=False), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d((2, 2, 1)),
                                  nn.Conv3d(8, 12, (1, 2, 3), padding=(0, 1, 1), groups=2), nn.GroupNorm(3, 12), nn.SiLU())
        self.up = nn.Sequential(nn.ConvTranspose3d(12, 6, 2, stride=2), nn.AvgPool3d((2, 3, 3), 1, 1),
                                nn.ConvTranspose3d(6, 6, 3, stride=(1, 2, 1), padding=1, output_padding=(0, 1, 0)))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.up(self.down(x.reshape(-1, 1, 3, 4, 5))).mean((2, 3, 4)))


class Encoder(nn.Module):
    """Rows of pixels as tokens, two layers of attention, the mean of what they give."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(3 * SIDE, 24)
        self.places = nn.Parameter(torch.randn(SIDE, 24) * 0.1)
        layer = nn.TransformerEncoderLayer(24, 4, 40, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.RMSNorm(24)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x):
        x = self.rows(x.permute(0, 2, 1, 3).flatten(2)) + self.places
        return self.head(self.norm(self.layers(x)).mean(1))


class Auxiliary(nn.Module):
    """A second head, before the last block, that is to say the same."""

    weights = {"logits": 1, "early": 0.3}  # of the losses of its outputs

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU())
        self.early, self.head = nn.Linear(16, CLASSES), nn.Linear(24, CLASSES)

    def forward(self, x):
        x = self.first(x)
        return self.head(self.last(x).mean((2, 3))), self.early(x.mean((2, 3)))

    def losses(self, outputs, labels):
        return sum(weight * loss_of(y, labels) for y, weight in zip(outputs, self.weights.values(), strict=True))


class Conditioned(nn.Module):
    """diffusers' U-Net of images, their times and what they are to show, tokens that the pixels attend to."""

    inputs = {"x": (4, 16, 16), "t": (), "c": (7, 32)}  # extents of a sample
    values = 4 * 16 * 16

    def __init__(self):
        super().__init__()
        from diffusers import UNet2DConditionModel
        self.m = UNet2DConditionModel(
            sample_size=16, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32, attention_head_dim=8,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))

    def forward(self, x, t, c):
        return self.m(x, t, c, return_dict=False)[0]

    def sample(self, x):
        """Of rows of features: those of each input, one after the other."""
        parts = x.split([math.prod(extents) for extents in self.inputs.values()], 1)
        x, t, c = (part.reshape(-1, *extents) for part, extents in zip(parts, self.inputs.values(), strict=True))
        return x.contiguous(), t.long(), c.contiguous()

    def losses(self, outputs, targets):
        return nn.functional.mse_loss(outputs.flatten(1), targets.to(outputs.dtype))


class Autoencoder(nn.Module):
    """Gives values between 0 and 1, which are needed again for their gradient."""

    values = FEATURES

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 6), nn.ELU())
        self.outer = nn.Sequential(nn.Linear(6, 24), nn.Hardswish(), nn.Linear(24, FEATURES), nn.Sigmoid())

    def forward(self, x):
        return self.outer(self.inner(x))


FEATURE_CASES = ("mlp", "recurrent", "sound", "volumes", "conditioned", "autoencoder", "bounded", *onnx_zoo.FEATURE_CASES,
                 *onnx_forms.FORMS)
CASES = {
    "mlp": lambda: nn.Sequential(nn.Linear(FEATURES, 50), nn.GELU(), nn.Linear(50, 40), nn.Tanh(), nn.LayerNorm(40),
                                 nn.Linear(40, 30, bias=False), nn.ReLU(), nn.Linear(30, CLASSES)),
    "residual": Residual,
    "unet": UNet,
    "recurrent": Recurrent,
    "sound": Sound,
    "volumes": Volumes,
    "resnet18": lambda: torchvision.models.resnet18(num_classes=CLASSES),
    "mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=CLASSES, dropout=0),
    "efficientnet_b0": lambda: torchvision.models.efficientnet_b0(num_classes=CLASSES, dropout=0, stochastic_depth_prob=0),
    "convnext": lambda: torchvision.models.ConvNeXt(
        [torchvision.models.convnext.CNBlockConfig(16, 32, 2), torchvision.models.convnext.CNBlockConfig(32, None, 2)], 0.0, 0.1, CLASSES),
    "vit": lambda: torchvision.models.VisionTransformer(SIDE, 8, 2, 4, 32, 48, num_classes=CLASSES),
    "encoder": Encoder,
    "autoencoder": Autoencoder,
    "bounded": lambda: nn.Sequential(nn.Linear(FEATURES, 30), nn.ReLU(), nn.Linear(30, CLASSES), nn.Tanh()),
    "auxiliary": Auxiliary,
    "conditioned": Conditioned,
    "vgg11_bn": lambda: nn.Sequential(*torchvision.models.vgg11_bn().features, nn.Flatten(), nn.Linear(512, CLASSES)),
    **onnx_zoo.CASES,
    **onnx_forms.FORMS,
}
TEXTS = ("gpt2", "gpt2_untied", "gpt2_gelu", "gptj", "bert", "bert_classes", "bert_values", "bert_tags", "roberta",
         "roberta_classes", "llama", "llama_tied_mha", "llama3", "mistral", "mistral_window", "qwen2", "qwen3")


class TextDecoder(nn.Module):
    """Logits (N, T, V) of a causal language model."""

    def __init__(self, model):
        super().__init__()
        self.m = model

    def forward(self, input_ids):
        return self.m(input_ids=input_ids, use_cache=False).logits

    def sample(self, x):
        return (x,)


class TextEncoder(nn.Module):
    """Outputs of a network of texts, of samples whose rows are tokens, documents, positions and segments."""

    def __init__(self, model):
        super().__init__()
        self.m = model
        self.first = 0 if model.config.model_type == "bert" else model.config.pad_token_id + 1

    def forward(self, input_ids, attention_mask, position_ids, token_type_ids):
        return self.m(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids + self.first,
                      token_type_ids=token_type_ids).logits

    def sample(self, x):
        return x[:, 0].contiguous(), (x[:, 1] >= 0).long(), x[:, 2].contiguous(), x[:, 3].contiguous()


def arguments(model, x):
    return model.sample(x) if hasattr(model, "sample") else (x,)


def export(model, sample, path, mode):
    model.train(mode == "train")
    given = arguments(model, sample)
    names = {"input_names": list(getattr(model, "inputs", [])) or None, "output_names": list(getattr(model, "weights", ["y"]))}
    if mode == "script":
        names["input_names"] = names["input_names"] or ["x"]
        torch.onnx.export(model, given, path, dynamo=False, opset_version=17,
                          dynamic_axes={name: {0: "batch"} for name in names["input_names"]}, **names)
        return
    plain = {} if mode == "default" else {"optimize": False, "opset_version": 23}
    torch.onnx.export(model, given, path, dynamo=True, verbose=False, external_data=mode == "train",
                      dynamic_shapes=tuple({0: torch.export.Dim.DYNAMIC} for _ in given), **plain, **names)


def loss_of(outputs, labels):
    if labels.is_floating_point():
        return nn.functional.mse_loss(outputs, labels.to(outputs.dtype))
    return nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten(), ignore_index=-1)


def train(model, batches, make_optimizer):
    """Losses and updates of a copy of the model."""
    model = copy.deepcopy(model).train()
    updates = onnx_updates.Updates(model)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for x, labels in batches:
        outputs = model(*arguments(model, x))
        loss = model.losses(outputs, labels) if hasattr(model, "losses") else loss_of(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        updates.watch()
        optimizer.step()
        losses.append(loss.item())
    return losses, updates


def loss_distance(losses, true_losses):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, true_losses, strict=True))


def run(lockstep, *arguments):
    done = subprocess.run([lockstep, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1])


def train_ours(lockstep, folder, optimizer, lr, steps, data, fields=""):
    config = folder / "config.textproto"
    config.write_text(f"""
model {{ onnx {{ file: "{folder}/net.onnx" {fields} }} }}
data {{ {data} shuffle: false }}
train {{ global_batch: {BATCH} lanes: 1 steps: {steps} }}
optimizer {{ {optimizer} }}
schedule {{ lr: {lr} }}
execution {{ threads: 1 }}
output {{ tensorboard: false }}
""")
    run(lockstep, "train", config, "--run-dir", folder / "run")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    run(lockstep, "export", folder / "run", "--out", folder / "last.safetensors")
    run(lockstep, "export", folder / "run", "--format", "onnx", "--out", folder / "last.onnx")
    run(lockstep, "inspect", config, "--json", folder / "inspect.json")
    roles = json.loads((folder / "inspect.json").read_text())["training"]
    names = load_file(folder / "last.safetensors").keys()
    assert names == roles["tensors"].keys(), "inspect lists other tensors than the run has"
    before, after = ({x.name: torch.from_numpy(onnx.numpy_helper.to_array(x).copy()) for x in onnx.load(folder / name).graph.initializer}
                     for name in ("net.onnx", "last.onnx"))
    for name in before.keys() - names:
        assert torch.equal(before[name], after[name]), f"{name} is constant, but another one in the trained file"
    return [row["loss"] for row in rows if "loss" in row], {name: (before[name], after[name]) for name in names}, roles.get("made_of", {})


def samples_of(name, folder, steps):
    """The network, inputs, targets, and what stands in the sections data and onnx. Files go into the folder."""
    if name in TEXTS:
        model = compare_transformers.make_model(name)
        x, y, data = compare_transformers.make_data(model, folder)
        encodes = x.dim() == 3
        task = f"task: {compare_transformers.text_task_of(model).upper()}" if encodes else ""
        return TextEncoder(model) if encodes else TextDecoder(model), x, y, data.replace("FOLDER", str(folder)), task
    torch.manual_seed(0)
    model = CASES[name]()
    random = numpy.random.default_rng(1)
    images = name not in FEATURE_CASES
    count = BATCH * steps
    x = (random.integers(0, 256, (count, SIDE, SIDE, 3), numpy.uint8) if images
         else random.standard_normal((count, FEATURES), numpy.float32))
    y = random.integers(0, CLASSES, count, numpy.int64)
    fields = ""
    if name == "autoencoder":
        y = random.random((count, model.values), numpy.float32)
        fields = "loss: MEAN_SQUARED_ERROR "
    if name == "conditioned":
        extents = [math.prod(e) for e in model.inputs.values()]
        x = random.standard_normal((count, sum(extents)), numpy.float32)
        x[:, extents[0]] = random.integers(0, 1000, count)
        y = random.standard_normal((count, model.values), numpy.float32)
        fields = "loss: MEAN_SQUARED_ERROR " + " ".join(f'inputs {{ name: "{n}" is: FEATURES }}' for n in model.inputs)
    numpy.save(folder / "x.npy", x)
    numpy.save(folder / "y.npy", y)
    data = f'npy {{ train_inputs: "x.npy" train_labels: "y.npy" }} dir: "{folder}"'
    if images:
        data += " image { mean: [0, 0, 0] std: [1, 1, 1] }"
    given = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255 if images else torch.from_numpy(x)
    others = list(getattr(model, "weights", {}).items())[1:]
    fields += " ".join(f'losses {{ output: "{output}" weight: {weight} }}' for output, weight in others)
    return model, given, torch.from_numpy(y), data, fields


def doubled(batches):
    return [(x.double() if x.is_floating_point() else x, labels) for x, labels in batches]


def compare(lockstep, name, steps, modes, optimizers):
    good_in_all = True
    for mode in modes:
        for optimizer in optimizers:
            section, usual, make_with = OPTIMIZERS[optimizer]
            lr = usual * SLOWER.get(name, 1)
            make = lambda parameters, lr=lr, make_with=make_with: make_with(parameters, lr)
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                model, x, y, data, fields = samples_of(name, folder, steps)
                picks = [torch.arange(i, i + BATCH) % len(x) for i in range(0, BATCH * steps, BATCH)]
                batches = [(x[pick].contiguous(), y[pick]) for pick in picks]
                export(model, batches[0][0], folder / "net.onnx", mode)
                try:
                    losses, ours, made_of = train_ours(lockstep, folder, section, lr, steps, data, fields)
                except RuntimeError as refusal:
                    good_in_all &= mode in ("default", "script")
                    print(f"{name:22} {mode:7} {optimizer:5} refused: {refusal}", flush=True)
                    continue
                updates, learned = onnx_updates.named_as_pytorch(ours, made_of, model)
                true_losses, true = train(copy.deepcopy(model).double(), doubled(batches), make)
                own_losses, own = train(model, batches, make)
                true_updates, own_updates, aliases = true.taken(), own.taken(), onnx_updates.aliases_of(model)
                wanted = {aliases[k] for k in true_updates}
                here, there = loss_distance(losses, true_losses), loss_distance(own_losses, true_losses)
                away = lambda update, k: onnx_updates.distance(update, true_updates[k], true.clear.get(k))
                each = {k: (away(v, k), away(own_updates[k], k)) for k, v in updates.items() if k in true_updates}
                each = each or {"none that can be compared": (0.0, 0.0)}
                excess = lambda pair: pair[0] / max(LIMIT, OWN * pair[1])
                each = each or {"none that can be compared": (0.0, 0.0)}
                worst = max(each, key=lambda k: (excess(each[k]) > 1, each[k][0] if each[k][1] < LIMIT else 0))
                good = learned == wanted and here <= max(LIMIT, OWN * there) and excess(each[worst]) <= 1
                good_in_all &= good
                print(f"{name:22} {mode:7} {optimizer:5} losses {here:.1e} (PyTorch {there:.1e}) "
                      f"updates {each[worst][0]:.1e} ({each[worst][1]:.1e}){'' if good else f'  FAILED, {worst}'}", flush=True)
                if learned != wanted:
                    print(f"  learn here alone: {sorted(learned - wanted)}; in PyTorch alone: {sorted(wanted - learned)}", flush=True)
    return good_in_all


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--modes", default="eval,train")
    parser.add_argument("--optimizers", default="sgd,adamw")
    parser.add_argument("cases", nargs="*", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    modes, optimizers = args.modes.split(","), args.optimizers.split(",")
    good = [compare(args.lockstep, name, args.steps, modes, optimizers) for name in args.cases or (*CASES, *TEXTS)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
