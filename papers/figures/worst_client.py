"""Accuracy of the final model for the worst-off client."""

from functools import lru_cache, partial

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from offbeat.config import experiment_file
from offbeat.config.experiment_sections import DataSection
from offbeat.data.dataset import Dataset
from offbeat.runs.directory import Run
from offbeat.training.evaluation import Evaluator
from offbeat.worlds.population import build_population
from offbeat.worlds.workload import build_dataset, build_model, build_objective


def worst_client_accuracy(run: Run) -> float:
    """Return the lowest accuracy of a run's final model over its clients.

    A client's accuracy is Σ_c p_c a_c: p_c is the share of label c among its training examples, a_c the accuracy on
    the test examples with label c.

    Args:
        run: A completed run on data with classes.

    Raises:
        OffbeatError: The data are no longer available.
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
