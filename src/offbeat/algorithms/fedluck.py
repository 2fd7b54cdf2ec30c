"""FedLuck: periodic aggregation, with steps and compression for each client."""

from dataclasses import replace
from functools import lru_cache
from typing import Annotated

from annotated_types import Interval
from offbeat_core.local_plan import normaliser
from torch import Tensor

from offbeat.algorithms.components import (
    DOES_NOT_COUNT,
    Algorithm,
    ClosedBuffer,
    Compression,
    LocalPlan,
    Period,
    Periodic,
    Positive,
    ServerOptimizer,
    ServerStep,
    Sum,
    Update,
    Weight,
    Weighting,
    check_not_negative,
)
from offbeat.algorithms.fedluck_choice import best_steps_and_compression, check_plan, check_ranges, check_steps

Exponent = Annotated[float, Interval(gt=0, le=2)]

# Simulated clients are measured alike at each visit, and many of them are alike.
_best = lru_cache(maxsize=4096)(best_steps_and_compression)


class FedLuck(Algorithm):
    """Averages every T̃ seconds; each client has its own steps and compression.

    Every ``period`` T̃, ``w_{t+1} = w_t − server_lr · mean_{i ∈ S_t} C(Δ_i)`` over the clients S_t whose updates came in
    it; without any, the version stays. The clients in S_t then begin anew. A visit of client i takes
    ``k_i α_i + δ_i β_i`` seconds, with α_i the seconds of a step and β_i those of an uncompressed upload, both measured
    at its last visit, or by ``note_speed`` before its first. The client gets the (k_i, δ_i) that minimise
    ``φ(k, δ) = ((kα + δβ)²(2 − δ) + 1)/(k δ^e)``, α and β in units of T̃ and e = ``compression_exponent``: ½ in the
    authors' code, 1 in the paper's appendix. A client that has not been measured takes the run's steps, within
    ``steps``, and sends the largest share.

    With ``normalise`` clients count as in FedNova, independently of their numbers of steps: each C(Δ_i) is divided by
    its a_i and the mean multiplied by the mean a_i. That needs uniform weights.

    The rule and φ: "Theory for FedLuck" (the paper's appendix), sections 1 and 2; there one choice serves all clients,
    by the slowest. A choice for each client, e = ½ and weights by examples are from the authors' code
    (``Aegsteh-T/FedLuck_Euro_Par`` on GitHub).

    Args:
        period: T̃, seconds, ≥ 0.001.
        server_lr: Step size on the mean, > 0.
        steps: Smallest and largest k.
        compression: Smallest and largest δ, the share of entries that top-k sends, in (0, 1].
        compression_exponent: e, the power of δ in φ, in (0, 2]; a smaller one compresses more.
        weighting: ``uniform`` (the mean as above) or ``examples`` (weighted by the clients' examples).
        normalise: Divide each update by its a_i.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedLuck(period=2.0, steps=(1, 10)), **world | {"updates": 60})
        >>> int(history.version.iloc[-1])  # one every two seconds
        2
    """

    name = "fedluck"
    measures = True

    period: Period = 1.0
    server_lr: Positive = 1.0
    steps: tuple[int, int] = (1, 50)
    compression: tuple[float, float] = (0.01, 1.0)
    compression_exponent: Exponent = 0.5
    weighting: Weighting = "uniform"
    normalise: bool = False
    server_optimizer: ServerOptimizer | None = None

    def check_values(self) -> None:
        check_ranges(self.steps, self.compression)
        if self.normalise and self.weighting != "uniform":
            raise ValueError("normalise needs uniform weights: leave normalise or weighting out")

    def compose(self) -> None:
        self.weighs_by_examples = self.weighting == "examples"
        self.schedule = Periodic(self.period)
        self.buffer = Sum("a") if self.normalise else Sum()
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def begin(self, model: Tensor) -> None:
        self.step_seconds: dict[int, float] = {}  # α_i
        self.upload_seconds: dict[int, float] = {}  # β_i

    def check_local(self, local: LocalPlan) -> None:
        check_steps(local)
        if self.normalise and local.optimizer != "sgd":
            raise ValueError("the a_i of normalise are weights of SGD's gradients: leave normalise or optimizer out")

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        check_plan(local)
        steps, share = self._choice(client, local)
        is_full = share == 1 and not local.error_feedback  # smaller without indices
        return replace(local, steps=steps, compression=None if is_full else Compression("top_k", (("share", share),)))

    def divisor(self, plan: LocalPlan) -> float:
        return normaliser(plan) if self.normalise else 1.0

    def _choice(self, client: int, local: LocalPlan) -> tuple[int, float]:
        """Return the client's k_i and δ_i."""
        if client not in self.step_seconds:
            return min(max(local.steps, self.steps[0]), self.steps[1]), self.compression[1]
        measured, ranges = (self.step_seconds[client], self.upload_seconds[client]), (self.steps, self.compression)
        return _best(*measured, self.period, *map(tuple, ranges), self.compression_exponent)

    def weigh(self, update: Update) -> float | Weight:
        for name in ("step_seconds", "upload_seconds"):
            check_not_negative(name, getattr(update, name) or 0.0)
        if not self.normalise:
            return float(update.examples) if self.weighting == "examples" else 1.0
        a = float(update.normaliser)
        if a == 0:
            return DOES_NOT_COUNT
        check_not_negative("1 / normaliser", 1 / a)
        return Weight(1 / a, a=a)

    def note(self, update: Update) -> None:
        if update.step_seconds is not None and update.upload_seconds is not None:
            self.note_speed(update.client, update.step_seconds, update.upload_seconds)

    def note_speed(self, client: int, step_seconds: float, upload_seconds: float) -> None:
        self.step_seconds[client] = step_seconds
        self.upload_seconds[client] = upload_seconds

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        # With normalise, the mean of all C(Δ_i) / a_i times the mean a_i.
        weight = closed.count * (closed.count / closed.tallies["a"]) if self.normalise else closed.weight
        return self.step(model, closed.mean(weight))
