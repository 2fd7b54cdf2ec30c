import math
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.sweeps.search_space import Choices, Numbers, Over, all_points, corners, parse_over, search_spaces, size_of

LABELS = ["fedavg", "fedasync", "fedbuff"]
PATH = Path("tiny.toml")


@pytest.fixture
def spaces(tiny, overs):
    def search(*texts, labels=LABELS):
        return search_spaces(tiny, overs(*texts), labels, PATH)

    return search


def test_a_key_of_local_is_tried_for_each_algorithm(spaces):
    assert spaces("local.lr=0.01:1:log") == {label: {"local.lr": Numbers(0.01, 1, log=True)} for label in LABELS}


def test_a_key_of_one_algorithm_is_tried_there(spaces):
    assert spaces("algorithms.fedbuff.server_lr=0.1:3") == {"fedbuff": {"server_lr": Numbers(0.1, 3, log=False)}}


def test_an_algorithms_own_values_replace_those_for_all(spaces):
    found = spaces("algorithms.fedbuff.local.lr=1,2", "local.lr=0.01:1")
    assert found["fedbuff"] == {"local.lr": Choices((1, 2))}
    assert found["fedavg"] == {"local.lr": Numbers(0.01, 1, log=False)}


@pytest.mark.parametrize(
    ("text", "key", "whole"),
    [
        ("algorithms.fedbuff.buffer_size=1:8", "buffer_size", True),
        ("algorithms.fedbuff.server_lr=1:8", "server_lr", False),
        ("local.steps=1:20:log", "local.steps", True),
        ("local.lr=1:2", "local.lr", False),
        ("local.lr=0.5:2", "local.lr", False),
    ],
)
def test_a_setting_knows_whether_it_is_a_whole_number(text, key, whole, spaces):
    assert spaces(text)["fedbuff"][key].whole is whole


def test_a_key_of_a_table(spaces, tiny):
    tiny["local"]["compression"] = {"name": "top_k", "share": 0.1}
    tiny["algorithms"]["fedbuff"]["staleness"] = {"name": "polynomial", "a": 0.5}
    found = spaces("local.compression.share=0.01:0.5:log", "algorithms.fedbuff.staleness.a=0:2")
    assert found["fedavg"] == {"local.compression.share": Numbers(0.01, 0.5, log=True)}
    assert found["fedbuff"]["staleness.a"] == Numbers(0, 2, log=False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("algorithms.fedbuff.serverlr=0.1:3", "unknown key 'serverlr': did you mean 'server_lr'?"),
        ("algorithms.fedbuf.server_lr=0.1:3", "algorithms.fedbuf: did you mean 'fedbuff'?"),
        ("algorithms.fedbuff=1:2", "name a key of algorithms.fedbuff"),
        ("algorithms.fedavg.buffer_size=1:2", "unknown key 'buffer_size'"),
        ("local.learning_rate=0.1:3", "unknown key algorithms.fedavg.local.learning_rate"),
        ("local=1:2", "write algorithms.LABEL.KEY, local.KEY or privacy.KEY"),
        ("population.clients=1:2", "write algorithms.LABEL.KEY, local.KEY or privacy.KEY"),
        ("server_lr=1:2", "write algorithms.LABEL.KEY, local.KEY or privacy.KEY"),
        ("local.lr=0:1", "algorithms.fedavg.local.lr = 0: must be greater than 0"),
        ("local.momentum=0.5:1", "algorithms.fedavg.local.momentum = 1: must be less than 1"),
        ("algorithms.fedbuff.buffer_size=0:4", "buffer_size = 0: must be greater than or equal to 1"),
        ("algorithms.fedbuff.buffer_size=1.5:4", "buffer_size = 1.5: must be a valid integer"),
        ("local.optimizer=sgd,adamx", "algorithms.fedavg.local.optimizer = 'adamx': must be 'sgd' or 'adamw'"),
        ("local.lr.x=1:2", "algorithms.fedavg.local.lr.x: lr is a value, not a table"),
    ],
)
def test_a_mistake_is_found_at_both_ends(text, problem, spaces):
    with pytest.raises(OffbeatError) as caught:
        spaces(text)
    assert str(caught.value).startswith(f"--over {text}: ")
    assert problem in str(caught.value)


