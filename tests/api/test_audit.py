"""Audit files: what they keep of an explanation, and what verifying them says."""

import copy
import gc
import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

import whyformer
from commands import invoke, refusal, run
from conftest import FILM
from whyformer.errors import WhyformerError
from whyformer.files import file_digest
from whyformer.inputs.identity import identity_of, restore_example
from whyformer.methods.registry import trace_methods
from whyformer.models.digests import module_digest
from whyformer.models.loading import load, quiet
from whyformer.models.zoo import ZOO
from whyformer.targets.scores import Contrast, Detection, Moment, Pixel, PlacedLabel, Region
from whyformer.targets.target_documents import read_target, target_document


def change(path, *place, to):
    document = json.loads(path.read_text())
    *before, last = place
    inner = document
    for step in before:
        inner = inner[step]
    if to is KeyError:
        del inner[last]
    else:
        inner[last] = to
    path.write_text(json.dumps(document))


def disagreements(verification):
    return {check.name: check.finding for check in verification.checks if not check.agrees}


def test_an_audit_file_keeps_all_that_computing_it_again_needs(audit, own_bert):
    document = json.loads(audit.read_text())
    weights = hashlib.sha256((own_bert / "model.safetensors").read_bytes()).hexdigest()
    assert (document["format"], document["version"]) == ("whyformer-audit", 1)
    assert document["model"]["weights"] == {"model.safetensors": weights}
    files = {name: hashlib.sha256((own_bert / name).read_bytes()).hexdigest() for name in document["model"]["files"]}
    assert document["model"]["files"] == files
    assert set(files) == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert document["model"]["place"] == str(own_bert)
    assert document["input"] == {"kind": "text", "text": FILM, "sha256": hashlib.sha256(FILM.encode()).hexdigest()}
    assert document["question"] == {"target": "predicted", "readout": None, "truncate": False}
    computation = document["computation"]
    assert (computation["device"], computation["dtype"]) == ("cpu", "float32")
    assert computation["versions"]["torch"] == torch.__version__
    assert computation["versions"]["transformers"] == transformers.__version__
    assert isinstance(computation["seed"], int)
    assert document["doctor"]["is_healthy"]
    assert document["doctor"]["method"] == "applies"
    assert document["controls"] is None
    expected = whyformer.explain(FILM, str(own_bert), method="rollout").to_dict()
    assert document["explanation"] == {name: value for name, value in expected.items() if name != "answers"}


def test_the_controls_of_a_published_run_are_quoted(tmp_path):
    by_method = whyformer.explain("A wonderful film.", "mini-bert", method="bi_token", backward="libra")
    by_method.save(tmp_path / "film.audit.json")
    controls = json.loads((tmp_path / "film.audit.json").read_text())["controls"]
    published = Path(__file__).parents[2] / "benchmarks" / "results" / "evaluation" / "bert-sanity.json"
    (protocol,) = (one for one in json.loads(published.read_text())["protocols"] if one["protocol"] == "saco")
    (row,) = (one for one in protocol["figures"][0]["rows"] if one["method"] == "bi_token backward=libra")
    (figure,) = (one for one in controls["figures"] if one["protocol"] == "saco")
    assert (controls["suite"], controls["samples"]) == ("bert-sanity", 100)
    assert figure["value"] == row["value"]


def test_the_controls_in_the_package_are_those_of_the_committed_runs():
    import controls

    assert json.loads(controls.FILE.read_text(encoding="utf-8")) == controls.controls()


def test_what_was_computed_is_verified(audit):
    verification = whyformer.verify(audit)
    assert verification.agrees
    compared = ["weights", "input", "target", "probability", "scores", "model", "explanation"]
    assert [check.name for check in verification.checks] == [*compared, "tolerance", "doctor", "controls"]
    assert verification.notes == ()
    assert verification.not_checked == ("created", "computation")
    assert str(verification).endswith("verified")


def test_other_weights_are_found(audit, own_bert):
    weights = load_file(own_bert / "model.safetensors")
    weights["classifier.bias"] += 1e-3
    save_file(weights, own_bert / "model.safetensors", {"format": "pt"})
    found = disagreements(whyformer.verify(audit))
    assert list(found) == ["weights"]
    assert found["weights"].startswith("model.safetensors has SHA-256 ")


def test_another_text_is_found(audit):
    change(audit, "input", "text", to="the film was bad")
    found = disagreements(whyformer.verify(audit))
    assert list(found) == ["input"]
    assert found["input"].startswith("the text in the audit file has SHA-256 ")


