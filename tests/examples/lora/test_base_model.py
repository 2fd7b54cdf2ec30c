import sys
import tomllib

import pytest
from offbeat_core.errors import OffbeatError

from tests.examples.lora.conftest import EXAMPLE, function


def arguments(file):
    table = tomllib.loads((EXAMPLE / file).read_text("utf-8"))
    return [{key: table[section]["arguments"][key] for key in ("name", "sha256")} for section in ("data", "model")]


def test_the_files_name_the_weights_of_the_package(minilm):
    for names in (*arguments("lora.toml"), *arguments("server.toml")):
        assert function("base_model.py", "find_base")(**names) == minilm


def test_other_weights_are_refused_in_one_line(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    find_base = function("base_model.py", "find_base")
    # SHA-256 of "abc", from FIPS 180-2.
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert find_base(str(tmp_path), abc) == tmp_path
    with pytest.raises(OffbeatError, match=rf"^.*safetensors is not the base .* is {abc}, not 0+: replace it.*$"):
        find_base(str(tmp_path), "0" * 64)


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(OffbeatError, match=r"^cannot read .*model\.safetensors: No such file .*: save the model"):
        function("base_model.py", "find_base")(str(tmp_path), "0" * 64)


def test_weights_from_hugging_face(tmp_path, monkeypatch):
    """No network: the hub's function is replaced."""
    calls = []

    class Hub:
        @staticmethod
        def snapshot_download(name, allow_patterns):
            calls.append((name, "model.safetensors" in allow_patterns))
            if name == "nobody/nothing":
                raise OSError("404 Client Error.\nmore")
            (tmp_path / "model.safetensors").write_bytes(b"abc")
            return str(tmp_path)

    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub)
    find_base = function("base_model.py", "find_base")
    with pytest.raises(OffbeatError, match=r"is not the base model of this run"):
        find_base("somebody/model", "0" * 64)
    with pytest.raises(OffbeatError, match=r"^cannot fetch the base model 'nobody/nothing' \(404 Client Error\.\)"):
        find_base("nobody/nothing", "0" * 64)
    assert calls == [("somebody/model", True), ("nobody/nothing", True)]


def test_a_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(OffbeatError, match=r"^the package huggingface_hub is missing .*pip install 'offbeat\[lora\]'"):
        function("base_model.py", "find_base")("somebody/model", "0" * 64)
