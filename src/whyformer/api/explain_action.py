"""Explain an action: which messages, results of tools and words made a model call a tool with these arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from whyformer.api.action_audit import action_origin
from whyformer.api.action_calibration import action_calibration_of
from whyformer.api.action_driver import action_driver
from whyformer.api.action_removal import (
    LIMITS,
    LONG_LIMITS,
    TAU_ACTION,
    THE_ACTION,
    WHOLE_CALL,
    ActionRemoval,
    CallReply,
)
from whyformer.api.assessment import check_budget
from whyformer.api.generation import check_written
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import Reply, reply_of
from whyformer.api.response_case import ResponseCase, explain_cases
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.support_questions import CountedScorer
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.action_sources import ActionSource, action_sources
from whyformer.inputs.conversation import (
    ChatMessage,
    Conversation,
    ToolCall,
    call_of,
    conversation_of,
    parse_calls,
    reply_message,
)
from whyformer.inputs.prompt_encoding import EncodedPrompt, encode_prompt
from whyformer.inputs.prompt_tokens import tokens_on
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.inputs.tool_prompt import CallPlaces, ToolPrompt, reply_with_calls, tool_prompt_of
from whyformer.inputs.verdicts import NOT_CALIBRATED
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.results.action import Action, ActionTarget
from whyformer.results.source_pooling import source_scores
from whyformer.served.served_tokens import ScoreFunction

LONG_PROMPT = 3000  # tokens from which sources are ranked by one forward pass, and few of them are removed
LONG_METHOD, LONG_BUDGET = "flow_routes", 16
WRITTEN_TOKENS = 128


def explain_action(
    messages: Sequence[Any],
    tools: Sequence[Any] | None = None,
    model: str | Path | nn.Module | LoadedModel = "mini-llm",
    call: int | ToolCall | Mapping[str, Any] | None = None,
    *,
    contrast: ToolCall | Mapping[str, Any] | None = None,
    trust: Mapping[str, str] | None = None,
    method: str | None = None,
    budget: int | None = None,
    instead: bool = True,
    tokens: int = WRITTEN_TOKENS,
    processor: Any = None,
    score: ScoreFunction | None = None,
    batch_size: int | None = None,
) -> Action:
    """Explain a call of a tool: which messages, results of tools and words made the model make it.

    Whether the call follows the user or is driven by the result of a tool is measured by removal: how much less likely
    the call is without the user's messages, and without the untrusted sources. A method that reads the model chooses
    the parts of results that are removed next, down to sentences.

    Args:
        messages: Messages as OpenAI and Hugging Face write them: {"role": "system" | "user" | "assistant" | "tool",
            "content": …}, with "tool_calls" of the assistant, and "tool_call_id" or "name" of results.
        tools: JSON schemas of the tools, for the tokenizer's chat template.
        model: The name of a bundled generative model, a folder, a Hugging Face id, a LoadedModel, or a module.
        call: The number of the call, counted from 0, if the last message makes several; or another call
            {"name": …, "arguments": …} in their place. By default the one that the last message makes; if it makes
            none, the one that the model writes.
        contrast: Another call {"name": …, "arguments": …}: why this rather than that.
        trust: Labels other than the default, for kinds ("system", "user", "tool schema", "tool result"), tools or
            paths: "request", "trusted", "untrusted" or "model". By default the results of tools are untrusted, and the
            messages of the user are the request.
        method: The method that chooses the parts to remove, as in `explain_response`; by default flow_routes for a
            prompt of more than 3,000 tokens.
        budget: The most forward passes, beside those of the method. By default there is no limit, but 16 for a prompt
            of more than 3,000 tokens, of which only the highest-ranked messages are removed then.
        instead: Whether the model writes what it would have done without the sources that drive the call.
        tokens: The maximum number of tokens that the model writes.
        processor: The tokenizer of your own module, if its folder has none; or that of a served model.
        score: A model that is only served, in place of `model`: an Endpoint, or a function as in `explain_response`.
        batch_size: The number of prompts that run at once.

    Returns:
        An Action: print it, show it, save it; `verdict`, `dominance`, `top`.

    Raises:
        UnsupportedModel: If the model cannot be followed; the message says why.
        WhyformerError: If the messages, the tools, the call, the model or an option cannot be used as given.

    Example:
        >>> import copy
        >>> model = whyformer.load("mini-gpt")
        >>> model.tokenizer.chat_template = (
        ...     "{% for m in messages %}{{ m.role }}: {{ m.content }}"
        ...     "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\\n{% endfor %}"
        ...     "{% if add_generation_prompt %}assistant: {% endif %}"
        ... )
        >>> call = {"name": "pay", "arguments": {"to": "Ann"}}
        >>> messages = [
        ...     {"role": "user", "content": "Pay the bill."},
        ...     {"role": "tool", "name": "read_mail", "content": "Pay Ann. Thank you!"},
        ...     {"role": "assistant", "tool_calls": [{"function": call}]},
        ... ]
        >>> action = whyformer.explain_action(messages, model=model, instead=False)
        >>> [target.text for target in action.targets if target.kind == "argument"], action.verdict
        (['Ann'], 'cannot tell')
    """
    check_written(tokens)
    conversation = conversation_of(messages, tools)
    loaded_model, scorer = _model_and_scorer(model, processor, score, batch_size)
    renderer: Any = loaded_model or scorer
    counted = CountedScorer(scorer, check_budget(budget))
    before, message, place, notes = _chosen(conversation, call, renderer, counted, tokens)
    prompt = tool_prompt_of(renderer, before)
    is_long = loaded_model is not None and len(prompt.prompt.tokens) > LONG_PROMPT
    if is_long and budget is None:
        counted.budget = counted.forwards + LONG_BUDGET
        notes.append(_long_note(prompt))
    reply, targets = reply_targets(loaded_model, scorer, prompt, message, place)
    replies = [call_reply(reply, targets)]
    if contrast is not None:
        rival, rival_targets = reply_targets(loaded_model, scorer, prompt, reply_message(contrast), 0)
        replies.append(call_reply(rival, _matching(targets, rival_targets)))
    sources = action_sources(prompt, trust)
    settings = {"trust": trust, "method": method, "budget": budget, "instead": instead, "tokens": tokens}
    origin = None
    if loaded_model is not None:
        written = message.calls[0] if call is None and not conversation.messages[-1].calls else call
        origin = action_origin(loaded_model, conversation, {"call": written, "contrast": contrast}, settings)
    token_scores, name = white_box_scores(loaded_model, reply, targets, method)
    scores = None if token_scores is None else _pooled(token_scores, sources)
    calibration = action_calibration_of(loaded_model) if contrast is None else None
    tau = TAU_ACTION if calibration is None else calibration.tau
    limits = LONG_LIMITS if is_long and budget is None else LIMITS
    removal = ActionRemoval(counted, prompt.prompt, tuple(replies), sources, scores, notes, tau, limits)
    measured = removal.with_figures(targets)
    effects = removal.effects()
    driver = action_driver(removal, effects, measured[WHOLE_CALL])
    text = removal.instead(driver.sources, tokens) if instead and driver.sources and counted.has_spare(1) else None
    action = Action(
        prompt=prompt.prompt,
        call=message.calls[place],
        text=reply.text,
        targets=measured,
        sources=sources,
        effects=effects,
        verdict=measured[THE_ACTION].verdict,
        reason="",
        model=scorer.name,
        driver=driver.sources,
        driver_effect=driver.lost,
        instead=text,
        method=name,
        token_scores=token_scores,
        contrast=None if contrast is None else reply_message(contrast).calls[0],
        forwards=counted.forwards,
        notes=tuple(dict.fromkeys(removal.notes)),
        tau=tau,
        calibration=NOT_CALIBRATED if calibration is None else calibration.data,
        error=None if calibration is None else calibration.errors.get(measured[THE_ACTION].verdict),
    )
    return replace(action, reason=action_reason(action), audit=origin)


def _long_note(prompt: ToolPrompt) -> str:
    return (
        f"The prompt has {len(prompt.prompt.tokens):,} tokens: at most {LONG_BUDGET} forward passes were made, for the "
        f"{LONG_LIMITS.whole} messages with the highest scores and their parts; budget=… allows more."
    )


def _model_and_scorer(
    model: Any, processor: Any, score: ScoreFunction | None, batch_size: int | None
) -> tuple[LoadedModel | None, LoadedScorer | ServedScorer]:
    """The loaded model and its scorer, or the scorer of a served one."""
    if score is None:
        loaded_model = resolve_model(model, processor)
        return loaded_model, LoadedScorer(loaded_model, batch_size)
    tokenizer = getattr(processor, "tokenizer", processor)
    if tokenizer is None:
        raise WhyformerError("Messages become a text by a chat template: pass the tokenizer as processor=….")
    return None, ServedScorer(score, tokenizer)


def action_reason(action: Action) -> str:
    """The verdict on an action in a sentence, with its figures."""
    target = action.target("action")
    figures = (
        f"Calling {action.call.name} is {_change(target.request_effect)} without the user's request, and "
        f"{_change(target.untrusted_effect)} without the untrusted sources."
    )
    names = [action.sources[number].name for number in action.driver]
    if names and action.driver_effect is not None:
        figures += f" The call as a whole is {_change(action.driver_effect)} without {' and '.join(names)}."
    given = [one.name for one in action.targets if one.kind == "argument" and one.verdict == "driven by a tool result"]
    if given and action.verdict != "driven by a tool result":
        figures += f" Untrusted sources give {' and '.join(given)} their values."
    return figures


def _change(effect: float) -> str:
    return f"{abs(effect):.1f} nats {'less' if round(effect, 1) >= 0 else 'more'} likely"


def _chosen(
    conversation: Conversation, call: Any, renderer: Any, scorer: CountedScorer, tokens: int
) -> tuple[Conversation, ChatMessage, int, list[str]]:
    """The conversation before the call, the message that makes it, which of its calls it is, and notes."""
    last = conversation.messages[-1]
    before = replace(conversation, messages=conversation.messages[:-1]) if last.calls else conversation
    if last.calls and not before.messages:
        raise WhyformerError("Nothing comes before the call: give the messages that lead to it.")
    if isinstance(call, int) and not isinstance(call, bool):
        if not 0 <= call < len(last.calls):
            raise WhyformerError(f"call={call}: the last message makes {len(last.calls)} calls, counted from 0.")
        return before, last, call, []
    if call is not None:
        return before, ChatMessage("assistant", "", (call_of(call),)), 0, []
    if last.calls:
        several = f"The last message makes {len(last.calls)} calls, of which this is the first."
        return before, last, 0, [several] * (len(last.calls) > 1)
    prompt = tool_prompt_of(renderer, before)
    text = scorer.write_all(scorer.scorer.variant(prompt.prompt), tokens)
    if text is None:
        raise WhyformerError(f"{scorer.scorer.name} is a function that scores: give the call that it explains.")
    calls = parse_calls(text)
    if not calls:
        raise WhyformerError(
            f"{scorer.scorer.name} calls no tool after these messages, but writes {text.strip()!r:.60}: give call=…."
        )
    return before, ChatMessage("assistant", "", calls[:1]), 0, ["The call is what the model itself would do."]


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


def _matching(targets: Sequence[ActionTarget], others: Sequence[ActionTarget]) -> tuple[ActionTarget, ...]:
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


def _pooled(token_scores: np.ndarray, sources: Sequence[ActionSource]) -> np.ndarray:
    """The scores [target, source] of sources."""
    parts = [Source(one.kind, one.name, one.start, one.end, one.text, one.tokens) for one in sources]
    return source_scores(token_scores, parts, "positive", leave_out_first=True)
