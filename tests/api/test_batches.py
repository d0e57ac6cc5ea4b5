"""Memory that runs out: smaller batches, then block by block, then a line that says what would help."""

import pytest
import torch

from conftest import tokenizer
from tiny_models import STREAM_FAMILIES
from whyformer import WhyformerError, explain, explain_batch, load
from whyformer.backward.blocks import NoStack
from whyformer.batching import MemoryLimit, is_out_of_memory
from whyformer.tracing import build

TEXTS = ["the film", "the film was good", "good", "the film was the film", "was good the", "film film", "the the the"]


@pytest.fixture
def memory(monkeypatch):
    """A device with room for so many examples at once, and the list of what was tried there."""
    trace, tried = build.trace, []

    def limit(room: int, *, with_checkpoint: bool = True) -> list[tuple[int, bool | None]]:
        def trace_within(model, inputs, *args, checkpoint=None, **options):
            count = len(inputs["input_ids"])
            tried.append((count, checkpoint))
            if count > room and not (with_checkpoint and checkpoint and count == 1):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return trace(model, inputs, *args, checkpoint=checkpoint, **options)

        monkeypatch.setattr(build, "trace", trace_within)
        return tried

    return limit


def scores(explanations):
    return [part.scores for explanation in explanations for part in explanation.parts.values()]


@pytest.mark.parametrize("room", [1, 2, 3, 5])
@pytest.mark.parametrize("method", ["generic_attention", None])
def test_a_batch_that_does_not_fit_is_explained_in_parts_of_it(bert, memory, room, method):
    model = load(bert, device="cpu")
    whole = explain_batch(TEXTS, model, method=method, batch_size=7)
    tried = memory(room)
    parts = explain_batch(TEXTS, model, method=method, batch_size=7)
    assert [one.target for one in parts] == [one.target for one in whole]
    for ours, theirs in zip(scores(parts), scores(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    sizes = [size for size, _ in tried]
    assert sizes == sorted(sizes, reverse=True)  # what did not fit is not tried again
    assert all(checkpoint is None for _, checkpoint in tried)


def test_an_example_that_does_not_fit_goes_block_by_block(bert, memory):
    model = load(bert, device="cpu")
    whole = explain_batch(TEXTS, model, method="generic_attention", batch_size=2)
    tried = memory(0)
    parts = explain_batch(TEXTS, model, method="generic_attention", batch_size=2)
    assert tried == [(2, None), (1, None)] + [(1, True)] * len(TEXTS)
    for ours, theirs in zip(scores(parts), scores(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_what_fits_in_no_way_is_one_line_that_says_what_would_help(bert, memory):
    model = load(bert, device="cpu")
    memory(0, with_checkpoint=False)
    with pytest.raises(WhyformerError) as error:
        explain_batch(TEXTS, model, method="generic_attention")
    assert str(error.value) == (
        "Out of memory: generic_attention on tiny-bert does not fit even one example at a time and block by block. "
        "What would help: a shorter input, a method that keeps less (raw_attention, rollout), dtype='bfloat16' in "
        "whyformer.load, or a larger device; `whyformer doctor MODEL --tokens N` says what each method takes."
    )


def test_a_text_in_several_chunks_is_predicted_within_memory_too(bert, monkeypatch):
    loaded_model = load(bert, device="cpu")
    text = " ".join(["the film was good"] * 30)
    whole = explain_batch([text], loaded_model, method="raw_attention")
    forward = type(loaded_model.model).forward

    def forward_within(self, input_ids=None, **inputs):
        if len(input_ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(self, input_ids=input_ids, **inputs)

    monkeypatch.setattr(type(loaded_model.model), "forward", forward_within)
    parts = explain_batch([text], loaded_model, method="raw_attention")
    assert parts[0].target == whole[0].target
    assert scores(parts)[0] == pytest.approx(scores(whole)[0], rel=1e-4, abs=1e-6)


def test_another_failure_is_not_taken_for_memory():
    def fails(batch, checkpoint):
        raise RuntimeError("mat1 and mat2 must have the same dtype")

    with pytest.raises(WhyformerError, match="fails in PyTorch: mat1"):
        MemoryLimit(4).map_batches([1, 2], fails, "this")


def test_a_model_that_cannot_go_block_by_block_has_nothing_left():
    def fails(batch, checkpoint):
        raise NoStack("no blocks") if checkpoint else torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(WhyformerError, match=r"Out of memory: this does not fit even one example at a time\. What"):
        MemoryLimit(4, can_go_by_blocks=True).map_batches([1, 2], fails, "this")


def test_another_error_block_by_block_keeps_its_own_words():
    def fails(batch, checkpoint):
        raise WhyformerError("No label named 'x'.") if checkpoint else torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(WhyformerError, match=r"^No label named 'x'"):
        MemoryLimit(4, can_go_by_blocks=True).map_batches([1, 2], fails, "this")


@pytest.mark.parametrize("method", ["rollout", "partial_lrp", "bi_token"])
def test_what_does_not_go_block_by_block_is_not_said_to_have_done_so(bert, memory, method):
    tried = memory(0, with_checkpoint=False)
    with pytest.raises(WhyformerError, match=rf"Out of memory: {method} on tiny-bert .* one example at a time\. What"):
        explain_batch(TEXTS[:2], load(bert, device="cpu"), method=method, batch_size=2)
    assert tried == [(2, None), (1, None)]


def test_a_model_of_several_streams_is_not_said_to_have_gone_block_by_block(monkeypatch):
    model, trace = STREAM_FAMILIES["t5"][0](), build.trace
    model.config.decoder_start_token_id = 0

    def full(*args, checkpoint=None, **options):
        if checkpoint is None:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return trace(*args, checkpoint=checkpoint, **options)

    monkeypatch.setattr(build, "trace", full)
    with pytest.raises(WhyformerError, match=r"Out of memory: evidence .* one example at a time\. What would help"):
        explain("the film", model, processor=tokenizer())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            True,
        ),
        (RuntimeError("MPS backend out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("shapes"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors_in_one_place(error, expected):
    assert is_out_of_memory(error) is expected
