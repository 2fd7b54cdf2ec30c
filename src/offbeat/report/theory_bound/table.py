"""The papers' bounds in the setting of an experiment's file, and which of their assumptions it breaks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offbeat.config.experiment_file import Experiment
from offbeat.errors import OffbeatError
from offbeat.report.theory_bound.constants import Constant, Known
from offbeat.report.theory_bound.settings import THEOREMS, Setting
from offbeat.theory import Assumption, Bound


@dataclass(frozen=True)
class TheoryReport:
    """What is proven of one algorithm of a file.

    Attributes:
        theorem: Whose, and which.
        left_side: What is bounded.
        constants: What the bound was computed from.
        bound: The bound with all its assumptions, the broken ones first and those that only the user knows last.
        recommended_lr: The step size that the paper recommends; None where it recommends none.
    """

    theorem: str
    left_side: str
    constants: tuple[Constant, ...]
    bound: Bound
    recommended_lr: float | None


def theory_reports(experiment: Experiment, labels: Iterable[str], known: Known) -> dict[str, TheoryReport | str]:
    """Return what is proven of each algorithm, by its label; a line that says why where it is nothing.

    Args:
        experiment: The configuration.
        labels: Which of its algorithms.
        known: What the file cannot know.

    Raises:
        OffbeatError: A theorem needs a constant that is neither in the file nor given, or one is out of range.
    """
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
        raise OffbeatError(f"the file does not say all that is needed: give {options}; or choose by --algorithm")


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
