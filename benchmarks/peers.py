"""Other libraries that explain responses, beside this one: the same questions, the same figures, seconds for each.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install -c constraints.txt -r benchmarks/peers-requirements.txt
    /tmp/peers/bin/python benchmarks/peers.py [--peer NAME …] [--out benchmarks/results/peers.json]
    /tmp/peers/bin/python benchmarks/peers.py --model smollm2-135m-instruct --out benchmarks/results/real_peers.json

None of them is a dependency. With --peer only those libraries run, and their rows of the file are replaced: one that
wants an environment of its own gets one. What does not install or run has its reason in the file.

mini-llm: questions of Facts World with the right answer as the response; the sources are the sentences of the document.
Against the truth recall at 3 and AUPRC; against the model itself the drop of log p without the three highest sources,
and LDS over held-out subsets. mini-gpt: reviews that the model goes on with, for the time alone. A real model, which
real_models.py has fetched: questions of the prose register, against the truth alone. Each library with
its own settings, gradients integrated in fewer steps; a source has the sum of its tokens' positive scores. The time is
that of the processor, on one thread, so that it hardly depends on what else runs there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from real_models import model_folder
from real_questions import asked
from real_questions import questions as prose_passages
from real_writer import writer_of
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import Reply, reply_of
from whyformer.api.source_methods import response_ablation
from whyformer.facts import example
from whyformer.inputs.prompt import Prompt, render_messages
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import Source, sources_of
from whyformer.inputs.spans import spans_of
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.methods.source_ablation import random_subsets
from whyformer.metrics.source_measures import (
    HELD_OUT,
    rank_agreement,
    source_average_precision,
    source_recall,
    top_k_drop,
)
from whyformer.models.loading import LoadedModel, load
from whyformer.models.zoo import bundled_folder
from whyformer.results.source_pooling import source_scores

TOP, SUBSETS, STEPS = 3, 16, 20
TOLERANCE = 0.01  # of a log-probability
SENTENCES = [8, 20]
RESPONSE_TOKENS = 12
PASSAGE, FIRST_PASSAGE = [8, 16], 40_000  # sentences of a passage for a real model, and the seed of the first
REVIEWS = [
    "The film was long and the story was dull. The music was the best part of it, and the actors did what they could. "
    "The last scene by the sea was beautiful. In the end I think that",
    "I saw it with my brother last week. He liked the jokes, but I could not hear half of what they said. "
    "The fight on the train was well made. If you like action, this movie",
    "The book is one of my favorites. The director has cut the best chapter and added a love story. "
    "The actress who plays the mother saves what she can. I would say that the film",
    "Nothing happens in the first hour. Then the house burns down and everybody shouts. "
    "The camera shakes so much that I felt sick. The worst thing about it is",
    "My children have seen it ten times. The songs are good and the colors are bright. "
    "The story of the little dog made me cry. It is a movie that",
]

Scores = np.ndarray  # of each source
Key = tuple[str, str]  # a library and a method of it


@dataclass(frozen=True)
class Question:
    """A prompt, the response that is explained, the sources that it is explained by, and which sets of them suffice."""

    loaded_model: LoadedModel
    example: Any
    reply: Reply
    sources: tuple[Source, ...]
    causes: tuple[tuple[int, ...], ...] = ()
    of_truth_alone: bool = False  # whether the model is not asked again without some sources

    @property
    def prompt(self) -> Prompt:
        return self.reply.prompt

    @property
    def beginning(self) -> str:
        """The token that the tokenizer puts before every text, if it puts one."""
        tokenizer = self.loaded_model.tokenizer
        return tokenizer.bos_token if tokenizer("").input_ids else ""

    @property
    def text(self) -> str:
        """What the model reads, without the token that its tokenizer puts before every text."""
        return self.prompt.rendered.removeprefix(self.beginning)

    @property
    def whole_text(self) -> str:
        """What the model reads, with that token."""
        return self.beginning + self.text

    def with_sources(self, texts: Sequence[str]) -> str:
        """What `text` would be if these were its sources."""
        end = self.prompt.text[self.sources[-1].end :]
        content = " ".join(text for text in texts if text) + end
        if not self.prompt.messages:
            return content
        rendered = render_messages(self.loaded_model, [{"role": "user", "content": content}])
        return rendered.removeprefix(self.beginning)

    def pooled(self, token_scores: Any) -> Scores:
        """The scores of the prompt's tokens as those of its sources, by the same rule for every library."""
        values = np.asarray(token_scores, dtype=np.float32)[None]
        if values.shape != (1, len(self.prompt.ids)):
            raise ValueError(f"{values.shape[1]} scores for {len(self.prompt.ids)} tokens of the prompt")
        return source_scores(values, self.sources, "positive", leave_out_first=True)[0]

    def figures(self, scores: Mapping[Key, Scores]) -> dict[Key, dict[str, float]]:
        """What each method's scores are worth; nothing where no truth is known."""
        if not self.causes:
            return {key: {} for key in scores}
        every = tuple({place for cause in self.causes for place in cause})
        if self.of_truth_alone:
            truth = np.isin(np.arange(len(self.sources)), every)
            return {
                key: {
                    "true first": float((values == values.max())[truth].sum() / (values == values.max()).sum()),
                    "AUPRC": source_average_precision(values, truth),
                }
                for key, values in scores.items()
            }
        whole = spans_of(self.reply.text, self.reply.tokens, "response")
        rows = [ResponseRow(self.reply.exchange, span.tokens) for span in whole]
        ablation = response_ablation(LoadedScorer(self.loaded_model), self.reply, rows, self.sources)
        masks = random_subsets(len(self.sources), SUBSETS, seed=HELD_OUT)
        real = ablation.scores_of(masks)
        truths = [np.isin(np.arange(len(self.sources)), cause) for cause in {*self.causes, every}]
        return {
            key: {
                f"recall@{TOP}": max(source_recall(values, truth, TOP) for truth in truths),
                "AUPRC": max(source_average_precision(values, truth) for truth in truths),
                f"drop@{TOP}": float(top_k_drop(ablation, values[None], [TOP])[0, 0]),
                "LDS": float(rank_agreement((masks @ values)[:, None], real)[0]),
            }
            for key, values in scores.items()
        }


