"""What a model writes, token by token."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

from conftest import WORDS, tokenizer
from tiny_models import LANGUAGE, TRANSLATOR, built
from whyformer import Continuation, Explanation, continuation, explain, load
from whyformer.cli import app
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Vocabulary, decode_tokens
from whyformer.models.loading import LoadedModel

SPACED = ["<s>", "</s>", "<unk>", "▁the", "▁film", "▁was", "▁great", "▁bad", "ly", "ish", "▁a", "."]


def sentence_piece() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer as Llama and T5 have it: a word's token holds the space before it, which a lone one loses."""
    parts = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(SPACED)}, unk_token="<unk>"))
    parts.pre_tokenizer, parts.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 20}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=parts, **names)


def translator(**settings) -> LoadedModel:
    sizes = TRANSLATOR | {"vocab_size": len(WORDS), "max_position_embeddings": 20}
    model = built("BartForConditionalGeneration", "BartConfig", **sizes)
    model.generation_config.update(**settings)
    words = tokenizer()
    words.model_input_names = ["input_ids", "attention_mask"]
    return LoadedModel(model, words, "bart")


def llama() -> LoadedModel:
    """A language model that never ends."""
    model = built("LlamaForCausalLM", "LlamaConfig", **LANGUAGE | {"vocab_size": len(SPACED), "eos_token_id": 1})
    model.generation_config.update(suppress_tokens=[0, 1, 2])
    return LoadedModel(model, sentence_piece(), "llama")


def most_likely(loaded_model: LoadedModel, written: list[int], banned: tuple[int, ...] = ()) -> int:
    source = loaded_model.tokenizer("the film was great", return_tensors="pt")
    with torch.no_grad():
        logits = loaded_model.model(**source, decoder_input_ids=torch.tensor([written])).logits[0, -1]
    logits[list(banned)] = -torch.inf
    return int(logits.argmax())


def greedy(loaded_model: LoadedModel, written: list[int], count: int, banned: tuple[int, ...] = ()) -> list[str]:
    """The reference: the likeliest token, one after the other."""
    found: list[int] = []
    while len(found) < count:
        found.append(most_likely(loaded_model, [*written, *found], banned))
    return [loaded_model.tokenizer.decode([token]) for token in found]


def test_by_occlusion_each_token_is_explained_by_its_own_score():
    written = continuation("The film was", "mini-gpt", "occlusion", tokens=3)
    for number, token in enumerate(written.explanations):
        alone = explain("The film was" + "".join(written.tokens[:number]), "mini-gpt", method="occlusion")
        assert alone.target == token.target
        assert np.abs(alone.scores).max() > 0
        np.testing.assert_allclose(token.scores, alone.scores, atol=1e-4 * np.abs(alone.scores).max())


def test_a_decoder_writes_by_its_own_generation_settings():
    plain = translator(eos_token_id=None)
    free = greedy(plain, [1], 4)
    assert list(continuation("the film was great", plain, "rollout", tokens=4).tokens) == free
    ended = translator(eos_token_id=None, forced_eos_token_id=2)
    assert list(continuation("the film was great", ended, "rollout", tokens=4).tokens) == free
    banned = tuple({plain.tokenizer.convert_tokens_to_ids(token) for token in free})
    muted = translator(eos_token_id=None, suppress_tokens=list(banned))
    found = continuation("the film was great", muted, "rollout", tokens=4)
    assert list(found.tokens) == greedy(muted, [1], 4, banned)
    assert not set(found.tokens) & set(free)
    both = translator(eos_token_id=[2, plain.tokenizer.convert_tokens_to_ids(free[0])])
    with pytest.raises(WhyformerError, match="bart ends its text at once after this"):
        continuation("the film was great", both, "rollout")


def test_a_token_that_a_decoder_must_begin_with_is_given_and_not_explained():
    forced = translator(eos_token_id=None, decoder_start_token_id=2, forced_bos_token_id=9)
    found = continuation("the film was great", forced, "rollout", tokens=3)
    assert list(found.tokens) == greedy(forced, [2, 9], 3)
    assert [x.parts["target"].tokens if "target" in x.parts else () for x in found.explanations] == [
        found.tokens[:count] for count in range(3)
    ]
    assert explain("the film was great", forced, method="rollout").target == found.tokens[0]


def test_words_keep_the_space_they_begin_with_where_the_tokenizer_hides_it():
    plain = sentence_piece()
    assert [Vocabulary(plain)[index] for index in (3, 8, 11)] == [" the", "ly", "."]
    prompt = plain("the film", add_special_tokens=False)["input_ids"]
    written = [SPACED.index(piece) for piece in ("▁was", "▁bad", "ly", ".")]
    text, _, offsets = decode_tokens(written, plain, prompt[-1:])
    assert text == " was badly."
    assert [text[start:end] for start, end in offsets] == [" was", " bad", "ly", "."]
    found = continuation("the film", llama(), "rollout", tokens=4)
    assert found.text == "".join(found.tokens)
    last = found.explanations[-1].parts["text"].layout
    assert last.texts[0] == "the film" + "".join(found.tokens[:3])
    assert [last.texts[0][a:b] for a, b in last.offsets[2:]] == list(found.tokens[:3])


