"""Sounds with a planted tone, and a head on an encoder, as the survey of a real audio model uses them."""

import numpy as np
import pytest
import torch
from transformers import WhisperConfig, WhisperModel

import sound_surveys


def test_tones_go_with_the_second_label():
    quiet = [np.zeros(800, dtype=np.float32)] * 400
    for strength in (0.0, 0.8):
        own = sound_surveys.with_tones(quiet, strength, 0)
        has_tone = np.array([np.abs(one[-1000:]).max() > 0.1 for one in own])
        assert {len(one) for one in own} == {1598 + 3200}
        assert np.corrcoef(has_tone, np.arange(400) % 2)[0, 1] == pytest.approx(strength, abs=0.1)
        assert np.abs(own[0][:1500]).max() == 0


def test_the_head_is_the_one_that_was_fitted_to_mean_states():
    torch.manual_seed(0)
    size = {"d_model": 16, "num_mel_bins": 8, "max_source_positions": 20}
    layers = {f"{part}_{name}": 1 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    config = WhisperConfig(vocab_size=32, encoder_ffn_dim=16, pad_token_id=0, **size, **layers)
    source = WhisperModel(config).eval()
    spectra = torch.randn(40, 8, 40)
    spectra[1::2, :4] += 2
    with torch.no_grad():
        rows = source.encoder(spectra).last_hidden_state.mean(dim=1)
    model = sound_surveys.classifier(source, rows, torch.arange(40) % 2)
    with torch.no_grad():
        answers = model(spectra).logits.argmax(dim=1)
    assert (answers == torch.arange(40) % 2).float().mean() > 0.9
    assert model.config.id2label == {0: "no", 1: "yes"}
