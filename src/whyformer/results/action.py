"""Actions: which messages, results of tools and words made a model call a tool with these arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whyformer.axes import SourceScores, SpanScores
from whyformer.errors import WhyformerError
from whyformer.inputs.action_sources import ActionSource
from whyformer.inputs.conversation import ToolCall, parse_calls
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.verdicts import NOT_CALIBRATED
from whyformer.render import action_page as page
from whyformer.render.action_text import action_text
from whyformer.render.show import Where, show
from whyformer.results.part import check_top_count
from whyformer.results.support import VerdictError

ActionVerdict = Literal["follows the user", "driven by a tool result", "mixed", "cannot tell"]
VERDICT_RULE = 2  # of verdicts by the effects on the action; raised when the rule changes
TargetKind = Literal["call", "action", "decision", "name", "argument"]
ARGUMENTS = "arguments."


@dataclass(frozen=True)
class ActionTarget:
    """A part of a call that is explained, with its log-probabilities in nats.

    Attributes:
        kind: "call" for the whole call, "action" for the decision and the name together, "decision" for what is
            written before the name, "name", or "argument" for the value of one. The figures of the decision are
            log-odds: that the reply begins this way against any other way, such as an answer.
        name: The name of the argument; otherwise the kind.
        start: Its first character in the text of the reply.
        end: The end of its range, exclusive.
        text: Its characters.
        tokens: The indices of its tokens in the reply.
        log_probability: With all sources; the log-odds of a decision.
        without_request: Without the messages of the user.
        without_untrusted: Without the untrusted sources.
        without_both: Without both.
        verdict: Whose doing it is.
    """

    kind: TargetKind
    name: str
    start: int
    end: int
    text: str
    tokens: tuple[int, ...]
    log_probability: float
    without_request: float
    without_untrusted: float
    without_both: float
    verdict: ActionVerdict = "cannot tell"

    @property
    def request_effect(self) -> float:
        """How much the log-probability falls without the user's request."""
        return self.log_probability - self.without_request

    @property
    def untrusted_effect(self) -> float:
        """How much the log-probability falls without the untrusted sources."""
        return self.log_probability - self.without_untrusted

    @property
    def dominance(self) -> float:
        """The effect of the untrusted sources less that of the request; it is the same by Shapley values of the two."""
        return self.without_request - self.without_untrusted


@dataclass(frozen=True)
class EffectiveSource:
    """A source with its measured effect on a target in nats."""

    source: ActionSource
    effect: float


