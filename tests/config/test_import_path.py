import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.import_path import call, canonical, is_import_path, load_callable, load_object
from tests.error_line import error_line

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a Python file into a folder of the test's own."""

    def make(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source), encoding="utf-8")
        return path

    return make


@pytest.fixture(autouse=True)
def imports_are_left_alone() -> Iterator[None]:
    """Fail a test after which Python looks for modules elsewhere."""
    before = sys.path[:]
    yield
    assert sys.path == before


def problem(text: str) -> str:
    return error_line(load_object, text)


class TestCanonical:
    def test_a_file_is_relative_to_the_folder_and_becomes_absolute(self, tmp_path: Path) -> None:
        assert canonical("net.py:Net", tmp_path) == f"{tmp_path}/net.py:Net"
        assert canonical("../models/net.py:Net.small", tmp_path / "a") == f"{tmp_path}/models/net.py:Net.small"
        assert canonical(f"{tmp_path}/net.py:Net", Path("/elsewhere")) == f"{tmp_path}/net.py:Net"

    def test_a_relative_folder_is_one_in_the_current_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        once = canonical("net.py:Net", Path("a"))
        assert once == canonical(once, Path("/another")) == f"{tmp_path}/a/net.py:Net"

    def test_a_module_stays_as_it_is(self, tmp_path: Path) -> None:
        assert canonical("a.b.c:Net.small", tmp_path) == "a.b.c:Net.small"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("net", "write it as package.module:name or path/to/file.py:name"),
            ("net.py", "write it as"),
            ("net.py:", "after the colon must come a name"),
            ("net.py:Net()", "after the colon"),
            ("net.py:Net.", "after the colon"),
            (":Net", "before the colon must come a module, or a file whose name ends in .py"),
            ("models/net:Net", "before the colon"),
            (".net:Net", "before the colon"),
            ("a\nb:Net", "before the colon"),
            ("a\0b.py:Net", "null"),
        ],
    )
    def test_a_wrong_import_path_is_one_line(self, text: str, message: str, tmp_path: Path) -> None:
        for line in (error_line(canonical, text, tmp_path), problem(text)):
            assert line.startswith(repr(text))
            assert message in line


@pytest.mark.parametrize(("text", "answer"), [("a.b:c", True), ("f.py:c", True), ("mlp", False), ("", False)])
def test_a_colon_makes_an_import_path(text: str, answer: bool) -> None:
    assert is_import_path(text) is answer