def test_a_key_that_is_there_twice(spaces):
    with pytest.raises(OffbeatError, match=r"^--over local.lr is there twice"):
        spaces("local.lr=1:2", "local.lr=2:3")


def test_a_label_that_is_left_out(spaces):
    assert spaces("local.lr=1:2", labels=["fedavg"]).keys() == {"fedavg"}
    with pytest.raises(OffbeatError, match=r"algorithms.fedbuff: Allowed: fedavg$"):
        spaces("algorithms.fedbuff.server_lr=1:2", labels=["fedavg"])


SPACE = {"a": Choices(("x", "y", "z")), "b": Numbers(1, 2, log=False, whole=True)}


def test_all_points_of_a_finite_space():
    assert size_of(SPACE) == 6
    assert [tuple(point.values()) for point in all_points(SPACE)] == [
        ("x", 1), ("x", 2), ("y", 1), ("y", 2), ("z", 1), ("z", 2),
    ]  # fmt: skip
    assert size_of({**SPACE, "c": Numbers(1, 2, log=False)}) == math.inf


def test_corners_have_both_ends_and_each_choice():
    assert corners(SPACE) == [{"a": "x", "b": 1}, {"a": "y", "b": 2}, {"a": "z", "b": 2}]
    assert corners({"b": Numbers(1, 2, log=False)}) == [{"b": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("local.lr=0.1:3", "local.lr", Numbers(0.1, 3, log=False)),
        ("local.lr=1e-3:1:log", "local.lr", Numbers(0.001, 1, log=True)),
        ("algorithms.fedbuff.buffer_size=1:8", "algorithms.fedbuff.buffer_size", Numbers(1, 8, log=False)),
        ("a.b = -1 : 2 ", "a.b", Numbers(-1, 2, log=False)),
        ("local.lr=0.1,0.3,1", "local.lr", Choices((0.1, 0.3, 1))),
        ("local.optimizer=sgd, adamw", "local.optimizer", Choices(("sgd", "adamw"))),
        ("local.optimizer='sgd','adamw'", "local.optimizer", Choices(("sgd", "adamw"))),
        ("a.b=true,false", "a.b", Choices((True, False))),
        (
            "a.staleness={name='constant'},{name='polynomial',a=0.5}",
            "a.staleness",
            Choices(({"name": "constant"}, {"name": "polynomial", "a": 0.5})),
        ),
        ("a.b=[1, 2],[3]", "a.b", Choices(([1, 2], [3]))),
        (
            "algorithms.mine.algorithm=my.py:One,my.py:Two",
            "algorithms.mine.algorithm",
            Choices(("my.py:One", "my.py:Two")),
        ),
    ],
)
def test_ranges_and_choices(text, key, values):
    assert parse_over(text) == Over(text, key, values)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("local.lr", "write it as KEY=LOW:HIGH"),
        ("=1:2", "write it as"),
        ("local.=1:2", "write it as"),
        ("local.lr=", "write it as"),
        ("local.lr=a:b", "write it as"),
        ("local.lr=1:2:lin", "write it as"),
        ("local.lr=1:2:log:3", "write it as"),
        ("local.lr=true:false", "write it as"),
        ("local.lr=1,,2", "write it as"),
        ("local.lr=0.1", "one value is a setting, for --set; write it as"),
        ("local.lr=3:0.1", "the range is empty"),
        ("local.lr=1:1", "the range is empty"),
        ("local.lr=0:1:log", "with log both ends must be above 0"),
        ("local.lr=-1:1:log", "with log both ends must be above 0"),
        ("local.lr=0.1:inf", "both ends must be finite"),
        ("local.lr=nan:1", "both ends must be finite"),
        ("local.lr=0.1,0.2,0.1", "each value must be there once"),
        ("local.lr=1\n,2", "must be one line"),
    ],
)
def test_a_mistake_is_one_line(text, problem):
    with pytest.raises(OffbeatError) as caught:
        parse_over(text)
    assert str(caught.value).startswith("--over local" if text.startswith("local") else "--over =")
    assert problem in str(caught.value)


def test_the_number_of_values():
    assert Numbers(1, 8, log=False).size == math.inf
    assert Numbers(1, 8, log=False, whole=True).size == 8
    assert Choices((1, 2)).size == 2
