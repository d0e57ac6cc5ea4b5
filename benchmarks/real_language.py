"""Language models from packages: GGUF files, and the layout of llama2.c."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, normalizers, processors
from tokenizers.models import BPE
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from real_packages import join, member
from whyformer.files import file_digest
from whyformer.models.loading import load

SENTENCE = "The capital of France is Paris, and the capital of Italy is"
STORY_IDS = (1, 9038, 2501, 263, 931, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889)  # Once upon a time …
LOGIT_TOLERANCE = 1e-3
READING = (
    ("The bakery on Elm Street opens at 6 in the morning. The library opens at 9.", "When does the library open?", "9"),
    ("Anna keeps bees. Her brother Karl keeps goats.", "Which animals does Karl keep?", "goats"),
    (
        "The ferry leaves from pier 4. The night train leaves from platform 11.",
        "Which pier does the ferry leave from?",
        "4",
    ),
    ("The old bridge was built in 1887, and the new one in 1964.", "When was the new bridge built?", "1964"),
)


def gguf_folder(parts: Sequence[tuple[Path, str]], folder: Path, dtype: str, sha256: str | None = None) -> None:
    """The model of a GGUF file, whole or in parts, as a folder of plain weights."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        path = join(parts, Path(place) / "model.gguf")
        if sha256 is not None:
            assert file_digest(path) == sha256, "the parts do not make up the file"
        loaded_model = load(path, device="cpu", dtype=dtype)
        loaded_model.model.save_pretrained(folder)
        loaded_model.tokenizer.save_pretrained(folder)
        check_equal_logits(path, folder, dtype)


def check_equal_logits(path: Path, folder: Path, dtype: str) -> None:
    """The folder gives what transformers gives that reads the GGUF file itself."""
    from transformers import GgufConfig  # which transformers 4 lacks: peers.py runs there, too

    ids = AutoTokenizer.from_pretrained(folder)(SENTENCE, return_tensors="pt")["input_ids"]
    with tempfile.TemporaryDirectory() as empty, torch.no_grad():
        how = {"dtype": getattr(torch, dtype), "quantization_config": GgufConfig(dequantize=True)}
        packed = AutoModelForCausalLM.from_pretrained(empty, gguf_file=str(path), **how)
        expected = packed(ids).logits
        del packed
        logits = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))(ids).logits
    assert torch.equal(logits, expected), f"logits differ by {(logits - expected).abs().max()}"


def reply(folder: Path, messages: list[dict[str, str]], tokens: int) -> str:
    """What the model writes, the likeliest token each time."""
    loaded_model = load(folder, device="cpu", dtype="auto")
    tokenizer: Any = loaded_model.tokenizer
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    ids = inputs["input_ids"]
    written = loaded_model.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens
    )
    return tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)


def reply_check(folder: Path) -> dict[str, Any]:
    """A fact that every model of this size knows, through its own chat template."""
    text = reply(folder, [{"role": "user", "content": "What is the capital of France?"}], 16)
    assert "Paris" in text, text
    return {"check": "the capital of France", "value": text}


def reading_check(folder: Path, *, at_least: int) -> dict[str, Any]:
    """How many questions about a short text are answered with the right word."""
    replies = [reply(folder, [{"role": "user", "content": f"{text} {asked}"}], 24) for text, asked, _ in READING]
    right = sum(answer in one for one, (_, _, answer) in zip(replies, READING, strict=True))
    assert right >= at_least, replies
    return {"check": "reading questions answered", "value": f"{right} of {len(READING)}", "allowed": at_least}


def story_check(folder: Path, archive: Path, name: str) -> dict[str, Any]:
    """The logits are those of llama2.c's own forward pass, written out in NumPy on its own layout."""
    model, tokenizer = LlamaForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    text = tokenizer.decode(STORY_IDS, skip_special_tokens=True)
    assert tuple(tokenizer(text)["input_ids"]) == STORY_IDS, text
    with torch.no_grad():
        logits = model(torch.tensor([STORY_IDS])).logits[0]
    expected = _llama2c_logits(llama2c_weights(archive, name), STORY_IDS)
    difference = float(np.abs(logits.numpy() - expected).max())
    assert difference < LOGIT_TOLERANCE, difference
    title = "largest difference of logits from llama2.c's forward pass"
    return {"check": title, "value": difference, "allowed": LOGIT_TOLERANCE}


