"""FedBuff: asynchronous clients, and a server step for every K updates."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Continuous,
    Count,
    Positive,
    ServerOptimizer,
    ServerStep,
    Staleness,
    Sum,
    Update,
    polynomial,
)


class FedBuff(Algorithm):
    """Buffered asynchronous aggregation: every K-th update makes a new model.

    ``acc ← acc + s(τ_i) Δ_i`` for each arrival; at the K-th ``w_{t+1} = w_t − server_lr · acc / K``, and the
    buffer is empty again. The server holds one accumulator for any K. K = 1 and s = 1 is plain asynchronous SGD.

    Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (AISTATS 2022), Algorithm 1; analysed
    for s = 1 and the server step size β = server_lr / K by Toghani and Uribe, "Unbounded Gradients in Federated
    Learning with Buffered Asynchronous Aggregation" (2022), Algorithms 1 and 2.

    Args:
        buffer_size: K ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        staleness: The weight s(τ).
        concurrency: Clients at work at the same time, ≥ 1.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedBuff(buffer_size=4, concurrency=10), **world)
        >>> int(history.version.iloc[-1])  # 4 a version
        5
    """

    name = "fedbuff"
    grows = True

    buffer_size: Count = 10
    server_lr: Positive = 1.0
    staleness: Staleness = polynomial(a=0.5)
    concurrency: Count = 100
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Sum()
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def weigh(self, update: Update) -> float:
        return self.staleness(self.age(update))

    def is_ready(self) -> bool:
        return self.buffer.count >= self.buffer_size

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return self.step(model, closed.mean(self.buffer_size))
