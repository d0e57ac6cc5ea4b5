"""Models from folders and the hub: whole, quiet, and without running their code."""

import importlib.util
import logging
import shutil
import time

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from huggingface_hub.utils import are_progress_bars_disabled

from conftest import change_config, change_weights
from tiny_models import IMAGE, built
from whyformer import WhyformerError, load
from whyformer.models import loading
from whyformer.models.loading import quiet, resolve_model
from whyformer.models.placement import placement_of

logs = transformers.utils.logging


def test_a_folder_gives_its_model_processor_and_name(vit):
    loaded_model = load(vit)
    original = built("ViTForImageClassification", "ViTConfig", **IMAGE)
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded_model.model(pixels).logits, original(pixels).logits)
    assert loaded_model.name == "tiny-vit"
    assert loaded_model.task.sees_pictures
    assert not loaded_model.model.training
    assert loaded_model.model.config.id2label[3] == "fish"


def test_a_text_model_comes_with_its_tokenizer(bert):
    loaded_model = load(str(bert))
    assert not loaded_model.task.sees_pictures
    assert loaded_model.processor("the film").input_ids == [1, 5, 6, 2]


def test_the_current_folder_lends_the_model_its_name(vit, monkeypatch):
    monkeypatch.chdir(vit)
    assert load(".").name == "tiny-vit"


def test_precision_is_as_asked(vit):
    assert next(load(vit, dtype=torch.bfloat16).model.parameters()).dtype == torch.bfloat16


def test_a_module_finds_the_processor_of_its_folder(vit):
    loaded_model = resolve_model(load(vit).model)
    assert loaded_model.task.sees_pictures
    assert loaded_model.name == "tiny-vit"


def test_a_module_from_nowhere_has_no_processor(vit, copy_of):
    loaded_model = resolve_model(built("ViTForImageClassification", "ViTConfig", **IMAGE))
    assert (loaded_model.processor, loaded_model.name) == (None, "ViTForImageClassification")
    folder = copy_of(vit, "bare")
    model = load(folder).model
    (folder / "preprocessor_config.json").unlink()
    assert (resolve_model(model).processor, resolve_model(model).name) == (None, "bare")


def test_loading_prints_nothing(vit, bert, capfd):
    load(vit)
    load(bert)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("has_bars", [True, False])
@pytest.mark.parametrize("verbosity", [logging.INFO, logging.CRITICAL])
def test_transformers_is_as_talkative_after_loading_as_before(vit, copy_of, verbosity, has_bars):
    before = logs.get_verbosity(), logs.is_progress_bar_enabled()
    spoilt = copy_of(vit)
    (spoilt / "model.safetensors").write_bytes(b"no weights")
    try:
        logs.set_verbosity(verbosity)
        (logs.enable_progress_bar if has_bars else logs.disable_progress_bar)()
        load(vit)
        assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == (verbosity, has_bars)
        with pytest.raises(WhyformerError):
            load(spoilt)
        assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == (verbosity, has_bars)
        assert are_progress_bars_disabled() is not has_bars
    finally:
        logs.set_verbosity(before[0])
        (logs.enable_progress_bar if before[1] else logs.disable_progress_bar)()


def test_quiet_is_undone_when_something_raises_inside():
    before = logs.get_verbosity(), logs.is_progress_bar_enabled(), are_progress_bars_disabled()
    with quiet():
        assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == (logging.ERROR, False)
    with pytest.raises(ZeroDivisionError), quiet():
        raise ZeroDivisionError
    assert (logs.get_verbosity(), logs.is_progress_bar_enabled(), are_progress_bars_disabled()) == before


