"""Judge of ``offbeat advise`` in worlds that nobody had run before.

``python benchmarks/unseen_worlds.py`` prints the first choice of the advice in each world of
``studies/offbeat_studies/benchmark/unseen``, and, once the world has been run, how many points of accuracy it is below
the best algorithm; in bold if clearly (Holm over the world's comparisons). The worlds are run by ``offbeat benchmark
--world FILE --output runs/unseen``; the data then lie in ``unseen/results``.
"""

from pathlib import Path

import offbeat_studies.benchmark
from offbeat.advice.evidence import benchmark_rows, kind_of, rank
from offbeat.algorithms import ALGORITHMS
from offbeat.report.population_statistics import population_statistics
from offbeat.runs.run_all import load_data
from offbeat_studies.benchmark import raw_data
from offbeat_studies.benchmark.effects import Comparison, compare
from offbeat_studies.benchmark.world import World, read_world

UNSEEN = Path(offbeat_studies.benchmark.__file__).parent / "unseen"
RULES = ("fedavg", "fedbuff")


def main() -> None:
    """Print a line for each world."""
    print("| world | advice | below the best | always FedAvg | always FedBuff |\n| --- | --- | ---: | ---: | ---: |")
    for path in sorted(UNSEEN.glob("*.toml")):
        world = read_world(str(path))
        experiment = world.experiment({"fedavg": {"cohort": 1}}, [1], 1.0, {})
        kind = kind_of(population_statistics(experiment, load_data(experiment, print)))
        print(line(world, rank(benchmark_rows(), kind, ALGORITHMS)[0]))


def line(world: World, choice: str) -> str:
    """Return a row of the table."""
    if not (UNSEEN / "results" / f"{world.name}.parquet").exists():
        return f"| `{world.name}` | `{choice}` | to come | | |"
    found = compare(world, raw_data.read(UNSEEN / "results", world.name).curves)
    near = {found.best["seconds"], *found.not_worse("seconds")}
    labels = [name.replace("_", "-") for name in (choice, *RULES)]
    points = {label: f"{100 * below(found, label):.1f}" for label in labels}
    cells = [points[label] if label in near else f"**{points[label]}**" for label in labels]
    return f"| `{world.name}` | `{choice}` | {' | '.join(cells)} |"


def below(found: Comparison, algorithm: str) -> float:
    """Return how far an algorithm's accuracy is below that of the world's best."""
    best, own = (found.standings[label]["seconds"].accuracy for label in (found.best["seconds"], algorithm))
    return best.mean - own.mean if best is not None and own is not None else float("nan")


if __name__ == "__main__":
    main()
