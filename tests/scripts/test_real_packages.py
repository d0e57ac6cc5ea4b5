"""Real models from packages: digests, layouts of other libraries, and what a conversion keeps."""

import io
import json
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

import real_packages
from real_language import _llama2c_logits, llama2c_folder, llama2c_weights
from real_models import MODELS, model_folder
from real_packages import fetch, join, pypi, read
from real_speech import ctranslate2_weights, transformers_weights

PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a", "b", "ab", " ab"]
DIM, HIDDEN, LAYERS, HEADS, POSITIONS = 16, 24, 2, 2, 12


def wheel(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"package/{name}", content)
    return path


def npm_package(path, name, content):
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return path


def test_a_package_with_another_digest_is_refused(tmp_path, monkeypatch):
    wheel(tmp_path / "small.whl", a=b"x")
    digests = tmp_path / "digests.json"
    digests.write_text(json.dumps({"small==1.0": {"file": "small.whl", "sha256": "0" * 64}}))
    monkeypatch.setattr(real_packages, "DIGESTS", digests)
    with pytest.raises(SystemExit, match=r"and small==1\.0 is known by 0+: remove it"):
        fetch(pypi("small", "1.0"), tmp_path)
    digest = real_packages.file_digest(tmp_path / "small.whl")
    digests.write_text(json.dumps({"small==1.0": {"file": "small.whl", "sha256": digest}}))
    assert fetch(pypi("small", "1.0"), tmp_path) == tmp_path / "small.whl"


def test_members_of_wheels_and_npm_packages_are_read_and_joined(tmp_path):
    first, second = wheel(tmp_path / "a.whl", part=b"ab"), npm_package(tmp_path / "b.tgz", "package/part", b"cd")
    assert read(second, "package/part") == b"cd"
    joined = join([(first, "package/part"), (second, "package/part")], tmp_path / "new" / "whole")
    assert joined.read_bytes() == b"abcd"


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("WHYFORMER_REAL_MODELS", str(tmp_path))
    assert model_folder("gte-small") == tmp_path / "models" / "gte-small"
    assert set(MODELS) >= {"smollm2-135m-instruct", "qwen2.5-coder-1.5b-instruct", "whisper-base"}


@pytest.fixture
def llama2c(tmp_path):
    """A package with a tiny random model.bin and tokenizer.bin, one after the other."""
    rng, words = np.random.default_rng(0), len(PIECES)
    shapes = [(words, DIM), (LAYERS, DIM), *[(LAYERS, DIM, DIM)] * 4, (LAYERS, DIM), (LAYERS, HIDDEN, DIM)]
    shapes += [(LAYERS, DIM, HIDDEN), (LAYERS, HIDDEN, DIM), (DIM,), (POSITIONS, DIM // HEADS)]
    model = struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, HEADS, words, POSITIONS)
    model += b"".join((rng.standard_normal(shape) * 0.5).astype("<f4").tobytes() for shape in shapes)
    scores = {"ab": 2.0, " ab": 1.0}
    tokens = b"".join(
        struct.pack("<fi", scores.get(piece, -9.0), len(piece.encode())) + piece.encode() for piece in PIECES
    )
    return npm_package(tmp_path / "tiny.tgz", "package/data", model + struct.pack("<i", 9) + tokens)


def test_a_model_of_llama2c_gives_the_logits_of_its_own_layout(llama2c, tmp_path):
    llama2c_folder(llama2c, "package/data", tmp_path / "folder")
    model = LlamaForCausalLM.from_pretrained(tmp_path / "folder").eval()
    ids = (1, 260, 263, 7, 261)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(logits, _llama2c_logits(llama2c_weights(llama2c, "package/data"), ids), atol=1e-4)


def test_a_tokenizer_of_llama2c_merges_the_best_pair_first_and_falls_back_to_bytes(llama2c, tmp_path):
    llama2c_folder(llama2c, "package/data", tmp_path / "folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert tokenizer("ab ab")["input_ids"] == [1, 263, 263]
    assert tokenizer("c")["input_ids"] == [1, 259, 3 + ord("c")]
    assert tokenizer.decode(tokenizer("ab c")["input_ids"], skip_special_tokens=True) == "ab c"


def test_variables_of_ctranslate2_are_read_and_cut_apart():
    width = 4
    fused = np.arange(3 * width * width, dtype="<f2").reshape(3 * width, width)
    variables = {
        "decoder/layer_0/self_attention/linear_0/weight": fused,
        "decoder/layer_0/self_attention/linear_0/bias": np.arange(3 * width, dtype="<f2"),
        "decoder/layer_0/ffn/layer_norm/gamma": np.ones(width, "<f4"),
    }

    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    data = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, value in variables.items():
        kind = 4 if value.dtype == np.float16 else 0
        shape = struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        data += text(name) + shape + struct.pack("<BI", kind, value.nbytes) + value.tobytes()
    weights = transformers_weights(ctranslate2_weights(data))
    layer = "model.decoder.layers.0"
    assert set(weights) == {
        *(f"{layer}.self_attn.{name}_proj.weight" for name in "qkv"),
        f"{layer}.self_attn.q_proj.bias",
        f"{layer}.self_attn.v_proj.bias",
        f"{layer}.final_layer_norm.weight",
    }
    assert torch.equal(weights[f"{layer}.self_attn.k_proj.weight"], torch.from_numpy(fused[4:8].astype(np.float32)))
