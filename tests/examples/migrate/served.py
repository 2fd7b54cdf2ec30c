"""The example's server file with its clients, in this process."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

from offbeat.client import run_client
from offbeat.config import server_file
from offbeat.worlds.serve import build_coordinator
from tests.examples.both_worlds import function
from tests.service.conftest import running

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "migrate"


def served(folder: Path) -> str:
    """Return the example's report on the model that its clients train."""
    file = server_file.load(EXAMPLE / "server.toml")
    coordinator, layout = build_coordinator(file)
    clients, versions = file.service.clients, file.stop.versions
    settings = {"plan": file.local.plan(), "model": coordinator.algorithm.model.clone(), "layout": layout}
    make = function(EXAMPLE / "client.py", "make_client")
    with running(
        folder / "server", file.build_algorithm, clients=clients, stop_versions=versions, **settings
    ) as server, ThreadPoolExecutor(clients) as pool:  # fmt: skip

        def join(number: int) -> int:
            return run_client(server.url, make, folder / str(number), enrolment_token=server.enrolment_token)

        assert list(pool.map(join, range(clients))) == [versions] * clients
        end: torch.Tensor = server.service.engine.coordinator.algorithm.model
    net: nn.Module = function(EXAMPLE / "digits.py", "Net")()
    nn.utils.vector_to_parameters(end, net.parameters())
    return function(EXAMPLE / "digits.py", "report")(net)
