"""The papers' bounds for an experiment's file, and the assumptions that it breaks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import Experiment
from offbeat.theory import Assumption, Bound
from offbeat_studies.theory_bound.constants import Constant, Known
from offbeat_studies.theory_bound.theorems import THEOREMS, Setting


@dataclass(frozen=True)
class TheoryReport:
    """The theorem for one algorithm of a file."""

    theorem: str  # its name and authors
    left_side: str  # the bounded quantity
    constants: tuple[Constant, ...]
    bound: Bound  # with all assumptions: broken ones first, those that only the user can check last
    recommended_lr: float | None  # by the paper, which may recommend none


def theory_reports(experiment: Experiment, labels: Iterable[str], known: Known) -> dict[str, TheoryReport | str]:
    """Return the theorem for each label, or a line that says why there is none."""
    settings = {label: _setting(experiment, label, known) for label in labels}
    _check_complete(settings)
    return {
        label: setting if isinstance(setting, str) else _report(label, setting) for label, setting in settings.items()
    }


def _setting(experiment: Experiment, label: str, known: Known) -> Setting | str:
    algorithm = experiment.algorithm(label)
    make = THEOREMS.get(type(algorithm))
    if make is None:
        return f"no theorem; there is one for {', '.join(kind.name for kind in THEOREMS)}"
    if experiment.plan(label).steps_by is not None:
        return "the theorem is for clients with the same number of steps: set local.steps to a number"
    try:
        return make(experiment, label, known, algorithm)
    except ValueError as error:
        raise OffbeatError(f"algorithms.{label}: {error}") from None


def _check_complete(settings: Mapping[str, Setting | str]) -> None:
    needing: dict[str, list[str]] = {}
    for label, setting in settings.items():
        constants = () if isinstance(setting, str) else setting.constants.values()
        for option in dict.fromkeys(constant.source for constant in constants if constant.value is None):
            needing.setdefault(option, []).append(label)
    missing: dict[str, list[str]] = {}
    for option, labels in needing.items():
        missing.setdefault(_listed(labels), []).append(option)
    if missing:
        options = "; ".join(f"{_listed(options)} for {labels}" for labels, options in missing.items())
        raise OffbeatError(f"constants are missing: give {options}; or select algorithms with --algorithm")


def _report(label: str, setting: Setting) -> TheoryReport:
    values = {name: constant.value for name, constant in setting.constants.items()}
    try:
        bound = setting.bound(**values)
        recommended_lr = setting.recommended_lr(values) if setting.recommended_lr else None
    except ValueError as error:
        raise OffbeatError(f"algorithms.{label}: {error}") from None
    assumptions = sorted((*bound.assumptions, *setting.more), key=_rank)
    return TheoryReport(
        setting.theorem,
        setting.left_side,
        tuple(setting.constants.values()),
        Bound(bound.value, tuple(assumptions)),
        recommended_lr,
    )


def _rank(assumption: Assumption) -> tuple[bool, bool]:
    return assumption.holds, assumption.given


def _listed(words: Sequence[str]) -> str:
    """Return the words as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
