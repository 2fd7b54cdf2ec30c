"""Measured numbers per client from a file; used like ``distributions``."""

import json
import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.csv_columns import check_rows, read_columns
from offbeat.uniform_numbers import uniform

_LARGEST_FILE = 64 * 2**20
_LEADING_INTEGER = re.compile(r"\s*([0-9]{1,15})(?![0-9])")


def from_file(
    clients: int, *, path: str | Path, column: str, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Return each client's number, ``(N,)``, from a CSV file of a row per client.

    The file has a header; clients are in order. Nothing is drawn.

    Raises:
        OffbeatError: The file cannot be read, its number of rows is not N, or a number is not above 0 and finite.
    """
    path = Path(path)
    values: NDArray[np.float64] = read_columns(path, {column: "float64"})[column]
    if len(values) != clients:
        raise OffbeatError(
            f"{path} has {len(values)} rows, but there are {clients} clients: it must have a row for each"
        )
    check_rows(
        path,
        ~((values > 0) & np.isfinite(values)),
        lambda i: f"{column} is {values[i]}, but must be above 0 and finite",
    )
    return values


def phones(
    clients: int, *, path: str | Path, median: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw each client's seconds per step from measured phones.

    Each client has one of the phones, all equally likely. A phone takes median · (median score) / score, so half of
    the phones are slower than ``median`` seconds.

    The file is a JSON list with one object per phone, like the ranking of AI Benchmark (Ignatov et al., "AI Benchmark:
    all about deep learning on smartphones in 2019", ICCV Workshops 2019). A phone's score is the integer at the
    beginning of the text ``"AI_Score"``. Phones without such a text, or with score 0, are ignored.

    Raises:
        OffbeatError: The file cannot be read, is not such a list or has no phone with a score; or the median is out of
            range, or a phone's seconds overflow or underflow.
    """
    if not 0 < median < math.inf:
        raise OffbeatError(f"median is {median}, but must be above 0 and finite")
    scores = np.array(_scores(Path(path)), np.float64)
    with np.errstate(over="ignore"):
        seconds = median * (np.median(scores) / scores)
    if not (np.isfinite(seconds) & (seconds > 0)).all():
        raise OffbeatError(f"median = {median}: a phone's value is beyond what a float can hold")
    phone = (uniform(seed, purpose, client=np.arange(clients), draw=draw) * len(scores)).astype(np.int64)
    return seconds[phone]


def _scores(path: Path) -> list[int]:
    """Return the phones' scores in the file's order, without phones that lack one."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise OffbeatError(f"{path} is larger than {_LARGEST_FILE:,} bytes: give a list of phones")
        records = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OffbeatError(f"cannot read {path}: {reason}") from error
    if not isinstance(records, list):
        raise OffbeatError(f"{path} is not a list of phones, one JSON object each")
    scores: list[int] = []
    for record in records:
        text = record.get("AI_Score") if isinstance(record, dict) else None
        match = _LEADING_INTEGER.match(text) if isinstance(text, str) else None
        if match and int(match[1]) > 0:
            scores.append(int(match[1]))
    if not scores:
        raise OffbeatError(f'{path} has no phone with a score: each needs an "AI_Score", a text such as "5063"')
    return scores
