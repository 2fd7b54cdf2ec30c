from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.names import TRAINERS
from tests.training.trainers.conftest import linear


def test_every_name_makes_a_trainer(choose, monkeypatch):
    monkeypatch.setattr("offbeat.training.trainers.distributed.ray_pool.check_ray", lambda: None)
    assert set(TRAINERS) == {"auto", "loop", "vmap", "unfold", "processes", "ray"}
    kinds = {name: type(choose(name, linear(), workers=1).backend) for name in TRAINERS}
    assert kinds["loop"] is LoopBackend
    assert len({kinds[name] for name in ("loop", "vmap", "processes", "ray")}) == 4
