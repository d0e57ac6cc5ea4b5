"""Further figures of answers with known support, of which the verdicts may use some: `support.py --candidates`.

Each is a question to the model itself: the answer in other words, the source from the answer, a judgement in four
wordings, whether two answers agree, a choice between answers, what it would write with and without the sources, and the
white-box scores of several methods. All log-probabilities of an answer are computed in a few large batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from whyformer import LoadedModel
from whyformer.api.calibration_data import case_call
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import Reply, reply_of
from whyformer.api.response_case import ResponseCase, explain_cases
from whyformer.api.source_removal import levels_of
from whyformer.api.support_questions import CountedScorer, SupportQuestions
from whyformer.errors import WhyformerError
from whyformer.facts import SupportCase
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sentences import CharRange, sentence_ranges
from whyformer.inputs.sources import Source, sources_of
from whyformer.inputs.spans import spans_of
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.removal.response_scorer import PromptVariant

METHODS = ("flow_routes", "generic_attention")  # beside evidence, whose scores the rows have anyway
BY_SENTENCE = ("own_words_alone", "paraphrase_of_each", "without_each", "alone_each")  # sums of unit and value
TOKENS_AT_ONCE = 12_000
SAMPLES, MOST_TOKENS = 5, 32
SAMPLED_TOKENS = 20

NOT_SAID = "The text does not say."
OWN_WORDS = " Answer in your own words, not in those of the text."
OR_NOT_SAID = f" If the text does not say, answer: {NOT_SAID}"
IN_OTHER_WORDS = " In other words: "
JUDGES = {
    "stated": "Is that answer stated in the text or does it follow from the text? Answer yes or no.",
    "same": "Does the text say the same, perhaps in other words? Answer yes or no.",
    "contradicts": "Does the text contradict that answer? Answer yes or no.",
    "right": "Is that the right answer? Answer yes or no.",
}
PROPOSED = "\nProposed answer: {answer}\nAccording to the text, is the proposed answer true? Answer yes or no."
THREE_WAYS = (
    "\nProposed answer: {answer}\nIs the proposed answer\nA. supported by the text,\nB. contradicted by the text, or\n"
    "C. not mentioned in the text?\nAnswer with one letter."
)
IS_STATED = "\nDoes the text say the answer to this question? Answer yes or no."
AGREE = (
    "Question: {question}\nFirst answer: {one}\nSecond answer: {two}\nDo both answers mean the same? Answer yes or no."
)
CHOICE = "\nA. {one}\nB. {two}\nWhich answer is right, A or B? Answer with one letter."
REVERSE = "Question: {question}\nAnswer: {answer}\nWhich sentence of the text says so?"
PARAPHRASE = "Question: {question}\nText: {text}\nAnswer the question in your own words, not in those of the text."


@dataclass(eq=False)
class Batch:
    """Responses to score after prompts: asked one by one, computed together, nothing twice."""

    model: Any
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = field(default_factory=dict)
    wanted: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)

    def ask(self, prompt: PromptVariant, tokens: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        key = tuple(prompt.ids), tuple(token.id for token in tokens)
        self.wanted.append(key)
        return key

    @torch.inference_mode()
    def run(self) -> None:
        """The log-probability of each token of what was asked; responses that differ in the last token share a pass."""
        groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
        for key in dict.fromkeys(self.wanted):
            if key not in self.known:
                groups.setdefault((*key[0], *key[1][:-1]), []).append(key)
        order = sorted(groups, key=len)
        start = 0
        while start < len(order):
            end = start + 1
            while end < len(order) and (end + 1 - start) * len(order[end]) <= TOKENS_AT_ONCE:
                end += 1
            self._score(order[start:end], groups)
            start = end
        self.wanted.clear()

    def _score(self, rows: Sequence[tuple[int, ...]], groups: dict[tuple[int, ...], Any]) -> None:
        device = next(self.model.parameters()).device
        length = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=device)
        seen = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows], device=device)
        hidden = self.model.base_model(input_ids=ids, attention_mask=seen, use_cache=False).last_hidden_state
        for number, row in enumerate(rows):
            longest = max(len(response) for _, response in groups[row])
            logits = self.model.get_output_embeddings()(hidden[number, len(row) - longest : len(row)]).float()
            values = logits.log_softmax(dim=-1)
            for key in groups[row]:
                response = torch.tensor(key[1], device=device)
                own = values[longest - len(response) :].gather(-1, response[:, None])[:, 0]
                self.known[key] = own.double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class Asker:
    """A case as the model reads it, and the prompts that candidates are made of."""

    loaded: LoadedModel
    scorer: LoadedScorer
    questions: SupportQuestions
    batch: Batch
    documents: tuple[CharRange, ...]
    sentences: tuple[Source, ...]

    @property
    def messages(self) -> list[dict[str, str]]:
        prompt = self.questions.prompt
        return [{"role": one.role, "content": prompt.text[one.start : one.end]} for one in prompt.messages]

    @property
    def question(self) -> str:
        return self.questions.question.strip()

    def prompt_with(self, tail: str) -> Prompt:
        """The prompt with more at its end."""
        *before, last = self.messages
        return self.scorer.prompt([*before, {**last, "content": last["content"] + tail}])

    def prompt_after(self, answer: str, ask: str) -> Prompt:
        """The prompt, an answer, and a question about it."""
        return self.scorer.prompt(
            [*self.messages, {"role": "assistant", "content": answer}, {"role": "user", "content": ask}]
        )

    def fresh(self, text: str) -> Prompt:
        return self.scorer.prompt([{"role": "user", "content": text}])

    def alone(self, sentence: Source) -> list[CharRange]:
        """All places but that of a sentence."""
        return [(one.start, one.end) for one in self.sentences if one is not sentence]

    def ask(self, prompt: Prompt, text: str, removed: Sequence[CharRange] = ()) -> Any:
        return self.batch.ask(self.scorer.variant(prompt, list(removed)), self.scorer.response(prompt, text))

    def odds(self, prompt: Prompt, removed: Sequence[CharRange] = (), words: Sequence[str] = ("Yes", "No")) -> Any:
        """Ask for words: the first against the others follows from `Odds`."""
        return Odds([self.ask(prompt, word, removed) for word in words])


@dataclass(frozen=True)
class Odds:
    """Several answers to one prompt."""

    keys: list[Any]


def asker_of(loaded: LoadedModel, case: SupportCase) -> tuple[Asker, Reply]:
    call = case_call(loaded.tokenizer, case)
    opening = encode_prompt(loaded, call.prompt, call.documents)
    reply = reply_of(loaded, opening, call.answer)
    spans = spans_of(reply.text, reply.tokens, call.units)
    levels = levels_of(reply.prompt, sources_of(reply.prompt))
    places = tuple((one.start, one.end) for one in (*levels.documents, *levels.loose))
    scorer = LoadedScorer(loaded)
    questions = SupportQuestions(CountedScorer(scorer), reply.prompt, reply.text, reply.tokens, spans, places)
    finest = tuple(levels.all[number] for number in levels.finest)
    return Asker(loaded, scorer, questions, Batch(loaded.model), places, finest), reply


def candidates(loaded: LoadedModel, case: SupportCase, own: Sequence[str | None]) -> list[dict[str, Any]]:
    """The further figures of each statement of a case; `own` are the model's own answers to each."""
    asker, reply = asker_of(loaded, case)
    texts = sampled(asker)
    asked = [unit_questions(asker, number, one or "", texts) for number, one in enumerate(own)]
    whole = source_questions(asker)
    asker.batch.run()
    rows = []
    scores = method_scores(loaded, reply, asker)
    for number, questions in enumerate(asked):
        row = {name: answered(asker.batch, one) for name, one in questions.items()}
        tokens = list(asker.questions.spans[number].tokens)
        value = [tokens.index(one) for one in asker.questions.value_span(number).tokens]
        for name, keys in whole.items():
            row[name] = [rounded(asker.batch.known[key][tokens]) for key in keys]
        row["reverse"] = [rounded(map(sum, one)) for one in row["reverse"]]
        for name in BY_SENTENCE:
            row[name] = [rounded((sum(one), sum(one[place] for place in value))) for one in row[name]]
        row |= {"value_tokens": value, **texts}
        row["methods"] = {name: [each[number], each[len(own) + number]] for name, each in scores.items()}
        rows.append(row)
    return rows


