"""The calibration of a model, by the digest of its weights: bundled, or the user's own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from whyformer.api.verdict_figures import WHITE_BOX
from whyformer.api.verdict_models import Calibration, bundled_calibrations, read_calibration
from whyformer.errors import WhyformerError, nearest
from whyformer.files import parse_json, whole_file
from whyformer.models.digests import weight_digests
from whyformer.models.loading import LoadedModel

CALIBRATION_FOLDER = "WHYFORMER_CALIBRATIONS"  # environment variable: where the user's own are
MOST_CALIBRATION_BYTES = 1 << 20


def calibration_folder() -> Path:
    """The folder of the user's own calibrations."""
    return Path(os.environ.get(CALIBRATION_FOLDER) or Path.home() / ".cache" / "whyformer" / "calibrations")


def model_digest(loaded_model: LoadedModel) -> str:
    """One SHA-256 of the weights of a model."""
    return joined_digest(weight_digests(loaded_model.model, loaded_model.place))


def joined_digest(digests: Mapping[str, str]) -> str:
    """One digest of those of several files."""
    values = sorted(digests.values())
    return values[0] if len(values) == 1 else hashlib.sha256(" ".join(values).encode()).hexdigest()


def calibration_of(loaded_model: LoadedModel) -> Calibration | None:
    """The user's own calibration of these weights, or else the bundled one; None without either."""
    bundled = {one.digest: one for one in bundled_calibrations()}
    if not bundled and not calibration_folder().is_dir():
        return None
    digest = model_digest(loaded_model)
    own = calibration_folder() / f"{digest}.json"
    return read_calibration_file(own) if own.is_file() else bundled.get(digest)


def calibration_named(name: str | Path) -> Calibration:
    """The calibration in a file, or the bundled one of a model of this name."""
    if Path(name).is_file():
        return read_calibration_file(Path(name))
    bundled = {one.model: one for one in bundled_calibrations()}
    if str(name) not in bundled:
        raise WhyformerError(
            f"calibration={str(name)!r:.80} is neither a file nor bundled. {nearest(str(name), sorted(bundled))} "
            "`whyformer calibrate MODEL --out FILE.json` writes one."
        )
    return bundled[str(name)]


def served_calibration(name: str | Path) -> Calibration:
    """The same by the figures of models that are only served."""
    calibration = calibration_named(name)
    if calibration.served is None and needs_white_box(calibration):
        raise WhyformerError(
            f"The calibration {str(name)!r:.80} needs white-box scores, which a served model does not show: write it "
            "again with `whyformer calibrate`."
        )
    return calibration.served or calibration


def needs_white_box(calibration: Calibration) -> bool:
    """Whether it uses figures that only a loaded model shows."""
    return bool(set(WHITE_BOX) & set(calibration.figures))


def read_calibration_file(path: Path) -> Calibration:
    """Read a calibration that `whyformer calibrate` wrote."""
    if path.stat().st_size > MOST_CALIBRATION_BYTES:
        raise WhyformerError(f"{str(path)!r} has more than {MOST_CALIBRATION_BYTES >> 20} MiB: not a calibration.")
    try:
        return read_calibration(parse_json(path.read_text(encoding="utf-8")))
    except (ValueError, WhyformerError) as error:
        raise WhyformerError(f"{str(path)!r} is not a calibration: {error}") from error


def save_calibration(calibration: Calibration, path: Path | None = None) -> Path:
    """Save a calibration, by default where it is found by the digest of its model."""
    place = path or calibration_folder() / f"{calibration.digest}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(place) as unfinished:
        unfinished.write_text(json.dumps(calibration.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
    return place
