"""The tokenizer of the models that chat: known words are one token each, other texts are spelt in letters and bytes."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

PAD, BEGIN, END = "<|pad|>", "<|begin|>", "<|end|>"
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
WORD = "\u2581"  # stands for the space in front of a word


def chat_tokenizer(
    words: Iterable[str],
    template: str,
    *,
    positions: int,
    extra_tokens: dict[str, str] | None = None,
    parts: Iterable[str] = (),
    lowercase: bool = False,
) -> PreTrainedTokenizerFast:
    """A tokenizer of these words, special tokens for the roles and `extra_tokens` (by name), and a chat template.

    `parts` are pieces without a space in front, such as names within JSON.
    """
    extra = {f"{role}_token": token for role, token in ROLES.items()} | (extra_tokens or {})
    special = [PAD, BEGIN, END, *extra.values(), "<unk>"]
    characters = [chr(code) for code in range(33, 127)]
    pieces = [(token, 0.0) for token in special]
    pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces += [(WORD, -8.0), (f"{WORD}\n", -1.0), *((character, -9.0) for character in characters)]
    pieces += [(WORD + word, -1.0) for word in sorted(words)]
    pieces += [(part, -1.0) for part in sorted(parts)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=special.index("<unk>"), byte_fallback=True))
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    # A line break stands alone, and the word after it is the same token as after a space.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("\n"), "isolated"), pre_tokenizers.Metaspace(WORD, prepend_scheme="always")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace(f"{WORD}\n", "\n"),
            decoders.Replace(f"\n{WORD}", "\n"),
            decoders.Replace(WORD, " "),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special[:-1]])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A $B:1", special_tokens=[(BEGIN, special.index(BEGIN))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=positions,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        unk_token="<unk>",
        extra_special_tokens=extra,
        chat_template=template,
    )
