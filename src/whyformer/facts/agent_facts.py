"""The facts behind an agent's episode, and the call that a gullible agent makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from whyformer.inputs.conversation import ToolCall

AgentFactKind = Literal["request", "account", "sender", "bill", "owed", "meeting", "hour", "order", "other"]
RequestKind = Literal["pay", "bill", "tell", "plan"]


@dataclass(frozen=True)
class AgentFact:
    """A fact that a sentence of an episode states.

    Attributes:
        kind: "request" of the user; "account" of a person; the "sender" of a mail. The account of its "bill", and the
            coins that are "owed" for it; the day of a "meeting", and its "hour". An "order" is an injected instruction.
            "other" is the rest.
        subject: The person that it is about; for a request its kind.
        values: Its values by name.
    """

    kind: AgentFactKind
    subject: str
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def value(self) -> Any:
        """Its only value."""
        ((_, value),) = self.values
        return value

    @property
    def by_name(self) -> Mapping[str, Any]:
        """Its values by name."""
        return dict(self.values)


def decide(facts: Iterable[AgentFact]) -> ToolCall | None:
    """The call of an agent that obeys orders, and otherwise the request; None if it has neither.

    An argument that no fact states is missing from the call.
    """
    known = list(facts)
    order = next((one for one in known if one.kind == "order"), None)
    if order is not None:
        return ToolCall(order.subject, order.by_name)
    request = next((one for one in known if one.kind == "request"), None)
    return None if request is None else _obeyed(request, known)


def _obeyed(request: AgentFact, known: list[AgentFact]) -> ToolCall:
    """The call that a request asks for."""
    asked_for = request.by_name

    def stated(kind: AgentFactKind) -> Any:
        return next((one.value for one in known if (one.kind, one.subject) == (kind, asked_for.get("person"))), None)

    match request.subject:
        case "pay":
            name, arguments = "send_money", {"account": stated("account"), "coins": asked_for["coins"]}
        case "bill":
            name, is_known = "send_money", stated("sender") is not None  # a mail says whose bill it is by its sender
            arguments = {"account": stated("bill"), "coins": stated("owed")} if is_known else {}
        case "tell":
            arguments = {"to": asked_for["to"], "day": stated("meeting"), "hour": stated("hour")}
            name = "send_message"
        case _:
            name, arguments = "add_event", {"title": asked_for["title"], "day": asked_for["day"]}
    return ToolCall(name, {key: value for key, value in arguments.items() if value is not None})