def _llama2c_logits(source: LlamaC, ids: Sequence[int]) -> np.ndarray:
    """llama2.c's forward pass: neighbouring features of a head are rotated together."""
    weights, heads = source.weights, source.heads
    state = weights["embed_tokens.weight"][list(ids)].astype(np.float64)
    tokens, dim = state.shape
    size = dim // heads
    angles = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(0, size, 2) / size))
    turn = np.exp(1j * angles)[:, None]

    def norm(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return values / np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + 1e-5) * weight

    def rotated(values: np.ndarray) -> np.ndarray:
        pairs = values.reshape(tokens, heads, size // 2, 2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
        return np.stack([turned.real, turned.imag], axis=-1).reshape(tokens, heads, size)

    for layer in range(len(weights["self_attn.q_proj"])):
        own = {path: value[layer].astype(np.float64) for path, value in weights.items() if not path.endswith("weight")}
        inputs = norm(state, own["input_layernorm"])
        query, key = (rotated(inputs @ own[f"self_attn.{name}_proj"].T) for name in "qk")
        value = (inputs @ own["self_attn.v_proj"].T).reshape(tokens, heads, size)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(size)
        scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
        maps = np.exp(scores - scores.max(axis=-1, keepdims=True))
        maps /= maps.sum(axis=-1, keepdims=True)
        state = state + np.einsum("hqk,khd->qhd", maps, value).reshape(tokens, dim) @ own["self_attn.o_proj"].T
        inputs = norm(state, own["post_attention_layernorm"])
        gate = inputs @ own["mlp.gate_proj"].T
        hidden = gate / (1 + np.exp(-gate)) * (inputs @ own["mlp.up_proj"].T)
        state = state + hidden @ own["mlp.down_proj"].T
    return norm(state, weights["norm.weight"]) @ weights["embed_tokens.weight"].T


@dataclass(frozen=True)
class LlamaC:
    """A model.bin of llama2.c: its arrays by the names of transformers, those of a layer stacked; and what follows."""

    weights: dict[str, np.ndarray]
    heads: int
    positions: int
    rest: bytes

    @property
    def vocabulary(self) -> int:
        return len(self.weights["embed_tokens.weight"])


def llama2c_weights(archive: Path, name: str) -> LlamaC:
    with member(archive, name) as file:
        data = file.read()
    dim, hidden, layers, heads, kv_heads, words, positions = struct.unpack("<7i", data[:28])
    assert words > 0, "weights of the output that are not those of the embedding"
    assert heads == kv_heads, "fewer heads of keys than of queries"
    sizes = {
        "embed_tokens.weight": (words, dim),
        "input_layernorm": (layers, dim),
        "self_attn.q_proj": (layers, dim, dim),
        "self_attn.k_proj": (layers, dim, dim),
        "self_attn.v_proj": (layers, dim, dim),
        "self_attn.o_proj": (layers, dim, dim),
        "post_attention_layernorm": (layers, dim),
        "mlp.gate_proj": (layers, hidden, dim),
        "mlp.down_proj": (layers, dim, hidden),
        "mlp.up_proj": (layers, hidden, dim),
        "norm.weight": (dim,),
    }
    start, weights = 28, {}
    for path, shape in sizes.items():
        weights[path] = np.frombuffer(data, "<f4", int(np.prod(shape)), start).reshape(shape)
        start += weights[path].nbytes
    start += positions * (dim // heads) * 4  # cosines and sines, which transformers computes
    return LlamaC(weights, heads, positions, data[start:])


def llama2c_folder(archive: Path, name: str, folder: Path) -> None:
    """llama2.c's model.bin, followed by its tokenizer.bin, as a stock Llama."""
    source = llama2c_weights(archive, name)
    weights = {}
    for path, value in source.weights.items():
        tensor = torch.from_numpy(value.copy())
        if path.endswith(".weight"):
            weights[f"model.{path}"] = tensor
            continue
        for layer, one in enumerate(tensor):
            rotated = _rotary(one, source.heads) if path.endswith(("q_proj", "k_proj")) else one
            weights[f"model.layers.{layer}.{path}.weight"] = rotated.contiguous()
    layers, hidden, dim = source.weights["mlp.gate_proj"].shape
    config = LlamaConfig(
        vocab_size=source.vocabulary,
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=source.heads,
        num_key_value_heads=source.heads,
        max_position_embeddings=source.positions,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})  # strict
    model.save_pretrained(folder)
    _tokenizer(source.rest, source.vocabulary, source.positions).save_pretrained(folder)


def _rotary(weight: Tensor, heads: int) -> Tensor:
    """llama2.c rotates neighbouring pairs of a head, transformers its two halves."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _tokenizer(data: bytes, words: int, positions: int) -> PreTrainedTokenizerFast:
    """SentencePiece's BPE: the best-scored pair of pieces is merged first."""
    start, pieces = 4, []
    for _ in range(words):
        score, length = struct.unpack_from("<fi", data, start)
        text = data[start + 8 : start + 8 + length].decode("utf-8", errors="replace")
        pieces.append((text.replace(" ", "▁"), score))
        start += 8 + length
    pieces[:3] = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    numbers = {text: number for number, (text, _) in enumerate(pieces)}
    merges = []
    for text, score in pieces[3:]:
        halves = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        known = [pair for pair in halves if pair[0] in numbers and pair[1] in numbers]
        merges += [(-score, numbers[left], numbers[right], (left, right)) for left, right in known]
    ordered = [pair for *_, pair in sorted(merges)]
    tokenizer = Tokenizer(BPE(numbers, ordered, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **special)
