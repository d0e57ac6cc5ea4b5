"""Surveys of sounds: functions and models whose reasons are set by hand, against the survey's findings."""

import wave

import numpy as np
import pytest
import torch
from PIL import Image

from tiny_sounds import NOISES, PATCHES, RATE, loaded_ast, loaded_wave, tone
from whyformer import Sound, WhyformerError, survey
from whyformer.api.predictions import FunctionScores
from whyformer.inputs.layouts import Frames, Spectrogram
from whyformer.surveys.cues import Cue
from whyformer.surveys.removal_effects import removal_effects
from whyformer.surveys.respondents import removable_sample
from whyformer.surveys.sound_cues import (
    SOUND_BANDS,
    SOUND_TIMES,
    loudest_start,
    random_sound_parts,
    sound_grid,
    sound_parts,
)
from whyformer.surveys.survey_data import SurveySample, survey_data

LABELS = ["quiet", "loud"]
SHORT = 800  # samples of a sound for functions, whose rate is 1,600


def first_quarters(count=40, seed=0):
    """Noise whose first quarter is loud in every second sound, and in which a later part is the loudest."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        samples = random.standard_normal(SHORT) * 0.1
        samples[: SHORT // 4] *= 3 if number % 2 else 1
        start = int(random.integers(SHORT // 4, SHORT * 9 // 10))
        samples[start : start + SHORT // 10] *= 8
        rows.append((Sound(np.clip(samples, -1, 1), 1600), LABELS[number % 2]))
    return rows


def hears_first_quarter(sounds):
    """Probabilities of two labels: 20 nats for a unit of root mean square in the first quarter."""
    levels = [np.sqrt((sound.samples[: len(sound.samples) // 4] ** 2).mean()) for sound in sounds]
    values = 20 * (np.array(levels) - 0.2)
    return np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], axis=1)


@pytest.fixture(scope="module")
def heard():
    return survey(None, first_quarters(), predict=hears_first_quarter, labels=LABELS, should_ignore=["first quarter"])


def test_the_part_that_a_function_listens_to_is_its_first_driver(heard):
    assert heard.kind == "sound"
    assert (heard.samples, heard.labelled, heard.wrong) == (40, 40, 0)
    first = heard.drivers[0]
    assert (first.cue, first.answer) == (Cue("time", "first quarter"), "loud")
    # Without it the level is 0, 20 · 0.3 nats less; elsewhere nothing changes.
    assert first.proof.drop.value == pytest.approx(6.0, abs=0.3)
    assert first.proof.excess.value == pytest.approx(first.proof.drop.value)
    assert (first.proof.flips.value, first.proof.random_flips) == (1.0, 0.0)
    assert first.leading == 1.0
    # The beginning lies in the first quarter; the answers lose nothing without any other part.
    lowering = {driver.cue.name for driver in heard.drivers if driver.proof.drop.value > 0}
    assert lowering == {"first quarter", "beginning"}
    assert {driver.cue.name for driver in heard.drivers if driver.answer == "loud"} == lowering
    assert {driver.cue.name for driver in heard.tested} == set(SOUND_TIMES)
    assert {driver.cue.name for driver in heard.shortcuts} == {"first quarter"}
    assert heard.overview[0].startswith("hears_first_quarter heard 40 sounds; ")


def test_the_loudest_part_is_found_where_it_is():
    samples = np.full(1000, 0.01)
    samples[430:530] = 0.5
    sound = Sound(samples, RATE)
    assert loudest_start(sound) == 0.43
    part = sound_parts((1, 1000), loudest_start(sound))[Cue("time", "loudest part")]
    assert np.flatnonzero(part[0]).tolist() == list(range(430, 530))


def test_the_loudest_part_drives_a_function_of_the_peak():
    def peak(sounds):
        levels = np.array([abs(sound.samples).max() for sound in sounds])
        return np.stack([np.zeros(len(levels)), 10 * (levels - 0.5)], axis=1)

    result = survey(None, [sound for sound, _ in first_quarters(24)], predict=peak, labels=LABELS)
    assert result.drivers[0].cue == Cue("time", "loudest part")


def test_parts_cover_the_sound_once():
    parts = sound_parts((16, 40), 0.31)
    assert list(parts) == [*(Cue("time", name) for name in SOUND_TIMES), *(Cue("band", name) for name in SOUND_BANDS)]
    quarters = sum(part.astype(int) for cue, part in parts.items() if "quarter" in cue.name)
    bands = sum(part.astype(int) for cue, part in parts.items() if cue.kind == "band")
    assert (quarters == 1).all()
    assert (bands == 1).all()
    assert parts[Cue("band", "low band")][:5].all()
    assert np.flatnonzero(parts[Cue("time", "loudest part")][0]).tolist() == [12, 13, 14, 15]
    assert {cue.kind for cue in sound_parts((1, 40), 0.0)} == {"time"}


@pytest.mark.parametrize("name", [*SOUND_TIMES, *SOUND_BANDS])
def test_random_parts_are_as_long_and_lie_elsewhere(name):
    part = next(part for cue, part in sound_parts((16, 40), 0.31).items() if cue.name == name)
    axis = 0 if name in SOUND_BANDS else 1
    for other in random_sound_parts(part, axis, 6, np.random.default_rng(0)):
        assert other.sum() == part.sum()
        assert not (other & part).any()
        rows = np.flatnonzero(other.any(axis=1 - axis))
        assert (np.diff(rows) == 1).all()
        assert other.any(axis=axis).all()  # all bins of a stretch of time, all of the time of a band


def test_scored_cells_have_their_share_of_each_cue():
    sound = tone(1.0)
    place, shape = sound_grid(Spectrogram(sound, 10, 0.05, 0.1, (20.0, 300.0, 900.0, 8000.0)))
    assert shape == (3, 10)
    from whyformer.surveys.sound_cues import grid_parts

    parts = grid_parts(place, shape)
    assert parts[Cue("band", "middle band")][:, 0] == pytest.approx([0, 1, 0])
    assert parts[Cue("time", "beginning")][0] == pytest.approx([0.5] + [0] * 9)
    place, shape = sound_grid(Frames(sound, 4, 0.0, 0.25))
    assert grid_parts(place, shape)[Cue("time", "second quarter")][0] == pytest.approx([0, 1, 0, 0])
    assert not [cue for cue in grid_parts(place, shape) if cue.kind == "band"]


def ast_of(place):
    """A tiny AST whose log-odds of "dog" are 3 times the mean of the read places of its spectrogram."""
    loaded = loaded_ast()
    model, seen = loaded.model, []
    model.audio_spectrogram_transformer.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append((args or (kwargs["input_values"],))[0]), with_kwargs=True
    )

    def read(module, args, output):
        levels = 3 * seen.pop()[place].mean(dim=(1, 2))
        low = torch.full_like(levels, -20.0)
        return output * 0 + torch.stack([torch.zeros_like(levels), levels, low], dim=1)

    model.classifier.register_forward_hook(read)
    return loaded


def bands_of_ast(count=16):
    """Tones of a low or a high pitch."""
    return [tone(0.3, pitch=(200.0, 5000.0)[n % 2], seed=n) for n in range(count)]


def test_removed_values_of_a_spectrogram_have_its_mean():
    loaded = ast_of((slice(None), slice(0, 9)))
    sample = removable_sample(loaded, SurveySample(0, "tone", tone(0.4)))
    columns = 1 + (round(0.4 * RATE) - 400) // 160
    assert sample.shape == (PATCHES["num_mel_bins"], columns)
    values = loaded.feature_extractor(tone(0.4).samples, sampling_rate=RATE, return_tensors="pt")["input_values"][0]
    kept = np.ones((1, *sample.shape), dtype=bool)
    kept[0, :, :5] = False
    filled = values.clone()
    filled[:5] = values[:columns].mean()
    assert sample.logits[1] == pytest.approx(3 * float(values[:9].mean()), abs=1e-4)
    assert sample.ask(kept)[0, 1] == pytest.approx(3 * float(filled[:9].mean()), abs=1e-4)


def test_removed_samples_of_a_wave_are_silent():
    loaded, sound = loaded_wave(), tone(0.4)
    sample = removable_sample(loaded, SurveySample(0, "tone", sound))
    kept = np.ones((3, 1, len(sound.samples)), dtype=bool)
    kept[1, 0, :1600] = kept[2] = False
    values = loaded.feature_extractor(sound.samples, sampling_rate=RATE, return_tensors="pt")["input_values"]
    rows = torch.cat([values, values.clone(), 0 * values])
    rows[1, :1600] = 0
    with torch.no_grad():
        expected = loaded.model(rows).logits.numpy()
    assert sample.ask(kept) == pytest.approx(expected, abs=1e-4)


def test_the_band_that_an_ast_reads_is_proven_and_drawn(tmp_path):
    loaded = ast_of((slice(None), slice(None), slice(11, 16)))
    result = survey(loaded, bands_of_ast(), method="rollout")
    names = {(driver.cue.name, driver.answer) for driver in result.drivers}
    assert ("high band", "dog") in names
    assert {name for name, _ in names if name in SOUND_BANDS} == {"high band"}
    assert {driver.cue.name for driver in result.tested} == {*SOUND_TIMES, *SOUND_BANDS}
    assert result.labelled == 0
    pictures = result.drivers[0].examples[0].pictures
    assert len(pictures) == 2
    assert result.samples == 16
    result.save(tmp_path / "sounds.html")
    assert 'class="examples sounds"' in (tmp_path / "sounds.html").read_text()


def test_a_wave_model_is_surveyed_by_time_alone():
    result = survey(loaded_wave(), [(tone(0.3, seed=n), NOISES[n % 3]) for n in range(10)])
    assert result.kind == "sound"
    assert {driver.cue.kind for driver in result.tested} == {"time"}
    assert result.labelled == 10


def test_a_band_is_removed_from_a_function_by_no_one():
    function = FunctionScores(hears_first_quarter, {}, 8, False)
    sample = removable_sample(function, SurveySample(0, "noise", first_quarters(1)[0][0]))
    parts = sound_parts((1, SHORT), 0.5)
    effects = removal_effects(sample, {Cue("time", "first quarter"): parts[Cue("time", "first quarter")]})
    assert effects[0].drops[1:].tolist() == [0, 0, 0]


def write_sound(path, sound):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, sound.rate, 0, "NONE", ""))
        file.writeframes((sound.samples * 32767).astype("<i2").tobytes())


def test_a_folder_of_sounds_by_class_is_read(tmp_path):
    for number, (sound, label) in enumerate(first_quarters(4)):
        write_sound(tmp_path / label / f"{number}.wav", sound)
    data = survey_data(tmp_path, None, None, {"loud": "very loud"})
    assert [(one.name, one.label) for one in (data[n] for n in range(4))] == [
        ("loud/1.wav", "very loud"),
        ("loud/3.wav", "very loud"),
        ("quiet/0.wav", "quiet"),
        ("quiet/2.wav", "quiet"),
    ]
    assert data[2].example.samples == pytest.approx(first_quarters(1)[0][0].samples, abs=1e-4)


def test_lists_of_sounds_are_read(tmp_path):
    sound = tone(0.1)
    write_sound(tmp_path / "a.wav", sound)
    items = [
        (sound, 1),
        (sound.samples, RATE),
        ((sound.samples, RATE), "bell"),
        tmp_path / "a.wav",
        {"audio": {"array": sound.samples, "sampling_rate": RATE}, "label": "rain"},
    ]
    for item, label in zip(items, ("1", None, "bell", None, "rain"), strict=True):
        (read,) = (survey_data([item], None, None, None)[n] for n in range(1))
        assert read.label == label
        assert (read.example.rate, read.kind) == (RATE, "sound")
        assert read.example.samples == pytest.approx(sound.samples, abs=1e-4)


def test_what_cannot_be_surveyed_is_said_in_a_line(tmp_path):
    sounds, function = first_quarters(4), {"predict": hears_first_quarter, "labels": LABELS}
    with pytest.raises(WhyformerError, match="mini-bert reads texts, and the data are sounds"):
        survey("mini-bert", sounds)
    with pytest.raises(WhyformerError, match="ast reads sounds, and the data are texts"):
        survey(loaded_ast(), ["a film"])
    with pytest.raises(WhyformerError, match=r"No part of a sound is named 'begining'\. Did you mean 'beginning'"):
        survey(None, sounds, should_ignore=["begining"], **function)
    with pytest.raises(WhyformerError, match="held_out compares how words go with labels, and the data are sounds"):
        survey(None, sounds, held_out=sounds, **function)
    with pytest.raises(WhyformerError, match="method='lime': sounds are scored for predict by removing stretches"):
        survey(None, sounds, method="lime", **function)
    write_sound(tmp_path / "1.wav", sounds[0][0])
    with pytest.raises(WhyformerError, match=r"1\.wav' is not in a class folder: move it to one, such as bell/1\.wav"):
        survey(None, tmp_path, **function)
    with pytest.raises(WhyformerError, match=r"masks='m' go with pictures, but .* has sounds: leave them out"):
        survey(None, tmp_path, masks="m", **function)
    Image.new("RGB", (4, 4)).save(tmp_path / "cover.png")
    with pytest.raises(WhyformerError, match=r"has sounds \(1\.wav\) and pictures \(cover\.png\): move one kind away"):
        survey(None, tmp_path, **function)
    with pytest.raises(WhyformerError, match="example 1 is an int: give a whyformer"):
        survey_data([sounds[0][0], 3], None, None, None)[1]
