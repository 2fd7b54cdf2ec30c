"""Numbers a client that were measured: called like those of ``distributions``."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.csv_columns import read_columns
from offbeat.randomness import Purpose, uniform

_LARGEST_FILE = 64 * 2**20
_LEADING_INTEGER = re.compile(r"\s*([0-9]{1,15})(?![0-9])")


def from_file(
    clients: int, *, path: str | Path, column: str, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Return each client's number from a CSV file with a header and one row a client, in order.

    Args:
        clients: How many clients, N.
        path: The file.
        column: The name of the column; the others are not looked at.
        seed: Not used, like the next two: nothing is random here.
        purpose: Not used.
        draw: Not used.

    Returns:
        ``(N,)``.

    Raises:
        OffbeatError: The file cannot be read, has another number of rows than there are clients, or one of the
            numbers is not above 0 and finite.
    """
    path = Path(path)
    values: NDArray[np.float64] = read_columns(path, {column: pa.float64()})[column]
    if len(values) != clients:
        raise OffbeatError(
            f"{path} has {len(values)} rows, but there are {clients} clients: it must have a row for each"
        )
    wrong = ~((values > 0) & np.isfinite(values))
    if wrong.any():
        index = int(np.argmax(wrong))
        raise OffbeatError(f"{path}, row {index + 2}: {column} is {values[index]}, but must be above 0 and finite")
    return values


def phones(
    clients: int, *, path: str | Path, median: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Return each client's seconds a step, as measured phones differ in speed.

    Each client has one of the phones, all equally likely. A phone takes median · (median score) / score, so half of
    the phones are slower than ``median`` seconds.

    The file is a JSON list with one object a phone, as the ranking of AI Benchmark has them (Ignatov et al., "AI
    Benchmark: all about deep learning on smartphones in 2019", ICCV Workshops 2019): the integer that the text under
    ``"AI_Score"`` begins with is its score. Phones whose score is missing, not such a text, or 0 are left out.

    Args:
        clients: How many clients, N.
        path: The file.
        median: The seconds of the median phone; in the unit of the result.
        seed: The run's seed.
        purpose: What the numbers are for.
        draw: Tells apart several numbers a client for the same purpose.

    Returns:
        ``(N,)``.

    Raises:
        OffbeatError: The file cannot be read, is no such list or has no phone with a score; or the median is not
            above 0, or so large or small that a phone's seconds are not.
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
    """Return the score of each phone that has one, in the file's order."""
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
