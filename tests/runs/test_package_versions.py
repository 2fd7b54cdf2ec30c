import hashlib
import platform

import numpy as np
import pytest
import torch

from offbeat.config.import_path import load_object
from offbeat.data.dataset import Dataset
from offbeat.runs.package_versions import versions


def data(name, value=0.0):
    return Dataset(name, *(np.full((2, 1), value, np.float32) for _ in range(4)), classes=None)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("one = 1")
    return path


def sha256(path):
    return hashlib.sha256(hashlib.sha256(path.read_bytes()).digest()).hexdigest()[:16]


def test_the_packages_and_threads_have_their_versions():
    found = versions({"trainer": "vmap", "device": "cpu"}, data("digits"))
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert torch.__version__.startswith(found["torch"].partition("+")[0])
    assert (found["threads"], found["trainer"]) == (str(torch.get_num_threads()), "vmap")
    assert {"offbeat", "pyarrow", "scikit-learn", "safetensors"} < found.keys()


def test_the_users_files_are_listed_with_their_hash(own):
    config = {
        "trainer": "vmap",
        "device": "cpu",
        "data": {"name": f"{own}:make", "arguments": {"many": [str(own.parent), 3, "relative.py:x"]}},
    }
    found = versions(config, data("digits"))
    assert found[str(own)] == sha256(own)
    assert found[str(own.parent)] == found[str(own)]  # it is all that is in the folder


def test_a_slash_is_no_folder():
    config = {"trainer": "loop", "device": "cpu", "data": {"arguments": {"separator": "/"}}}
    assert "/" not in versions(config, data("digits"))


def test_another_file_in_a_folder_shows(own):
    before = versions({"trainer": "loop", "device": "cpu", "path": str(own.parent)}, data("digits"))
    (own.parent / "two").write_text("two")
    assert versions({"trainer": "loop", "device": "cpu", "path": str(own.parent)}, data("digits")) != before


def test_imports_from_the_same_folder_are_listed(own):
    (own.parent / "helper_of_own.py").write_text("two = 2")
    own.write_text("import helper_of_own\none = 1")
    load_object(f"{own}:one")
    (own.parent / "other.py").write_text("one = 1")
    load_object(f"{own.parent / 'other.py'}:one")  # of another run
    found = versions({"trainer": "loop", "device": "cpu", "model": {"name": f"{own}:one"}}, data("digits"))
    assert str(own.parent / "other.py") not in found
    assert found[str(own.parent / "helper_of_own.py")] == sha256(own.parent / "helper_of_own.py")


def test_imports_of_a_package_in_the_current_folder_are_listed(tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    files = {name: tmp_path / "own_package" / f"{name}.py" for name in ("__init__", "models", "layers", "unused")}
    for path in files.values():
        path.write_text("width = 1")
    files["models"].write_text("from own_package.layers import width")
    monkeypatch.chdir(tmp_path)
    load_object("own_package.models:width")
    config = {"trainer": "loop", "device": "cpu", "model": {"name": "own_package.models:width"}}
    found = {name for name in versions(config, data("digits")) if name.startswith(str(tmp_path))}
    assert found == {str(files[name]) for name in ("__init__", "models", "layers")}


def test_users_data_are_identified_by_their_content():
    assert "data" not in versions({"trainer": "loop", "device": "cpu"}, data("digits"))
    one, again, other = (
        versions({"trainer": "loop", "device": "cpu"}, data("own.py:make", value))["data"] for value in (0.0, 0.0, 1.0)
    )
    assert one == again != other


def test_the_card_and_its_software_have_their_versions(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card of {device}")
    found = versions({"trainer": "loop", "device": "cuda:1"}, data("digits"))
    assert found["GPU"] == "card of cuda:1"
    assert {"CUDA", "cuDNN"} <= found.keys()
    assert not {"GPU", "CUDA", "cuDNN"} & versions({"trainer": "loop", "device": "cpu"}, data("digits")).keys()
