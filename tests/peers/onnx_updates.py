"""Updates of parameters, for compare_onnx.py: the last elements of a tensor less its first ones, by PyTorch's names."""
import torch

ROUNDING = 1e-5  # times a tensor's largest gradient: below it rounding decides signs, which Adam's first steps follow


def statistics_of(model):
    return {k: v for k, v in model.named_buffers() if k.split(".")[-1] in ("running_mean", "running_var")}


def tensors_of(model):
    """Parameters and running statistics. Weights that are tied have all their names."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **statistics_of(model)}


def aliases_of(model):
    """By each name of a tensor the first of its names."""
    first = {}
    return {k: first.setdefault(id(v), k) for k, v in tensors_of(model).items()}


class Updates:
    """What a model's tensors do while it trains."""

    def __init__(self, model):
        self.model = model
        self.first = {k: v.detach().clone() for k, v in tensors_of(model).items()}
        self.clear = {}

    def watch(self):
        """After each backward pass: notes which elements have a gradient that is more than rounding, or is none."""
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            if parameter.grad is not None:
                size = parameter.grad.abs()
                clear = (size > ROUNDING * size.max()) | (size == 0)
                self.clear[name] = clear & self.clear[name] if name in self.clear else clear

    def taken(self):
        """Of all that has a gradient, and of running statistics."""
        learned = {k: v for k, v in self.model.named_parameters(remove_duplicate=False) if v.grad is not None}
        return {k: v.detach() - self.first[k] for k, v in {**learned, **statistics_of(self.model)}.items()}


def distance(update, true_update, clear=None):
    """The norm of the difference over that of the true update, of clear elements. A tensor that does not move where
    the true one does not is right."""
    update, true_update = update.double(), true_update.double()
    if clear is not None:
        update, true_update = update[clear], true_update[clear]
    away = (update - true_update).norm().item()
    return away / true_update.norm().item() if away > 0 else 0.0


def named_as_pytorch(ours, made_of, model):
    """Our updates by the names that PyTorch has, and the names of all parameters that learn in some form. An exporter
    may transpose a matrix and rename it, or compute something of it. `ours`: first and last elements by a file's names."""
    aliases = aliases_of(model)
    known = {**dict(model.named_parameters()), **statistics_of(model)}
    updates, covered = {}, set()
    for name, (first, last) in ours.items():
        update = last - first
        found = aliases.get(name)
        if found is None:
            for other, value in known.items():
                if torch.equal(value.detach(), first):
                    found = other
                elif value.dim() == 2 and torch.equal(value.detach().T, first):
                    found, update = other, update.T
        covered |= {aliases[part] for part in made_of.get(name, [])} or {found or name}
        if found:
            covered.add(found)
            updates[found] = update
    return updates, covered
