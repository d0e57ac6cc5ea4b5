"""Folders of LoRA adapters: explained like the merged model, on a base that is here or named, and never trusted."""

import copy
import json

import peft
import pytest
import torch

import whyformer
from conftest import MOODS, labelled, saved, tokenizer
from tiny_models import TEXT, built
from whyformer import WhyformerError, explain, load

FILM = "the film was not bad"
SIZES = TEXT | labelled(MOODS)


@pytest.fixture
def base(tmp_path):
    return saved(tmp_path / "base", built("BertForSequenceClassification", "BertConfig", **SIZES), tokenizer())


def save_adapter(base, folder, **settings):
    """An adapter of the base model with random weights, and the model that it makes when it is merged."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]} | settings
    model = peft.get_peft_model(load(base, device="cpu").model, peft.LoraConfig(**settings))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.save_pretrained(folder)
    change(folder, base_model_name_or_path=str(base))
    return copy.deepcopy(model).merge_and_unload().eval()


def change(folder, **settings):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def refusal_of(place):
    with pytest.raises(WhyformerError) as error:
        load(place, device="cpu")
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_rslora": True, "rank_pattern": {"query": 2}},
        {"target_modules": r".*\.(query|value)"},
        {"modules_to_save": ["classifier"]},
        {"bias": "lora_only"},
        {"init_lora_weights": "gaussian"},
    ],
    ids=str,
)
def test_an_adapter_is_explained_like_the_merged_model(base, tmp_path, settings):
    merged = save_adapter(base, tmp_path / "adapter", **settings)
    ours = explain(FILM, tmp_path / "adapter", target="bad", method="generic_attention")
    theirs = explain(FILM, merged, target="bad", method="generic_attention", processor=tokenizer())
    torch.testing.assert_close(torch.as_tensor(ours.scores), torch.as_tensor(theirs.scores), rtol=1e-4, atol=1e-6)
    plain = explain(FILM, base, target="bad", method="generic_attention")
    assert abs(torch.as_tensor(plain.scores) - torch.as_tensor(ours.scores)).max() > 1e-4


def test_the_adapter_is_not_merged_and_doctor_says_so(base, tmp_path):
    save_adapter(base, tmp_path / "adapter")
    loaded_model = load(tmp_path / "adapter", device="cpu")
    assert loaded_model.name == "adapter on base"
    assert any("lora_A" in name for name, _ in loaded_model.model.named_parameters())
    note = f"The adapter adapter (LoRA, r = 4) is on {base}, unmerged."
    assert note in whyformer.doctor(tmp_path / "adapter").notes


def test_the_audit_has_the_digests_of_the_adapter_and_of_its_base(base, tmp_path):
    save_adapter(base, tmp_path / "adapter")
    explanation = explain(FILM, tmp_path / "adapter", method="rollout")
    weights = explanation.audit(explanation)["model"]["weights"]
    assert list(weights) == ["adapter_model.safetensors", "base/model.safetensors"]


def test_a_base_that_is_not_here_is_asked_for_and_can_be_named(base, tmp_path):
    merged = save_adapter(base, tmp_path / "adapter")
    change(tmp_path / "adapter", base_model_name_or_path="somebody/base")
    refusal = refusal_of(tmp_path / "adapter")
    assert (
        f"is an adapter of 'somebody/base', which is not a local folder: load '{tmp_path}/adapter?base=FOLDER'"
        in refusal
    )
    named = load(f"{tmp_path}/adapter?base={base}", device="cpu").model
    inputs = tokenizer()(FILM, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(named(**inputs).logits, merged(**inputs).logits, rtol=1e-4, atol=1e-5)


def test_an_adapter_of_another_model_is_refused(base, tmp_path):
    save_adapter(base, tmp_path / "adapter")
    other = built("BertForSequenceClassification", "BertConfig", **SIZES | {"num_hidden_layers": 1})
    folder = saved(tmp_path / "other", other, tokenizer())
    assert "does not exist in its base model: it was trained on another model" in refusal_of(
        f"{tmp_path}/adapter?base={folder}"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "IA3"}, "is an adapter of the kind 'IA3', and only LORA is read: merge it."),
        ({"corda_config": {"cache_file": "/etc/passwd"}}, "asks for corda_config {'cache_file': '/etc/passwd'}"),
        ({"megatron_core": "evil.module"}, "asks for megatron_core 'evil.module' in its adapter_config.json"),
        ({"layer_replication": [[0, 4]]}, "asks for layer_replication [[0, 4]] in its adapter_config.json"),
        ({"init_lora_weights": "pissa"}, "asks for init_lora_weights 'pissa' in its adapter_config.json"),
        ({"unheard_of": "x"}, "asks for unheard_of 'x' in its adapter_config.json"),
        ({"r": 10**9}, "has ranks [1000000000] in its adapter_config.json: whole numbers up to 4096."),
        ({"rank_pattern": {"(a*)*b": 2}}, "names modules by '(a*)*b' in its adapter_config.json: give their plain"),
        ({"target_modules": "(" * 30}, "has target_modules '(((((((((((((((((((((((((((((('"),
    ],
)
def test_an_adapter_that_asks_for_files_code_or_too_much_is_refused(base, tmp_path, settings, message):
    save_adapter(base, tmp_path / "adapter")
    change(tmp_path / "adapter", **settings)
    assert message in refusal_of(tmp_path / "adapter")


def test_pickled_weights_and_links_are_never_read(base, tmp_path):
    save_adapter(base, tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    weights.rename(tmp_path / "elsewhere.safetensors")
    weights.symlink_to(tmp_path / "elsewhere.safetensors")
    assert "is a link out of its folder: copy the file" in refusal_of(tmp_path / "adapter")
    weights.unlink()
    (tmp_path / "adapter" / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert "has no adapter_model.safetensors, the only weights of an adapter that are read" in refusal_of(
        tmp_path / "adapter"
    )


def test_only_adapters_take_a_base(base):
    assert "has no adapter_config.json: ?base=… names the base model" in refusal_of(f"{base}?base={base}")
