"""Modules that mix tokens by other means than attention: state spaces, linear attention, short convolutions."""

from __future__ import annotations

from torch import nn

from whyformer.models.structure import config_of, modules_of, once_per_walk, walk

# Ends the names of modules that mix their tokens by a convolution alone, which has a map (LFM2).
SHORT_CONVOLUTION = "ShortConv"


@once_per_walk
def sequence_mixers(model: nn.Module) -> list[nn.Module]:
    """The modules that mix tokens by a kernel: state spaces, by their decay, or others, by a short convolution."""
    if any(issubclass(kind, nn.Conv1d) for kind in walk(model).kinds):
        modules = modules_of(model).values()
        short = {module for module in modules if any(map(_is_short_convolution, module.children()))}
        mixers = [module for module in modules if module in short or _has_decay(module)]
    else:
        mixers = list(filter(_has_decay, walk(model).own_modules))
    parts = {part for mixer in mixers for part in mixer.modules() if part is not mixer}
    return [mixer for mixer in mixers if mixer not in parts]


def _has_decay(module: nn.Module) -> bool:
    return "A_log" in module._parameters or "A_log" in module._buffers or "A_log" in vars(module)


def layers_without_mixing(model: nn.Module) -> int:
    """The number of layers that mix no tokens, such as the MLP and expert layers of Nemotron-H."""
    kinds = getattr(config_of(model), "layers_block_type", None) or ()
    return sum(kind in ("mlp", "moe") for kind in kinds)


def _is_short_convolution(module: nn.Module) -> bool:
    """Whether it is a causal depthwise convolution, as in state spaces and linear attention."""
    if not isinstance(module, nn.Conv1d):
        return False
    (width,), padding = module.kernel_size, module.padding
    return 1 < module.groups == module.in_channels and width > 1 and padding == (width - 1,)


@once_per_walk
def convolution_in_blocks(model: nn.Module) -> str | None:
    """Path of a convolution inside the blocks that mixes neighbouring tokens and has no map; None without one."""
    if not any(issubclass(kind, (nn.Conv1d, nn.Conv2d)) for kind in walk(model).kinds):
        return None
    mixers = (module for module in modules_of(model).values() if type(module).__name__.endswith(SHORT_CONVOLUTION))
    own = {part for mixer in mixers for part in mixer.children()}
    paths = (path for path, module in modules_of(model).items() if _mixes_neighbours(module) and module not in own)
    return next((path for path in paths if any(map(str.isdecimal, path.split(".")))), None)


def _mixes_neighbours(module: nn.Module) -> bool:
    """Whether it is a depth-wise convolution that mixes tokens and keeps their number."""
    if not isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return False
    keeps_tokens = set(module.stride) == {1} and max(module.kernel_size) > 1
    return keeps_tokens and 1 < module.groups == module.in_channels
