#!/usr/bin/env python3
"""What a step costs of a network from an ONNX file, beside the same network as a family.

    onnx_speed.py LOCKSTEP [--repeats 3] [CASE ...]

Networks are made by torchvision and transformers and exported. Each is trained on generated data for 2 and for 8 steps,
from the file and as the family in turns, on one thread with AdamW: the difference of the CPU seconds, by 6, is a
step's. Prints the medians, and how many times as much work the file's network does in a second.
Needs torch, torchvision, transformers, onnxscript.
"""
import argparse
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import warnings

import torch
import torchvision
import transformers
from torch import nn

warnings.filterwarnings("ignore")
FEW, MANY = 2, 8  # steps
VOCABULARY = 8192


class Logits(nn.Module):
    """Calls a model of transformers with its inputs by name."""

    def __init__(self, model, names):
        super().__init__()
        self.m, self.names = model, names

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        given = dict(zip(self.names, (input_ids, attention_mask, token_type_ids), strict=False))
        return self.m(**given).logits


def gpt2():
    config = transformers.GPT2Config(n_embd=384, n_layer=6, n_head=6, vocab_size=VOCABULARY, n_positions=256, resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0, use_cache=False)
    return Logits(transformers.GPT2LMHeadModel(config), ["input_ids"]), (torch.zeros(2, 256, dtype=torch.int64),)


def bert(width, layers):
    config = transformers.BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
                                     intermediate_size=4 * width, vocab_size=VOCABULARY, max_position_embeddings=128,
                                     hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3)
    ids = torch.zeros(2, 128, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return Logits(transformers.BertForSequenceClassification(config), names), (ids, ids + 1, ids)


def bert_case(width, layers):
    family = (f"bert {{ layers: {layers} heads: {width // 64} width: {width} mlp_width: {4 * width} vocabulary: {VOCABULARY} "
              "context: 128 task: SEQUENCE_CLASSES dropout: 0 }")
    return (lambda: bert(width, layers)), 8, "classes: 3", family, "task: SEQUENCE_CLASSES"


# The network, samples of a batch, what data there are, the family, and what stands beside the file.
CASES = {
    "resnet50": (lambda: (torchvision.models.resnet50(), (torch.zeros(2, 3, 64, 64),)), 8,
                 "height: 64 width: 64 channels: 3 classes: 1000", "resnet { depth: 50 }", ""),
    "gpt2": (gpt2, 4, f"classes: {VOCABULARY}",
             f"gpt {{ layers: 6 heads: 6 width: 384 vocabulary: {VOCABULARY} context: 256 dropout: 0 }}", ""),
    "bert": bert_case(384, 6),
    "bert768": bert_case(768, 3),
}


def cpu_seconds(lockstep, folder, model, batch, data, steps):
    config = folder / "config.textproto"
    config.write_text(f"""
model {{ {model} }}
data {{ synthetic {{ samples: 512 {data} }} }}
train {{ global_batch: {batch} lanes: 1 steps: {steps} }}
optimizer {{ adamw {{}} }}
schedule {{ lr: 1e-5 }}
execution {{ threads: 1 }}
output {{ tensorboard: false }}
checkpoint {{ at_end: false every: 0 }}
""")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as run:
        done = subprocess.run([lockstep, "train", config, "--run-dir", pathlib.Path(run) / "run"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[-1])
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def compare(lockstep, name, repeats):
    make, batch, data, family, fields = CASES[name]
    torch.manual_seed(0)
    model, given = make()
    seconds = {"family": [], "file": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        torch.onnx.export(model.eval(), given, folder / "net.onnx", dynamo=True, optimize=False, opset_version=23, verbose=False,
                          dynamic_shapes=tuple({0: torch.export.Dim.DYNAMIC} for _ in given))
        sections = {"family": family, "file": f'onnx {{ file: "{folder}/net.onnx" {fields} }}'}
        for _ in range(repeats):
            for kind, section in sections.items():
                few, many = (cpu_seconds(lockstep, folder, section, batch, data, steps) for steps in (FEW, MANY))
                seconds[kind].append((many - few) / (MANY - FEW))
    family, file = (statistics.median(seconds[kind]) for kind in ("family", "file"))
    print(f"{name:10} family {family:.3f} file {file:.3f} CPU seconds a step, {family / file:.2f} times the family's rate", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("cases", nargs="*", default=[])
    args = parser.parse_args()
    for name in args.cases or CASES:
        compare(args.lockstep, name, args.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
