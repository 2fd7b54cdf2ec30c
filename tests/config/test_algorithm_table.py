import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import ALGORITHMS, AsyncCommSGD, FedAvg, FedBuff
from offbeat.algorithms.components.schedules.patterns import random
from offbeat.algorithms.components.server_optimizer import adam
from offbeat.algorithms.components.weights import polynomial
from offbeat.config.algorithm_table import (
    FACTORIES,
    as_inline_toml,
    build_algorithm,
    default_hyper_parameters,
    hyper_parameters_of,
)
from tests.error_line import error_line

# Tables with nothing left at its default.
ALGORITHM_TABLES: list[dict[str, Any]] = [
    {"algorithm": "fedavg", "cohort": 3, "server_lr": 0.1, "weighting": "uniform", "over_selection": 1.7,
     "server_optimizer": {"name": "adam", "beta1": 0.7, "beta2": 0.9, "epsilon": 1e-5}},
    {"algorithm": "fedasync", "mixing_alpha": 0.3, "concurrency": 3,
     "staleness": {"name": "hinge", "a": 3.0, "b": 2.0}},
    {"algorithm": "fedbuff", "buffer_size": 3, "server_lr": 1 / 3, "concurrency": 7,
     "staleness": {"name": "exponential", "a": 0.1},
     "server_optimizer": {"name": "adagrad", "initial": 0.1, "epsilon": 0.01}},
    {"algorithm": "fedfa", "window": 7, "server_lr": 0.3, "release_every": 2, "concurrency": 3, "normalise": True,
     "server_optimizer": {"name": "momentum", "beta": 0.7}},
    {"algorithm": "port", "min_clients": 3, "staleness_bound": 4, "urgent_requests": False, "similarity_weight": 0.3,
     "staleness_weight": 0.6, "server_lr": 0.9, "concurrency": 7,
     "server_optimizer": {"name": "momentum", "beta": 0.7}},
    {"algorithm": "async_comm_sgd", "pattern": {"name": "round_robin", "k": 3, "every": 2}, "average": True,
     "step_sizes": {"name": "inverse_time", "strong_convexity": 0.1, "smoothness": 4.0, "gap": 5.0}, "period": 2.5,
     "weighting": "uniform", "server_lr": 0.3, "server_optimizer": {"name": "momentum", "beta": 0.7}},
    {"algorithm": "async_comm_sgd", "pattern": {"name": "random", "p": 0.3, "seed": 2**63 - 1},
     "step_sizes": {"name": "inverse_square_root", "initial": 0.3}},
    {"algorithm": "fedluck", "period": 2.5, "server_lr": 0.3, "steps": [2, 9], "compression": [0.1, 0.5],
     "compression_exponent": 1.0, "normalise": True, "server_optimizer": {"name": "momentum", "beta": 0.7}},
]  # fmt: skip


class TestBuild:
    @pytest.mark.parametrize("table", ALGORITHM_TABLES, ids=lambda table: table["algorithm"])
    def test_takes_every_value_and_leaves_the_table_alone(self, table: dict[str, Any]) -> None:
        name, values = table["algorithm"], {key: value for key, value in table.items() if key != "algorithm"}
        before = copy.deepcopy(values)
        algorithm = build_algorithm(name, values)
        assert values == before
        found = hyper_parameters_of(algorithm)
        written = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        assert found == found | written
        again = build_algorithm(name, found)
        assert type(again) is type(algorithm)
        assert hyper_parameters_of(again) == found

    @pytest.mark.parametrize(("key", "name"), [(key, name) for key, names in FACTORIES.items() for name in names])
    def test_every_object_by_name(self, key: str, name: str) -> None:
        algorithm = "fedbuff" if key in ("staleness", "server_optimizer") else "async_comm_sgd"
        built = build_algorithm(algorithm, {key: {"name": name}})
        assert getattr(built, key) == FACTORIES[key][name]()

    def test_a_random_pattern_draws_by_the_runs_seed(self) -> None:
        for table, seed in (({"p": 0.3}, 7), ({"p": 0.3, "seed": 2}, 2)):
            algorithm = build_algorithm("async_comm_sgd", {"pattern": {"name": "random", **table}}, 7)
            assert algorithm.pattern == random(p=0.3, seed=seed)

    def test_a_whole_number_is_a_number(self) -> None:
        assert build_algorithm("fedavg", {"server_lr": 2}).server_lr == 2.0

    @pytest.mark.parametrize(
        ("name", "table", "message"),
        [
            ("fedbuf", {}, "unknown algorithm 'fedbuf': did you mean 'fedbuff'? Allowed: "),
            (
                "mine",
                {},
                f"unknown algorithm 'mine': Allowed: {', '.join(sorted(ALGORITHMS))}; if this is a label of your own",
            ),
            ("fedavg", {"weighting": "example"}, "weighting = 'example': must be 'examples' or 'uniform'"),
            ("fedavg", {"weighting": 500 * "x"}, f"weighting = '{78 * 'x'}…: must be"),
            ("m" * 500, {}, f"unknown algorithm '{78 * 'm'}…: Allowed"),
            ("fedavg", {"k" * 500: 1}, f"unknown key '{78 * 'k'}…: "),
            ("fedavg", {"kohort": 1}, "unknown key 'kohort': did you mean 'cohort'? Allowed: algorithm, cohort, local"),
            ("fedavg", {"self": 1}, "unknown key 'self'"),
            ("fedavg", {"cohort": 0}, "cohort = 0: must be greater than or equal to 1"),
            ("fedasync", {"staleness": {"name": "hinge", "b": -1}}, "staleness: b must "),
            ("async_comm_sgd", {"pattern": "full"}, "pattern = 'full': must be a table such as { name = \"full\" }"),
            ("async_comm_sgd", {"pattern": {"name": "nowhere.py:f"}}, "pattern.name: 'nowhere.py:f': no such file"),
            ("fedluck", {"steps": [5, 1]}, "steps must run from the smallest to the largest, got [5, 1]"),
        ],
    )
    def test_an_error_is_one_line(self, name: str, table: dict[str, Any], message: str) -> None:
        assert error_line(build_algorithm, name, table).startswith(message)