class TestFile:
    def test_returns_the_named_object(self, write: Write) -> None:
        path = write("net.py", "width = 7\nclass Net:\n    size = width\n    class Small:\n        size = 3")
        assert load_object(f"{path}:width") == 7
        assert load_object(f"{path}:Net").size == 7
        assert load_object(f"{path}:Net.Small").size == 3

    def test_is_loaded_once(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write("net.py", "things = []")
        things = load_object(f"{path}:things")
        monkeypatch.chdir(path.parent)
        assert load_object(f"../{path.parent.name}/net.py:things") is things

    def test_files_of_one_name_are_different_modules(self, write: Write) -> None:
        one, other = write("a/net.py", "width = 1"), write("b/net.py", "width = 2")
        assert [load_object(f"{path}:width") for path in (one, other, one)] == [1, 2, 1]

    def test_its_objects_can_be_pickled_whatever_its_name(self, write: Write) -> None:
        kind = load_object(f"{write('2 nets-of.mine.py', 'class Net: pass')}:Net")
        assert type(pickle.loads(pickle.dumps(kind()))) is kind

    def test_neighbours_come_from_the_files_own_folder(self, write: Write) -> None:
        """Two folders each have a helper.py: neither file gets the other's."""
        paths = []
        for number in (1, 2):
            write(f"{number}/helper.py", f"width = {number}")
            write(f"{number}/package/inner.py", f"height = {10 * number}")
            source = "import helper, package.inner\nboth = helper.width, package.inner.height"
            paths.append(write(f"{number}/net.py", source))
        assert [load_object(f"{path}:both") for path in paths] == [(1, 10), (2, 20)]

    def test_two_files_share_a_neighbour(self, write: Write) -> None:
        write("common.py", "things = []")
        write("other/unrelated.py", "")
        one, two = (write(name, "from common import things") for name in ("one.py", "two.py"))
        between = write("other/net.py", "import unrelated")
        first = load_object(f"{one}:things")
        load_object(f"{between}:unrelated")
        assert load_object(f"{two}:things") is first

    def test_its_entries_on_the_path_stay(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", sys.path[:])
        before = sys.path[:]
        path = write("net.py", "import sys\nsys.path.append('/mine')")
        load_object(f"{path}:sys")
        assert sys.path == [*before, "/mine"]

    def test_no_such_file(self, tmp_path: Path) -> None:
        assert problem(f"{tmp_path}/net.py:Net") == f"'{tmp_path}/net.py:Net': no such file: {tmp_path}/net.py"
        (tmp_path / "net.py").mkdir()
        assert "no such file" in problem(f"{tmp_path}/net.py:Net")

    def test_an_exception_is_named_with_its_line(self, write: Write) -> None:
        path = write("net.py", "x = 1\n\nraise ValueError('no\\nway')")
        assert problem(f"{path}:x") == f"'{path}:x' could not be imported: ValueError: no ({path}:3)"

    def test_an_exception_in_a_neighbour_names_its_file(self, write: Write) -> None:
        helper = write("helper_bad.py", "\n\n\n\n{}['key']")
        path = write("net.py", "import helper_bad")
        assert problem(f"{path}:x").endswith(f"could not be imported: KeyError: 'key' ({helper}:5)")

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("import json\njson.loads('{')", "JSONDecodeError: "),  # in a library, where it was called
            ("x = 1\ny = = 2", "SyntaxError: invalid syntax"),
            ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ],
    )
    def test_any_failure_is_named_with_its_line(self, source: str, message: str, write: Write) -> None:
        path = write("net.py", source)
        line = problem(f"{path}:x")
        assert f"could not be imported: {message}" in line
        assert line.endswith(f"({path}:2)")

    def test_a_file_that_is_not_text_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "net.py").write_bytes(b"\xff\xfe\0x")
        assert "could not be imported" in problem(f"{tmp_path}/net.py:x")

    def test_a_file_that_failed_is_tried_again(self, write: Write) -> None:
        path = write("net.py", "raise ValueError")
        assert "ValueError" in problem(f"{path}:width")
        write("net.py", "width = 1")
        assert load_object(f"{path}:width") == 1

    def test_no_such_name(self, write: Write) -> None:
        path = write("net.py", "import os\nclass Net:\n    def small(self): pass\ndef Nets(): pass\n_hidden = 1")
        assert problem(f"{path}:Met") == (f"'{path}:Met': there is no 'Met': did you mean 'Net'? Allowed: Net, Nets")
        assert "there is no 'smal': did you mean 'small'?" in problem(f"{path}:Net.smal")
        assert problem(f"{write('empty.py', '')}:Net").endswith("there is no 'Net'")