def truncate_weights(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def only_a_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")


SPOILT = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"has no weights: .*save_pretrained writes \*"),
    "a pickle": (only_a_pickle, "has only pytorch_model.bin, which is a pickle and never read: the model's"),
    "corrupt config": (lambda f: (f / "config.json").write_text("{nope"), "configuration .* fix it.*not a valid JSON"),
    "config of bytes": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "configuration cannot be used"),
    "config of another type": (lambda f: change_config(f, model_type="wobble"), "model type `wobble`"),
    "config of wrong values": (lambda f: change_config(f, hidden_size="x"), "expected int, got str"),
    "truncated weights": (truncate_weights, "weights file cannot be used: fix it, or fetch the model again"),
    "no head": (lambda f: change_config(f, architectures=["ViTModel"]), "is a ViTModel, not a model that classifies"),
    "no model class": (lambda f: change_config(f, architectures=["TextClassificationPipeline"]), "not a model that"),
    "no processor": (lambda f: (f / "preprocessor_config.json").unlink(), r"save its processor there too \(preproc"),
    "other sizes": (
        lambda f: change_config(f, intermediate_size=32),
        r"do not fit its config.json: vit.* is \[64\] in the file and \[32\] in the model \(and 8 more\)",
    ),
    "weights missing": (
        lambda f: change_weights(f, lambda weights: {k: v for k, v in weights.items() if "classifier" not in k}),
        r"Weights for classifier.bias \(and 1 more\) are missing in '.*': load a model that was trained",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_spoilt_folder_is_refused_by_name(vit, copy_of, what):
    folder = copy_of(vit)
    spoil, reason = SPOILT[what]
    spoil(folder)
    with pytest.raises(WhyformerError, match=reason) as refusal:
        load(folder)
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_weights_that_the_model_does_not_need_do_no_harm(vit, copy_of):
    folder = copy_of(vit)
    change_weights(folder, lambda weights: weights | {"old.head": torch.zeros(3)})
    assert torch.equal(load(folder).model.classifier.weight, load(vit).model.classifier.weight)


def test_a_text_model_without_its_tokenizer_is_refused(bert, copy_of):
    folder = copy_of(bert)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(WhyformerError, match="has no tokenizer files"):
        load(folder)


def test_a_tokenizer_of_another_model_is_refused(bert, copy_of):
    folder = copy_of(bert)
    words = {
        word: index for index, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *map(str, range(70))])
    }
    transformers.BertTokenizerFast(vocab=words).save_pretrained(folder)
    with pytest.raises(WhyformerError, match="has 75 word pieces, its model only 60"):
        load(folder)


def plant_code(folder, config):
    code = folder / "planted.py"
    code.write_text(f"open({str(folder / 'executed')!r}, 'w')\nraise SystemExit(7)\n")
    classes = ["AutoConfig", "AutoModelForImageClassification", "AutoImageProcessor", "AutoTokenizer"]
    mapped = dict.fromkeys(classes, "planted.Anything")
    for file in folder.glob("*config.json"):
        text = file.read_text().rstrip().removesuffix("}")
        file.write_text(f'{text}, "auto_map": {str(mapped).replace(chr(39), chr(34))}}}')
    change_config(folder, **config)


@pytest.mark.parametrize("which", ["vit", "bert"])
def test_code_that_comes_with_a_known_model_is_not_run(which, request, copy_of):
    folder = copy_of(request.getfixturevalue(which))
    plant_code(folder, {})
    assert type(load(folder).model).__module__.startswith("transformers.")
    assert not (folder / "executed").exists()


def test_a_model_that_needs_its_own_code_is_refused(vit, copy_of):
    folder = copy_of(vit)
    plant_code(folder, {"model_type": "planted"})
    with pytest.raises(WhyformerError, match="requires its own code, which is never run here: load it yourself"):
        load(folder)
    assert not (folder / "executed").exists()


@pytest.fixture
def no_network(monkeypatch):
    def dead(*_, **__):
        raise ConnectionError("[Errno -2] Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", dead)


@pytest.mark.usefixtures("no_network")
def test_a_hub_id_without_network_is_refused_quickly(capfd):
    start = time.perf_counter()
    with pytest.raises(WhyformerError, match=r"No model 'nobody/nothing': .* the Hugging Face Hub cannot be reached"):
        load("nobody/nothing")
    assert time.perf_counter() - start < 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("no_network")
