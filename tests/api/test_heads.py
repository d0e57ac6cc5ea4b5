"""Every head through explain: each against a target written by hand, in batches, by name and by index."""

import copy
import json
import re

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F

from conftest import change_config, change_weights, labelled
from tiny_heads import HEADS, SIZES, TAGS, word_pieces
from tiny_models import built
from whyformer import (
    Candidates,
    WhyformerError,
    at,
    attribute,
    contrast,
    detection,
    estimate_memory,
    explain,
    explain_batch,
    explain_targets,
    load,
    scenes,
)
from whyformer.api.doctor import checkup
from whyformer.models.loading import LoadedModel

TEXT = "it came out in new york, not in paris."
QUESTION, PASSAGE = "when was it?", "the film was not great. it came out in 1969, in paris."
MASKED, PROTEIN = "the [MASK] was great.", "MKT<mask>LLVA"
CHOICES = ("the film was", ["great and new", "not bad"])
TOPICS = ("the film came out in paris", ["great", "not new", "bad"])
PAIR = ("when was the film?", "it came out in 1969")

METHODS = [None, "generic_attention", "input_x_gradient", "lrp", "integrated_gradients"]
TAGGERS = ["bert tags", "distilbert tags", "deberta tags", "gpt2 tags"]
SPANS = ["bert span", "distilbert span", "deberta span"]
# For each kind of head an example, and others of other lengths.
_OF_A_KIND = {
    tuple(TAGGERS): [TEXT, "in paris", "the film was great, new york was bad, and it was new"],
    tuple(SPANS): [(QUESTION, PASSAGE), ("when?", "in 1969"), ("was it great?", "it was not great in paris")],
    ("bert masks", "distilbert masks"): [MASKED, "[MASK] film", "in 1969 the film was not [MASK]"],
    ("esm masks",): [PROTEIN, "<mask>A", "GGAVLIK<mask>RST"],
    ("esm tags",): ["MKTLLVA", "GA", "GAVLIKRSTGAV"],
    ("bert choice", "deberta choice"): [CHOICES, ("it", ["is new", "is"]), ("was it", ["in paris", "a"])],
    ("bert next",): [("it is new", "it is great"), ("bad", "not"), ("the film was great", "it came out in 1969")],
    ("bert inference", "deberta inference"): [TOPICS, ("bad", ["new", "great"]), ("it is new", Candidates(["bad"]))],
    ("bert value", "bert topics"): ["the film was great", "bad", "it came out in paris, not new york"],
    ("bert embedding", "distilbert embedding"): [PAIR, ("bad", "the film was bad"), ("it", "is")],
}
EXAMPLES = {name: examples for names, examples in _OF_A_KIND.items() for name in names}


def encoded(model, *texts):
    return dict(model.tokenizer(*texts, return_tensors="pt"))


@torch.no_grad()
def output_of(model, inputs):
    return model.model(**inputs)


def by_hand(model, inputs, score, method, *, blank=None):
    """The scores of all but special tokens, by attribute alone; 0 at a position that is no word and is read."""
    scores = attribute(model.model, inputs, score, method)["text"][0].numpy().copy()
    if blank is not None:
        scores[blank] = 0.0
    tokenizer = model.tokenizer
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.eos_token_id} - {None}
    return scores[[n for n, token in enumerate(inputs["input_ids"].flatten().tolist()) if token not in special]]


def assert_same(scores, expected):
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(scores, expected, rtol=5e-4, atol=1e-5 * np.abs(expected).max())


def position(model, characters, *texts, occurrence=0):
    """The first token of these characters, which are a token's."""
    tokens = model.tokenizer.convert_ids_to_tokens(encoded(model, *texts)["input_ids"][0])
    return [n for n, token in enumerate(tokens) if token.lstrip("Ġ▁") == characters][occurrence]


@pytest.mark.parametrize("name", EXAMPLES)
def test_by_default_the_words_of_every_head_have_state_times_gradient_at_the_first_block(head, name):
    explanation = explain(EXAMPLES[name][0], head(name))
    options = {"blocks": "first", "backward": "attn_lrp"}
    expected = explain(EXAMPLES[name][0], head(name), method="state_x_gradient", **options)
    assert explanation.method == "evidence"
    assert explanation.parts.keys() == expected.parts.keys()
    for part, other in zip(explanation.parts.values(), expected.parts.values(), strict=True):
        assert_same(part.scores, other.scores)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TAGGERS)