OWN = """
from offbeat.algorithms import Algorithm, FedAvg, FedBuff

class Own(FedBuff):
    name = "own"

    def __init__(self, *, strength: float = 0.5, words: list[str] = [], free=1, **others) -> None:
        if strength > 1:
            raise ValueError("strength must be at most 1")
        super().__init__(buffer_size=3)
        self.strength, self.words, self.free = strength, words, free

class Forgets(FedBuff):
    def __init__(self, *, strength: float = 0.5) -> None:
        super().__init__()

class Untyped(FedBuff):
    def __init__(self, *, strength: "Strength" = 0.5) -> None:
        super().__init__()

class Namesake(FedBuff):
    def __init__(self, *, pattern: str = "weekly", steps: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.pattern, self.steps = pattern, steps

class Wants(FedBuff):
    def __init__(self, strength) -> None:
        super().__init__()

class Odd(FedBuff):
    def __init__(self, *, strength=object()) -> None:
        super().__init__()
        self.strength = strength

class Half(Algorithm):
    name = "half"

class Other:
    pass

def function():
    return FedAvg()
"""


class TestOwn:
    @pytest.fixture
    def own(self, tmp_path: Path) -> str:
        path = tmp_path / "own.py"
        path.write_text(OWN)
        return f"{path}:"

    def test_is_built_with_its_hyper_parameters(self, own: str) -> None:
        algorithm: Any = build_algorithm(f"{own}Own", {"strength": 1, "free": "anything"})
        assert (algorithm.name, algorithm.strength, algorithm.words, algorithm.free) == ("own", 1.0, [], "anything")
        assert hyper_parameters_of(algorithm) == {"strength": 1.0, "words": [], "free": "anything"}
        again = build_algorithm(f"{own}Own", hyper_parameters_of(algorithm))
        assert hyper_parameters_of(again) == hyper_parameters_of(algorithm)
        assert again.buffer_size == algorithm.buffer_size == 3

    def test_may_mean_something_else_by_the_name_of_a_table(self, own: str) -> None:
        """``pattern`` makes a communication pattern only where a hyper-parameter is to be one."""
        algorithm: Any = build_algorithm(f"{own}Namesake", {"pattern": "daily", "steps": [2, 3]})
        assert (algorithm.pattern, algorithm.steps) == ("daily", (2, 3))

    def test_a_module_is_as_good_as_a_file(self) -> None:
        algorithm = build_algorithm("offbeat.algorithms:FedBuff", {"buffer_size": 3})
        assert type(algorithm) is FedBuff
        assert hyper_parameters_of(algorithm) == hyper_parameters_of(FedBuff(buffer_size=3))

    @pytest.mark.parametrize(
        ("name", "table", "parts"),
        [
            ("Own", {"strenth": 1.0}, ["unknown key 'strenth'", "did you mean 'strength'?"]),
            ("Own", {"strength": "much"}, ["strength = 'much'", "number"]),
            ("Own", {"strength": 2.0}, ["Own' failed: ValueError: strength must be at most 1", "own.py:"]),
            ("Own", {"others": 2.0}, ["unknown key 'others'"]),
            ("Forgets", {}, ["must keep its hyper-parameter strength as an attribute of that name"]),
            ("Untyped", {}, ["a type in its __init__ is wrong", "Strength"]),
            ("Wants", {}, ["missing a required argument: 'strength'"]),
            ("Odd", {}, ["cannot be written as TOML", "object"]),
            ("Half", {}, ["Half'", "NotImplementedError"]),
            ("Other", {}, ["must be a subclass of offbeat.algorithms.Algorithm"]),
            ("function", {}, ["must be a subclass of offbeat.algorithms.Algorithm"]),
        ],
    )
    def test_an_error_is_one_line(self, name: str, table: dict[str, Any], parts: list[str], own: str) -> None:
        line = error_line(build_algorithm, own + name, table)
        assert all(part in line for part in parts)


