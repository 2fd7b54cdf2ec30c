"""Claims of the study and the findings on them."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from offbeat_core.tables.section import Count
from pydantic import Field

from offbeat.statistics.hypothesis_tests import Range, TestedEffect
from offbeat_studies.papers.displacement.branches import Study
from offbeat_studies.papers.displacement.effects import log_ratios, prediction_errors, scaling_power
from offbeat_studies.papers.displacement.setting import Setting
from offbeat_studies.papers.figures.claim_effects import mean, test_pairs
from offbeat_studies.papers.figures.effect_text import ratio_words
from offbeat_studies.papers.figures.finding import Effect, Finding
from offbeat_studies.papers.figures.sections import Statement

Finite = Annotated[float, Field(allow_inf_nan=False)]


class DisplacementClaim(Statement):
    """``[[claims]]``: a range for an effect; see ``papers.displacement``."""

    quantity: Literal["ratio", "prediction", "best"]
    """ratio: uploads of FedFa to FedBuff. prediction: measured uploads to predicted ones. best: the power of τ_u."""
    of: Literal["fedbuff", "fedfa", "fedasync", "fedfa-params", "small lr", "all"]
    """The algorithm; for a prediction it is left out of the fit. small lr: FedBuff with the second step size."""
    size: Count | None = None
    """K; all if it is left out."""
    at_work: Count | None = None
    """M; a claim without it is tested for each M, except the power."""
    low: Finite
    """The lower end of the range."""
    high: Finite
    """The upper end."""

    def has(self, setting: Setting, reference_lr: float) -> bool:
        """Return whether the claim is about a setting, whatever its M."""
        is_reference = setting.lr == reference_lr
        if self.of == "small lr":
            return not is_reference
        return is_reference and self.of in ("all", setting.kind) and self.size in (None, setting.size)


def for_each_concurrency(claims: Sequence[DisplacementClaim], at_work: Sequence[int]) -> list[DisplacementClaim]:
    """Return the claims with those that hold for each M repeated."""
    found: list[DisplacementClaim] = []
    for claim in claims:
        if claim.at_work is not None or claim.quantity == "best":
            found.append(claim)
            continue
        statement = claim.statement or claim.name
        found += [
            claim.model_copy(update={"at_work": m, "name": f"{claim.name}, M = {m}", "statement": statement})
            for m in at_work
        ]
    return found


def finding(study: Study, claim: DisplacementClaim) -> Finding:
    """Return what was measured on a claim."""
    chosen = [
        setting
        for setting in study.settings
        if claim.has(setting, study.section.world.lr) and claim.at_work in (None, setting.at_work)
    ]
    pairs = _pairs(study, claim, chosen)
    is_ratio = claim.quantity != "best"
    low, high = (math.log(claim.low), math.log(claim.high)) if is_ratio else (claim.low, claim.high)
    tested, obstacle = test_pairs(pairs, Range(low, high))
    if any(study.is_at_edge(setting) for setting in chosen):
        obstacle = obstacle or "the best displacement is at the edge of the tried values"
    effect = _effect(tested, mean(pairs), (claim.low, claim.high), math.exp if is_ratio else float)
    name = {
        "ratio": "uploads of FedFa to those of FedBuff",
        "prediction": "measured uploads to predicted ones",
        "best": "power of τ_u with which the best D grows",
    }[claim.quantity]
    return Finding(
        claim.name,
        claim.paper,
        f"{name}: {effect.text or 'unknown'}",
        f"{claim.low:g} to {claim.high:g}",
        quantity=name,
        n=len(pairs),
        ours_by_seed=_by_seed([pair.low if pair.low == pair.high else math.inf for pair in pairs], is_ratio),
        effect=effect,
        method="" if tested is None else f"{tested.method}{' on log ratios' if is_ratio else ''}",
        p=None if tested is None else tested.p,
        is_for=tested is not None and tested.is_for,
        obstacle=obstacle,
        processor_seconds=round(math.fsum(point.seconds for setting in chosen for point in study.of(setting)), 1),
    )


def _pairs(study: Study, claim: DisplacementClaim, chosen: Sequence[Setting]) -> list[Range]:
    """Return the effect for each judging seed."""
    seeds = study.section.seeds
    if claim.quantity == "best":
        return [Range(power, power) for power in (scaling_power(study, seed) for seed in seeds)]
    if claim.quantity == "ratio":
        (ours,) = chosen
        other = next(
            one
            for one in study.reference
            if one.kind == "fedbuff" and (one.size, one.at_work) == (ours.size, ours.at_work)
        )
        return [mean(log_ratios(study, ours, other, seed)) for seed in seeds]
    assert claim.at_work is not None
    return prediction_errors(study, lambda setting: claim.has(setting, study.section.world.lr), claim.at_work, seeds)


def _effect(
    tested: TestedEffect | None, bounds: Range, allowed: tuple[float, float], scale: Callable[[float], float]
) -> Effect:
    if tested is not None and tested.effect is not None:
        numbers = (tested.effect, tested.low, tested.high)
    else:
        numbers = (bounds.low if bounds.low == bounds.high else None, *bounds)
    value, low, high = (
        float(f"{scale(one):.6g}") if one is not None and math.isfinite(one) else None for one in numbers
    )
    if scale is math.exp:
        return Effect("ratio", value, low, high, allowed, ratio_words((value, low, high)))
    return Effect("value", value, low, high, allowed, f"{value:.2f} [{low:.2f}, {high:.2f}]")


def _by_seed(values: Sequence[float], is_ratio: bool) -> tuple[float | None, ...]:
    return tuple(
        float(f"{math.exp(value) if is_ratio else value:.6g}") if math.isfinite(value) else None for value in values
    )
