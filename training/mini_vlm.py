"""mini-vlm: a stock LlavaForConditionalGeneration that answers questions about Shapes World and describes its scenes.

    PYTHONPATH=src python training/mini_vlm.py --init src/whyformer/zoo/mini-clip --out DIR --minutes 9 --seed 0

`--init` is the trained mini-clip: the vision tower starts from its first six blocks and learns on. Only written words
are learned; attention is never supervised. The schedule follows the clock, so a run ends on time on any machine.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import CLIPModel, LlavaConfig, LlavaForConditionalGeneration, PreTrainedTokenizerFast

from augmentation import MEAN, STD
from checkpoints import load_model, save_model
from dialogue_batches import (
    IMAGE,
    IMAGE_TOKENS,
    LONG,
    PIXELS,
    POSITIONS,
    SHORT,
    SHORT_TURNS,
    DialogueEncoder,
    Turns,
    inputs_of,
    layout,
    new_tokenizer,
    training_batches,
)
from dialogue_evaluation import DialogueEvaluation
from optimization import Trainer, WeightAverage
from training_loop import (
    compile_if_possible,
    log,
    mixed_precision,
    new_parser,
    seconds_left,
    start_run,
    train_for,
    write_metrics,
)

PATCH = 8
WIDTHS = (SHORT,) * SHORT_TURNS + (LONG,)
IMAGE_PROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "do_resize": True,
    "size": {"height": PIXELS, "width": PIXELS},
    "resample": 3,
    "do_center_crop": False,
    "crop_size": {"height": PIXELS, "width": PIXELS},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": list(MEAN),
    "image_std": list(STD),
}
PROCESSOR = {
    "processor_class": "LlavaProcessor",
    "patch_size": PATCH,
    "num_additional_image_tokens": 1,  # [CLS], which the strategy then leaves out
    "vision_feature_select_strategy": "default",
    "image_token": IMAGE,
}


def new_model(tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace) -> LlavaForConditionalGeneration:
    vision = {"model_type": "clip_vision_model", "image_size": PIXELS, "patch_size": PATCH, "projection_dim": 128}
    vision |= {"hidden_size": 192, "intermediate_size": 768, "num_attention_heads": 6, "hidden_act": "gelu"}
    vision |= {"num_hidden_layers": options.tower_blocks, "layer_norm_eps": 1e-6}
    special = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    text = {"model_type": "qwen3", "vocab_size": len(tokenizer), "hidden_size": options.width, "head_dim": 32}
    text |= {"num_hidden_layers": options.blocks, "num_attention_heads": options.width // 32}
    text |= {"num_key_value_heads": options.width // 64, "intermediate_size": options.width * 7 // 4}
    text |= {"max_position_embeddings": POSITIONS, "tie_word_embeddings": True, **special}
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=IMAGE_TOKENS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
        **special,
    )
    return LlavaForConditionalGeneration(config)


@torch.no_grad()
def initialise_from_clip(model: LlavaForConditionalGeneration, clip: CLIPModel) -> None:
    """Give the vision tower the first blocks of the other's."""
    ours = model.model.vision_tower.state_dict()
    theirs = clip.vision_model.state_dict()
    model.model.vision_tower.load_state_dict({name: theirs[name] for name in ours})


def text_logits(model: LlavaForConditionalGeneration, inputs: Tensor, ids: Tensor, sees: Tensor, positions: Tensor):
    """Of the tokens after the picture; `ids` are those before it, its own, and those of the turns.

    It is the stock forward pass without its hooks and its scatter, which would break the compiled graph.
    """
    whole, tower = model.model, model.model.vision_tower
    states = tower.encoder(tower.pre_layrnorm(tower.embeddings(inputs))).last_hidden_state
    features = whole.multi_modal_projector(states[:, 1:])
    embeddings = whole.language_model.embed_tokens(ids)
    first, after = 2, 2 + IMAGE_TOKENS
    embeddings = torch.cat([embeddings[:, :first], features.to(embeddings.dtype), embeddings[:, after:]], dim=1)
    output = whole.language_model(
        inputs_embeds=embeddings, attention_mask=sees, position_ids=positions, use_cache=False
    )
    return model.lm_head(output.last_hidden_state[:, after:])