def answered(batch: Batch, asked: Any) -> Any:
    """The figures of a question: token by token, or the log-odds of the first answer; lists of them alike."""
    if isinstance(asked, Odds):
        values = [float(batch.known[key].sum()) for key in asked.keys]
        return rounded(values if len(values) > 2 else [values[0] - values[1]])
    if isinstance(asked, list):
        return [answered(batch, one) for one in asked]
    return rounded(batch.known[asked])


def rounded(values: Any) -> list[float]:
    return [round(float(one), 3) for one in values]


def source_questions(asker: Asker) -> dict[str, list[Any]]:
    """The whole answer with all sources, with none, without each sentence, and with each alone."""
    questions = asker.questions
    prompt, text = questions.prompt, questions.text
    places = [(one.start, one.end) for one in asker.sentences]
    return {
        "both": [asker.ask(prompt, text), asker.ask(prompt, text, asker.documents)],
        "without_each": [asker.ask(prompt, text, [one]) for one in places],
        "alone_each": [asker.ask(prompt, text, asker.alone(one)) for one in asker.sentences],
    }


def unit_questions(asker: Asker, number: int, own: str, texts: dict[str, Any]) -> dict[str, Any]:
    """The questions about one statement."""
    unit = asker.questions.spans[number].text.strip()
    question, documents, memory = asker.question, asker.documents, texts["memory"]
    asked: dict[str, Any] = {}
    for name, wording in JUDGES.items():
        prompt = asker.prompt_after(unit, wording)
        asked[f"judge_{name}"] = [asker.odds(prompt), asker.odds(prompt, documents)]
        if name in ("stated", "same"):
            asked[f"judge_{name}_alone"] = [asker.odds(prompt, asker.alone(one)) for one in asker.sentences]
    proposed = asker.prompt_with(PROPOSED.format(answer=unit))
    asked["judge_proposed"] = [asker.odds(proposed), asker.odds(proposed, documents)]
    asked["judge_proposed_alone"] = [asker.odds(proposed, asker.alone(one)) for one in asker.sentences]
    three = asker.prompt_with(THREE_WAYS.format(answer=unit))
    asked["three_ways"] = [asker.odds(three, (), "ABC"), asker.odds(three, documents, "ABC")]
    stated = asker.prompt_with(IS_STATED)
    asked["is_stated"] = [asker.odds(stated), asker.odds(stated, documents)]
    words = asker.prompt_with(OWN_WORDS)
    asked["own_words_gain"] = [asker.ask(words, unit), asker.ask(words, unit, documents)]
    asked["own_words_alone"] = [asker.ask(words, unit, asker.alone(one)) for one in asker.sentences]
    unsaid = asker.prompt_with(OR_NOT_SAID)
    asked["or_not_said"] = [asker.ask(unsaid, one, two) for one in (unit, NOT_SAID) for two in ((), documents)]
    asked |= agreements(asker, unit, own, memory, texts)
    asked |= in_other_words(asker, unit, own, memory, texts)
    asked["reverse"] = [
        [asker.ask(asker.fresh(REVERSE.format(question=question, answer=one)), source.text) for one in (unit, own, "?")]
        for source in asker.sentences
    ]
    asked["paraphrase_of_each"] = [
        asker.ask(asker.fresh(PARAPHRASE.format(question=question, text=text)), unit)
        for text in (*(source.text for source in asker.sentences), "?")
    ]
    return asked


