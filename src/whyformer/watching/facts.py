"""Facts about the tensors of a forward pass: one per tensor, read by the recorder and by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from whyformer.watching.operation_names import REARRANGING

if TYPE_CHECKING:
    from whyformer.watching.roles import Role


class TensorFact(NamedTuple):
    """Facts about a tensor.

    Attributes:
        role: Its part in an attention operation, or just before or after one.
        copy_of: The tensor that it is a copy of.
        is_weight: Whether it is a weight of the model in another form: widened, unpacked, a view.
        is_scale: Whether it only scales something else.
        is_map: Whether it is the output of a softmax.
        made_by: The node of the graph that produced it, or the tensor it is a view of.
        moved_from: The tensor that it was rearranged and scaled from.
        function_of: The tensor it is an elementwise function of, and whether that function is linear.
        rows: Which example each of its rows belongs to, if they are in another order.
    """

    role: Role | None = None
    copy_of: Tensor | None = None
    is_weight: bool = False
    is_scale: bool = False
    is_map: bool = False
    made_by: Any = None
    moved_from: Tensor | None = None
    function_of: tuple[Tensor, bool] | None = None
    rows: Tensor | None = None


NOTHING_KNOWN = TensorFact()


class Facts:
    """The facts of one forward pass, by tensor; a fact is dropped with its tensor.

    `lengths` gives, by length of the first axis, which example each entry belongs to; otherwise rows are ordered by
    example, as in a flattened batch. Without `origins`, nobody asks what a tensor was rearranged from.
    """

    def __init__(
        self,
        weights: Iterable[Tensor] = (),
        batch: int = 1,
        lengths: Mapping[int, Tensor] | None = None,
        *,
        origins: bool = True,
    ):
        # Keyed by id, which may be reused once a tensor is freed: so an entry also refers to its tensor.
        self._facts: dict[int, tuple[ref[Tensor], TensorFact]] = {}
        self.ids = self._facts.keys()  # of the tensors that something is known about
        self.batch, self._lengths, self._origins = batch, lengths or {}, origins
        self._weights = weights

    def __getitem__(self, x: Any) -> TensorFact:
        entry = self._facts.get(id(x))
        return entry[1] if entry is not None and entry[0]() is x else NOTHING_KNOWN

    def of(self, tensors: Iterable[Tensor]) -> list[TensorFact]:
        """The facts of several tensors."""
        return [self[x] for x in tensors]

    def put(self, x: Tensor, fact: TensorFact) -> None:
        """Set the fact of a tensor."""
        key = id(x)
        entry = self._facts.get(key)
        reference = entry[0] if entry is not None and entry[0]() is x else ref(x, partial(self._drop, key))
        self._facts[key] = (reference, fact)

    def note(self, x: Tensor, **changes: Any) -> None:
        """Update the fact of a tensor."""
        self.put(x, self[x]._replace(**changes))

    def forget(self) -> None:
        """Clear all facts: they are only needed during the pass, and would keep its graph alive."""
        self._facts.clear()

    def _drop(self, key: int, reference: ref[Tensor]) -> None:
        entry = self._facts.get(key)
        if entry is not None and entry[0] is reference:
            del self._facts[key]

    def role(self, x: Any) -> Role | None:
        """The part of a tensor in an attention operation."""
        entry = self._facts.get(id(x))
        return entry[1].role if entry is not None and entry[0]() is x else None

    def set_role(self, x: Any, role: Role | None, copy_of: Tensor | None = None) -> None:
        """Set the role of a result, replacing the former one after an in-place operation."""
        key = id(x)
        entry = self._facts.get(key)
        if entry is not None and entry[0]() is x:
            self._facts[key] = entry[0], TensorFact(role, copy_of, *entry[1][2:])
        elif (role is not None or copy_of is not None) and isinstance(x, Tensor):
            self._facts[key] = ref(x, partial(self._drop, key)), TensorFact(role, copy_of)

    def original(self, x: Tensor) -> Tensor:
        """The tensor that this one is a copy of, or itself."""
        entry = self._facts.get(id(x))
        source = entry[1].copy_of if entry is not None and entry[0]() is x else None
        return x if source is None else source

    def is_of_the_model(self, x: Tensor) -> bool:
        """Whether a tensor is a weight of the model, in any form."""
        return self[x].is_weight or x.untyped_storage().data_ptr() in self._storages

    @cached_property
    def _storages(self) -> frozenset[int]:
        """Where the weights are stored."""
        return frozenset(weight.untyped_storage().data_ptr() for weight in self._weights)

    def origin(self, x: Tensor) -> Tensor:
        """The tensor that this one was rearranged and scaled from, or itself."""
        source = self[x].moved_from
        return x if source is None else source

    def root(self, x: Tensor) -> tuple[Tensor, bool]:
        """The tensor that this one is an elementwise function of, and whether that is linear."""
        return self[x].function_of or (x, True)

    def move(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Carry the facts of entries that are moved or picked over to the result."""
        if self.batch > 1:
            self._pick_rows(name, args, result)
        if args and type(args[0]) is Tensor and args[0].requires_grad and not self._origins:
            known = self[args[0]]  # which alone counts
            if known.made_by is None and not (known.is_scale or known.is_map):
                return
        tensors = [x for x in tensors_in(args) if x.is_floating_point()]
        if not tensors:
            return
        first = tensors[0]
        # Others are written into the one with a gradient.
        source = first if first.requires_grad else next((x for x in tensors if x.requires_grad), first)
        known, maker = self[source], self[first].made_by
        shared = self._shared_origin(tensors) if self._origins else None
        # Copies of weights are weights too, such as those of the chosen experts; sums of weights are not.
        are_copies = name in REARRANGING
        are_weights = not source.requires_grad and all(self.is_of_the_model(x) for x in tensors)
        if not (known.is_scale or known.is_map or are_weights or maker is not None or shared is not None):
            return
        for moved in (result,) if isinstance(result, Tensor) else tensors_in((result,)):
            own = self[moved]
            is_view = (maker is not None or (are_weights and not are_copies)) and _is_view(moved, first)
            fact = TensorFact(
                role=own.role,
                copy_of=own.copy_of,
                is_weight=own.is_weight or (are_weights and (are_copies or is_view)),
                is_scale=own.is_scale or known.is_scale,
                is_map=own.is_map or known.is_map,
                made_by=maker if maker is not None and is_view else own.made_by,
                moved_from=own.moved_from if shared is None else shared,
                function_of=own.function_of,
                rows=own.rows,
            )
            self.put(moved, fact)

    def _shared_origin(self, tensors: list[Tensor]) -> Tensor | None:
        """The tensor that all of some were rearranged and scaled from."""
        origin = self.origin(tensors[0])
        return origin if all(self.origin(x) is origin for x in tensors[1:]) else None

    def rows_of(self, tensors: Iterable[Tensor]) -> Mapping[int, Tensor]:
        """Which example each entry of the first axis belongs to, by its length, for some tensors together."""
        if self.batch == 1:
            return self._lengths
        rows = next((fact.rows for fact in map(self.__getitem__, tensors) if fact.rows is not None), None)
        return self._lengths if rows is None else {**self._lengths, len(rows): rows}

    def carry_rows(self, tensors: Iterable[Tensor], result: Any) -> None:
        """Keep the example of each row for results computed row by row."""
        if self.batch == 1:
            return
        rows = next((fact.rows for fact in map(self.__getitem__, tensors) if fact.rows is not None), None)
        if rows is not None and isinstance(result, Tensor) and result.dim() and len(result) == len(rows):
            self.note(result, rows=rows)

    def _pick_rows(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        source = args[0] if args else None
        if not isinstance(source, Tensor) or not source.requires_grad:
            return
        index = args[1] if name == "__getitem__" else args[2] if name == "index_select" and args[1] == 0 else None
        if isinstance(index, Tensor) and index.dim() == 1:
            rows = self._rows(source)
            if rows is not None:
                self.note(result, rows=rows[index])
        else:
            self.carry_rows([source], result)

    def _rows(self, x: Tensor) -> Tensor | None:
        known = self[x].rows
        known = self._lengths.get(len(x)) if known is None else known
        if known is not None or x.dim() != 2 or len(x) % self.batch:
            return known
        return torch.arange(self.batch, device=x.device).repeat_interleave(len(x) // self.batch)


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among some arguments, and in lists among them."""
    tensors = []
    for x in values:
        if isinstance(x, Tensor):
            tensors.append(x)
        elif isinstance(x, (tuple, list)):
            tensors += tensors_in(x)
    return tensors


def _is_view(x: Tensor, of: Tensor) -> bool:
    return x.untyped_storage().data_ptr() == of.untyped_storage().data_ptr()


# Types of arguments among which is no parameter.
CONSTANT = frozenset({Tensor, torch.Size, torch.dtype, torch.device, int, float, bool, str, slice, type(None)})


def plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Detach the parameters among the arguments: their gradients are never needed."""
    return tuple([x if type(x) in CONSTANT else _plain(x) for x in args])


def _plain(x: Any) -> Any:
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(plain(tuple(x)))
    return x.detach() if kind is nn.Parameter or isinstance(x, nn.Parameter) else x


def plain_values(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Detach the parameters among keyword arguments."""
    return {name: x if type(x) in CONSTANT else _plain(x) for name, x in kwargs.items()}
