"""Sounds through `explain`: classes of them, characters in them, and words written about them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

import whyformer
from conftest import saved
from tiny_sounds import RATE, WAVE_FAMILIES, loaded_ast, loaded_ctc, loaded_wave, loaded_whisper, tone
from whyformer import Explanation, LoadedModel, WhyformerError, attribute, explain, explain_batch
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.inputs.layouts import Frames, Spectrogram
from whyformer.modalities.audio import sum_over_frames


@cache
def wave(family: str = "wav2vec2") -> LoadedModel:
    return loaded_wave(family)


@cache
def ast() -> LoadedModel:
    return loaded_ast()


@cache
def whisper() -> LoadedModel:
    return loaded_whisper()


@pytest.fixture(scope="module")
def ctc(tmp_path_factory):
    return loaded_ctc(tmp_path_factory.mktemp("ctc"))


class Loudness(nn.Module):
    """Two classes: how much energy the sound has in its third second, and in all the others."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import Wav2Vec2Config

        self.config = Wav2Vec2Config(num_hidden_layers=1, id2label={0: "third", 1: "others"})
        self.query = nn.Linear(1, 2, bias=False)

    def forward(self, input_values):
        frames = input_values.unfold(1, 400, 320).square().mean(dim=2, keepdim=True)
        states = self.query(frames)
        mixed = nn.functional.scaled_dot_product_attention(states[:, None], states[:, None], frames[:, None])[:, 0]
        energy = input_values.square()
        third = energy[:, 2 * RATE : 3 * RATE].sum(dim=1)
        logits = torch.stack([third, energy.sum(dim=1) - third], dim=1) + 0 * mixed.mean(dim=(1, 2))[:, None]
        return SequenceClassifierOutput(logits=logits)


@pytest.mark.parametrize("method", ["input_x_gradient", "integrated_gradients"])
def test_a_sound_that_is_heard_in_its_third_second_alone_is_explained_by_that_second(method):
    torch.manual_seed(0)
    loaded_model = LoadedModel(Loudness().eval(), wave().processor, "loudness")
    explanation = explain(tone(4.0, loud=(2.0, 3.0)), loaded_model, "third", method)
    layout, scores = explanation.parts["audio"].layout, explanation.scores
    assert isinstance(layout, Frames)
    inside = np.array([start > 2.0 - 0.0226 and end < 3.0226 for start, end in layout.spans])
    assert scores[inside].sum() > 0
    assert np.abs(scores[~inside]).max() < 1e-3 * scores.max()
    assert 2.0 <= float(explanation.top(1)[0].text.split("–")[0]) <= 3.0


@pytest.mark.parametrize("family", WAVE_FAMILIES)
def test_frames_of_a_sound_get_the_scores_that_attribute_gives(family):
    loaded_model, sound = wave(family), tone(0.5, seed=1)
    inputs = model_inputs(loaded_model, encode(loaded_model, [sound]))
    label = loaded_model.model.config.id2label[1]
    by_attention = explain(sound, loaded_model, label, "rollout")
    raw = attribute(loaded_model.model, inputs, lambda output: output.logits[:, 1], "rollout")
    assert np.array_equal(by_attention.scores, raw["audio"][0].numpy())
    assert by_attention.target == "dog"
    assert by_attention.parts["audio"].layout.step == pytest.approx(0.04 if family == "sew" else 0.02)
    by_samples = explain(sound, loaded_model, label, "input_x_gradient")
    raw = attribute(loaded_model.model, inputs, lambda output: output.logits[:, 1], "input_x_gradient")
    expected = sum_over_frames(raw["samples"], loaded_model.model, len(by_attention.scores))[0]
    assert np.allclose(by_samples.scores, expected.numpy(), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "input_x_gradient", None])
