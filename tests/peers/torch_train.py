#!/usr/bin/env python3
"""One rank of PyTorch training one of the cases of compare_pytorch.py; prints one JSON object.

Ranks are started by compare_pytorch.py, which also pins them, and meet through a file (--meet).
Every rank trains on batches that lie ready in memory: PyTorch pays for no data loading here.
"""
import argparse
import contextlib
import inspect
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Gpt2(nn.Module):
    """GPT-2 with the operators that PyTorch itself offers for its parts."""

    def __init__(self, layers=12, heads=12, width=768, context=256, vocabulary=50257):
        super().__init__()
        self.heads = heads
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm_1": nn.LayerNorm(width),
                "qkv": nn.Linear(width, 3 * width),
                "mix": nn.Linear(width, width),
                "norm_2": nn.LayerNorm(width),
                "up": nn.Linear(width, 4 * width),
                "down": nn.Linear(4 * width, width),
            }) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):  # (B, T)
        x = self.token(tokens) + self.position.weight[:tokens.shape[1]]
        for block in self.blocks:
            qkv = block["qkv"](block["norm_1"](x)).chunk(3, dim=-1)
            q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block["mix"](mixed.transpose(1, 2).flatten(2))
            hidden = F.gelu(block["up"](block["norm_2"](x)), approximate="tanh")
            x = x + block["down"](hidden)
        return F.linear(self.norm(x), self.token.weight)  # (B, T, V), tied


class Logits(nn.Module):
    """The logits of a model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, return_dict=False)[0]


def smollm():
    import transformers
    return Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
        tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa")))


def bert():
    import transformers
    return Logits(transformers.BertForMaskedLM(transformers.BertConfig(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa")))


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Residual(nn.Module):
    """A block of ResNet (v1.5): two 3x3 convolutions, or 1x1, 3x3, 1x1."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        kernels = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        if not bottleneck:
            kernels = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        layers = []
        for inside, outside, kernel, step in kernels:
            layers += [conv(inside, outside, kernel, step), nn.BatchNorm2d(outside),
                       nn.ReLU(inplace=True)]
        self.branch = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x), inplace=True)


