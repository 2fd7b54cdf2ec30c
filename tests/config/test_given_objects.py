from typing import Annotated

import pytest
import torch
from offbeat_core.tables.section import Section
from pydantic import ValidationError

from offbeat.config.given_objects import OR_GIVEN, Given


class Small(Section):
    """A section whose keys may be given objects."""

    name: Annotated[str | Given, OR_GIVEN]
    others: tuple[Annotated[str | Given | None, OR_GIVEN], ...] = ()


@pytest.mark.parametrize(
    ("given", "name"), [(torch.nn.Linear, "Linear"), (torch.nn.ReLU(), "ReLU"), (lambda: 3, "function")]
)
def test_an_object_has_the_name_of_an_import_path(given, name):
    assert Given.of(given).name == f"python:{name}"
    assert repr(Given.of(given)) == repr(given)


def test_an_object_stands_for_a_name_and_is_written_by_its_own():
    section = Small.model_validate({"name": Given(len, "length"), "others": (Given(abs, "abs"), "text", None)})
    assert isinstance(section.name, Given)
    assert section.name.value is len
    assert section.model_dump() == {"name": "length", "others": ("abs", "text", None)}


def test_files_are_checked_as_before():
    for wrong in (3, {"value": 3, "name": "length"}, None):
        with pytest.raises(ValidationError) as caught:
            Small.model_validate({"name": wrong})
        assert [error["loc"] for error in caught.value.errors()] == [("name",)]
    assert Small.model_json_schema()["properties"]["name"] == {"title": "Name", "type": "string"}
