"""Training and evaluation of the models that answer questions about Shapes World from its regions.

The evaluation also tells whether a model looks: objects are removed, and baselines see only one of the two inputs.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer

from checkpoints import save_model
from optimization import Trainer, WeightAverage
from training_loop import compile_if_possible, log, mixed_precision, new_parser, seconds_left, start_run, train_for
from vqa_baselines import best_guess_from_question, best_guess_from_scene, percent
from vqa_batches import ATTRIBUTE_SIZES, VqaBatch, VqaEncoder, new_tokenizer
from whyformer.scenes import KINDS, clear_things, pictures, questions, regions, sample


class VqaOutput(NamedTuple):
    """What a recipe's model computes for a batch: the answers' logits, and early hidden states of the regions."""

    logits: Tensor
    regions: Tensor


Forward = Callable[[Any, VqaBatch], VqaOutput]
Scores = dict[str, float]  # percent, of all questions and of each kind


class VqaEvaluation:
    """Questions about held-out scenes, and the same questions after an object was removed."""

    def __init__(self, encoder: VqaEncoder, split: str, count: int) -> None:
        rng = encoder.rng(encoder.options.seed)
        self.encoder, self.scenes = encoder, sample(count, split, rng=rng)
        self.questions = questions(self.scenes, rng)
        others = self.scenes.is_object & ~self.questions.things
        another = torch.multinomial(others.float(), 1, generator=rng)
        self.another = torch.zeros_like(others).scatter(1, another, True)

    def batch(self, without: Tensor | None = None) -> VqaBatch:
        """All questions, with or without some things of each scene."""
        scenes = self.scenes if without is None else clear_things(self.scenes, without)
        return self.encoder.batch(scenes, regions(pictures(scenes)), self.questions)

    def scores(self, model: Any, forward: Forward) -> dict[str, Scores]:
        return {
            "accuracy": accuracies(model, forward, self.batch()),
            "accuracy_with_the_asked_objects_cleared": accuracies(model, forward, self.batch(self.questions.things)),
            "accuracy_with_another_object_cleared": accuracies(model, forward, self.batch(self.another)),
            "best_guess_from_the_question": best_guess_from_question(self.scenes),
            "best_guess_from_the_scene": best_guess_from_scene(self.scenes),
        }


@torch.no_grad()
def accuracies(model: Any, forward: Forward, batch: VqaBatch) -> Scores:
    """Of all questions and of each kind."""
    answers = torch.cat([forward(model, part).logits.argmax(dim=1) for part in batch.split(1024)])
    correct = (answers == batch.answer).float()
    by_kind = {name: percent(correct[batch.kind == kind].mean()) for kind, name in enumerate(KINDS)}
    return {"all": percent(correct.mean()), **by_kind}


class ModelWithRegionHead(nn.Module):
    """The model and, for training only, a linear map that names its regions, as LXMERT's pre-training did."""

    def __init__(self, model: Any, forward: Forward) -> None:
        super().__init__()
        self.model, self.model_output = model, forward
        self.region_head = nn.Linear(model.config.hidden_size, sum(ATTRIBUTE_SIZES))

    def losses(self, batch: VqaBatch) -> tuple[Tensor, Tensor]:
        """Of the answers and of the regions' attributes."""
        with mixed_precision(batch.ids.device):
            logits, states = self.model_output(self.model, batch)
            attributes = self.region_head(states).flatten(0, 1)
        targets = batch.attributes.flatten(0, 1).unbind(dim=1)
        pairs = zip(attributes.float().split(ATTRIBUTE_SIZES, dim=1), targets, strict=True)
        attribute_losses = torch.stack([F.cross_entropy(guess, target) for guess, target in pairs])
        return F.cross_entropy(logits.float(), batch.answer), attribute_losses.sum()


class VqaTraining:
    """Trains one kind of model, and baselines of it that see one of the two inputs only."""

    def __init__(self, new_model: Callable[[Any], Any], forward: Forward, options: argparse.Namespace) -> None:
        self.new_model, self.forward, self.options = new_model, forward, options
        self.encoder = VqaEncoder(new_tokenizer(), options)
        self.batches = self.encoder.training_batches()
        self.evaluation = VqaEvaluation(self.encoder, "test", options.test_questions)
        self.encoder.check_tokenizer(self.encoder.tokenizer, self.evaluation.questions.words)

    def train(self, *, reserve: float) -> int:
        """Train until `reserve` seconds are left, save the averaged model, and return the number of steps."""
        options, folder = self.options, self.options.out / "model"
        module = self.new_module()
        log({"event": "evaluation ready", "parameters": module.model.num_parameters()}, options.out)
        trial = next(self.batches)
        losses = compile_if_possible(
            ModelWithRegionHead.losses, lambda losses: sum(losses(module, trial)).backward(), options
        )
        module.zero_grad(set_to_none=True)
        validation = VqaEvaluation(self.encoder, "val", 1024).batch()
        model, steps = self.train_module(
            module,
            lambda batch: losses(module, batch),
            seconds=seconds_left(options, reserve=reserve),
            validate=lambda average: accuracies(average, self.forward, validation),
        )
        save_model(model, folder, [self.encoder.tokenizer])
        self.encoder.check_tokenizer(AutoTokenizer.from_pretrained(folder), self.evaluation.questions.words)
        return steps

    def baseline_scores(self, ablate: Callable[[VqaBatch], VqaBatch], *, seconds: float) -> Scores:
        """Of a new model trained and evaluated on batches that `ablate` has blanked one of the two inputs of."""
        module = self.new_module()
        model, _ = self.train_module(module, lambda batch: module.losses(ablate(batch)), seconds=seconds)
        return accuracies(model, self.forward, ablate(self.evaluation.batch()))

    def new_module(self) -> ModelWithRegionHead:
        return ModelWithRegionHead(self.new_model(self.encoder.tokenizer), self.forward).to(self.options.device)

    def train_module(
        self,
        module: ModelWithRegionHead,
        losses: Callable[[VqaBatch], tuple[Tensor, Tensor]],
        *,
        seconds: float,
        validate: Callable[[Any], Scores] | None = None,
    ) -> tuple[Any, int]:
        """The averaged model and the number of steps; the regions' attributes weigh less and less."""
        trainer = Trainer(module, rate=self.options.rate)
        average = WeightAverage(module.model)

        def step(progress: float) -> dict[str, Tensor]:
            answer_loss, attribute_loss = losses(next(self.batches))
            trainer.step(answer_loss + 0.5 * (1 - progress) * attribute_loss, progress)
            average.update()
            return {"answers": answer_loss.detach(), "names": attribute_loss.detach()}

        validate_average = (lambda: validate(average.model)) if validate else None
        steps = train_for(step, seconds=seconds, options=self.options, validate=validate_average)
        return average.model, steps


def read_options(description: str) -> argparse.Namespace:
    """The options of a recipe that answers questions."""
    parser = new_parser(description)
    parser.add_argument("--batch", type=int, default=1024, help="questions")
    parser.add_argument("--rate", type=float, default=7e-4)
    parser.add_argument("--test-questions", type=int, default=8192)
    return start_run(parser)