def test_a_tag_of_a_word_is_the_logit_at_its_first_token(head, name, method):
    model = head(name)
    place = position(model, "paris", TEXT)
    explanation = explain(TEXT, model, at("paris", "B-LOC"), method)
    expected = by_hand(model, encoded(model, TEXT), lambda output: output.logits[:, place, 1], method)
    assert_same(explanation.scores, expected)
    share = output_of(model, encoded(model, TEXT)).logits[0, place].softmax(dim=0)[1]
    assert explanation.probability == pytest.approx(float(share), abs=1e-6)
    assert explanation.target == ("paris. → B-LOC" if name == "deberta tags" else "paris → B-LOC")


@pytest.mark.parametrize("name", TAGGERS[:2])
def test_an_entity_of_two_words_is_the_mean_of_their_tags(head, name):
    model = head(name)
    new, york = (position(model, word, TEXT) for word in ("new", "york"))
    explanation = explain(TEXT, model, at("New York", "LOC"), "generic_attention")

    def score(output):
        return (output.logits[:, new, 1] + output.logits[:, york, 2]) / 2

    assert_same(explanation.scores, by_hand(model, encoded(model, TEXT), score, "generic_attention"))
    assert explanation.target == "new york → LOC"
    assert (explain(TEXT, model, at(range(4, 6), "LOC"), "generic_attention")) == explanation


def test_a_tag_may_be_set_against_another(head):
    model = head("bert tags")
    place = position(model, "paris", TEXT)
    explanation = explain(TEXT, model, at("paris", contrast("B-LOC", "O")), "generic_attention")

    def score(output):
        return output.logits[:, place, 1] - output.logits[:, place, 0]

    assert_same(explanation.scores, by_hand(model, encoded(model, TEXT), score, "generic_attention"))
    assert (explanation.target, explanation.probability) == ("paris → B-LOC rather than O", None)


def test_a_tag_without_a_word_is_explained_where_it_is_likeliest(head):
    model = head("bert tags")
    shares = output_of(model, encoded(model, TEXT)).logits[0, 1:-1].softmax(dim=-1)[:, 3]
    word = int(shares.argmax())  # every word of this text is a token
    for tag in ("B-DATE", "b-date", "DATE", 3):
        assert explain(TEXT, model, tag, "rollout").target == explain(TEXT, model, at(word, 3), "rollout").target


def certain_tagger(tags):
    """A tagger that gives each word of the vocabulary its tag, by its embedding alone."""
    model = built("BertForTokenClassification", "BertConfig", **SIZES | TAGS)
    tokenizer = word_pieces()
    labels = {name: index for index, name in TAGS["id2label"].items()}

    def tagged(module, args, kwargs, output):
        wanted = [labels[tags.get(word, "O")] for word in tokenizer.convert_ids_to_tokens(kwargs["input_ids"][0])]
        hot = F.one_hot(torch.tensor(wanted), len(labels)).expand_as(output.logits)
        output.logits = output.logits + 20 * hot
        return output

    model.register_forward_hook(tagged, with_kwargs=True)
    return LoadedModel(model, tokenizer, "tagger")


def test_every_entity_of_a_text_is_explained_as_the_pipeline_groups_them():
    model = certain_tagger({"new": "B-LOC", "york": "I-LOC", "paris": "B-LOC", "1969": "B-DATE"})
    text = "it came out in new york paris, in 1969."
    pipeline = transformers.pipeline(
        "token-classification", model=model.model, tokenizer=model.tokenizer, aggregation_strategy="first"
    )
    explanations = explain_targets(text, model, method="rollout")
    expected = pipeline(text)
    assert [one.target for one in explanations] == ["new york → LOC", "paris → B-LOC", "1969 → B-DATE"]
    assert [one.probability for one in explanations] == pytest.approx([one["score"] for one in expected], abs=1e-5)
    surest = max(explanations, key=lambda one: one.probability)
    assert explain(text, model, method="rollout").target == surest.target


def test_a_text_without_entities_has_none_to_explain_and_one_that_comes_nearest():
    model = certain_tagger({})
    assert explain_targets("it came out", model) == []
    explanation = explain("it came out", model, method="rollout")
    assert re.fullmatch(r"(it|came|out) → [BI]-(LOC|DATE)", explanation.target)
    assert explanation.notes == ("All words are tagged O: this is the most likely other tag.",)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SPANS)
