"""The example on a real SuperLink with SuperNodes, one of which is killed."""

from pathlib import Path

import torch

from offbeat.tensor_file import read_checkpoint
from tests.flower.e2e import superlink

SETTINGS = {"clients": 3, "buffer_size": 2, "concurrency": 3, "lease_seconds": 60.0}


def saved(folder: Path) -> dict[str, object]:
    path = folder / "run.safetensors"
    return read_checkpoint(path) if path.exists() else {}


def statistics(folder: Path) -> dict[str, int]:
    prefix = "coordinator.statistics."
    return {key.removeprefix(prefix): value for key, value in saved(folder).items() if key.startswith(prefix)}


def test_a_killed_node_costs_its_update_only_and_a_restarted_server_goes_on(tmp_path, examples):
    from digits_app.task import accuracy, make_model

    run, result = tmp_path / "run", tmp_path / "model.pt"
    with superlink.running(tmp_path / "flower") as link:
        nodes = [link.start_node(partition) for partition in range(3)]
        # The twenty updates after the kill take two nodes about 100 s, longer than the lease of the killed one's visit.
        link.run(examples, versions=12, local_epochs=20, folder=run, result=result, **SETTINGS)
        superlink.wait_until(lambda: statistics(run).get("counted", 0) >= 4, "four updates are in")
        superlink.kill(nodes[2])
        superlink.wait_until(result.exists, "the run is over")
        first = statistics(run)
        assert first["counted"] == 24
        # Until Flower sees that the node is gone, it is asked again whenever its lease has ended.
        assert 1 <= first["lost"] <= 6
        model = make_model()
        model.load_state_dict(torch.load(result))
        assert accuracy(model) > 0.8
        result.unlink()
        link.start_node(2)
        link.run(examples, versions=14, local_epochs=20, folder=run, result=result, **SETTINGS)
        superlink.wait_until(result.exists, "the second run is over")
        assert statistics(run)["counted"] == 28
