"""Workloads of tests."""

from torch.nn.functional import cross_entropy

from offbeat.training.workload import Examples, Objective, Workload


def workload_of(model, *, inputs, labels, shards, seed, loss=cross_entropy, augmentation=None):
    """Return the workload of a model on examples, without a test set."""
    return Workload(model, Objective(loss), Examples(inputs, labels), shards, seed, augmentation=augmentation)
