import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from offbeat.config.import_path import load_object
from offbeat.data.dataset import Dataset
from offbeat.errors import OffbeatError
from offbeat.runs.package_versions import check_versions, versions


def data(name: str, value: float = 0.0) -> Dataset:
    return Dataset(name, *(np.full((2, 1), value, np.float32) for _ in range(4)), classes=None)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text("one = 1")
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(hashlib.sha256(path.read_bytes()).digest()).hexdigest()[:16]


def test_the_users_own_files_are_named_with_their_content(own: Path):
    config = {
        "trainer": "vmap",
        "data": {"name": f"{own}:make", "arguments": {"many": [str(own.parent), 3, "relative.py:x"]}},
    }
    found = versions(config, data("digits"))
    assert found["trainer"] == "vmap"
    assert found[str(own)] == sha256(own)
    assert found[str(own.parent)] == found[str(own)]  # it is all that is in the folder


def test_another_file_in_a_folder_shows(own: Path):
    before = versions({"trainer": "loop", "path": str(own.parent)}, data("digits"))
    (own.parent / "two").write_text("two")
    assert versions({"trainer": "loop", "path": str(own.parent)}, data("digits")) != before


def test_what_a_file_imports_from_beside_it_is_named_too(own: Path):
    (own.parent / "helper_of_own.py").write_text("two = 2")
    own.write_text("import helper_of_own\none = 1")
    load_object(f"{own}:one")
    (own.parent / "other.py").write_text("one = 1")
    load_object(f"{own.parent / 'other.py'}:one")  # of another run
    found = versions({"trainer": "loop", "model": {"name": f"{own}:one"}}, data("digits"))
    assert str(own.parent / "other.py") not in found
    assert found[str(own.parent / "helper_of_own.py")] == sha256(own.parent / "helper_of_own.py")


def test_own_data_are_known_by_their_content():
    assert "data" not in versions({"trainer": "loop"}, data("digits"))
    one, again, other = (versions({"trainer": "loop"}, data("own.py:make", value))["data"] for value in (0.0, 0.0, 1.0))
    assert one == again != other


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("torch", r"was begun with torch 1, here is 2, .*: go on with torch 1, or remove .* and run again$"),
        ("data", r"^what data\.name returns has changed since .*: put it back, or remove .* and run again$"),
        ("/own.py", r"^/own\.py has changed since .*: put it back, or remove .* and run again$"),
    ],
)
def test_a_difference_is_one_line(what: str, line: str, tmp_path: Path):
    (tmp_path / "versions.json").write_text(json.dumps({what: "1"}))
    check_versions(tmp_path, {what: "1", "/new.py": "3"})
    with pytest.raises(OffbeatError, match=line):
        check_versions(tmp_path, {what: "2"})
