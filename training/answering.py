"""What the recipes of question answering share: lessons, and an exam that also asks whether the model has to look."""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer

import course
from asking import NAMES, Asker, Batch, image_only_ceiling, new_tokenizer, percent, question_only_ceiling
from whyformer.scenes import KINDS, cleared, pictures, questions, regions, sample


class Reading(NamedTuple):
    """What a recipe's model makes of a batch: its answers, and the states of its regions early on."""

    logits: Tensor
    regions: Tensor


ReadingOf = Callable[[Any, Batch], Reading]
Scores = dict[str, float]  # percent, of all questions and of each kind


class Exam:
    """Questions about held-out scenes, and the same questions after an object was cleared away."""

    def __init__(self, asker: Asker, split: str, count: int) -> None:
        rng = asker.rng(asker.options.seed)
        self.asker, self.scenes = asker, sample(count, split, rng=rng)
        self.questions = questions(self.scenes, rng)
        others = self.scenes.is_object & ~self.questions.things
        another = torch.multinomial(others.float(), 1, generator=rng)
        self.another = torch.zeros_like(others).scatter(1, another, True)

    def batch(self, without: Tensor | None = None) -> Batch:
        scenes = self.scenes if without is None else cleared(self.scenes, without)
        return self.asker.batch(scenes, regions(pictures(scenes)), self.questions)

    def scores(self, model: Any, reading_of: ReadingOf) -> dict[str, Scores]:
        return {
            "accuracy": accuracies(model, reading_of, self.batch()),
            "accuracy_with_the_asked_objects_cleared": accuracies(model, reading_of, self.batch(self.questions.things)),
            "accuracy_with_another_object_cleared": accuracies(model, reading_of, self.batch(self.another)),
            "best_guess_from_the_question": question_only_ceiling(self.scenes),
            "best_guess_from_the_scene": image_only_ceiling(self.scenes),
        }


@torch.no_grad()
def accuracies(model: Any, reading_of: ReadingOf, batch: Batch) -> Scores:
    chosen = torch.cat([reading_of(model, part).logits.argmax(dim=1) for part in batch.parted(1024)])
    right = (chosen == batch.answer).float()
    by_kind = {name: percent(right[batch.kind == kind].mean()) for kind, name in enumerate(KINDS)}
    return {"all": percent(right.mean()), **by_kind}


class Pupil(nn.Module):
    """The model and, for training only, a linear map that names its regions, as LXMERT's pre-training did."""

    def __init__(self, model: Any, reading_of: ReadingOf) -> None:
        super().__init__()
        self.model, self.reading_of = model, reading_of
        self.namer = nn.Linear(model.config.hidden_size, sum(NAMES))

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the answers and of the names."""
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16, enabled=batch.ids.is_cuda):
            logits, states = self.reading_of(self.model, batch)
            guesses = self.namer(states).flatten(0, 1)
        pairs = zip(guesses.float().split(NAMES, dim=1), batch.names.flatten(0, 1).unbind(dim=1), strict=True)
        names = torch.stack([F.cross_entropy(guess, name) for guess, name in pairs])
        return F.cross_entropy(logits.float(), batch.answer), names.sum()


class School:
    """Teaches one kind of model, and its blind twins."""

    def __init__(self, new_model: Callable[[Any], Any], reading_of: ReadingOf, options: argparse.Namespace) -> None:
        self.new_model, self.reading_of, self.options = new_model, reading_of, options
        self.asker = Asker(new_tokenizer(), options)
        self.lessons = self.asker.lessons()
        self.exam = Exam(self.asker, "test", options.test_questions)
        self.asker.check(self.asker.tokenizer, self.exam.questions.words)

    def train(self, *, keep: float) -> int:
        """Saves the running average of a model taught until `keep` seconds are left. Returns the steps made."""
        options, folder = self.options, self.options.out / "model"
        pupil = self.new_pupil()
        course.say({"event": "exam ready", "parameters": pupil.model.num_parameters()}, options.out)
        trial = next(self.lessons)
        losses_of = course.compiled(Pupil.losses, lambda losses_of: sum(losses_of(pupil, trial)).backward(), options)
        pupil.zero_grad(set_to_none=True)
        quiz = Exam(self.asker, "val", 1024).batch()
        model, steps = self.taught(
            pupil,
            lambda batch: losses_of(pupil, batch),
            seconds=course.seconds_left(options, keep=keep),
            probe=lambda average: accuracies(average, self.reading_of, quiz),
        )
        course.save(model, folder, [self.asker.tokenizer])
        self.asker.check(AutoTokenizer.from_pretrained(folder), self.exam.questions.words)
        return steps

    def blind_scores(self, blinded: Callable[[Batch], Batch], *, seconds: float) -> Scores:
        """Of a new model that is taught and examined with one of its two inputs blanked."""
        pupil = self.new_pupil()
        model, _ = self.taught(pupil, lambda batch: pupil.losses(blinded(batch)), seconds=seconds)
        return accuracies(model, self.reading_of, blinded(self.exam.batch()))

    def new_pupil(self) -> Pupil:
        return Pupil(self.new_model(self.asker.tokenizer), self.reading_of).to(self.options.device)

    def taught(
        self,
        pupil: Pupil,
        losses_of: Callable[[Batch], tuple[Tensor, Tensor]],
        *,
        seconds: float,
        probe: Callable[[Any], Scores] | None = None,
    ) -> tuple[Any, int]:
        """The running average of the pupil's model, and the steps made. Names matter less and less."""
        trainer = course.Trainer(pupil, rate=self.options.rate)
        average = course.Average(pupil.model)

        def step(progress: float) -> dict[str, Tensor]:
            answers, names = losses_of(next(self.lessons))
            trainer.step(answers + 0.5 * (1 - progress) * names, progress)
            average.update()
            return {"answers": answers.detach(), "names": names.detach()}

        quiz = (lambda: probe(average.model)) if probe else None
        steps = course.follow(step, seconds=seconds, options=self.options, probe=quiz)
        return average.model, steps


def options_of_the_call(description: str) -> argparse.Namespace:
    parser = course.options_of(description)
    parser.add_argument("--batch", type=int, default=1024, help="questions")
    parser.add_argument("--rate", type=float, default=7e-4)
    parser.add_argument("--test-questions", type=int, default=8192)
    return course.begin(parser)