def test_an_answer_is_the_logits_of_its_start_and_its_end(head, name, method):
    model = head(name)
    start, end = (position(model, word, QUESTION, PASSAGE) for word in ("in", "1969"))
    explanation = explain((QUESTION, PASSAGE), model, "in 1969", method)

    def score(output):
        return output.start_logits[:, start] + output.end_logits[:, end]

    inputs = encoded(model, QUESTION, PASSAGE)
    assert_same(explanation.scores, by_hand(model, inputs, score, method))
    assert explanation.target == "answer: 'in 1969'"
    output = output_of(model, inputs)
    first = inputs["input_ids"][0].tolist().index(model.tokenizer.sep_token_id) + 1
    allowed = [0, *range(first, inputs["input_ids"].shape[1] - 1)]  # the class token and the passage
    shares = [
        float(logits[0, allowed].softmax(dim=0)[allowed.index(place)])
        for logits, place in ((output.start_logits, start), (output.end_logits, end))
    ]
    assert explanation.probability == pytest.approx(shares[0] * shares[1], rel=1e-5)


@pytest.mark.parametrize("name", SPANS)
def test_the_predicted_answer_is_the_best_span_of_the_passage(head, name):
    model = head(name)
    inputs = encoded(model, QUESTION, PASSAGE)
    output = output_of(model, inputs)
    first = inputs["input_ids"][0].tolist().index(model.tokenizer.sep_token_id) + 1
    last = inputs["input_ids"].shape[1] - 1
    spans = [(a, b) for a in range(first, last) for b in range(a, min(a + 15, last))]
    start, end = max(spans, key=lambda span: float(output.start_logits[0, span[0]] + output.end_logits[0, span[1]]))
    offsets = model.tokenizer(QUESTION, PASSAGE, return_offsets_mapping=True)["offset_mapping"]
    answer = PASSAGE[offsets[start][0] : offsets[end][1]].strip()
    assert explain((QUESTION, PASSAGE), model, method="rollout").target == f"answer: {answer!r}"


def test_an_answer_may_be_set_against_another(head):
    model = head("bert span")
    explanation = explain((QUESTION, PASSAGE), model, contrast("1969", "paris"), "generic_attention")
    year, city = (position(model, word, QUESTION, PASSAGE) for word in ("1969", "paris"))

    def score(output):
        both = output.start_logits + output.end_logits
        return both[:, year] - both[:, city]

    inputs = encoded(model, QUESTION, PASSAGE)
    assert_same(explanation.scores, by_hand(model, inputs, score, "generic_attention"))
    assert (explanation.target, explanation.probability) == ("answer: '1969' rather than 'paris'", None)


def test_an_answer_that_occurs_twice_is_the_likelier_or_the_one_that_is_named(head):
    model = head("bert span")
    text = "it was new in paris, not in paris"
    both = [explain((QUESTION, text), model, at(text.index("paris", start), "paris"), "rollout") for start in (0, 20)]
    explanation = explain((QUESTION, text), model, "paris", "rollout")
    likelier = max(both, key=lambda one: one.probability)
    assert explanation.probability == likelier.probability
    place = text.index("paris", 20 * both.index(likelier))
    assert explanation.notes == (f"'paris' occurs 2 times: the most likely one is explained, at character {place}.",)
    assert both[0].scores.tolist() != both[1].scores.tolist()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "text", "word"),
    [("bert masks", MASKED, "film"), ("distilbert masks", MASKED, "film"), ("esm masks", PROTEIN, "G")],
)
def test_a_masked_word_is_its_logit_at_the_mask(head, name, text, word, method):
    model = head(name)
    inputs = encoded(model, text)
    mask = inputs["input_ids"][0].tolist().index(model.tokenizer.mask_token_id)
    token = model.tokenizer.convert_tokens_to_ids(word)
    explanation = explain(text, model, word, method)
    expected = by_hand(model, inputs, lambda output: output.logits[:, mask, token], method, blank=mask)
    assert_same(explanation.scores, expected)
    share = output_of(model, inputs).logits[0, mask].softmax(dim=0)[token]
    assert explanation.probability == pytest.approx(float(share), abs=1e-6)
    assert explanation.target == f"{model.tokenizer.mask_token} → {word!r}"
    assert explain(text, model, token, method) == explanation
    likeliest = int(output_of(model, inputs).logits[0, mask].argmax())
    predicted = explain(text, model, method="rollout")
    assert predicted.target == f"{model.tokenizer.mask_token} → {model.tokenizer.decode([likeliest])!r}"