def agreements(asker: Asker, unit: str, own: str, memory: str, texts: dict[str, Any]) -> dict[str, Any]:
    """Whether the statement agrees with what the model writes, and which of both it chooses."""

    def agree(other: str) -> list[Odds]:
        pairs = ((unit, other), (other, unit))
        texts = [AGREE.format(question=asker.question, one=one, two=two) for one, two in pairs]
        return [asker.odds(asker.fresh(text)) for text in texts]

    asked: dict[str, Any] = {"agree_own": agree(own), "agree_memory": agree(memory)}
    asked["agree_own_words"] = agree(texts["own_words"])
    asked["agree_samples"] = [agree(one)[0] for one in texts["samples"]]
    asked["agree_samples_without"] = [agree(one)[0] for one in texts["samples_without"]]
    for name, other in (("choice_own", own), ("choice_memory", memory)):
        first = asker.prompt_with(CHOICE.format(one=unit, two=other))
        second = asker.prompt_with(CHOICE.format(one=other, two=unit))
        asked[name] = [
            odds
            for removed in ((), asker.documents)
            for odds in (asker.odds(first, removed, "AB"), asker.odds(second, removed, "BA"))
        ]
    return asked


def in_other_words(asker: Asker, unit: str, own: str, memory: str, texts: dict[str, Any]) -> dict[str, Any]:
    """The statement as another wording of the model's own answer, of other answers, and of none."""
    asked: dict[str, Any] = {}

    def following(prompt: Prompt, before: str, removed: Sequence[CharRange] = ()) -> Any:
        text = f"{before}{IN_OTHER_WORDS}{unit}" if before else unit
        variant = asker.scorer.variant(prompt, list(removed))
        opening = asker.scorer.response(prompt, f"{before}{IN_OTHER_WORDS}".rstrip()) if before else ()
        tokens = asker.scorer.response(prompt, text)[len(opening) :]
        return asker.batch.ask(PromptVariant("", (*variant.ids, *(token.id for token in opening))), tokens)

    prompt = asker.questions.prompt
    others = [memory, texts["own_words"], *texts["samples"], *texts["samples_without"]]
    asked["other_words_with"] = [following(prompt, one) for one in (own, memory)]
    asked["other_words_without"] = [following(prompt, one, asker.documents) for one in (own, *others)]
    asked["plain_without"] = [following(prompt, "", asker.documents)]
    return asked


