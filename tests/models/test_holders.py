"""Pipelines and models of sentence-transformers, explained as the models that they hold."""

import pytest
import sentence_transformers
import torch
import torch.nn.functional as F
import transformers
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

from commands import run
from conftest import change_config, saved, tokenizer
from tiny_models import TEXT, built
from whyformer import WhyformerError, attribute, doctor, explain, load
from whyformer.models.loading import quiet, resolve_model

FILM = "the film was not bad"
PAIR = ("the film was great", "the film was not bad")
SETTINGS = {name: value for name, value in TEXT.items() if name != "num_labels"}
METHODS = ("rollout", "generic_attention", "input_x_gradient")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny encoder as a SentenceTransformer that takes the maximum of the states."""
    model = built("BertModel", "BertConfig", **SETTINGS)
    folder = saved(tmp_path_factory.mktemp("encoder") / "tiny", model, tokenizer())
    with quiet():
        states = Transformer(str(folder), max_seq_length=32)
        layers = [states, Pooling(states.get_embedding_dimension(), "max")]
        return sentence_transformers.SentenceTransformer(modules=layers, device="cpu")


@pytest.fixture(scope="module")
def encoder_folder(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "encoder"
    encoder.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    model = built("BertForSequenceClassification", "BertConfig", **SETTINGS, num_labels=1)
    folder = saved(tmp_path_factory.mktemp("reranker") / "tiny", model, tokenizer())
    with quiet():
        return sentence_transformers.CrossEncoder(str(folder), device="cpu")


def same(ours, theirs):
    torch.testing.assert_close(torch.as_tensor(ours.scores), torch.as_tensor(theirs.scores), rtol=1e-5, atol=1e-7)


def test_two_texts_are_as_alike_as_sentence_transformers_says(encoder):
    ours, theirs = explain(PAIR, encoder), F.cosine_similarity(*map(torch.from_numpy, encoder.encode(PAIR)), dim=0)
    assert ours.target == f"similarity {float(theirs):.2f}"
    assert "Embeddings are pooled by max, as stated in its Pooling layer." in ours.notes


@pytest.mark.parametrize("method", METHODS)
def test_the_object_and_the_folder_that_it_saves_are_explained_alike(encoder, encoder_folder, method):
    for example in (PAIR, FILM):
        ours, theirs = explain(example, encoder, method=method), explain(example, encoder_folder, method=method)
        same(ours, theirs)
        assert ours.target == theirs.target


def test_a_text_alone_is_explained_by_its_embedding_in_its_own_direction(encoder):
    loaded_model = resolve_model(encoder)
    inputs = tokenizer()(FILM, return_tensors="pt")
    (embedding,) = torch.from_numpy(encoder.encode([FILM]))
    explanation = explain(FILM, encoder, method="input_x_gradient")
    assert explanation.target == f"embedding of length {float(embedding.norm()):.2f}"

    def score(output):
        return output.last_hidden_state.amax(dim=1) @ F.normalize(embedding, dim=0)

    scores = attribute(loaded_model.model, dict(inputs), score, method="input_x_gradient", readout="first")
    torch.testing.assert_close(torch.as_tensor(explanation.scores), scores["text"][0, 1:-1], rtol=1e-4, atol=1e-6)


def test_a_folder_whose_configuration_names_the_head_it_was_trained_with_is_an_encoder(encoder_folder, copy_of):
    folder = copy_of(encoder_folder)
    change_config(folder, architectures=["BertForMaskedLM"])
    assert type(load(folder, device="cpu").model).__name__ == "BertModel"
    same(explain(PAIR, folder), explain(PAIR, encoder_folder))


def test_a_layer_after_the_pooling_is_refused(encoder):
    layers = [*encoder, Dense(48, 8)]
    with pytest.raises(WhyformerError, match=r"The SentenceTransformer has a Dense layer after its states"):
        explain(PAIR, sentence_transformers.SentenceTransformer(modules=layers, device="cpu"))


def test_a_prompt_that_is_put_before_texts_is_noted(encoder):
    asks = sentence_transformers.SentenceTransformer(
        modules=list(encoder), prompts={"query": "query: "}, default_prompt_name="query", device="cpu"
    )
    assert "Its prompt 'query: ' is not added to the texts: add it yourself." in resolve_model(asks).notes


def test_a_reranker_is_explained_like_its_model(reranker):
    ours = explain(PAIR, reranker, method="generic_attention")
    same(ours, explain(PAIR, reranker[0].auto_model, processor=reranker.tokenizer, method="generic_attention"))
    logits = reranker[0].auto_model(**reranker.tokenizer(*PAIR, return_tensors="pt")).logits
    ranked = reranker.predict([PAIR], activation_fn=torch.nn.Identity())
    torch.testing.assert_close(logits[0].detach(), torch.as_tensor(ranked), rtol=1e-5, atol=1e-6)
    assert ours.parts["text"].layout.texts == PAIR


def test_doctor_and_the_command_line_take_what_sentence_transformers_saves(encoder, encoder_folder):
    assert doctor(encoder).is_healthy
    assert "embedding of length" in run("explain", FILM, "--model", encoder_folder)
    assert "BertModel" in run("doctor", encoder_folder)


@pytest.mark.parametrize(("task", "fixture", "example"), [("text-classification", "bert", FILM)])
def test_a_pipeline_of_texts_is_explained_like_its_folder(request, task, fixture, example):
    folder = request.getfixturevalue(fixture)
    pipeline = transformers.pipeline(task, model=str(folder), device="cpu")
    ours, theirs = explain(example, pipeline), explain(example, load(folder, device="cpu"))
    same(ours, theirs)
    assert ours.target == theirs.target == pipeline(example)[0]["label"]
    assert doctor(pipeline).is_healthy


def test_a_pipeline_of_pictures_is_explained_like_its_folder(vit, photo):
    pipeline = transformers.pipeline("image-classification", model=str(vit), device="cpu")
    same(explain(photo, pipeline), explain(photo, load(vit, device="cpu")))


def test_a_pipeline_that_writes_explains_its_reply():
    loaded_model = load("mini-llm", device="cpu")
    pipeline = transformers.pipeline(
        "text-generation", model=loaded_model.model, tokenizer=loaded_model.tokenizer, device="cpu"
    )
    same(explain("Anna is in Oslo.", pipeline), explain("Anna is in Oslo.", loaded_model))
