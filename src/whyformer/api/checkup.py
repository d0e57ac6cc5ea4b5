"""The result of doctor, and its display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from whyformer.methods.registry import methods_of
from whyformer.render.text_spans import readable

GIB = 2**30


@dataclass(frozen=True, repr=False)
class Checkup:
    """A report on a model: its structure, how it is traced, and any problems.

    Maps are [head query key], one per record, or empty if they are not over its tokens. `streams` are all streams
    that the answer depends on, with their number of tokens; `stream` is that of the read-out, or the first of two.
    Shares are of raw_attention there: the first token's of all tokens, the first content token's of the content.
    `methods` has None for a method that applies, otherwise the reason why not. Completeness is the difference between
    the sum of a method's scores and the expected sum, relative to it. If memory was requested: the number of tokens,
    the bytes that each method takes, None if measuring it ran out of memory, and the bytes available on the device.

    Example:
        >>> checkup = whyformer.doctor("mini-bert")
        >>> checkup.problems, checkup.methods["rollout"] is None
        ((), True)
    """

    model: str
    architecture: str
    family: str
    answers: str
    targets: str
    labels: tuple[str, ...]
    precision: str
    attention: str
    layers: int | None
    records: int
    maps: tuple[tuple[int, int, int], ...]
    streams: Mapping[str, int]
    stream: str
    tokens: int
    grid: tuple[int, int] | None
    special_tokens: tuple[str, ...]
    register_tokens: int
    readout: str
    logit_difference: float
    largest_logit: float
    first_token_share: float
    first_content_share: float
    methods: Mapping[str, str | None]
    completeness: Mapping[str, float]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    memory_tokens: int | None = None
    memory: Mapping[str, int | None] = field(default_factory=dict)
    memory_available: int = 0

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    @property
    def facts(self) -> dict[str, str]:
        """The model and how it is traced, one fact per line."""
        shapes = {shape: self.maps.count(shape) for shape in self.maps}
        labels = ", ".join(self.labels[:6]) + (" …" if len(self.labels) > 6 else "")
        streams = ", ".join(f"{name} ({tokens} tokens)" for name, tokens in self.streams.items())
        special = {name: self.special_tokens.count(name) for name in self.special_tokens}
        first, first_content = self.first_token_share, self.first_content_share
        return {
            "model": f"{self.model} ({self.architecture})",
            "family": self.family,
            "answers with": f"{self.answers}{f', {len(self.labels)}: {labels}' if self.labels else ''}",
            "targets": self.targets,
            "precision": self.precision,
            "attention": self.attention,
            "records": f"{self.records}{'' if self.layers is None else f' for {self.layers} layers'}",
            "maps": ", ".join(f"{count} × {list(shape)} (head, query, key)" for shape, count in shapes.items())
            or "none for all of its layers and tokens",
            "streams": streams,
            "grid": "none" if self.grid is None else f"{self.grid[0]}×{self.grid[1]} patches",
            "special tokens": ", ".join(f"{name} ({n}×)" if n > 1 else name for name, n in special.items()) or "none",
            "register tokens": str(self.register_tokens or "none"),
            "read-out": self.readout,
            "logits": f"{self.logit_difference:.1e} from the plain model's (largest {self.largest_logit:.2g})",
            "adding up": ", ".join(f"{name} within {share:.1%}" for name, share in self.completeness.items()) or "none",
            "first token": f"{first:.0%} of raw_attention in the {self.stream}; "
            f"first content token: {first_content:.0%} of the content's"
            if self.maps
            else "unknown without maps",
            "not tried": f"{', '.join(methods_of('function'))}: each runs the model many times",
        }

    @property
    def verdicts(self) -> dict[str, str]:
        """Whether each method applies, or why not, with its memory estimate if requested."""
        return {
            name: f"applies{self._memory_of(name)}" if reason is None else reason
            for name, reason in self.methods.items()
        }

    def _memory_of(self, method: str) -> str:
        if method not in self.memory:
            return ""
        size, available = self.memory[method], self.memory_available
        if size is None:
            return f"; {self.memory_tokens:,} tokens do not fit: fewer already ran out of memory"
        verdict = "fits" if size <= available else "does not fit"
        return f"; {self.memory_tokens:,} tokens take {size / GIB:.2f} GiB of {available / GIB:.1f}: {verdict}"

    @property
    def remarks(self) -> list[str]:
        """The notes, the problems, and in the last line whether the model is healthy."""
        problems = [f"WRONG: {problem}" for problem in self.problems]
        verdict = "healthy" if self.is_healthy else "not healthy"
        return [*(f"note: {note}" for note in self.notes), *problems, verdict]

    def __str__(self) -> str:
        lines = self.facts | self.verdicts
        width = max(map(len, lines))
        return readable("\n".join([*(f"{name:<{width}} {value}" for name, value in lines.items()), *self.remarks]))

    def __repr__(self) -> str:
        applicable = sum(reason is None for reason in self.methods.values())
        verdict = "healthy" if self.is_healthy else f"not healthy: {'; '.join(self.problems)}"
        methods = f"{applicable} of {len(self.methods)} methods apply"
        return readable(f"<Checkup of {self.model} ({self.architecture}); {methods}; {verdict}>")

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row' style='text-align: left'>{escape(name)}</th>"
            f"<td style='text-align: left'>{escape(readable(value))}</td></tr>"
            for name, value in (self.facts | self.verdicts).items()
        )
        remarks = "".join(f"<p>{escape(readable(remark))}</p>" for remark in self.remarks)
        return f"<table>{rows}</table>{remarks}"
