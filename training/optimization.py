"""How every recipe updates its weights: learning-rate schedule, AdamW, gradient clipping and averaged weights."""

import copy
import math

import torch
from torch import Tensor, nn


def learning_rate(progress: float, peak: float, *, warm_up: float = 0.04) -> float:
    """The rate after a share `progress` of the training: a linear warm-up, then half a cosine down to peak / 1000."""
    if progress < warm_up:
        return peak * max(progress / warm_up, 0.01)
    return peak * max(0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up))), 1e-3)


def new_optimizer(
    module: nn.Module, rate: float, *, decay: float = 0.05, betas: tuple[float, float] = (0.9, 0.98)
) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only: not on biases, norms, position embeddings and [CLS]."""
    decayed, undecayed = [], []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            is_matrix = parameter.ndim > 1 and "position" not in name and "cls_token" not in name
            (decayed if is_matrix else undecayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": decay}, {"params": undecayed, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=decayed[0].is_cuda)


def average_decay(steps: int, decay: float) -> float:
    """The decay of an exponential moving average after so many steps: smaller at first, to forget the start."""
    return min(decay, (1 + steps) / (10 + steps))


@torch.no_grad()  # or the average would hold the graph of all updates
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move the parameters of `average` towards those of `model`."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)


class WeightAverage:
    """An exponential moving average of a model's parameters: `.model` is a copy that holds it."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.trained_model, self.decay, self.steps = model, decay, 0
        self.model = copy.deepcopy(model).requires_grad_(False).eval()

    def update(self) -> None:
        """Call it after each optimiser step."""
        self.steps += 1
        update_average(self.model, self.trained_model, average_decay(self.steps, self.decay))


class Trainer:
    """Updates a module by one loss at a time: backward pass, gradient clipping, scheduled rate, AdamW step."""

    def __init__(self, module: nn.Module, *, rate: float, decay: float = 0.05, clip: float = 1.0) -> None:
        self.module, self.rate, self.clip = module, rate, clip
        self.optimizer = new_optimizer(module, rate, decay=decay)

    def step(self, loss: Tensor, progress: float) -> None:
        """`progress` is the share of the training that is over; the learning rate follows it."""
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), self.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
