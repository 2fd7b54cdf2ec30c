"""Which figures there are, and what has been run of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offbeat.errors import OffbeatError, did_you_mean
from offbeat.experiments import config, run_directory
from offbeat.experiments.run_directory import Run
from offbeat.reproduction.file import Reproduction, load
from offbeat.reproduction.verdict import Verdict, verdicts


@dataclass(frozen=True)
class Outcome:
    """A figure that was run.

    Attributes:
        reproduction: Its file.
        scale: How large.
        runs: What was run, all finished.
        verdicts: One a claim.
    """

    reproduction: Reproduction
    scale: str
    runs: Sequence[Run]
    verdicts: Sequence[Verdict]

    @property
    def minutes(self) -> float:
        """How long it took, on one core."""
        return sum(run.real_seconds for run in self.runs) / 60


def all_in(folder: Path) -> list[Reproduction]:
    """Return the figures whose files are in a folder of ``experiments/``, in the order of their names.

    Raises:
        OffbeatError: There is none, or one is broken.
    """
    found = [load(path) for path in sorted(folder.glob("*/*.toml")) if "claims" in config.read_table(path)]
    if not found:
        raise OffbeatError(f"{folder} holds no figure: take the folder experiments/ of Offbeat's repository")
    return found


def find(name: str, folder: Path) -> Reproduction:
    """Return a figure by its name, such as ``fedlaavg/fig4e``.

    Raises:
        OffbeatError: There is none of that name, or its file is broken.
    """
    path = folder / f"{name}.toml"
    if name.count("/") == 1 and path.exists():
        return load(path)
    raise OffbeatError(f"{name}: {did_you_mean(name, [one.name for one in all_in(folder)])}")


def place(reproduction: Reproduction, scale: str, results: Path) -> Path:
    """Return the folder of what is run at a scale."""
    return results / f"{reproduction.name}-{scale}"


def outcome(reproduction: Reproduction, scale: str, results: Path) -> Outcome | None:
    """Return what has been run at a scale; None unless all of it has, with the settings that the file has now."""
    experiment, folder = reproduction.experiment(scale), place(reproduction, scale, results)
    runs: list[Run] = []
    for label in experiment.algorithms:
        for seed in experiment.seeds:
            path = folder / f"{label}-seed{seed}"
            if not path.exists():
                return None
            runs.append(run_directory.read(path))
            resolved = experiment.resolved(label, seed, runs[-1].config["data"]["name"])
            if experiment.trainer == "auto":  # it was chosen when the run began
                resolved["trainer"] = runs[-1].config["trainer"]
            if not run_directory.is_of(path, resolved):
                return None
    return Outcome(reproduction, scale, runs, verdicts(reproduction.claims, runs))
