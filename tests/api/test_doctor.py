"""What the doctor says of models, well and unwell."""

import importlib
import json
from dataclasses import asdict, replace

import pytest
import torch
from typer.testing import CliRunner

from conftest import image_processor, tokenizer
from tiny_architectures import OTHERS
from tiny_hybrids import HYBRIDS
from tiny_models import FAMILIES, IMAGE_FAMILIES, READER, TOWER, built, text_inputs
from whyformer import METHODS, UnsupportedModel, WhyformerError, attribute, load
from whyformer.api.doctor import checkup, doctor
from whyformer.cli import app
from whyformer.methods.registry import trace_methods
from whyformer.models.loading import LoadedModel

doctor_module = importlib.import_module("whyformer.api.doctor")


def subject(family):
    processor = image_processor() if family in IMAGE_FAMILIES else tokenizer()
    return LoadedModel(FAMILIES[family](), processor, family)


def test_a_vit_is_described_and_healthy(vit):
    found = doctor(vit)
    assert found.is_healthy
    assert found.problems == found.notes == ()
    assert (found.model, found.architecture, found.family) == ("tiny-vit", "ViTForImageClassification", "vit")
    assert found.labels == ("cat", "dog", "bird", "fish")
    assert (found.precision, found.attention) == ("float32", "sdpa")
    assert (found.layers, found.records, found.maps) == (3, 3, ((3, 17, 17),) * 3)
    assert (found.stream, found.tokens, found.grid) == ("image", 17, (4, 4))
    assert (found.special_tokens, found.register_tokens, found.readout) == (("class",), 0, "first")
    assert found.logit_difference < 1e-5 < found.largest_logit
    assert found.methods == dict.fromkeys(trace_methods())
    assert found.facts["not tried"] == (
        "occlusion, rise, kernel_shap, lime, mask_regression: each runs the model many times"
    )


def test_a_bert_is_described_by_its_tokens(bert):
    found = doctor(bert)
    assert found.is_healthy
    assert (found.family, found.stream, found.grid, found.readout) == ("bert", "text", None, "first")
    assert found.special_tokens == ("[CLS]", "[SEP]")
    assert found.tokens == found.maps[0][1] == found.maps[0][2]


@pytest.mark.parametrize(
    ("family", "special", "registers", "readout"),
    [
        ("dinov2 registers", ("class",), 4, "first+mean"),
        ("deit distilled", ("class", "distillation"), 0, "both class tokens"),
        ("beit mean", ("class",), 0, "mean"),
        ("ijepa (by structure)", (), 0, "16 of 16 tokens, by the gradient"),
    ],
)
def test_the_tokens_before_the_patches_are_told_apart(family, special, registers, readout):
    found = checkup(subject(family))
    assert (found.special_tokens, found.register_tokens, found.readout) == (special, registers, readout)
    assert found.tokens == 16 + len(special) + registers
    assert found.grid == (4, 4)
    assert found.is_healthy


def test_a_family_outside_the_table_is_taken_by_structure():
    found = checkup(subject("mpnet (by structure)"))
    assert found.family == "mpnet, which needs no row in the table: one stream, with the read-out found by gradient"
    assert found.readout == f"token 1 of {found.tokens}, by the gradient"


@pytest.mark.parametrize(
    ("model", "streams", "read", "answers"),
    [
        ("mini-lxmert", ["text", "image"], "text", "a label, 24: red, pink, yellow, green, cyan, blue …"),
        ("mini-clip", ["image", "text"], "image", "how alike a picture and a text are"),
        ("mini-detr", ["image", "queries"], "queries", "a label of a detected object, 48: red circle"),
        ("mini-t5", ["source", "target"], "target", "the next token of a text"),
        ("mini-gpt", ["text"], "text", "the next token of a text"),
    ],
)
def test_every_stream_is_shown_with_its_tokens(model, streams, read, answers):
    methods = ["raw_attention", "bi_token", "transformer_attribution", "grad_eclip"]
    found = checkup(load(model, device="cpu"), names=methods)
    assert (sorted(found.streams), found.stream) == (sorted(streams), read)
    assert found.streams[read] == found.tokens
    shapes = {size for _, *sizes in found.maps for size in sizes}
    assert set(found.streams.values()) == shapes
    width = max(map(len, found.methods))
    assert width > 18
    lines = {line[:width].strip(): line[width + 1 :] for line in str(found).splitlines()}
    assert all(lines[method] == (reason or "applies") for method, reason in found.methods.items())
    assert lines["streams"] == ", ".join(f"{name} ({count} tokens)" for name, count in found.streams.items())
    assert lines["answers with"].startswith(answers)
    assert lines["first token"].split(";")[0].endswith(f"of raw_attention in the {read}")
    if model == "mini-gpt":
        assert (
            lines["family"] == "llama, which needs no row in the table: one stream, with the read-out found by gradient"
        )
        assert lines["read-out"] == f"token {found.tokens} of {found.tokens}, by the gradient"
    if model == "mini-clip":
        image, text = found.readout.split("; ")
        assert image == f"image: token 1 of {found.tokens}, by the gradient"
        assert text.startswith("text: token ")