def facts_questions(loaded_model: LoadedModel, number: int) -> list[Question]:
    """Questions that their documents answer."""
    stories = (example(seed, split="test", sentences=tuple(SENTENCES)) for seed in count())
    answered = (story for story in stories if story.questions[0].causes)
    questions = []
    for story in islice(answered, number):
        opening = encode_prompt(loaded_model, story.messages)
        reply = reply_of(loaded_model, opening, story.answer)
        sources = sources_of(opening.prompt, [(sentence.start, sentence.end) for sentence in story.sentences])
        questions.append(Question(loaded_model, story.messages, reply, sources, story.questions[0].causes))
    return questions


def review_questions(loaded_model: LoadedModel, number: int) -> list[Question]:
    """Reviews and what the model goes on with; the beginning of its own sentence is no source."""
    questions = []
    for text in REVIEWS[:number]:
        opening = encode_prompt(loaded_model, text)
        reply = reply_of(loaded_model, opening, None, tokens=RESPONSE_TOKENS)
        sources = sources_of(opening.prompt, "sentence")[:-1]
        questions.append(Question(loaded_model, text, reply, sources))
    return questions


def prose_questions(loaded_model: LoadedModel, number: int) -> list[Question]:
    """Questions in natural prose, with the answer in the text's words, which the model takes from there."""
    writer, found = writer_of(loaded_model, batch=4), []
    for question in prose_passages(count(FIRST_PASSAGE), sentences=(PASSAGE[0], PASSAGE[1])):
        ((_, answer),) = asked([question], writer, ["verbatim"])
        if not answer.is_kept:
            continue
        messages = writer.messages(question.passage.prompt)
        opening = encode_prompt(loaded_model, messages)
        sources = sources_of(opening.prompt, [(one.start, one.end) for one in question.passage.sentences])
        reply = reply_of(loaded_model, opening, answer.text)
        found.append(Question(loaded_model, messages, reply, sources, question.passage.question.causes, True))
        if len(found) == number:
            break
    return found


QUESTIONS: dict[str, Callable[[LoadedModel, int], list[Question]]] = {
    "mini-llm": facts_questions,
    "mini-gpt": review_questions,
    "smollm2-135m-instruct": prose_questions,
}
BUNDLED = ("mini-llm", "mini-gpt")


def folder_of(name: str) -> Path:
    """The folder of a bundled model, or of one that real_models.py has fetched."""
    return bundled_folder(name) if name in BUNDLED else model_folder(name)


@dataclass(frozen=True)
class Explainer:
    """A method of a library, ready to be asked, the model that it runs, and a check that raises if it goes wrong."""

    model: torch.nn.Module
    explain: Callable[[Question], Scores]
    check: Callable[[Question], object] = lambda question: None


