"""Work for a visitor, which reports progress and ends when it is stopped or takes too long.

It checks the time before every tensor operation. In their absence, an exception is raised in its thread from outside,
which ends any Python code. A single call into C, such as decoding a picture, is bounded by the size of its input.
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
PATIENCE, INTERVAL = 0.5, 0.25  # seconds before progress is first shown, and between updates
GRACE = 2.0  # seconds for work to end by itself


class Stopped(BaseException):
    """The work was stopped, or took too long. A BaseException, so that no part of the work handles it."""


class TookTooLong(Stopped):
    """The work took too long."""


@dataclass(frozen=True)
class Progress:
    """The progress of work: steps done, total steps, the current step, and the estimated seconds left."""

    done: int
    total: int
    doing: str
    seconds_left: float | None = None


@dataclass
class Work:
    """One visitor's work, which calls `step` between steps; `stop` is called from outside."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    progress: Progress = Progress(0, 0, "")
    stopped: float = math.inf

    @property
    def is_stopped(self) -> bool:
        return self.stopped < math.inf

    @property
    def is_overdue(self) -> bool:
        """Whether it should have ended by now."""
        return time.monotonic() > min(self.stopped, self.started + self.seconds) + GRACE

    def step(self, done: int, total: int, doing: str) -> None:
        """Report progress."""
        self.check()
        spent = time.monotonic() - self.started
        self.progress = Progress(done, total, doing, spent / done * (total - done) if done else None)

    def stop(self) -> None:
        self.stopped = min(self.stopped, time.monotonic())

    def check(self) -> None:
        """Raise if the work should end."""
        if self.is_stopped:
            raise Stopped
        if time.monotonic() - self.started > self.seconds:
            raise TookTooLong

    def end(self) -> NoReturn:
        """Raise the reason why there is no result."""
        if self.is_stopped:
            raise Stopped
        raise WhyformerError(
            f"This took longer than the page's limit of {self.seconds:g} seconds: try a smaller input, fewer methods, "
            "or the library on your own machine."
        )


class EndsWithWork(TorchFunctionMode):
    """Checks before every operation of this thread whether the work should end."""

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
    """Run an action in a separate thread, yielding progress and finally the result.

    Closing the iterator early stops the work.
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
    """Raise an exception in the thread of overdue work, until it ends."""
    while thread.is_alive():
        thread.join(INTERVAL)
        if work.is_overdue and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TookTooLong))
            thread.join(GRACE)
            forget_models()  # the model in use may still have a method's changes
