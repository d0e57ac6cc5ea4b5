"""Model folders from strangers: nothing outside the folder, no pickle and no code is read, and all that is read is
in the audit."""

import json
import os
import pickle
import shutil
import socket
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import whyformer
from conftest import change_config
from whyformer import WhyformerError, load
from whyformer.inputs.prompt import render_messages
from whyformer.models.digests import setting_digests, weight_digests
from whyformer.models.zoo import ZOO

FILM = "the film was not bad"
INDEX = "model.safetensors.index.json"
OPENED = []  # the paths that Python opens while it is not None there; an audit hook cannot be removed again
sys.addaudithook(lambda event, arguments: OPENED and event == "open" and OPENED.append(arguments[0]))


@pytest.fixture(autouse=True)
def no_pickle_and_no_network(monkeypatch):
    """Whatever would run code of a file or fetch one fails loudly, with an error that no reader catches."""

    def refuse(*_, **__):
        pytest.exit("a pickle or the network was reached")

    for module, name in [
        (torch, "load"),
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (socket.socket, "connect"),
        (transformers.integrations.hub_kernels, "get_kernel"),
    ]:
        monkeypatch.setattr(module, name, refuse)


@pytest.fixture
def folder(bert, copy_of):
    return copy_of(bert)


def shard(folder, name, *, at=None):
    """Move the weights to `at`, and have an index name them."""
    weights = load_file(folder / "model.safetensors")
    place = Path(at or folder / name)
    place.parent.mkdir(exist_ok=True)
    save_file(weights, place, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(weights, str(name))}
    (folder / INDEX).write_text(json.dumps(index))


def refusal_of(folder):
    with pytest.raises(WhyformerError) as refusal:
        load(folder, device="cpu")
    assert "\n" not in str(refusal.value)
    assert str(folder) in str(refusal.value)
    return str(refusal.value)


def test_an_index_that_names_a_pickle_is_refused(folder):
    shard(folder, "weights/x.bin")
    assert "names 'weights/x.bin', and only *.safetensors is ever read" in refusal_of(folder)


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "sub/../../outside.safetensors", "ABSOLUTE", "c:\\x.safetensors"]
)
def test_an_index_that_names_a_file_outside_the_folder_is_refused(folder, tmp_path, name):
    outside = tmp_path / "outside.safetensors"
    shard(folder, outside if name == "ABSOLUTE" else name, at=outside)
    assert "which is not in its folder" in refusal_of(folder)


def test_weights_in_a_sub_folder_are_loaded_and_digested(bert, folder):
    shard(folder, "parts/one.safetensors")
    shutil.copy(bert / "model.safetensors", folder / "decoy.safetensors")
    loaded_model = load(folder, device="cpu")
    assert torch.equal(loaded_model.model.classifier.weight, load(bert, device="cpu").model.classifier.weight)
    assert list(weight_digests(loaded_model.model, loaded_model.place)) == ["parts/one.safetensors"]


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_link_that_leaves_the_folder_is_refused(folder, tmp_path, file):
    (folder / file).rename(tmp_path / "elsewhere")
    (folder / file).symlink_to(tmp_path / "elsewhere")
    assert f"{file} of " in refusal_of(folder)


def test_a_link_within_the_folder_is_followed(bert, folder):
    (folder / "parts").mkdir()
    (folder / "model.safetensors").rename(folder / "parts" / "x")
    (folder / "model.safetensors").symlink_to("parts/x")
    assert torch.equal(load(folder).model.classifier.weight, load(bert).model.classifier.weight)


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "evil/kernel"},
        {"_attn_implementation": "evil/kernel@main:attention"},
        {"attn_implementation": {"": "sdpa", "text_config": "paged|evil/kernel"}},
        {"attn_implementation": "flash_attention_2"},
        {"experts_implementation": "evil/kernel"},
        {"text_config": {"attn_implementation": "evil/kernel"}},
        {"quantization_config": {"quant_method": "eetq"}},
        {"quantization_config": {"quant_method": "gptq", "dataset": "evil/texts", "bits": 4}},
        {"quantization_config": 3},
        {"transformers_weights": "other.safetensors"},
        {"model_args": {"checkpoint_path": "x.bin"}},
        {"architecture": "hf-hub:evil/model"},
        {"backbone": "evil/model"},
    ],
    ids=str,
)
def test_a_config_that_asks_for_code_or_other_files_is_refused(folder, settings):
    change_config(folder, **settings)
    key = next(iter(settings)) if "text_config" not in settings else "attn_implementation"
    assert f"asks for {key} " in refusal_of(folder)


def test_attention_that_is_part_of_the_libraries_may_be_named(folder):
    change_config(folder, attn_implementation="eager")
    assert load(folder).model.config._attn_implementation == "eager"