def test_the_likeliest_word_at_each_mask_is_that_of_the_pipeline(head):
    model = head("bert masks")
    text = "the [MASK] was [MASK]"
    pipeline = transformers.pipeline("fill-mask", model=model.model, tokenizer=model.tokenizer, top_k=1)
    expected = [best[0] for best in pipeline(text)]
    explanations = explain_targets(text, model, method="rollout")
    names = [f"[MASK] {number} → {best['token_str']!r}" for number, best in enumerate(expected)]
    assert [one.target for one in explanations] == names
    assert [one.probability for one in explanations] == pytest.approx([best["score"] for best in expected], abs=1e-6)
    first = explain(text, model, method="rollout")
    assert first.target == names[0]
    assert first.notes == ("The text has 2 masks: mask 0, the first, is explained.",)
    against = explain(text, model, at(1, contrast("film", "bad")), "rollout")
    assert against.target == "[MASK] 1 → 'film' rather than 'bad'"


def test_every_word_of_a_choice_has_a_score_by_default(head):
    explanation = explain(CHOICES, head("bert choice"), "not bad")
    assert explanation.method == "evidence"
    assert (explanation.scores != 0).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bert choice", "deberta choice"])
def test_a_choice_is_its_logit_beside_all_others(head, name, method):
    model = head(name)
    prompt, choices = CHOICES
    together = model.tokenizer([prompt] * 2, choices, padding=True, return_tensors="pt")
    logits = output_of(model, {key: value[None] for key, value in together.items()}).logits[0]
    explanation = explain(CHOICES, model, "not bad", method)
    assert explanation.probability == pytest.approx(float(logits.softmax(dim=0)[1]), abs=1e-6)
    alone = {key: value[:, None] for key, value in encoded(model, prompt, choices[1]).items()}
    expected = by_hand(model, alone, lambda output: output.logits[:, 0], method, blank=0)
    assert_same(explanation.scores, expected)
    assert explain(CHOICES, model, 1, method) == explanation
    assert explain(CHOICES, model, method="rollout").target == choices[int(logits.argmax())]
    assert [one.target for one in explain_targets(CHOICES, model, method="rollout")] == choices


@pytest.mark.parametrize("name", ["bert inference", "deberta inference"])
@pytest.mark.parametrize("labels", [["great", "not new", "bad"], ["great"]])
@pytest.mark.parametrize("template", ["This example is {}.", "it was {}"])
def test_candidate_labels_have_the_probabilities_of_the_zero_shot_pipeline(head, name, labels, template):
    model = head(name)
    pipeline = transformers.pipeline("zero-shot-classification", model=model.model, tokenizer=model.tokenizer)
    expected = pipeline(TOPICS[0], labels, hypothesis_template=template)
    example = (TOPICS[0], Candidates(labels, template=template))
    explanations = explain_targets(example, model, method="rollout")
    shares = dict(zip(expected["labels"], expected["scores"], strict=True))
    assert [one.target for one in explanations] == labels
    assert [one.probability for one in explanations] == pytest.approx([shares[label] for label in labels], abs=1e-5)
    assert explain(example, model, method="rollout").target == expected["labels"][0]


@pytest.mark.parametrize("method", METHODS)
def test_a_candidate_label_is_the_logit_of_entailment(head, method):
    model = head("bert inference")
    inputs = encoded(model, TOPICS[0], "This example is not new.")
    expected = by_hand(model, inputs, lambda output: output.logits[:, 2], method, blank=0)
    explanation = explain(TOPICS, model, "not new", method)
    assert_same(explanation.scores, expected)
    assert explain(TOPICS, model, 1, method) == explanation
    assert_same(explain((TOPICS[0], "This example is not new."), model, "entailment", method).scores, expected)


def test_whether_a_text_follows_is_a_label(head):
    model = head("bert next")
    example = ("it is new", "it is great")
    logits = output_of(model, encoded(model, *example)).logits[0]
    explanations = explain_targets(example, model, ["is next", "is not next"], "generic_attention")
    assert [one.probability for one in explanations] == pytest.approx(logits.softmax(dim=0).tolist(), abs=1e-6)
    by_index = explain(example, model, 1, "generic_attention")
    assert by_index.target == explanations[1].target
    assert_same(by_index.scores, explanations[1].scores)
    assert_same(
        explanations[0].scores,
        by_hand(model, encoded(model, *example), lambda output: output.logits[:, 0], "generic_attention"),
    )


