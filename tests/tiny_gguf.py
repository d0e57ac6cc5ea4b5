"""A tiny Llama as llama.cpp's converter writes it, by the package gguf."""

from functools import cache

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPECIAL = ("<|endoftext|>", "<|im_end|>")
MERGES = ("h e", "Ġ t", "Ġt he")
HEADS, WIDTH, HIDDEN, BLOCKS = 2, 64, 96, 3
TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
NORMAL, CONTROL = 1, 3  # kinds of tokens


def vocabulary():
    return [*SPECIAL, *bytes_to_unicode().values(), *(merge.replace(" ", "") for merge in MERGES)]


@cache
def tiny_llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary()),
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


def stored_names(model):
    """The name in the file and the weight, as llama.cpp lays it out: it rotates neighbouring features."""
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    yield "output_norm.weight", state["model.norm.weight"]
    for block in range(BLOCKS):
        for ours, theirs in names.items():
            weight = state[f"model.layers.{block}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                halves = weight.reshape(HEADS, 2, WIDTH // HEADS // 2, WIDTH)
                weight = halves.swapaxes(1, 2).reshape(weight.shape)
            yield f"blk.{block}.{theirs}.weight", np.ascontiguousarray(weight)


def write_gguf(path, kind=GGMLQuantizationType.F32, *, blocks=BLOCKS, architecture="llama"):
    """The model in a file whose matrices have this type; `blocks` is what its header says."""
    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(vocabulary()))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(vocabulary())
    writer.add_token_types([CONTROL] * len(SPECIAL) + [NORMAL] * (len(vocabulary()) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, weight in stored_names(tiny_llama()):
        if weight.ndim == 2 and kind != GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
