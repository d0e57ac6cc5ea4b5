"""The parts of an attention operation, noted while it runs: its map, its weights, and the states around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from whyformer.axes import QUERY, State, TokenScores, Values, by_head
from whyformer.models.joined import Tokens, in_order
from whyformer.watching.linear_kernels import LinearKernel
from whyformer.watching.mixing import KeptMap, LinearMixing, Mixing
from whyformer.watching.roles import Addend, Branch, Projection, Written, is_same, may_be_state

REJECTED = "W_o is rejected"


@dataclass(eq=False)
class Outcome:
    """Where mixed values go: their projection W_o, and the state that it is added to.

    Parts of one attention (a packed sequence) share it.
    """

    output_weight: Tensor | None = None
    output_parameter: Tensor | None = None
    output_module: nn.Module | None = None  # the owner of the weight: weights that are lent have no name
    readers: int = 0
    gated: Tensor | None = None  # its input, if the mixed values were multiplied by something before
    is_centred: bool = False  # a mean was subtracted from the mixed values
    heads_in_order: Tensor | None = None
    tokens_first: Tensor | None = None
    beside: set[Tap] = field(default_factory=set)  # the branches that are added to the same state
    output_scale: Tensor | None = None  # per query token, of a norm between W_o and the residual stream
    output: Tensor | None = None  # of W_o, if edges are read
    query_state: Tensor | None = None
    query_original: Tensor | None = None  # the tensor that it is a copy of, or itself
    state_before: Tensor | None = None  # that state, or else the first that the output is added to
    state_edge: GradientEdge | None = None  # of that, if it is in the graph
    state_is_swapped: bool = False
    sum: tuple[Tensor, Tensor] | None = None  # if edges are read: the state before and after the add
    # What it was added to, its shape, and why that is a state or not.
    sums: list[tuple[str, torch.Size, str]] = field(default_factory=list)


@dataclass(eq=False)
class Tap:
    """The parts of one attention operation recorded so far."""

    map: Tensor | LinearMixing
    is_folded: bool
    probe: Tensor | None = None  # with a graph: the map, or the mixed values, from whose gradient the map's follows
    value: Tensor | None = None
    mixed: Values | None = None
    value_source: Projection | None = None
    outcome: Outcome = field(default_factory=Outcome)
    state_products: Sequence[Tensor] = ()  # for each score that shares the pass, the state before times its gradient

    @property
    def kernel(self) -> LinearKernel | None:
        """The call of a kernel that is linear in its values, if the operation is one."""
        return self.map if isinstance(self.map, LinearKernel) else None

    def attention(self, batch: int) -> Mixing:
        """The map, with a head axis."""
        return KeptMap(by_head(self.map.detach(), batch)) if isinstance(self.map, Tensor) else self.map

    def is_beside(self, other: Tap) -> bool:
        """Whether it and another operation are branches of one block: their outputs are added to each other."""
        return other in self.outcome.beside

    def compare_order(self, values: Values, rows: Tensor) -> None:
        """Compare whether heads are side by side in W_o's input, and tokens before examples, without synchronising."""
        head_count, width = values.shape[1], values.shape[-1]
        if rows.shape[-1] != head_count * width:
            self.outcome.heads_in_order = torch.tensor(False)
            return
        self.outcome.heads_in_order = (rows[0] == values[0, :, 0].flatten()).all()
        if values.shape[QUERY] > 1:
            self.outcome.tokens_first = (rows[1] != values[0, :, 1].flatten()).any()

    def state(self, batch: int, tokens: int, rows: Tokens | None = None, *, of_keys: bool = False) -> State | None:
        """The residual state as [example, token, channel]; the keys' state is the tensor their values project.

        `rows` are the tokens that its entries belong to, if they are in another order.
        """
        state = self.outcome.query_state
        if of_keys:
            state = None if self.value_source is None else self.value_source.source.detach()
            if state is not None and state.dim() == 2 and len(state) == batch * tokens:
                state = state.unflatten(0, (batch, tokens))  # GPT-2's Conv1D flattens its input
            if state is not None and state.dim() == 4 and state.shape[1] == 1:
                state = state[:, 0]  # a latent that all heads share
        is_swapped = self.outcome.state_is_swapped and not of_keys
        return None if state is None else self._examples_first(state, batch, tokens, is_swapped, rows)

    def add_to(self, written: Written, output: Tensor, addend: Addend) -> bool:
        """Note the state that the output is added to, and its edge. Return whether it is the residual state."""
        (is_residual, reason), place = self.is_residual(addend), addend.place
        name = "the residual state" if is_residual else "something else"
        self.outcome.sums.append((name, addend.state.shape, reason))
        if is_residual or (self.outcome.state_before is None and may_be_state(addend.role)):
            self.outcome.state_before, self.outcome.state_is_swapped = addend.state, written.is_swapped
            self.outcome.state_edge = shared_edge(place, output) if place.requires_grad else None
        if is_residual:
            self.outcome.query_state, self.outcome.query_original = addend.state, addend.original
        return is_residual

    def add_up(self, written: Written, state: Tensor, result: Tensor) -> None:
        """Keep a state before and after the add: the residual state, or else the first that is found."""
        if self.outcome.sum is None or state is self.outcome.query_state:
            self.outcome.sum = state, result.detach().clone()  # the model may change it in place later
            self.outcome.output, self.outcome.state_is_swapped = None, written.is_swapped

    def states(
        self, batch: int, tokens: int, rows: Tokens | None = None, *, is_cross: bool
    ) -> tuple[State | None, State | None]:
        """The query tokens' state before and after the attention's output is added, [example, token, channel].

        Within one stream the state before is the one that the values read; between streams that does not identify it. A
        token that only pools others has no state before: its state is the output alone.
        """
        pair = self.outcome.sum
        if pair is None and is_cross and self.outcome.output is not None:
            pair = torch.zeros_like(self.outcome.output), self.outcome.output
        if pair is None or (not is_cross and pair[0] is not self.outcome.query_state):
            return None, None
        before, after = (self._examples_first(x, batch, tokens, self.outcome.state_is_swapped, rows) for x in pair)
        return before, after

    def linear_value(self, batch: int, tokens: int) -> Callable[[], Values] | None:
        """The values without their biases, or a kernel's values; None if they are not a plain projection of a state."""
        if (kernel := self.kernel) is not None:
            return lambda: kernel.value
        projection = self.value_source
        source = self.state(batch, tokens, of_keys=True)
        if projection is None or projection.is_normed or source is None or self.value is None:
            return None
        weight = projection.rows(batch)
        if weight is None or weight.shape[-1] != source.shape[-1]:
            return None
        # A state that is itself the output of a norm (post-norm) keeps that norm's bias.
        sources = [x for x in (projection.source, projection.origin) if x is not None]
        is_state = self.outcome.query_original is None or any(is_same(x, self.outcome.query_original) for x in sources)
        return LinearValue(source, None if is_state else projection.source_bias, weight, self.value.shape[-1])

    def state_scores(self, batch: int, tokens: int, rows: Tokens | None = None) -> Callable[[], TokenScores] | None:
        """A function that returns state × gradient, [example, token], once the gradient has been computed."""
        state = self.outcome.state_before
        if (
            self.probe is None
            or state is None
            or self._examples_first(state, batch, tokens, self.outcome.state_is_swapped, rows) is None
        ):
            return None

        def scores() -> TokenScores:
            each = []
            for values in self.state_products or [state_times_gradient(state, None)]:
                placed = self._examples_first(values[..., None], batch, tokens, self.outcome.state_is_swapped, rows)
                assert placed is not None
                each.append(placed[..., 0])
            return torch.cat(each)

        return scores

    def gate(self, batch: int) -> Values | None:
        """The factors of the mixed values before W_o [example, head, query, feature]; None without any."""
        gated = self.outcome.gated
        if gated is None or self.mixed is None or gated.numel() != self.mixed.numel():
            return None
        _, heads, queries, width = self.mixed.shape
        by_head = gated.reshape(batch, queries, heads, width).transpose(1, 2)
        return (by_head / self.mixed.to(by_head)).masked_fill(self.mixed == 0, 0.0)

    def scale(self, batch: int, tokens: int, rows: Tokens | None = None) -> TokenScores | None:
        """Per-query output scale of the norm after attention; None without one."""
        if self.outcome.output_scale is None:
            return None
        is_swapped = self.outcome.state_is_swapped
        scale = self._examples_first(self.outcome.output_scale, batch, tokens, is_swapped, rows)
        return None if scale is None else scale[..., 0]

    def _examples_first(
        self, x: Tensor, batch: int, tokens: int, is_swapped: bool, rows: Tokens | None = None
    ) -> Tensor | None:
        """A tensor of the residual stream as [example, token, channel]."""
        if rows is not None:
            return in_order(x, rows, batch, tokens)
        if x.dim() != 3:
            return None
        if batch == tokens:
            tokens_first = self.outcome.tokens_first is not None and bool(self.outcome.tokens_first) != is_swapped
        else:
            tokens_first = x.shape[:2] == (tokens, batch)
        x = x.transpose(0, 1) if tokens_first else x
        return x if x.shape[:2] == (batch, tokens) else None

    def value_weight(self, batch: int) -> Tensor | None:
        """W_v, from the residual state if that is known."""
        if self.value_source is None:
            return None
        return self.value_source.rows(
            batch, None if self.outcome.query_state is None else self.outcome.query_state.shape[-1]
        )

    def is_residual(self, addend: Addend) -> tuple[bool, str]:
        """Whether this is the state that the attention read, and why: by what the values project, else by its role."""
        if self.outcome.query_state is not None:
            return False, "the residual state is known already"
        known = None if self.value_source is None else self.value_source.reads(addend.original)
        if known is not None:
            return known, f"the values are projected from {'it' if known else 'another tensor'}"
        if isinstance(addend.role, (Projection, Written, Branch)):
            return False, "it is the output of a linear layer"
        return True, "it is not the output of a linear layer, and the source of the values is not known"

    def decisions(self) -> tuple[str, ...]:
        """How W_v, W_o and the residual state were found, and what was rejected; empty if states were not recorded."""
        if self.value is None:
            return ()
        source, outcome = self.value_source, self.outcome
        values = "W_v is not known: no linear layer was seen to give the values"
        if source is not None:
            kind = "the normalisation of a state" if source.source_norm is not None else "a tensor"
            values = f"W_v: the values are projected from {kind}, {tuple(source.source.shape)}"
        reason, output = self._rejection(), "W_o: one linear layer reads the mixed values"
        if outcome.readers != 1:
            output = f"W_o is not known: {outcome.readers} linear layers read the mixed values"
        elif reason is not None:
            output = f"{REJECTED}: {reason}"
        sums = [f"its output is added to {name}, {tuple(shape)}: {reason}" for name, shape, reason in outcome.sums]
        unknown = "the residual state is not known: its output was not seen to be added to anything"
        return values, output, *(sums or [unknown])

    def projection(self) -> Tensor | None:
        """W_o, if it is the only layer that reads the mixed values, with their heads side by side."""
        is_plain = self.outcome.readers == 1 and self._rejection() is None
        return self.outcome.output_weight if is_plain else None

    def _rejection(self) -> str | None:
        """Why the layer that reads the mixed values is not W_o; None if it is."""
        weight, in_order = self.outcome.output_weight, self.outcome.heads_in_order
        if self.outcome.is_centred:
            return "a mean is subtracted from the mixed values before it"
        if in_order is not None and not bool(in_order):
            return "its input is not the mixed values of the heads side by side"
        if self.kernel is not None and weight is not None:
            _, heads, _, width = self.kernel.value.shape
            if weight.shape[-1] != heads * width:
                return "the kernel runs by groups of channels, and it reads all of them"
        return None


