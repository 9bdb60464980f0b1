"""What compare_pytorch.py trains, as Lockstep configs; torch_train.py has the same in PyTorch."""
import dataclasses

SGD = "optimizer { sgd { momentum: 0.9 } }\nschedule { lr: 0.01 }"
PLAIN_SGD = "optimizer { sgd {} }\nschedule { lr: 0.01 }"
ADAMW = "optimizer { adamw { weight_decay: 0.01 } }\nschedule { lr: 0.0001 }"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    title: str
    model: str  # sections of the config
    data: str
    optimizer: str
    batch: int  # samples a rank and step
    unit: str  # what rates count
    units_per_sample: int
    flops_per_unit: float  # model FLOPs of a training step
    causal_flops_per_unit: float  # the same, with only the half of attention that the mask leaves
    first_steps: int  # of the run that finds out how long a step takes

    @property
    def images(self):
        return self.unit == "images"

    def title_in(self, precision):
        """The title names FP32 for some cases only, and BF16 always."""
        if precision == "FP32":
            return self.title
        return self.title.removesuffix(", float32") + ", BF16"

    def config(self, ranks, lanes, threads, steps):
        """The config of a run. Work per rank does not depend on the number of ranks."""
        return f"""name: "{self.name}"
model {{ {self.model} }}
data {{ {self.data} }}
train {{ global_batch: {self.batch * ranks} lanes: {lanes} steps: {steps} log_every: {steps} }}
{self.optimizer}
checkpoint {{ at_end: false }}
execution {{ threads: {threads} }}
output {{ tensorboard: false }}
"""


def mlp_flops(*widths):
    """6 FLOPs per weight and sample: a multiply-add in forward and two in backward."""
    return 6.0 * sum(i * o for i, o in zip(widths, widths[1:]))


def gpt_flops(layers, width, context, vocabulary, attention):
    """Per token: 6 per parameter, plus `attention` * layers * width * context."""
    block = 12 * width * width + 13 * width  # matrices and biases, two norms
    parameters = vocabulary * width + context * width + layers * block + 2 * width
    return 6.0 * parameters + attention * layers * width * context


def conv_flops(image, stem, blocks, width, bottleneck, classes):
    """Per image of a ResNet: 6 per weight and place where it is applied. stem: kernel, stride,
    pool's stride."""
    kernel, stride, pool = stem
    size = image // stride
    total = 3 * 64 * kernel * kernel * size * size
    size //= pool
    inputs = 64
    for stage, count in enumerate(blocks):
        middle = width << stage
        outputs = 4 * middle if bottleneck else middle
        for block in range(count):
            step = 2 if stage > 0 and block == 0 else 1
            before, size = size * size, size // step
            here = size * size
            if bottleneck:
                total += (
                    inputs * middle * before + 9 * middle * middle * here + middle * outputs * here)
            else:
                total += 9 * inputs * middle * here + 9 * middle * outputs * here
            if step != 1 or inputs != outputs:
                total += inputs * outputs * here
            inputs = outputs
    return 6.0 * (total + inputs * classes)


def _resnet_case(name, title, model, image, classes, batch, flops):
    return Case(
        name, title, f"resnet {{ {model} }}",
        f"synthetic {{ samples: {64 * batch} height: {image} width: {image} classes: {classes} }}",
        SGD, batch, "images", 1, flops, flops, 2)


def _mlp_case(name, title, widths, loss, optimizer, batch, first_steps):
    hidden = " ".join(f"hidden: {width}" for width in widths[1:-1])
    flops = mlp_flops(*widths)
    return Case(name, title, f"mlp {{ {hidden} activation: RELU loss: {loss} }}",
                f"synthetic {{ features: {widths[0]} classes: {widths[-1]} }}", optimizer, batch,
                "samples", 1, flops, flops, first_steps)


def llama_flops(layers, width, kv_width, mlp_width, context, vocabulary, attention):
    """Per token, of a tied head and heads that fill the width: 6 per weight, and attention."""
    block = 2 * width * (width + kv_width) + 3 * width * mlp_width + 2 * width
    return (6.0 * (vocabulary * width + layers * block + width)
            + attention * layers * width * context)


def bert_flops(layers, width, context, vocabulary):
    """Per token of a masked language model: 6 per weight that multiplies it, and attention."""
    block = 12 * width * width + 13 * width
    head = width * width + 3 * width + vocabulary * (width + 1)
    return 6.0 * (layers * block + head) + 12.0 * layers * width * context


_GPT2 = {"layers": 12, "width": 768, "context": 256, "vocabulary": 50257}
_SMOLLM = {"layers": 30, "width": 576, "mlp_width": 1536, "context": 256, "vocabulary": 49152}
_BERT = {"layers": 12, "width": 768, "context": 128, "vocabulary": 30522}

CASES = {
    case.name: case for case in (
        _mlp_case("mlp", "MLP 784-512-512-10, batch 128, SGD with momentum", (784, 512, 512, 10),
                  "SOFTMAX_CROSS_ENTROPY", SGD, 128, 100),
        _mlp_case("table", "table network 64-32-1, batch 32, SGD, binary cross-entropy",
                  (64, 32, 1), "BINARY_CROSS_ENTROPY", PLAIN_SGD, 32, 5000),
        Case("gpt2_124m", "GPT-2 124M, T = 256, batch 2, AdamW, float32",
             "gpt { heads: 12 " + " ".join(f"{k}: {v}" for k, v in _GPT2.items()) + " }",
             "synthetic { classes: 50257 }", ADAMW, 2, "tokens", 256,
             gpt_flops(**_GPT2, attention=12), gpt_flops(**_GPT2, attention=6), 2),
        Case("smollm_135m", "SmolLM 135M (Llama), T = 256, batch 2, AdamW, float32",
             "llama { heads: 9 kv_heads: 3 tied_head: true "
             + " ".join(f"{k}: {v}" for k, v in _SMOLLM.items()) + " }",
             "synthetic { classes: 49152 }", ADAMW, 2, "tokens", 256,
             llama_flops(**_SMOLLM, kv_width=192, attention=12),
             llama_flops(**_SMOLLM, kv_width=192, attention=6), 2),
        Case("bert_base", "BERT-base, masked tokens, T = 128, batch 8, AdamW, float32",
             "bert { heads: 12 dropout: 0 " + " ".join(f"{k}: {v}" for k, v in _BERT.items()) + " }",
             "synthetic { classes: 30522 }", ADAMW, 8, "tokens", 128,
             bert_flops(**_BERT), bert_flops(**_BERT), 2),
        _resnet_case("resnet18", "ResNet-18, 32 x 32 images, batch 64, SGD with momentum, float32",
                     "depth: 18 stem: CIFAR", 32, 10, 64,
                     conv_flops(32, (3, 1, 1), (2, 2, 2, 2), 64, False, 10)),
        _resnet_case("resnet50", "ResNet-50, 224 x 224 images, batch 8, SGD with momentum, float32",
                     "depth: 50", 224, 1000, 8,
                     conv_flops(224, (7, 2, 2), (3, 4, 6, 3), 64, True, 1000)),
    )
}
