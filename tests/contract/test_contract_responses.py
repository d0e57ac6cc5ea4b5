"""Responses on every family that writes: rows together as one by one."""

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from tiny_models import STREAM_FAMILIES
from whyformer import explain_response
from whyformer.models.loading import LoadedModel

FAMILIES = ["gpt2", "llama", "qwen2", "qwen3", "gemma", "mistral in windows", "bart", "marian", "t5"]
PROMPT, RESPONSE = "w5 w6 w7 w8", "w9 w10 w11"


def numbered_words() -> transformers.PreTrainedTokenizerFast:
    parts = Tokenizer(models.WordLevel({f"w{number}": number for number in range(60)}, unk_token="w3"))
    parts.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=parts, unk_token="w3", bos_token="w1", eos_token="w2", pad_token="w0"
    )


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> LoadedModel:
    model = STREAM_FAMILIES[request.param][0]().double()
    if request.param == "t5":
        model.generation_config.decoder_start_token_id = 0
    return LoadedModel(model, numbered_words(), request.param)


@pytest.mark.parametrize("method", ["raw_attention", "generic_attention", "input_x_gradient", "lrp", None])
def test_the_rows_of_a_response_are_explained_together_as_one_by_one(family, method):
    together = explain_response(PROMPT, RESPONSE, family, method, units="token")
    alone = explain_response(PROMPT, RESPONSE, family, method, units="token", batch_size=1)
    assert np.abs(alone.token_scores).max() > 0
    for ours, theirs in ((together.token_scores, alone.token_scores), (together.earlier, alone.earlier)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6 * np.abs(alone.token_scores).max())
    assert [token.rank for token in together.tokens] == [token.rank for token in alone.tokens]
