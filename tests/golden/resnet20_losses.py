#!/usr/bin/env python3
"""Golden losses of a ResNet-20 over 50 steps: what PyTorch makes of Lockstep's initial weights and
the same pictures.

    resnet20_losses.py --lockstep BINARY          writes resnet20_losses.json beside this file;
    needs PyTorch and numpy

tests/integration/resnet_losses_test.py trains the same and compares.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import tempfile

STEPS, BATCH, LR, MOMENTUM, DECAY = 50, 32, 0.0002, 0.9, 0.0005

CONFIG = f"""
model {{ resnet {{ depth: 20 shortcut: PADDED }} }}
data {{ cifar {{ train: "pictures.bin" }} shuffle: false }}
train {{ global_batch: {BATCH} lanes: 1 steps: {STEPS} log_every: {STEPS} }}
optimizer {{ sgd {{ momentum: {MOMENTUM} weight_decay: {DECAY} }} decay_bias_and_norm: true }}
schedule {{ lr: {LR} }}
output {{ tensorboard: false }}
"""


def write_pictures(path, records=640):
    """CIFAR-10's layout; each class has a colour and a stripe of its own, under noise."""
    draw = random.Random(7)
    with open(path, "wb") as file:
        for _ in range(records):
            label = draw.randrange(10)
            noise = draw.randbytes(3072)
            pixels = bytes((noise[i] // 2 + (100 if i // 1024 == label % 3 else 0) +
                            (27 if i % 32 // 3 == label else 0)) & 255 for i in range(3072))
            file.write(bytes([label]) + pixels)


def train_lockstep(binary, folder, steps, lr=LR):
    """Trains in `folder`; the run folder."""
    config = folder / "config.textproto"
    config.write_text(CONFIG)
    write_pictures(folder / "pictures.bin")
    run = folder / f"run{steps}"
    subprocess.run([binary, "train", config, "--data", folder, "--run-dir", run, "--max-steps",
                    str(steps), "--set", f"schedule.lr={lr}", "--device", "cpu"], check=True,
                   capture_output=True, timeout=600)
    return run


def read_safetensors(path):
    import numpy
    import torch
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        values = numpy.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name] = torch.from_numpy(values.copy())
    return tensors


def build_model():
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.missing = outputs - inputs

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            if self.missing:
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.missing // 2, self.missing // 2))
            return F.relu(y + x)

    class Resnet20(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            inputs = 16
            for stage, width in enumerate((16, 32, 64), 1):
                blocks = []
                for i in range(3):
                    blocks.append(Block(inputs, width, 2 if i == 0 and stage > 1 else 1))
                    inputs = width
                setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            self.linear = nn.Linear(64, 10)

        def forward(self, x):
            x = F.relu(self.bn1(self.conv1(x)))
            for stage in (1, 2, 3):
                x = getattr(self, f"layer{stage}")(x)
            return self.linear(x.mean(dim=(2, 3)))

    return Resnet20().to(torch.float64)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    args = parser.parse_args()
    import torch
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Leaves the initial weights as they are.
        run = train_lockstep(args.lockstep, folder, 1, lr=1e-30)
        (weights,) = (run / "checkpoints").glob("step-*/model.safetensors")
        model = build_model()
        missing, unexpected = model.load_state_dict(
            {k: v.to(torch.float64) for k, v in read_safetensors(weights).items()}, strict=False)
        assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing), (
            missing, unexpected)
        records = (folder / "pictures.bin").read_bytes()
    pictures = torch.frombuffer(bytearray(records), dtype=torch.uint8).reshape(-1, 3073)
    labels = pictures[:, 0].long()
    mean, std = (torch.tensor(v, dtype=torch.float64).reshape(1, 3, 1, 1)
                 for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    images = (pictures[:, 1:].reshape(-1, 3, 32, 32).to(torch.float64) / 255 - mean) / std
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    losses = []
    for step in range(STEPS):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % len(labels)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"torch": torch.__version__, "losses": losses}, indent=1) + "\n")
    print(f"{path}: {losses[0]:.6f} ... {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
