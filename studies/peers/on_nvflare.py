"""Updates per second of NVFlare: FedAvg in its simulator, ten clients.

Ten of W1's thousand clients take part, all of them in every round, each in a process of its own: with more clients than
threads, NVFlare starts a process for every visit (``nvflare/private/fed/app/simulator/simulator_runner.py``), which
takes seconds. Construction, the start of server and clients and the first round are left out. The client,
``nvflare_client.py``, is written as in NVFlare's PyTorch quickstart; its local steps are those of the plain loop.

NVFlare's FedBuff (``nvflare.edge``) does not run in this simulator. Its simulated devices run in a deployment, where
each leaf waits half a second after it has given a device a task (``nvflare/edge/simulation/simulator.py``), so that
they send at most two updates a second.
"""

# pyright: reportMissingImports=false

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe.sim_env import SimEnv
from workloads import Workload

PACKAGE = "nvflare"
CLIENTS = 10
HERE = Path(__file__).parent


def fedavg(workload: Workload) -> float:
    """Return updates a second of some rounds."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ends = Path(folder) / "ends.txt"
        recipe = FedAvgRecipe(
            name="fedavg",
            model={"class_path": f"workloads.{workload.make.__name__}", "args": {}},
            min_clients=CLIENTS,
            num_rounds=1 + workload.rounds,
            train_script=str(HERE / "nvflare_client.py"),
            train_args=f"{workload.name} {HERE} {ends}",
        )
        recipe.execute(SimEnv(num_clients=CLIENTS, num_threads=CLIENTS, workspace_root=folder))
        times = sorted((int(round_), float(end)) for round_, end in map(str.split, ends.read_text().splitlines()))
    first = [end for round_, end in times if round_ == 0]
    return workload.rounds * CLIENTS / (times[-1][1] - first[-1])


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    return {("fedavg", "-", f", {CLIENTS} clients"): partial(fedavg, workload)}