def test_another_score_is_found_and_said_where(audit):
    scores = json.loads(audit.read_text())["explanation"]["parts"]["text"]["scores"]
    change(audit, "explanation", "parts", "text", "scores", 1, to=scores[1] + 0.01 * max(scores))
    found = disagreements(whyformer.verify(audit))
    assert list(found) == ["scores"]
    assert "1.0e-02 of the largest score apart, 0.001 is allowed; token 2 of text, 'film': " in found["scores"]
    assert whyformer.verify(audit, tolerance=0.02).agrees


def test_a_score_that_is_no_number_never_agrees(audit):
    text = audit.read_text()
    score = json.loads(text)["explanation"]["parts"]["text"]["scores"][0]
    audit.write_text(text.replace(repr(score), "NaN"))
    assert list(disagreements(whyformer.verify(audit))) == ["scores"]


@pytest.mark.parametrize(
    ("place", "value", "name"),
    [
        (("explanation", "target"), "odd odd", "target"),
        (("explanation", "probability"), 0.999, "probability"),
        (("explanation", "probability"), None, "probability"),
        (("explanation", "parts", "text", "tokens"), ["the", "film", "was", "not", "great"], "scores"),
        (("explanation", "parts"), {}, "scores"),
        (("tolerance",), "low", "tolerance"),
    ],
)
def test_whatever_else_was_changed_is_found(audit, place, value, name):
    change(audit, *place, to=value)
    assert next(iter(disagreements(whyformer.verify(audit)))) == name


def test_other_versions_are_noted_and_no_disagreement(audit):
    change(audit, "computation", "versions", "torch", to="2.0")
    verification = whyformer.verify(audit)
    assert verification.agrees
    assert verification.notes == (f"torch {torch.__version__}, kept 2.0",)


def test_a_picture_is_found_by_its_path_or_as_it_is_given(vit, tmp_path):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8))
    file = tmp_path / "noise.png"
    picture.save(file)
    whyformer.explain(str(file), str(vit)).save(tmp_path / "file.audit.json")
    whyformer.explain(picture, str(vit)).save(tmp_path / "memory.audit.json")
    assert whyformer.verify(tmp_path / "file.audit.json").agrees
    assert whyformer.verify(tmp_path / "memory.audit.json", inputs=[picture]).agrees
    assert whyformer.verify(tmp_path / "memory.audit.json", inputs=[file]).agrees
    with pytest.raises(WhyformerError, match=r"picture is in the audit file by its digest alone: give it by --input"):
        whyformer.verify(tmp_path / "memory.audit.json")
    Image.eval(picture, lambda value: 255 - value).save(tmp_path / "other.png")
    found = disagreements(whyformer.verify(tmp_path / "memory.audit.json", inputs=[tmp_path / "other.png"]))
    assert found["input"].startswith("the picture given has SHA-256 ")
    file.rename(tmp_path / "moved.png")
    with pytest.raises(WhyformerError, match=r"No file '.*noise.png', which was explained: give it by --input"):
        whyformer.verify(tmp_path / "file.audit.json")
    assert whyformer.verify(tmp_path / "file.audit.json", inputs=[tmp_path / "moved.png"]).agrees


def test_a_module_of_ones_own_is_told_by_its_tensors(bert, tmp_path):
    loaded = load(bert, device="cpu")
    module = copy.deepcopy(loaded.model)
    module.config._name_or_path = ""
    whyformer.explain(FILM, module, processor=loaded.processor, target="good").save(tmp_path / "own.audit.json")
    kept = json.loads((tmp_path / "own.audit.json").read_text())["model"]
    assert kept["weights"] == {"memory": module_digest(module)}
    with pytest.raises(WhyformerError, match="explains your own module: pass it as model="):
        whyformer.verify(tmp_path / "own.audit.json")
    again = {"model": module, "processor": loaded.processor}
    assert whyformer.verify(tmp_path / "own.audit.json", **again).agrees
    with torch.no_grad():
        module.classifier.bias[0] += 1
    assert list(disagreements(whyformer.verify(tmp_path / "own.audit.json", **again))) == ["weights"]


def test_a_module_that_says_where_it_is_from_is_found_there(bert, tmp_path):
    with quiet():
        module = transformers.BertForSequenceClassification.from_pretrained(bert).eval()
    whyformer.explain(FILM, module).save(tmp_path / "own.audit.json")
    assert whyformer.verify(tmp_path / "own.audit.json").agrees


