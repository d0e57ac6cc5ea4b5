"""Work that a visitor waits for: it says how far it is, and ends when it is stopped or takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch.overrides import TorchFunctionMode

from whyformer.errors import WhyformerError
from whyformer.inputs.read import strings_are_texts

Result = TypeVar("Result")
PATIENCE, INTERVAL = 0.5, 0.25  # seconds before progress is first shown, and between two looks at it


class Stopped(BaseException):
    """The visitor stopped the work, or left; or it took too long. No part of the work may take it for its own error."""


class TookTooLong(Stopped):
    """The work took longer than it may."""


@dataclass(frozen=True)
class Progress:
    """How far work is: steps done, of how many, what is being done, and the seconds that are probably left."""

    done: int
    total: int
    doing: str
    seconds_left: float | None = None


@dataclass
class Work:
    """One visitor's work: `step` is called by it between two steps, `stop` by whoever waits."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    progress: Progress = Progress(0, 0, "")
    is_stopped: bool = False

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far it is."""
        self.check()
        spent = time.monotonic() - self.started
        self.progress = Progress(done, total, doing, spent / done * (total - done) if done else None)

    def stop(self) -> None:
        self.is_stopped = True

    def check(self) -> None:
        """Raise where the work is to end."""
        if self.is_stopped:
            raise Stopped
        if time.monotonic() - self.started > self.seconds:
            raise TookTooLong(
                f"This took longer than the {self.seconds:g} seconds that the page gives an answer: try a smaller "
                "input, fewer methods, or the library on your own machine."
            )


class EndsWithWork(TorchFunctionMode):
    """Looks before every operation of this thread whether the work is to end."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.work.check()
        return func(*args, **(kwargs or {}))


class _Outcome(Generic[Result]):
    """What came of the work: a result or an error."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.error: BaseException | None = None


def follow(action: Callable[[Work], Result], work: Work) -> Iterator[Progress | Result]:
    """Do the action in a thread of its own: progress now and then, at last the result.

    An iterator that is closed before its end stops the work.
    """
    outcome = _Outcome[Result]()

    def run() -> None:
        try:
            with strings_are_texts(), EndsWithWork(work):
                outcome.result = action(work)
        except BaseException as error:
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(PATIENCE)
        shown = None
        while thread.is_alive():
            if work.progress != shown:
                shown = work.progress
                yield shown
            thread.join(INTERVAL)
    except GeneratorExit:
        work.stop()
        raise
    if isinstance(outcome.error, TookTooLong):
        raise WhyformerError(str(outcome.error))
    if outcome.error is not None:
        raise outcome.error
    assert outcome.result is not None
    yield outcome.result
