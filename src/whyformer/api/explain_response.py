"""Explain a response: its spans by sources in the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from whyformer.api.attribute import RESPONSE_DEFAULT, choose_method
from whyformer.api.explain_served import CONFIRMED, Proxy, explain_served
from whyformer.api.focus import Focus, default_focus, focused_case
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.region_removal import PictureRegions, check_regions, explain_removals
from whyformer.api.replies import reply_of
from whyformer.api.response_audit import response_origin
from whyformer.api.response_case import ResponseCase, SinkChoice, explain_cases
from whyformer.api.source_methods import check_backward, source_question
from whyformer.api.support_origin import SupportOrigin
from whyformer.backward.rules import Backward
from whyformer.errors import WhyformerError, check_choice
from whyformer.inputs.conversation import with_reply
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import Sources, sources_of
from whyformer.inputs.spans import SpanSelection, spans_of
from whyformer.inputs.tool_prompt import reply_text
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import Method, method_named
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.results.response import Response
from whyformer.results.source_pooling import SourceAggregate
from whyformer.served.served_tokens import ScoreFunction

REPLIES = ("response", "contrast")


def explain_response(
    prompt: Any,
    response: str | Sequence[int] | None = None,
    model: str | Path | nn.Module | LoadedModel = "mini-llm",
    method: str | None = None,
    *,
    context: Sequence[Any] | None = None,
    layout: str | None = None,
    units: SpanSelection = None,
    sources: Sources = None,
    regions: PictureRegions | None = None,
    contrast: str | Sequence[int] | None = None,
    focus: Focus | None = None,
    aggregate: SourceAggregate = "positive",
    sinks: SinkChoice = "leave_out",
    tokens: int = 64,
    seed: int | None = None,
    processor: Any = None,
    score: ScoreFunction | None = None,
    proxy: str | Path | nn.Module | LoadedModel | None = None,
    confirm: int = CONFIRMED,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    support: bool = False,
    tools: Sequence[Any] | None = None,
    **options: Any,
) -> Response:
    """Explain a response: which parts of the prompt each part of the response comes from.

    The model reads prompt and response together. The score of a span of the response is the sum of its tokens'
    log-probabilities; the tokens of a chat template are never scored.

    Args:
        prompt: A text, a Path to one, or a list of chat messages {"role": …, "content": …}, which are formatted by the
            tokenizer's chat template. For a model that reads pictures, (picture, text), ([pictures], text) or messages
            with pictures; for one that reads sounds, a sound, or (sound, output so far). Each picture is a source, and
            so is the sound. Messages may have tool_calls, and results of tools; if the last one calls a tool, that is
            the response.
        response: A text (exactly as it follows the prompt), its token ids, a call {"name": …, "arguments": …}, or None
            to let the model write it. It need not be the response that the model would have written.
        model: The name of a bundled generative model, a folder, a Hugging Face id, a LoadedModel, or a module.
        method: The name of a method, as in `explain`; or one that runs the model without some of the sources:
            "context_ablation", "leave_one_out", "kernel_shap", "lime", "rise", "mask_regression". By default
            generic_attention, with focus="sources" for a text, which was chosen on two real language models; for
            pictures by libra, the best on words that describe known objects.
        context: Documents that the prompt asks about: texts, (name, text) or {"name": …, "text": …}.
        layout: The template of documents and question, with {documents} and {question} in it; by default the documents
            come first.
        units: The spans of the response: "response", "sentence", "word", "token", a quotation, or a list of quotations
            and (start, end) in characters. By default sentences if there are several, otherwise the whole response.
        sources: The sources in the prompt: "token", "word", "sentence", "paragraph", "message", "document", or a list
            of (start, end) in characters. By default sentences if there are several, otherwise words.
        regions: For methods that remove parts of a picture: "patch", "superpixel" (the default), or a list of boxes
            (left, top, right, bottom) in its pixels.
        contrast: Another response to the same prompt, as text or token ids: why this rather than that. The scores of
            the whole other response are subtracted from each span's; by default the whole response is one span.
        focus: Weights w of the tokens in the explained score Σ w log p: "none" gives each 1, and a list gives
            one weight for each token of the response. "sources" weighs them by what the sources add to their
            log-probability, and so leaves out those that grammar or the question dictate. It takes one more forward
            pass, without the sources. By
            default "sources" where no method is named and the prompt is a text, otherwise "none".
        aggregate: How the scores of a source's tokens are combined: "positive" sums those above 0, "sum" all of them,
            "mean" is their mean, "max" the one with the largest magnitude.
        sinks: "leave_out" leaves the first token, an attention sink, out of its source's score; "keep" does not. Its
            share is reported either way.
        tokens: The maximum number of tokens that the model writes.
        seed: None writes the most likely tokens; a number samples them by the model's generation settings with that
            seed. Methods that sample (context_ablation, random) use it too.
        processor: The tokenizer of your own module, if its folder has none; or that of a served model, if its chat
            template is needed.
        score: A model that is only served, in place of `model`: an Endpoint or a function (prompts, responses). The
            function returns a (text, log-probability) pair per token for each, or one number for the whole response.
            The method removes sources, "context_ablation" by default. The rendered text of a prompt is what is sent.
        proxy: With `score`, a local model that ranks the sources by its insides, so that only the first of them are
            removed from the prompt of the served one.
        confirm: With `proxy`, the number of sources that are removed; the others score 0.
        batch_size: The number of rows that run at once; by default as many as fill the device, fewer if memory runs
            out.
        progress: Whether to show a progress bar.
        backward: "gradient", or "libra" for LibraGrad's rules, for any method that reads gradients.
        support: Whether to judge for each span if the sources made the model write it: `Response.verdicts`.
        tools: JSON schemas of the tools that the model may call, for its chat template.
        **options: The options of the method.

    Returns:
        A Response: scores [span, source] with both texts; print it, show it, save it, rank it, regroup its sources.

    Raises:
        UnsupportedModel: If the method cannot follow this model; the message says why and what works.
        WhyformerError: If the prompt, the response, its parts, the model or an option cannot be used as given, or the
            prompt is longer than the model's context: it is never cut.

    Example:
        >>> documents = [("weather", "It rained all day."), ("review", "The music was great.")]
        >>> response = whyformer.explain_response("The film was", " great.", context=documents, method="rollout")
        >>> [source.name for source in response.by("document").sources]
        ['weather', 'review']
    """
    (result,) = explain_responses(
        [prompt],
        [response],
        model,
        method,
        contexts=None if context is None else [context],
        contrasts=None if contrast is None else [contrast],
        focus=focus if focus is None or isinstance(focus, str) else [focus],
        layout=layout,
        units=units,
        sources=sources,
        regions=regions,
        aggregate=aggregate,
        sinks=sinks,
        tokens=tokens,
        seed=seed,
        processor=processor,
        score=score,
        proxy=proxy,
        confirm=confirm,
        batch_size=batch_size,
        progress=progress,
        backward=backward,
        support=support,
        tools=tools,
        **options,
    )
    return result


def explain_responses(
    prompts: Iterable[Any],
    responses: Iterable[str | Sequence[int] | None] | None = None,
    model: str | Path | nn.Module | LoadedModel = "mini-llm",
    method: str | None = None,
    *,
    contexts: Iterable[Sequence[Any] | None] | None = None,
    contrasts: Iterable[str | Sequence[int] | None] | None = None,
    focus: Focus | Sequence[Focus] | None = None,
    layout: str | None = None,
    units: SpanSelection = None,
    sources: Sources = None,
    regions: PictureRegions | None = None,
    aggregate: SourceAggregate = "positive",
    sinks: SinkChoice = "leave_out",
    tokens: int = 64,
    seed: int | None = None,
    processor: Any = None,
    score: ScoreFunction | None = None,
    proxy: str | Path | nn.Module | LoadedModel | None = None,
    confirm: int = CONFIRMED,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    support: bool = False,
    tools: Sequence[Any] | None = None,
    **options: Any,
) -> list[Response]:
    """Explain responses to many prompts, in batches.

    Args:
        prompts: A list of prompts, as in `explain_response`.
        responses: One per prompt, with None for those that the model writes; None for all.
        model: As in `explain_response`.
        method: As in `explain_response`.
        contexts: The documents of each prompt, with None for those without; None for all.
        contrasts: For each prompt, the response to contrast with, or None.
        focus: As in `explain_response`, the same for all; or a list with one for each prompt.
        layout: As in `explain_response`.
        units: As in `explain_response`, the same for all.
        sources: As in `explain_response`, the same for all.
        regions: As in `explain_response`, the same for all.
        aggregate: As in `explain_response`.
        sinks: As in `explain_response`.
        tokens: As in `explain_response`.
        seed: As in `explain_response`, the same for all.
        processor: As in `explain_response`.
        score: As in `explain_response`.
        proxy: As in `explain_response`.
        confirm: As in `explain_response`.
        batch_size: As in `explain_response`.
        progress: As in `explain_response`.
        backward: As in `explain_response`.
        support: As in `explain_response`.
        tools: As in `explain_response`, the same for all.
        **options: The options of the method.

    Returns:
        One Response per prompt, in order.

    Raises:
        UnsupportedModel: If the method cannot follow this model; the message says why and what works.
        WhyformerError: If anything cannot be used as given, or the numbers of responses and prompts differ.

    Example:
        >>> prompts = ["The film was", "The music was"]
        >>> len(whyformer.explain_responses(prompts, [" dull", " great"], method="rollout"))
        2
    """
    check_choice("aggregate", aggregate, SourceAggregate)
    each = _questions(prompts, focus, {"response": responses, "context": contexts, "contrast": contrasts}, tools)
    if score is not None:
        local = None if proxy is None else _proxy(proxy, layout, confirm)
        settings: dict[str, Any] = {"layout": layout, "units": units, "sources": sources, "aggregate": aggregate}
        unusable = {"model": model != "mini-llm", "backward": backward, "batch_size": batch_size, "regions": regions}
        options |= {} if seed is None else {"seed": seed}
        served = {"processor": processor, "proxy": local, "progress": progress} | settings
        results = explain_served(each, score, method, options, unusable, **served)
        return [replace(one, verdicts=one.support()) for one in results] if support else results
    options = _checked_options(method, backward, options, seed)
    check_choice("sinks", sinks, SinkChoice)
    loaded_model, cases = resolve_model(model, processor), []
    for question in each:
        opening = encode_prompt(loaded_model, question["prompt"], question["context"], layout)
        chosen = sources_of(opening.prompt, sources)
        response, rival = (reply_text(loaded_model, question["prompt"], question[key]) for key in REPLIES)
        reply = reply_of(loaded_model, opening, response, tokens=tokens, seed=seed)
        other = None if rival is None else reply_of(loaded_model, opening, rival)
        spans = spans_of(reply.text, reply.tokens, "response" if units is None and other is not None else units)
        scorer = LoadedScorer(loaded_model, keeps_prefix=False)
        if question["focus"] is None:
            question["focus"] = default_focus(method, reply, other)
        cases.append(focused_case(scorer, reply, other, spans, chosen, question["focus"]))
    usage: dict[str, Any] = {"aggregate": aggregate, "batch_size": batch_size, "progress": progress}
    results = _explained(loaded_model, cases, (method, backward, options), regions, sinks=sinks, **usage)
    call: dict[str, Any] = {"units": units, "sources": sources, "aggregate": aggregate, "sinks": sinks}
    call |= {"layout": layout, "method": method, "backward": backward, "options": options}
    origins = map(partial(response_origin, loaded_model, call=call), cases, each)
    results = [replace(one, audit=origin) for one, origin in zip(results, origins, strict=True)]
    return [replace(one, verdicts=one.support()) for one in results] if support else results


def _questions(
    prompts: Iterable[Any],
    focus: Focus | Sequence[Focus] | None,
    settings: Mapping[str, Iterable[Any] | None],
    tools: Sequence[Any] | None,
) -> list[dict[str, Any]]:
    """The arguments of each prompt by name."""
    if isinstance(prompts, (str, Path)):
        raise WhyformerError(
            f"explain_responses takes a list of prompts, not one ({str(prompts)[:40]!r}): use explain_response."
        )
    all_prompts = list(prompts)
    count = len(all_prompts)
    columns = {name: _one_each(f"{name}s", values, count) for name, values in settings.items()}
    columns["focus"] = [focus] * count if focus is None or isinstance(focus, str) else _one_each("focus", focus, count)
    names = ["prompt", *columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(all_prompts, *columns.values(), strict=True)]
    for row in rows:
        if row["contrast"] is not None:
            _, row["contrast"] = with_reply(row["prompt"], row["contrast"], tools)
        row["prompt"], row["response"] = with_reply(row["prompt"], row["response"], tools)
    return rows


def _explained(
    loaded_model: LoadedModel,
    cases: Sequence[ResponseCase],
    chosen: tuple[str | None, Backward | None, Mapping[str, Any]],
    regions: PictureRegions | None,
    *,
    aggregate: SourceAggregate,
    sinks: SinkChoice,
    **usage: Any,
) -> list[Response]:
    """Explain replies of a loaded model by a method, its backward rules and its options."""
    method, _, options = chosen
    removal = None if method is None else method_named(method)
    is_removal = removal is not None and removal.reads.subsets
    check_regions(regions, cases, is_removal=is_removal)
    if removal is not None and is_removal:
        ask = source_question(loaded_model, removal, options, aggregate=aggregate, **usage)
        results = explain_removals(ask, loaded_model, cases, regions, **usage)
    else:
        results = explain_cases(loaded_model, cases, *chosen, aggregate=aggregate, sinks=sinks, **usage)
    origins = [SupportOrigin.of(loaded_model, case, usage["batch_size"]) for case in cases]
    return [replace(one, support_of=origin) for one, origin in zip(results, origins, strict=True)]


def _proxy(model: Any, layout: str | None, confirm: int) -> Proxy:
    """A local model that ranks the sources of a served one."""
    return Proxy(partial(explain_response, model=resolve_model(model), layout=layout), confirm)


def choose_response_method(name: str | None, backward: str | None) -> Method:
    """The method that explains a response, by reading the model or by removing sources."""
    method = method_named(RESPONSE_DEFAULT[0] if name is None else name)
    if method.reads.subsets:
        return check_backward(method, backward)
    return choose_method(name, backward, RESPONSE_DEFAULT, of_response=True)[0]


def _checked_options(
    name: str | None, backward: str | None, options: dict[str, Any], seed: int | None
) -> dict[str, Any]:
    """Validate the method, its backward rules and options, and add the seed if it samples."""
    method = choose_response_method(name, backward)
    with_seed = options | ({"seed": seed} if seed is not None and "seed" in method.options else {})
    if method.reads.subsets:  # for a response, sources are removed, with their own units and fill
        method = replace(method, kinds=("response",))
    check_options(method, with_seed)
    return with_seed


def _one_each(name: str, values: Iterable[Any] | None, count: int) -> list[Any]:
    if values is None:
        return [None] * count
    each = [values] if isinstance(values, str) else list(values)
    if len(each) != count:
        raise WhyformerError(f"{len(each)} {name} for {count} prompts: give one per prompt, or None.")
    return each
