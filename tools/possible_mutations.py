"""Possible single changes of the code: listed, chosen, and located after moves."""

import ast
import copy
import difflib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

FLIPPED = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
FLIPPED |= {new: old for old, new in FLIPPED.items()}
NOT_CODE = {"annotation", "returns", "decorator_list", "msg"}
Edit = tuple[int, int, bytes]  # the bytes of a source from, to, and what replaces them


class Mutation(NamedTuple):
    """A change of an expression or statement; equal ones differ in ``occurrence``."""

    module: str
    function: str
    operator: str
    before: str
    after: str
    occurrence: int
    statement: str

    def nearness(self, other: "Mutation") -> tuple[bool, bool, float]:
        """Return how near another mutation is; greater is nearer.

        The values are whether the functions are the same, whether at least the last names and the modules' names are,
        and the similarity of the paths.
        """
        names, other_names = ((one.module.split("/")[-1], one.function.split(".")[-1]) for one in (self, other))
        alike = difflib.SequenceMatcher(None, self.module, other.module).ratio()
        return self.function == other.function, names == other_names, alike


def all_mutations(root: Path) -> dict[Mutation, Edit]:
    """Return all possible mutations of the packages."""
    found: dict[Mutation, Edit] = {}
    for path in sorted(
        [
            *(root / "src").rglob("*.py"),
            *(root / "packages/client").rglob("*.py"),
            *(root / "studies/offbeat_studies").rglob("*.py"),
        ]
    ):
        module = path.relative_to(root).as_posix()
        found.update(mutations_of(module, path.read_bytes()))
    return found


def mutations_of(module: str, source: bytes) -> Iterator[tuple[Mutation, Edit]]:
    """Yield the possible mutations of a module's functions."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[Any] = Counter()

    def walk(node: ast.AST, function: str, statement: str) -> Iterator[tuple[Mutation, Edit]]:
        for operator, old, after in changes(node):
            key = (function, operator, ast.unparse(old), after)
            start, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            text = f"({after})" if isinstance(old, ast.expr) else after
            yield Mutation(module, *key, seen[key, statement], statement), (start, end, text.encode())
            seen[key, statement] += 1
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and field not in NOT_CODE and not is_left_out(child):
                    is_scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                    inner = f"{function}.{child.name}" if is_scope else function
                    yield from walk(child, inner, first_line(child) if isinstance(child, ast.stmt) else statement)

    def functions(node: ast.AST, prefix: str) -> Iterator[tuple[Mutation, Edit]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not is_left_out(child):
                yield from walk(child, prefix + child.name, first_line(child))
            elif isinstance(child, ast.stmt) and not is_left_out(child):
                yield from functions(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    yield from functions(ast.parse(source), "")


def is_left_out(node: ast.AST) -> bool:
    """Return whether nothing in a node is mutated: texts, errors, types, debugging."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    return isinstance(node, ast.Raise | ast.JoinedStr) or getattr(node, "name", "") == "__repr__"


def first_line(statement: ast.stmt) -> str:
    """Return the normalised source of a statement without decorators and blocks."""
    shallow = copy.copy(statement)
    for block in {"body", "orelse", "finalbody", "handlers", "cases", "decorator_list"} & set(statement._fields):
        setattr(shallow, block, [])
    return ast.unparse(shallow)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the possible changes of a node: operator, replaced node, its new text."""
    match node:
        case ast.Compare(left, operators, others):
            for at, operator in enumerate(operators):
                flipped = [*operators[:at], FLIPPED[type(operator)](), *operators[at + 1 :]]
                yield "comparison", node, ast.unparse(ast.Compare(left, flipped, others))
        case ast.BinOp(left, ast.Add(), right) if not (is_text(left) or is_text(right)):
            yield "plus", node, ast.unparse(ast.BinOp(left, ast.Sub(), right))
        case ast.BinOp(left, ast.Mult(), right) if not (is_text(left) or is_text(right)):
            yield "times", node, ast.unparse(ast.BinOp(left, ast.Div(), right))
        case ast.AugAssign(target, ast.Add(), value) if not is_text(value):
            yield "plus", node, ast.unparse(ast.AugAssign(target, ast.Sub(), value))
        case ast.AugAssign(target, ast.Mult(), value):
            yield "times", node, ast.unparse(ast.AugAssign(target, ast.Div(), value))
        case ast.BoolOp(ast.And(), values):
            yield "and", node, ast.unparse(ast.BoolOp(ast.Or(), values))
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", node, ast.unparse(operand)
        case ast.Constant(bool(value)):
            yield "boolean", node, str(not value)
        case ast.Constant(int(value)):
            yield "integer", node, str(value + 1)
        case ast.Return(ast.expr() as value) if ast.unparse(value) not in ("None", "False"):
            yield "return", node, "return None"
        case ast.Expr(ast.Call() | ast.Await(ast.Call())):
            yield "call", node, "pass"
        case ast.If(test) | ast.IfExp(test):
            yield "if", test, "True"
            yield "if", test, "False"
        case _:
            pass


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is a text constant."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def choose(possible: Iterable[Mutation], count: int, seed: int) -> list[Mutation]:
    """Choose mutations at random, few in the same function, then few of an operator."""
    free = list(possible)
    random.Random(seed).shuffle(free)
    in_all = Counter(mutation.operator for mutation in free)
    used: Counter[Any] = Counter()  # of functions and of operators
    chosen: list[Mutation] = []
    while free and len(chosen) < count:
        chosen.append(min(free, key=lambda one: (used[one[:2]], used[one.operator], in_all[one.operator])))
        free.remove(chosen[-1])
        used.update([chosen[-1][:2], chosen[-1].operator])
    return chosen


def locate(wanted: list[Mutation], possible: Iterable[Mutation], seed: int) -> list[tuple[Mutation, str]]:
    """Locate mutations in the present code; return each with how it was found.

    It is the same, was moved, or had to be replaced. It is found if function, statement and change are the same, or if
    only the function differs. A replacement has the same operator, in the function of that name if there is one. Of
    several modules, the one with the most similar path is taken.
    """
    free = dict.fromkeys(possible)
    found: dict[int, tuple[Mutation, str]] = {}

    def take_nearest(number: int, among: list[Mutation], how: str) -> None:
        nearness = {other: wanted[number].nearness(other) for other in among}
        if nearness:
            best = max(nearness.values())
            other = random.Random(f"{seed} {number}").choice([other for other in among if nearness[other] == best])
            found[number] = other, "same" if how == "moved" and other.module == wanted[number].module else how
            del free[other]

    for number, mutation in enumerate(wanted):
        same = [other for other in free if other[2:] == mutation[2:]]
        in_function = [other for other in same if any(mutation.nearness(other)[:2])]
        take_nearest(number, in_function or (same if len(same) == 1 else []), "moved")
    for number, mutation in enumerate(wanted):
        if number not in found:
            take_nearest(number, [other for other in free if other.operator == mutation.operator], "replaced")
    return [found[number] for number in range(len(wanted))]
