"""How well a model writes about held-out scenes, and whether it reads its words off the things it should."""

from typing import Any

import torch
from torch import Generator, Tensor

from dialogue_batches import FIRST_TEXT, LONG, DialogueEncoder, inputs_of
from whyformer.scenes import PROMPTS, VOCABULARY, clear_things, dialogues, pictures, sample, texts

BATCH = 256
WRITTEN = 24  # replies that are written word by word, to see that they are the likeliest ones


class DialogueEvaluation:
    """A prompt of a random kind about each of so many scenes, and the same prompts after objects were removed."""

    def __init__(self, encoder: DialogueEncoder, split: str, count: int, *, seed: int) -> None:
        rng = Generator(encoder.device).manual_seed(seed)
        self.encoder, self.scenes = encoder, sample(count, split, rng=rng)
        self.about = dialogues(self.scenes, rng)
        self.turns = encoder.turns(self.about, LONG)
        others = self.scenes.is_object & ~self.about.things
        self.has_other = others.any(dim=1)
        other = torch.multinomial(others.float() + 1e-9, 1, generator=rng)
        self.other = torch.zeros_like(others).scatter(1, other, True)

    def exact_match(self, model: Any) -> dict[str, float]:
        """The share of replies whose every word is the likeliest one, in percent."""
        return self._by_kind(self.right(model), torch.ones_like(self.has_other))

    def scores(self, model: Any) -> dict[str, Any]:
        right, is_about_some = self.right(model), self.about.things.any(dim=1)
        without = self.right(model, without=self.about.things)
        without_other = self.right(model, without=self.other)
        shuffled = self.right(model, order=torch.arange(len(self.scenes), device=right.device).roll(1))
        return {
            "exact_match": self._by_kind(right, torch.ones_like(right)),
            "reply_changes_without_its_objects": self._by_kind(~without, right & is_about_some),
            "reply_stays_without_another_object": self._by_kind(without_other, right & self.has_other),
            "exact_match_with_another_picture": self._by_kind(shuffled, torch.ones_like(right)),
            "right_words_of_whole_scenes": self.right_words(model),
            "written": self.written(model),
            "dialogues": len(right),
        }

    def right(self, model: Any, *, without: Tensor | None = None, order: Tensor | None = None) -> Tensor:
        """Whether each reply is what the model would write, `without` some things or with pictures in this order."""
        scenes = self.scenes if without is None else clear_things(self.scenes, without)
        images = pictures(scenes).pixels
        return (
            self._is_likeliest(model, images if order is None else images[order]) | ~self.turns.is_reply[:, 1:]
        ).all(dim=1)

    @torch.no_grad()
    def _is_likeliest(self, model: Any, images: Tensor) -> Tensor:
        """Whether each token after the first of a turn is the likeliest one after those before it."""
        hits = []
        for start in range(0, len(images), BATCH):
            tokens = self.turns.tokens[start : start + BATCH]
            ids = torch.cat([self.encoder.start.expand(len(tokens), -1), tokens], dim=1)
            inputs = inputs_of(images[start : start + BATCH])
            logits = model(input_ids=ids, pixel_values=inputs, use_cache=False).logits[:, FIRST_TEXT:-1]
            hits.append(logits.argmax(dim=-1) == tokens[:, 1:])
        return torch.cat(hits)

    def right_words(self, model: Any) -> float:
        """Of the descriptions of whole scenes: the share of words that are right after right ones."""
        hits, is_reply = self._is_likeliest(model, pictures(self.scenes).pixels), self.turns.is_reply[:, 1:]
        is_scene = self.about.kind == list(PROMPTS).index("scene")
        return percent(hits[is_scene], is_reply[is_scene])

    @torch.no_grad()
    def written(self, model: Any) -> list[dict[str, str]]:
        """What the model writes word by word to the first prompts, and what it should."""
        images = inputs_of(pictures(self.scenes[:WRITTEN]).pixels)
        prompts = texts(self.about.words[:WRITTEN], VOCABULARY)
        replies = texts(self.about.replies[:WRITTEN], VOCABULARY)
        rows = []
        for number, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            tokens, is_reply = self.turns.tokens[number], self.turns.is_reply[number]
            ids = torch.cat([self.encoder.start, tokens[: int(is_reply.long().argmax())]])[None]
            output = model.generate(
                input_ids=ids, pixel_values=images[number : number + 1], max_new_tokens=LONG, do_sample=False
            )
            text = self.encoder.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
            rows.append({"prompt": prompt, "reply": reply, "written": text})
        return rows

    def _by_kind(self, hits: Tensor, counts: Tensor) -> dict[str, float]:
        """In percent, of all dialogues that count and of each kind."""
        kinds = {name: self.about.kind == number for number, name in enumerate(PROMPTS)}
        groups = {"all": torch.ones_like(counts), **kinds}
        return {name: percent(hits, counts & group) for name, group in groups.items() if (counts & group).any()}


def percent(hits: Tensor, counts: Tensor) -> float:
    return round(100 * float(hits[counts].float().mean()), 2)
