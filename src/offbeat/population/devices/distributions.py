"""Numbers per client, such as seconds per step: drawn, or measured in a file.

All functions take the number of clients N, the parameters of the distribution, the run's seed, a purpose, and a draw
that separates several numbers of one client for one purpose; they return float64 ``(N,)`` in the unit of their
parameters. A client's value is the quantile of one uniform number, so it does not depend on N. An ``OffbeatError`` if a
value is too large for a float.

A new distribution is a function here, a section in ``config/population_sections.py`` and a line in
``worlds/population.py``.
"""

import json
import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.csv_columns import check_rows, read_columns
from offbeat.uniform_numbers import uniform

# Half the distance between two uniform numbers; replaces 0, whose quantile may be 0 or −∞.
_SMALLEST_UNIFORM = 2.0**-54


def constant(clients: int, *, value: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return ``value`` > 0 for each client."""
    return np.full(clients, value, np.float64)


def lognormal(
    clients: int, *, median: float, sigma: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw log-normal numbers, median · exp(sigma · z) with z standard normal.

    The median is above 0, sigma at least 0.
    """
    u = np.maximum(_draw_uniform(clients, seed, purpose, draw), _SMALLEST_UNIFORM)
    normal = torch.special.ndtri(torch.from_numpy(u)).numpy()
    with np.errstate(over="ignore"):
        return _check_finite(median * np.exp(sigma * normal), f"sigma = {sigma} is too large")


def pareto(
    clients: int, *, minimum: float, shape: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw Pareto numbers, P(X > x) = (minimum / x)^shape for x ≥ minimum.

    Both parameters are above 0. The mean is finite for shapes above 1, the variance above 2.
    """
    u = _draw_uniform(clients, seed, purpose, draw)
    with np.errstate(over="ignore"):
        return _check_finite(minimum * (1.0 - u) ** (-1.0 / shape), f"shape = {shape} is too small")


def uniform_between(
    clients: int, *, low: float, high: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw uniform numbers in [low, high), 0 < low ≤ high < ∞."""
    return low + (high - low) * _draw_uniform(clients, seed, purpose, draw)


def exponential(clients: int, *, mean: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Draw exponential numbers, P(X > x) = exp(−x / mean), mean > 0."""
    u = np.maximum(_draw_uniform(clients, seed, purpose, draw), _SMALLEST_UNIFORM)
    with np.errstate(over="ignore"):
        return _check_finite(-mean * np.log1p(-u), f"mean = {mean} is too large")


def half_normal(clients: int, *, mean: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Draw half-normal numbers, |z| · mean · √(π/2) with z standard normal, mean > 0."""
    # (1 − u) / 2 must differ from ½, whose quantile is 0. The lower tail is more accurate than the upper one.
    u = np.maximum(_draw_uniform(clients, seed, purpose, draw), 2.0**-52)
    normal = -torch.special.ndtri(torch.from_numpy((1.0 - u) / 2)).numpy()
    with np.errstate(over="ignore"):
        return _check_finite(mean * np.sqrt(np.pi / 2) * normal, f"mean = {mean} is too large")


def _draw_uniform(clients: int, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return one uniform number in [0, 1) for each client."""
    return uniform(seed, purpose, client=np.arange(clients), draw=draw)


def _check_finite(values: NDArray[np.float64], problem: str) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        raise OffbeatError(f"{problem}: a client's value is beyond what a float can hold")
    return values


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
        OffbeatError: The file cannot be read, is not such a list or has no phone with a score; or a phone's seconds
            overflow or underflow.
    """
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
