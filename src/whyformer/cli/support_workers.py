"""Workers that judge the answers of a log: one here, or one on each GPU or CPU of a Ray cluster."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.ray_actors import finished_tasks, full_path, start_actors

if TYPE_CHECKING:
    from whyformer.api.served_scorer import ServedScorer
    from whyformer.api.support_estimate import SupportEstimate
    from whyformer.inputs.support_logs import LoggedAnswer
    from whyformer.models.loading import LoadedModel

KEY_VARIABLE = "WHYFORMER_API_KEY"  # environment variable: the key of a served model
WITHOUT_EFFECT = frozenset({"device", "batch_size", "cache", "requests", "concurrency"})  # on verdicts


@dataclass(frozen=True)
class SupportJob:
    """How answers are judged, in plain values that travel to a cluster.

    Attributes:
        model: The name or folder of the model; its name on the server with `url`.
        device: Where it is loaded.
        dtype: Its precision.
        batch_size: Prompts at once.
        budget: The most forward passes of an answer.
        calibration: The name or file of a calibration, if not that of the weights.
        url: The address of a server, for a model that is only served.
        api: The API of that server.
        tokenizer: The folder of its tokenizer, whose chat template formats messages.
        cache: The folder of its answers.
        requests: The most requests of this run.
        concurrency: The number of requests at once.
    """

    model: str
    device: str | None = None
    dtype: Any = None
    batch_size: int | None = None
    budget: int | None = None
    calibration: str | None = None
    url: str | None = None
    api: Any = "completions"
    tokenizer: str | None = None
    cache: str | None = None
    requests: int | None = None
    concurrency: int = 4

    def load(self, *, quiet: bool = True) -> LoadedModel | ServedScorer:
        """Load the model, or the connection to its server."""
        from whyformer.cli.call_arguments import load_model

        if self.url is None:
            return load_model(self.model, device=self.device, dtype=self.dtype, quiet=quiet)
        from whyformer.api.served_scorer import ServedScorer
        from whyformer.models.processors import load_tokenizer
        from whyformer.served.endpoint import Endpoint

        limits: Any = {"cache": self.cache, "max_requests": self.requests, "concurrency": self.concurrency}
        endpoint = Endpoint(self.url, self.model, os.environ.get(KEY_VARIABLE), self.api, **limits)
        return ServedScorer(endpoint, None if self.tokenizer is None else load_tokenizer(self.tokenizer))

    def estimate(self, answers: Sequence[LoggedAnswer]) -> SupportEstimate:
        """The number of requests that a served model would get."""
        from whyformer.api.support_estimate import estimate_support

        scorer: Any = self.load()
        options = {"budget": self.budget, "calibration": self.calibration}
        return estimate_support(scorer.score, scorer.tokenizer, answers, **options)


@dataclass
class SupportWorker:
    """A loaded model that judges answers one by one."""

    job: SupportJob
    quiet: bool = True
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        self.model = self.job.load(quiet=self.quiet)

    def identity(self) -> dict[str, Any]:
        """Everything besides an answer that its verdicts depend on."""
        from whyformer import __version__
        from whyformer.api.calibrations import calibration_named, calibration_of, model_digest

        named = self.job.calibration
        own = None if named is not None or self.job.url is not None else calibration_of(self.model)
        calibration = own if named is None else calibration_named(named)
        plain = {name: value for name, value in asdict(self.job).items() if name not in WITHOUT_EFFECT}
        return plain | {
            "version": __version__,
            "weights": "" if self.job.url is not None else model_digest(self.model),
            "calibration": None if calibration is None else digest_of(calibration.to_dict()),
        }

    def judge(self, answer: LoggedAnswer) -> dict[str, Any]:
        """The verdicts on an answer, or the reason why it has no verdicts, as plain data."""
        from whyformer.api.answer_support import answer_support
        from whyformer.results.support_schema import support_dict

        options = {"budget": self.job.budget, "calibration": self.job.calibration, "batch_size": self.job.batch_size}
        try:
            support = answer_support(self.model, answer.prompt, answer.answer, answer.documents, **options)  # type: ignore[arg-type]
        except (WhyformerError, RuntimeError) as error:  # torch's own, such as out of memory for one answer
            return {"number": answer.number, "error": " ".join(str(error).split())}
        return {"number": answer.number, "support": support_dict(support)}


def digest_of(*content: Any) -> str:
    """A short digest of plain data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def judge_here(worker: SupportWorker, answers: Sequence[LoggedAnswer]) -> Iterator[Mapping[str, Any]]:
    """Judge answers one by one in this process."""
    yield from map(worker.judge, answers)


def judge_on_ray(workers: Sequence[Any], answers: Sequence[LoggedAnswer]) -> Iterator[Mapping[str, Any]]:
    """Judge answers on actors, each on whichever is free, in any order."""
    ray = extra("ray", "ray")
    for _, answer, ready in finished_tasks(workers, lambda worker, answer: worker.judge.remote(answer), answers):
        try:
            yield ray.get(ready)
        except ray.exceptions.RayError as error:
            yield {"number": answer.number, "error": f"its worker was lost ({type(error).__name__})"}


def ray_workers(job: SupportJob, answers: int) -> list[Any]:
    """An actor on each GPU of the cluster, or on each CPU without GPUs, but no more than answers."""
    return start_actors(SupportWorker, answers, _at_home(job))


def _at_home(job: SupportJob) -> SupportJob:
    """The job with full paths: workers may start in other folders."""
    paths = {name: getattr(job, name) for name in ("model", "calibration", "tokenizer")}
    changes: dict[str, Any] = {name: full_path(path) for name, path in paths.items() if path}
    return replace(job, **changes)
