"""The Markdown table of all algorithms of a figure, also for the worst-off client."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from offbeat import units
from offbeat.config import experiment_file
from offbeat.config.experiment_sections import DataSection
from offbeat.data.dataset import Dataset
from offbeat.report.metrics import main_measure, target_for
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label
from offbeat.statistics.estimates import estimate
from offbeat.training.evaluation import Evaluator
from offbeat.worlds.population import build_population
from offbeat.worlds.workload import build_dataset, build_model, build_objective
from offbeat_studies.papers.figures.quantities import cost_to_target

Write = Callable[[float, float | None], str]


def mean_in_words(values: Sequence[float], write: Write, otherwise: str) -> str:
    """Return the mean of the finite values with its 95 % interval.

    Their number is given as well unless all are finite; ``otherwise`` is the text if none is.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return otherwise
    mean = estimate(finite)
    text = write(mean.mean, mean.half_width)
    return text if len(finite) == len(values) else f"{text} ({len(finite)} of {len(values)} seeds)"


def algorithms_table(runs: Sequence[Run]) -> str:
    """Return times and uploaded bytes to the target and final measures."""
    measure, target = main_measure(runs), target_for(runs)
    assert target is not None
    lines = [
        f"| | time to {measure.at(target)} | sent by clients until then | {measure.title} at the end "
        "| of the worst client |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for label, group in by_label(runs).items():
        cells = [
            mean_in_words([cost_to_target("seconds", run) for run in group], units.duration, "never"),
            mean_in_words([cost_to_target("bytes_up", run) for run in group], units.size, "never"),
            mean_in_words([float(run.history[measure.name][-1]) for run in group], measure.write, "diverged"),
            mean_in_words([worst_client_accuracy(run) for run in group], units.percent, "diverged"),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def worst_client_accuracy(run: Run) -> float:
    """Return the lowest accuracy of a run's final model over its clients.

    A client's accuracy is Σ_c p_c a_c: p_c is the share of label c among its training examples, a_c the accuracy on
    the test examples with label c. The run has completed, on data with classes.
    """
    experiment = experiment_file.experiment_of(run.config, run.path / "config.toml")
    dataset = _dataset(experiment.data.model_dump_json())
    assert dataset.classes is not None
    model = build_model(experiment.model, dataset, run.seed)
    names = [str(number) for number in range(dataset.classes)]
    evaluate = Evaluator(
        model,
        loss=build_objective(experiment.model.loss, ()).loss,
        metrics={name: partial(_accuracy_of, number) for number, name in enumerate(names)},
        inputs=torch.from_numpy(dataset.test_inputs),
        labels=torch.from_numpy(dataset.test_labels),
        seed=run.seed,
    )
    tensors = load_file(run.path / "model.safetensors")
    _, metrics = evaluate(torch.cat([tensors[name].view(-1) for name in model.named(model.vector)]))
    accuracies = np.array([metrics[name] for name in names])
    shards = build_population(experiment.population, dataset, run.seed).shards
    labels = [np.bincount(dataset.train_labels[shard], minlength=dataset.classes) for shard in shards if len(shard)]
    return float(min(counts @ accuracies / counts.sum() for counts in labels))


@lru_cache(maxsize=1)
def _dataset(section: str) -> Dataset:
    return build_dataset(DataSection.model_validate_json(section))


def _accuracy_of(label: int, outputs: Tensor, labels: Tensor) -> float:
    is_label = labels == label
    return (outputs[is_label].argmax(1) == label).double().mean().item() if is_label.any() else 0.0
