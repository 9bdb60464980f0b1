"""Small networks of many kinds as ONNX files with weights of their own, each with a config that
trains it; for tests that train the same networks in different ways."""
import random

from onnx_train_test import FLOAT, INT64, model, node

SIDE, CLASSES, CHANNELS = 8, 5, 3
T, C, HEADS, V = 6, 8, 2, 11
IMAGES = (f"synthetic {{ samples: 64 height: {SIDE} width: {SIDE} channels: {CHANNELS} "
          f"classes: {CLASSES} }}")
TEXTS = "synthetic { samples: 64 }"


class Network:
    """Nodes and weights, one after the other. A layer's method takes and gives names of values."""

    def __init__(self, seed):
        self.nodes, self.weights, self.count = [], {}, 0
        self.draw = random.Random(seed)

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def add(self, op, *inputs, **attributes):
        result = self.name()
        self.nodes.append(node(op, list(inputs), [result], **attributes))
        return result

    def uniform(self, name, *extents, low=-0.3, high=0.3):
        count = 1
        for extent in extents:
            count *= extent
        self.weights[name] = (list(extents), [self.draw.uniform(low, high) for _ in range(count)])
        return name

    def constant(self, *values, scalar=False):
        """By a name that PyTorch's exporter gives what it computed itself: it does not learn."""
        self.count += 1
        name = f"val_{self.count}"
        self.weights[name] = ([] if scalar else [len(values)], list(values))
        return name

    def affine(self, name, width):
        """Gain and bias of a norm."""
        return self.uniform(f"{name}.weight", width, low=0.5,
                            high=1.5), self.uniform(f"{name}.bias", width)

    def conv(self, name, x, inputs, outputs, kernel=3, stride=1, group=1, op="Conv"):
        of = (inputs, outputs // group) if op == "ConvTranspose" else (outputs, inputs // group)
        padding = (kernel - 1) // 2
        return self.add(op,
                        x,
                        self.uniform(f"{name}.weight", *of, kernel, kernel),
                        self.uniform(f"{name}.bias", outputs),
                        kernel_shape=[kernel] * 2,
                        pads=[padding] * 4,
                        strides=[stride] * 2,
                        group=group)

    def batch_norm(self, name, x, width):
        gain, bias = self.affine(name, width)
        return self.add("BatchNormalization",
                        x,
                        gain,
                        bias,
                        self.uniform(f"{name}.running_mean", width),
                        self.uniform(f"{name}.running_var", width, low=0.5, high=1.5),
                        epsilon=1e-5,
                        momentum=0.9)

    def group_norm(self, name, x, width, groups):
        return self.add("GroupNormalization", x, *self.affine(name, width), num_groups=groups)

    def layer_norm(self, name, x, width):
        return self.add("LayerNormalization", x, *self.affine(name, width), axis=-1, epsilon=1e-5)

    def linear(self, name, x, inputs, outputs):
        matrix = self.add("Transpose", self.uniform(f"{name}.weight", outputs, inputs), perm=[1, 0])
        return self.add("Add", self.add("MatMul", x, matrix), self.uniform(f"{name}.bias", outputs))

    def silu(self, x):
        return self.add("Mul", x, self.add("Sigmoid", x))

    def head(self, x, width):
        pooled = self.add("Flatten", self.add("GlobalAveragePool", x))
        return self.add("Gemm",
                        pooled,
                        self.uniform("head.weight", CLASSES, width),
                        self.uniform("head.bias", CLASSES),
                        transB=1)

    def reshape(self, x, *extents):
        return self.add("Reshape", x, self.constant(*extents))

    def block(self, name, x, tokens, causal=False, hidden=None):
        """A layer of a transformer, its norms first. hidden (N, 1, 1, T): what is added to all
        scores of a token."""
        normed = self.layer_norm(f"{name}.norm1", x, C)
        parts = []
        for part in "qkv":
            rows = self.reshape(self.linear(f"{name}.{part}", normed, C, C), 0, tokens, HEADS,
                                C // HEADS)
            parts.append(self.add("Transpose", rows, perm=[0, 2, 1, 3]))
        if hidden:
            keys = self.add("Transpose", parts[1], perm=[0, 1, 3, 2])
            scores = self.add("Mul", self.add("MatMul", parts[0], keys),
                              self.constant((C // HEADS)**-0.5, scalar=True))
            shares = self.add("Softmax", self.add("Add", scores, hidden), axis=-1)
            mixed = self.add("MatMul", shares, parts[2])
        else:
            mixed = self.add("Attention", *parts, is_causal=int(causal))
        rows = self.reshape(self.add("Transpose", mixed, perm=[0, 2, 1, 3]), 0, tokens, C)
        x = self.add("Add", x, self.linear(f"{name}.proj", rows, C, C))
        up = self.add("Gelu",
                      self.linear(f"{name}.up", self.layer_norm(f"{name}.norm2", x, C), C, 2 * C),
                      approximate="tanh")
        return self.add("Add", x, self.linear(f"{name}.down", up, 2 * C, C))

    def file(self, inputs, output, extents, name="y"):
        self.nodes.append(node("Identity", [output], [name]))
        return model(self.nodes, self.weights, inputs, (name, extents), opset=23)

    def file_of_images(self, y):
        return self.file([("x", ["batch", CHANNELS, SIDE, SIDE])], y, ["batch", CLASSES])

    def file_of_tokens(self, y):
        return self.file([("input_ids", ["batch", T], INT64)], y, ["batch", T, V])


def cnn():
    """Residual, with batch norms, a depthwise convolution and pools."""
    n = Network(1)
    x = n.add("Relu", n.batch_norm("bn1", n.conv("stem", "x", CHANNELS, 8), 8))
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = n.add("HardSwish", n.batch_norm("bn2", n.conv("deep", x, 8, 8, group=8), 8))
    y = n.batch_norm("bn3", n.conv("point", y, 8, 8, kernel=1), 8)
    x = n.add("Relu", n.add("Add", x, y))
    return n.file_of_images(n.head(n.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]), 8))


def unet():
    """Norms by groups, images made smaller and larger, what passes by, and a class for each pixel."""
    n = Network(2)
    wide = n.silu(n.group_norm("gn1", n.conv("stem", "x", CHANNELS, 8), 8, 4))
    x = n.silu(n.group_norm("gn2", n.conv("down1", wide, 8, 8, stride=2), 8, 2))
    gain, bias = n.affine("in3", 12)
    x = n.silu(n.add("InstanceNormalization", n.conv("down2", x, 8, 12, stride=2), gain, bias))
    x = n.add("Resize", x, "", n.constant(1.0, 1.0, 2.0, 2.0), mode="linear")
    x = n.conv("up", x, 12, 8, kernel=4, stride=2, op="ConvTranspose")
    x = n.add("Concat", x, wide, axis=1)
    x = n.silu(n.group_norm("gn4", n.conv("last", x, 16, 8), 8, 4))
    x = n.add("Softmax", n.conv("head", x, 8, CLASSES, kernel=1), axis=1)
    return n.file([("x", ["batch", CHANNELS, SIDE, SIDE])], x, ["batch", CLASSES, SIDE, SIDE])


def vit():
    """Patches, a token for the class, places."""
    n = Network(3)
    patches = n.add("Conv",
                    "x",
                    n.uniform("patches.weight", C, CHANNELS, 4, 4),
                    n.uniform("patches.bias", C),
                    kernel_shape=[4, 4],
                    strides=[4, 4])
    count = (SIDE // 4)**2
    tokens = n.add("Transpose", n.reshape(patches, 0, C, count), perm=[0, 2, 1])
    batch = n.add("Shape", tokens, start=0, end=1)
    first = n.add("Expand", n.uniform("class_token", 1, 1, C),
                  n.add("Concat", batch, n.constant(1, C), axis=0))
    x = n.add("Add", n.add("Concat", first, tokens, axis=1), n.uniform("places", 1, count + 1, C))
    x = n.layer_norm("norm", n.block("block", x, count + 1), C)
    return n.file_of_images(
        n.linear("head", n.add("Gather", x, n.constant(0, scalar=True), axis=1), C, CLASSES))


def gpt():
    """Tokens and places, a table that is the output's too."""
    n = Network(4)
    x = n.add("Add", n.add("Gather", n.uniform("tokens", V, C), "input_ids"),
              n.add("Gather", n.uniform("places", T, C), n.constant(*range(T))))
    x = n.layer_norm("norm", n.block("block", x, T, causal=True), C)
    return n.file_of_tokens(n.add("MatMul", x, n.add("Transpose", "tokens", perm=[1, 0])))


def bert():
    """Texts with a mask of their padding and segments, of which the first token says the class."""
    n = Network(6)
    x = n.add("Add", n.add("Gather", n.uniform("tokens", V, C), "input_ids"),
              n.add("Gather", n.uniform("segments", 2, C), "token_type_ids"))
    x = n.layer_norm("norm1", n.add("Add", x, n.uniform("places", 1, T, C)), C)
    hidden = n.add("Sub", n.constant(1.0, scalar=True), n.add("Cast", "attention_mask", to=FLOAT))
    hidden = n.add("Mul", n.add("Unsqueeze", hidden, n.constant(1, 2)),
                   n.constant(-3.4e38, scalar=True))
    x = n.layer_norm("norm2", n.block("block", x, T, hidden=hidden), C)
    first = n.add("Tanh",
                  n.linear("pooler", n.add("Gather", x, n.constant(0, scalar=True), axis=1), C, C))
    inputs = [(name, ["batch", T], INT64)
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    return n.file(inputs, n.linear("head", first, C, CLASSES), ["batch", CLASSES])


def recurrent():
    """An LSTM in both directions and a GRU behind it."""
    n = Network(5)
    x = n.add("Transpose", n.add("Gather", n.uniform("tokens", V, C), "input_ids"), perm=[1, 0, 2])
    x = n.add("LSTM",
              x,
              n.uniform("lstm.w", 2, 4 * C, C),
              n.uniform("lstm.r", 2, 4 * C, C),
              n.uniform("lstm.b", 2, 8 * C),
              hidden_size=C,
              direction="bidirectional")
    x = n.reshape(n.add("Transpose", x, perm=[0, 2, 1, 3]), T, -1, 2 * C)
    x = n.add("GRU",
              x,
              n.uniform("gru.w", 1, 3 * C, 2 * C),
              n.uniform("gru.r", 1, 3 * C, C),
              n.uniform("gru.b", 1, 6 * C),
              hidden_size=C,
              linear_before_reset=1)
    x = n.add("Transpose", n.add("Squeeze", x, n.constant(1)), perm=[1, 0, 2])
    return n.file_of_tokens(n.linear("head", x, C, V))


def denoiser():
    """Noised images, to which sines of their time and a row of their class are added."""
    n = Network(7)
    times = n.add("Unsqueeze", "t", n.constant(1))
    told = n.add("Sin", n.add("Mul", times, n.constant(*(1000.0**(-i / C) for i in range(C)))))
    told = n.linear("times", told, C, C)
    told = n.add("Add", told, n.add("Gather", n.uniform("classes", CLASSES + 1, C), "y"))
    x = n.add("Add", n.conv("stem", "x", CHANNELS, C), n.add("Unsqueeze", told, n.constant(2, 3)))
    x = n.conv("last", n.silu(n.group_norm("norm", x, C, 2)), C, CHANNELS)
    image = ["batch", CHANNELS, SIDE, SIDE]
    return n.file([("x", image), ("t", ["batch"]), ("y", ["batch"], INT64)], x, image, name="out")


# The file, the data, and fields of the section onnx beside the file.
NETWORKS = {
    "cnn": (cnn, IMAGES, ""),
    "unet": (unet, IMAGES, ""),
    "vit": (vit, IMAGES, ""),
    "gpt": (gpt, TEXTS, ""),
    "bert": (bert, TEXTS, "task: SEQUENCE_CLASSES"),
    "recurrent": (recurrent, TEXTS, ""),
    "denoiser": (denoiser, IMAGES, "diffusion { schedule: COSINE target: VELOCITY }"),
}


def config(folder, name, rest):
    """The text of a config that trains the network's file in the folder; `rest` has all but model
    and data."""
    _, data, fields = NETWORKS[name]
    model_text = f'model {{ onnx {{ file: "{folder}/{name}.onnx" {fields} }} }}'
    return f"{model_text}\ndata {{ {data} }}\n{rest}"


def write(folder):
    """NAME.onnx of each network."""
    for name, (file_of, *_) in NETWORKS.items():
        (folder / f"{name}.onnx").write_bytes(file_of())
