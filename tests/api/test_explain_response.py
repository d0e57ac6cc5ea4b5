"""Responses explained: every row against one backward pass per token by hand, and all ways to ask."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from test_continuation import llama, translator

from tiny_models import STREAM_FAMILIES, built
from whyformer import Response, continuation, explain, explain_response, explain_responses
from whyformer.api import exchange_scores
from whyformer.errors import WhyformerError
from whyformer.methods.perception import ON_DECODERS
from whyformer.models.loading import LoadedModel, load
from whyformer.results.source_pooling import source_scores
from whyformer.tracing import build, plan
from whyformer.watching import attention_calls

PROMPT, RESPONSE = "The film was dull. The music was", " great. I liked it."
DIALOGUE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " The film was dull. The music was great. "},
    {"role": "assistant", "content": "I see."},
    {"role": "user", "content": "How was the music?"},
]


WORDLESS = [0, 1, 2, 3, 4]  # padding, beginnings and the like, which a random model would write


class ByHand:
    """One backward pass for each token of a response, with plain transformers in float64."""

    def __init__(self, loaded_model: LoadedModel, response: Response):
        self.model = copy.deepcopy(loaded_model.model).double()
        self.model.set_attn_implementation("eager")
        self.first = len(response.prompt.tokens)
        ids = torch.tensor([[*response.prompt.ids, *(token.id for token in response.tokens)]])
        self.embeddings = self.model.get_input_embeddings()(ids).detach().requires_grad_()
        output = self.model(inputs_embeds=self.embeddings, output_attentions=True, use_cache=False)
        self.maps = output.attentions
        self.logits = output.logits[0, self.first - 1 : -1]
        self.scores = self.logits.log_softmax(dim=-1)[torch.arange(len(response.tokens)), ids[0, self.first :]]

    def input_x_gradient(self, tokens: tuple[int, ...]) -> torch.Tensor:
        total = torch.zeros(self.embeddings.shape[1], dtype=torch.float64)
        for token in tokens:
            (gradient,) = torch.autograd.grad(self.scores[token], self.embeddings, retain_graph=True)
            total += (gradient * self.embeddings).sum(dim=-1)[0].detach()
        return total

    def generic_attention(self, tokens: tuple[int, ...]) -> torch.Tensor:
        """GA Eq. 5-6, R ← R + mean over heads of (∇A ⊙ A)⁺ R, read at the mean of what predicts the tokens."""
        each = [torch.autograd.grad(self.scores[token], self.maps, retain_graph=True) for token in tokens]
        relevance = identity = torch.eye(self.embeddings.shape[1], dtype=torch.float64)
        for block, attention in enumerate(self.maps):
            gradient = sum(gradients[block] for gradients in each)
            relevance = relevance + (gradient * attention.detach()).clamp(min=0).mean(dim=1)[0] @ relevance
        positions = [self.first + token - 1 for token in tokens]
        return (relevance - identity)[positions].mean(dim=0)


def in_double(loaded_model: LoadedModel) -> LoadedModel:
    return LoadedModel(copy.deepcopy(loaded_model.model).double(), loaded_model.tokenizer, loaded_model.name)


@pytest.fixture(scope="module")
def gpt2(gpt) -> LoadedModel:
    """A random model all of whose operations run in float64."""
    sizes = {"vocab_size": len(gpt.tokenizer), "n_embd": 24, "n_layer": 3, "n_head": 2, "n_positions": 64}
    return LoadedModel(built("GPT2LMHeadModel", "GPT2Config", **sizes).double(), gpt.tokenizer, "gpt2")


@pytest.mark.parametrize("method", ["input_x_gradient", "generic_attention"])
@pytest.mark.parametrize("units", ["response", "sentence", "word", "token", [(1, 9), "liked it"]])
def test_a_row_is_one_backward_pass_per_token_summed_by_hand(gpt2, method, units):
    response = explain_response(PROMPT, RESPONSE, gpt2, method, units=units, sources="token", sinks="keep")
    by_hand = ByHand(gpt2, response)
    for number, row in enumerate(response.rows):
        expected = getattr(by_hand, method)(row.tokens)
        np.testing.assert_allclose(response.token_scores[number], expected[: by_hand.first], rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(response.earlier[number], expected[by_hand.first :], rtol=1e-6, atol=1e-10)
    held = [source.tokens[0] for source in response.sources]
    assert np.array_equal(response.scores, response.token_scores[:, held])


def test_each_token_has_the_likeliest_others_with_their_probabilities():
    response = explain_response(PROMPT, RESPONSE)
    by_hand = ByHand(load("mini-llm"), response)
    for token, row in zip(response.tokens, by_hand.logits.softmax(dim=-1), strict=True):
        order = [number for number in row.argsort(descending=True).tolist() if number != token.id][:3]
        assert [text for text, _ in token.alternatives] == load("mini-llm").tokenizer.batch_decode([[n] for n in order])
        assert [share for _, share in token.alternatives] == pytest.approx(row[order].tolist(), rel=1e-3)


def test_each_token_comes_with_its_log_probability_entropy_and_rank(gpt):
    response = explain_response(PROMPT, RESPONSE, gpt, "rollout")
    by_hand = ByHand(gpt, response)
    shares = by_hand.logits.softmax(dim=-1).detach()
    assert [token.log_probability for token in response.tokens] == pytest.approx(by_hand.scores.tolist(), rel=1e-4)
    entropies = -(shares * shares.log()).sum(dim=-1)
    assert [token.entropy for token in response.tokens] == pytest.approx(entropies.tolist(), rel=1e-4)
    order = by_hand.logits.argsort(dim=-1, descending=True)
    ranks = [order[number].tolist().index(token.id) + 1 for number, token in enumerate(response.tokens)]
    assert [token.rank for token in response.tokens] == ranks
    assert "".join(token.text for token in response.tokens) == RESPONSE
    quoted = explain_response(PROMPT, RESPONSE, gpt, "generic_attention", units="great")  # the last token in no row
    assert [token.rank for token in quoted.tokens] == ranks


METHODS = ["raw_attention", "rollout", "generic_attention", "grad_cam", "lrp", "integrated_gradients", None]


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_explained_together_as_one_by_one(gpt, method):
    model = in_double(gpt)
    together = explain_response(PROMPT, RESPONSE, model, method, units="word")
    alone = explain_response(PROMPT, RESPONSE, model, method, units="word", batch_size=1)
    assert together.rows == alone.rows
    for ours, theirs in ((together.token_scores, alone.token_scores), (together.earlier, alone.earlier)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7 * np.abs(theirs).max())


@pytest.mark.parametrize("method", METHODS)
def test_many_prompts_are_explained_like_each_of_them(gpt, method):
    prompts = [PROMPT, "The film", "It was a long and dull film. I"]
    responses = [RESPONSE, " was great and long", " left. It was dull. Why?"]
    model = in_double(gpt)
    together = explain_responses(prompts, responses, model, method)
    for whole, prompt, response in zip(together, prompts, responses, strict=True):
        alone = explain_response(prompt, response, model, method)
        assert (whole.text, whole.rows, whole.sources, whole.notes) == (
            alone.text,
            alone.rows,
            alone.sources,
            alone.notes,
        )
        scale = np.abs(alone.token_scores).max()
        np.testing.assert_allclose(whole.token_scores, alone.token_scores, rtol=1e-5, atol=1e-7 * scale)
        assert whole.log_probability == pytest.approx(alone.log_probability, rel=1e-4)


def test_what_reads_maps_alone_runs_the_model_once_for_all_rows(gpt, count_forwards):
    with count_forwards(gpt.model) as runs:
        response = explain_response(PROMPT, RESPONSE, gpt, "rollout", units="token")
    assert runs == [1]
    for number, row in enumerate(response.rows):
        before = RESPONSE[: row.start]
        alone = explain(PROMPT + before, gpt, method="rollout", target=response.tokens[number].id)
        ours = np.concatenate([response.token_scores[number], response.earlier[number, :number]])
        np.testing.assert_allclose(ours[1:], alone.scores, rtol=1e-4, atol=1e-6)  # the first begins every text


@pytest.mark.parametrize("backward", ["gradient", "libra", "attn_lrp"])
@pytest.mark.parametrize(
    "method",
    ["generic_attention", "attention_gradient", "grad_cam", "input_x_gradient", "state_x_gradient", "evidence"],
)
def test_gradients_of_all_rows_come_from_one_forward_pass_and_are_those_of_each(gpt2, count_forwards, method, backward):
    with count_forwards(gpt2.model) as runs:
        shared = explain_response(PROMPT, RESPONSE, gpt2, method, units="token", backward=backward)
    assert runs == [1]
    with count_forwards(gpt2.model) as runs:
        alone = explain_response(PROMPT, RESPONSE, gpt2, method, units="token", backward=backward, batch_size=1)
    assert runs == [1] * len(shared.tokens)
    atol = 1e-7 * np.abs(alone.token_scores).max()  # scores are stored in float32
    np.testing.assert_allclose(shared.token_scores, alone.token_scores, rtol=1e-6, atol=atol)
    np.testing.assert_allclose(shared.earlier, alone.earlier, rtol=1e-6, atol=atol)


def test_each_of_many_exchanges_is_run_once_where_it_has_many_rows(gpt2, count_forwards):
    prompts = [PROMPT, "The film", "I think the music", "It was dull. I"]
    responses = [RESPONSE, " was great", " was dull", " left. I liked it."]
    with count_forwards(gpt2.model) as runs:
        many = explain_responses(prompts, responses, gpt2, "generic_attention", units="token")
    assert runs == [4, 1, 1]  # two have two rows each, which run together
    for one, prompt, response in zip(many, prompts, responses, strict=True):
        alone = explain_response(prompt, response, gpt2, "generic_attention", units="token", batch_size=1)
        np.testing.assert_allclose(one.token_scores, alone.token_scores, rtol=1e-6, atol=1e-10)


def test_rows_whose_maps_are_too_large_to_keep_run_as_a_batch(gpt2, count_forwards, monkeypatch):
    shared = explain_response(PROMPT, RESPONSE, gpt2, "generic_attention", units="token")
    for module in (plan, attention_calls, exchange_scores):
        monkeypatch.setattr(module, "KEPT", 10)
    with count_forwards(gpt2.model) as runs:
        batch = explain_response(PROMPT, RESPONSE, gpt2, "generic_attention", units="token")
    assert runs[-1] == len(shared.tokens)
    np.testing.assert_allclose(shared.token_scores, batch.token_scores, rtol=1e-6, atol=1e-10)


def fail_vectorised_gradients(monkeypatch, message):
    """Let gradients of several rows at once raise; those of one row are taken as ever."""
    grad = torch.autograd.grad

    def fail(*args, is_grads_batched=False, **options):
        if is_grads_batched:
            raise RuntimeError(message)
        return grad(*args, **options)

    monkeypatch.setattr(torch.autograd, "grad", fail)


@pytest.mark.parametrize("method", ["generic_attention", "evidence"])
def test_rows_that_cannot_be_vectorised_still_share_the_forward_pass(gpt2, count_forwards, monkeypatch, method):
    shared = explain_response(PROMPT, RESPONSE, gpt2, method, units="token")

    fail_vectorised_gradients(monkeypatch, "Batching rule not implemented")
    with count_forwards(gpt2.model) as runs:
        one_by_one = explain_response(PROMPT, RESPONSE, gpt2, method, units="token")
    assert runs == [1]
    atol = 1e-7 * np.abs(shared.token_scores).max()
    np.testing.assert_allclose(one_by_one.token_scores, shared.token_scores, rtol=1e-6, atol=atol)
    assert one_by_one.notes == shared.notes


def test_what_fails_while_rows_go_back_together_is_raised(gpt2, monkeypatch):
    fail_vectorised_gradients(monkeypatch, "CUDA error: an illegal memory access was encountered")
    with pytest.raises(WhyformerError, match="fails in PyTorch: CUDA error: an illegal memory access"):
        explain_response(PROMPT, RESPONSE, gpt2, "generic_attention", units="token")


@pytest.mark.parametrize("room", [1, 2, 5])
@pytest.mark.parametrize("method", ["generic_attention", None])  # after one forward pass, and each an example
def test_rows_that_do_not_fit_together_are_explained_in_parts(gpt, monkeypatch, method, room):
    whole = explain_response(PROMPT, RESPONSE, gpt, method, units="token")
    trace, tried = build.trace, []

    def trace_within(model, inputs, *args, readout, **options):
        tried.append(len(readout))
        if tried[-1] > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return trace(model, inputs, *args, readout=readout, **options)

    monkeypatch.setattr(build, "trace", trace_within)
    parts = explain_response(PROMPT, RESPONSE, gpt, method, units="token")
    np.testing.assert_allclose(parts.token_scores, whole.token_scores, rtol=1e-3, atol=1e-5)
    sizes = {1: [6, 3] + [1] * 6, 2: [6, 3] + [1] * 6, 5: [6, 3, 3]}
    assert tried == sizes[room]  # what did not fit is not tried again


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "input_x_gradient"])
def test_the_tokens_of_a_chat_template_are_never_scored(chat, method):
    response = explain_response(DIALOGUE, "It was great.", chat, method, sources="token", sinks="keep")
    special = [number for number, token in enumerate(response.prompt.tokens) if token.is_special]
    held = [number for source in response.sources for number in source.tokens]
    assert sorted(held + special) == list(range(len(response.prompt.tokens)))
    assert "".join(source.text for source in response.sources).replace(" ", "") == response.prompt.text.replace(
        "\n\n", ""
    ).replace(" ", "")
    for kind in ("word", "sentence", "message"):
        regrouped = response.by(kind, "sum")
        assert not {number for source in regrouped.sources for number in source.tokens} & set(special)
        expected = response.token_scores[:, held].sum(axis=1)
        np.testing.assert_allclose(regrouped.scores.sum(axis=1), expected, rtol=1e-4, atol=1e-6)
    sizes = np.abs(response.token_scores[0].astype(float))
    total = sizes.sum() + np.abs(response.earlier[0]).sum()
    assert response.sinks[0].first_token == pytest.approx(sizes[0] / total, rel=1e-5)
    assert response.sinks[0].special == pytest.approx(sizes[special[1:]].sum() / total, rel=1e-5)
    assert response.sinks[0].earlier == pytest.approx(np.abs(response.earlier[0]).sum() / total, rel=1e-5)
    assert [source.name for source in response.by("message").sources] == ["system", "user", "assistant", "user"]


def test_the_first_token_is_left_out_of_its_source_unless_it_is_kept(llama_model):
    left, kept = (
        explain_response("the film was great", [6], llama_model, "raw_attention", sinks=sinks)
        for sinks in ("leave_out", "keep")
    )
    assert left.scores[0, 0] == 0.0
    assert kept.scores[0, 0] == kept.token_scores[0, 0] > 0
    assert np.array_equal(left.scores[:, 1:], kept.scores[:, 1:])
    assert left.sinks == kept.sinks
    share = left.sinks[0].first_token
    assert left.notes == (
        f"The first token, 'the', is an attention sink: its scores, up to {share:.0%} of a row, are left out "
        "of its source; sinks='keep' includes them.",
    )
    assert kept.notes == ()


def test_a_response_by_composed_attention_says_what_that_is_worth(gpt):
    for method in ("rollout", "bi_token"):
        response = explain_response("The film was", " great", gpt, method, units="token")
        assert response.notes == (ON_DECODERS.format(method=method),)


@pytest.fixture(scope="module")
def llama_model() -> LoadedModel:
    return llama()


def test_a_text_and_its_tokens_are_the_same_response(gpt):
    text = explain_response(PROMPT, RESPONSE, gpt, "generic_attention")
    ids = [token.id for token in text.tokens]
    for given in (ids, [*ids, gpt.tokenizer.eos_token_id], torch.tensor(ids), np.array(ids)):
        assert explain_response(PROMPT, given, gpt, "generic_attention") == text


def test_a_space_that_may_have_been_forgotten_is_noted(gpt):
    joined = explain_response("The film was", "great", gpt, "raw_attention")
    assert joined.notes == ("The response follows the prompt without a space: 'wasgreat'.",)
    assert explain_response("The film was", " great", gpt, "raw_attention").notes == ()


def test_a_response_is_cut_into_tokens_as_it_goes_on_from_its_prompt(llama_model):
    response = explain_response("the film", " was badly", llama_model, "rollout")
    names = llama_model.tokenizer.convert_ids_to_tokens([token.id for token in response.tokens])
    assert names[0] == "▁was"
    assert response.tokens[0].text == " was"


def test_a_model_writes_the_likeliest_response_or_one_of_a_seed(gpt):
    written = explain_response("The film was", None, gpt, "raw_attention", tokens=6)
    assert written.text == continuation("The film was", gpt, "rollout", tokens=6).text
    assert written.seed is None
    assert written.notes == ("The response was stopped after 6 tokens, as requested.",)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    drawn = [explain_response("The film was", None, gpt, "rollout", tokens=6, seed=seed) for seed in (1, 1, 2)]
    assert torch.rand(1) == expected  # nobody else's random numbers are touched
    assert drawn[0] == drawn[1]
    assert [one.seed for one in drawn] == [1, 1, 2]
    assert len({written.text, drawn[0].text, drawn[2].text}) == 3
    with pytest.raises(WhyformerError, match="seed=-1: a whole number, 0 or more, or None"):
        explain_response("The film was", None, gpt, seed=-1)


def test_what_a_model_writes_ends_before_the_end_of_its_text(gpt):
    free = explain_response("The film was", None, gpt, "rollout", tokens=8)
    ids = [token.id for token in free.tokens]
    first = next(number for number, token in enumerate(ids) if token not in ids[:number] and number > 1)
    ended = LoadedModel(copy.deepcopy(gpt.model), gpt.tokenizer, "ended")
    ended.model.generation_config.eos_token_id = ids[first]
    short = explain_response("The film was", None, ended, "raw_attention", tokens=8)
    assert [token.id for token in short.tokens] == ids[:first]
    assert short.notes == ()
    given = explain_response("The film was", ids[: first + 1], ended, "rollout")
    assert given.text == short.text


def test_a_response_fills_the_room_that_its_prompt_leaves(llama_model):
    text = " ".join(["the film was great"] * 4)
    response = explain_response(text, None, llama_model, "rollout")
    assert len(response.tokens) == 5  # the last takes no position
    assert "The response was stopped after 5 tokens, the limit of its context." in response.notes


@pytest.mark.parametrize("model", ["mini-t5", "bart"])
@pytest.mark.parametrize("method", ["rollout", "generic_attention", None])
def test_an_encoder_decoder_answers_the_same_call(model, method):
    loaded_model, prompt = load("mini-t5", device="cpu"), "there is a red circle. what colour is it?"
    if model == "bart":
        loaded_model, prompt = translator(eos_token_id=None, suppress_tokens=WORDLESS), "the film was great"
    response = explain_response(prompt, None, loaded_model, method, tokens=4, units="token")
    assert not response.leaves_out_sinks
    assert response.earlier.shape == (len(response.tokens), len(response.tokens))
    assert not np.triu(response.earlier).any()
    ids = [token.id for token in response.tokens]
    alone = explain_response(prompt, ids, loaded_model, method, units="token", batch_size=1)
    np.testing.assert_allclose(response.token_scores, alone.token_scores, rtol=1e-3, atol=1e-5)
    if method == "rollout":  # which does not look at the score
        written = continuation(prompt, loaded_model, method, tokens=4)
        held = [number for number, token in enumerate(response.prompt.tokens) if not token.is_special]
        np.testing.assert_allclose(response.token_scores[:, held], written.matrix("source"), rtol=1e-4)
        np.testing.assert_allclose(response.earlier[:, :-1], written.matrix("target"), rtol=1e-4)


def test_a_contrast_is_what_speaks_for_this_response_less_what_speaks_for_that(gpt):
    this, that = RESPONSE, " loud and long."
    both = explain_response(PROMPT, this, gpt, "generic_attention", contrast=that, aggregate="sum")
    ours, theirs = (
        explain_response(PROMPT, one, gpt, "generic_attention", units="response", aggregate="sum")
        for one in (this, that)
    )
    np.testing.assert_allclose(both.token_scores, ours.token_scores - theirs.token_scores, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(both.scores, ours.scores - theirs.scores, rtol=1e-4, atol=1e-6)
    assert both.options["contrast"] == that
    assert [row.text for row in both.rows] == [this]
    assert np.allclose(both.earlier, ours.earlier, rtol=1e-4, atol=1e-7)
    by_word = explain_response(PROMPT, this, gpt, "rollout", contrast=that, units="word")
    assert len(by_word.rows) == 4


def test_documents_are_sources_and_other_sources_come_from_the_same_scores(gpt):
    documents = [("weather", "It rained all day."), ("review", "The film was great. The music was dull.")]
    response = explain_response("The music was", " dull.", gpt, "generic_attention", context=documents)
    assert [source.name for source in response.sources] == ["weather", "review", "review", ""]
    by_document = response.by("document")
    asked = explain_response("The music was", " dull.", gpt, "generic_attention", context=documents, sources="document")
    assert by_document == asked
    expected = source_scores(response.token_scores, asked.sources, "positive", leave_out_first=True)
    assert np.array_equal(asked.scores, expected)


def test_a_response_has_a_default_of_its_own(llama_model):
    response = explain_response("the film", " was bad", llama_model)
    assert response.method == "generic_attention"
    assert "backward" not in response.options


LONG = "The film was long. " * 200


@pytest.mark.parametrize(
    ("prompt", "settings", "reason"),
    [
        ("  ", {}, "The prompt is empty: give a text, chat messages, or a question with context"),
        (
            "The film",
            {"response": " "},
            "The response is empty: give its text or token ids, or None to let the model write it",
        ),
        ("The film", {"response": []}, "The response is empty"),
        ("The film", {"response": [5, "x"]}, r"A response is a text, token ids from 0 to \d+, or None to let"),
        ("The film", {"response": [2]}, "has only special tokens: there is nothing to explain"),
        ("The film", {"response": " was bad", "units": "was mad"}, "'was mad' is not in the response. The closest"),
        ("The film", {"response": " was", "sources": [(0, 5), (4, 8)]}, r"sources \(0, 5\) and \(4, 8\) overlap"),
        ("The film", {"response": " was", "context": [("a", "")]}, "The document 'a' is empty"),
        ("The film", {"response": " was", "sinks": "drop"}, r"sinks='drop'\. Choose from: leave_out, keep\."),
        ("The film", {"response": " was", "aggregate": "min"}, r"aggregate='min'\. Choose from: positive, sum, mean"),
        ("The film", {"response": " was", "batch_size": 0}, "batch_size=0: a whole number, at least 1"),
        ("The film", {"tokens": 0}, "tokens=0: a whole number, at least 1"),
        ([{"role": "user", "content": "hi"}], {}, "The tokenizer of mini-gpt has no chat template for messages"),
        (
            LONG,
            {"response": " was"},
            r"The prompt has 1\d\d\d tokens, but mini-gpt takes at most 512: shorten it, since it is never cut",
        ),
        (LONG, {}, r"The prompt has 1\d\d\d tokens, but mini-gpt takes at most 512: shorten it, since it is never cut"),
        (
            "The film",
            {"response": LONG},
            r"The response has 1\d\d\d tokens, the prompt 3, and mini-gpt takes at most 512 together: shorten one",
        ),
        ("The film", {"response": " was", "step": 2}, "generic_attention has no option 'step'"),
        ("The film", {"model": "mini-vit"}, "mini-vit came without a tokenizer"),
        ("The film", {"model": "mini-bert", "response": " was"}, "mini-bert does not write text: use explain"),
    ],
)
def test_what_cannot_be_explained_is_one_line(prompt, settings, reason):
    with pytest.raises(WhyformerError, match=reason) as error:
        explain_response(prompt, **({"model": "mini-gpt"} | settings))
    assert "\n" not in str(error.value)


def test_an_encoder_decoder_says_how_much_it_can_read_and_write():
    loaded_model = translator(eos_token_id=None)
    with pytest.raises(WhyformerError, match="The prompt has 22 tokens, but bart takes at most 20: shorten it"):
        explain_response("the film was great " * 5, "great", loaded_model)
    with pytest.raises(WhyformerError, match="The response has 21 tokens, but bart writes at most 20: shorten one"):
        explain_response("the film", [6] * 21, loaded_model)


def test_a_model_that_hears_is_not_asked_about_texts(gpt):
    whisper = LoadedModel(STREAM_FAMILIES["whisper"][0](), gpt.tokenizer, "whisper")
    with pytest.raises(WhyformerError, match="whisper does not read texts only: responses can be explained"):
        explain_response("The film was", " great", whisper)


def test_as_many_responses_as_prompts_are_needed(gpt):
    with pytest.raises(WhyformerError, match="1 responses for 2 prompts: give one per prompt, or None"):
        explain_responses(["a", "b"], ["c"], gpt)
    with pytest.raises(WhyformerError, match=r"explain_responses takes a list of prompts, not one \('a film'\)"):
        explain_responses("a film", model=gpt)
    assert explain_responses([], [], gpt) == []


def test_the_continuation_of_a_pair_is_labelled_with_the_words_that_were_read(gpt):
    found = continuation(("I hated it", "one two"), gpt, "generic_attention", tokens=3)
    last = found.explanations[-1].parts["text"]
    assert last.layout.texts == ("I hated it", "one two" + "".join(found.tokens[:-1]))
    for token, segment, (start, end) in zip(last.tokens, last.layout.segments, last.layout.offsets, strict=True):
        assert last.layout.texts[segment][start:end].strip() == token.replace("Ġ", "").strip()
    assert [word.text for word in found.words()[0]] == ["I", "hated", "it", "one", "two"]


def test_a_continuation_has_no_target(gpt):
    with pytest.raises(
        WhyformerError, match="A continuation explains every written token, so that it takes no target: use explain"
    ):
        continuation("The film was", gpt, target="great")