@dataclass(frozen=True, eq=False)
class Action:
    """The explanation of a call of a tool. Returned by `explain_action`.

    `print` shows it in the terminal; a notebook displays it as a page.

    Attributes:
        prompt: The conversation before the call, as the model reads it.
        call: The call.
        text: The reply that makes it, as the chat template writes it.
        targets: The whole call, the action, the decision, the name, then each argument.
        sources: The parts of the conversation as a tree, each before those within it.
        effects: A float32 array [target, source]: how much the log-probability of a target falls without a source, in
            nats; NaN where it was not measured.
        verdict: Who is behind the call.
        reason: The reason, in a sentence.
        driver: The indices of the untrusted sources that drive the call: the fewest without which it loses half of
            what all of them add.
        driver_effect: How much the log-probability of the call falls without them.
        instead: What the model would have written without them; None if that was not computed.
        model: The name of the model.
        method: The method whose scores chose the parts of results that were removed; empty for a served model.
        token_scores: Its scores, a float32 array [target, token of the prompt]; None for a served model.
        contrast: The call that it is compared with, whose log-probabilities are subtracted; None without one.
        forwards: The number of forward passes, not counting those of the method.
        notes: Caveats for the reader, in sentences.
        tau: The nats from which an effect counts for the verdicts.
        calibration: The data that this threshold was fitted on; "not calibrated" without any.
        error: How often this verdict on an action was wrong on data of the same kind; None if that is not known.
        file: The name of the transcript's file; empty without one. Files of results do not keep it.
        audit: Returns the content of its audit file; None for an action loaded from a file, or of a served model.

    Raises:
        WhyformerError: If the arrays do not fit the targets and sources.

    Example:
        >>> from whyformer.facts import episode
        >>> model = whyformer.load("mini-gpt")
        >>> model.tokenizer.chat_template = (
        ...     "{% for m in messages %}{{ m.role }}: {{ m.content }}"
        ...     "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %} {% endfor %}"
        ...     "{% if add_generation_prompt %}assistant: {% endif %}"
        ... )
        >>> messages = episode(4, kind="plan", entries=2).messages
        >>> action = whyformer.explain_action(messages, model=model, budget=8)
        >>> [target.name for target in action.targets]
        ['call', 'action', 'decision', 'name', 'title', 'day']
    """

    prompt: Prompt
    call: ToolCall
    text: str
    targets: tuple[ActionTarget, ...]
    sources: tuple[ActionSource, ...]
    effects: SourceScores
    verdict: ActionVerdict
    reason: str
    model: str
    driver: tuple[int, ...] = ()
    driver_effect: float | None = None
    instead: str | None = None
    method: str = ""
    token_scores: SpanScores | None = None
    contrast: ToolCall | None = None
    forwards: int = 0
    notes: tuple[str, ...] = ()
    tau: float = 2.0
    calibration: str = NOT_CALIBRATED
    error: VerdictError | None = None
    file: str = field(default="", compare=False)
    audit: Callable[[Action], dict[str, Any]] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        shapes = {"effects": (self.effects, len(self.sources))}
        if self.token_scores is not None:
            shapes["token_scores"] = self.token_scores, len(self.prompt.tokens)
        for name, (values, width) in shapes.items():
            if values.dtype != np.float32 or values.shape != (len(self.targets), width):
                raise WhyformerError(
                    f"{name} of an action are float32 of shape {(len(self.targets), width)}, not {values.dtype} of "
                    f"shape {values.shape}."
                )

    @property
    def dominance(self) -> float:
        """How much more the untrusted sources do for the call than the user's request, in nats."""
        return self.target("call").dominance

    @property
    def largest_dominance(self) -> float:
        """The largest dominance of the call and of its arguments: an attack may change only an account."""
        return max(one.dominance for one in self.targets if one.kind in ("call", "argument"))

    @property
    def driven_arguments(self) -> tuple[str, ...]:
        """The arguments that are driven by a tool result, whatever drives the call."""
        driven = (one for one in self.targets if one.kind == "argument" and one.verdict == "driven by a tool result")
        return tuple(one.name for one in driven)

    @property
    def instead_calls(self) -> tuple[ToolCall, ...]:
        """The calls in what the model would have written without its driver."""
        return () if self.instead is None else parse_calls(self.instead)

    @property
    def headline(self) -> str:
        """The call and its verdict in one line."""
        return f"{self.call!r}: {self.verdict}"

    def target(self, name: str) -> ActionTarget:
        """A target by its kind, or by the name of its argument.

        Args:
            name: "call", "action", "decision", "name", or the name of an argument; "arguments.name" for an argument
                that is named like one of these four.

        Returns:
            The target.

        Raises:
            WhyformerError: If no part has that name.

        Example:
            See `Action`.
        """
        return self.targets[self._number(name)]

    def top(self, k: int = 5, target: str | int = "call") -> list[EffectiveSource]:
        """The sources with the largest effects on a target; parts of a result stand for the result itself.

        Args:
            k: Maximum number.
            target: As in `target`, or its index in `targets`.

        Returns:
            At most `k` records (source, effect), the largest effect first; a source is left out if a part of it was
            measured, too.

        Raises:
            WhyformerError: If `k` is not a positive integer, or there is no such target.

        Example:
            See `Action`.
        """
        check_top_count(k)
        effects = self.effects[target if isinstance(target, int) else self._number(target)]
        measured = np.isfinite(effects)
        above = {one.parent for number, one in enumerate(self.sources) if measured[number]}
        numbers = [number for number in np.argsort(-np.nan_to_num(effects), kind="stable") if measured[number]]
        return [EffectiveSource(self.sources[one], float(effects[one])) for one in numbers if one not in above][:k]

    def _number(self, name: str) -> int:
        names = {one.name: number for number, one in enumerate(self.targets) if one.kind == "argument"}
        longer = {f"{ARGUMENTS}{own}": number for own, number in names.items()}
        kinds: dict[str, int] = {one.kind: number for number, one in enumerate(self.targets) if one.kind != "argument"}
        # A part of the call comes before an argument of its name, which has the longer name.
        names = {**names, **longer, **kinds}
        if name not in names:
            short = [own.removeprefix(ARGUMENTS) for own in longer]
            known = [*kinds, *(own if own not in kinds else f"{ARGUMENTS}{own}" for own in short)]
            raise WhyformerError(f"No target {name!r:.40}. Known: {', '.join(known)}.")
        return names[name]

    def to_dict(self) -> dict[str, Any]:
        """Convert to numbers, strings, lists and dicts that `json` can serialise.

        Returns:
            The fields of the Action by name; effects that were not measured are None.

        Example:
            See `Action`.
        """
        from whyformer.results.action_schema import action_dict

        return action_dict(self)

    def save(self, path: str | Path) -> None:
        """Save to a .html, .json or .audit.json file, atomically.

        Args:
            path: The file; its suffix determines the format. `load` reads .json, `verify` .audit.json.

        Raises:
            WhyformerError: If the suffix is of no known format.
            OSError: If the file cannot be written.

        Example:
            See `Action`.
        """
        from whyformer.results import action_schema

        action_schema.write_action(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Action:
        """Load a .json file written by `save`.

        Args:
            path: The file.

        Returns:
            The action, with bit-identical scores.

        Raises:
            WhyformerError: If the file is damaged, too large, or not an action.
            OSError: If there is no such file.

        Example:
            See `Action`.
        """
        from whyformer.results import action_schema

        return action_schema.load_action(Path(path))

    def show(self, *, where: Where | None = None) -> None:
        """Show the action: inline in a notebook, as text in a terminal, or in the browser from a script.

        Args:
            where: "notebook", "terminal" or "browser". If None, it is detected.

        Raises:
            WhyformerError: If `where` has another value.

        Example:
            See `Action`.
        """
        pages: dict[str, Callable[[], str]] = {
            "fragment": lambda: page.action_fragment(self),
            "text": lambda: action_text(self),
            "page": lambda: page.action_page(self),
        }
        show(**pages, where=where)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Action):
            return NotImplemented
        pairs = [(getattr(self, one.name), getattr(other, one.name)) for one in fields(self) if one.compare]
        return all(
            np.array_equal(first, second, equal_nan=True)
            if isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
            else first is second or bool(first == second)
            for first, second in pairs
        )

    def __str__(self) -> str:
        return action_text(self)

    def __repr__(self) -> str:
        return f"<Action {self.headline}; {len(self.targets)} targets, {len(self.sources)} sources>"

    def _repr_html_(self) -> str:
        return page.action_fragment(self)
