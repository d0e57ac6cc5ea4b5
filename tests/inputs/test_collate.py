"""What the model is handed of what its tokenizer makes."""

import pytest
from torch import nn

from conftest import tokenizer
from tiny_models import TEXT, built
from whyformer.inputs.collate import collate
from whyformer.inputs.encode import encode
from whyformer.models.loading import LoadedModel


class Narrow(nn.Module):
    """A classifier that knows no types of tokens."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask)


class Wide(Narrow):
    """One that hands on whatever it is given."""

    def forward(self, input_ids, attention_mask, **others):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **others)


@pytest.mark.parametrize(("wrapper", "has_types"), [(None, True), (Narrow, False), (Wide, True)])
def test_types_of_tokens_are_left_out_where_the_model_takes_none(wrapper, has_types):
    model = built("BertForSequenceClassification", "BertConfig", **TEXT)
    reader = tokenizer()
    reader.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    loaded_model = LoadedModel(model if wrapper is None else wrapper(model), reader, "tiny")
    inputs = collate(loaded_model, encode(loaded_model, ["the film was bad"]))
    assert inputs.keys() == {"input_ids", "attention_mask", *(["token_type_ids"] if has_types else [])}
    assert inputs["input_ids"].tolist() == [[1, 5, 6, 7, 9, 2]]