class TestModule:
    def test_an_installed_one(self) -> None:
        assert load_object("os.path:join") is os.path.join
        assert load_object("pathlib:Path.cwd")() == Path.cwd()

    def test_one_in_the_current_folder(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(write("my_package/nets.py", "width = 9").parents[1])
        assert load_object("my_package.nets:width") == 9

    @pytest.mark.parametrize(
        ("text", "module"), [("no_such:x", "no_such"), ("no_such.sub:x", "no_such"), ("json.no:x", "json.no")]
    )
    def test_no_such_module(self, text: str, module: str) -> None:
        assert problem(text) == f"{text!r}: no such module: {module}"

    def test_a_module_that_it_imports_is_missing(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write("my_lacking.py", "\n\nimport no_such")
        monkeypatch.chdir(path.parent)
        message = problem("my_lacking:x")
        assert message.startswith(
            "'my_lacking:x' could not be imported: ModuleNotFoundError: No module named 'no_such'"
        )
        assert message.endswith(f"({path}:3)")

    def test_names_of_a_large_module_are_not_all_listed(self) -> None:
        assert problem("os:getcwdd") == "'os:getcwdd': there is no 'getcwdd': did you mean 'getcwd'?"
        assert problem("os:xxxxxxxx") == "'os:xxxxxxxx': there is no 'xxxxxxxx'"


class TestCall:
    @pytest.fixture
    def path(self, write: Write) -> Path:
        return write(
            "net.py",
            """
            import json
            from offbeat_core.errors import OffbeatError
            def make(width, *, depth=1): return width, depth
            def open_to_all(width, **others): return width, others
            def by_position(width, /): return width
            def none(): return 0
            def broken(width):
                return inner(width)
            def inner(width):
                raise RuntimeError(f"too\\nwide: {width}")
            def in_library(): return json.loads("{")
            def own_type_error(width): return width + "a"
            def offbeat(): raise OffbeatError("mend this")
            def leave(): raise SystemExit(2)
            class Net:
                def __init__(self, width): self.width = width
                @classmethod
                def small(cls): return cls(1)
            size = 3
            """,
        )

    def complaint(self, text: str, **arguments: object) -> str:
        return error_line(call, text, arguments, "model").replace(f"model {text!r}", "IT")

    def test_calls_with_keyword_arguments(self, path: Path) -> None:
        assert call(f"{path}:make", {"depth": 2, "width": 3}, "model") == (3, 2)
        assert call(f"{path}:open_to_all", {"width": 3, "x": 4}, "model") == (3, {"x": 4})
        assert call(f"{path}:Net", {"width": 3}, "model").width == 3
        assert call(f"{path}:Net.small", {}, "model").width == 1
        assert call("builtins:dict", {"width": 3}, "model") == {"width": 3}

    def test_a_wrong_argument_is_named(self, path: Path) -> None:
        refused = "IT does not accept the argument"
        near = f"{refused} 'widht': did you mean 'width'? Allowed: depth, width"
        assert self.complaint(f"{path}:make", widht=3) == near
        assert self.complaint(f"{path}:Net", hight=3) == f"{refused} 'hight': Allowed: width"
        for name in ("none", "by_position"):
            assert self.complaint(f"{path}:{name}", width=3) == f"{refused} 'width': it has no arguments"

    def test_a_missing_argument_is_named(self, path: Path) -> None:
        assert self.complaint(f"{path}:make", depth=3) == "IT: missing a required argument: 'width'"
        assert self.complaint(f"{path}:by_position").startswith("IT: missing a required")

    def test_an_exception_is_named_with_its_line(self, path: Path) -> None:
        line = 1 + next(
            n for n, code in enumerate(path.read_text(encoding="utf-8").splitlines()) if "raise RuntimeError" in code
        )
        assert self.complaint(f"{path}:broken", width=3) == f"IT failed: RuntimeError: too ({path}:{line})"

    def test_other_failures(self, path: Path) -> None:
        assert self.complaint(f"{path}:in_library").endswith(f"({path}:12)")
        assert self.complaint(f"{path}:own_type_error", width=3).startswith("IT failed: TypeError: unsupported operand")
        assert self.complaint(f"{path}:offbeat") == "mend this"
        assert self.complaint(f"{path}:leave").startswith("IT failed: SystemExit: 2")
        assert self.complaint("math:sqrt", x=3).startswith("IT")

    def test_an_object_that_is_not_callable_is_refused(self, path: Path) -> None:
        assert load_callable(f"{path}:make")(1) == (1, 1)
        with pytest.raises(OffbeatError, match="must be a function or a class, but is a int"):
            load_callable(f"{path}:size")