@pytest.mark.parametrize("heard", ["wav2vec2", "wav2vec2 with a mask", "ast", "whisper"])
def test_sounds_of_different_lengths_are_explained_like_single_ones(heard, method):
    loaded_model = {"ast": ast, "whisper": whisper}.get(heard, lambda: wave(heard))()
    sounds = [tone(0.5), tone(0.3, seed=1), tone(0.5, seed=2)]
    together = explain_batch(sounds, loaded_model, method=method, batch_size=3)
    for sound, explanation in zip(sounds, together, strict=True):
        alone = explain(sound, loaded_model, method=method)
        assert alone.target == explanation.target
        got, expected = explanation.parts["audio"].scores, alone.parts["audio"].scores
        assert np.abs(got - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_spectrogram_is_scored_patch_by_patch_the_lowest_band_first():
    sound = tone(1.0)
    inputs = model_inputs(ast(), encode(ast(), [sound]))
    raw = attribute(ast().model, inputs, lambda output: output.logits[:, 1], "rollout")["audio"][0]
    part = explain(sound, ast(), "dog", "rollout").parts["audio"]
    # 16 bins and 120 columns in patches of 8 by steps of 4 are 3 bands of 29 patches, of which 25 lie in the sound.
    assert isinstance(part.layout, Spectrogram)
    assert (part.layout.rows, part.layout.columns) == (3, 25)
    assert np.array_equal(part.scores, raw[2:].reshape(3, 29)[:, :25].flatten().numpy())
    assert part.layout.first == pytest.approx(0.0275)  # 3.5 columns and half a window, less half a step
    by_bin = explain(sound, ast(), "dog", "input_x_gradient").parts["audio"]
    raw = attribute(ast().model, inputs, lambda output: output.logits[:, 1], "input_x_gradient")["spectrogram"][0]
    assert by_bin.layout.rows == 16
    grid = raw.reshape(120, 16).T[:, : by_bin.layout.columns]
    assert np.array_equal(by_bin.scores, grid.flatten().numpy())


def test_whisper_explains_the_next_word_by_the_sound_and_the_words_before_it():
    sound = tone(1.0)
    explanation = explain((sound, " ab"), whisper(), "c", "rollout")
    assert explanation.target == " c"
    assert list(explanation.parts) == ["audio", "target"]
    frames = explanation.parts["audio"].layout
    assert (frames.count, frames.step, frames.first) == (51, pytest.approx(0.02), pytest.approx(-0.01))
    assert explanation.parts["target"].layout.texts == (" ab",)
    assert explain(sound, whisper(), "c", "rollout").probability is not None
    mel = explain((sound, " ab"), whisper(), "c", "input_x_gradient").parts["audio"]
    assert (mel.layout.count, mel.layout.step) == (101, pytest.approx(0.01))


def test_a_transcript_is_explained_token_by_token():
    sound = tone(1.0)
    transcript = whyformer.continuation(sound, whisper(), "rollout", tokens=3)
    assert len(transcript.tokens) == 3
    assert not {"<|notimestamps|>", "<|startoftranscript|>"} & set(transcript.tokens)
    assert transcript.matrix().shape == (3, 51)
    assert transcript.matrix("target").shape == (3, 2)
    first, second, _ = transcript.explanations
    assert np.allclose(first.parts["audio"].scores, explain(sound, whisper(), method="rollout").parts["audio"].scores)
    again = explain((sound, transcript.tokens[0]), whisper(), second.target.strip() or second.target, "rollout")
    if again.target == second.target:
        assert np.allclose(second.parts["audio"].scores, again.parts["audio"].scores, atol=1e-7)


def test_a_character_is_explained_where_it_is_likeliest_or_at_a_moment(ctc):
    sound = tone(1.0)
    inputs = model_inputs(ctc, encode(ctc, [sound]))
    with torch.no_grad():
        logits = ctc.model(**inputs).logits[0]
    frame = int(logits.softmax(dim=-1)[:, 6].argmax())
    explanation = explain(sound, ctc, "B", "generic_attention")
    raw = attribute(ctc.model, inputs, lambda output: output.logits[:, frame, 6], "generic_attention")["audio"]
    raw[0, frame] = 0  # where it is read
    assert explanation.target == "B"
    assert explanation.probability == pytest.approx(float(logits[frame].softmax(dim=0)[6]), rel=1e-5)
    assert np.allclose(explanation.scores, raw[0].numpy(), rtol=1e-5, atol=1e-9)
    at_once = explain(sound, ctc, whyformer.moment(0.2125, "B"), "generic_attention")  # the middle of frame 10
    raw = attribute(ctc.model, inputs, lambda output: output.logits[:, 10, 6], "generic_attention")["audio"]
    raw[0, 10] = 0
    assert np.allclose(at_once.scores, raw[0].numpy(), rtol=1e-5, atol=1e-9)
    likeliest = logits.softmax(dim=-1)[:, 1:].amax(dim=0).argmax() + 1  # not the blank
    assert explain(sound, ctc, method="rollout").target == ctc.tokenizer.convert_ids_to_tokens(int(likeliest))


def test_a_moment_beside_the_sound_or_of_another_model_is_refused(ctc):
    with pytest.raises(WhyformerError, match=r"No moment 3 s: the frames of this sound cover 0 to 0.983 s"):
        explain(tone(1.0), ctc, whyformer.moment(3.0))
    with pytest.raises(WhyformerError, match="A moment is a target for models that spell a sound"):
        explain(tone(1.0), wave(), whyformer.moment(0.5))
    with pytest.raises(WhyformerError, match=r"No file 'What is said\?'"):
        whyformer.explain_response("What is said?", model=whisper())


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("heard", ["wave", "ast", "whisper"])
def test_what_is_saved_is_read_back_bit_for_bit(heard, suffix, tmp_path):
    loaded_model = {"wave": wave, "ast": ast, "whisper": whisper}[heard]()
    explanation = explain(tone(0.4), loaded_model, method="rollout")
    explanation.save(tmp_path / f"sound{suffix}")
    assert Explanation.load(tmp_path / f"sound{suffix}") == explanation


def test_a_damaged_sound_is_refused(tmp_path):
    explanation = explain(tone(0.4), wave(), method="rollout")
    explanation.save(tmp_path / "sound.json")
    text = (tmp_path / "sound.json").read_text()
    start = text.index('"samples": "') + 12
    (tmp_path / "sound.json").write_text(text[:start] + "AA==" + text[text.index('"', start) :])
    with pytest.raises(WhyformerError, match="its sound has 1 bytes, not four for each sample"):
        Explanation.load(tmp_path / "sound.json")


def test_a_sound_has_frames_to_rank_and_a_table_and_no_heat_map():
    explanation = explain(tone(0.4), wave(), method="rollout")
    (item,) = explanation.top(1, by="frame")
    assert item.score == explanation.scores.max()
    assert list(explanation.to_pandas().columns) == ["part", "token", "score", "from_second", "to_second"]
    with pytest.raises(WhyformerError, match=r"this part is 19 frames of 20 ms. Use scores or top()"):
        explanation.heatmap()
    table = explain(tone(0.4), ast(), method="rollout").to_pandas()
    assert table["to_hertz"].iloc[-1] > table["from_hertz"].iloc[-1] > table["from_hertz"].iloc[0]


def test_models_that_hear_are_loaded_from_their_folders(tmp_path):
    saved(tmp_path / "waves", wave().model, wave().processor)
    saved(tmp_path / "ast", ast().model, ast().processor)
    for folder, kind in (("waves", Frames), ("ast", Spectrogram)):
        explanation = explain(tone(0.4), str(tmp_path / folder), method="rollout")
        assert isinstance(explanation.parts["audio"].layout, kind)
        assert whyformer.doctor(str(tmp_path / folder)).problems == ()


@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
def test_what_is_written_about_a_sound_is_explained_by_its_frames(method):
    loaded_model, sound = whisper(), tone(0.5)
    found = whyformer.explain_response(sound, None, loaded_model, method, units="token", tokens=3)
    written = whyformer.continuation(sound, loaded_model, method, tokens=3)
    assert found.text.strip() == written.text.strip()
    part = found.parts["audio"]
    assert isinstance(part.layout, Frames)
    inputs = model_inputs(loaded_model, encode(loaded_model, [sound]))
    begun = inputs["decoder_input_ids"][0].tolist()
    written_ids = [token.id for token in found.tokens]
    for number, token in enumerate(written_ids):
        ids = torch.tensor([[*begun, *written_ids[:number]]])
        now = inputs | {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}

        def score(output, token=token):
            return output.logits[:, -1].log_softmax(dim=-1)[:, token]

        raw = attribute(loaded_model.model, now, score, method, readout="last")["audio"][0].numpy()
        expected = raw[: part.layout.count]
        np.testing.assert_allclose(part.scores[number], expected, atol=2e-5 * np.abs(expected).max())
    assert [source.kind for source in found.sources] == ["sound"]
    assert found.share.tolist() == [[1.0]] * 3
    assert "audio, most at 0." in str(found)


@pytest.fixture
def encoder_calls():
    """How often the encoder of a model has run since it was asked about."""
    handles, calls = [], []

    def watch(loaded_model):
        encoder = loaded_model.model.get_encoder()
        handles.append(encoder.register_forward_hook(lambda *_: calls.append(None)))
        return calls

    yield watch
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("backward", ["gradient", "libra", "attn_lrp"])
@pytest.mark.parametrize("method", ["generic_attention", "evidence", "input_x_gradient", "attention_gradient"])
def test_the_words_about_a_sound_share_one_pass_and_have_the_scores_of_separate_ones(method, backward, encoder_calls):
    loaded_model, sound, ids = whisper(), tone(0.5), [6, 7, 9, 12, 15]
    calls = encoder_calls(loaded_model)
    together = whyformer.explain_response(sound, ids, loaded_model, method, units="token", backward=backward)
    assert len(calls) == 1
    for number, token in enumerate(together.tokens):
        span = [(token.start, token.end)]
        alone = whyformer.explain_response(sound, ids, loaded_model, method, units=span, backward=backward)
        expected = alone.parts["audio"].scores[0]
        assert expected.any()
        np.testing.assert_allclose(
            together.parts["audio"].scores[number], expected, atol=1e-5 * np.abs(expected).max(), rtol=0
        )
        np.testing.assert_allclose(together.earlier[number], alone.earlier[0], atol=1e-5 * np.abs(alone.earlier).max())
        assert together.tokens[number].log_probability == pytest.approx(alone.tokens[number].log_probability, abs=1e-5)


def test_a_sound_is_encoded_once_to_be_transcribed_and_once_to_be_explained(encoder_calls):
    loaded_model = whisper()
    calls = encoder_calls(loaded_model)
    written = whyformer.continuation(tone(0.5), loaded_model, "generic_attention", tokens=4)
    assert len(written.explanations) == 4
    assert len(calls) == 2
    audio, text = written.explanations[-1].parts.values()
    assert isinstance(audio.layout, Frames)
    assert text.layout.size == 3


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_response_to_a_sound_is_read_back_and_drawn(suffix, tmp_path):
    found = whyformer.explain_response(tone(0.5), [6, 7], whisper(), "rollout")
    found.save(tmp_path / f"a.{suffix}")
    assert whyformer.Response.load(tmp_path / f"a.{suffix}") == found
    found.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text().count("data:image/jpeg") == 1
    assert found.image().width > 1000


def test_what_a_sound_cannot_be_asked_is_said():
    for settings, reason in (
        ({"context": ["a"]}, "the prompt of whisper is a sound: leave it out"),
        ({"seed": 3}, "seed=3: whisper writes the most likely words about a sound, so leave it out"),
        ({"method": "leave_one_out", "response": [6]}, "this prompt is a sound"),
    ):
        with pytest.raises(WhyformerError, match=reason):
            whyformer.explain_response(tone(0.5), model=whisper(), **settings)
