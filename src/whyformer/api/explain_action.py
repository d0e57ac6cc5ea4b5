"""Explain an action: which messages, results of tools and words made a model call a tool with these arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from whyformer.api.action_audit import action_origin
from whyformer.api.action_calibration import ActionCalibration, action_calibration_of
from whyformer.api.action_driver import action_driver
from whyformer.api.action_removal import (
    LIMITS,
    LONG_LIMITS,
    TAU_ACTION,
    WHOLE_CALL,
    ActionRemoval,
    CallReply,
    RemovalLimits,
)
from whyformer.api.action_targets import (
    LONG_PROMPT,
    call_reply,
    matching_targets,
    pooled_scores,
    reply_targets,
    white_box_scores,
)
from whyformer.api.assessment import check_budget
from whyformer.api.generation import check_written
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.support_questions import CountedScorer
from whyformer.errors import WhyformerError
from whyformer.inputs.action_sources import action_sources
from whyformer.inputs.conversation import (
    ChatMessage,
    Conversation,
    ToolCall,
    call_of,
    conversation_of,
    parse_calls,
    reply_message,
)
from whyformer.inputs.tool_prompt import ToolPrompt, tool_prompt_of
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.results.action import Action, ActionTarget
from whyformer.served.served_tokens import ScoreFunction

LONG_BUDGET = 16
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

    Removal measures whether the call follows the user or is driven by the result of a tool. It compares how much less
    likely the call becomes without the user's messages, and without the untrusted sources. A method that reads the
    model chooses the parts of results that are removed next, down to sentences.

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
        budget: The most forward passes, not counting those of the method. By default there is no limit, but
            16 for a prompt of more than 3,000 tokens, of which only the highest-ranked messages are then removed.
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
    limits = LIMITS if loaded_model is None or budget is not None else _limits(counted, prompt, notes)
    reply, targets = reply_targets(loaded_model, scorer, prompt, message, place)
    rival = () if contrast is None else (_rival(loaded_model, scorer, prompt, contrast, targets),)
    replies = (call_reply(reply, targets), *rival)
    sources = action_sources(prompt, trust)
    settings: dict[str, Any] = {"trust": trust, "contrast": contrast, "call": _given(call, conversation, message)}
    settings |= {"method": method, "budget": budget, "instead": instead, "tokens": tokens}
    origin = None if loaded_model is None else action_origin(loaded_model, conversation, settings)
    token_scores, name = white_box_scores(loaded_model, reply, targets, method)
    scores = None if token_scores is None else pooled_scores(token_scores, sources)
    calibration = action_calibration_of(loaded_model) if contrast is None else None
    tau = TAU_ACTION if calibration is None else calibration.tau
    removal = ActionRemoval(counted, prompt.prompt, replies, sources, scores, notes, tau, limits)
    measured = removal.with_figures(targets)
    effects = removal.effects()
    driver = action_driver(removal, effects, measured[WHOLE_CALL])
    action = Action(
        prompt=prompt.prompt,
        call=message.calls[place],
        text=reply.text,
        targets=measured,
        sources=sources,
        effects=effects,
        verdict=measured[WHOLE_CALL].verdict,
        reason="",
        model=scorer.name,
        driver=driver.sources,
        driver_effect=driver.lost,
        instead=removal.instead(driver.sources, tokens) if instead else None,
        method=name,
        token_scores=token_scores,
        contrast=None if contrast is None else reply_message(contrast).calls[0],
        forwards=counted.forwards,
        notes=tuple(dict.fromkeys(removal.notes)),
        audit=origin,
    )
    return _with_reason(action, calibration)


def _rival(
    loaded_model: LoadedModel | None,
    scorer: LoadedScorer | ServedScorer,
    prompt: ToolPrompt,
    contrast: Any,
    targets: Sequence[ActionTarget],
) -> CallReply:
    """The call of a contrast, with its parts in the order of the targets."""
    reply, others = reply_targets(loaded_model, scorer, prompt, reply_message(contrast), 0)
    return call_reply(reply, matching_targets(targets, others))


def _given(call: Any, conversation: Conversation, message: ChatMessage) -> Any:
    """The call as it was given, or as the model wrote it."""
    return message.calls[0] if call is None and not conversation.messages[-1].calls else call


def _with_reason(action: Action, calibration: ActionCalibration | None) -> Action:
    """The action with the reason of its verdict, and how often that is wrong where its model was calibrated."""
    action = replace(action, reason=action_reason(action))
    if calibration is None:
        return action
    error = calibration.errors.get(action.verdict)
    return replace(action, tau=calibration.tau, calibration=calibration.data, error=error)


def _limits(scorer: CountedScorer, prompt: ToolPrompt, notes: list[str]) -> RemovalLimits:
    """How much is removed without a budget: of a long prompt less, with a budget and a note."""
    count = len(prompt.prompt.tokens)
    if count <= LONG_PROMPT:
        return LIMITS
    scorer.budget = scorer.forwards + LONG_BUDGET
    notes.append(
        f"The prompt has {count:,} tokens: at most {LONG_BUDGET} forward passes were made, for the "
        f"{LONG_LIMITS.whole} messages with the highest scores and their parts; budget=… allows more."
    )
    return LONG_LIMITS


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
    """The verdict on a call in a sentence, with its figures."""
    target = action.target("call")
    figures = (
        f"The call is {_change(target.request_effect)} without the user's request, and "
        f"{_change(target.untrusted_effect)} without the untrusted sources."
    )
    names = [action.sources[number].name for number in action.driver]
    if names and action.driver_effect is not None:
        figures += f" Without {' and '.join(names)} it is {_change(action.driver_effect)}."
    given = action.driven_arguments
    if given and action.verdict != "driven by a tool result":
        figures += (
            f" Untrusted sources give {' and '.join(given)} {'its value' if len(given) == 1 else 'their values'}."
        )
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
            count = f"{len(last.calls)} call{'s' * (len(last.calls) != 1)}"
            raise WhyformerError(f"call={call}: the last message makes {count}, counted from 0.")
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
