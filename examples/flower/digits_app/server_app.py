"""One of Offbeat's algorithms in place of a strategy."""

from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from digits_app.task import accuracy, make_model
from offbeat import algorithms
from offbeat.algorithms import LocalPlan
from offbeat.flower.server import run_on_grid

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the algorithm that pyproject.toml names."""
    settings = context.run_config
    make = {
        "fedbuff": lambda: algorithms.FedBuff(buffer_size=settings["buffer-size"], concurrency=settings["concurrency"]),
        "fedfa": lambda: algorithms.FedFa(buffer_size=settings["buffer-size"], concurrency=settings["concurrency"]),
        "fedasync": lambda: algorithms.FedAsync(concurrency=settings["concurrency"]),
        "fedlaavg": lambda: algorithms.FedLaAvg(cohort=settings["buffer-size"], weighting="uniform"),
        "fedavg": lambda: algorithms.FedAvg(cohort=settings["buffer-size"]),
    }
    model = make_model()

    def show(version: int, state: dict[str, torch.Tensor]) -> None:
        model.load_state_dict(state)
        print(f"version {version}: accuracy {accuracy(model):.3f}", flush=True)

    final = run_on_grid(
        grid,
        make[settings["algorithm"]](),
        model,
        LocalPlan(steps=18, batch_size=settings["batch-size"], lr=settings["lr"]),
        clients=settings["clients"],
        versions=settings["versions"],
        lease_seconds=settings["lease-seconds"],
        folder=settings["folder"] or None,
        on_version=show,
    )
    if settings["result"]:
        torch.save(final, Path(settings["result"]))
