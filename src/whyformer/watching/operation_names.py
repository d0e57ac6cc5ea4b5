"""Names of PyTorch operations, by their effect on the entries of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torch import Tensor

Function = Callable[..., Any]

# Rearrange entries.
MOVING = frozenset(
    "view view_as reshape reshape_as transpose permute flatten unflatten squeeze unsqueeze expand expand_as repeat "
    "repeat_interleave split tensor_split chunk unbind __getitem__ narrow select movedim swapaxes swapdims t "
    "contiguous clone view_as_complex view_as_real broadcast_to pixel_shuffle pixel_unshuffle".split()
)
# Leave every entry in its place.
KEEPING = frozenset("to type type_as float half bfloat16 double dropout dropout_ masked_fill masked_fill_".split())
# Return the same values, except masked ones, mostly in a new tensor.
COPYING = (KEEPING - {"masked_fill_", "dropout_"}) | {"clone", "contiguous"}
# Select or combine entries.
PICKING = frozenset(
    "cat concat concatenate stack hstack vstack gather index_select take_along_dim where roll flip pad tril triu "
    "__setitem__ masked_select max_pool2d max_pool1d amax detach requires_grad_ item numpy cpu cuda unfold "
    "alpha_dropout feature_dropout dropout1d dropout2d masked_scatter index_put one_hot topk sort max min maximum "
    "minimum as_strided diagonal unsqueeze_ squeeze_ transpose_ t_ copy_ scatter scatter_ index_copy index_copy_ "
    "index_put_ masked_scatter_ fill_ zero_".split()
)
# Query a tensor without returning one.
ASKING = frozenset(
    "dim ndimension size numel nelement stride storage_offset data_ptr untyped_storage element_size is_contiguous "
    "is_floating_point is_complex is_inference __len__ __bool__ __hash__ get_device register_hook".split()
)
REARRANGING = MOVING | KEEPING | PICKING
# Attributes that are not tensors.
ATTRIBUTES_ASKED = frozenset(
    getattr(Tensor, name)
    for name in "shape dtype device ndim requires_grad is_leaf is_cuda is_cpu is_meta is_mps is_quantized is_sparse "
    "is_nested layout itemsize nbytes _version grad_fn output_nr name".split()
)
# Change the order of axes.
SWAPPING = frozenset("transpose permute movedim swapaxes swapdims".split())
# Move tokens, or insert others beside them.
PUTTING = frozenset("roll pad".split())


@lru_cache(maxsize=4096)
def name_unless_asking(func: Function) -> str | None:
    """The name of a function; None if it only asks a tensor for something, such as its shape."""
    name: str = getattr(func, "__name__", "")
    is_asking = name in ASKING or (name == "__get__" and getattr(func, "__self__", func) in ATTRIBUTES_ASKED)
    return None if is_asking else name
