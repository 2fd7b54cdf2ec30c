"""Finding of a comparison, in a few sentences: what is separated, and what is not."""

import math
from collections.abc import Iterator, Sequence

from offbeat import units
from offbeat.report.scales import sign_of, target_of
from offbeat.report.summary import SummaryRow
from offbeat.report.tuning import ReportedTuning
from offbeat.report.verdict import Verdict, verdict
from offbeat.statistics.all_pairs import Pair

_NAMED = 4  # algorithms, if none is separated from the best
_UNEQUAL = 2.0  # times as far as another algorithm's update moves the model


def finding(rows: Sequence[SummaryRow], tuning: ReportedTuning | None) -> str:
    """Return the sentences: about the time to the target or, without one, the end.

    Algorithms are separated if the simultaneous interval of their difference excludes 0; see ``all_pairs``. While
    unfinished runs may change the finding, it names them instead. ``tuning`` is that of these rows; None for none.
    """
    if any(row.undecided for row in rows):
        return _which_are_unfinished(rows)
    compared = [row for row in rows if not row.other_world]
    has_target = rows[0].target is not None
    tuned = [] if tuning is None else list(tuning.sentences())
    if has_target and not any(row.reached for row in compared):
        return " ".join([f"No run reached {target_of(rows[0])}; {_ended_best(rows)}.", *tuned])
    if len(compared) == 1:
        return " ".join([_alone(compared[0]), *tuned])
    if tuning is None or not tuning.is_equal:
        tuned += _unequal_steps(compared)
    sentences = _Sentences(verdict(rows), compared[0]).sentences()
    return " ".join([*sentences, *_who_missed(compared), *tuned])


def _which_are_unfinished(rows: Sequence[SummaryRow]) -> str:
    names = [
        f"{row.label} (seed{'s' if len(row.undecided) > 1 else ''} {', '.join(map(str, row.undecided))})"
        for row in rows
        if row.undecided
    ]
    return f"No finding yet, unfinished: {', '.join(names)}."


def _ended_best(rows: Sequence[SummaryRow]) -> str:
    """Return which algorithm ended best; those that diverged, NaN, rank last."""
    ends = {row.label: _end(row) for row in rows}
    best = max(
        ends, key=lambda label: sign_of(rows[0].measure) * ends[label] if ends[label] == ends[label] else -math.inf
    )
    return f"{best} ended {'best, ' if len(rows) > 1 else ''}at {rows[0].measure.write(ends[best])}"


def _end(row: SummaryRow) -> float:
    return row.final[row.measure].mean


def _alone(row: SummaryRow) -> str:
    if row.target is None:
        return f"{row.label} ended at {row.measure.write(_end(row))}."
    if row.seconds_to_target is None:
        return f"{row.label} reached {target_of(row)} in {row.reached} of {_seeds(row.seeds)}."
    duration = units.duration(row.seconds_to_target.mean)
    return f"{row.label} reached {target_of(row)} after {duration} in {_seeds(row.seeds)}."


def _who_missed(rows: Sequence[SummaryRow]) -> Iterator[str]:
    missed = [
        f"{row.label} in {row.seeds - row.reached} of {_seeds(row.seeds)}" for row in rows if row.reached < row.seeds
    ]
    if rows[0].target is not None and missed:
        yield f"{target_of(rows[0])} was missed by {_list(missed)}."


def _unequal_steps(rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Say so if the updates of algorithms move the model by very different lengths.

    Then one may be ahead because its steps are longer, which the others' ``server_lr`` could make up for.
    """
    steps = {row.label: row.displacement.mean for row in rows if row.displacement and row.displacement.mean > 0}
    if not steps:
        return
    longest, shortest = max(steps, key=lambda label: steps[label]), min(steps, key=lambda label: steps[label])
    if steps[longest] >= _UNEQUAL * steps[shortest]:
        times = units.factor(steps[longest] / steps[shortest])[1:]
        yield (
            f"Not tuned: {longest}'s updates move the model {times} times as far as {shortest}'s "
            f"({steps[longest]:.2g} against {steps[shortest]:.2g} an update)."
        )


class _Sentences:
    """The verdict in words."""

    def __init__(self, verdict: Verdict, row: SummaryRow) -> None:
        self._verdict, self._scale, self._row = verdict, verdict.scale, row

    def sentences(self) -> Iterator[str]:
        """Yield what is separated, then what is not."""
        verdict, better = self._verdict, self._scale.better(self._row)
        best, second = verdict.order[:2]
        pair = verdict.pair(best, second)
        amount = None if pair is None else self._scale.amount(pair, self._row)
        if verdict.is_one_seed:
            if amount is None:
                yield "One seed does not decide: run several."
            else:
                yield f"{best} {self._scale.verb(self._row)} {amount} {second} in one seed: run several."
            return
        if len(verdict.order) == 2 and verdict.lower and pair is not None and amount is not None:
            yield f"{best} {self._scale.verb(self._row)} {amount} {second}{self._certainty(pair)}."
        elif verdict.lower:
            yield f"{_list(verdict.top)} {better} {_list(verdict.lower)}{self._how_much(verdict.lower)}."
        if verdict.middle:
            yield f"{best} {better} {_list(verdict.middle)}{self._how_much(verdict.middle)}."
        if len(verdict.top) > 1:
            yield self._undecided()

    def _how_much(self, others: Sequence[str]) -> str:
        """Return by how much the best one is better than the baseline, or the next."""
        other = self._row.baseline if self._row.baseline in others else others[0]
        best = self._verdict.order[0]
        pair = self._verdict.pair(best, other)
        amount = None if pair is None else self._scale.amount(pair, self._row)
        if pair is None or amount is None:
            return ""
        subject = "" if len(self._verdict.top) == 1 else f"{best} was "
        return f": {subject}{amount} {other}{self._certainty(pair)}"

    def _certainty(self, pair: Pair) -> str:
        simultaneous = "simultaneous " if len(self._verdict.pairs) > 1 else ""
        if pair.mean is None:
            return f" ({simultaneous}95 % bound, {_seeds(pair.seeds)})"
        return f" ({simultaneous}95 % interval {self._scale.interval(pair, self._row)}, {_seeds(pair.seeds)})"

    def _undecided(self) -> str:
        top = self._verdict.top
        first, second = top[:2]
        pair = self._verdict.pair(first, second)
        if pair is None:
            return f"{_list(top)} have no seeds in common: run the same ones."
        names = f"all {len(top)} algorithms" if len(top) == len(self._verdict.order) > _NAMED else _list(top)
        text = f"Between {names} {_seeds(pair.seeds)} do not decide"
        amount = self._scale.amount(pair, self._row)
        if amount is not None and pair.low > -math.inf:
            text += f": {first} was {amount} {second}{self._certainty(pair)}"
        more = self._verdict.more_seeds()
        if more is not None:
            would = f"seeds would decide between {first} and {second}" if len(top) > 2 else "would"
            text += f"; {more} more {would}, at a guess"
        return f"{text}."


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _seeds(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"