class DialogueTraining:
    """What a step needs: batches, the model, its average and its optimiser."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.tokenizer = options, new_tokenizer()
        self.encoder = DialogueEncoder(self.tokenizer, options.device)
        self.batches = training_batches(self.encoder, batch=options.batch, seed=options.seed)
        self.sees, self.positions = layout(WIDTHS, options.device)
        self.model = self.start_model().to(options.device)
        self.average = WeightAverage(self.model, decay=options.ema)
        self.trainer = Trainer(self.model, rate=options.rate)
        self.validation = DialogueEvaluation(self.encoder, "val", options.kept_back, seed=options.seed)
        trial = next(self.batches)
        self.losses = compile_if_possible(
            self.turn_losses, lambda losses: sum(losses(*self.prepared(*trial))).backward(), options
        )
        self.model.zero_grad(set_to_none=True)

    def start_model(self) -> LlavaForConditionalGeneration:
        if self.options.resume:
            return LlavaForConditionalGeneration.from_pretrained(self.options.resume)
        model = new_model(self.tokenizer, self.options)
        if self.options.init:
            initialise_from_clip(model, CLIPModel.from_pretrained(self.options.init))
        return model

    def prepared(self, images: Tensor, turns: Turns) -> tuple[Tensor, Tensor, Tensor]:
        start = self.encoder.start.expand(len(images), -1)
        return inputs_of(images), torch.cat([start, turns.tokens], dim=1), turns.is_reply

    def turn_losses(self, inputs: Tensor, ids: Tensor, is_reply: Tensor) -> tuple[Tensor, Tensor]:
        """The mean cross-entropy of the words of the short replies, and of those that describe the scene."""
        with mixed_precision(inputs.device):
            logits = text_logits(self.model, inputs, ids, self.sees, self.positions)[:, :-1]
        targets = ids[:, -logits.shape[1] :]
        losses = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        losses, weights = losses * is_reply[:, 1:], is_reply[:, 1:]
        last = SHORT * SHORT_TURNS - 1
        parts = ((losses[:, :last], weights[:, :last]), (losses[:, last:], weights[:, last:]))
        answers, description = (part.sum() / weight.sum() for part, weight in parts)
        return answers, description

    def step(self, progress: float) -> dict[str, Tensor]:
        answers, description = self.losses(*self.prepared(*next(self.batches)))
        self.trainer.step(answers + self.options.description_weight * description, progress)
        self.average.update()
        return {"answers": answers.detach(), "description": description.detach()}

    def validate(self) -> dict[str, float]:
        self.save()
        return self.validation.exact_match(self.average.model)

    def save(self) -> None:
        folder = self.options.out / "model"
        save_model(self.average.model, folder, [self.tokenizer])
        for name, content in (("preprocessor_config", IMAGE_PROCESSOR), ("processor_config", PROCESSOR)):
            (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--init", type=Path, help="folder of the trained mini-clip, to start the vision tower from")
    parser.add_argument("--resume", type=Path, help="folder of a trained mini-vlm, to start all of it from")
    parser.add_argument("--batch", type=int, default=256, help="scenes, with six turns each")
    parser.add_argument("--tower-blocks", type=int, default=6)
    parser.add_argument("--width", type=int, default=256, help="of the decoder")
    parser.add_argument("--blocks", type=int, default=5, help="of the decoder")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--description-weight", type=float, default=1.0, help="of the whole scene's, in the loss")
    parser.add_argument("--kept-back", type=int, default=1200, help="validation dialogues")
    parser.add_argument("--held-out", type=int, default=6000, help="test dialogues")
    parser.add_argument("--reserve", type=float, default=45.0, help="seconds for the evaluation")
    return start_run(parser)


def main() -> None:
    options = read_options()
    torch.backends.cuda.enable_cudnn_sdp(False)  # it cannot expand one mask to a batch
    training = DialogueTraining(options)
    seconds = seconds_left(options, reserve=options.reserve)
    log({"event": "training starts", "parameters": training.model.num_parameters(), "planned": seconds}, options.out)
    steps = train_for(training.step, seconds=seconds, options=options, validate=training.validate)
    log(training.validate(), options.out)
    model = load_model(LlavaForConditionalGeneration, options)
    evaluation = DialogueEvaluation(training.encoder, "test", options.held_out, seed=options.seed)
    scores: dict[str, Any] = evaluation.scores(model)
    write_metrics(scores, model, options, steps=steps, scenes_seen=steps * options.batch)


if __name__ == "__main__":
    main()
