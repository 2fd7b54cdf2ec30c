"""Communication patterns: in which rounds each client talks to the server."""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from numbers import Integral
from typing import Any

from offbeat_core.number_checks import check_count, is_number, plain_number

Rule = Callable[[int, int, int], int]
"""Maps (client, round, N) to the first round after ``round`` in which the client talks; a pure function."""


@dataclass(frozen=True)
class Pattern:
    """The rounds in which each client talks.

    Clients are numbered 0 … N − 1 and rounds 0, 1, …; no client talks in round 0, in which all of them get the model.
    ``own`` is the user's own rule, with its import path as ``name``; None for a built-in pattern.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Rule | None = None

    def next_round(self, client: int, last: int, clients: int) -> int:
        """Return the first round after ``last`` in which the client, one of N, talks.

        A ``ValueError`` if the user's own rule does not return a later round.
        """
        if self.own is None:
            return _RULES[self.name](client, last, clients, **self.parameters)
        following = plain_number(self.own(client, last, clients))
        if not is_number(following) or not isinstance(following, Integral) or following <= last:
            raise ValueError(
                f"pattern {self.name}: client {client} is to talk next in round {following!r}, "
                f"which must be a whole number greater than {last}"
            )
        return int(following)

    def longest_gap(self, clients: int) -> int:
        """Return Δ, the most rounds between two talks; for ``random`` the mean."""
        return self.parameters["longest_gap"] if self.own is not None else _GAPS[self.name](clients, **self.parameters)


def full(every: int = 1) -> Pattern:
    """All clients talk every Δ = ``every`` rounds: local SGD; Δ = 1: minibatch SGD.

    With Δ = 1 it is distributed minibatch SGD.
    """
    return Pattern("full", {"every": check_count("every", every)})


def round_robin(k: int = 2, every: int = 1) -> Pattern:
    """Every Δ = ``every`` rounds the next k clients talk; first 0 … k − 1.

    Then come k … 2k − 1, and so on, and again from 0.
    """
    return Pattern("round_robin", {"k": check_count("k", k), "every": check_count("every", every)})


def random(p: float = 0.2, seed: int = 0) -> Pattern:
    """Each client talks in a round with probability p, 10⁻⁴ ≤ p ≤ 1, independently.

    ``seed`` fixes the draws; in a TOML file it is the run's seed if it is left out. In Python give each run of a
    comparison its own.
    """
    # Every round up to the next talk is drawn.
    p, seed = plain_number(p), plain_number(seed)
    if not is_number(p) or not 1e-4 <= p <= 1:
        raise ValueError(f"p must be in [0.0001, 1], got {p!r}")
    if not is_number(seed) or not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number in 0 … 2⁶³ − 1, got {seed}")
    return Pattern("random", {"p": p, "seed": seed})


def imbalanced() -> Pattern:
    """Client i, from 1, talks every i-th round: the last of N in every N-th.

    The first client talks in every round.
    """
    return Pattern("imbalanced")


def own(rule: Rule, longest_gap: int, name: str = "own") -> Pattern:
    """A pattern of the user's own: the rule, and the longest gap Δ that it leaves."""
    return Pattern(name, {"longest_gap": check_count("longest_gap", longest_gap)}, rule)


PATTERNS: dict[str, Callable[..., Pattern]] = {make.__name__: make for make in (full, round_robin, random, imbalanced)}


def _round_robin(client: int, last: int, clients: int, k: int, every: int) -> int:
    groups = -(-clients // k)
    # Group g talks in round (g + 1) · every, then each time that all groups had their turn.
    return _after(last, groups * every, (client // k + 1) * every)


def _random(client: int, last: int, clients: int, p: float, seed: int) -> int:
    following = last + 1
    while _uniform(seed, client, following) >= p:
        following += 1
    return following


def _after(last: int, period: int, first: int) -> int:
    """Return the least ``first + i · period`` above ``last``, i = 0, 1, …."""
    return first if last < first else last + period - (last - first) % period


def _uniform(seed: int, client: int, round_number: int) -> float:
    """Return a number in [0, 1) that is a function of the three."""
    digest = blake2b(struct.pack("<qqq", seed, client, round_number), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2.0**53


_RULES: dict[str, Callable[..., int]] = {
    "full": lambda client, last, clients, every: _after(last, every, every),
    "round_robin": _round_robin,
    "random": _random,
    "imbalanced": lambda client, last, clients: _after(last, client + 1, client + 1),
}

_GAPS: dict[str, Callable[..., int]] = {
    "full": lambda clients, every: every,
    "round_robin": lambda clients, k, every: -(-clients // k) * every,
    # Rounding first keeps p = 1/49, of which 1/p is 49.00000000000001, from a gap of 50.
    "random": lambda clients, p, seed: math.ceil(round(1 / p, 9)),
    "imbalanced": lambda clients: clients,
}