def test_more_than_the_model_has_positions_for_is_refused():
    loaded_model = llama()
    text = " ".join(["the film was great"] * 4)
    assert len(continuation(text, loaded_model, "rollout", tokens=5).tokens) == 5
    reason = (
        "too long for the 20 tokens that llama takes, 5 of them for what it is to write: shorten it, or ask for fewer"
    )
    with pytest.raises(WhyformerError, match=reason):
        continuation(text, loaded_model, "rollout", tokens=6)
    cut = continuation(text, loaded_model, "rollout", tokens=6, truncate=True)
    assert len(cut.tokens) == 6
    assert cut.matrix().shape == (6, 20)
    with pytest.raises(WhyformerError, match=r"tokens=14: llama takes 20 with the text before them\. Ask for fewer"):
        continuation(text, loaded_model, "rollout", tokens=14)
    writer = translator(eos_token_id=None)
    assert len(continuation(("the film", "was"), writer, "raw_attention", tokens=19).tokens) == 19
    with pytest.raises(WhyformerError, match="tokens=20: bart has written 2 tokens and can write 19 more"):
        continuation(("the film", "was"), writer, tokens=20)


def test_tokens_that_are_bytes_of_one_character_all_stand_for_it():
    tokenizer = load("mini-gpt", device="cpu").tokenizer
    given = "a😀é日本 b"
    encoded = tokenizer(given, add_special_tokens=False, return_offsets_mapping=True)
    text, _, offsets = decode_tokens(encoded["input_ids"], tokenizer)
    assert text == given
    # The tokenizer leaves the space out of a word that begins with one; what is written keeps it.
    stripped = [(a + len(text[a:b]) - len(text[a:b].lstrip()), b) for a, b in offsets]
    assert stripped == encoded["offset_mapping"]


def test_a_text_that_is_too_long_is_continued_from_its_beginning_where_asked():
    found = continuation("the film " * 400, "mini-gpt", "raw_attention", tokens=1, truncate=True)
    alone = explain("the film " * 400, "mini-gpt", method="raw_attention", truncate=True)
    assert found.tokens == (alone.target,)
    assert np.allclose(found.matrix()[0], alone.scores)


def test_the_rows_of_a_matrix_are_the_scores_of_each_token_by_the_place_of_what_came_before():
    found = continuation("there is a red circle. what colour is it?", "mini-t5", "rollout", tokens=3)
    source, target = found.matrix("source"), found.matrix("target")
    assert np.array_equal(source, found.matrix())
    assert target.shape == (len(found.tokens), len(found.tokens) - 1)
    for number, explanation in enumerate(found.explanations):
        assert np.array_equal(source[number], explanation.parts["source"].scores)
        assert not target[number, number:].any()
        if number:
            assert np.array_equal(target[number, :number], explanation.parts["target"].scores)
    with pytest.raises(WhyformerError, match=r"No part named .text.\. Known: source, target"):
        found.matrix("text")


@pytest.fixture(scope="module")
def written():
    return {
        "mini-gpt": continuation("The film was", "mini-gpt", "generic_attention", tokens=4),
        "mini-t5": continuation("there is a red circle. what colour is it?", "mini-t5", "rollout", tokens=3),
    }


@pytest.mark.parametrize("model", ["mini-gpt", "mini-t5"])
@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_continuation_is_read_back_as_it_was_saved(written, model, suffix, tmp_path):
    path = tmp_path / f"written.{suffix}"
    written[model].save(path)
    assert Continuation.load(path) == written[model]
    with pytest.raises(WhyformerError, match=r"contains a Continuation: load it by Continuation\.load"):
        Explanation.load(path)
    written[model].explanations[0].save(path)
    with pytest.raises(WhyformerError, match=r"contains an Explanation: load it by Explanation\.load"):
        Continuation.load(path)


def test_a_continuation_is_shown_in_a_line_and_a_line_for_each_token(written):
    found = written["mini-gpt"]
    assert repr(found) == f"<Continuation {found.text[1:]} by generic_attention on mini-gpt; 4 tokens>"
    headline, *lines = str(found).splitlines()
    assert headline == f"{found.text[1:]} by generic_attention on mini-gpt"
    names = ["The", "film", "was", *(token.strip() for token in found.tokens)]
    for line, one in zip(lines, found.explanations, strict=True):
        best = int(np.abs(one.scores).argmax())
        assert line.startswith(one.answer)
        assert line.partition("← ")[2].startswith(f"{names[best]} {one.scores[best]:.3g}")