def test_an_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "x/y"}))
    (folder / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert "has an adapter (adapter_config.json): merge it" in refusal_of(folder)


def test_shards_of_a_distributed_run_are_refused(folder):
    shutil.copy(folder / "model.safetensors", folder / "shard-00001-model-00001-of-00001.safetensors")
    assert "has the shards of a distributed run" in refusal_of(folder)


def test_a_processor_that_names_another_model_is_refused(folder):
    other = {"audio_tokenizer_class": "DacModel", "audio_tokenizer_name_or_path": "evil/model"}
    (folder / "processor_config.json").write_text(json.dumps({"audio_tokenizer": other}))
    assert "names another model to be loaded (processor_config.json: audio_tokenizer)" in refusal_of(folder)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.json", "[" * 100_000, "its configuration cannot be used"),
        ("config.json", '{"a":' * 500 + "1" + "}" * 500, "more than 100 levels of lists and objects"),
        ("config.json", "[]", r"its config.json is \[\], not an object"),
        ("config.json", '{"model_type": "bert", "model_type": "vit"}', "the key 'model_type' occurs twice"),
        ("tokenizer_config.json", "[" * 100_000, "its processor cannot be used"),
        (INDEX, "[" * 100_000, "more than 100 levels"),
        (INDEX, '{"weight_map": {"a": 3}}', "names no files"),
    ],
)
def test_files_that_are_nested_or_of_another_shape_are_refused(folder, file, content, reason):
    if file == INDEX:
        (folder / "model.safetensors").unlink()
    (folder / file).write_text(content)
    with pytest.raises(WhyformerError, match=reason) as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("architectures", [[3], 3, {"a": 1}, [None], "BertForSequenceClassification"])
def test_architectures_that_are_no_class_names_are_refused(folder, architectures):
    change_config(folder, architectures=architectures)
    assert "a list of class names" in refusal_of(folder)


@pytest.mark.parametrize("name", ["nul\0", "x" * 5000, "x/" * 2500, "\0" * 9])
def test_a_name_that_no_file_can_have_is_one_short_line(name):
    for call in (load, lambda place: whyformer.explain(FILM, place)):
        with pytest.raises(WhyformerError, match=r"^No model '") as refusal:
            call(name)
        assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("url", ["https://huggingface.co/google/vit", "http://example.org/model", "file:///tmp/model"])
def test_a_url_is_not_fetched_as_a_model(url):
    with pytest.raises(WhyformerError, match="is a URL, and URLs are not fetched: give a folder or a Hugging Face id"):
        load(url)


@pytest.mark.parametrize("url", ["https://example.org/photo.jpg", "http://example.org/a b.png"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_url_is_not_fetched_as_an_example(url, kind):
    with pytest.raises(WhyformerError, match=r"'https?://.*' is a URL, and URLs are not fetched: download it first"):
        whyformer.explain(kind(url), "mini-vit")


def test_after_any_file_that_is_read_has_changed_the_weights_do_not_agree(folder, tmp_path):
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("{{ messages }}")
    shard(folder, "parts/one.safetensors")
    audit = tmp_path / "film.audit.json"
    whyformer.explain(FILM, str(folder), method="rollout").save(audit)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 7
    for file in files:
        content = file.read_bytes()
        file.write_bytes(_changed(file, content))
        weights = whyformer.verify(audit).checks[0]
        assert (weights.name, weights.agrees) == ("weights", False), file
        assert weights.finding.startswith(f"{file.relative_to(folder).as_posix()} has SHA-256")
        file.write_bytes(content)
    assert whyformer.verify(audit).checks[0].agrees


def _changed(file, content):
    if file.suffix != ".safetensors":
        return content + b"\n"
    weights = load_file(file)
    weights["classifier.bias"] += 1
    save_file(weights, file, {"format": "pt"})
    return file.read_bytes()


def test_a_file_that_appears_is_seen(folder, tmp_path):
    whyformer.explain(FILM, str(folder), method="rollout").save(tmp_path / "film.audit.json")
    (folder / "added_tokens.json").write_text("{}")
    assert not whyformer.verify(tmp_path / "film.audit.json").checks[0].agrees


def test_an_audit_of_files_that_changed_after_they_were_loaded_is_refused(folder, tmp_path):
    loaded_model = load(folder, device="cpu")
    explanation = whyformer.explain(FILM, loaded_model, method="rollout")
    file = folder / "model.safetensors"
    before = file.stat()
    _changed(file, file.read_bytes())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(WhyformerError, match=r"model.safetensors of '.*' changed since it was loaded: load it again"):
        explanation.save(tmp_path / "film.audit.json")


@pytest.mark.parametrize("name", ["mini-bert", "mini-vit", "mini-vlm", "mini-clip"])
def test_every_file_that_python_opens_is_in_the_audit(name):
    OPENED.append("")
    try:
        loaded_model = load(name, device="cpu")
    finally:
        paths = [Path(path) for path in OPENED if isinstance(path, (str, Path)) and str(path).startswith(str(ZOO))]
        OPENED.clear()
    digests = weight_digests(loaded_model.model, name) | setting_digests(loaded_model.model, name)
    names = {path.relative_to(ZOO / name).as_posix() for path in paths}
    assert {"config.json"} < names <= digests.keys()


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(1000000000) %}x{% endfor %}",
        LOOP,
        LOOP.replace("x", "{% set y = a %}"),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 10000001 }}",
    ],
)
def test_a_chat_template_that_asks_for_too_much_is_stopped(template, monkeypatch):
    monkeypatch.setattr("whyformer.inputs.chat_template.LINES", 50_000)
    loaded_model = load("mini-llm", device="cpu")
    monkeypatch.setattr(loaded_model.tokenizer, "chat_template", template)
    before = sys.gettrace()
    with pytest.raises(WhyformerError, match=r"The chat template (exceeds its limits|renders 1)") as refusal:
        render_messages(loaded_model, [{"role": "user", "content": "hi"}])
    assert "\n" not in str(refusal.value)
    assert sys.gettrace() is before
