#!/usr/bin/env python3
"""The ONNX files of built-in families in ONNX Runtime, beside `lockstep predict`.

    compare_written_onnx.py LOCKSTEP [NAME ...]

Trains each network for three steps on random data, exports it, checks the file with onnx.checker and runs it in ONNX
Runtime on the evaluation data. Prints the largest difference of the outputs, as a share of the largest output. Ends with
1 where it is above 1e-4. Needs numpy, onnx, onnxruntime.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime

LIMIT = 1e-4
TOKENS = 16
SMALL = "layers: 2 heads: 4 width: 32 context: 16 vocabulary: 50"
# Name: network, extents of a sample (none: tokens), further fields of the config, as of --set.
CASES = {
    "mlp": ("mlp { hidden: [16, 8] activation: GELU_TANH dropout: 0.2 }", (7,), ""),
    "mlp-average": ("mlp { hidden: [16] activation: SILU }", (7,), "train.ema_decay=0.5"),
    "mlp-images": ("mlp { hidden: [16] activation: GELU_ERF }", (28, 40, 1), ""),
    "lenet": ("lenet { activation: TANH pooling: AVERAGE }", (32, 32, 3), ""),
    "lenet-wide": ("lenet {}", (28, 40, 1), ""),
    "alexnet": ("alexnet { local_response_norm: true }", (70, 64, 3), ""),
    "vgg": ("vgg { depth: 11 batch_norm: true }", (32, 32, 3), ""),
    "resnet20": ("resnet { depth: 20 shortcut: PADDED sync_batch_norm: true }", (32, 32, 3), "train.lanes=2"),
    "resnet18": ("resnet { depth: 18 stem: CIFAR }", (32, 32, 3), ""),
    "resnext": ("resnet { depth: 50 groups: 32 width_per_group: 4 }", (64, 64, 3), ""),
    "mobilenet": ("mobilenet_v2 {}", (70, 64, 3), ""),
    "vit": ("vit { layers: 2 heads: 2 width: 32 mlp_width: 48 patch: 8 }", (32, 40, 3), ""),
    "vit-bf16": ("vit { layers: 2 heads: 2 width: 32 mlp_width: 48 patch: 8 }", (32, 32, 3), "execution.precision=BF16"),
    "gpt": (f"gpt {{ {SMALL} dropout: 0.1 }}", None, ""),
    "gptj": (f"gpt {{ {SMALL} positions: ROTARY rotary_size: 4 parallel_block: true tied_head: false head_bias: true }}", None, ""),
    "llama": (f"llama {{ {SMALL} kv_heads: 2 mlp_width: 48 qk_norm: true sliding_window: 5 }}", None, ""),
    "llama-dynamic": (f"llama {{ {SMALL} kv_heads: 4 mlp_width: 48 rope_scaling: DYNAMIC rope_original_context: 8 rope_factor: 2 }}", None, ""),
    "llama-lora": (f"llama {{ {SMALL} kv_heads: 2 mlp_width: 48 }}", None, "adapter.lora.rank=4 adapter.lora.match=(q|v)_proj"),
}
REST = """
train { global_batch: 8 steps: 3 }
optimizer { adamw {} }
schedule { lr: 0.002 }
checkpoint { every: 3 }
output { tensorboard: false }
"""


def lockstep(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{arguments}: {done.stdout}{done.stderr}")


def write_data(folder, extents):
    """Returns the data section, and the file's input by its name."""
    draw = numpy.random.default_rng(1)
    if extents is None:
        tokens = draw.integers(0, 50, 12 * TOKENS + 1).astype(numpy.uint16)
        tokens.tofile(folder / "tokens.bin")
        return 'tokens { train: "tokens.bin" eval: "tokens.bin" }', {"input_ids": tokens[:-1].reshape(-1, TOKENS).astype(numpy.int64)}
    images = len(extents) == 3
    x = draw.integers(0, 256, (24, *extents), numpy.uint8) if images else draw.normal(size=(24, *extents)).astype("f")
    numpy.save(folder / "x.npy", x)
    numpy.save(folder / "y.npy", (numpy.arange(24) % 5).astype(numpy.int32))
    section = " ".join(f'{part}_inputs: "x.npy" {part}_labels: "y.npy"' for part in ("train", "eval"))
    if images:
        mean, std = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]) if extents[2] == 3 else ([0.5], [0.5])
        x = ((x / 255 - mean) / std).astype("f")
    return f"npy {{ {section} }}", {"features": x.reshape(24, -1), "pixel_values": x.transpose(0, 3, 1, 2) if images else x}


def outputs_of(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:8 + size])["output"]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    return numpy.frombuffer(content[begin:end], numpy.float32).reshape(entry["shape"])


def difference(binary, folder, network, extents, fields):
    data, given = write_data(folder, extents)
    config, run = folder / "run.textproto", folder / "run"
    config.write_text(f'model {{ {network} }}\ndata {{ dir: "{folder}" {data} }}\n{REST}')
    fields = [part for field in fields.split() for part in ("--set", field)]
    average = ["--average"] if "train.ema_decay=0.5" in fields else []
    lockstep(binary, "train", config, "--run-dir", run, *fields)
    lockstep(binary, "export", run, "--format", "onnx", "--out", folder / "net.onnx", *average)
    lockstep(binary, "predict", config, "--checkpoint", run, "--out", folder / "out.safetensors", *fields,
             "--set", "execution.precision=FP32", *average, *(["--logits"] if extents is None else []))
    onnx.checker.check_model(folder / "net.onnx", full_check=True)
    session = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["output"], {x.name: given[x.name] for x in session.get_inputs()})[0]
    wanted = outputs_of(folder / "out.safetensors")
    return numpy.abs(found - wanted).max() / numpy.abs(wanted).max()


def main():
    failed = False
    for name, case in CASES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            share = difference(sys.argv[1], pathlib.Path(folder), *case)
        print(f"{name}: {share:.1e}", flush=True)
        failed |= not share <= LIMIT
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