def state_times_gradient(state: Tensor, gradient: Tensor | None) -> Tensor:
    """Σ_c z g over the channels, in float32 at least; 0 without a gradient."""
    dtype = torch.promote_types(state.dtype, torch.float32)
    if gradient is None:
        return state.new_zeros(state.shape[:-1], dtype=dtype)
    return (state.to(dtype) * gradient.to(dtype)).sum(dim=-1)


@dataclass(frozen=True)
class LinearValue:
    """The values of an attention operation without the biases of W_v and of the norm before it."""

    source: State
    bias: Tensor | None
    weight: Tensor
    width: int

    def __call__(self) -> Values:
        source = self.source if self.bias is None else self.source - self.bias
        values: Values = (source.to(self.weight) @ self.weight.T).unflatten(-1, (-1, self.width)).transpose(1, 2)
        return values


# Copies in the graph: the model's own, and those that PyTorch makes for the backward hooks of a module.
COPIES = ("CloneBackward0", "ToCopyBackward0", "AliasBackward0", "BackwardHookFunctionBackward")


def shared_edge(state: Tensor, output: Tensor) -> GradientEdge:
    """The edge of a state that an output is computed from and added to, or of the tensor the state is a copy of.

    The gradient of a copy that only the sum reads lacks the part through the attention. A state computed only for the
    sum, as where patches are merged, has its own edge.
    """
    own = get_gradient_edge(state)
    return next((edge for edge in _originals(own) if _depends(output, edge)), own)


def _originals(edge: GradientEdge) -> Iterator[GradientEdge]:
    """An edge of the graph, the edge it is a copy of, and so on."""
    yield edge
    while edge.node.name() in COPIES:
        node, number = edge.node.next_functions[edge.output_nr]
        if node is None:
            return
        edge = GradientEdge(node, number)
        yield edge


def _depends(output: Tensor, edge: GradientEdge) -> bool:
    """Whether a tensor is computed from an edge of its graph, searched breadth first."""
    queue: deque[Node] = deque([get_gradient_edge(output).node] if output.requires_grad else [])
    known = set(queue)
    while queue:
        for node, number in queue.popleft().next_functions:
            if node is edge.node and number == edge.output_nr:
                return True
            if node is not None and node not in known:
                known.add(node)
                queue.append(node)
    return False