def test_a_number_has_no_probability_and_says_what_it_is(head):
    model = head("bert value")
    value = float(output_of(model, encoded(model, "the film was great")).logits[0, 0])
    explanation = explain("the film was great", model, method="input_x_gradient")
    assert (explanation.target, explanation.probability) == (f"value {value:.3g}", None)
    inputs = encoded(model, "the film was great")
    assert_same(
        explanation.scores, by_hand(model, inputs, lambda output: output.logits[:, 0], "input_x_gradient", blank=0)
    )
    assert explanation.headline == f"value {value:.3g} by input_x_gradient on bert-value"
    assert [one.target for one in explain_targets("the film was great", model)] == [explanation.target]


def test_a_number_of_several_bears_its_name():
    sizes = SIZES | labelled({0: "valence", 1: "arousal"}) | {"problem_type": "regression"}
    model = LoadedModel(built("BertForSequenceClassification", "BertConfig", **sizes), word_pieces(), "moods")
    values = output_of(model, encoded(model, "a bad film")).logits[0].tolist()
    both = explain_targets("a bad film", model, method="rollout")
    assert [one.target for one in both] == [f"valence {values[0]:.3g}", f"arousal {values[1]:.3g}"]
    assert [one.probability for one in both] == [None, None]


def test_labels_that_are_judged_by_themselves_are_explained_together(head):
    model = head("bert topics")
    text = "it came out in paris, not new york"
    shares = output_of(model, encoded(model, text)).logits[0].sigmoid().tolist()
    likely = [label for label, share in zip(("sport", "film", "food"), shares, strict=True) if share >= 0.5]
    assert likely
    assert [one.target for one in explain_targets(text, model, method="rollout")] == likely
    each = explain_targets(text, model, ["food", 0, contrast("sport", "food")], "generic_attention")
    assert [one.target for one in each] == ["food", "sport", "sport rather than food"]
    assert [one.probability for one in each[:2]] == pytest.approx([shares[2], shares[0]], abs=1e-6)
    for one, label in zip(each, ("food", "sport"), strict=False):
        assert_same(one.scores, explain(text, model, label, "generic_attention").scores)


def pooled(states, mask, kind):
    real = states[mask.bool()]
    weights = torch.arange(1, len(real) + 1)[:, None].float()
    return {
        "mean": real.mean(dim=0),
        "cls": real[0],
        "max": real.max(dim=0).values,
        "lasttoken": real[-1],
        "mean_sqrt_len": real.sum(dim=0) / len(real) ** 0.5,
        "weightedmean": (weights * real).sum(dim=0) / weights.sum(),
    }[kind]


def assert_similarity_by_hand(model, method, kind="mean"):
    """Both texts against a cosine written out, of the same two embeddings."""
    first, second = (encoded(model, text) for text in PAIR)

    def embedding(output, inputs):
        return pooled(output.last_hidden_state[0], inputs["attention_mask"][0], kind)

    def score(inputs, other):
        def cosine(output):
            own = embedding(output, inputs)
            return (own @ other / (own.norm() * other.norm()))[None]

        return cosine

    ends = [embedding(output_of(model, inputs), inputs) for inputs in (first, second)]
    expected = np.concatenate(
        [
            by_hand(model, first, score(first, ends[1]), method, blank=0 if kind == "cls" else None),
            by_hand(model, second, score(second, ends[0]), method, blank=0 if kind == "cls" else None),
        ]
    )
    explanation = explain(PAIR, model, method=method)
    assert_same(explanation.scores, expected)
    assert explanation.target == f"similarity {float(F.cosine_similarity(*ends, dim=0)):.2f}"
    assert explanation.parts["text"].layout.texts == PAIR
    return explanation


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bert embedding", "distilbert embedding"])
def test_the_similarity_of_two_texts_is_the_cosine_of_their_mean_states(head, name, method):
    explanation = assert_similarity_by_hand(head(name), method)
    assert "Embeddings are pooled by mean, by default, without a 1_Pooling/config.json." in explanation.notes
    assert not any("chunks" in note for note in explanation.notes)
    assert explanation.probability is None


POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


@pytest.mark.parametrize(("mode", "kind"), POOLINGS.items())
def test_the_folder_of_sentence_transformers_says_how_states_are_pooled(head, copy_of, mode, kind):
    folder = copy_of(head("bert embedding").model.name_or_path)
    (folder / "1_Pooling").mkdir()
    stated = dict.fromkeys(POOLINGS, False) | {"word_embedding_dimension": 48, mode: True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(stated))
    modules = [
        {"idx": n, "type": f"sentence_transformers.models.{one}"} for n, one in enumerate(["Transformer", "Pooling"])
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    explanation = assert_similarity_by_hand(load(folder, device="cpu"), "generic_attention", kind)
    assert f"Embeddings are pooled by {kind}, as stated in its 1_Pooling/config.json." in explanation.notes


def test_layers_after_the_pooling_and_unknown_poolings_are_refused(head, copy_of):
    folder = copy_of(head("bert embedding").model.name_or_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "median"}))
    with pytest.raises(
        WhyformerError, match=r"spoilt pools by median \(1_Pooling/config.json\), which is not supported"
    ):
        explain(PAIR, load(folder, device="cpu"))
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(WhyformerError, match=r"spoilt has a Dense layer after its states \(modules.json\)"):
        explain(PAIR, load(folder, device="cpu"))


def approximately(probability):
    return None if probability is None else pytest.approx(probability, rel=1e-4)


