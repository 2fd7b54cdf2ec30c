from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbeat.algorithms.components import Compression
from offbeat.config.experiment_file import Experiment, load

Load = Callable[..., Experiment]

TOP_TENTH = Compression("top_k", (("share", 0.1),))

Changed = Callable[..., dict[str, Any]]


class TestOverrides:
    @pytest.mark.parametrize(
        ("change", "read", "value"),
        [
            ("local.lr=0.5", lambda e: e.local.lr, 0.5),
            (" local.lr = 0.5 ", lambda e: e.local.lr, 0.5),
            ("seeds=[7, 8]", lambda e: e.seeds, (7, 8)),
            ("name=other", lambda e: e.name, "other"),
            ('name="other"', lambda e: e.name, "other"),
            ("data.fallback=digits", lambda e: e.data.fallback, "digits"),
            ("server.max_staleness=3", lambda e: e.server.max_staleness, 3),
            ("population.lossy.fraction=0.125", lambda e: e.population.lossy.fraction, 0.125),
            ('population.partition={ name = "iid" }', lambda e: e.population.partition.name, "iid"),
            ("algorithms.fedbuff.buffer_size=4", lambda e: e.algorithm("fedbuff").buffer_size, 4),
            ("algorithms.fedbuff.local.steps=9", lambda e: e.plan("fedbuff").steps, 9),
            ("local.error_feedback=true", lambda e: e.plan("fedbuff").error_feedback, True),
            ("local.compression.share=0.1", lambda e: e.plan("fedbuff").compression, TOP_TENTH),
            ("algorithms.fedbuff.local.compression.name=none", lambda e: e.plan("fedbuff").compression, None),
            ("algorithms.fedbuff.staleness.name=constant", lambda e: e.algorithm("fedbuff").staleness(9), 1.0),
        ],
    )
    def test_change_a_key(self, change: str, read: Callable[[Experiment], Any], value: Any, experiment: Load) -> None:
        compressed = "local.compression={ name = 'top_k', share = 0.5 }"
        assert read(experiment(compressed)) != value
        assert read(experiment(compressed, change)) == value

    def test_the_last_one_counts(self, experiment: Load) -> None:
        assert experiment("local.lr=0.5", "local.steps=4", "local.lr=0.25").local.lr == 0.25

    def test_may_make_a_section(self, changed: Changed, save: Callable[..., Path], tiny: dict[str, Any]) -> None:
        path = save(changed(tiny, "server"))
        assert load(path, ["server.lease_seconds=5"]).server.lease_seconds == 5.0

    def test_may_add_an_algorithm(self, experiment: Load) -> None:
        assert (
            experiment("algorithms.b.algorithm=fedbuff", "algorithms.b.buffer_size=7").algorithm("b").buffer_size == 7
        )
