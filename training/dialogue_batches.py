"""Dialogues about Shapes World as tokens: the tokenizer with its chat layout, and several turns about one picture.

Every turn of a row sees the picture and itself, no other turn, and its positions begin after the picture: each is what
a dialogue of one turn would be, but the picture is read only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from augmentation import MEAN, STD
from chat_tokenizer import ROLES, WORD, chat_tokenizer
from whyformer.scenes import PROMPTS, VOCABULARY, Dialogues, Scenes, dialogues, pictures, sample

POSITIONS = 512
PIXELS = 128  # a side, as mini-clip sees a scene
IMAGE = "<image>"
IMAGE_TOKENS = (PIXELS // 8) ** 2
FIRST_TEXT = 2 + IMAGE_TOKENS  # after the begin of the text, the role and the picture
SHORT, LONG = 24, 70  # tokens of a turn; short and long ones beside the picture make a multiple of eight
SHORT_TURNS = 5
SHORT_KINDS = tuple(kind for kind in PROMPTS if kind != "scene")
BATCHES_PER_DRAW = 8  # the scenes of so many batches are drawn at once
CONTENT = (
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ eos_token }}"
)
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('No role named ' + message['role'] + '. Known: system, user, assistant.') }}{% endif %}"
    "<|{{ message['role'] }}|>"
    f"{{% if message['role'] == 'assistant' %}}{{% generation %}}{CONTENT}{{% endgeneration %}}"
    f"{{% else %}}{CONTENT}{{% endif %}}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def new_tokenizer() -> PreTrainedTokenizerFast:
    """Every word of the dialogues is one token, in whatever case it is written."""
    words = {word for word in VOCABULARY if word.isalpha()}
    return chat_tokenizer(words, TEMPLATE, positions=POSITIONS, extra_tokens={"image_token": IMAGE}, lowercase=True)


@dataclass(frozen=True)
class Turns:
    """Prompts and replies as tokens, and which tokens are to be written."""

    tokens: Tensor  # scene, token
    is_reply: Tensor  # scene, token: of the reply or the end after it

    @staticmethod
    def joined(parts: Sequence["Turns"]) -> "Turns":
        """Turns about the same pictures, one after another."""
        return Turns(*(torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("tokens", "is_reply")))

    def __getitem__(self, index: slice | Tensor) -> "Turns":
        return Turns(self.tokens[index], self.is_reply[index])


class DialogueEncoder:
    """Encodes the words of dialogues as the tokenizer encodes their strings."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, device: torch.device | str) -> None:
        self.tokenizer, self.device = tokenizer, torch.device(device)
        pieces = [WORD + word if word.isalpha() else word for word in VOCABULARY[1:]]
        ids = [tokenizer.pad_token_id, *tokenizer.convert_tokens_to_ids(pieces)]
        if tokenizer.unk_token_id in ids:
            raise ValueError("A word of the dialogues is no token.")
        self.id_of_word = torch.tensor(ids, device=device)
        start = [tokenizer.bos_token_id, *tokenizer.convert_tokens_to_ids([ROLES["user"]])]
        start += IMAGE_TOKENS * tokenizer.convert_tokens_to_ids([IMAGE])
        self.start = torch.tensor(start, device=device)

    def turns(self, about: Dialogues, width: int) -> Turns:
        """The prompt, the end of it, the assistant's role, the reply and its end; padding after them."""
        end, assistant = self.tokenizer.eos_token_id, self.tokenizer.convert_tokens_to_ids(ROLES["assistant"])
        asked = F.pad(self.id_of_word[about.words], (0, 1), value=end)
        asked = F.pad(asked, (0, 1), value=assistant)
        written = F.pad(self.id_of_word[about.replies], (0, 1), value=end)
        tokens = torch.cat([asked, written], dim=1)
        is_padding = tokens == self.tokenizer.pad_token_id
        is_reply = (torch.arange(tokens.shape[1], device=tokens.device) >= asked.shape[1]) & ~is_padding
        order = is_padding.long().argsort(dim=1, stable=True)
        tokens, is_reply = tokens.gather(1, order), is_reply.gather(1, order)
        space = width - tokens.shape[1]  # negative where the longest prompt has no long reply: padding is cut off
        if space < 0 and not (tokens[:, width:] == self.tokenizer.pad_token_id).all():
            raise ValueError(f"A turn is longer than {width} tokens.")
        return Turns(F.pad(tokens, (0, space), value=self.tokenizer.pad_token_id), F.pad(is_reply, (0, space)))

    def draw(self, scenes: Scenes, rng: Generator) -> Turns:
        """Several short turns and one that describes the whole scene."""
        short = [self.turns(dialogues(scenes, rng, kinds=SHORT_KINDS), SHORT) for _ in range(SHORT_TURNS)]
        return Turns.joined([*short, self.turns(dialogues(scenes, rng, kinds=["scene"]), LONG)])


def layout(widths: Sequence[int], device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Which tokens see which, and the position of each: a picture and turns of these widths."""
    turn = torch.tensor([-1] * FIRST_TEXT + [number for number, width in enumerate(widths) for _ in range(width)])
    length = len(turn)
    is_before = torch.ones(length, length, dtype=torch.bool).tril()
    sees = is_before & ((turn[None, :] == -1) | (turn[:, None] == turn[None, :]))
    positions = [*range(FIRST_TEXT), *(FIRST_TEXT + place for width in widths for place in range(width))]
    return sees[None, None].to(device), torch.tensor([positions], device=device)


def inputs_of(images: Tensor) -> Tensor:
    """Scenes as the image processor gives them."""
    enlarged = F.interpolate(images.float() / 255, size=PIXELS, mode="bicubic", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(stat, device=images.device)[:, None, None] for stat in (MEAN, STD))
    return (enlarged - mean) / std


def training_batches(encoder: DialogueEncoder, *, batch: int, seed: int):
    """Pixels and turns of the training split, without end."""
    rng = Generator(encoder.device).manual_seed(seed)
    while True:
        scenes = sample(BATCHES_PER_DRAW * batch, "train", rng=rng)
        images, turns = pictures(scenes).pixels, encoder.draw(scenes, rng)
        for start in range(0, len(images), batch):
            yield images[start : start + batch], turns[start : start + batch]
