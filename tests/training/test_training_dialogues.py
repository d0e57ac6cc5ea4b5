"""What mini-vlm learns from: its tokenizer and chat template, turns about one picture; and a run of it, made small."""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, CLIPModel, LlavaForConditionalGeneration

import dialogue_batches
import mini_vlm
from dialogue_batches import FIRST_TEXT, LONG, SHORT, SHORT_TURNS, DialogueEncoder, inputs_of, layout
from dialogue_evaluation import DialogueEvaluation
from whyformer.models.zoo import ZOO
from whyformer.scenes import VOCABULARY, dialogues, pictures, sample, texts

SMALL = "--tower-blocks 1 --width 64 --blocks 1 --batch 2 --held-out 12 --kept-back 6".split()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def tokenizer():
    return dialogue_batches.new_tokenizer()


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return DialogueEncoder(tokenizer, "cpu")


@pytest.fixture(scope="module")
def scenes():
    return sample(60, "test", rng=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run of a few steps."""
    folder = tmp_path_factory.mktemp("mini-vlm")
    with pytest.MonkeyPatch.context() as patch:
        arguments = ("--out", str(folder), "--init", str(ZOO / "mini-clip"), "--minutes", "0.03", "--reserve", "0.5")
        patch.setattr(sys, "argv", ["mini_vlm.py", *arguments, *SMALL, "--device", "cpu"])
        precision = torch.get_float32_matmul_precision()
        try:
            mini_vlm.main()
        finally:
            torch.set_float32_matmul_precision(precision)
    return folder


def messages_of(prompt: str, reply: str | None = None) -> list[dict[str, object]]:
    user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}
    return [user] if reply is None else [user, {"role": "assistant", "content": reply}]


def test_every_word_of_the_dialogues_is_one_token_in_whatever_case(tokenizer):
    words = [word for word in VOCABULARY if word.isalpha()]
    assert [len(tokenizer.tokenize(word)) for word in words] == [1] * len(words)
    assert tokenizer("WHAT Colour is the star?")["input_ids"] == tokenizer("what colour is the star?")["input_ids"]


@pytest.mark.parametrize("text", ["a red star left of a blue circle", "hello, wörld 世界!", "two rings. a\n\nb c"])
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_turns_are_what_the_chat_template_and_the_tokenizer_make_of_the_texts(tokenizer, encoder, scenes):
    about = dialogues(scenes, generator())
    turns = encoder.turns(about, LONG)
    pairs = zip(texts(about.words, VOCABULARY), texts(about.replies, VOCABULARY), strict=True)
    for tokens, is_reply, (prompt, reply) in zip(turns.tokens, turns.is_reply, pairs, strict=True):
        text = tokenizer.apply_chat_template(messages_of(prompt, reply), tokenize=False)
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert expected[:3] == [*encoder.start[:2].tolist(), tokenizer.convert_tokens_to_ids("<image>")]
        assert tokens[tokens != tokenizer.pad_token_id].tolist() == expected[3:]
        assert tokenizer.decode(tokens[is_reply]) == f"{reply}<|end|>"


def test_a_turn_that_is_too_long_is_refused(encoder, scenes):
    with pytest.raises(ValueError, match=r"^A turn is longer than 30 tokens\.$"):
        encoder.turns(dialogues(scenes, generator(), kinds=["scene"]), 30)


def test_a_role_that_nobody_has_is_refused(tokenizer):
    with pytest.raises(Exception, match=r"No role named tool. Known: system, user, assistant."):
        tokenizer.apply_chat_template([{"role": "tool", "content": "x"}])


def test_each_of_several_turns_is_read_as_if_it_were_the_only_one(trained, encoder, scenes):
    model = LlavaForConditionalGeneration.from_pretrained(trained / "model").eval()
    turns, inputs = encoder.draw(scenes[:2], generator()), inputs_of(pictures(scenes[:2]).pixels)
    start = encoder.start.expand(2, -1)
    widths = (SHORT,) * SHORT_TURNS + (LONG,)
    with torch.no_grad():
        ids = torch.cat([start, turns.tokens], dim=1)
        together = mini_vlm.text_logits(model, inputs, ids, *layout(widths, "cpu")).split(widths, dim=1)
        for tokens, ours in zip(turns.tokens.split(widths, dim=1), together, strict=True):
            alone = model(input_ids=torch.cat([start, tokens], dim=1), pixel_values=inputs).logits[:, FIRST_TEXT:]
            assert torch.allclose(ours, alone, atol=1e-4)


def test_the_saved_processor_gives_what_the_model_was_trained_with(trained, encoder, scenes):
    processor = AutoProcessor.from_pretrained(trained / "model")
    drawing = pictures(scenes[:3])
    images = [Image.fromarray(part.permute(1, 2, 0).numpy()) for part in drawing.pixels]
    prompt = processor.apply_chat_template(messages_of("What colour is the star?"), add_generation_prompt=True)
    encoded = processor(images=images[:1], text=[prompt], add_special_tokens=False, return_tensors="pt")
    assert encoded["input_ids"][0, :FIRST_TEXT].tolist() == encoder.start.tolist()
    assert processor.tokenizer.decode(encoded["input_ids"][0, FIRST_TEXT:]).strip() == (
        "what colour is the star?<|end|><|assistant|>"
    )
    pixels = processor.image_processor(images, return_tensors="pt")["pixel_values"]
    assert (pixels - inputs_of(drawing.pixels)).abs().max() < 0.1  # grey levels that PIL rounds


def test_the_vision_tower_starts_from_the_first_blocks_of_mini_clip(tokenizer):
    model = mini_vlm.new_model(tokenizer, argparse.Namespace(tower_blocks=2, width=64, blocks=1))
    clip = CLIPModel.from_pretrained(ZOO / "mini-clip")
    mini_vlm.initialise_from_clip(model, clip)
    pixels = torch.randn(1, 3, 128, 128, generator=generator())
    ours = model.model.vision_tower(pixels, output_hidden_states=True).hidden_states
    theirs = clip.vision_model(pixels, output_hidden_states=True).hidden_states
    assert [torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs[:3], strict=True)] == [True] * 3


def test_only_replies_and_their_ends_are_learned(encoder, scenes):
    turns = encoder.draw(scenes, generator())
    starts = np.cumsum([0, *(SHORT,) * SHORT_TURNS])
    assert not turns.is_reply[:, starts].any()
    ends = turns.tokens == encoder.tokenizer.eos_token_id
    assert (ends & turns.is_reply).sum(dim=1).tolist() == [SHORT_TURNS + 1] * len(scenes)
    assert (ends & ~turns.is_reply).sum(dim=1).tolist() == [SHORT_TURNS + 1] * len(scenes)


def oracle(input_ids: torch.Tensor, **_: object) -> argparse.Namespace:
    """Knows every next token, whatever the picture."""
    return argparse.Namespace(logits=torch.nn.functional.one_hot(input_ids.roll(-1, dims=1)).float())


def test_the_evaluation_counts_replies_whose_every_word_is_the_likeliest(encoder):
    evaluation = DialogueEvaluation(encoder, "test", 40, seed=0)
    assert set(evaluation.exact_match(oracle).values()) == {100.0}
    assert evaluation.right_words(oracle) == 100.0
    assert not (evaluation.other & evaluation.about.things)[evaluation.has_other].any()

    def endless(input_ids: torch.Tensor, **_: object) -> argparse.Namespace:
        logits = oracle(input_ids).logits
        logits[:, :, encoder.tokenizer.eos_token_id] = 0  # nobody ends a reply
        return argparse.Namespace(logits=logits)

    assert set(evaluation.exact_match(endless).values()) == {0.0}


def test_a_short_run_leaves_a_folder_and_its_metrics(trained):
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["recipe"] == "mini_vlm.py"
    assert metrics["steps"] >= 1
    assert {"exact_match", "reply_changes_without_its_objects", "written"} <= set(metrics)
    assert len(metrics["written"]) == 12
