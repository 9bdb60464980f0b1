#!/usr/bin/env python3
"""Networks that take noise off images, beside PyTorch: Diffusion Transformers as the family dit, and
from an ONNX file, and a U-Net from a file.

    compare_diffusion.py LOCKSTEP [--steps 20] [CASE ...]

A small network with random weights is trained by both from the same weights with AdamW on the same
images, with the noise, times and lost classes that Lockstep draws, which are drawn here again. The
judge is PyTorch in double precision: the largest relative differences from it of losses, last weights
and the loss of an evaluation are printed, and beside them PyTorch's own in single precision. Then
both make images of the last weights, with and without guidance: the largest difference of a pixel is
printed, in steps of 1/255. Ends with 1 where a loss is off by more than 1e-4, or a pixel by more than 1.
Needs torch, onnxscript, numpy, safetensors, PIL.
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

HEIGHT, WIDTH, CHANNELS, CLASSES, PATCH = 12, 8, 3, 5, 2
FEATURES, LAYERS, HEADS = 32, 2, 4
BATCH, LANES, SEED, LABEL_DROPOUT, LR, EVALUATED = 12, 2, 7, 0.25, 1e-3, 30
TIMES, LIMIT = 1000, 1e-4
MIXTURES = [("LINEAR", "EPSILON"), ("LINEAR", "SAMPLE"), ("LINEAR", "VELOCITY"),
            ("COSINE", "EPSILON"), ("COSINE", "VELOCITY"), ("FLOW_MATCHING", "VELOCITY")]
NOISE = 9 << 24  # the purpose of the streams of noise


# ---- What Lockstep draws ----

def philox_words(seed, step, purpose, first, count):
    """Words [first, first + count) of a stream of Philox 4x32-10."""
    blocks = numpy.arange(first // 4, (first + count + 3) // 4, dtype=numpy.uint64)
    mask = numpy.uint64(0xffffffff)
    c = [blocks & mask, (blocks >> numpy.uint64(32)) ^ numpy.uint64(purpose),
         numpy.full_like(blocks, step), numpy.zeros_like(blocks)]
    k = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        p = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(p[1] >> numpy.uint64(32)) ^ c[1] ^ numpy.uint64(k[0]), p[1] & mask,
             (p[0] >> numpy.uint64(32)) ^ c[3] ^ numpy.uint64(k[1]), p[0] & mask]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return numpy.stack(c, 1).reshape(-1)[first % 4:first % 4 + count]


def normal(words):
    p = torch.from_numpy((words.astype(numpy.float64) + 0.5) * 2.0**-32)
    return torch.special.ndtri(p).float().double()


def shares(schedule):
    """Of image and noise, by time."""
    t = torch.arange(TIMES, dtype=torch.float64)
    if schedule == "LINEAR":
        beta = torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64)
    else:
        power = lambda t: torch.cos((t / TIMES + 0.008) / 1.008 * torch.pi / 2) ** 2
        beta = (1 - power(t + 1) / power(t)).clamp(max=0.999)
    power = torch.cumprod(1 - beta, 0)
    return torch.sqrt(power), torch.sqrt(1 - power)


def draw(schedule, target, images, labels, step, first, training):
    """Of images (N, C, H, W) in [-1, 1]: what the network is given, and what it is to say."""
    count, elements = len(images), images[0].numel()
    purpose = NOISE | (0 if training else 2)
    noise = normal(philox_words(SEED, step, purpose, first * elements, count * elements))
    noise = noise.reshape(count, HEIGHT, WIDTH, CHANNELS).permute(0, 3, 1, 2)
    words = philox_words(SEED, step, purpose | 1, 2 * first, 2 * count).reshape(count, 2)
    uniform = torch.from_numpy((words >> numpy.uint64(8)).astype(numpy.float64) * 2.0**-24)
    if schedule == "FLOW_MATCHING":
        b = uniform[:, 0]
        a, times = 1 - b, 1000 * b
    else:
        index = torch.from_numpy((words[:, 0] * numpy.uint64(TIMES) >> numpy.uint64(32)).astype(numpy.int64))
        a, b = (share.float().double()[index] for share in shares(schedule))
        times = index.double()
    a, b = (x.reshape(-1, 1, 1, 1) for x in (a, b))
    straight = schedule == "FLOW_MATCHING"
    wanted = {"EPSILON": noise, "SAMPLE": images,
              "VELOCITY": noise - images if straight else a * noise - b * images}[target]
    if training:
        labels = torch.where(uniform[:, 1] < LABEL_DROPOUT, CLASSES, labels)
    return a * images + b * noise, times, labels, wanted


# ---- The network ----

def sines(at, width):
    rates = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angles = at.reshape(-1, 1).double() * rates
    return torch.cat((torch.sin(angles), torch.cos(angles)), 1)


def modulated(x, shift, scale):
    x = nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6)
    return x * (1 + scale[:, None]) + shift[:, None]


def changes(inputs, count):
    return nn.Sequential(nn.SiLU(), nn.Linear(inputs, count * inputs))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(FEATURES, 3 * FEATURES), nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(FEATURES, 4 * FEATURES), nn.Linear(4 * FEATURES, FEATURES)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp, self.adaLN_modulation = Attention(), Mlp(), changes(FEATURES, 6)

    def forward(self, x, c):
        shift, scale, gate, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, 1)
        x = x + gate[:, None] * self.attn(modulated(x, shift, scale))
        return x + gate2[:, None] * self.mlp(modulated(x, shift2, scale2))


class Dit(nn.Module):
    def __init__(self):
        super().__init__()
        self.x_embedder = nn.ModuleDict({"proj": nn.Conv2d(CHANNELS, FEATURES, PATCH, PATCH)})
        mlp = nn.Sequential(nn.Linear(256, FEATURES), nn.SiLU(), nn.Linear(FEATURES, FEATURES))
        self.t_embedder = nn.ModuleDict({"mlp": mlp})
        self.y_embedder = nn.ModuleDict({"embedding_table": nn.Embedding(CLASSES + 1, FEATURES)})
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final_layer = nn.ModuleDict({"linear": nn.Linear(FEATURES, PATCH * PATCH * CHANNELS),
                                          "adaLN_modulation": changes(FEATURES, 2)})
        rows, columns = torch.meshgrid(torch.arange(HEIGHT // PATCH), torch.arange(WIDTH // PATCH), indexing="ij")
        positions = torch.cat((sines(columns, FEATURES // 2), sines(rows, FEATURES // 2)), 1)
        self.register_buffer("pos_embed", positions.reshape(HEIGHT // PATCH, WIDTH // PATCH, FEATURES).float())

    def forward(self, x, times, labels):
        x = self.x_embedder["proj"](x).flatten(2).transpose(1, 2) + self.pos_embed.reshape(1, -1, FEATURES)
        rates = 10000.0 ** (-torch.arange(128, dtype=torch.float64) / 128)
        angles = times[:, None] * rates.float().to(times.dtype)
        told = torch.cat((torch.cos(angles), torch.sin(angles)), 1)
        c = self.t_embedder["mlp"](told) + self.y_embedder["embedding_table"](labels)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final_layer["adaLN_modulation"](c).chunk(2, 1)
        x = self.final_layer["linear"](modulated(x, shift, scale))
        x = x.reshape(-1, HEIGHT // PATCH, WIDTH // PATCH, PATCH, PATCH, CHANNELS)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, CHANNELS, HEIGHT, WIDTH)


class TimedUNet(nn.Module):
    """Images made smaller and larger again; what is known of time and class shifts and scales norms."""

    def __init__(self, classes=True):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, FEATURES), nn.SiLU(), nn.Linear(FEATURES, FEATURES))
        self.classes = nn.Embedding(CLASSES + 1, FEATURES) if classes else None
        self.stem = nn.Conv2d(CHANNELS, 16, 3, padding=1)
        self.down = nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 24)
        self.told = nn.Linear(FEATURES, 48)
        self.middle = nn.Conv2d(24, 24, 3, padding=1)
        self.up = nn.ConvTranspose2d(24, 16, 4, stride=2, padding=1)
        self.last = nn.Sequential(nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, CHANNELS, 3, padding=1))

    def forward(self, x, times, labels=None):
        rates = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
        angles = times[:, None] * rates.float().to(x.dtype)
        told = self.time(torch.cat((torch.sin(angles), torch.cos(angles)), 1))
        if self.classes is not None:
            told = told + self.classes(labels)
        x = self.stem(x)
        shift, scale = self.told(nn.functional.silu(told))[:, :, None, None].chunk(2, 1)
        y = nn.functional.silu(self.norm(self.down(x)) * (1 + scale) + shift)
        return self.last(torch.cat((x, self.up(nn.functional.silu(self.middle(y)))), 1))


# ---- Training ----

def as_images(pixels):
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 127.5 - 1


def train(model, case, data, steps):
    """Losses, last weights and the loss of an evaluation, in the model's type."""
    model = copy.deepcopy(model)
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.AdamW(model.parameters(), LR, weight_decay=0)
    losses = []

    def loss_of(pixels, labels, step, training):
        x, times, labels, wanted = draw(*case, as_images(pixels), torch.from_numpy(labels), step, 0, training)
        told = (times.to(dtype), labels)[:2 if told_of_classes(model) else 1]
        return nn.functional.mse_loss(model(x.to(dtype), *told), wanted.to(dtype))

    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        loss = loss_of(data["train_x"][rows], data["train_y"][rows], step, True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        evaluated = loss_of(data["eval_x"], data["eval_y"], 0, False).item()
    return losses, model.state_dict(), evaluated, model


def apart(a, b):
    return abs(a - b) / abs(b)


def distance(found, judge):
    return (max(apart(a, b) for a, b in zip(found[0], judge[0], strict=True)),
            max(((found[1][k].double() - v).abs().max() / v.abs().max()).item() for k, v in judge[1].items()),
            apart(found[2], judge[2]))


def run(lockstep, *arguments):
    done = subprocess.run([lockstep, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1])


def told_of_classes(model):
    return getattr(model, "classes", True) is not None


def write_onnx(model, path):
    """With the inputs and outputs as they are, and the samples open."""
    given = [torch.zeros(2, CHANNELS, HEIGHT, WIDTH), torch.ones(2), torch.zeros(2, dtype=torch.int64)]
    given = given if told_of_classes(model) else given[:2]
    torch.onnx.export(model, tuple(given), path, dynamo=True, optimize=False, opset_version=23, verbose=False,
                      input_names=["x", "t", "y"][:len(given)],
                      dynamic_shapes=tuple({0: torch.export.Dim.DYNAMIC} for _ in given))


def train_ours(lockstep, folder, kind, case, data, model, steps):
    for name, array in data.items():
        numpy.save(folder / f"{name}.npy", array)
    how = f"label_dropout: {LABEL_DROPOUT} schedule: {case[0]} target: {case[1]}"
    if kind == "dit":
        section = f"dit {{ layers: {LAYERS} heads: {HEADS} width: {FEATURES} patch: {PATCH} {how} }}"
        first = f'init_from: "{folder}/first.safetensors"'
    else:
        write_onnx(model, folder / "net.onnx")
        section, first = f'onnx {{ file: "{folder}/net.onnx" diffusion {{ {how} }} }}', ""
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "first.safetensors")
    config = folder / "config.textproto"
    config.write_text(f"""
seed: {SEED}
model {{ {section} }}
data {{ dir: "{folder}" shuffle: false npy {{ train_inputs: "train_x.npy" train_labels: "train_y.npy"
                                             eval_inputs: "eval_x.npy" eval_labels: "eval_y.npy" }} }}
train {{ global_batch: {BATCH} lanes: {LANES} steps: {steps} {first} }}
optimizer {{ adamw {{ weight_decay: 0 }} }}
schedule {{ lr: {LR} }}
eval {{ every: {steps} }}
execution {{ threads: 1 }}
output {{ tensorboard: false }}
""")
    run(lockstep, "train", config, "--run-dir", folder / "run")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    run(lockstep, "export", folder / "run", "--out", folder / "last.safetensors")
    return ([row["loss"] for row in rows if "loss" in row], load_file(folder / "last.safetensors"),
            [row["eval_loss"] for row in rows if "eval_loss" in row][-1])