def test_a_model_that_writes_about_pictures_is_told_its_own_default_and_its_own_method():
    found = checkup(load("mini-vlm", device="cpu"), names=["raw_attention", "tam"])
    lines = str(found).splitlines()
    assert found.facts["special tokens"] == "<|begin|>, <|user|>, <image> (256×), <|end|>, <|assistant|>"
    assert found.methods["tam"] is None
    assert "note: Default method: generic_attention by libra." in lines
    assert max(map(len, lines)) < 120


def test_the_first_tokens_share_is_that_of_raw_attention(vit):
    loaded_model, seen = load(vit), {}
    loaded_model.model.register_forward_pre_hook(lambda _, __, inputs: seen.update(inputs), with_kwargs=True)
    found = checkup(loaded_model)
    scores = attribute(loaded_model.model, dict(seen), method="raw_attention")["image"][0]
    assert found.first_token_share == pytest.approx(float(scores[0] / scores.sum()))
    assert found.first_content_share == pytest.approx(float(scores[1] / scores[1:].sum()))


def test_a_collapse_onto_the_first_content_token_is_noted(vit, monkeypatch):
    def collapsed(model, inputs, target, method):
        scores = attribute(model, inputs, target, method=method)
        scores["image"][:, 1] = 9 * scores["image"][:, 2:].sum(dim=1)
        return scores

    monkeypatch.setattr(doctor_module, "attribute", collapsed)
    found = doctor(vit)
    assert found.first_content_share == pytest.approx(0.9)
    assert found.notes == (
        "raw_attention puts 90% of its score on the first of 16 content tokens: prefer another method.",
    )
    assert found.is_healthy


def test_what_a_method_cannot_see_is_a_reason_and_no_illness(levit):
    found = doctor(levit)
    assert found.methods["rollout"] is None
    assert found.methods["grad_cam"] is None
    assert "bi_token needs the residual state and W_o and W_v of block 0" in found.methods["bi_token"]
    assert found.is_healthy


def test_half_precision_is_given_its_own_tolerance(vit):
    found = checkup(load(vit, dtype=torch.bfloat16))
    assert found.precision == "bfloat16"
    assert 1e-3 * found.largest_logit < found.logit_difference < 0.05 * found.largest_logit
    assert not [problem for problem in found.problems if "logits" in problem]


def drifting(vit):
    """A model whose logits are others at every call."""
    loaded_model, calls = load(vit), []

    def drift(_, __, output):
        calls.append(output)
        output.logits = output.logits + 0.1 * len(calls) * torch.arange(4)
        return output

    loaded_model.model.register_forward_hook(drift)
    return loaded_model


def test_a_model_that_answers_otherwise_when_recorded_is_unwell(vit):
    found = checkup(drifting(vit))
    assert not found.is_healthy
    assert found.problems[0].startswith("The recorded logits differ by 0.3 from the plain model's")


def test_a_method_that_fails_is_a_problem(vit, monkeypatch):
    def broken(trace):
        raise WhyformerError("It broke.")

    def confused(trace):
        raise TypeError("Got unsupported ScalarType")

    def endless(trace):
        return {"image": torch.full((1, 17), torch.nan)}

    for name, scores in {"bi_head": broken, "random": confused, "partial_lrp": endless}.items():
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], formula=scores))
    found = doctor(vit)
    assert found.problems == (
        "bi_head fails: It broke.",
        "random fails: Got unsupported ScalarType",
        "partial_lrp gives scores that are not finite.",
    )
    assert found.methods["bi_head"] == "It broke."


def test_what_has_no_attention_or_no_processor_is_refused(resnet, vit):
    with pytest.raises(UnsupportedModel, match="ResNetForImageClassification ran no attention operation"):
        doctor(resnet)
    with pytest.raises(WhyformerError, match="bare has no processor"):
        checkup(LoadedModel(load(vit).model, None, "bare"))