def resnet(blocks, bottleneck, classes, small):
    layers = [
        conv(3, 64, 3) if small else conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if not small:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Residual(inputs, 64 << stage, stride, bottleneck))
            inputs = (64 << stage) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def make_case(name, rank, fused):
    """Model, optimizer, loss function, and input and target of a batch."""
    # PyTorch before 2.3 has no fused kernel on CPUs; "foreach" is the fastest of its time.
    kernel = ({"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters
              else {"foreach": True})
    kernel = kernel if fused else {}
    generator = torch.Generator().manual_seed(1 + rank)
    if name == "bert_base":
        # Texts that fill the context, so that no mask slows PyTorch down.
        model = bert()
        tokens = torch.randint(0, 30522, (8, 128), generator=generator)
        hidden = torch.rand(tokens.shape, generator=generator) < 1 / 7
        targets = tokens.masked_fill(~hidden, -100)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kernel)
        loss = lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return model, optimizer, loss, tokens.masked_fill(hidden, 103), targets
    if name in ("gpt2_124m", "smollm_135m"):
        model, vocabulary = (Gpt2(), 50257) if name == "gpt2_124m" else (smollm(), 49152)
        tokens = torch.randint(0, vocabulary, (2, 257), generator=generator)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kernel)
        loss = lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return model, optimizer, loss, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    if name in ("resnet18", "resnet50"):
        small = name == "resnet18"
        batch, size, classes = (64, 32, 10) if small else (8, 224, 1000)
        model = resnet((2, 2, 2, 2) if small else (3, 4, 6, 3), not small, classes, small)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **kernel)
        return (model, optimizer, F.cross_entropy,
                torch.randn((batch, 3, size, size), generator=generator),
                torch.randint(0, classes, (batch,), generator=generator))
    if name == "mlp":
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                              nn.Linear(512, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **kernel)
        return (model, optimizer, F.cross_entropy, torch.randn((128, 784), generator=generator),
                torch.randint(0, 10, (128,), generator=generator))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **kernel)
    return (model, optimizer, F.binary_cross_entropy_with_logits,
            torch.randn((32, 64), generator=generator),
            torch.randint(0, 2, (32, 1), generator=generator).float())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=["mlp", "table", "gpt2_124m", "smollm_135m", "bert_base", "resnet18",
                                 "resnet50"], required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--meet", help="path of a new file in which several ranks meet")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup-seconds", type=float, default=1)
    parser.add_argument("--least-steps", type=int, default=4)
    parser.add_argument("--fused", action="store_true", help="the optimizer's fused kernel")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--autocast", action="store_true",
                        help="the forward pass under torch.autocast in bfloat16")
    parser.add_argument("--bf16-products", action="store_true",
                        help="oneDNN may round inputs of float32 products to bfloat16")
    parser.add_argument("--bf16-hook", action="store_true", help="gradients travel in bfloat16")
    parser.add_argument("--channels-last", action="store_true", help="images as N, H, W, C")
    parser.add_argument("--onednn", action="store_true", help="matrix products by oneDNN, not MKL")
    args = parser.parse_args()

    torch.set_flush_denormal(True)
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    if args.onednn:
        # oneDNN may then round inputs to bfloat16 where the CPU has dot products for it, which
        # ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI (or AVX2) forbids: what remains is its float32 kernel.
        if "VNNI" not in os.environ.get("ONEDNN_MAX_CPU_ISA", ""):
            parser.error("--onednn needs ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI, or it is not float32")
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    if args.bf16_products:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        torch.backends.mkldnn.conv.fp32_precision = "bf16"
    model, optimizer, loss_of, x, y = make_case(args.case, args.rank, args.fused)
    if args.channels_last:
        model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
    parameters = sum(p.numel() for p in model.parameters())
    if args.ranks > 1:
        torch.distributed.init_process_group("gloo", init_method=f"file://{args.meet}",
                                             rank=args.rank, world_size=args.ranks)
        model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False,
                                                    gradient_as_bucket_view=True, static_graph=True)
        if args.bf16_hook:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if args.compile:
        model = torch.compile(model)

    forward_precision = (torch.autocast("cpu", dtype=torch.bfloat16) if args.autocast
                         else contextlib.nullcontext())

    def step():
        optimizer.zero_grad(set_to_none=True)
        with forward_precision:
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def run_for(seconds, least_steps):
        """Seconds of each step. All ranks take the same number: the slowest decides."""
        times, losses, begin = [], [], time.perf_counter()
        check_every = 1 if args.ranks == 1 or args.case not in ("mlp", "table") else 100
        while True:
            start = time.perf_counter()
            losses.append(step().item())
            times.append(time.perf_counter() - start)
            if len(times) % check_every != 0:
                continue
            done = time.perf_counter() - begin > seconds and len(times) >= least_steps
            if args.ranks > 1:
                vote = torch.tensor([float(done)])
                torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MIN)
                done = bool(vote.item())
            if done:
                return times, losses

    _, first_losses = run_for(args.warmup_seconds, 1)
    cpu_begin = os.times().user
    times, losses = run_for(args.seconds, args.least_steps)
    cpu_s = os.times().user - cpu_begin
    print(json.dumps({
        "torch": torch.__version__,
        "rank": args.rank,
        "parameters": parameters,
        "steps": len(times),
        "step_ms": 1e3 * statistics.median(times),
        "mean_step_ms": 1e3 * statistics.fmean(times),
        "cpu_step_ms": 1e3 * cpu_s / len(times),
        "first_loss": first_losses[0],
        "last_loss": losses[-1],
    }), flush=True)
    if args.ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
