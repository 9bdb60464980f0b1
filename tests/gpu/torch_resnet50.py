#!/usr/bin/env python3
"""Training steps of ResNet-50 in PyTorch on this machine's GPU, for the comparison: channels last,
BF16 autocast or TF32, fused SGD, torch.compile on demand. Images of bytes lie on the GPU and are
normalised there, as in Lockstep. A step accumulates --accumulate batches, as Lockstep's lanes do.
Prints one line of JSON."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """Version 1.5: the stride is in the 3x3 convolution."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(conv(inputs, 4 * width, 1, stride),
                                            nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Resnet50(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, 2 if i == 0 and stage > 0 else 1))
                inputs = 4 * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(inputs, classes)
        self.register_buffer("mean", 255 * torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", 255 * torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, pixels, labels):
        x = (pixels.float() - self.mean) / self.std
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.blocks(F.max_pool2d(x, 3, 2, 1))
        return F.cross_entropy(self.fc(x.mean((2, 3))).float(), labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--precision", choices=("bf16", "tf32"), default="bf16")
    parser.add_argument("--deterministic", action="store_true",
                        help="the same bits from run to run, as Lockstep's")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = not args.deterministic
    torch.backends.cudnn.deterministic = args.deterministic
    model = Resnet50(1000).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, weight_decay=5e-5,
                                fused=True)
    run = torch.compile(model) if args.compile else model
    pixels = torch.randint(0, 256, (args.batch, 3, 224, 224), dtype=torch.uint8, device="cuda")
    pixels = pixels.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,), device="cuda")
    half = args.precision == "bf16"

    def step():
        for _ in range(args.accumulate):
            with torch.autocast("cuda", dtype=torch.bfloat16) if half else contextlib.nullcontext():
                loss = run(pixels, labels) / args.accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    print(json.dumps({"torch": torch.__version__, "step_ms": 1e3 * seconds,
                      "images_per_s": args.batch * args.accumulate / seconds,
                      "memory_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
