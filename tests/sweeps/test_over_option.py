import math

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.sweeps.over_option import Choices, Numbers, Over, parse_over


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
