"""The parts of a call that are explained: their tokens in the reply, and their white-box scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whyformer.api.action_removal import THE_ACTION, CallReply
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import Reply, reply_of
from whyformer.api.response_case import ResponseCase, explain_cases
from whyformer.api.served_scorer import ServedScorer
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.action_sources import ActionSource
from whyformer.inputs.conversation import ChatMessage
from whyformer.inputs.prompt_encoding import EncodedPrompt, encode_prompt
from whyformer.inputs.prompt_tokens import tokens_on
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.inputs.tool_prompt import CallPlaces, ToolPrompt, reply_with_calls
from whyformer.models.loading import LoadedModel
from whyformer.results.action import ActionTarget
from whyformer.results.source_pooling import source_scores

LONG_PROMPT = 3000  # tokens from which sources are ranked by one forward pass, and few of them are removed
LONG_METHOD = "flow_routes"


def reply_targets(
    loaded_model: LoadedModel | None,
    scorer: LoadedScorer | ServedScorer,
    prompt: ToolPrompt,
    message: ChatMessage,
    place: int,
) -> tuple[Reply, tuple[ActionTarget, ...]]:
    """The reply that makes the call, and its targets."""
    renderer: Any = scorer if loaded_model is None else loaded_model
    text, places = reply_with_calls(renderer, prompt, message)
    if loaded_model is None:
        reply = Reply(
            prompt.prompt, text, scorer.response(prompt.prompt, text), EncodedPrompt(prompt.prompt).exchange([])
        )
    else:
        reply = reply_of(loaded_model, encode_prompt(loaded_model, prompt.conversation), text)
    targets = _targets(reply, places[place])
    if not targets[THE_ACTION].tokens or len(reply.tokens) == 1:
        raise WhyformerError(
            f"{scorer.name} returned one number for the call, so that its parts cannot be told apart: return a (text, "
            "log-probability) pair for each token."
        )
    return reply, targets


def _targets(reply: Reply, places: CallPlaces) -> tuple[ActionTarget, ...]:
    """The whole call, the action, the decision, the name, and each argument."""
    ranges = [places.decision, places.name, *places.arguments.values()]
    order = sorted(range(len(ranges)), key=lambda number: ranges[number])
    tokens = dict(zip(order, tokens_on([ranges[number] for number in order], reply.tokens, reply.text), strict=True))
    start, end = places.decision
    marks = (number for number, one in enumerate(reply.tokens) if one.is_special and start <= one.start < end)
    decision = tuple(sorted({*tokens[0], *marks}))
    whole_range = start, max(stop for _, stop in ranges)
    action = tuple(sorted({*decision, *tokens[1]}))
    whole = tuple(sorted({*action, *(one for own in tokens.values() for one in own)}))
    rows: list[tuple[Any, str, tuple[int, int], tuple[int, ...]]] = [
        ("call", "call", whole_range, whole),
        ("action", "action", (start, places.name[1]), action),
        ("decision", "decision", places.decision, decision),
        ("name", "name", places.name, tokens[1]),
    ]
    rows += [
        ("argument", name, own, tokens[number])
        for number, (name, own) in enumerate(places.arguments.items(), 2)
        if tokens[number]
    ]
    return tuple(
        ActionTarget(kind, name, *own, reply.text[slice(*own)], numbers, 0.0, 0.0, 0.0, 0.0)
        for kind, name, own, numbers in rows
    )


def call_reply(reply: Reply, targets: Sequence[ActionTarget]) -> CallReply:
    return CallReply(reply.text, reply.tokens, tuple(one.tokens for one in targets))


def matching_targets(targets: Sequence[ActionTarget], others: Sequence[ActionTarget]) -> tuple[ActionTarget, ...]:
    """The targets of another call under the same names; without tokens if it lacks one."""
    known = {(one.kind, one.name): one for one in others}
    return tuple(known.get((one.kind, one.name), replace(one, tokens=())) for one in targets)


def white_box_scores(
    loaded_model: LoadedModel | None, reply: Reply, targets: Sequence[ActionTarget], method: str | None
) -> tuple[np.ndarray | None, str]:
    """The scores [target, token of the prompt] of a method that reads the model, and its name."""
    if loaded_model is None:
        if method is not None:
            raise WhyformerError(f"method={method!r} reads a model, and score=… does not show it: leave it out.")
        return None, ""
    numbers = [number for number, one in enumerate(targets) if one.tokens]
    name = method
    if len(reply.prompt.tokens) > LONG_PROMPT:
        numbers, name = numbers[:1], method or LONG_METHOD
    spans = [_span(targets[number]) for number in numbers]
    rows = tuple(ResponseRow(reply.exchange, span.tokens) for span in spans)
    everything = Source("span", "", 0, len(reply.prompt.text), reply.prompt.text, ())
    case = ResponseCase(reply, tuple(spans), (everything,), rows)
    try:
        (response,) = explain_cases(loaded_model, [case], name, None, {})
    except UnsupportedModel:
        if method is not None:
            raise
        return None, ""
    assert response.token_scores is not None
    scores = np.tile(response.token_scores[:1], (len(targets), 1))  # of the whole call where no own are made
    scores[numbers] = response.token_scores
    return scores.astype(np.float32), response.method


def _span(target: ActionTarget) -> Span:
    return Span(target.start, target.end, target.text, target.tokens)


def pooled_scores(token_scores: np.ndarray, sources: Sequence[ActionSource]) -> np.ndarray:
    """The scores [target, source] of sources."""
    parts = [Source(one.kind, one.name, one.start, one.end, one.text, one.tokens) for one in sources]
    return source_scores(token_scores, parts, "positive", leave_out_first=True)
