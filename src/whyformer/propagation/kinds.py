"""What each operation is to the rules, and what must be known of tensors to tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from whyformer.errors import UnsupportedModel
from whyformer.models.weights import is_packed, plain_weight
from whyformer.propagation.operation import Operation, linear_form
from whyformer.propagation.row_examples import RowExamples

# What each function is to the rules. What only moves entries, or picks some, hands back by its gradient.
KINDS: dict[str, str] = (
    dict.fromkeys(
        "linear addmm conv1d conv2d conv3d conv_transpose2d grouped_mm _grouped_mm grouped_mm_fallback".split(),
        "linear",
    )
    | dict.fromkeys("matmul __matmul__ bmm einsum".split(), "product")
    | dict.fromkeys("add add_ __add__ __radd__ __iadd__ sub sub_ __sub__ __rsub__ __isub__".split(), "add")
    | dict.fromkeys("mul mul_ __mul__ __rmul__ __imul__ div div_ __truediv__ __itruediv__ true_divide".split(), "gate")
    | {"multiply": "gate", "divide": "gate", "subtract": "add"}
    | dict.fromkeys("neg __neg__ positive".split(), "scale")
    | dict.fromkeys("mean sum avg_pool2d adaptive_avg_pool2d avg_pool1d adaptive_avg_pool1d".split(), "share")
    | dict.fromkeys("interpolate upsample grid_sample index_add index_add_ scatter_add scatter_add_".split(), "share")
    | dict.fromkeys("layer_norm rms_norm group_norm batch_norm normalize".split(), "norm")
    | dict.fromkeys(
        "gelu relu silu tanh hardswish mish elu leaky_relu relu6 celu selu prelu softsign square expm1".split(),
        "activation",
    )
    | dict.fromkeys("hardtanh clamp clip clamp_min clamp_max threshold hardshrink softshrink".split(), "activation")
    | dict.fromkeys("relu_ hardtanh_ clamp_ clamp_min_ clamp_max_ elu_ leaky_relu_ selu_ tanh_".split(), "activation")
    | dict.fromkeys("sigmoid hardsigmoid sigmoid_ softplus logsigmoid".split(), "curve")  # which are not 0 at 0
    | {"softmax": "softmax", "scaled_dot_product_attention": "attention", "turn_pairs": "rotation"}
    # e^x, a state space's decay, says how much of the state stays, as a denominator how much its numerator counts.
    | dict.fromkeys("rsqrt sqrt norm reciprocal __rdiv__ std var vector_norm exp exp_".split(), "denominator")
)
# Operations that only move entries about, that leave every entry in its place, and that pick some.
MOVING = frozenset(
    "view view_as reshape reshape_as transpose permute flatten unflatten squeeze unsqueeze expand expand_as repeat "
    "repeat_interleave split tensor_split chunk unbind __getitem__ narrow select movedim swapaxes swapdims t "
    "contiguous clone view_as_complex view_as_real broadcast_to pixel_shuffle pixel_unshuffle".split()
)
KEEPING = frozenset("to type type_as float half bfloat16 double dropout dropout_ masked_fill masked_fill_".split())
# What gives the same values, but for masked ones, mostly in a tensor of their own.
COPYING = (KEEPING - {"masked_fill_", "dropout_"}) | {"clone", "contiguous"}
PICKING = frozenset(
    "cat concat concatenate stack hstack vstack gather index_select take_along_dim where roll flip pad tril triu "
    "__setitem__ masked_select max_pool2d max_pool1d amax detach requires_grad_ item numpy cpu cuda unfold "
    "alpha_dropout feature_dropout dropout1d dropout2d masked_scatter index_put one_hot topk sort max min maximum "
    "minimum as_strided diagonal unsqueeze_ squeeze_ transpose_ t_ copy_ scatter scatter_ index_copy index_copy_ "
    "index_put_ masked_scatter_ fill_ zero_".split()
)
# Questions about a tensor, whose answer is none.
ASKING = frozenset(
    "dim ndimension size numel nelement stride storage_offset data_ptr untyped_storage element_size is_contiguous "
    "is_floating_point is_complex is_inference __len__ __bool__ __hash__ get_device register_hook".split()
)
ELEMENTWISE = frozenset("pow __pow__ square tanh sigmoid erf exp abs".split())
SWITCHES = frozenset(name for name, kind in KINDS.items() if kind == "denominator") | {
    "sigmoid",
    "sigmoid_",
    "hardsigmoid",
}
SIGNS = dict.fromkeys("sub sub_ __sub__ __isub__ subtract".split(), (1.0, -1.0)) | {"__rsub__": (-1.0, 1.0)}


class TensorFacts:
    """What has been seen of the tensors of a forward pass, as far as it says what operations on them are."""

    def __init__(self, model: nn.Module, rows: RowExamples):
        self.rows = rows
        plain = (parameter for parameter in model.parameters() if not is_packed(parameter))
        self._weights = {parameter.untyped_storage().data_ptr() for parameter in plain}
        self._widened = WeakIdKeyDictionary()  # weights of half precision as they are computed with
        self._scales = WeakIdKeyDictionary()  # tensors that say how much something else counts
        self._maps = WeakIdKeyDictionary()  # what a softmax gave
        self._makers = WeakIdKeyDictionary()  # the operation whose output a tensor is, or a view of
        self._origins = WeakIdKeyDictionary()  # what a tensor was moved about and scaled from
        self._roots = WeakIdKeyDictionary()  # what a tensor is an elementwise function of, and whether a linear one

    def forget(self) -> None:
        """Forget the operation kinds: they would keep the graph alive."""
        for known in (self._widened, self._scales, self._maps, self._makers, self._origins, self._roots):
            known.clear()
        self.rows.forget()

    def maker(self, x: Any) -> Operation | None:
        """The operation whose output this is, or a view of."""
        operation: Operation | None = self._makers.get(x) if isinstance(x, Tensor) else None
        return operation

    def widen(self, x: Tensor) -> Tensor:
        """The tensor in float32; a weight stays one."""
        wide = x.float()
        if self._is_of_the_model(x):
            self._widened[wide] = True
        return wide

    def unpack(self, x: Tensor) -> Tensor:
        """The values that a weight stores in fewer bits."""
        weight = plain_weight(x)
        self._widened[weight] = True
        return weight

    def carry(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """What is moved or picked stays what it was."""
        self.rows.pick(name, args, result)
        given = [x for x in tensors_in(args) if x.is_floating_point()]
        if not given:
            return
        results = [result] if isinstance(result, Tensor) else tensors_in((result,))
        origins = [self._origins.get(x, x) for x in given]
        source = next((x for x in given if x.requires_grad), given[0])  # others are what it is put into
        # Copies are weights too, such as those of the experts that were chosen; what is computed from weights is none.
        are_copies = name in MOVING or name in KEEPING or name in PICKING
        are_weights = all(self._is_of_the_model(x) for x in given)
        for moved in results:
            for known in (self._scales, self._maps):
                if source in known:
                    known[moved] = True
            if given[0] in self._makers and _is_view(moved, given[0]):
                self._makers[moved] = self._makers[given[0]]
            if are_weights and (are_copies or _is_view(moved, given[0])):
                self._widened[moved] = True
            if all(origin is origins[0] for origin in origins):
                self._origins[moved] = origins[0]

    def kind(
        self, name: str, given: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """What the operation is to the rules, now that its inputs are known."""
        kind = KINDS[name]
        source = next(n for n, x in enumerate(given) if x.requires_grad)
        if kind == "product":
            if len(given) != 2:
                raise UnsupportedModel(f"A product of {len(given)} tensors ({name}) has no relevance rule.")
            weight = next((n for n, x in enumerate(given) if self._is_weight(x)), None)
            if weight is not None:
                how = {"equation": args[0]} if name == "einsum" else {}
                return "linear", {"form": linear_form(name, given, weight, how)}
            map_input = next((n for n, x in enumerate(given) if x in self._maps), None)
            return ("product", {}) if map_input is None else ("mixing", {"map": map_input})
        if kind == "linear":
            is_pixels = name in ("conv2d", "conv3d") and given[0].shape[1] == 3
            others = ["offs"] if "grouped" in name else ["stride", "padding", "dilation", "groups"]
            if name == "conv_transpose2d":
                others = ["stride", "padding", "output_padding", "groups", "dilation"]
            how = dict(zip(others, args[2 if "grouped" in name else 3 :], strict=False)) | {
                key: value for key, value in kwargs.items() if key not in ("input", "weight", "bias")
            }
            return "pixels" if is_pixels else "linear", {"form": linear_form(name, given, 1, how)}
        if kind == "add":
            first, second = SIGNS.get(name, (1.0, 1.0))
            signs = (first, second * kwargs.get("alpha", 1))
            if len(given) == 1:
                return "scale", {"source": source}
            parts = [self._origins.get(x, x) for x in given]
            return "rotation" if parts[0] is parts[1] else "add", {"signs": signs}
        if kind == "softmax":
            return kind, {"source": source, "axis": args[1] if len(args) > 1 else kwargs["dim"]}
        if kind == "attention":  # left to the fused kernels, where its map is too large to be kept
            return kind, {"source": 2}  # the values
        if kind == "gate":
            return self._product_kind(name, given, source)
        return kind, {"source": source}

    def _product_kind(self, name: str, given: list[Tensor], source: int) -> tuple[str, dict[str, Any]]:
        """A product of two activations, or of one with what only scales it: a constant, a denominator, a gate of it."""
        if len(given) == 2 and "div" in name:
            return "scale", {"source": 0}
        if len(given) == 1 or not all(x.requires_grad for x in given):
            return "scale", {"source": source}
        # What a softmax gave counts how much the other factor does: a router's weight of an expert.
        scale = next((n for n, x in enumerate(given) if x in self._scales or x in self._maps), None)
        if scale is None:
            (first, first_is_linear), (second, second_is_linear) = (self._roots.get(x, (x, True)) for x in given)
            if first is second and first_is_linear != second_is_linear:
                scale = 0 if second_is_linear else 1
        return ("gate", {}) if scale is None else ("scale", {"source": 1 - scale})

    def note(
        self, name: str, given: list[Tensor], result: Tensor, kind: str, operation: Operation | None = None
    ) -> None:
        """Remember of the result what later operations ask for, and no more of what it was before a change in place."""
        live = [x for x in given if x.requires_grad]
        if kind != "share":  # which adds rows up
            self.rows.carry(live, result)
        if operation is not None:
            self._makers[result] = operation
        is_scale = name in SWITCHES or all(x in self._scales for x in live)
        is_map = kind == "softmax" or (kind == "scale" and live[0] in self._maps)
        origin = self._origins.get(live[0], live[0]) if kind in ("scale", "rotation") else None
        roots = [self._roots.get(x, (x, True)) for x in live]
        same = all(root is roots[0][0] for root, _ in roots)
        is_linear = len(live) == 1 and roots[0][1] and name not in ELEMENTWISE
        root = (roots[0][0], is_linear) if (same and kind in ("scale", "add", "gate")) or name in ELEMENTWISE else None
        facts = ((self._scales, is_scale), (self._maps, is_map), (self._origins, origin), (self._roots, root))
        for known, fact in facts:
            if fact is None or fact is False:
                known.pop(result, None)
            else:
                known[result] = fact

    def note_unruled(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        """Remember of what an operation without a rule gave whether it scales, or is a function of each entry."""
        if name in ("pow", "__pow__") and not (isinstance(args[1], (int, float)) and args[1] >= 1):
            self._scales[result] = True
        elif name in ELEMENTWISE:
            root, _ = self._roots.get(args[0], (args[0], True))
            self._roots[result] = (root, False)

    def _is_weight(self, x: Tensor) -> bool:
        return not x.requires_grad and self._is_of_the_model(x)

    def _is_of_the_model(self, x: Tensor) -> bool:
        return x in self._widened or x.untyped_storage().data_ptr() in self._weights


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among some arguments, and in lists of them."""
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from tensors_in(x)


def _is_view(x: Tensor, of: Tensor) -> bool:
    return x.untyped_storage().data_ptr() == of.untyped_storage().data_ptr()