def test_a_cached_hub_model_needs_no_network(vit, tmp_path, monkeypatch):
    repository = tmp_path / "models--somebody--tiny-vit"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copytree(vit, repository / "snapshots" / ("0" * 40))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path), raising=False)
    loaded_model = load("somebody/tiny-vit")
    assert loaded_model.name == "somebody/tiny-vit"
    assert torch.equal(loaded_model.model.classifier.weight, load(vit).model.classifier.weight)


@pytest.mark.parametrize(
    ("error", "message"),
    [(RepositoryNotFoundError, "none on the Hugging Face Hub"), (GatedRepoError, "is gated: accept its terms")],
)
def test_what_the_hub_says_of_an_id_is_passed_on(monkeypatch, error, message):
    def answer(*_, **__):
        raise error.__new__(error)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", answer)
    with pytest.raises(WhyformerError, match=message):
        load("nobody/nothing")


@pytest.mark.usefixtures("no_network")
def test_a_misspelt_model_is_met_with_the_nearest_name(vit, tmp_path, monkeypatch):
    shutil.copytree(vit, tmp_path / "mini-vit")
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr("whyformer.models.zoo.ZOO", tmp_path)
    assert loading.bundled() == ["mini-vit"]
    assert load("mini-vit").name == "mini-vit"
    with pytest.raises(WhyformerError, match=r"No model 'mini-vitt': .* Did you mean 'mini-vit'\?"):
        load("mini-vitt")


@pytest.mark.parametrize("name", ["", "a b/c", "a..b", "--x", "no/such/model", "x" * 300, "nul\0"])
def test_a_name_that_can_be_no_model_is_refused(name):
    with pytest.raises(
        WhyformerError, match=r"^No model '.*': no such folder, and not a Hugging Face id \(owner/name\)"
    ):
        load(name)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64"])
def test_precision_may_be_named(vit, name):
    assert next(load(vit, device="cpu", dtype=name).model.parameters()).dtype == getattr(torch, name)


def test_on_a_cpu_precision_is_float32_and_auto_is_the_checkpoints_own(vit, tmp_path):
    loaded_model = load(vit, device="cpu")
    loaded_model.model.bfloat16().save_pretrained(tmp_path)
    loaded_model.processor.save_pretrained(tmp_path)
    assert next(load(tmp_path, device="cpu").model.parameters()).dtype == torch.float32
    assert next(load(tmp_path, device="cpu", dtype="auto").model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("device", "device_map", "expected"),
    [
        (None, None, (torch.device("cuda"), "auto")),
        ("cpu", None, (torch.device("cpu"), torch.float32)),
        (None, "auto", (None, "auto")),
    ],
)
def test_on_a_gpu_precision_is_the_checkpoints_own(monkeypatch, device, device_map, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    placement = placement_of(device, None, device_map)
    assert (placement.device, placement.dtype) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float7"}, "dtype='float7'. Choose from: auto, float32, bfloat16, float16, float64, or a torch"),
        ({"dtype": torch.int8}, "dtype=torch.int8. Choose from: auto"),
        ({"dtype": 16}, "dtype=16. Choose from: auto"),
        ({"device": "cuda:99"}, "device='cuda:99': this machine has cpu"),
        ({"device": "nonsense"}, "device='nonsense': this machine has cpu"),
        ({"device": "meta"}, "device='meta': this machine has cpu"),
        ({"device": "cpu", "device_map": "auto"}, "device='cpu' and device_map='auto': give one of them."),
        ({"device_map": "everywhere"}, "device_map='everywhere': this machine has cpu"),
        ({"device_map": {}}, "device_map={}: one of 'auto', 'balanced', 'balanced_low_0', 'sequential', a device, or"),
        ({"device_map": {"vit": "cuda:99"}}, "device_map: 'cuda:99': this machine has cpu"),
    ],
)
def test_a_place_or_a_precision_that_cannot_be_is_one_line(vit, arguments, message):
    with pytest.raises(WhyformerError) as error:
        load(vit, **arguments)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_device_map_without_accelerate_says_what_to_install(vit, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WhyformerError) as error:
        load(vit, device_map="auto")
    assert str(error.value) == "device_map='auto' needs accelerate: pip install accelerate."
