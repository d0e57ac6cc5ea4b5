"""What is computed where no method is named and the default does not apply to the model."""

import re

import pytest
import torch

from conftest import tokenizer
from tiny_architectures import OTHERS
from tiny_hybrids import HYBRIDS
from tiny_models import built, text_inputs, to_translate
from tiny_more import TRANSLATORS
from whyformer import UnsupportedModel, attribute, continuation, doctor, explain, explain_batch, load
from whyformer.api.attribute import FALLBACKS, first_that_applies
from whyformer.methods.registry import trace_methods

REASON = "The residual state of block 0 (path unknown) is not known: nothing is added to it as attention blocks do"
REMARK = f"evidence does not apply here ({REASON}): generic_attention by libra instead."
TEXT = "the film was great"


@pytest.fixture(scope="module")
def convbert():
    return OTHERS["ConvBERT"]()


@pytest.fixture(scope="module")
def minimax():
    return HYBRIDS["MiniMax"]()


def test_the_best_method_that_applies_takes_the_defaults_place_and_a_note_says_so(convbert):
    explanation = explain(TEXT, convbert, processor=tokenizer())
    named = explain(TEXT, convbert, method="generic_attention", backward="libra", processor=tokenizer())
    assert explanation.method == "generic_attention"
    assert explanation.options["backward"] == "libra"
    assert explanation.notes == (REMARK, *named.notes)
    assert (explanation.scores == named.scores).all()
    batch = explain_batch([TEXT, "a bad film"], convbert, processor=tokenizer(), batch_size=1)
    assert [one.method for one in batch] == ["generic_attention"] * 2
    assert all(one.notes[0] == REMARK for one in batch)


def test_a_method_that_is_named_is_never_replaced(convbert):
    with pytest.raises(UnsupportedModel, match=re.escape(REASON)):
        explain(TEXT, convbert, method="evidence", processor=tokenizer())
    with pytest.raises(UnsupportedModel, match=re.escape(REASON)):
        attribute(convbert, text_inputs(), 1, "evidence")


def test_an_option_that_the_other_method_does_not_take_is_left_out_and_the_remark_says_so():
    def run(choice):
        if choice.method.name == "bi_token":
            raise UnsupportedModel("No state is known. Try another.")
        return choice

    options = {"steps": 2, "first_block": 1}
    choice = first_that_applies(None, None, options, run, ("bi_token", "libra"))
    assert (choice.method.name, dict(choice.options)) == ("generic_attention", {"first_block": 1})
    (remark,) = choice.remarks
    assert remark == (
        "bi_token does not apply here (No state is known): generic_attention by libra instead. It has no option steps."
    )


def test_the_backward_pass_that_was_asked_for_is_kept(convbert):
    attribution = attribute(convbert, text_inputs(), 1, backward="gradient")
    assert attribution.remarks[0] == REMARK.replace(" by libra", "")
    expected = attribute(convbert, text_inputs(), 1, "generic_attention")
    torch.testing.assert_close(attribution["text"], expected["text"])


def test_every_token_that_a_model_without_maps_writes_is_explained(minimax):
    words = tokenizer()
    words.model_input_names = ["input_ids", "attention_mask"]
    written = continuation(TEXT, minimax, tokens=2, processor=words)
    for explanation in written.explanations:
        assert explanation.method == "integrated_gradients"
        assert explanation.notes[0].startswith(
            "evidence does not apply here (MiniMaxForCausalLM computes linear attention"
        )


def test_the_doctor_says_what_is_computed_where_no_method_is_named(convbert, bert):
    checkup = doctor(convbert, processor=tokenizer())
    assert f"Default method: {REMARK}" in checkup.notes
    assert not any("Default method" in note for note in doctor(load(bert)).notes)


@pytest.mark.parametrize("name", ["PEGASUS-X", "LED", "LongT5", "ProphetNet"])
def test_an_encoder_and_a_decoder_without_a_row_are_explained_by_what_reads_inputs(name):
    model_class, config, sizes = TRANSLATORS[name]
    model = built(model_class, config, **sizes)
    inputs = to_translate()
    attribution = attribute(model, inputs, 1)
    reason = f"{model_class} has an encoder and a decoder, and no row assigns attention to them"
    assert attribution.remarks == (f"evidence does not apply here ({reason}): integrated_gradients instead.",)
    assert {stream: scores.shape for stream, scores in attribution.items()} == {
        "source": inputs["input_ids"].shape,
        "target": inputs["decoder_input_ids"].shape,
    }
    named = attribute(model, inputs, 1, "integrated_gradients")
    torch.testing.assert_close(dict(attribution), dict(named))
    with pytest.raises(
        UnsupportedModel, match=f"{reason}. input_x_gradient, integrated_gradients and lrp work without"
    ):
        attribute(model, inputs, 1, "rollout")


def test_what_an_encoder_reads_and_a_decoder_writes_is_told_apart_without_a_row():
    model = built(*TRANSLATORS["LED"][:2], **TRANSLATORS["LED"][2])
    inputs = {name: value[:1] for name, value in to_translate().items()}
    scores = attribute(model, inputs, 1, "input_x_gradient")
    embedded = {
        "source": model.led.encoder.embed_tokens(inputs["input_ids"]),
        "target": model.led.decoder.embed_tokens(inputs["decoder_input_ids"]),
    }
    leaves = {stream: value.detach().requires_grad_() for stream, value in embedded.items()}
    output = model(
        inputs_embeds=leaves["source"],
        decoder_inputs_embeds=leaves["target"],
        attention_mask=inputs["attention_mask"],
        decoder_attention_mask=inputs["decoder_attention_mask"],
    )
    last = int(inputs["decoder_attention_mask"].sum()) - 1
    gradients = torch.autograd.grad(output.logits[0, last, 1], list(leaves.values()))
    for (stream, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        torch.testing.assert_close(scores[stream], (leaf * gradient).sum(dim=-1).detach())


def test_a_text_is_explained_by_an_encoder_and_a_decoder_without_a_row():
    model_class, config, sizes = TRANSLATORS["ProphetNet"]
    model = built(model_class, config, **sizes)
    model.config.decoder_start_token_id = 1
    explanation = explain(TEXT, model, processor=tokenizer())
    assert explanation.method == "integrated_gradients"
    assert explanation.notes[0].startswith("evidence does not apply here (ProphetNetForConditionalGeneration has an")


def test_every_fallback_is_a_method():
    assert all(name in trace_methods() for name, _ in FALLBACKS)
