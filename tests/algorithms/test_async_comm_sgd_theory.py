"""The theory of AsyncCommSGD: Proposition B.1 and its case of full communication."""

import numpy as np
import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, LocalPlan, Update
from offbeat.algorithms.components.schedules.patterns import full, imbalanced, own, random, round_robin
from offbeat.algorithms.components.weights import inverse_square_root


def odd(client, last, clients):
    """The user's own: the first later round whose square leaves the client's remainder by 3, or a multiple of 4."""
    return next(t for t in range(last + 1, last + 5) if t * t % 3 == client % 3 or t % 4 == 0)


CENTRES = np.random.default_rng(5).standard_normal((5, 3))


class Federation:
    """Five clients that work all the time, with noisy gradients of ‖x − c_i‖²/2, and a record of all they did."""

    def __init__(self, algorithm, local, start=(1.0, -2.0, 0.5)):
        self.algorithm, self.local = algorithm, local
        algorithm.start(torch.tensor(start), 5)
        self.start = np.array(start)
        self.rng = np.random.default_rng(0)
        self.gradients = {}  # (client, round): G_{i,s}, summed over the round's steps
        self.at_work = {}  # client: version, due round, start − end
        self.talked = {client: [0] for client in range(5)}
        self.models = [self.start]

    def round(self):
        """Let everybody who talked go on, who is due talk, and the round end."""
        for client in set(range(5)) - set(self.at_work):
            self._work(client)
        following = self.algorithm.version + 1
        for client, (version, due, delta) in list(self.at_work.items()):
            if due == following:
                vector = torch.tensor(delta, dtype=torch.float32)
                assert self.algorithm.receive(Update(client, version, vector, 1, 1, 1.0)) is False
                self.talked[client].append(due)
                del self.at_work[client]
        assert self.algorithm.tick() is True
        self.models.append(self.algorithm.model.numpy().astype(float))

    def _work(self, client):
        first = self.algorithm.version
        plan = self.algorithm.assign(client, self.local)
        point = self.models[first]
        assert plan.steps % self.local.steps == 0
        rates = plan.lr if isinstance(plan.lr, tuple) else (plan.lr,) * plan.steps
        for step, lr in enumerate(rates):
            number = first + step // self.local.steps
            gradient = point - CENTRES[client] + self.rng.standard_normal(3)
            point = point - lr * gradient
            self.gradients[client, number] = self.gradients.get((client, number), 0) + gradient
        self.at_work[client] = first, first + plan.steps // self.local.steps, self.models[first] - point


@pytest.mark.parametrize(
    ("steps", "step_sizes"), [(1, None), (3, inverse_square_root(0.3))], ids=["constant", "falling"]
)
@pytest.mark.parametrize(
    ("pattern", "talks"),
    [
        (full(1), lambda i, t: True),
        (full(4), lambda i, t: t % 4 == 0),
        (round_robin(k=2, every=1), lambda i, t: i // 2 == (t - 1) % 3),
        (round_robin(k=2, every=3), lambda i, t: t % 3 == 0 and i // 2 == (t // 3 - 1) % 3),
        (imbalanced(), lambda i, t: t % (i + 1) == 0),
        (random(p=0.3, seed=2), lambda i, t: random(p=0.3, seed=2).next_round(i, t - 1, 5) == t),
        (own(odd, longest_gap=4), lambda i, t: t * t % 3 == i % 3 or t % 4 == 0),
    ],
    ids=["full 1", "full 4", "round_robin", "round_robin every third", "imbalanced", "random", "own"],
)
def test_proposition_b_1_holds_for_every_pattern(pattern, talks, steps, step_sizes):
    algorithm = AsyncCommSGD(pattern=pattern, step_sizes=step_sizes)
    federation = Federation(algorithm, LocalPlan(steps=steps, batch_size=1, lr=0.2))
    for _ in range(30):
        federation.round()
    expected = federation.start
    for t in range(31):
        done = np.zeros(3)
        for client in range(5):
            last = max([s for s in range(1, t + 1) if talks(client, s)], default=0)
            assert last == max(s for s in federation.talked[client] if s <= t)
            for s in range(last):
                done += (step_sizes(s) if step_sizes else 0.2) * federation.gradients[client, s]
        np.testing.assert_allclose(federation.models[t], expected - done / 5, atol=1e-5)


def test_full_1_is_distributed_minibatch_sgd():
    federation = Federation(AsyncCommSGD(pattern=full(1)), LocalPlan(steps=1, batch_size=1, lr=0.2))
    for _ in range(40):
        federation.round()
    rng, model = np.random.default_rng(0), federation.start
    for t in range(40):
        np.testing.assert_allclose(federation.models[t], model, atol=1e-5)
        noise = rng.standard_normal((5, 3))
        model = model - 0.2 * (model - CENTRES.mean(axis=0) + noise.mean(axis=0))
