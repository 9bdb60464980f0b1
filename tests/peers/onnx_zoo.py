"""Small networks of the kinds that people bring, for compare_onnx.py: those of torchvision and of
transformers, and some written by hand."""
import torch
import torchvision
from torch import nn

CLASSES, FEATURES = 10, 60
vision = torchvision.models


class Mixer(nn.Module):
    """Layers over the places of tokens, by transposes, and over their channels."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.places = nn.LayerNorm(16)
        self.across = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 64))
        self.along = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = x + self.across(self.places(x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.along(x)).mean(1))


class Excited(nn.Module):
    """Channels weighed by what they are like on the whole, a learned slope, pools that give a fixed size."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.slope = nn.PReLU(16)
        self.squeeze, self.expand = nn.Linear(16, 4), nn.Linear(4, 16)
        self.gain = nn.Parameter(torch.ones(1) * 0.5)
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.largest = nn.AdaptiveMaxPool2d(1)
        self.head = nn.Linear(80, CLASSES)

    def forward(self, x):
        x = self.slope(self.stem(x))
        weights = torch.sigmoid(self.expand(torch.relu(self.squeeze(x.mean((2, 3))))))
        x = x * weights[:, :, None, None] * self.gain
        return self.head(torch.cat((self.pool(x).flatten(1), self.largest(x).flatten(1)), 1))


class Attended(nn.Module):
    """nn.MultiheadAttention over features as tokens, before which a learned one stands."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.first = nn.Parameter(torch.randn(1, 1, 12) * 0.1)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        x = x.reshape(-1, 5, 12)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1)
        return self.head(self.attention(x, x, x, need_weights=False)[0][:, 0])


class Gated(nn.Module):
    """A batch norm of features, halves that gate each other, cosines with a learned temperature."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(FEATURES, 64, bias=False)
        self.norm = nn.BatchNorm1d(64)
        self.rows = nn.Parameter(torch.randn(32, CLASSES) * 0.1)
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        a, b = self.norm(self.up(x)).chunk(2, -1)
        x = nn.functional.normalize(a * nn.functional.softplus(b), dim=1)
        return x @ self.rows * self.temperature.exp()


class Logits(nn.Module):
    def __init__(self, model, output="logits"):
        super().__init__()
        self.m, self.output = model, output

    def forward(self, x):
        return self.m(x)[self.output]


def of_transformers(model, config, output="logits", **settings):
    def make():
        import transformers
        return Logits(getattr(transformers, model)(getattr(transformers, config)(**settings)), output)
    return make


def spectral():
    """A discriminator whose spectral norms are folded into its weights."""
    model = nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2),
                          nn.utils.spectral_norm(nn.Conv2d(8, 16, 4, 2, 1)), nn.LeakyReLU(0.2),
                          nn.Flatten(), nn.Linear(1024, CLASSES))
    model(torch.randn(2, 3, 32, 32))
    for place in (0, 2):
        nn.utils.remove_spectral_norm(model[place])
    return model


WINDOWS = dict(patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 2], window_size=[4, 4], num_classes=CLASSES)
SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
FEATURE_CASES = ("attended", "gated")
CASES = {
    "mixer": Mixer,
    "excited": Excited,
    "attended": Attended,
    "gated": Gated,
    "spectral": spectral,
    "swin": lambda: vision.SwinTransformer(stochastic_depth_prob=0.0, **WINDOWS),
    "swin_v2": lambda: vision.SwinTransformer(
        stochastic_depth_prob=0.0, block=vision.swin_transformer.SwinTransformerBlockV2,
        downsample_layer=vision.swin_transformer.PatchMergingV2, **WINDOWS),
    "densenet": lambda: vision.DenseNet(8, (2, 2), 16, num_classes=CLASSES),
    "squeezenet": lambda: vision.squeezenet1_1(num_classes=CLASSES, dropout=0),
    "shufflenet": lambda: vision.shufflenet_v2_x0_5(num_classes=CLASSES),
    "hf_vit": of_transformers("ViTForImageClassification", "ViTConfig", num_labels=CLASSES, hidden_dropout_prob=0.0,
                              attention_probs_dropout_prob=0.0, **SMALL),
    "clip_vision": of_transformers("CLIPVisionModelWithProjection", "CLIPVisionConfig", "image_embeds",
                                   projection_dim=CLASSES, **SMALL),
}
