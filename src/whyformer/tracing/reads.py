"""What a method reads of a trace: only that is computed and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whyformer.errors import WhyformerError, check_choice

Extent = Literal["none", "last", "all"]
InputReading = Literal["none", "gradients", "relevances"]
StateReading = bool | Literal["of others"]
# What a method explains: an example, a response, any function (`predict=`), or a prompt with pictures in it alone.
Kind = Literal["example", "response", "function", "image prompt"]


@dataclass(frozen=True)
class Reads:
    """What a method reads of a trace.

    Args:
        maps: The attention maps: "none", the "last" one, or "all".
        gradients: The gradient of the score with respect to the maps.
        relevances: The relevance of the maps, by the rules of relevance propagation.
        states: Whether it reads the residual states of the tokens and the weights W_v and W_o, or only "of others":
            where some token is no word.
        edges: Whether it reads attention edge by edge: maps by head, values without bias, and the states before and
            after that what the edges carry is added to.
        inputs: The "gradients" or the "relevances" of the inputs themselves: pixels, embeddings.
        precise: Whether relevance is computed in strict float32 at least, or in the model's own dtype.
        subsets: Whether it reads no pass at all, but asks the model again about inputs without some of their units.
        path: Whether it asks the model again along a path from a baseline to the input, for gradients there.
        state_gradients: Whether it reads the residual states of the tokens times the gradients of the score there.
        biases: Whether it reads the biases that are added after, times the gradients where they are.
        logits: Whether it reads what the model says at every position, not only where the answer is read.
        positions: Whether position embeddings are inputs too, whose relevance is that of the tokens that stand there.

    Raises:
        WhyformerError: If a value is none of these.

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
        is_inside = {self.gradients, self.relevances} != {"none"} or self.state_gradients
        if self.inputs != "none" and is_inside:
            raise WhyformerError("Reads: a method reads the inputs, or gradients and relevances inside, not both.")

    @property
    def has_graph(self) -> bool:
        """Whether something is taken back through the forward pass."""
        return {self.gradients, self.relevances, self.inputs} != {"none"} or self.state_gradients

    @property
    def has_relevance(self) -> bool:
        """Whether that goes by the rules of relevance."""
        return self.relevances != "none" or self.inputs == "relevances"

    @property
    def takes_gradients(self) -> bool:
        """Whether it makes a difference to it how gradients are taken."""
        return self.gradients != "none" or self.inputs == "gradients" or self.path or self.state_gradients

    @property
    def is_last(self) -> bool:
        """Whether the last map is all it reads of the maps: the blocks before it can run as the model runs them."""
        return self.maps == "last"

    @property
    def can_go_by_blocks(self) -> bool:
        """Whether what is taken back can go block by block: relevance of positions goes as a whole."""
        return self.has_graph and not self.is_last and not self.positions

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What a method with these reads explains, unless it says otherwise."""
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
