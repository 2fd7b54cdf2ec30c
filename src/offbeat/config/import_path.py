"""Import paths of user code: ``package.module:name`` or ``path/to/file.py:name``."""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.user_code_errors import error_line, failure

_MOST_NAMES = 30  # that an error message lists

# By module name, the folder of each module that was imported from the folder of a user's file or the current one.
_neighbours: dict[str, Path] = {}


def is_import_path(text: str) -> bool:
    """Return whether a text is an import path, not a built-in name."""
    return ":" in text


def canonical(text: str, folder: Path) -> str:
    """Return an import path whose file, relative to ``folder``, is absolute.

    The file need not exist. ``package.module:name`` stays as it is; the name may be dotted.
    """
    place, name = _split(text)
    if not place.endswith(".py"):
        return text
    try:
        path = (folder / place).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise OffbeatError(f"{text!r}: {error_line(error)}") from None
    check_utf8(path)
    return f"{path}:{name}"


def check_utf8(path: Path) -> None:
    """Refuse a path that a TOML file cannot hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        name = str(path).encode(errors="backslashreplace").decode()  # which pydantic takes
        raise OffbeatError(f"the name of the folder or file {name} is not UTF-8: rename it") from None


def load_object(text: str) -> Any:
    """Import an object.

    A file is loaded once in a process, as a module in ``sys.modules``, so that its objects can be pickled within the
    process. It can import modules from its own folder. A module may also be in the current folder. ``sys.path`` does
    not change.
    """
    place, name = _split(text)
    importlib.invalidate_caches()
    module = _load_file(text, Path(place)) if place.endswith(".py") else _load_module(text, place)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise OffbeatError(f"{text!r}: there is no {part!r}{_hint(part, found)}") from None
    return found


def load_callable(text: str) -> Callable[..., Any]:
    """Import a function or a class."""
    found = load_object(text)
    if not callable(found):
        raise OffbeatError(f"{text!r}: must be a function or a class, but is a {type(found).__name__}")
    return found


def call(text: str, arguments: Mapping[str, Any], what: str) -> Any:
    """Import and call a function or class; errors begin with its role ``what``."""
    function = load_callable(text)
    _check_arguments(function, arguments, f"{what} {text!r}")
    try:
        return function(**arguments)
    except OffbeatError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(f"{what} {text!r} failed", error, or_library=True) from error


def neighbour_files(path: Path) -> list[Path]:
    """Return the files that were imported from the same folder as a user's file.

    The folder of ``package/module.py`` that was imported as ``package.module`` is that of the package.
    """
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in _neighbours}
    folders = {path.parent, *(_neighbours[name] for name, file in files.items() if file == str(path))}
    return sorted({Path(file) for name, file in files.items() if file is not None and _neighbours[name] in folders})


def _split(text: str) -> tuple[str, str]:
    # The last colon, because a file's path on Windows has a colon, too.
    place, colon, name = text.rpartition(":")
    if not colon:
        raise OffbeatError(f"{text!r}: write it as package.module:name or path/to/file.py:name")
    if not _is_dotted(name):
        raise OffbeatError(f"{text!r}: after the colon must come a name in the module, for instance Net")
    if not place.endswith(".py") and not _is_dotted(place):
        raise OffbeatError(f"{text!r}: before the colon must come a module, or a file whose name ends in .py")
    return place, name


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _load_file(text: str, path: Path) -> ModuleType:
    try:
        path = path.resolve()
        found = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        raise OffbeatError(f"{text!r}: {error_line(error)}") from None
    if not found:
        raise OffbeatError(f"{text!r}: no such file: {path}")
    stem = re.sub(r"\W", "_", path.stem)
    name = f"offbeat_file_{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _neighbours_of(path.parent):
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, (Exception, SystemExit)):
                raise _failed_import(text, error) from error
            raise
    return sys.modules[name]


def _load_module(text: str, name: str) -> ModuleType:
    with _neighbours_of(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # The module itself was not found, or a module that it imports.
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise OffbeatError(f"{text!r}: no such module: {error.name}") from None
            raise _failed_import(text, error) from error
        except (Exception, SystemExit) as error:
            raise _failed_import(text, error) from error


@contextmanager
def _importable(folder: Path) -> Generator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        # Only this entry, because the user's code may have added entries of its own.
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


@contextmanager
def _neighbours_of(folder: Path) -> Generator[None]:
    """Make a folder's modules importable, instead of another folder's."""
    for name, home in list(_neighbours.items()):
        top = name.partition(".")[0]
        if home != folder and ((folder / f"{top}.py").exists() or (folder / top).is_dir()):
            sys.modules.pop(name, None)
            del _neighbours[name]
    before = set(sys.modules)
    try:
        with _importable(folder):
            yield
    finally:
        for name in set(sys.modules) - before:
            file, top = getattr(sys.modules[name], "__file__", None), folder / name.partition(".")[0]
            # Not every module below the folder, which may hold an environment with its packages.
            if file is not None and (Path(file) == top.with_suffix(".py") or Path(file).is_relative_to(top)):
                _neighbours[name] = folder


def _check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], prefix: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C may have no signature
        return
    parameters = signature.parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        allowed = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for argument in arguments:
            if argument not in allowed:
                hint = did_you_mean(argument, allowed) if allowed else "it has no arguments"
                raise OffbeatError(f"{prefix} does not accept the argument {argument!r}: {hint}")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise OffbeatError(f"{prefix}: {error}") from None


def _failed_import(text: str, error: BaseException) -> OffbeatError:
    return failure(f"{text!r} could not be imported", error, or_library=True)


def _hint(word: str, container: Any) -> str:
    """Return suggestions from the names in a container, as the end of a sentence."""
    names = [name for name in dir(container) if not name.startswith("_")]
    if isinstance(container, ModuleType):
        # Modules that the module has imported are unlikely to be meant.
        names = [name for name in names if not isinstance(vars(container).get(name), ModuleType)]
    if len(names) <= _MOST_NAMES:
        return f": {did_you_mean(word, names)}" if names else ""
    near = difflib.get_close_matches(word, names, n=1)
    return f": did you mean {near[0]!r}?" if near else ""
