"""Small models in folders of Hugging Face layout, as users have them."""

import copy
import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import settings
from PIL import Image
from safetensors.torch import load_file, save_file

import transformers4  # noqa: F401  # before any test asks for a name of transformers 5
from tiny_models import IMAGE, TEXT, built
from whyformer import explain
from whyformer.models.loading import LoadedModel, load, quiet

# The models of the tests are so small that a second thread costs more than it brings.
torch.set_num_threads(1)

FILM = "the film was not bad"
ANIMALS = {0: "cat", 1: "dog", 2: "bird", 3: "fish"}
MOODS = {0: "good", 1: "bad", 2: "dull", 3: "odd"}
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "the", "film", "was", "great", "bad", "not", "and", "a", "##ly"]

settings.register_profile("unhurried", deadline=None)  # a busy machine is no error
settings.load_profile("unhurried")


# The longest files, in seconds of a processor: begun first, they leave no worker alone at the end.
LONG_FILES = (
    *("benchmark/test_runner.py", "browser/test_app.py", "app/test_example_buttons.py", "docs/test_notebooks.py"),
    *("docs/test_docs.py", "docs/test_docstrings.py", "zoo/test_zoo.py", "hostile/test_mutated_files.py"),
    *("contract/test_contract_decoders.py", "contract/test_contract.py", "backward/test_rules.py"),
    *("benchmark/test_advice.py", "benchmark/test_protocols.py", "api/test_explain_response.py", "api/test_heads.py"),
    *("training/test_training_facts.py", "cli/test_startup.py", "hostile/test_page_fuzz.py", "api/test_batches.py"),
)


def pytest_configure(config):
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist would begin with the files of the most cases


def pytest_collection_modifyitems(items):
    order = {name: number for number, name in enumerate(LONG_FILES)}
    tests = Path(__file__).parent
    items.sort(key=lambda item: order.get(item.path.relative_to(tests).as_posix(), len(order)))


def labelled(names):
    return {"id2label": names, "label2id": {name: index for index, name in names.items()}}


def saved(folder, model, processor):
    with quiet():
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder


def image_processor(**settings):
    return transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}, **settings)


def tokenizer():
    return transformers.BertTokenizerFast(vocab={word: index for index, word in enumerate(WORDS)})


@pytest.fixture(scope="session")
def vit(tmp_path_factory):
    """A folder with a tiny ViT that tells four animals apart, by chance."""
    model = built("ViTForImageClassification", "ViTConfig", **IMAGE, **labelled(ANIMALS))
    return saved(tmp_path_factory.mktemp("models") / "tiny-vit", model, image_processor())


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A folder with a tiny BERT that knows nine words."""
    model = built("BertForSequenceClassification", "BertConfig", **TEXT, **labelled(MOODS))
    return saved(tmp_path_factory.mktemp("models") / "tiny-bert", model, tokenizer())


@pytest.fixture
def own_bert(bert, tmp_path):
    """A copy of the tiny BERT, whose files a test may change."""
    return Path(shutil.copytree(bert, tmp_path / "own"))


@pytest.fixture
def audit(own_bert, tmp_path):
    """An audit file of a text, by the copy of the tiny BERT."""
    explain(FILM, str(own_bert), method="rollout").save(tmp_path / "film.audit.json")
    return tmp_path / "film.audit.json"


@pytest.fixture(scope="session")
def levit(tmp_path_factory):
    """A folder with a tiny LeViT, whose stages have fewer and fewer tokens, and no row to say which become which."""
    sizes = {
        "image_size": 32,
        "hidden_sizes": [16, 16],
        "num_attention_heads": [2, 2],
        "depths": [1, 1],
        "key_dim": [4, 4],
        "mlp_ratio": [2, 2],
        "attention_ratio": [2, 2],
        "down_ops": [["Subsample", 4, 2, 2, 2, 2], [""]],
    }
    model = built("LevitForImageClassification", "LevitConfig", **sizes, **labelled(ANIMALS))
    return saved(tmp_path_factory.mktemp("models") / "tiny-levit", model, image_processor())


@pytest.fixture(scope="session")
def resnet(tmp_path_factory):
    """A folder with a tiny ResNet, which has no attention."""
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    model = built("ResNetForImageClassification", "ResNetConfig", **sizes, **labelled(ANIMALS))
    return saved(tmp_path_factory.mktemp("models") / "tiny-resnet", model, image_processor())


@pytest.fixture(scope="session")
def head(tmp_path_factory):
    """A model of a head by its name in `tiny_heads`, loaded once from its folder."""
    from tiny_heads import saved_head  # which takes what makes folders from here

    models = {}

    def model(name):
        if name not in models:
            folder = tmp_path_factory.mktemp("heads") / name.replace(" ", "-")
            models[name] = load(saved_head(name, folder), device="cpu")
        return models[name]

    return model


@pytest.fixture
def photo(tmp_path):
    """A PNG file of noise, wider than high."""
    return save_noise(tmp_path / "photo.png")


def save_noise(path, seed=0, width=60, height=40):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def copy_of(tmp_path):
    """A copy of a model's folder to spoil."""

    def copied(folder: Path, name: str = "spoilt") -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    return copied


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def change_weights(folder, changed):
    weights = changed(load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


# A chat template as many models have it: roles in markers, contents stripped, unknown roles refused.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('Unknown role: ' + message['role']) }}{% endif %}"
    "{{ '<|' + message['role'] + '|>\n' + (message['content'] | trim) + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def gpt():
    """The bundled language model, on a CPU."""
    return load("mini-gpt", device="cpu")


@pytest.fixture(scope="session")
def chat(gpt):
    """The bundled language model with a chat template."""
    spoken = copy.deepcopy(gpt.tokenizer)
    spoken.chat_template = CHAT_TEMPLATE
    return LoadedModel(gpt.model, spoken, "chat")


@pytest.fixture
def count_forwards():
    """A list of how many examples each run of a model had, while inside."""

    @contextmanager
    def counted(model):
        runs = []
        handle = model.register_forward_pre_hook(
            lambda _, args, kwargs: runs.append(len(kwargs["input_ids"])), with_kwargs=True
        )
        try:
            yield runs
        finally:
            handle.remove()

    return counted
