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


def found(dataset="digits", value=0.0, **config):
    return versions({"trainer": "loop", "device": "cpu", **config}, data(dataset, value))


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("one = 1")
    return path


def sha256(path):
    return hashlib.sha256(hashlib.sha256(path.read_bytes()).digest()).hexdigest()[:16]


def test_the_packages_and_threads_have_their_versions():
    listed = found(trainer="vmap")
    assert listed["python"] == platform.python_version()
    assert listed["numpy"] == np.__version__
    assert torch.__version__.startswith(listed["torch"].partition("+")[0])
    assert (listed["threads"], listed["trainer"]) == (str(torch.get_num_threads()), "vmap")
    assert {"offbeat", "pyarrow", "scikit-learn", "safetensors"} < listed.keys()


def test_the_users_files_are_listed_with_their_hash(own):
    arguments = {"many": [str(own.parent), 3, "relative.py:x"], "separator": "/"}
    listed = found(data={"name": f"{own}:make", "arguments": arguments})
    assert listed[str(own)] == sha256(own)
    assert listed[str(own.parent)] == listed[str(own)]  # it is all that is in the folder
    assert "/" not in listed
    (own.parent / "two").write_text("two")
    assert found(data={"name": f"{own}:make", "arguments": arguments})[str(own.parent)] != listed[str(own.parent)]


def test_imports_from_the_same_folder_are_listed(own):
    (own.parent / "helper_of_own.py").write_text("two = 2")
    own.write_text("import helper_of_own\none = 1")
    load_object(f"{own}:one")
    (own.parent / "other.py").write_text("one = 1")
    load_object(f"{own.parent / 'other.py'}:one")  # of another run
    listed = found(model={"name": f"{own}:one"})
    assert str(own.parent / "other.py") not in listed
    assert listed[str(own.parent / "helper_of_own.py")] == sha256(own.parent / "helper_of_own.py")


def test_imports_of_a_package_in_the_current_folder_are_listed(tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    files = {name: tmp_path / "own_package" / f"{name}.py" for name in ("__init__", "models", "layers", "unused")}
    for path in files.values():
        path.write_text("width = 1")
    files["models"].write_text("from own_package.layers import width")
    monkeypatch.chdir(tmp_path)
    load_object("own_package.models:width")
    listed = {name for name in found(model={"name": "own_package.models:width"}) if name.startswith(str(tmp_path))}
    assert listed == {str(files[name]) for name in ("__init__", "models", "layers")}


def test_users_data_are_identified_by_their_content():
    assert "data" not in found()
    one, again, other = (found("own.py:make", value)["data"] for value in (0.0, 0.0, 1.0))
    assert one == again != other


def test_the_card_and_its_software_have_their_versions(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card of {device}")
    listed = found(device="cuda:1")
    assert listed["GPU"] == "card of cuda:1"
    assert {"CUDA", "cuDNN"} <= listed.keys()
    assert not {"GPU", "CUDA", "cuDNN"} & found().keys()