@pytest.mark.parametrize("batch", [1, 3])
def test_each_of_a_batch_is_verified_by_itself(bert, tmp_path, batch):
    texts = [FILM, "a film", "the film was great and not bad"]
    targets = ["good", Contrast("bad", "good"), "predicted"]
    for text, target in zip(texts, targets, strict=True):
        explanations = whyformer.explain_batch(texts, bert, target, batch_size=batch)
        explanations[texts.index(text)].save(tmp_path / "one.audit.json")
        assert whyformer.verify(tmp_path / "one.audit.json", tolerance=1e-5).agrees


def test_options_and_the_way_gradients_are_taken_are_kept(bert, tmp_path):
    asked = {"method": "generic_attention", "backward": "libra", "clamp": "after"}
    whyformer.explain(FILM, bert, **asked).save(tmp_path / "film.audit.json")
    assert whyformer.verify(tmp_path / "film.audit.json", tolerance=0).agrees
    change(tmp_path / "film.audit.json", "explanation", "options", "clamp", to="before")
    assert list(disagreements(whyformer.verify(tmp_path / "film.audit.json", tolerance=1e-9))) == ["scores"]


def test_a_function_as_a_target_is_named_and_cannot_be_verified(bert, tmp_path):
    whyformer.explain(FILM, bert, target=whyformer.logit(1)).save(tmp_path / "film.audit.json")
    with pytest.raises(WhyformerError, match=r"cannot be verified: its target was a custom function \(logit"):
        whyformer.verify(tmp_path / "film.audit.json")


@pytest.mark.parametrize(
    "target",
    [
        "good",
        3,
        Contrast("a", 1),
        Detection(2, "cat"),
        PlacedLabel(range(1, 3), Contrast("a", "b")),
        PlacedLabel("word"),
        Moment(0.5, "a"),
        Pixel(0.25, 0.5, "road"),
        Region("road", (0.0, 0.5, 1.0, 1.0)),
    ],
)
def test_targets_come_back_from_json(target):
    assert read_target(json.loads(json.dumps(target_document(target)))) == target


def test_examples_of_several_parts_come_back(tmp_path):
    (tmp_path / "a.txt").write_text("read me")
    candidates = whyformer.Candidates(("sport", "art"), "About {}.")
    example = (tmp_path / "a.txt", [{"role": "user", "content": "hi"}, 3, None], candidates)
    found = restore_example(json.loads(json.dumps(identity_of(example))))
    assert found.example == example
    assert found.differences == ()


@pytest.mark.parametrize(
    "example",
    [
        whyformer.Sound(np.linspace(-1, 1, 9, dtype=np.float32), 8000),
        whyformer.Regions(Image.new("RGB", (4, 4)), np.array([[0, 0, 2, 2]]), np.ones((1, 3))),
        np.zeros(5),
    ],
    ids=lambda example: type(example).__name__,
)
def test_what_is_kept_by_digest_is_told_from_others(example):
    kept = json.loads(json.dumps(identity_of(example)))
    assert restore_example(kept, [example]).differences == ()
    kept["sha256"] = "0" * 64
    assert len(restore_example(kept, [example]).differences) == 1


def test_inputs_that_stand_for_nothing_are_refused(audit):
    with pytest.raises(WhyformerError, match="1 of 1 inputs are not needed: texts are in the audit file itself"):
        whyformer.verify(audit, inputs=["cat.png"])


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("format",), "other", "is not an audit file: its format is not whyformer-audit"),
        (("version",), 9, "has version 9, but this Whyformer reads version 1"),
        (("model",), KeyError, "cannot be verified: 'model' is missing"),
        (("model", "weights"), [], r"its weights is \[\], not an object"),
        (("model", "place"), "nowhere at all", "No model 'nowhere at all'"),
        (("computation", "dtype"), "float3", "dtype='float3'"),
        (("computation", "seed"), "none", "its seed is 'none', not an integer"),
        (("input",), {"kind": "smell"}, "its input is {'kind': 'smell'}, which is not a valid example"),
        (("question", "target"), {"kind": "os"}, "its target is {'kind': 'os'}, which is not a kind of target"),
        (("question", "target"), {"kind": "Pixel"}, "cannot be verified: TypeError"),
        (("question", "truncate"), 1, "its truncate is 1, not true or false"),
        (("explanation",), [], r"its explanation is \[\], not an object"),
        (("explanation", "method"), "rolout", "No method named 'rolout'"),
        (("explanation", "options"), {"x": 1}, "x"),
        (("explanation", "parts", "text", "scores"), ["a"], "its scores is 'a', not a number"),
        (("explanation", "parts", "text", "tokens"), KeyError, "'tokens' is missing"),
    ],
)
def test_a_damaged_audit_file_gets_one_line(audit, place, value, reason):
    change(audit, *place, to=value)
    with pytest.raises(WhyformerError, match=reason) as error:
        whyformer.verify(audit)
    assert "\n" not in str(error.value)


