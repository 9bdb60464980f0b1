"""Muon by its published formula, for generate.py."""
import re

import torch


class Muon(torch.optim.Optimizer):
    """Jordan's formula for hidden matrices, in their own type, and AdamW for the rest. Of a matrix
    that is several in one (`parts`) each is made orthogonal by itself."""

    OF_ADAMW = re.compile("embed|wte|wpe|lm_head|head|classifier|score")

    def __init__(self, model, options):
        self.options = options
        self.hidden, rest = [], [[], []]
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and not self.OF_ADAMW.search(name):
                parts = 3 if "c_attn" in name else 1
                self.hidden.append((parameter, torch.zeros_like(parameter), parts))
            else:
                rest[parameter.dim() == 2].append(parameter)
        decay = options.get("weight_decay", 0)
        self.adamw = torch.optim.AdamW(
            [{"params": rest[0], "weight_decay": 0}, {"params": rest[1], "weight_decay": decay}],
            lr=1, betas=(options.get("beta1", 0.9), options.get("beta2", 0.95)),
            eps=options.get("epsilon", 1e-8))
        super().__init__([parameter for parameter, _, _ in self.hidden], {"lr": 1})

    def orthogonal(self, matrix):
        rows, columns = matrix.shape
        x = matrix.T if rows > columns else matrix
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(self.options.get("iterations", 5)):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        match = self.options.get("scale") == "MATCH_RMS_ADAMW"
        scale = 0.2 * max(rows, columns)**0.5 if match else max(1, rows / columns)**0.5
        return scale * (x.T if rows > columns else x)

    @torch.no_grad()
    def step(self):
        lr, keep = self.param_groups[0]["lr"], self.options.get("momentum", 0.95)
        for group in self.adamw.param_groups:
            group["lr"] = lr * self.options.get("adamw_lr_scale", 1)
        self.adamw.step()
        for parameter, moment, parts in self.hidden:
            moment.mul_(keep).add_(parameter.grad, alpha=1 - keep)
            nesterov = self.options.get("nesterov", True)
            towards = (1 - keep) * parameter.grad + keep * moment if nesterov else moment
            directions = [self.orthogonal(part) for part in towards.chunk(parts)]
            parameter.mul_(1 - lr * self.options.get("weight_decay", 0))
            parameter.sub_(lr * torch.cat(directions))
