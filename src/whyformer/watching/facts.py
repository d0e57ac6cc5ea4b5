"""What is known of the tensors of a forward pass: one fact for each, read by recording and by rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import KeyedRef

import torch
from torch import Tensor

from whyformer.watching.operation_names import KEEPING, MOVING, PICKING

if TYPE_CHECKING:
    from whyformer.watching.roles import Role


class TensorFact(NamedTuple):
    """What is known of a tensor.

    Attributes:
        role: Its part in an attention operation, or in what comes before and after one.
        copy_of: The tensor whose values it has.
        is_weight: Whether it is a weight of the model in another form: widened, unpacked, a view.
        is_scale: Whether it only says how much something else counts.
        is_map: Whether a softmax gave it.
        made_by: The operation in the graph whose output it is, or a view of.
        moved_from: The tensor that it was moved about and scaled from.
        function_of: The tensor it is a function of, entry by entry, and whether that function is linear.
        rows: Which example each of its rows belongs to, where they lie in another order.
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
    """The facts of one forward pass, by tensor; a tensor that is gone takes its fact along.

    `lengths` says which example each entry of a first axis of some length belongs to; otherwise rows lie examples
    first, as a batch is flattened.
    """

    def __init__(self, weights: Iterable[Tensor] = (), batch: int = 1, lengths: Mapping[int, Tensor] | None = None):
        # By the tensor's id, which another may get once it is gone: so an entry also knows which tensor it is of.
        self._facts: dict[int, tuple[KeyedRef[int, Tensor], TensorFact]] = {}
        self._batch, self._lengths = batch, lengths or {}
        self._weights = {weight.untyped_storage().data_ptr() for weight in weights}

    def __getitem__(self, x: Any) -> TensorFact:
        entry = self._facts.get(id(x))
        return entry[1] if entry is not None and entry[0]() is x else NOTHING_KNOWN

    def put(self, x: Tensor, fact: TensorFact) -> None:
        """Set what is known of a tensor."""
        self._facts[id(x)] = (KeyedRef(x, self._drop, id(x)), fact)

    def note(self, x: Tensor, **changes: Any) -> None:
        """Change what is known of a tensor."""
        self.put(x, self[x]._replace(**changes))

    def forget(self) -> None:
        """Forget everything: facts are of use during the pass alone, and would keep its graph alive."""
        self._facts.clear()

    def _drop(self, reference: KeyedRef[int, Tensor]) -> None:
        entry = self._facts.get(reference.key)
        if entry is not None and entry[0] is reference:
            del self._facts[reference.key]

    def role(self, x: Any) -> Role | None:
        """The part that a tensor has in an attention operation."""
        return self[x].role

    def set_role(self, x: Any, role: Role | None, copy_of: Tensor | None = None) -> None:
        """Give a result its role; after an operation in place, the former one no longer holds."""
        if isinstance(x, Tensor):
            known = self[x]
            if known is not NOTHING_KNOWN or role is not None or copy_of is not None:
                self.put(
                    x,
                    known._replace(role=role, copy_of=copy_of)
                    if known is not NOTHING_KNOWN
                    else TensorFact(role, copy_of),
                )

    def original(self, x: Tensor) -> Tensor:
        """The tensor that this one is a copy of; itself where it is not a copy."""
        source = self[x].copy_of
        return x if source is None else source

    def is_of_the_model(self, x: Tensor) -> bool:
        """Whether a tensor is a weight of the model, in whatever form."""
        return self[x].is_weight or x.untyped_storage().data_ptr() in self._weights

    def origin(self, x: Tensor) -> Tensor:
        """The tensor that this one was moved about and scaled from, or itself."""
        source = self[x].moved_from
        return x if source is None else source

    def root(self, x: Tensor) -> tuple[Tensor, bool]:
        """The tensor that this one is an elementwise function of, and whether that is linear."""
        return self[x].function_of or (x, True)

    def move(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Entries that are moved or picked stay what they were."""
        if self._batch > 1:
            self._pick_rows(name, args, result)
        given = [x for x in tensors_in(args) if x.is_floating_point()]
        if not given:
            return
        origins = [self.origin(x) for x in given]
        shared = origins[0] if all(origin is origins[0] for origin in origins) else None
        first, source = given[0], next((x for x in given if x.requires_grad), given[0])  # others are put into it
        known, maker = self[source], self[first].made_by
        # Copies of weights are weights too, such as those of the chosen experts; sums of weights are not.
        are_copies = name in MOVING or name in KEEPING or name in PICKING
        are_weights = all(self.is_of_the_model(x) for x in given)
        for moved in [result] if isinstance(result, Tensor) else tensors_in((result,)):
            own, is_view = self[moved], _is_view(moved, first)
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

    def rows_of(self, tensors: Iterable[Tensor]) -> Mapping[int, Tensor]:
        """Which example each entry of a first axis belongs to, by its length, of some tensors together."""
        rows = next((fact.rows for fact in map(self.__getitem__, tensors) if fact.rows is not None), None)
        return self._lengths if rows is None else {**self._lengths, len(rows): rows}

    def carry_rows(self, given: Iterable[Tensor], result: Any) -> None:
        """What is computed row by row belongs to the examples its rows belonged to."""
        if self._batch == 1:
            return
        rows = next((fact.rows for fact in map(self.__getitem__, given) if fact.rows is not None), None)
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
        if known is not None or x.dim() != 2 or len(x) % self._batch:
            return known
        return torch.arange(self._batch, device=x.device).repeat_interleave(len(x) // self._batch)


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among some arguments, and in lists of them."""
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from tensors_in(x)


def _is_view(x: Tensor, of: Tensor) -> bool:
    return x.untyped_storage().data_ptr() == of.untyped_storage().data_ptr()
