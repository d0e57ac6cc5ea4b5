"""A mode in which every operation can run backwards by other rules than the gradient's, as often as one likes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.weak import WeakIdKeyDictionary

from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.operation import Function, Operation, linear_form
from whyformer.provenance import KEEPING, MOVING
from whyformer.rules import LIBRA, Rule, nothing, unchanged

Backward = Literal["gradient", "libra"]

# What each function is to the rules. What only moves entries, or picks some, hands back by its gradient.
KINDS: dict[str, str] = (
    dict.fromkeys("linear addmm conv1d conv2d".split(), "linear")
    | dict.fromkeys("matmul __matmul__ bmm einsum".split(), "product")
    | dict.fromkeys("add add_ __add__ __radd__ __iadd__ sub sub_ __sub__ __rsub__ __isub__".split(), "add")
    | dict.fromkeys("mul mul_ __mul__ __rmul__ __imul__ div div_ __truediv__ __itruediv__ true_divide".split(), "gate")
    | dict.fromkeys("neg __neg__ positive".split(), "scale")
    | dict.fromkeys("mean sum avg_pool2d adaptive_avg_pool2d avg_pool1d adaptive_avg_pool1d".split(), "share")
    | dict.fromkeys("layer_norm rms_norm group_norm batch_norm normalize".split(), "norm")
    | dict.fromkeys("gelu relu silu tanh hardswish mish elu leaky_relu relu6 celu selu".split(), "activation")
    | dict.fromkeys("sigmoid softplus".split(), "curve")  # which are not 0 at 0
    | dict.fromkeys(["softmax"], "softmax")
    | dict.fromkeys("rsqrt sqrt norm reciprocal __rdiv__ std var vector_norm".split(), "denominator")
)
PICKING = frozenset(
    "cat concat concatenate stack hstack vstack gather index_select take_along_dim where roll flip pad tril triu "
    "__setitem__ masked_select max_pool2d max_pool1d amax detach requires_grad_ item numpy cpu cuda unfold "
    "alpha_dropout feature_dropout dropout1d dropout2d masked_scatter index_put one_hot".split()
)
ELEMENTWISE = frozenset("pow __pow__ square tanh sigmoid erf exp abs".split())
SWITCHES = frozenset("rsqrt sqrt norm reciprocal __rdiv__ std var vector_norm sigmoid".split())
SIGNS = dict.fromkeys("sub sub_ __sub__ __isub__".split(), (1.0, -1.0)) | {"__rsub__": (-1.0, 1.0)}
HALF = (torch.float16, torch.bfloat16)


class NoRule(WhyformerError):
    """Relevance reached an operation that has no rule."""


class Ruled(TorchFunctionMode):
    """While inside, operations keep what any rule needs; `following` a rule set, backward passes obey it.

    Parameters are constants. `precise` computes in float32 at least: relevance divides by sums that may be small.
    """

    def __init__(self, model: nn.Module, batch: int, *, precise: bool = True):
        super().__init__()
        self.passed: set[str] = set()
        found = next((parameter.dtype for parameter in model.parameters() if parameter.dtype in HALF), None)
        self.half = None if found is None else str(found).removeprefix("torch.")
        self._model, self._batch, self._precise = model, batch, precise
        device = next(model.parameters()).device.type
        self._autocast = torch.autocast(device, enabled=False) if precise else nullcontext()
        self._rules: Mapping[str, Rule] = {}
        self._strict = self.frees = self.is_unclear = False
        self._example: int | None = None
        self._weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self._widened = WeakIdKeyDictionary()  # weights of half precision as they are computed with
        self._scales = WeakIdKeyDictionary()  # tensors that say how much something else counts
        self._maps = WeakIdKeyDictionary()  # what a softmax gave
        self._makers = WeakIdKeyDictionary()  # the operation whose output a tensor is, or a view of
        self._origins = WeakIdKeyDictionary()  # what a tensor was moved about and scaled from
        self._roots = WeakIdKeyDictionary()  # what a tensor is an elementwise function of, and whether a linear one
        if precise and torch.backends.cuda.matmul.allow_tf32 and next(model.parameters()).is_cuda:
            raise WhyformerError(
                "TF32 is on, too coarse for relevance: torch.backends.cuda.matmul.allow_tf32 = False turns it off."
            )

    def __enter__(self) -> Self:
        super().__enter__()
        self._autocast.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._autocast.__exit__(*raised)
        super().__exit__(*raised)
        # What is known of tensors is of use in here alone, and would keep their graph, which keeps this mode.
        for known in (self._widened, self._scales, self._maps, self._makers, self._origins, self._roots):
            known.clear()

    @contextmanager
    def following(self, rules: Mapping[str, Rule], *, strict: bool = False, keep: bool = True) -> Iterator[None]:
        """Backward passes in here obey these rules; strict ones refuse an operation that has none.

        Unless they are to `keep` the graph, they free what an operation has kept as soon as they are past it.
        """
        self._rules, self._strict, self.frees = rules, strict, not keep
        try:
            with self._autocast:
                yield
        finally:
            self._rules, self._strict, self.frees = {}, False, False

    @contextmanager
    def settling(self, example: int) -> Iterator[None]:
        """Backward passes in here are the gradient of one example's score: sums learn by it where examples are."""
        self._example = example
        try:
            yield
        finally:
            self._example = None

    def handed(self, operation: Operation, arrived: Tensor) -> Any:
        """What the operation hands back to its inputs, by the rules that are being followed."""
        if self._example is not None and operation.kind == "add" and operation.is_unclear:
            operation.settle(arrived, self._example)
        rule = self._rules.get(operation.kind)
        if rule not in (None, unchanged, nothing):  # autograd looks after gradients
            operation.check_unchanged()
        return operation.gradient(arrived) if rule is None else rule(arrived, operation)

    def reached(self, name: str) -> None:
        """Something arrived at an operation without a rule."""
        if self._strict:
            raise NoRule(
                f"Relevance reached {name}, which has no rule. strict=False lets it pass as a gradient; "
                f"whyformer.ruled.KINDS[{name.split(' ')[0]!r}] = 'activation' (or another kind) gives it one."
            )
        if self._rules:
            self.passed.add(name)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return func(*args, **(kwargs or {}))
        args, kwargs = self._wide((args, kwargs or {}))
        if _is_in_place(name) and args[0] in self._makers:
            self._makers[args[0]].keep_output()
        if name in MOVING or name in KEEPING or name in PICKING or not _in_graph(args, kwargs):
            result = func(*args, **kwargs)
            if name in KEEPING and self._precise and isinstance(result, Tensor) and result.dtype in HALF:
                return args[0] if args[0].is_floating_point() else result.float()  # a cast to half precision
            self._carry(args, result)
            return self._wide(result)
        if name in KINDS:
            return self._ruled(name, func, args, kwargs)
        return self._watched(name, func(*args, **kwargs), args)

    def _wide(self, values: Any) -> Any:
        if not self._precise:
            return values
        return tree_map(lambda x: self._float(x) if isinstance(x, Tensor) and x.dtype in HALF else x, values)

    def _float(self, x: Tensor) -> Tensor:
        wide = x.float()
        if self._is_of_the_model(x):
            self._widened[wide] = True
        return wide

    def _carry(self, args: tuple[Any, ...], result: Any) -> None:
        """What is moved or picked stays what it was."""
        given = [x for x in tree_flatten(args)[0] if isinstance(x, Tensor) and x.is_floating_point()]
        results = [x for x in tree_flatten(result)[0] if isinstance(x, Tensor)]
        origins = [self._origins.get(x, x) for x in given]
        if not given:
            return
        for moved in results:
            for known in (self._scales, self._maps):
                if given[0] in known:
                    known[moved] = True
            for known in (self._widened, self._makers):  # what is computed from weights is none
                if given[0] in known and _is_view(moved, given[0]):
                    known[moved] = known[given[0]]
            if all(origin is origins[0] for origin in origins):
                self._origins[moved] = origins[0]

    def _ruled(self, name: str, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        kwargs = {key: value for key, value in kwargs.items() if key != "inplace"}
        leaves, shape = tree_flatten((args, kwargs))
        places = [n for n, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point()]
        given = [leaves[n] for n in places]
        function: Function = _OUT_OF_PLACE.get(name, func)
        changes = name in _OUT_OF_PLACE
        kept = [x.clone() if changes and n == 0 else x for n, x in enumerate(given)]
        inputs = tuple(x.detach().requires_grad_(x.requires_grad) for x in kept)

        def placed(tensors: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            both: tuple[tuple[Any, ...], dict[str, Any]] = tree_unflatten(filled, shape)
            return both

        with torch.enable_grad():
            own_args, own_kwargs = placed(inputs)
            output = _exact(name, function, own_args, own_kwargs)
        kind, details = self._kind(name, given, args, kwargs)
        operation = Operation(kind, function, placed, inputs, output, self._batch, **details)
        result: Tensor = _Step.apply(self, operation, changes, *given)
        self._makers[result] = operation
        self.is_unclear |= kind == "add" and operation.is_unclear
        self._note(name, given, result, kind)
        return result

    def _kind(
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
            found = next((n for n, x in enumerate(given) if x in self._maps), None)
            return ("product", {}) if found is None else ("mixing", {"map": found})
        if kind == "linear":
            is_pixels = name == "conv2d" and given[0].shape[1] == 3
            how = dict(zip(("stride", "padding", "dilation", "groups"), args[3:], strict=False)) | {
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
        if kind == "gate":
            return self._product_kind(name, given, source)
        return kind, {"source": source}

    def _product_kind(self, name: str, given: list[Tensor], source: int) -> tuple[str, dict[str, Any]]:
        """A product of two activations, or of one with what only scales it: a constant, a denominator, a gate of it."""
        if len(given) == 2 and "div" in name:
            return "scale", {"source": 0}
        if len(given) == 1 or not all(x.requires_grad for x in given):
            return "scale", {"source": source}
        scale = next((n for n, x in enumerate(given) if x in self._scales), None)
        if scale is None:
            (first, first_is_linear), (second, second_is_linear) = (self._roots.get(x, (x, True)) for x in given)
            if first is second and first_is_linear != second_is_linear:
                scale = 0 if second_is_linear else 1
        return ("gate", {}) if scale is None else ("scale", {"source": 1 - scale})

    def _note(self, name: str, given: list[Tensor], result: Tensor, kind: str) -> None:
        """Remember of the result what later operations ask for, and no more of what it was before a change in place."""
        live = [x for x in given if x.requires_grad]
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

    def _watched(self, name: str, result: Any, args: tuple[Any, ...]) -> Any:
        """The result of an operation without a rule, which says so if anything but a gradient arrives at it."""
        if name in ("pow", "__pow__") and not (isinstance(args[1], (int, float)) and args[1] >= 1):
            self._scales[result] = True
        elif name in ELEMENTWISE and isinstance(result, Tensor):
            root, _ = self._roots.get(args[0], (args[0], True))
            self._roots[result] = (root, False)
        where = f"{name} in {_module_here(self._model)}"
        watched = tree_map(
            lambda x: _Watch.apply(self, where, x) if isinstance(x, Tensor) and x.requires_grad else x, result
        )
        for known in (self._scales, self._roots):
            if isinstance(result, Tensor) and result in known:
                known[watched] = known[result]
        return watched

    def _is_weight(self, x: Tensor) -> bool:
        return not x.requires_grad and self._is_of_the_model(x)

    def _is_of_the_model(self, x: Tensor) -> bool:
        return x in self._widened or x.untyped_storage().data_ptr() in self._weights


def following(ruled: Ruled | None, backward: Backward) -> AbstractContextManager[None]:
    """Gradients in here are plain ones, or LibraGrad's."""
    return nullcontext() if ruled is None or backward == "gradient" else ruled.following(LIBRA)


class _Step(torch.autograd.Function):
    """An operation in the graph, whose backward pass asks the mode which rule is followed.

    It asks the mode it was made in, not a global: on a GPU backward passes run in threads of their own.
    """

    @staticmethod
    def forward(ctx: Any, mode: Ruled, operation: Operation, changes: bool, *given: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.mode, ctx.operation = mode, operation
        if not changes:
            return operation.output.detach()
        ctx.mark_dirty(given[0])
        return given[0].copy_(operation.output.detach())

    @staticmethod
    def backward(ctx: Any, arrived: Tensor | None) -> Any:
        if ctx.operation is None:
            raise WhyformerError(
                "Relevance was already taken from this trace, whose graph is used up: trace the model again."
            )
        if arrived is None:
            return None, None, None, *[None] * len(ctx.operation.inputs)
        handed = ctx.mode.handed(ctx.operation, arrived)
        if ctx.mode.frees:
            ctx.operation = None
        return None, None, None, *handed


class _Watch(torch.autograd.Function):
    """Tells the mode when something arrives here."""

    @staticmethod
    def forward(ctx: Any, mode: Ruled, name: str, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.mode, ctx.name = mode, name
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, arrived: Tensor | None) -> Any:
        if arrived is not None:
            ctx.mode.reached(ctx.name)
        return None, None, arrived


# What works in place, as a function that does not.
_IN_PLACE: dict[str, Function] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
_OUT_OF_PLACE: dict[str, Function] = {
    name: function for verb, function in _IN_PLACE.items() for name in (f"{verb}_", f"__i{verb}__", f"__itrue{verb}__")
}


def _exact(name: str, function: Function, args: Any, kwargs: Any) -> Tensor:
    """The operation; float32 convolutions on a GPU in float64, since their default there is TF32."""
    if name.startswith("conv") and args[0].is_cuda and args[0].dtype == torch.float32:
        args, kwargs = tree_map(lambda x: x.double() if isinstance(x, Tensor) else x, (args, kwargs))
        single: Tensor = function(*args, **kwargs).float()
        return single
    result: Tensor = function(*args, **kwargs)
    return result


def _is_in_place(name: str) -> bool:
    return name in _OUT_OF_PLACE or name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _is_view(x: Tensor, of: Tensor) -> bool:
    return x.untyped_storage().data_ptr() == of.untyped_storage().data_ptr()


def _in_graph(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    leaves, _ = tree_flatten((args, kwargs))
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in leaves)


def _module_here(model: nn.Module) -> str:
    """The path of the module whose forward pass is running, read off the stack."""
    paths = {id(module): path for path, module in model.named_modules()}
    frame = sys._getframe(1)
    while frame is not None:
        owner = id(frame.f_locals.get("self"))
        if owner in paths:
            return paths[owner] or "the model itself"
        frame = frame.f_back  # type: ignore[assignment]
    return "the model"
