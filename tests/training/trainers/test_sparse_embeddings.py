"""Embeddings with sparse gradients, which a dense vector takes up."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from offbeat.algorithms import LocalPlan
from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.choice import make_trainer
from tests.training.conftest import assert_same, made
from tests.workloads import workload_of

TOKENS = torch.from_numpy(np.random.default_rng(1).integers(9, size=(12, 5)))
LABELS = TOKENS[:, 0] % 4
PLAN = LocalPlan(steps=3, batch_size=4, lr=0.5, momentum=0.9)


class Recommender(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.sparse = sparse
        self.items = nn.Embedding(9, 6, sparse=sparse)
        self.out = nn.Linear(6, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.items(tokens).mean(dim=1))


class Bags(Recommender):
    def __init__(self, sparse: bool) -> None:
        super().__init__(sparse)
        self.items = nn.EmbeddingBag(9, 6, sparse=sparse)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.items(tokens))


class Functional(Recommender):
    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(embedding(tokens, self.items.weight, sparse=self.sparse).mean(dim=1))


class Clearing(Functional):
    def forward(self, tokens: Tensor) -> Tensor:
        self.zero_grad()
        return super().forward(tokens)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((Recommender, name) for name in ("loop", "vmap")),
        (Bags, "loop"),
        (Functional, "loop"),
        (Functional, "processes"),
        (Clearing, "loop"),
    ],
)
def test_they_train_as_dense_ones(kind, name):
    def trained(sparse: bool):
        model = made(lambda: FlatModel(kind(sparse)))
        check_fit(model, nn.functional.cross_entropy, TOKENS, LABELS)
        shards = np.split(np.arange(12), [5])
        workload = workload_of(model, inputs=TOKENS, labels=LABELS, shards=shards, seed=1)
        trainer = make_trainer(name, workload, plan=PLAN, workers=1)
        try:
            return trainer.collect([Job(client, 0, 0, model.vector.clone(), PLAN, "delta") for client in (0, 1)])
        finally:
            trainer.close()

    results = trained(True)
    assert all(result.vector.norm() > 0.1 for result in results)
    assert_same(results, trained(False))
