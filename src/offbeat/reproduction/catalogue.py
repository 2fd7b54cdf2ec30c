"""Which figures there are, and what came of them."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from offbeat.config import experiment_file
from offbeat.config.experiment_file import Experiment
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.reproduction.comparison import outcome_of
from offbeat.reproduction.file import Reproduction, load
from offbeat.reproduction.finished import forget_others, place
from offbeat.reproduction.outcome import Outcome
from offbeat.reproduction.theorem import Theorem, load_theorem, measure, theorem_outcome
from offbeat.reproduction.tuning import TRIES, best_of, tried
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import run_all
from offbeat.runs.worker_processes import Workers

AnyFigure = Reproduction | Theorem


def all_in(folder: Path) -> list[AnyFigure]:
    """Return the figures whose files are in a folder of ``experiments/``, in the order of their names.

    Raises:
        OffbeatError: There is none, or one is broken.
    """
    found: list[AnyFigure] = []
    for path in sorted(folder.glob("*/*.toml")):
        table = experiment_file.read_table(path)
        if "theory" in table:
            found.append(load_theorem(path, table))
        elif "claims" in table:
            found += load(path)
    names = Counter(one.name for one in found)
    for one in found:
        if names[one.name] > 1:
            raise OffbeatError(f"{one.path}: another figure is called {one.name}, too: rename a panel or a file")
    if not found:
        raise OffbeatError(f"{folder} holds no figure: take the folder experiments/ of Offbeat's repository")
    return found


def find(name: str, folder: Path) -> list[AnyFigure]:
    """Return a figure by its name, such as ``fedlaavg/fig4e``, or all of a file or folder by theirs.

    Raises:
        OffbeatError: There is none of that name, or a file is broken.
    """
    figures = all_in(folder)
    by_name = [one for one in figures if one.name == name]
    of_file = [one for one in figures if name in (f"{one.path.parent.name}/{one.path.stem}", one.path.parent.name)]
    if not (by_name or of_file):
        raise OffbeatError(f"{name}: {did_you_mean(name, [one.name for one in figures])}")
    return by_name or of_file


def with_beside(figures: Sequence[AnyFigure]) -> list[AnyFigure]:
    """Return figures, each after those that its claims compare it with, and each once."""
    found: dict[str, AnyFigure] = {}
    for one in figures:
        beside = list(one.beside.values()) if isinstance(one, Reproduction) else []
        for figure in (*with_beside(beside), one):
            found.setdefault(figure.name, figure)
    return list(found.values())


def outcome(figure: AnyFigure, scale: str, results: Path) -> Outcome | None:
    """Return what came of a figure; None unless all of it was run with the settings that the file has now."""
    if isinstance(figure, Theorem):
        return theorem_outcome(figure, scale, place(figure.name, scale, results))
    return outcome_of(figure, scale, results)


def carry_out(
    figure: AnyFigure, scale: str, results: Path, *, workers: Workers, progress: Callable[[Reproduction], Progress]
) -> Outcome:
    """Run what has not been run yet of a figure, and return what came of it.

    Args:
        figure: The figure; those that it is compared with have been run, see ``with_beside``.
        scale: How large; one of its scales.
        results: Where results go.
        workers: What carries out the runs.
        progress: Makes what is told how far it is.

    Raises:
        OffbeatError: Something that the user can mend.
    """
    folder = place(figure.name, scale, results)
    if isinstance(figure, Reproduction):
        tell = progress(figure)
        if figure.tuning is not None:
            _run(figure.tries(scale), folder / TRIES, tell, workers)
        tries = tried(figure, scale, folder)
        assert tries is not None
        _run(figure.experiment(scale, best_of(figure, scale, tries)), folder, tell, workers)
    elif outcome(figure, scale, results) is None:
        measure(figure, folder)
    made = outcome(figure, scale, results)
    assert made is not None
    return made


def _run(experiment: Experiment, folder: Path, progress: Progress, workers: Workers) -> None:
    """Run what is not there yet; what is there with other settings than the file has now goes."""
    forget_others(experiment, folder)
    run_all(
        experiment,
        list(experiment.algorithms),
        folder,
        progress,
        resume=True,
        jobs=workers.jobs,
        workers=workers,
        keep_diverged=True,
    )
