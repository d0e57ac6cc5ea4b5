"""Models in GGUF files: their values, what is said of their weights, and files that are refused."""

import copy
import shutil
import struct

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType

import whyformer
from commands import run
from tiny_gguf import tiny_llama, write_gguf
from whyformer import WhyformerError, load

PROMPT = "the cat sat. the dog ran."


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("plain") / "tiny.gguf")


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("quantized") / "tiny.Q8_0.gguf", GGMLQuantizationType.Q8_0)


@pytest.fixture(scope="module")
def dequantised():
    """The tiny model with every matrix through Q8_0 and back."""
    model, kind = copy.deepcopy(tiny_llama()), GGMLQuantizationType.Q8_0
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(parameter.numpy(), kind), kind)))
    return model


def refusal_of(place, **how):
    with pytest.raises(WhyformerError) as error:
        load(place, **how)
    assert "\n" not in str(error.value)
    return str(error.value)


def logits_of(model):
    with torch.no_grad():
        return model(torch.arange(40)[None]).logits


def test_an_unquantised_file_gives_the_logits_of_the_model_it_was_written_from(plain):
    torch.testing.assert_close(logits_of(load(plain).model), logits_of(tiny_llama()), rtol=1e-5, atol=1e-5)


def test_a_quantised_file_gives_the_logits_of_its_dequantised_weights(quantized, dequantised):
    ours = logits_of(load(quantized).model)
    torch.testing.assert_close(ours, logits_of(dequantised), rtol=1e-5, atol=1e-5)
    assert float((ours - logits_of(tiny_llama())).abs().max()) > 1e-3


def test_a_response_of_a_gguf_model_is_explained_like_that_of_the_plain_model(quantized, dequantised):
    loaded_model = load(quantized)
    settings = {"method": "generic_attention", "sources": "sentence"}
    ours = whyformer.explain_response(PROMPT, " the end", quantized, **settings)
    theirs = whyformer.explain_response(PROMPT, " the end", dequantised, processor=loaded_model.tokenizer, **settings)
    assert ours.model == "tiny.Q8_0.gguf"
    torch.testing.assert_close(ours.scores, theirs.scores, rtol=1e-4, atol=1e-6)


def test_doctor_and_audit_say_that_the_weights_were_dequantised(quantized):
    note = "tiny.Q8_0.gguf stores its weights in Q8_0 (22 tensors), F32 (7 tensors); they were dequantised"
    assert any(note in one for one in whyformer.doctor(quantized).notes)
    explanation = whyformer.explain("the cat", quantized, method="rollout")
    record = explanation.audit(explanation)
    assert any(note in one for one in record["doctor"]["notes"])
    assert list(record["model"]["weights"]) == ["tiny.Q8_0.gguf"]
    assert record["model"]["place"] == str(quantized)


def test_an_unquantised_file_is_not_said_to_be_dequantised(plain):
    assert load(plain).notes == ("tiny.gguf stores its weights unquantised.",)


def test_a_folder_with_one_gguf_file_is_that_model(quantized, tmp_path):
    shutil.copy(quantized, tmp_path)
    torch.testing.assert_close(logits_of(load(tmp_path).model), logits_of(load(quantized).model), rtol=0, atol=0)
    shutil.copy(quantized, tmp_path / "other.gguf")
    assert "has 2 GGUF files: load one of them by its path" in refusal_of(tmp_path)


def test_a_model_from_a_gguf_file_can_be_saved_and_loaded_again(quantized, tmp_path):
    loaded_model = load(quantized)
    loaded_model.model.save_pretrained(tmp_path)
    loaded_model.tokenizer.save_pretrained(tmp_path)
    assert torch.equal(logits_of(load(tmp_path).model), logits_of(loaded_model.model))


def test_the_command_line_takes_a_gguf_file(quantized):
    output = run("doctor", str(quantized))
    assert "dequantised" in output
    assert "the" in run("explain", "the cat", "--model", str(quantized), "--method", "rollout")


def test_other_files_beside_a_gguf_file_are_not_read(quantized, tmp_path):
    shutil.copy(quantized, tmp_path)
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "tokenizer_config.json").write_text("{")
    (tmp_path / "adapter_config.json").write_text("{")
    assert load(tmp_path / quantized.name).name == quantized.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"GGML" + data[4:], "it does not begin with GGUF"),
        (lambda data: data[:4] + struct.pack("<I", 9) + data[8:], "version 9; known are 2 and 3"),
        (lambda data: data[:8] + struct.pack("<Q", 2**60) + data[16:], "1152921504606846976 tensors, at most 100000"),
        (lambda data: data[:16] + struct.pack("<Q", 2**60) + data[24:], "1152921504606846976 entries, at most 10000"),
        (lambda data: data[:24] + struct.pack("<Q", 2**60) + data[32:], "bytes of a text, at most"),
        (lambda data: data[:200], "it ends inside its header"),
        (lambda data: data[:-1000], "reaches beyond the end of the file"),
    ],
)
def test_a_damaged_file_is_refused_before_its_weights_are_read(quantized, tmp_path, change, message):
    (tmp_path / "odd.gguf").write_bytes(change(quantized.read_bytes()))
    refusal = refusal_of(tmp_path / "odd.gguf")
    assert "is not a valid GGUF file (" in refusal
    assert message in refusal


def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(tmp_path):
    path = write_gguf(tmp_path / "deep.gguf", blocks=10**9)
    assert "deep.gguf has 3 blocks, and its header says 1000000000" in refusal_of(path)


def test_a_model_that_does_not_fit_into_memory_is_refused_before_it_is_read(plain, monkeypatch):
    monkeypatch.setattr("whyformer.models.gguf_model._available_bytes", lambda: 1000)
    assert "dequantised, and 0.0 GB are free: ask for dtype='bfloat16'" in refusal_of(plain)


def test_a_part_of_a_split_file_is_refused(plain, tmp_path):
    shutil.copy(plain, tmp_path / "tiny-00001-of-00002.gguf")
    assert "is one of several parts: join them" in refusal_of(tmp_path / "tiny-00001-of-00002.gguf")
