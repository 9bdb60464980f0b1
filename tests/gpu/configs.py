"""The runs of the GPU check."""

# Images of a lane's batch; PyTorch's step takes as many as Lockstep's, of 4 lanes.
RESNET50_BATCH = 128

MLP = """
model { mlp { hidden: [512, 256] activation: GELU_TANH dropout: 0.1 } }
data { synthetic { samples: 4096 features: 100 classes: 10 } }
train { global_batch: 256 lanes: 8 steps: 100 hash_every: 50 }
optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
schedule { kind: COSINE lr: 0.002 warmup_steps: 10 }
execution { precision: FP32 }
output { tensorboard: false }
"""
GPT = """
model { gpt { layers: 4 heads: 4 width: 256 context: 128 dropout: 0.1 } }
data { synthetic { samples: 4096 classes: 512 } }
train { global_batch: 32 lanes: 8 steps: 100 hash_every: 50 }
optimizer { adamw { beta2: 0.95 weight_decay: 0.1 } clip_norm: 1 }
schedule { kind: COSINE lr: 0.001 warmup_steps: 10 }
comm { bucket_mib: 4 }
execution { precision: FP32 }
output { tensorboard: false }
"""
RESNET = """
model { resnet { depth: 20 shortcut: PADDED } }
data { synthetic { samples: 4096 classes: 10 height: 32 width: 32 channels: 3 } }
train { global_batch: 128 lanes: 8 steps: 100 hash_every: 50 }
optimizer { sgd { momentum: 0.9 weight_decay: 0.0001 } }
schedule { kind: COSINE lr: 0.002 warmup_steps: 10 }
execution { precision: FP32 }
output { tensorboard: false }
"""
TINY = """
model { gpt { layers: 1 heads: 2 width: 64 context: 32 dropout: 0.1 } }
data { synthetic { samples: 64 classes: 67 } }
train { global_batch: 4 lanes: 2 steps: 2 }
optimizer { adamw {} clip_norm: 1 }
schedule { lr: 0.001 }
checkpoint { at_end: false }
execution { precision: FP32 }
output { tensorboard: false }
"""
TINY_IMAGES = """
model { resnet { depth: 20 shortcut: PADDED } }
data { synthetic { samples: 16 classes: 10 height: 8 width: 8 channels: 3 } }
train { global_batch: 4 lanes: 2 steps: 1 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.001 }
checkpoint { at_end: false }
execution { precision: FP32 }
output { tensorboard: false }
"""


def with_lamb(text):
    """With rates by tensor and an average of the weights."""
    for adamw in ("adamw { beta2: 0.95 weight_decay: 0.1 }", "adamw {}"):
        text = text.replace(adamw, "lamb { weight_decay: 0.01 }")
    return text.replace("lanes:", "ema_decay: 0.9 lanes:")


def few_steps(text):
    """Where only the bits count: a dozen steps."""
    return text.replace("steps: 100 hash_every: 50", "steps: 12 hash_every: 6").replace(
        "warmup_steps: 10", "warmup_steps: 2")


# To try the check where a step takes long.
SMALL = (("steps: 12 hash_every: 6", "steps: 4 hash_every: 2"),
         ("global_batch: 128 lanes: 8 steps: 100 hash_every: 50",
          "global_batch: 16 lanes: 4 steps: 8 hash_every: 4"),
         ("global_batch: 128 lanes: 8", "global_batch: 16 lanes: 4"),
         ("height: 32 width: 32", "height: 8 width: 8"), ("hidden: [512, 256]", "hidden: [24]"),
         ("global_batch: 256", "global_batch: 16"),
         ("layers: 4 heads: 4 width: 256", "layers: 1 heads: 2 width: 16"),
         ("context: 128", "context: 8"), ("classes: 512", "classes: 33"),
         ("global_batch: 32", "global_batch: 8"), ("steps: 100", "steps: 12"),
         ("hash_every: 50", "hash_every: 6"), ("warmup_steps: 10", "warmup_steps: 2"))

# The same for GPT-2 and ResNet-50.
SMALL_BENCHMARKS = (("layers: 12 heads: 12 width: 768", "layers: 1 heads: 2 width: 16"),
                    ("layers: 24 heads: 16 width: 1024", "layers: 2 heads: 2 width: 16"),
                    ("context: 1024 vocabulary: 50257", "context: 8 vocabulary: 67"),
                    ("samples: 65536 classes: 50257", "samples: 64 classes: 67"),
                    ("global_batch: 128 ", "global_batch: 8 "),
                    ("global_batch: 64 ", "global_batch: 16 "),
                    ("depth: 50", "depth: 20 shortcut: PADDED"),
                    ("samples: 2048 classes: 1000 height: 224 width: 224",
                     "samples: 16 classes: 10 height: 8 width: 8"),
                    (f"global_batch: {4 * RESNET50_BATCH} ", "global_batch: 4 "))

# With GPT a batch that no GPU holds, some 600 GiB: `lockstep plan --gpu B200` says so in the tests.
TOO_LARGE = ["--set", "model.gpt.width=1024", "--set", "train.global_batch=128000"]

# Layers, heads, width, batch of a lane.
GPT2 = {"124M": (12, 12, 768, 16), "355M": (24, 16, 1024, 8)}


def gpt2(name, steps, lanes=8, lane_batch=0):
    layers, heads, width, batch = GPT2[name]
    batch = lanes * (lane_batch or batch)
    return f"""
model {{ gpt {{ layers: {layers} heads: {heads} width: {width} context: 1024 vocabulary: 50257 }} }}
data {{ synthetic {{ samples: 65536 classes: 50257 }} }}
train {{ global_batch: {batch} lanes: {lanes} steps: {steps} log_every: {steps} }}
optimizer {{ adamw {{ weight_decay: 0.1 }} clip_norm: 1 }}
schedule {{ lr: 0.0001 }}
checkpoint {{ at_end: false }}
execution {{ precision: BF16 }}
output {{ tensorboard: false }}
"""


def resnet50(steps):
    return f"""
model {{ resnet {{ depth: 50 }} }}
data {{ synthetic {{ samples: 2048 classes: 1000 height: 224 width: 224 channels: 3 }} }}
train {{ global_batch: {4 * RESNET50_BATCH} lanes: 4 steps: {steps} log_every: {steps} }}
optimizer {{ sgd {{ momentum: 0.9 weight_decay: 0.00005 }} }}
schedule {{ lr: 0.01 }}
checkpoint {{ at_end: false }}
output {{ tensorboard: false }}
"""
