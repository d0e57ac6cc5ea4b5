"""How much memory an explanation takes: estimated from shorter inputs, and as it turns out."""

import json

import pytest
import torch
from typer.testing import CliRunner

import whyformer.api.memory_estimate as memory
from tiny_models import IMAGE, TEXT, built
from whyformer import WhyformerError, attribute, doctor, estimate_memory, load
from whyformer.api.memory_estimate import LiveBytes, OutOfMemory, peak_bytes, weight_bytes
from whyformer.cli import app

LONG = {"max_position_embeddings": 1024}
DECODER = {name: value for name, value in TEXT.items() if name != "num_labels"}
MODELS = {
    "bert": lambda: built("BertForSequenceClassification", "BertConfig", **TEXT | LONG),
    "llama": lambda: built("LlamaForCausalLM", "LlamaConfig", **DECODER | LONG, num_key_value_heads=1),
    "gpt2": lambda: built(
        "GPT2LMHeadModel",
        "GPT2Config",
        n_embd=48,
        n_layer=3,
        n_head=3,
        vocab_size=60,
        n_positions=1024,
        bos_token_id=1,
        eos_token_id=2,
    ),
}
METHODS = ["raw_attention", "rollout", "generic_attention", "grad_cam", "input_x_gradient", "lrp", "bi_token"]


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_the_estimate_is_within_a_quarter_of_what_is_measured(family, method):
    model = MODELS[family]()
    inputs = memory.random_text(model, 400)
    measured = weight_bytes(model) + peak_bytes(lambda: attribute(model, inputs, 0, method), model)
    assert estimate_memory(model, 400, method) == pytest.approx(measured, rel=0.25)


def test_maps_that_are_not_kept_are_estimated_from_others_that_are_not(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 3 * 300**2)
    assert memory._lengths(1200, 3)[0] == 301
    assert len(memory._lengths(1200, 3)) == 3
    assert max(memory._lengths(301, 3)) <= 301
    assert memory._lengths(200, 3) == [200]
    assert memory._lengths(280, 3) == [35, 70, 140]


def test_what_grows_is_carried_on_by_its_own_law():
    lengths = [100, 200, 400]
    assert memory._extrapolated(lengths, [500 + 7 * x for x in lengths], 1600) == pytest.approx(
        500 + 7 * 1600, rel=1e-6
    )
    square = [500 + 7 * x + 3 * x**2 for x in lengths]
    assert memory._extrapolated(lengths, square, 1600) == pytest.approx(500 + 7 * 1600 + 3 * 1600**2, rel=1e-6)
    bent = [1000, 2000, 2500]
    assert memory._extrapolated(lengths, bent, 800) == 3500  # never as if it turned back


def test_live_bytes_are_those_of_tensors_that_are_still_there():
    model = torch.nn.Linear(10, 10)
    with LiveBytes(model) as counter:
        kept = torch.zeros(1000)
        _view = kept[:10]
        for _ in range(5):
            _gone = torch.zeros(500)
        model.weight.t()
    assert counter.peak == 4 * (1000 + 500 + 500)  # a new one is made before the old one goes


def test_a_batch_takes_more_by_what_each_example_takes():
    model = MODELS["bert"]()
    one, three = (estimate_memory(model, 64, "rollout", batch=batch) for batch in (1, 3))
    assert three - weight_bytes(model) == 3 * (one - weight_bytes(model))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (0, "tokens=0: a whole number, at least 2."),
        (4.5, "tokens=4.5: a whole number, at least 2."),
        (2000, "tokens=2000: BertForSequenceClassification has positions for 1024."),
    ],
)
def test_a_length_that_cannot_be_is_refused(tokens, message):
    with pytest.raises(WhyformerError) as error:
        estimate_memory(MODELS["bert"](), tokens, "rollout")
    assert str(error.value) == message


def test_a_model_of_pictures_is_refused():
    vit = built("ViTForImageClassification", "ViTConfig", **IMAGE)
    with pytest.raises(WhyformerError, match="ViTForImageClassification does not read a single text"):
        estimate_memory(vit, 64, "rollout")


def test_memory_that_runs_out_while_it_is_measured_is_said(monkeypatch, bert):
    def runs_out(*args, **options):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(memory, "attribute", runs_out)
    with pytest.raises(OutOfMemory, match="Out of memory: 20 tokens need more than cpu has"):
        estimate_memory(MODELS["bert"](), 20, "rollout")
    checkup = doctor(load(bert, device="cpu"), tokens=20)
    assert checkup.memory["rollout"] is None
    assert checkup.verdicts["rollout"] == "applies; 20 tokens do not fit: fewer already ran out of memory"


def test_the_doctor_says_what_each_method_takes_and_whether_it_fits(bert, monkeypatch):
    result = CliRunner().invoke(app, ["doctor", str(bert), "--tokens", "20", "--device", "cpu", "--json"])
    document = json.loads(result.stdout)
    assert document["memory_tokens"] == 20
    assert set(document["memory"]) == set(document["methods"])
    assert 0 < document["memory"]["rollout"] < document["memory_available"]
    printed = CliRunner().invoke(app, ["doctor", str(bert), "--tokens", "20", "--device", "cpu"]).stdout
    assert "applies; 20 tokens take 0.00 GiB of" in printed
    assert printed.count(": fits") == len(document["methods"])
    monkeypatch.setattr("whyformer.api.doctor.available_bytes", lambda model: 10)
    assert doctor(load(bert, device="cpu"), tokens=20).verdicts["rollout"].endswith("does not fit")
