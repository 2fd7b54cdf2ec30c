from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.names import TRAINERS
from tests.training.trainers.conftest import linear


def test_every_name_makes_a_trainer(choose, monkeypatch):
    monkeypatch.setattr("offbeat.training.trainers.distributed.ray_pool.check_ray", lambda: None)
    assert set(TRAINERS) == {"auto", "loop", "vmap", "unfold", "processes", "ray"}
    kinds = {name: choose(name, linear(), workers=1) for name in TRAINERS}
    assert type(kinds["loop"]) is LoopBackend
    assert len({type(kinds[name]) for name in ("loop", "vmap", "processes", "ray")}) == 4
