"""Maps that are folded tile by tile give what kept maps give."""

import pytest
import torch

from tiny_models import FAMILIES, OF_ONE_STREAM, STREAM_FAMILIES, applies, inputs_of
from whyformer import METHODS, attribute
from whyformer.tracing import record, recorder

FOLDED = [name for name, method in METHODS.items() if not method.reads.has_relevance]


@pytest.fixture
def folded(monkeypatch):
    """From now on no map is kept, and a tile has a query or two."""

    def fold() -> None:
        monkeypatch.setattr(recorder, "KEPT", 0)
        monkeypatch.setattr(record, "TILE", 100)

    return fold


def double(inputs):
    return {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}


@pytest.mark.parametrize(("method", "family"), [(m, f) for m in FOLDED for f in FAMILIES if applies(m, f)])
def test_tiles_give_what_kept_maps_give(method, family, folded):
    model, inputs = FAMILIES[family]().double(), double(inputs_of(family))
    expected = attribute(model, inputs, 1, method)
    folded()
    scores = attribute(model, inputs, 1, method)
    for stream, values in expected.items():
        torch.testing.assert_close(scores[stream], values, rtol=1e-8, atol=1e-9 * float(values.abs().max()) + 1e-15)


@pytest.mark.parametrize(
    ("method", "family"),
    [(m, f) for m in FOLDED for f in STREAM_FAMILIES if m not in OF_ONE_STREAM and applies(m, f)],
)
def test_tiles_give_what_kept_maps_give_on_several_streams(method, family, folded):
    make, give = STREAM_FAMILIES[family]
    model, inputs = make().double(), double(give())
    expected = attribute(model, inputs, "predicted", method)
    folded()
    scores = attribute(model, inputs, "predicted", method)
    for stream, values in expected.items():
        torch.testing.assert_close(scores[stream], values, rtol=1e-6, atol=1e-7 * float(values.abs().max()) + 1e-15)