def test_no_json_no_file_and_a_plain_explanation_are_refused_in_a_line(tmp_path, audit, own_bert):
    (tmp_path / "x.audit.json").write_text("{")
    with pytest.raises(WhyformerError, match="is not an audit file: it is not JSON"):
        whyformer.verify(tmp_path / "x.audit.json")
    with pytest.raises(WhyformerError, match="No file"):
        whyformer.verify(tmp_path / "none.audit.json")
    explanation = whyformer.explain(FILM, str(own_bert))
    explanation.save(tmp_path / "plain.json")
    with pytest.raises(WhyformerError, match="its format is not whyformer-audit"):
        whyformer.verify(tmp_path / "plain.json")
    with pytest.raises(WhyformerError, match=r"it is an audit file: whyformer.verify reads it"):
        whyformer.Explanation.load(audit)
    with pytest.raises(WhyformerError, match="not a result that was loaded from a file: explain again"):
        whyformer.Explanation.load(tmp_path / "plain.json").save(tmp_path / "plain.audit.json")


def test_what_no_file_can_keep_is_refused_and_nothing_written(bert, tmp_path):
    explanation = whyformer.explain(FILM, bert, method="bi_token", baseline=torch.zeros(48))
    with pytest.raises(WhyformerError, match="An audit file can only store options with plain values"):
        explanation.save(tmp_path / "film.audit.json")
    written = whyformer.continuation("the film", "mini-gpt", tokens=1)
    with pytest.raises(WhyformerError, match="A continuation has no audit file"):
        written.save(tmp_path / "film.audit.json")
    assert list(tmp_path.iterdir()) == []


def test_explanations_do_not_keep_their_model_in_memory(bert, tmp_path):
    loaded = load(bert, device="cpu")
    explanation = whyformer.explain(FILM, loaded)
    del loaded
    gc.collect()
    with pytest.raises(WhyformerError, match="is no longer in memory: keep the model until the audit file is saved"):
        explanation.save(tmp_path / "film.audit.json")


def test_copies_and_pickles_are_equal_and_have_no_audit(bert):
    explanation = whyformer.explain(FILM, bert)
    for other in (copy.deepcopy(explanation), pickle.loads(pickle.dumps(explanation))):
        assert other == explanation
        assert other.audit is None


def test_a_file_is_read_once_while_it_stays_the_same(tmp_path, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"a" * 1000)
    digest = file_digest(file)
    assert digest == hashlib.sha256(b"a" * 1000).hexdigest()
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", None)
        assert file_digest(file) == digest
    file.write_bytes(b"b" * 1001)
    assert file_digest(file) == hashlib.sha256(b"b" * 1001).hexdigest()


def test_the_commands_write_and_verify(vit, tmp_path):
    picture = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(picture)
    audit = tmp_path / "noise.audit.json"
    run("explain", picture, "--model", vit, "--out", audit, "--quiet")
    assert run("verify", audit).splitlines()[-1] == "verified"
    assert json.loads(run("verify", audit, "--json"))["agrees"] is True
    change(audit, "explanation", "target", to="wolf")
    result = invoke("verify", audit)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "not verified: target")
    change(audit, "format", to=1)
    assert "is not an audit file" in refusal("verify", audit)
    run("explain", picture, picture, "--model", vit, "--out", tmp_path / "pages", "--format", "audit.json", "--quiet")
    for file in sorted((tmp_path / "pages").iterdir()):
        assert run("verify", file).splitlines()[-1] == "verified"


def test_the_guide_says_which_models_have_controls():
    import controls

    guide = (Path(__file__).parents[2] / "docs" / "guides" / "audit.md").read_text()
    assert "Only mini-vit and mini-bert have runs, and not for every method" in guide
    runs = controls.controls()
    assert runs.keys() == {file_digest(ZOO / name / "model.safetensors") for name in ("mini-vit", "mini-bert")}
    assert all(trace_methods().keys() - run["methods"] for run in runs.values())


@pytest.mark.parametrize(
    ("method", "options"),
    [("random", {}), ("gradient_shap", {"samples": 4}), ("rise", {"forwards": 8}), ("grad_cam", {"noise": 0.1})],
)
def test_what_draws_does_not_depend_on_the_seed_of_torch(bert, method, options):
    scores = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        scores.append(whyformer.explain("the film was great", bert, method=method, **options).scores)
    np.testing.assert_array_equal(*scores)
