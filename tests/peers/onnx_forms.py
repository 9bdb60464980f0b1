"""Functions of parameters and buffers as people write them, each in a small network between two linear layers, for
compare_onnx.py: a file tells which of the two an initializer is, and its place does not."""
import math

import torch
import torch.nn.functional as F
from torch import nn

FEATURES, WIDTH, CLASSES = 60, 8, 10


class Form(nn.Module):
    """A linear layer, the form on rows (N, WIDTH), and a linear layer. `idle`: parameters that no gradient reaches."""

    def __init__(self, apply, idle=(), **tensors):
        super().__init__()
        self.inner = nn.Linear(FEATURES, WIDTH)
        self.idle = idle
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Module):
                self.add_module(name, tensor)
            elif name.startswith(("fixed", "running")):
                self.register_buffer(name, tensor)
            else:
                self.register_parameter(name, nn.Parameter(tensor))
        self.apply_form = apply
        with torch.no_grad():
            self.head = nn.Linear(apply(self, torch.zeros(2, WIDTH)).flatten(1).shape[1], CLASSES)

    def forward(self, x):
        return self.head(self.apply_form(self, self.inner(x)).flatten(1))


def drawn(*shape, seed=3, scale=0.5):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def pixels(h):
    """(N, WIDTH) as images (N, 2, 4, 4)."""
    return torch.cat((h, h.tanh(), h.sin(), h * h), 1).reshape(-1, 2, 4, 4)


def tokens(h):
    """(N, WIDTH) as four tokens of eight numbers."""
    return torch.stack((h, h.tanh(), h.sin(), h.cos()), 1)


def attention(h, bias):
    """Two heads of four numbers each, with a bias (heads, 4, 4) on the scores."""
    q = tokens(h).reshape(-1, 4, 2, 4).transpose(1, 2)
    mixed = torch.softmax(q @ q.transpose(2, 3) / 2 + bias, -1) @ q
    return mixed.transpose(1, 2).flatten(2)


def standardised(w):
    return (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)


def recurrent(m, h):
    state = m.state.expand(-1, h.shape[0], -1).contiguous()
    return m.gru(tokens(h), state)[0][:, -1]


def batch_norm(m, h, gain, bias):
    return F.batch_norm(h, m.running_mean, m.running_var, gain, bias, m.training, 0.1)


def filled(m):
    """A triangular matrix from its elements."""
    matrix = torch.zeros(WIDTH, WIDTH, dtype=m.w.dtype)
    matrix[*torch.tril_indices(WIDTH, WIDTH)] = m.w
    return matrix


def directed(m):
    """A low-rank change of a direction, with a length of its own, as in DoRA."""
    v = m.v + m.a @ m.b
    return m.size[:, None] * v / v.norm(dim=1, keepdim=True)


INDEX = torch.tensor([[0, 1, 2, 3], [4, 0, 1, 2], [5, 4, 0, 1], [6, 5, 4, 0]])
BLUR = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).div(16).expand(2, 1, 3, 3).contiguous()
SINES = torch.cat([f(torch.arange(4)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])) for f in (torch.sin, torch.cos)], 1)
row, square = lambda seed=3: drawn(WIDTH, seed=seed), lambda seed=3: drawn(WIDTH, WIDTH, seed=seed)
kernel = lambda *shape: drawn(*(shape or (4, 2, 3, 3)), scale=0.3)
weight_norm = nn.utils.parametrizations.weight_norm

