"""All figures by name; their runs and results."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.files import read_table

from offbeat.config.experiment_file import Experiment
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import run_all
from offbeat.runs.worker_processes import Workers
from offbeat_studies.papers.displacement.figure import DisplacementFigure, displacement_result, load_displacement
from offbeat_studies.papers.displacement.points import measure as measure_points
from offbeat_studies.papers.figures.comparison import comparison_result
from offbeat_studies.papers.figures.completed_runs import figure_folder, remove_outdated_runs
from offbeat_studies.papers.figures.figure_file import ComparisonFigure, load, own_tables
from offbeat_studies.papers.figures.figure_result import FigureResult
from offbeat_studies.papers.figures.theorem import TheoremFigure, load_theorem, measure, theorem_result
from offbeat_studies.papers.figures.tuning import TUNING_FOLDER, best_points, tuning_runs

AnyFigure = ComparisonFigure | TheoremFigure | DisplacementFigure


def figure_folders() -> tuple[Path, Path]:
    """Return the folders with figures' files: this package's, and ``experiments``."""
    own, here = Path(__file__).parents[1], Path.cwd()
    return own.relative_to(here) if own.is_relative_to(here) else own, Path("experiments")


def read_all(folders: Iterable[Path]) -> list[AnyFigure]:
    """Return the figures of folders, sorted by name in each."""
    found: list[AnyFigure] = []
    for path in (path for folder in folders for path in sorted(folder.glob("*/*.toml"))):
        table = own_tables(read_table(path))
        if "theory" in table:
            found.append(load_theorem(path, table))
        elif "displacement" in table:
            found.append(load_displacement(path, table))
        elif "claims" in table:
            found += load(path)
    names = Counter(one.name for one in found)
    for one in found:
        if names[one.name] > 1:
            raise OffbeatError(f"{one.path}: two figures have the name {one.name}: rename a panel or a file")
    if not found:
        names = " and ".join(map(str, folders))
        raise OffbeatError(f"no figure in {names}: name another folder by --experiments")
    return found


def find(name: str, folders: Iterable[Path]) -> list[AnyFigure]:
    """Return the figure of a name, ``fedlaavg/fig4e``, or all of a file or folder."""
    figures = read_all(folders)
    by_name = [one for one in figures if one.name == name]
    by_file = [one for one in figures if name in (f"{one.path.parent.name}/{one.path.stem}", one.path.parent.name)]
    if not (by_name or by_file):
        raise OffbeatError(f"{name}: {did_you_mean(name, [one.name for one in figures])}")
    return by_name or by_file


def with_compared(figures: Sequence[AnyFigure]) -> list[AnyFigure]:
    """Return each figure once, after the figures that its claims compare it with."""
    found: dict[str, AnyFigure] = {}
    for one in figures:
        compared = list(one.compared.values()) if isinstance(one, ComparisonFigure) else []
        for figure in (*with_compared(compared), one):
            found.setdefault(figure.name, figure)
    return list(found.values())


def result_of(figure: AnyFigure, scale: str, results: Path) -> FigureResult | None:
    """Return a figure's result for all seeds that are complete; None without one."""
    if isinstance(figure, TheoremFigure):
        return theorem_result(figure, scale, figure_folder(figure.name, scale, results))
    if isinstance(figure, DisplacementFigure):
        return displacement_result(figure, scale, figure_folder(figure.name, scale, results))
    return comparison_result(figure, scale, results)


def run_figure(
    figure: AnyFigure,
    scale: str,
    results: Path,
    *,
    seeds: int,
    workers: Workers,
    progress: Callable[[ComparisonFigure], Progress],
) -> FigureResult:
    """Run the missing runs of a figure with so many seeds, and return its result.

    The figures that it is compared with have been run, see ``with_compared``.
    """
    folder = figure_folder(figure.name, scale, results)
    if isinstance(figure, ComparisonFigure):
        display = progress(figure)
        if figure.tuning is not None:
            _run(figure.tuning_experiment(scale), folder / TUNING_FOLDER, display, workers)
        tuning = tuning_runs(figure, scale, folder)
        assert tuning is not None
        _run(figure.experiment(scale, best_points(figure, scale, tuning), seeds), folder, display, workers)
    elif isinstance(figure, DisplacementFigure):
        measure_points(figure.displacement, folder)
    elif result_of(figure, scale, results) is None:
        measure(figure, folder, workers.jobs)
    result = result_of(figure, scale, results)
    assert result is not None
    return result


def _run(experiment: Experiment, folder: Path, progress: Progress, workers: Workers) -> None:
    remove_outdated_runs(experiment, folder)
    run_all(
        experiment,
        list(experiment.algorithms),
        folder,
        progress,
        jobs=workers.jobs,
        workers=workers,
        keep_diverged=True,
    )
