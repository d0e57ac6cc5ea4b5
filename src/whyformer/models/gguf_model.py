"""Models from GGUF files: every weight is dequantised, and the model is a plain one of transformers."""

from __future__ import annotations

import io
import os
import re
import tempfile
from contextlib import ExitStack, redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.models.gguf_header import SUFFIX, GgufHeader, read_header
from whyformer.models.placement import Placement

_BLOCK = re.compile(r"blk\.(\d+)\.")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
MOST_SURPLUS = (
    1.02  # of the elements in the file, those the configuration may ask for: buffers and padding of the vocabulary
)


def gguf_file(place: str | Path) -> Path | None:
    """The GGUF file of this name: the file itself, or the only one in a folder without safetensors weights."""
    path = Path(os.path.expanduser(place))
    if os.path.isfile(path):
        return path if path.suffix == SUFFIX else None
    if not os.path.isdir(path) or any(path.glob("*.safetensors")):
        return None
    files = sorted(path.glob(f"*{SUFFIX}"))
    if len(files) > 1:
        raise WhyformerError(
            f"The folder {str(place)!r} has {len(files)} GGUF files: load one of them by its path, such as {files[0]}."
        )
    return files[0] if files else None


def load_gguf(path: Path, placement: Placement) -> tuple[nn.Module, Any, str]:
    """The model of a GGUF file, its tokenizer, and a note on its weights. Only this one file is read."""
    if _SHARD.search(path.name):
        raise WhyformerError(f"{path.name} is one of several parts: join them with llama.cpp's gguf-split --merge.")
    header = read_header(path)
    extra("accelerate", "gguf")  # without it transformers reads no GGUF file
    with ExitStack() as stack:
        # An empty folder: transformers would read other settings, adapters and templates beside the file.
        empty = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(redirect_stderr(io.StringIO()))  # a progress bar that no switch of transformers hides
        source = {"gguf_file": str(path.resolve()), "local_files_only": True, "trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(empty, **source)
        model_class = _model_class(config, header, path)
        _check_size(model_class, config, header, path, placement)
        tokenizer = transformers.AutoTokenizer.from_pretrained(empty, **source)
        packed = model_class.from_pretrained(empty, config=config, **source, **placement.arguments, **_dequantized())
    note = f"{path.name} stores its weights in {_types(header)}; they were dequantised, and are not the original ones."
    return _plain(packed), tokenizer, note if header.is_quantized else f"{path.name} stores its weights unquantised."


def _types(header: GgufHeader) -> str:
    return ", ".join(f"{name} ({count} tensors)" for name, count in header.types.items())


def _dequantized() -> dict[str, Any]:
    """Later versions of transformers keep the weights packed, and fetch kernels from the hub for that."""
    settings = getattr(transformers, "GgufConfig", None)
    return {} if settings is None else {"quantization_config": settings(dequantize=True)}


def _model_class(config: Any, header: GgufHeader, path: Path) -> Any:
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) not in known:
        raise WhyformerError(
            f"{path.name} holds a model of the kind {header.architecture!r}, which does not write text."
        )
    model_class = known[type(config)]
    return model_class[0] if isinstance(model_class, tuple) else model_class


def _check_size(model_class: Any, config: Any, header: GgufHeader, path: Path, placement: Placement) -> None:
    """Check that the configuration has no more weights than the file, and that they fit into memory."""
    blocks = {int(match[1]) for name in header.shapes if (match := _BLOCK.match(name))}
    if config.num_hidden_layers != len(blocks):
        raise WhyformerError(f"{path.name} has {len(blocks)} blocks, and its header says {config.num_hidden_layers}.")
    with torch.device("meta"):
        model = model_class(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_SURPLUS * header.elements:
        raise WhyformerError(
            f"{path.name} holds {header.elements:,} weights, and its header describes a model of {parameters:,}."
        )
    bits = torch.finfo(placement.dtype if isinstance(placement.dtype, torch.dtype) else torch.float32).bits
    needed, free = parameters * bits // 8, _available_bytes()
    if free is not None and needed > free:
        raise WhyformerError(
            f"{path.name} takes {needed / 1e9:.1f} GB dequantised, and {free / 1e9:.1f} GB are free: ask for "
            "dtype='bfloat16', or choose a smaller model."
        )


def _available_bytes() -> int | None:
    """Memory available without swapping; None if unknown."""
    try:
        available = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if available is None else 1024 * int(available[1])


def _plain(packed: nn.Module) -> nn.Module:
    """The same weights in a model that is not marked as quantised, and can be saved."""
    config: Any = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path = ""
    with torch.device("meta"):
        model: Any = type(packed)(config)
    model.load_state_dict(packed.state_dict(), assign=True)
    model.tie_weights()
    for name, buffer in packed.named_buffers():  # those that are not saved, such as rotary frequencies
        _set(model, name, buffer)
    model.generation_config = packed.generation_config
    return model  # type: ignore[no-any-return]


def _set(model: nn.Module, name: str, value: torch.Tensor) -> None:
    path, _, last = name.rpartition(".")
    model.get_submodule(path)._buffers[last] = value