@pytest.mark.parametrize("method", [None, "generic_attention", "lrp"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_batch_is_explained_like_its_examples_one_by_one(head, name, method):
    single = head(name)
    # In double precision: the reference's rules of relevance divide by small numbers, and enlarge a rounding.
    model = LoadedModel(copy.deepcopy(single.model).double(), single.processor, single.name)
    batch = explain_batch(EXAMPLES[name], model, method=method, batch_size=8)
    for example, together in zip(EXAMPLES[name], batch, strict=True):
        alone = explain(example, model, method=method)
        assert (together.target, together.notes) == (alone.target, alone.notes)
        assert together.probability == approximately(alone.probability)
        assert_same(together.scores, alone.scores)


def test_each_example_of_a_batch_may_have_its_own_target(head):
    model, targets = head("bert tags"), [at("paris", "B-LOC"), at(0, contrast("O", "B-LOC")), "B-DATE"]
    batch = explain_batch(EXAMPLES["bert tags"], model, targets, "generic_attention")
    for example, target, together in zip(EXAMPLES["bert tags"], targets, batch, strict=True):
        alone = explain(example, model, target, "generic_attention")
        assert together.target == alone.target
        assert_same(together.scores, alone.scores)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_model_of_a_head_is_described_and_healthy(head, name, doctor_of):
    model = head(name)
    found = doctor_of(name)
    assert found.problems == ()
    assert (found.answers, found.targets) == (model.task.description, model.task.targets)
    assert found.architecture == HEADS[name][0] if name in HEADS else found.architecture.startswith("Esm")
    assert found.methods["rollout"] is found.methods["lrp"] is None
    assert found.facts["targets"] == model.task.targets


@pytest.fixture(scope="session")
def doctor_of(head):
    return lambda name: checkup(head(name))


def test_the_doctor_names_the_tags_and_no_label_that_is_none(doctor_of):
    assert doctor_of("bert tags").facts["answers with"] == "a tag for each word, 5: O, B-LOC, I-LOC, B-DATE, I-DATE"
    assert doctor_of("bert span").facts["answers with"] == "a span of the passage, for a question"
    assert doctor_of("bert next").labels == ("is next", "is not next")


LONG = "the film was great and it came out in paris. " * 8


def test_a_long_text_is_explained_where_it_has_what_is_asked_about(head):
    model = head("bert tags")
    explanation = explain(LONG, model, at(52, "B-LOC"), "rollout")
    (note,) = explanation.notes
    assert re.fullmatch(
        r"The text is longer than the model's limit: chunk \d of \d, which contains the target, is explained.", note
    )
    part = explanation.parts["text"]
    words = [word.text for word in part.words()]
    assert 30 < len(words) < 40
    assert explanation.target.split(" → ")[0] in words
    answer = explain(("when?", f"{LONG}it was 1969."), head("bert span"), "1969", "rollout")
    assert answer.target == "answer: '1969'"
    assert "1969." in [word.text for word in answer.parts["text"].words()]
    masked = explain(f"{LONG}it was [MASK].", head("bert masks"), "new", "rollout")
    assert "[MASK]." in [word.text for word in masked.parts["text"].words()]


REFUSALS = [
    ("bert tags", TEXT, at("pariss"), "No word 'pariss' in the text. Did you mean 'paris'?"),
    (
        "bert tags",
        "in paris, not in paris",
        at("paris", "LOC"),
        "'paris' occurs 2 times in the text, at words 1, 5: give one of these numbers as the place, such as at(1, …).",
    ),
    ("bert tags", TEXT, at("paris", "B-LOCK"), "No label named 'B-LOCK'. Did you mean 'B-LOC' or 'I-LOC'?"),
    ("bert tags", TEXT, at(40), "No word 40: the text has 11, 0 to 10."),
    ("bert tags", TEXT, "PER", "No label named 'PER'. Known: O, B-LOC, I-LOC, B-DATE, I-DATE."),
    ("bert tags", TEXT, at("paris", contrast("O", "O")), "contrast('O', …) names the same thing twice"),
    ("bert tags", TEXT, detection(1), "A detection is a target for detectors: give a label, or 'predicted'."),
    ("bert span", (QUESTION, PASSAGE), "in 1996", "'in 1996' is not in the passage. Did you mean 'in 1969'?"),
    ("bert span", (QUESTION, PASSAGE), 3, "A target is words of the passage, 'predicted' or a contrast, not 3."),
    ("bert span", PASSAGE, "predicted", "This model takes a question and a passage: ('When did it land?', "),
    (
        "bert span",
        (QUESTION, PASSAGE),
        at(3, "1969"),
        "'1969' does not start at character 3 of the passage, but at 39.",
    ),
    (
        "bert masks",
        "the film",
        "predicted",
        "The text has no [MASK]: write it where bert-masks should put a word, such as 'A great [MASK].'.",
    ),
    ("esm masks", "MKT", "predicted", "The text has no <mask>: write it where esm-masks should put a word"),
    ("bert masks", MASKED, "greatly", "'greatly' is not one token of bert-masks but several ('great', '##ly'): choose"),
    ("bert masks", MASKED, "house", "'house' is not in the vocabulary of bert-masks: choose another word."),
    ("bert masks", MASKED, at(1, "film"), "No mask 1: the text has 1, counted from 0."),
    ("bert choice", "the film", "predicted", "This model takes a prompt and a list of choices: ('The sky is', "),
    ("bert choice", ("the film", "was"), "predicted", "bert-choice chooses among texts: give (prompt, [choices]), not"),
    (
        "bert choice",
        CHOICES,
        "not mad",
        "No choice 'not mad' among those the model chooses from. Did you mean 'not bad'?",
    ),
    ("bert topics", "a film", ["sport", "food"], "2 targets for one example: give one, or use explain_targets for"),
    ("bert tags", TEXT, [at("paris"), at("new")], "2 targets for one example: give one, or use explain_targets for"),
    ("bert choice", CHOICES, 2, "No choice with index 2: the model chooses from 2, from 0 on."),
    ("bert choice", CHOICES, contrast(0, 1), "A target is a choice or its index, or 'predicted', not Contrast("),
    ("bert choice", CHOICES, at(0), "bert-choice answers at one place: give one of the choices or its index."),
    ("bert inference", TOPICS, "mad", "No candidate 'mad' among those the model chooses from. Did you mean 'bad'?"),
    ("bert inference", ("it was new", []), "predicted", "Candidates are a list of at least one label, not ()."),
    ("bert topics", "a film", at("film"), "bert-topics answers at one place: give a label's name or index"),
    ("bert next", "it is new", "predicted", "This model takes two texts, of which the second may follow the first"),
    ("bert embedding", 7, "predicted", "This model takes a text, or two texts: ('a question', 'a passage'), not"),
    ("bert embedding", PAIR, "near", "Two texts have a similarity and no label 'near': leave the target out."),
    ("esm masks", "MKT<mask>" * 30, "predicted", "The text has 122 tokens, and the model takes 40: shorten it"),
]


@pytest.mark.parametrize(("name", "example", "target", "message"), REFUSALS)
def test_what_cannot_be_asked_of_a_head_is_refused_in_a_line(head, name, example, target, message):
    with pytest.raises(WhyformerError, match=re.escape(message)) as refusal:
        explain(example, head(name), target)
    assert "\n" not in str(refusal.value)


def test_candidates_need_a_model_of_inference_and_a_template_a_place(bert):
    with pytest.raises(WhyformerError, match="tiny-bert has no label 'entailment', so it cannot choose among"):
        explain(TOPICS, bert)
    with pytest.raises(WhyformerError, match=r"The template 'about it' has no \{\} where the label goes"):
        Candidates(["great"], "about it")
    with pytest.raises(WhyformerError, match=r"takes a list of targets, not one \('great'\): use explain"):
        explain_targets("a film", bert, "great")


def test_examples_with_candidates_and_without_them_are_not_mixed(head):
    with pytest.raises(WhyformerError, match="with and without candidate labels cannot be explained in one batch"):
        explain_batch([TOPICS, ("it was new", "it was bad")], head("bert inference"))


@pytest.mark.parametrize("name", ["bert tags", "bert span", "bert masks", "bert choice", "bert embedding"])
def test_memory_is_estimated_for_every_head(head, name):
    model = head(name).model
    weights = sum(x.numel() * x.element_size() for x in (*model.parameters(), *model.buffers()))
    few, many = (estimate_memory(model, tokens, "generic_attention") for tokens in (8, 40))
    assert weights < few < many


def test_every_object_that_a_detector_finds_is_explained():
    scene = scenes.example(3)
    model = load("mini-detr", device="cpu")
    with torch.no_grad():
        logits = model.model(**model.processor(scene.image, return_tensors="pt")).logits[0]
    queries = [n for n, shares in enumerate(logits.softmax(dim=-1)[:, :-1].tolist()) if max(shares) >= 0.5]
    explanations = explain_targets(scene.image, model, method="raw_attention")
    assert queries
    assert explanations == [explain(scene.image, model, detection(query), "raw_attention") for query in queries]


def test_a_head_takes_a_score_of_ones_own(head):
    model = head("bert tags")
    explanation = explain(TEXT, model, lambda output: output.logits[:, 1, 2], "generic_attention")
    expected = by_hand(model, encoded(model, TEXT), lambda output: output.logits[:, 1, 2], "generic_attention")
    assert_same(explanation.scores, expected)


def test_an_encoder_without_a_pooler_is_loaded_and_a_picture_encoder_is_not(head, copy_of, vit):
    folder = copy_of(head("bert embedding").model.name_or_path)
    change_weights(folder, lambda weights: {name: x for name, x in weights.items() if "pooler" not in name})
    assert_same(explain(PAIR, load(folder)).scores, explain(PAIR, head("bert embedding")).scores)
    pictures = copy_of(vit, "pictures")
    change_config(pictures, architectures=["ViTModel"])
    with pytest.raises(WhyformerError, match="is a ViTModel, not a model that classifies"):
        load(pictures)


def test_the_letters_of_a_protein_are_its_words(head):
    explanation = explain(PROTEIN, head("esm masks"), "G", "rollout")
    assert [word.text for word in explanation.words()] == ["M", "K", "T", "<mask>", "L", "L", "V", "A"]
    assert explain_targets("MKTLLVA", head("esm tags"), [at(3, "H"), at("KT", "E")], "rollout")[1].target == "KT → E"


SHOWN = [
    ("bert tags", TEXT, at("paris", "B-LOC"), "paris → B-LOC"),
    ("bert span", (QUESTION, PASSAGE), "in 1969", "answer: 'in 1969'"),
    ("bert masks", MASKED, "film", "[MASK] → 'film'"),
]


@pytest.mark.parametrize(("name", "example", "target", "words"), SHOWN)
def test_what_was_asked_is_said_wherever_an_explanation_is_shown(head, name, example, target, words, tmp_path):
    explanation = explain(example, head(name), target, "generic_attention")
    assert str(explanation).startswith(words)
    assert words.replace("'", "&#39;") in explanation._repr_html_()
    explanation.save(tmp_path / "one.png")
    explanation.save(tmp_path / "one.json")
    assert type(explanation).load(tmp_path / "one.json") == explanation


def test_a_saved_number_says_what_it_is(head, tmp_path):
    explanation = explain("the film was great", head("bert value"), method="rollout")
    explanation.save(tmp_path / "value.html")
    assert explanation.target in (tmp_path / "value.html").read_text()
    assert f"{explanation.target} (" not in str(explanation)