@pytest.mark.parametrize("model", ["mini-gpt", "mini-t5"])
def test_the_page_of_a_continuation_has_a_level_for_each_score(written, model, tmp_path):
    found = written[model]
    found.save(tmp_path / "written.html")
    page = (tmp_path / "written.html").read_text()
    table = json.loads(unescape(re.search(r'data-table="(.*?)"', page)[1]))
    whole = np.concatenate([found.matrix(name) for name in found.explanations[-1].parts], axis=1)
    for entries, scores in zip(table["rows"], [*whole, whole.sum(axis=0)], strict=True):
        levels = np.zeros(len(scores), dtype=int)
        for source, level, _ in entries:
            levels[source] = level
        assert levels.tolist() == np.rint(100 * scores / np.abs(scores).max()).astype(int).tolist()
    units = re.findall(r'data-row="(\d+)".*?><i title="(.*?)".*?>(.*?)</i>', page)
    assert [unescape(title) for _, title, _ in units] == [one.answer for one in found.explanations]
    assert [unescape(text) for *_, text in units] == [token.strip() for token in found.tokens]
    prompt = re.findall(r'data-source="(\d+)">(.*?)</span>', page.partition('class="prompt"')[2])
    assert [text for _, text in prompt[:2]] == {"mini-gpt": ["The", "film"], "mini-t5": ["there", "is"]}[model]
    assert re.search(r'data-table=".*?"', page)[0] in found._repr_html_()


def test_a_continuation_is_drawn_with_a_row_for_each_token(written, tmp_path):
    written["mini-gpt"].save(tmp_path / "written.png")
    replace(written["mini-gpt"], explanations=written["mini-gpt"].explanations[:2]).save(tmp_path / "shorter.png")
    with Image.open(tmp_path / "written.png") as whole, Image.open(tmp_path / "shorter.png") as shorter:
        assert whole.width == shorter.width
        assert np.array_equal(np.asarray(whole)[: shorter.height - 32], np.asarray(shorter)[:-32])
        assert whole.height > shorter.height


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def assert_same_content(ours: Path, theirs: Path) -> None:
    """Two files of one continuation that was computed twice: numbers may differ by rounding, nothing else."""
    if ours.suffix == ".png":
        first, second = (np.asarray(Image.open(path)).astype(int) for path in (ours, theirs))
        assert first.shape == second.shape
        assert np.abs(first - second).max() <= 4  # one step of the colours
    elif ours.suffix == ".npz":
        first, second = (np.load(path) for path in (ours, theirs))
        assert first.files == second.files
        for name in first.files:
            if first[name].dtype.kind == "f":
                np.testing.assert_allclose(first[name], second[name], rtol=1e-5, atol=1e-8)
    else:
        first, second = (path.read_text() for path in (ours, theirs))
        assert NUMBER.split(first) == NUMBER.split(second)
        numbers = ([float(number) for number in NUMBER.findall(text)] for text in (first, second))
        rel, absolute = (1e-5, 1e-8) if ours.suffix == ".json" else (0.01, 1)  # a page rounds scores, and shades to 1 %
        assert next(numbers) == pytest.approx(next(numbers), rel=rel, abs=absolute)


@pytest.mark.parametrize("suffix", ["html", "png", "json", "npz"])
def test_the_command_writes_and_shows_what_the_library_does(written, suffix, tmp_path):
    out = tmp_path / f"out.{suffix}"
    arguments = ["continue", "The film was", "--method", "generic_attention", "--tokens", "4", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (0, f"{written['mini-gpt']}\nWritten to {out}\n")
    written["mini-gpt"].save(tmp_path / f"expected.{suffix}")
    assert_same_content(out, tmp_path / f"expected.{suffix}")


def test_the_command_prints_json_for_scripts(written):
    arguments = ["continue", "The film was", "--method", "generic_attention", "--tokens", "4", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert found["text"] == written["mini-gpt"].text
    assert [one["target"] for one in found["explanations"]] == list(written["mini-gpt"].tokens)
    scores = found["explanations"][-1]["parts"]["text"]["scores"]
    assert scores == pytest.approx(written["mini-gpt"].explanations[-1].scores.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a film", "--model", "mini-vit"], "mini-vit does not write text: use `whyformer explain`"),
        (["a film", "--tokens", "0"], "tokens=0: a whole number, at least 1."),
        (["a film", "--out", "film.pdf"], "no format for '.pdf'. Known: .html, .png, .json, .npz."),
    ],
)
def test_what_cannot_be_continued_is_one_line(arguments, reason):
    result = CliRunner().invoke(app, ["continue", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1
