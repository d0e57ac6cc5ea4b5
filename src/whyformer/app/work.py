"""Work that a visitor waits for: it says how far it is, and ends when it is stopped or takes too long.

It looks at the time before every tensor operation. Where none comes, an exception is raised in its thread from outside,
which ends any Python; a single call into C, such as the decoding of a picture, is bounded by the size of its input.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from torch.overrides import TorchFunctionMode

from whyformer.app.models import forget_models
from whyformer.errors import WhyformerError
from whyformer.inputs.read import strings_are_texts

_Result = TypeVar("_Result")
PATIENCE, INTERVAL = 0.5, 0.25  # seconds before progress is first shown, and between two looks at it
GRACE = 2.0  # seconds that work has to end by itself


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
    stopped: float = math.inf

    @property
    def is_stopped(self) -> bool:
        return self.stopped < math.inf

    @property
    def is_overdue(self) -> bool:
        """Whether it should have ended by itself by now."""
        return time.monotonic() > min(self.stopped, self.started + self.seconds) + GRACE

    def step(self, done: int, total: int, doing: str) -> None:
        """Say how far it is."""
        self.check()
        spent = time.monotonic() - self.started
        self.progress = Progress(done, total, doing, spent / done * (total - done) if done else None)

    def stop(self) -> None:
        self.stopped = min(self.stopped, time.monotonic())

    def check(self) -> None:
        """Raise where the work is to end."""
        if self.is_stopped:
            raise Stopped
        if time.monotonic() - self.started > self.seconds:
            raise TookTooLong

    def end(self) -> NoReturn:
        """Say why there is no result."""
        if self.is_stopped:
            raise Stopped
        raise WhyformerError(
            f"This took longer than the {self.seconds:g} seconds that the page gives an answer: try a smaller input, "
            "fewer methods, or the library on your own machine."
        )


class EndsWithWork(TorchFunctionMode):
    """Looks before every operation of this thread whether the work is to end."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.work.check()
        return func(*args, **(kwargs or {}))


class _Outcome(Generic[_Result]):
    """Outcome of the work: a result or an error."""

    def __init__(self) -> None:
        self.result: _Result | None = None
        self.error: BaseException | None = None


def follow(action: Callable[[Work], _Result], work: Work) -> Iterator[Progress | _Result]:
    """Do the action in a thread of its own: progress now and then, at last the result.

    An iterator that is closed before its end stops the work.
    """
    outcome = _Outcome[_Result]()

    def run() -> None:
        try:
            with strings_are_texts(), EndsWithWork(work):
                outcome.result = action(work)
        except BaseException as error:
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    threading.Thread(target=_end_overdue, args=(thread, work), daemon=True).start()
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
    if outcome.error is not None and not isinstance(outcome.error, Stopped):
        raise outcome.error
    if outcome.result is None:
        work.end()
    yield outcome.result


def _end_overdue(thread: threading.Thread, work: Work) -> None:
    """Raise an exception in the thread of work that does not end by itself, until it does."""
    while thread.is_alive():
        thread.join(INTERVAL)
        if work.is_overdue and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TookTooLong))
            thread.join(GRACE)
            forget_models()  # the one in use may have been left as a method changed it