RULES = """
three = 3

def rule(client, last, clients):
    return last + 2
"""


class TestOwnPattern:
    @pytest.fixture
    def rules(self, tmp_path: Path) -> str:
        path = tmp_path / "rules.py"
        path.write_text(RULES)
        return f"{path}:"

    def test_is_made_from_its_rule(self, rules: str) -> None:
        table = {"pattern": {"name": f"{rules}rule", "longest_gap": 2}}
        algorithm = build_algorithm("async_comm_sgd", table)
        assert isinstance(algorithm, AsyncCommSGD)
        assert algorithm.pattern.next_round(0, 3, 10) == 5
        assert algorithm.pattern.longest_gap(10) == 2
        assert hyper_parameters_of(algorithm)["pattern"] == table["pattern"]
        again = build_algorithm("async_comm_sgd", hyper_parameters_of(algorithm))
        assert hyper_parameters_of(again) == hyper_parameters_of(algorithm)
        assert again.pattern == algorithm.pattern

    @pytest.mark.parametrize(
        ("name", "others", "message"),
        [
            ("rule", {}, "pattern.longest_gap is missing"),
            ("rule", {"longest_gap": 0}, "pattern: longest_gap must be "),
            ("rule", {"longest_gap": 2, "k": 1}, "unknown key pattern.k: Allowed: longest_gap"),
            ("three", {"longest_gap": 2}, "pattern.name: "),
        ],
    )
    def test_an_error_is_one_line(self, name: str, others: dict[str, Any], message: str, rules: str) -> None:
        line = error_line(build_algorithm, "async_comm_sgd", {"pattern": {"name": rules + name, **others}})
        assert line.startswith(message)

    def test_only_a_pattern_can_be_an_import_path(self, rules: str) -> None:
        with pytest.raises(OffbeatError, match=r"^step_sizes\.name = "):
            build_algorithm("async_comm_sgd", {"step_sizes": {"name": f"{rules}rule"}})


class TestHyperParameters:
    def test_defaults_in_the_order_of_the_declaration(self) -> None:
        defaults = list(default_hyper_parameters(FedAvg).items())
        assert defaults[:3] == [("cohort", 10), ("server_lr", 1.0), ("weighting", "examples")]
        assert defaults[-1] == ("server_optimizer", None)

    @pytest.mark.parametrize("kind", ALGORITHMS.values())
    def test_of_an_algorithm_make_it_again(self, kind: type) -> None:
        algorithm = kind()
        assert hyper_parameters_of(build_algorithm(kind.name, {})) == hyper_parameters_of(algorithm)
        again = build_algorithm(kind.name, hyper_parameters_of(algorithm))
        assert all(getattr(again, key) == getattr(algorithm, key) for key in default_hyper_parameters(kind))

    def test_are_the_algorithms_not_the_defaults(self) -> None:
        algorithm = FedBuff(buffer_size=3, staleness=polynomial(a=2.0), server_optimizer=adam(beta1=0.5))
        assert hyper_parameters_of(algorithm) == {
            "buffer_size": 3,
            "server_lr": 1.0,
            "staleness": {"name": "polynomial", "a": 2.0},
            "concurrency": 100,
            "server_optimizer": {"name": "adam", "beta1": 0.5, "beta2": 0.99, "epsilon": 1e-3},
        }
        assert "server_optimizer" not in hyper_parameters_of(FedBuff())


@pytest.mark.parametrize("value", [1e-05, True, 'a "quoted" \\ word', {"outer": {"inner": 1}}, {"steps": [1, 50]}])
def test_inline_toml_is_one_line_that_reads_back(value: Any) -> None:
    text = as_inline_toml(value)
    assert "\n" not in text
    assert tomllib.loads(f"x = {text}") == {"x": value}