def sampled(asker: Asker) -> dict[str, Any]:
    """What the model writes with the sources and without, and in its own words."""
    prompt = asker.questions.prompt
    whole, without = asker.scorer.variant(prompt), asker.scorer.variant(prompt, list(asker.documents))
    words = asker.scorer.variant(asker.prompt_with(OWN_WORDS))
    memory, own_words = written(asker, [without, words], MOST_TOKENS)
    torch.manual_seed(0)
    samples = written(asker, [*[whole] * SAMPLES, *[without] * SAMPLES], SAMPLED_TOKENS, do_sample=True)
    rest = {"samples": samples[:SAMPLES], "samples_without": samples[SAMPLES:]}
    return {"memory": memory, "own_words": own_words, **rest}


def first_sentence(text: str) -> str:
    ranges = sentence_ranges(text)
    return text[: ranges[0][1]].strip() if ranges else text.strip()


@torch.inference_mode()
def written(asker: Asker, variants: Sequence[PromptVariant], tokens: int, *, do_sample: bool = False) -> list[str]:
    """The first sentence that the model writes after each prompt, greedily or sampled at temperature 1."""
    model, tokenizer = asker.loaded.model, asker.loaded.tokenizer
    device, length = next(model.parameters()).device, max(len(one.ids) for one in variants)
    ids = torch.tensor([[0] * (length - len(one.ids)) + list(one.ids) for one in variants], device=device)
    seen = torch.tensor([[0] * (length - len(one.ids)) + [1] * len(one.ids) for one in variants], device=device)
    how = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if do_sample else {"do_sample": False}
    how |= {"max_new_tokens": tokens, "pad_token_id": tokenizer.eos_token_id, "repetition_penalty": 1.0}
    answers = model.generate(ids, attention_mask=seen, **how)[:, length:]
    return [first_sentence(tokenizer.decode(one, skip_special_tokens=True)) for one in answers]


def method_scores(loaded: LoadedModel, reply: Reply, asker: Asker) -> dict[str, list[list[float]]]:
    """The signed scores of the sentences, for each unit and then for the value of each, by several methods."""
    own = [*asker.questions.spans]
    spans = [*own, *(asker.questions.value_span(number) for number in range(len(own)))]
    different = [*dict.fromkeys(spans)]
    rows = tuple(ResponseRow(reply.exchange, span.tokens) for span in different)
    case = ResponseCase(reply, tuple(different), asker.sentences, rows, None, (), "none")
    found: dict[str, list[list[float]]] = {}
    for method in METHODS:
        try:
            (response,) = explain_cases(loaded, [case], method, None, {}, aggregate="sum")
        except WhyformerError:
            continue
        values = [[float(f"{one:.4g}") for one in row] for row in response.scores.tolist()]
        found[method] = [values[different.index(span)] for span in spans]
    return found