def whyformer_method(name: str, *, method: str | None, units: str = "response", **options: Any) -> Explainer:
    loaded_model = load(folder_of(name), device="cpu")

    def explain(question: Question) -> Scores:
        response = whyformer.explain_response(
            question.example,
            [token.id for token in question.reply.tokens],
            loaded_model,
            method,
            units=units,
            sources=[(source.start, source.end) for source in question.sources],
            **options,
        )
        return response.scores.sum(axis=0, dtype=np.float64)

    return Explainer(loaded_model.model, explain)


def inseq_method(name: str, *, method: str, **options: Any) -> Explainer:
    import inseq

    model = inseq.load_model(str(folder_of(name)), method)

    def explain(question: Question) -> Scores:
        text = question.prompt.rendered
        result = model.attribute(text, text + question.reply.text, show_progress=False, **options)
        tokens = result.aggregate().sequence_attributions[0]
        before = tokens.target_attributions[: tokens.attr_pos_start]
        return question.pooled(before.nansum(dim=1))

    return Explainer(model.model, explain)


def plain_model(name: str, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer as transformers load them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(folder_of(name))
    return AutoModelForCausalLM.from_pretrained(folder, **options).eval(), AutoTokenizer.from_pretrained(folder)


def response_ids(question: Question) -> torch.Tensor:
    return torch.tensor([token.id for token in question.reply.tokens])


def captum_ablation(name: str, **options: Any) -> Explainer:
    from captum.attr import FeatureAblation, LLMAttribution, TextTemplateInput

    model, tokenizer = plain_model(name)
    attribution = LLMAttribution(FeatureAblation(model), tokenizer)

    def explain_by(question: Question, **ways: Any) -> Scores:
        texts = [source.text for source in question.sources]
        features = TextTemplateInput(lambda *values: question.with_sources(values), texts)
        with torch.no_grad():
            result = attribution.attribute(features, target=response_ids(question), **ways)
        return result.seq_attr.double().numpy()

    def check(question: Question) -> None:
        error = np.abs(explain_by(question, **options) - explain_by(question, use_cached_outputs=False)).max()
        if error > TOLERANCE:
            raise ValueError(f"its scores are off by up to {error:.1f} from those without its cache of keys and values")

    return Explainer(model, partial(explain_by, **options), check)


def captum_gradient(name: str, *, method: str, **options: Any) -> Explainer:
    import captum.attr

    model, tokenizer = plain_model(name)
    layer_method = getattr(captum.attr, method)(model, model.get_input_embeddings())
    attribution = captum.attr.LLMGradientAttribution(layer_method, tokenizer)

    def explain(question: Question) -> Scores:
        tokens = captum.attr.TextTokenInput(question.text, tokenizer)
        return question.pooled(attribution.attribute(tokens, target=response_ids(question), **options).seq_attr)

    return Explainer(model, explain)


def flashtrace_method(name: str, *, method: str) -> Explainer:
    from flashtrace import FlashTrace

    model, tokenizer = plain_model(name, attn_implementation="eager")
    tracer = FlashTrace(model, tokenizer)

    def explain(question: Question) -> Scores:
        # It puts the end of the text after every response; the span leaves that out.
        span = (0, len(question.reply.tokens) - 1)
        result = tracer.trace(prompt=question.whole_text, target=question.reply.text, output_span=span, method=method)
        return question.pooled(result.scores)

    return Explainer(model, explain)


def lxt_method(name: str) -> Explainer:
    """AttnLRP by the library that its authors keep: it replaces the functions of transformers' own module."""
    from lxt.efficient import monkey_patch
    from transformers.models.llama import modeling_llama

    monkey_patch(modeling_llama, verbose=False)
    model, _ = plain_model(name, attn_implementation="eager")

    def explain(question: Question) -> Scores:
        prompt = question.prompt.ids
        ids = torch.tensor([[*prompt, *response_ids(question).tolist()]])
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        logs = model(inputs_embeds=embeddings, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
        logs.gather(1, response_ids(question)[:, None]).sum().backward()
        return question.pooled((embeddings * embeddings.grad)[0, : len(prompt)].sum(dim=-1).detach())

    return Explainer(model, explain)


def context_cite_method(name: str) -> Explainer:
    from context_cite import ContextCiter
    from context_cite.context_partitioner import BaseContextPartitioner

    class Sentences(BaseContextPartitioner):
        """The question's own sources: the library's splitter would have to be downloaded."""

        def __init__(self, question: Question):
            self.texts = [source.text for source in question.sources]
            super().__init__(" ".join(self.texts))

        num_sources = property(lambda self: len(self.texts))

        def split_context(self) -> None:
            pass

        def get_source(self, index: int) -> str:
            return self.texts[index]

        def get_context(self, mask: np.ndarray | None = None) -> str:
            kept = [True] * len(self.texts) if mask is None else mask
            return " ".join(text for text, is_kept in zip(self.texts, kept, strict=True) if is_kept)

    model, tokenizer = plain_model(name)
    if not tokenizer.chat_template:
        tokenizer.chat_template = "{{ bos_token }}{{ messages[0]['content'] }}"

    def explain(question: Question) -> Scores:
        end, sentences = question.prompt.text[question.sources[-1].end :], Sentences(question)
        citer = ContextCiter(
            model, tokenizer, sentences.context, end, prompt_template="{context}{query}", partitioner=sentences
        )
        # It has no argument for a response that is given, and would write one of its own.
        citer._cache["output"] = question.whole_text + question.reply.text
        return np.asarray(citer.get_attributions(verbose=False), dtype=np.float64)

    return Explainer(model, explain)


OURS = ["generic_attention", "input_x_gradient", "flow_routes", "rollout", "context_ablation", "leave_one_out"]
BY_TOKEN = ["generic_attention", "input_x_gradient", "flow_routes", "rollout"]
INSEQ = ["saliency", "input_x_gradient", "attention"]
Maker = Callable[[str], Explainer]
METHODS: dict[str, dict[str, Maker]] = {
    "whyformer": {
        "bi_token, libra": partial(whyformer_method, method="bi_token", backward="libra"),
        **{method: partial(whyformer_method, method=method) for method in OURS},
        **{f"{one}, a row per token": partial(whyformer_method, method=one, units="token") for one in BY_TOKEN},
        "random": partial(whyformer_method, method="random"),
    },
    "inseq": {
        **{method: partial(inseq_method, method=method) for method in INSEQ},
        f"integrated_gradients, {STEPS} steps": partial(inseq_method, method="integrated_gradients", n_steps=STEPS),
    },
    "captum": {
        "FeatureAblation": captum_ablation,
        "FeatureAblation, use_cached_outputs=False": partial(captum_ablation, use_cached_outputs=False),
        "FeatureAblation, forward_in_tokens=False": partial(captum_ablation, forward_in_tokens=False),
        "LayerGradientXActivation": partial(captum_gradient, method="LayerGradientXActivation"),
        f"LayerIntegratedGradients, {STEPS} steps": partial(
            captum_gradient, method="LayerIntegratedGradients", n_steps=STEPS
        ),
    },
    "flashtrace": {method: partial(flashtrace_method, method=method) for method in ("flashtrace", "ifr-span")},
    "context-cite": {"ContextCiter": context_cite_method},
}

# On a real model: what responses are explained by, the best of the others, and a method of each library at most twice.
REAL_METHODS: dict[str, dict[str, Maker]] = {
    "whyformer": {
        "the default, focus=sources": partial(whyformer_method, method=None),
        "generic_attention, attn_lrp, focus=sources": partial(
            whyformer_method, method="generic_attention", backward="attn_lrp", focus="sources"
        ),
        **{method: partial(whyformer_method, method=method) for method in ("evidence", "flow_routes", "leave_one_out")},
    },
    "inseq": {method: partial(inseq_method, method=method) for method in ("attention", "saliency")},
    "captum": {
        "FeatureAblation, forward_in_tokens=False": partial(captum_ablation, forward_in_tokens=False),
        "LayerGradientXActivation": partial(captum_gradient, method="LayerGradientXActivation"),
    },
    "flashtrace": METHODS["flashtrace"],
    "context-cite": METHODS["context-cite"],
    "lxt": {"AttnLRP": lxt_method},
}
LIBRARIES = (*METHODS, "lxt")


@contextmanager
def counted(model: Any) -> Iterator[dict[str, int]]:
    """How often the blocks of a model run while inside, and on how many texts.

    Some libraries call `forward` of the whole model, past its hooks: the model within is watched.
    """
    counts = {"forwards": 0, "texts": 0}

    def add(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        counts["forwards"] += 1
        counts["texts"] += len(next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)))

    handle = model.base_model.register_forward_pre_hook(add, with_kwargs=True)
    try:
        yield counts
    finally:
        handle.remove()


def attempt(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call returns, or in one line why it does not; other libraries fail in ways of their own."""
    try:
        return call(), ""
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return None, f"{type(error).__name__}: {lines[0]}"


def prepare(make: Maker, model: str, question: Question) -> Explainer:
    """A method that has been run once and checked."""
    explainer = make(model)
    explainer.explain(question)
    explainer.check(question)
    return explainer


def ask(explainer: Explainer, question: Question) -> tuple[Scores, dict[str, float]]:
    """The scores of the question's sources, and what they cost."""
    with counted(explainer.model) as counts:
        start = time.process_time()
        scores = explainer.explain(question)
        seconds = time.process_time() - start
    return np.asarray(scores, dtype=np.float64), {"seconds": seconds, **counts}


def measure(
    makers: Mapping[Key, Maker], model: str, number: int, save: Callable[[dict[Key, dict[str, Any]]], None]
) -> dict[Key, dict[str, Any]]:
    """The figures of each method, or why it has none, saved after each question, which all methods take in turn."""
    questions = QUESTIONS[model](load(folder_of(model), device="cpu"), number)
    explainers, reasons = {}, {}
    for key, make in makers.items():
        explainers[key], reasons[key] = attempt(partial(prepare, make, model, questions[0]))
    records: dict[Key, list[dict[str, float]]] = {key: [] for key in makers}
    for place, question in enumerate(questions, 1):
        scores: dict[Key, Scores] = {}
        for key in makers:
            if not reasons[key]:
                answer, reasons[key] = attempt(partial(ask, explainers[key], question))
                if answer:
                    scores[key], cost = answer
                    records[key].append(cost)
        for key, own in question.figures(scores).items():
            records[key][-1] |= own
        print(f"{model}: {place} of {len(questions)}", flush=True)
        figures = {key: {"reason": reasons[key]} if reasons[key] else summary(records[key]) for key in makers}
        save(figures)
    return figures


def summary(records: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of the seconds, the mean of the rest, and of how many questions."""
    means = {name: round(float(np.mean([record[name] for record in records])), 3) for name in records[0]}
    seconds = round(statistics.median(record["seconds"] for record in records), 4)
    return {"questions": len(records), **means, "seconds": seconds}


def version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def merged(old: Mapping[str, Any], settings: Mapping[str, Any], libraries: Mapping[str, Any]) -> dict[str, Any]:
    """Results of some libraries beside those of the others as they were, which must have been asked the same."""
    for name, value in settings.items():
        if old and old.get(name) != value:
            raise SystemExit(
                f"{name}: {old.get(name)} in the file, {value} now. Run all libraries, or as those have been."
            )
    rows = {**old.get("libraries", {}), **libraries}
    return {**settings, "libraries": {name: rows[name] for name in LIBRARIES if name in rows}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="append", choices=LIBRARIES, help="a library; all of them unless given")
    parser.add_argument("--model", choices=[name for name in QUESTIONS if name not in BUNDLED], help="a real model")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--reviews", type=int, default=len(REVIEWS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    methods = REAL_METHODS if arguments.model else METHODS
    peers = arguments.peer or list(methods)
    numbers = {"mini-llm": arguments.questions, "mini-gpt": arguments.reviews}
    if arguments.model:
        numbers = {arguments.model: arguments.questions}
    settings: dict[str, Any] = {"questions": arguments.questions}
    if arguments.model:
        settings |= {"model": arguments.model, "sentences": PASSAGE, "first_seed": FIRST_PASSAGE}
    else:
        settings |= {"sentences": SENTENCES, "reviews": arguments.reviews}
        settings |= {"response_tokens": RESPONSE_TOKENS, "subsets": SUBSETS}
    settings["machine"] = {"processor": platform.machine(), "threads": torch.get_num_threads()}
    old = json.loads(arguments.out.read_text()) if arguments.peer and arguments.out and arguments.out.exists() else {}
    merged(old, settings, {})
    makers = {(peer, method): make for peer in peers for method, make in methods[peer].items()}
    figures: dict[str, dict[Key, dict[str, Any]]] = {}

    def save(model: str, found: dict[Key, dict[str, Any]]) -> None:
        figures[model] = found
        if arguments.out:
            libraries = _libraries(methods, peers, figures)
            arguments.out.write_text(json.dumps(merged(old, settings, libraries), indent=1) + "\n")

    for model, number in numbers.items():
        measure(makers, model, number, partial(save, model))
    for peer, method in makers:
        print(f"{peer:14} {method:42} {' | '.join(str(rows[peer, method]) for rows in figures.values())}")


def _libraries(
    methods: Mapping[str, Mapping[str, Maker]], peers: Sequence[str], figures: Mapping[str, Mapping[Key, Any]]
) -> dict[str, Any]:
    """The figures of each library, with its version and those of what it runs on."""
    return {
        peer: {
            "versions": {name: version(name) for name in dict.fromkeys((peer, "torch", "transformers"))},
            "methods": {method: {model: figures[model][peer, method] for model in figures} for method in methods[peer]},
        }
        for peer in peers
    }


if __name__ == "__main__":
    main()
