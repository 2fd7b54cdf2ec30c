"""``flwr run .`` in Flower's simulation."""

import torch

from tests.flower.e2e import superlink


def test_the_example_runs_as_it_is_in_flowers_simulation(tmp_path, examples):
    from digits_app.task import accuracy, make_model

    result = tmp_path / "model.pt"
    with superlink.running(tmp_path / "flower", "--simulation") as link:
        link.run(examples, versions=6, result=result)
        superlink.wait_until(result.exists, "the run is over")
        superlink.wait_until(lambda: result.stat().st_size > 0, "the model is written")
    model = make_model()
    model.load_state_dict(torch.load(result))
    assert accuracy(model) > 0.5