# ---- New images ----

@torch.no_grad()
def sample(model, case, classes, steps, guidance, seed):
    schedule, target = case
    count = len(classes)
    noise = normal(philox_words(seed, 0, NOISE | 4, 0, count * HEIGHT * WIDTH * CHANNELS))
    x = noise.reshape(count, HEIGHT, WIDTH, CHANNELS).permute(0, 3, 1, 2)
    labels = torch.tensor(classes)

    def told(x, time):
        times = torch.full((count,), float(time), dtype=torch.float64)
        if not told_of_classes(model):
            return model(x, times)
        with_class = model(x, times, labels)
        if guidance == 1:
            return with_class
        without = model(x, times, torch.full_like(labels, CLASSES))
        return without + guidance * (with_class - without)

    if schedule == "FLOW_MATCHING":
        for i in range(steps):
            x = x - told(x, 1000 * (1 - i / steps)) / steps
        return x
    a, b = shares(schedule)
    times = [round(TIMES * left / steps) - 1 for left in range(steps, 0, -1)]
    for i, time in enumerate(times):
        say = told(x, time)
        image = {"EPSILON": (x - b[time] * say) / a[time], "SAMPLE": say, "VELOCITY": a[time] * x - b[time] * say}[target]
        image = image.clamp(-1, 1)
        noise = (x - a[time] * image) / b[time]
        later = i + 1 < len(times)
        x = (a[times[i + 1]] * image + b[times[i + 1]] * noise) if later else image
    return x


