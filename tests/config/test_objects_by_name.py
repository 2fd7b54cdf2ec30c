from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from offbeat.config.objects_by_name import check_type, make_by_name
from tests.error_line import error_line


@dataclass(frozen=True)
class Circle:
    """A class, whose parameters are its fields."""

    radius: float
    filled: bool = False


def square(side: int = 1) -> str:
    if side > 9:
        raise ValueError(f"side must be at most 9, got {side}")
    return side * "#"


def point() -> None:
    """Something without parameters, which makes nothing."""


FACTORIES: dict[str, Callable[..., Any]] = {"circle": Circle, "square": square, "point": point}


class TestMade:
    @pytest.mark.parametrize(
        ("table", "made"),
        [
            ({"name": "circle", "radius": 0.5, "filled": True}, Circle(0.5, filled=True)),
            ({"name": "circle", "radius": 2}, Circle(2.0)),
            ({"name": "square", "side": 3}, "###"),
            ({"name": "square"}, "#"),
            ({"name": "point"}, None),
        ],
    )
    def test_by_functions_and_classes(self, table: dict[str, Any], made: object) -> None:
        before = dict(table)
        assert make_by_name("shape", table, FACTORIES) == made
        assert table == before

    def test_an_integer_becomes_a_float(self) -> None:
        assert type(make_by_name("shape", {"name": "circle", "radius": 2}, FACTORIES).radius) is float

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (
                "circle",
                "shape = 'circle': must be a table such as { name = \"circle\", radius = … }; "
                "names: circle, square, point",
            ),
            ({"radius": 1.0}, "shape = {'radius': 1.0}: must be a table such as { name = "),
            (["circle"], "shape = ['circle']: must be a table"),
            ({"name": "cirle"}, "shape.name = 'cirle': did you mean 'circle'? Allowed: circle, point, square"),
            ({"name": 3}, "shape.name = 3: Allowed: "),
            ({"name": ["circle"]}, "shape.name = ['circle']: "),
            ({"name": "circle"}, "shape.radius is missing"),
            ({"name": "circle", "radios": 1.0}, "unknown key shape.radios: did you mean 'radius'? Allowed: filled, "),
            ({"name": "point", "radius": 1.0}, "unknown key shape.radius: point has no parameters"),
            ({"name": "point", "x" * 500: 1.0}, f"unknown key shape.{78 * 'x'}: point has"),
            ({"name": "circle", "radius": "1"}, "shape.radius = '1': must be a valid number"),
            ({"name": "circle", "radius": True}, "shape.radius = True: must be a valid number"),
            ({"name": "circle", "radius": 1.0, "filled": 1}, "shape.filled = 1: must be a valid boolean"),
            ({"name": "square", "side": 3.0}, "shape.side = 3.0: must be a valid integer"),
            ({"name": "square", "side": 10}, "shape: side must be at most 9, got 10"),
        ],
    )
    def test_an_error_is_one_line_that_begins_with_the_key(self, table: Any, message: str) -> None:
        assert error_line(make_by_name, "shape", table, FACTORIES).startswith(message)


class TestType:
    @pytest.mark.parametrize(
        ("value", "hint", "checked"),
        [
            (3, int, 3),
            (3, float, 3.0),
            ([1, 50], tuple[int, int], (1, 50)),
            ([0.5, 1], tuple[float, float], (0.5, 1.0)),
            ([1, 2, 3], tuple[int, ...], (1, 2, 3)),
            ([], tuple[int, ...], ()),
            ([1, 50], tuple[int, int] | None, (1, 50)),
            ([1, 50], list[int], [1, 50]),
            ([1, 50], list[int] | tuple[int, int], [1, 50]),
            ([1, "a"], Any, [1, "a"]),
        ],
    )
    def test_a_value_is_converted_to_its_type(self, value: Any, hint: Any, checked: Any) -> None:
        made = check_type("key", value, hint)
        assert made == checked
        assert type(made) is type(checked)

    @pytest.mark.parametrize(
        ("value", "hint", "message"),
        [
            (2.0, int, "key = 2.0: must be a valid integer"),
            ("3", int, "key = '3': must be a valid integer"),
            (10**400, float, "key = 1000"),
            ([1], tuple[int, int], "key = [1]: must be a list of 2"),
            ([1, 2, 3], tuple[int, int], "key = [1, 2, 3]: must be a list of 2"),
            ([1, 2.5], tuple[int, int], "key = [1, 2.5]: must be a valid integer"),
            (1, tuple[int, int], "key = 1: must be a list"),
            ("ab", tuple[int, int] | None, "key = 'ab': must be a list"),
        ],
    )
    def test_another_type_is_one_line(self, value: Any, hint: Any, message: str) -> None:
        line = error_line(check_type, "key", value, hint)
        assert line.startswith(message)
        assert len(line) < 200