FORMS = {
    # Gains and biases by a function of a parameter.
    "zero_centred_gain": lambda: Form(lambda m, h: h * (1 + m.w), w=torch.zeros(WIDTH)),
    "softplus_gain": lambda: Form(lambda m, h: h * F.softplus(m.w), w=row()),
    "exponential_gain": lambda: Form(lambda m, h: h * m.w.exp(), w=row()),
    "gate": lambda: Form(lambda m, h: h * torch.sigmoid(m.w) + (1 - torch.sigmoid(m.w)) * h.tanh(), w=row()),
    "mixture": lambda: Form(lambda m, h: (tokens(h) * torch.softmax(m.w, 0)[:, None]).sum(1), w=drawn(4)),
    "temperature": lambda: Form(lambda m, h: h / m.t, t=torch.tensor(0.7)),
    "logit_scale": lambda: Form(lambda m, h: F.normalize(h, dim=1) * m.s.exp(), s=torch.tensor(1.5)),
    "cumulative": lambda: Form(lambda m, h: h + m.w.cumsum(0), w=row()),
    "centred": lambda: Form(lambda m, h: h * (m.w - m.w.mean()) / m.w.var(), w=row()),
    "norm_of_it": lambda: Form(lambda m, h: h * m.w / m.w.norm(), w=row()),
    "thresholds": lambda: Form(lambda m, h: torch.maximum(torch.minimum(h, m.high.abs()), -m.low.abs()), low=row(), high=row(4)),
    "soft_threshold": lambda: Form(lambda m, h: torch.sign(h) * torch.relu(h.abs() - F.softplus(m.w)), w=row() - 3),
    "polynomial": lambda: Form(lambda m, h: m.c[0] + m.c[1] * h + m.c[2] * h * h, c=drawn(3)),
    "interpolated": lambda: Form(lambda m, h: torch.lerp(h, h.tanh(), torch.sigmoid(m.w)), w=row()),
    "angles": lambda: Form(lambda m, h: h * m.w.cos() + h.roll(1, 1) * m.w.sin(), w=row()),
    "slope": lambda: Form(lambda m, h: m.act(h), act=nn.PReLU(WIDTH)),
    "slope_of_function": lambda: Form(lambda m, h: F.prelu(h, torch.sigmoid(m.w)), w=row()),
    "layer_scale": lambda: Form(lambda m, h: h + m.gamma * m.branch(h), gamma=torch.full((WIDTH,), 1e-2), branch=nn.Linear(WIDTH, WIDTH)),
    "power": lambda: Form(lambda m, h: h.abs().clamp(1e-3) ** F.softplus(m.w), w=row()),
    "max_of_groups": lambda: Form(lambda m, h: h * m.w.reshape(4, 2).amax(1).repeat_interleave(2), w=row()),
    # Matrices by a function of parameters.
    "masked": lambda: Form(lambda m, h: F.linear(h, m.w * m.fixed), w=square(), fixed=(drawn(WIDTH, WIDTH, seed=5) > 0).float()),
    "chosen": lambda: Form(lambda m, h: F.linear(h, torch.where(m.fixed, m.w, 0)), w=square(), fixed=drawn(WIDTH, WIDTH, seed=5) > 0),
    "normalised": lambda: Form(lambda m, h: F.linear(h, F.normalize(m.w, dim=1)) * m.fixed, w=square(), fixed=torch.full((WIDTH,), 3.0)),
    "cosine": lambda: Form(lambda m, h: F.linear(F.normalize(h, dim=1), F.normalize(m.w, dim=1)) * m.s, w=square(), s=torch.tensor(4.0)),
    "clamped": lambda: Form(lambda m, h: F.linear(h, m.w.clamp(-0.3, 0.3)), w=square()),
    "weight_norm": lambda: Form(lambda m, h: m.layer(h), layer=weight_norm(nn.Linear(WIDTH, WIDTH))),
    "spectral": lambda: Form(lambda m, h: F.linear(h, m.w / torch.dot(m.fixed_u, m.w @ m.fixed_v)), w=square(),
                             fixed_u=F.normalize(row(7), dim=0), fixed_v=F.normalize(row(8), dim=0)),
    "low_rank": lambda: Form(lambda m, h: h + h @ (m.a @ m.b), a=drawn(WIDTH, 2), b=drawn(2, WIDTH, seed=4)),
    "skew": lambda: Form(lambda m, h: h @ (m.w - m.w.T), w=square()),
    "symmetric": lambda: Form(lambda m, h: h @ ((m.w + m.w.T) / 2), w=square()),
    "triangular": lambda: Form(lambda m, h: h @ m.w.tril(), w=square()),
    "householder": lambda: Form(lambda m, h: h - 2 * (h @ m.v)[:, None] * m.v / (m.v * m.v).sum(), v=row()),
    "joined": lambda: Form(lambda m, h: F.linear(h, torch.cat((m.a, m.b))), a=drawn(3, WIDTH), b=drawn(5, WIDTH, seed=4)),
    "stacked": lambda: Form(lambda m, h: torch.einsum("ni,kij->nj", h, torch.stack((m.a, m.b.T))), a=square(), b=square(4)),
    "product": lambda: Form(lambda m, h: h @ torch.einsum("ik,kj->ij", m.a, m.b), a=drawn(WIDTH, 3), b=drawn(3, WIDTH, seed=4)),
    "kronecker": lambda: Form(lambda m, h: h @ (m.a[:, None, :, None] * m.b[None, :, None, :]).reshape(WIDTH, WIDTH), a=drawn(2, 2), b=drawn(4, 4)),
    "padded": lambda: Form(lambda m, h: F.linear(h, F.pad(m.w, (1, 1))), w=drawn(WIDTH, WIDTH - 2)),
    "halves": lambda: Form(lambda m, h: h @ m.w.chunk(2)[0].T @ m.w.chunk(2)[1], w=drawn(2 * WIDTH, WIDTH)),
    "permuted": lambda: Form(lambda m, h: torch.tanh(h @ m.w.permute(2, 0, 1).reshape(WIDTH, -1)), w=drawn(2, 3, WIDTH)),
    "experts": lambda: Form(lambda m, h: torch.einsum("nk,kij,ni->nj", torch.softmax(h @ m.gate, 1), m.w, h), gate=drawn(WIDTH, 3), w=drawn(3, WIDTH, WIDTH)),
    "mixed_experts": lambda: Form(lambda m, h: h @ (torch.softmax(m.mix, 0)[:, None, None] * m.w).sum(0), mix=drawn(3), w=drawn(3, WIDTH, WIDTH)),
    "packed": lambda: Form(lambda m, h: h @ filled(m), w=drawn(WIDTH * (WIDTH + 1) // 2)),
    "filled": lambda: Form(lambda m, h: F.linear(h, m.w.masked_fill(m.fixed, 0.25)), w=square(), fixed=drawn(WIDTH, WIDTH, seed=5) > 0),
    "outer": lambda: Form(lambda m, h: h @ torch.outer(m.a, m.b) + h, a=row(), b=row(4)),
    "magnitude_and_direction": lambda: Form(lambda m, h: F.linear(h, directed(m)), v=square(), a=drawn(WIDTH, 2), b=drawn(2, WIDTH, seed=4), size=row(5)),
    "made_by_a_layer": lambda: Form(lambda m, h: h @ m.layer(m.e).reshape(WIDTH, WIDTH), e=drawn(4), layer=nn.Linear(4, WIDTH * WIDTH)),
    "bilinear": lambda: Form(lambda m, h: m.layer(h, h.tanh()), layer=nn.Bilinear(WIDTH, WIDTH, 3)),
    "binary": lambda: Form(lambda m, h: F.linear(h, (m.w.sign() - m.w).detach() + m.w), w=square()),
    "straight_through": lambda: Form(lambda m, h: F.linear(h, m.w + ((m.w * 4).round() / 4 - m.w).detach()), w=square()),
    # Tables, tokens and states.
    "relative_places": lambda: Form(lambda m, h: attention(h, m.table[m.fixed.flatten()].reshape(4, 4, 2).permute(2, 0, 1)), table=drawn(7, 2), fixed=INDEX),
    "bias_of_attention": lambda: Form(lambda m, h: F.scaled_dot_product_attention(*[tokens(h)[:, None]] * 3, attn_mask=m.bias)[:, 0], bias=drawn(4, 4)),
    "slopes_of_heads": lambda: Form(lambda m, h: attention(h, -F.softplus(m.w)[:, None, None] * (INDEX % 4).float()), w=drawn(2)),
    "class_token": lambda: Form(lambda m, h: torch.cat((m.token.expand(h.shape[0], -1, -1), tokens(h)), 1) + m.places[:, :5],
                                token=drawn(1, 1, WIDTH), places=drawn(1, 9, WIDTH, seed=4)),
    "first_state": lambda: Form(recurrent, state=drawn(1, 1, WIDTH), gru=nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "picked": lambda: Form(lambda m, h: h * m.w[[2, 0, 1, 3, 7, 6, 5, 4]] + m.w.flip(0), w=row()),
    "repeated": lambda: Form(lambda m, h: tokens(h) + m.w.repeat(2, 2), w=drawn(2, 4)),
    "tied": lambda: Form(lambda m, h: (h @ m.w + m.b).tanh() @ m.w.T * m.b + m.b, w=square(), b=row()),
    # Norms.
    "batch_norm_gain": lambda: Form(lambda m, h: batch_norm(m, h, 1 + m.w, m.b), w=torch.zeros(WIDTH), b=row(), running_mean=torch.zeros(WIDTH), running_var=torch.ones(WIDTH)),
    "batch_norm_plain": lambda: Form(lambda m, h: m.norm(h), norm=nn.BatchNorm1d(WIDTH, affine=False)),
    "layer_norm_gain": lambda: Form(lambda m, h: F.layer_norm(h, (WIDTH,), 1 + m.w, m.b), w=torch.zeros(WIDTH), b=row()),
    "layer_norm_fixed": lambda: Form(lambda m, h: F.layer_norm(h, (WIDTH,), m.w, m.fixed), w=torch.ones(WIDTH), fixed=row()),
    "layer_norm_plain": lambda: Form(lambda m, h: m.norm(h), norm=nn.LayerNorm(WIDTH, elementwise_affine=False)),
    "rms_norm_gain": lambda: Form(lambda m, h: h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * (1 + m.w), w=torch.zeros(WIDTH)),
    "group_norm_gain": lambda: Form(lambda m, h: F.group_norm(pixels(h), 2, 1 + m.w, m.b), w=torch.zeros(2), b=drawn(2)),
    # Kernels.
    "standardised_kernel": lambda: Form(lambda m, h: F.conv2d(pixels(h), standardised(m.w), m.b, padding=1), w=kernel(), b=drawn(4)),
    "scaled_kernel": lambda: Form(lambda m, h: F.conv2d(pixels(h), m.w * 0.5, m.b * 0.1, stride=2), w=kernel(), b=drawn(4)),
    "weight_norm_kernel": lambda: Form(lambda m, h: m.conv(h[:, None]), conv=weight_norm(nn.Conv1d(1, 3, 3))),
    "weight_norm_transposed": lambda: Form(lambda m, h: m.conv(pixels(h)), conv=weight_norm(nn.ConvTranspose2d(2, 3, 2, 2))),
    "volume_kernel": lambda: Form(lambda m, h: F.conv3d(pixels(h).reshape(-1, 1, 2, 4, 4), m.w.exp()), w=kernel(2, 1, 2, 3, 3)),
    "separable_kernel": lambda: Form(lambda m, h: F.conv2d(pixels(h), torch.outer(m.a, m.b).expand(2, 1, 3, 3), groups=2), a=drawn(3), b=drawn(3, seed=4)),
    "turned_kernels": lambda: Form(lambda m, h: F.conv2d(pixels(h), torch.cat((m.w, m.w.flip(2, 3), m.w.transpose(2, 3)))), w=kernel(2, 2, 3, 3)),
    "kernel_and_penalty": lambda: Form(lambda m, h: F.conv2d(pixels(h), m.w) * m.w.square().sum(), w=kernel()),
    "blur": lambda: Form(lambda m, h: F.conv2d(pixels(h), m.fixed, groups=2, padding=1), fixed=BLUR),
    "fixed_bias_of_kernel": lambda: Form(lambda m, h: F.conv2d(pixels(h), m.w, m.fixed), w=kernel(), fixed=drawn(4)),
    "fixed_kernel": lambda: Form(lambda m, h: F.conv2d(pixels(h), m.fixed, m.b), b=drawn(4), fixed=kernel()),
    # Buffers in places of parameters.
    "fixed_bias": lambda: Form(lambda m, h: F.linear(h, m.w, m.fixed), w=square(), fixed=row()),
    "fixed_gain": lambda: Form(lambda m, h: h * m.fixed, fixed=row()),
    "fixed_matrix": lambda: Form(lambda m, h: torch.sin(h @ m.fixed), fixed=drawn(WIDTH, 16)),
    "fixed_sines": lambda: Form(lambda m, h: tokens(h) + m.fixed, fixed=SINES),
    "fixed_grid": lambda: Form(lambda m, h: torch.cat((pixels(h), m.fixed.expand(h.shape[0], -1, -1, -1)), 1), fixed=torch.linspace(-1, 1, 32).reshape(1, 2, 4, 4)),
    "fixed_table": lambda: Form(lambda m, h: h + m.fixed[(h.sum(1) > 0).long()], fixed=drawn(2, WIDTH)),
    "fixed_batch_norm": lambda: Form(lambda m, h: batch_norm(m, h, m.fixed, m.b), b=row(), fixed=row(4), running_mean=torch.zeros(WIDTH),
                                     running_var=torch.ones(WIDTH)),
    "fixed_state": lambda: Form(lambda m, h: m.gru(tokens(h), m.fixed.expand(-1, h.shape[0], -1).contiguous())[0][:, -1],
                                fixed=drawn(1, 1, WIDTH), gru=nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "fixed_slope": lambda: Form(lambda m, h: F.prelu(h, m.fixed), fixed=torch.tensor([0.1])),
    "numbers_of_the_code": lambda: Form(lambda m, h: h * torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]) + torch.linspace(0, 1, WIDTH)),
    "not_kept": lambda: Form(lambda m, h: m.layer(h), layer=NotKept()),
    # What no gradient reaches.
    "detached": lambda: Form(lambda m, h: h * m.w.detach() + m.v, w=row(), v=row(4), idle=("w",)),
    "compared": lambda: Form(lambda m, h: torch.where(h > m.w, h, -h), w=row(), idle=("w",)),
    "detached_rows": lambda: Form(lambda m, h: h.detach() * m.w, w=row(), idle=("inner.weight", "inner.bias")),
    "unused": lambda: Form(lambda m, h: h.tanh(), w=row(), idle=("w",)),
}


class NotKept(nn.Module):
    """A buffer that a state_dict does not have."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", row(), persistent=False)

    def forward(self, h):
        return h * self.weight / math.sqrt(WIDTH)