def compare_samples(lockstep, folder, case, model):
    """The largest difference of a pixel, with and without guidance."""
    worst, classes = 0.0, [0, 3, 4, 1]
    for steps, guidance in [(20, 1), (8, 2.5)]:
        out = folder / "samples.png"
        which = ("--classes", ",".join(map(str, classes))) if told_of_classes(model) else ()
        run(lockstep, "sample", folder / "run", "--count", len(classes), *which, "--steps", steps, "--guidance", guidance, "--seed", 11, "--columns", 1, "--out", out)
        grid = numpy.asarray(Image.open(out)).astype(numpy.float64)
        theirs = ((sample(model, case, classes, steps, guidance, 11) + 1) * 127.5).clamp(0, 255)
        for i, image in enumerate(theirs.permute(0, 2, 3, 1).numpy()):
            top = 2 + i * (HEIGHT + 2)
            worst = max(worst, numpy.abs(grid[top:top + HEIGHT, 2:2 + WIDTH] - image).max())
    return worst


def compare(lockstep, name, steps):
    kind, make, case = CASES[name]
    random = numpy.random.default_rng(1)
    data = {f"{part}_{kind}": random.integers(0, 256, (n, HEIGHT, WIDTH, CHANNELS), numpy.uint8)
            if kind == "x" else random.integers(0, CLASSES, n, numpy.int64)
            for part, n in (("train", BATCH * steps), ("eval", EVALUATED)) for kind in "xy"}
    torch.manual_seed(0)
    model = make()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        ours = train_ours(lockstep, folder, kind, case, data, model, steps)
        judge = train(copy.deepcopy(model).double(), case, data, steps)
        here, there = distance(ours, judge), distance(train(model, case, data, steps), judge)
        last = copy.deepcopy(model).double()
        last.load_state_dict({k: v.double() for k, v in ours[1].items()}, strict=kind == "dit")
        pixel = compare_samples(lockstep, folder, case, last)
    good = here[0] <= LIMIT and here[2] <= LIMIT and pixel <= 1
    print(f"{name:32} losses {here[0]:.1e} (PyTorch {there[0]:.1e}) weights {here[1]:.1e} ({there[1]:.1e}) "
          f"evaluation {here[2]:.1e} ({there[2]:.1e}) pixels {pixel:.2f}{'' if good else '  FAILED'}", flush=True)
    return good


CASES = {f"dit {s} {t}": ("dit", Dit, (s, t)) for s, t in MIXTURES}
CASES |= {f"onnx dit {s} {t}": ("onnx", Dit, (s, t)) for s, t in (MIXTURES[0], MIXTURES[-1])}
CASES |= {f"onnx unet {s} {t}": ("onnx", TimedUNet, (s, t)) for s, t in (MIXTURES[0], MIXTURES[4])}
CASES["onnx unet without classes"] = ("onnx", lambda: TimedUNet(classes=False), MIXTURES[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("cases", nargs="*", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    good = [compare(args.lockstep, name, args.steps) for name in args.cases or CASES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
