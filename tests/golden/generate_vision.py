#!/usr/bin/env python3
"""Makes the golden files of convolutional networks with PyTorch: loss, gradients and running
statistics of one training step in float64, from weights and images that a formula gives;
resnet18_mixup with smoothed labels, and image i mixed with image IMAGES - 1 - i.

    python3 generate_vision.py [NAME...]            needs torch and numpy; of two networks
    torchvision

Of each gradient its norm and some elements are kept. The float32 run beside it shows how far
rounding alone moves them ("float32_deviation", relative to the norm of each tensor).
"""
import json
import math
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
IMAGES, SIDE, CLASSES = 4, 64, 10
MEAN, STD = [0.5, 0.4375, 0.375], [0.25, 0.25, 0.3125]
KEPT = 8  # elements of each gradient
ZERO = 0.1  # norm below which a gradient counts as zero: of a bias before a batch norm it is


def words(count, seed):
    """32-bit numbers: word i is a mix of i and the seed (the finalizer of MurmurHash3)."""
    x = numpy.arange(count, dtype=numpy.uint64) * 2654435761 + seed * 40503
    x &= 0xffffffff
    for multiplier, shift in ((0x85ebca6b, 16), (0xc2b2ae35, 13)):
        x ^= x >> shift
        x = (x * multiplier) & 0xffffffff
    return x ^ (x >> 16)


def uniform(count, seed):
    """Multiples of 2^-23 in [-1, 1)."""
    return (words(count, seed) >> 8).astype(numpy.float64) / 2**23 - 1


class Block(nn.Module):

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        else:
            shapes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        self.count = len(shapes)
        for i, (c, o, kernel, s) in enumerate(shapes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(c, o, kernel, s, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(o))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = F.relu(y)
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):

    def __init__(self, blocks, bottleneck):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, count in enumerate(blocks):
            width, layers = 64 << stage, []
            for i in range(count):
                layers.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, bottleneck))
                inputs = 4 * width if bottleneck else width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def classifier(sizes):
    """Linear layers with the names of torchvision's, which has a dropout before or after each."""
    layers = nn.ModuleDict()
    for (number, inputs), outputs in zip(sizes, [inputs for _, inputs in sizes[1:]] + [CLASSES]):
        layers[str(number)] = nn.Linear(inputs, outputs)
    return layers


def classify(layers, x):
    *hidden, last = layers.values()
    for layer in hidden:
        x = F.relu(layer(x))
    return last(x)


class Vgg16(nn.Module):

    def __init__(self, batch_norm):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512,
                        0):
            if outputs == 0:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            layers += [nn.BatchNorm2d(outputs)] if batch_norm else []
            layers.append(nn.ReLU())
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = classifier([(0, 512 * 7 * 7), (3, 4096), (6, 4096)])

    def forward(self, x):
        return classify(self.classifier, self.avgpool(self.features(x)).flatten(1))


class Alexnet(nn.Module):

    def __init__(self, local_response_norm):
        super().__init__()
        self.features = nn.ModuleDict({"0": nn.Conv2d(3, 64, 11, 4, 2),
                                       "3": nn.Conv2d(64, 192, 5, padding=2),
                                       "6": nn.Conv2d(192, 384, 3, padding=1),
                                       "8": nn.Conv2d(384, 256, 3, padding=1),
                                       "10": nn.Conv2d(256, 256, 3, padding=1)})
        self.norm = (nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2) if local_response_norm
                     else nn.Identity())
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = classifier([(1, 256 * 6 * 6), (4, 4096), (6, 4096)])

    def forward(self, x):
        for number, layer in self.features.items():
            x = F.relu(layer(x))
            if number in ("0", "3"):
                x = self.norm(x)
            if number in ("0", "3", "10"):
                x = F.max_pool2d(x, 3, 2)
        return classify(self.classifier, self.avgpool(x).flatten(1))


class Lenet(nn.Module):

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = (
            nn.Linear(16 * 13 * 13, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES))

    def forward(self, x):
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


def from_torchvision(name, **options):
    import torchvision
    return getattr(torchvision.models, name)(num_classes=CLASSES, **options)


def set_weights(model):
    """Tensor number n, by name, is uniform(its elements, n + 1), scaled."""
    with torch.no_grad():
        for n, (name, parameter) in enumerate(sorted(model.named_parameters())):
            values = torch.tensor(uniform(parameter.numel(), n + 1)).reshape(parameter.shape)
            if parameter.dim() > 1:
                scale = math.sqrt(4 / parameter[0].numel())
                values = values * numpy.float64(numpy.float32(scale))
            else:
                values = values * 0.25 + (1 if name.endswith("weight") else 0)
                if name.endswith("bn3.weight"):
                    values = values / 4  # or rounding would decide many of ResNet-50's ReLUs
            parameter.copy_(values)


def run(make, mix, label_smoothing, dtype):
    model = make().to(torch.float64)
    set_weights(model)
    model.to(dtype)
    pixels = words(IMAGES * SIDE * SIDE * 3, 1001).reshape(IMAGES, SIDE, SIDE, 3) >> 24
    x = (torch.tensor(pixels.astype(numpy.float64)) / 255 - torch.tensor(MEAN).double())
    x = (x / torch.tensor(STD).double()).permute(0, 3, 1, 2)
    labels = torch.tensor([(3 * i + 1) % CLASSES for i in range(IMAGES)])
    targets = F.one_hot(labels, CLASSES).double()
    x, targets = ((mix * t + (1 - mix) * t.flip(0)).to(dtype) for t in (x, targets))
    loss = F.cross_entropy(model(x), targets, reduction="sum", label_smoothing=label_smoothing)
    loss.backward()
    tensors = {f"d_{k}": p.grad for k, p in model.named_parameters()}
    tensors.update({k: b for k, b in model.named_buffers() if "num_batches" not in k})
    return loss.item(), {k: t.double().flatten() for k, t in tensors.items()}


def main():
    torch.set_num_threads(1)
    cases = (("resnet18", lambda: Resnet([2, 2, 2, 2], False), 1, 0),
             ("resnet18_mixup", lambda: Resnet([2, 2, 2, 2], False), 0.6875, 0.125),
             ("resnet50", lambda: Resnet([3, 4, 6, 3], True), 1, 0),
             ("vgg16", lambda: Vgg16(False), 1, 0),
             ("vgg16_norms", lambda: Vgg16(True), 1, 0.125),
             ("alexnet", lambda: Alexnet(False), 0.6875, 0),
             ("alexnet_norms", lambda: Alexnet(True), 1, 0),
             ("lenet", Lenet, 1, 0),
             ("mobilenet_v2", lambda: from_torchvision("mobilenet_v2", dropout=0), 1, 0.125),
             ("resnext50", lambda: from_torchvision("resnext50_32x4d"), 0.6875, 0))
    for name, *case in cases:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        loss, tensors = run(*case, torch.float64)
        loss32, tensors32 = run(*case, torch.float32)
        deviation = max((tensors32[k] - t).norm().item() / max(t.norm().item(), ZERO)
                        for k, t in tensors.items())
        kept = {}
        for key, t in sorted(tensors.items()):
            at = [len(t) * i // KEPT for i in range(min(KEPT, len(t)))]
            kept[key] = {"norm": t.norm().item(), "at": at, "values": [t[i].item() for i in at]}
        golden = {"loss": loss, "float32_deviation": deviation,
                  "float32_loss_deviation": abs(loss32 / loss - 1), "tensors": kept}
        (HERE / f"{name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
        print(f"{name}: loss {loss:.6f}, float32 off by {deviation:.1e}")


if __name__ == "__main__":
    main()
