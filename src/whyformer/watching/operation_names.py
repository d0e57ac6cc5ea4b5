"""Operations of PyTorch by what they do to the entries of a tensor, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]

# Move entries about.
MOVING = frozenset(
    "view view_as reshape reshape_as transpose permute flatten unflatten squeeze unsqueeze expand expand_as repeat "
    "repeat_interleave split tensor_split chunk unbind __getitem__ narrow select movedim swapaxes swapdims t "
    "contiguous clone view_as_complex view_as_real broadcast_to pixel_shuffle pixel_unshuffle".split()
)
# Leave every entry in its place.
KEEPING = frozenset("to type type_as float half bfloat16 double dropout dropout_ masked_fill masked_fill_".split())
# Give the same values, except masked ones, mostly in a tensor of their own.
COPYING = (KEEPING - {"masked_fill_", "dropout_"}) | {"clone", "contiguous"}
# Pick some entries, or put them together.
PICKING = frozenset(
    "cat concat concatenate stack hstack vstack gather index_select take_along_dim where roll flip pad tril triu "
    "__setitem__ masked_select max_pool2d max_pool1d amax detach requires_grad_ item numpy cpu cuda unfold "
    "alpha_dropout feature_dropout dropout1d dropout2d masked_scatter index_put one_hot topk sort max min maximum "
    "minimum as_strided diagonal unsqueeze_ squeeze_ transpose_ t_ copy_ scatter scatter_ index_copy index_copy_ "
    "index_put_ masked_scatter_ fill_ zero_".split()
)
# Ask about a tensor, and give none.
ASKING = frozenset(
    "dim ndimension size numel nelement stride storage_offset data_ptr untyped_storage element_size is_contiguous "
    "is_floating_point is_complex is_inference __len__ __bool__ __hash__ get_device register_hook".split()
)
# Change the order of axes.
SWAPPING = frozenset("transpose permute movedim swapaxes swapdims".split())
# Put tokens elsewhere, or others beside them.
PUTTING = frozenset("roll pad".split())