@pytest.mark.parametrize("name", ["MiniMax", "Longformer", "BigBird in blocks"])
def test_a_text_model_without_maps_is_told_why_and_what_applies(name):
    model = {**HYBRIDS, **OTHERS}[name]()
    found = doctor(model, tokenizer(), tokens=16)
    assert found.is_healthy
    assert (found.maps, found.stream, found.readout) == ((), "text", "unknown without maps")
    applies = [method for method, reason in found.methods.items() if reason is None]
    assert {"input_x_gradient", "integrated_gradients", "gradient_shap"} <= set(applies)
    assert set(found.memory) == set(applies)
    assert min(found.memory.values()) > 0
    with pytest.raises(UnsupportedModel) as refusal:
        attribute(model, text_inputs(), 1, "rollout")
    reason = str(refusal.value)
    assert found.methods["rollout"] == found.notes[0] == reason
    instead = "integrated_gradients instead."
    assert found.notes[1:] == (f"Default method: evidence does not apply here ({reason.split('. ')[0]}): {instead}",)
    lines = found.facts
    assert (lines["maps"], lines["first token"]) == ("none for all of its layers and tokens", "unknown without maps")


def test_the_command_prints_what_was_found(vit):
    result = CliRunner().invoke(app, ["doctor", str(vit)])
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for line in ("3 for 3 layers", "3 × [3, 17, 17] (head, query, key)", "4×4 patches", "rollout applies", "healthy"):
        assert line in words
    assert result.stderr == ""


def test_json_says_the_same(vit):
    result = CliRunner().invoke(app, ["doctor", str(vit), "--json"])
    expected = json.loads(json.dumps({"is_healthy": True, **asdict(doctor(vit))}))
    assert json.loads(result.stdout) == expected


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_exit_code_says_that_something_is_wrong(vit, monkeypatch, flags):
    unwell = checkup(drifting(vit))
    monkeypatch.setattr(doctor_module, "checkup", lambda _, tokens=None: unwell)
    result = CliRunner().invoke(app, ["doctor", str(vit), *flags])
    assert result.exit_code == 1
    assert "logits differ by" in " ".join(result.stdout.split())
    assert result.stderr == ""


def test_a_pool_that_only_reads_the_picture_has_no_share_of_its_own():
    loaded_model = load("mini-clip", device="cpu")
    text = TOWER | READER | {"vocab_size": len(loaded_model.tokenizer), "max_position_embeddings": 40}
    image = TOWER | {"image_size": loaded_model.model.config.vision_config.image_size, "patch_size": 8}
    found = doctor(built("SiglipModel", "SiglipConfig", text_config=text, vision_config=image), loaded_model.processor)
    assert (found.stream, found.first_token_share, found.is_healthy) == ("pool", 0.0, True)


def test_what_fails_without_a_word_does_not_apply(vit, monkeypatch):
    def silent(trace):
        raise StopIteration

    def endless(trace):
        return {"image": torch.full((1, 17), torch.nan)}

    for name, scores in {"bi_head": silent, "partial_lrp": endless}.items():
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], formula=scores))
    result = doctor(vit)
    assert result.problems == (
        "bi_head fails: StopIteration, without a message",
        "partial_lrp gives scores that are not finite.",
    )
    lines = dict(
        line.split(maxsplit=1) for line in str(result).splitlines() if line.startswith(("bi_head", "partial_lrp"))
    )
    assert lines == {
        "bi_head": "StopIteration, without a message",
        "partial_lrp": "gives scores that are not finite.",
    }
    assert repr(result).endswith(
        f"{len(trace_methods()) - 2} of {len(trace_methods())} methods apply; not healthy: "
        "bi_head fails: StopIteration, without a message; partial_lrp gives scores that are not finite.>"
    )


def test_methods_that_fail_for_one_reason_are_said_together(vit, monkeypatch):
    def broken(trace):
        raise WhyformerError("It broke.")

    for name in ("bi_head", "random", "partial_lrp"):
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], formula=broken))
    assert doctor(vit).problems == ("bi_head, random and partial_lrp fail: It broke.",)


def test_a_checkup_in_a_notebook_is_a_table(vit):
    result = replace(doctor(vit), labels=("<b>cat</b>", "dog"), notes=("a & b",))
    page = result._repr_html_()
    assert page.count("<tr>") == len(result.facts) + len(trace_methods())
    assert "&lt;b&gt;cat&lt;/b&gt;, dog" in page
    assert "<p>note: a &amp; b</p><p>healthy</p>" in page
    count, name = len(trace_methods()), "tiny-vit (ViTForImageClassification)"
    assert repr(result) == f"<Checkup of {name}; {count} of {count} methods apply; healthy>"
