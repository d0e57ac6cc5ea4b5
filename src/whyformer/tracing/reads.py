"""The parts of a trace that a method reads: only these are computed and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whyformer.errors import WhyformerError, check_choice

Extent = Literal["none", "last", "all"]
InputReading = Literal["none", "gradients", "relevances"]
StateReading = bool | Literal["of others"]
# Kinds of input that a method explains: an example, a response, any function (`predict=`), or a prompt with pictures.
Kind = Literal["example", "response", "function", "image prompt"]


@dataclass(frozen=True)
class Reads:
    """The parts of a trace that a method reads.

    Args:
        maps: The attention maps: "none", the "last" one, or "all"; only their mean over heads unless gradients,
            relevances or edges are read too.
        gradients: The gradient of the score with respect to the maps.
        relevances: The relevance of the maps, by the rules of relevance propagation.
        states: The residual states of the tokens and the weights W_v and W_o; "of others" if the method reads them, and
            the maps, only where some token is not a word.
        edges: Attention edge by edge: maps by head, values without bias, and the states before and after each
            attention.
        inputs: The "gradients" or the "relevances" of the inputs themselves: pixels, embeddings.
        precise: Whether relevance is computed in strict float32 at least, or in the model's own dtype.
        subsets: No pass, but the model's outputs on inputs with some units removed.
        path: Gradients along a path from a baseline to the input.
        state_gradients: The residual states of the tokens times the gradients of the score there.
        biases: The biases added later, times the gradients there.
        logits: The logits at every position, not only at the read-out.
        positions: Position embeddings as inputs, with their relevance added to their tokens.

    Raises:
        WhyformerError: If a value is not one of these.

    Example:
        >>> str(whyformer.extend.Reads(maps="last", gradients="last"))
        'last gradient'
    """

    maps: Extent = "none"
    gradients: Extent = "none"
    relevances: Extent = "none"
    states: StateReading = False
    edges: bool = False
    inputs: InputReading = "none"
    path: bool = False
    subsets: bool = False
    precise: bool = True
    state_gradients: bool = False
    biases: bool = False
    positions: bool = False
    logits: bool = False

    def __post_init__(self) -> None:
        for name in ("maps", "gradients", "relevances"):
            check_choice(f"Reads: {name}", getattr(self, name), Extent)
        check_choice("Reads: inputs", self.inputs, InputReading)
        if self.states not in (True, False, "of others"):
            raise WhyformerError(f"Reads: states={self.states!r}. Choose from: True, False, of others.")
        is_inside = {self.gradients, self.relevances} != {"none"} or self.state_gradients
        if self.inputs != "none" and is_inside:
            raise WhyformerError("Reads: a method reads the inputs, or gradients and relevances inside, not both.")

    @property
    def has_graph(self) -> bool:
        """Whether it needs a backward pass."""
        return {self.gradients, self.relevances, self.inputs} != {"none"} or self.state_gradients

    @property
    def has_relevance(self) -> bool:
        """Whether that pass follows the rules of relevance."""
        return self.relevances != "none" or self.inputs == "relevances"

    @property
    def takes_gradients(self) -> bool:
        """Whether it reads gradients, so that the rules of gradients matter."""
        return self.gradients != "none" or self.inputs == "gradients" or self.path or self.state_gradients

    @property
    def is_last(self) -> bool:
        """Whether it only reads the last map, so that earlier blocks run unchanged."""
        return self.maps == "last"

    @property
    def can_go_by_blocks(self) -> bool:
        """Whether the backward pass can run block by block: not for the relevance of positions."""
        return self.has_graph and not self.is_last and not self.positions

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of input that a method with these reads explains by default."""
        return ("example", "response", "function") if self.subsets else ("example", "response")

    def __str__(self) -> str:
        if self.subsets:
            return "answers"
        if self.logits:
            return "logits"
        if self.inputs != "none":
            return "inputs" if self.inputs == "gradients" else "input relevances"
        if self.state_gradients and self.maps == "none":
            return "state gradients"
        noun = next((name for name in ("relevances", "gradients") if getattr(self, name) != "none"), "maps")
        words = f"last {noun.removesuffix('s')}" if self.is_last else noun
        return f"{words}, states" if self.states or self.edges else words
