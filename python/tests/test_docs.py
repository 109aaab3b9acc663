"""The examples of docs/python.md and of docstrings."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bandmaster as bm

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_runs_as_one_program(tmp_path: Path) -> None:
    text = (ROOT / "docs/python.md").read_text()
    blocks = [block.removeprefix("python\n") for block in text.split("```")[1::2] if block.startswith("python\n")]
    assert len(blocks) >= 8
    program = "\n".join(blocks)
    # Worker processes import the file again: they run none of it.
    guarded = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in program.splitlines())
    (tmp_path / "page.py").write_text(guarded)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    ended = subprocess.run(
        [sys.executable, "-W", "error", "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "network.bottleneck.rate" in ended.stdout
    assert (tmp_path / "results/python/report.html").exists()


def test_docstring_examples_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    attempted = 0
    for module in pkgutil.iter_modules(bm.__path__):
        content = importlib.import_module(f"bandmaster.{module.name}")
        failed, tried = doctest.testmod(content)
        assert not failed
        attempted += tried
    assert attempted >= 8


PACKAGE = Path(bm.__path__[0])

UNIT = re.compile(r"\b(bit/s|in s|bytes|segments?|packets|number|position|the unit)\b", re.IGNORECASE)
"""Says what a number is, or that it counts."""


class Name:
    """A public name: a class, a function, or a member of a class."""

    def __init__(self, name: str, node: ast.AST, doc: str | None) -> None:
        self.name, self.node, self.doc = name, node, inspect.cleandoc(doc or "")

    @property
    def is_property(self) -> bool:
        return isinstance(self.node, ast.FunctionDef) and any(
            isinstance(each, ast.Name) and each.id == "property" for each in self.node.decorator_list
        )


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in ("__init__", "__version__", "__arrow_c_stream__")


def attributes(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST, str | None]]:
    """Names that statements bind, and the texts behind them."""
    for statement, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            for target in targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    yield ast.unparse(part), statement, text if isinstance(text, str) else None


def members(cls: ast.ClassDef) -> Iterator[Name]:
    own = {name: (node, doc) for name, node, doc in attributes(cls.body)}
    for function in cls.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        if function.name == "__init__":
            for name, node, doc in attributes(function.body):
                if name.startswith("self.") and name[5:] not in own:
                    own[name[5:]] = node, doc
        if is_public(function.name):
            yield Name(f"{cls.name}.{function.name}", function, ast.get_docstring(function))
    for name, (node, doc) in own.items():
        if is_public(name):
            yield Name(f"{cls.name}.{name}", node, doc)


def parsed() -> dict[str, ast.Module]:
    files = [*PACKAGE.glob("*.py"), *PACKAGE.glob("*.pyi")]
    return {file.name: ast.parse(file.read_text(encoding="utf-8")) for file in files}


def public_names() -> dict[str, Name]:
    """Every name of `__all__`, and public members of classes, from the sources."""
    found: dict[str, Name] = {}
    for tree in parsed().values():
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in bm.__all__ and node.name not in found:
                found[node.name] = Name(node.name, node, ast.get_docstring(node))
                if isinstance(node, ast.ClassDef):
                    found.update((member.name, member) for member in members(node))
        for name, statement, doc in attributes(tree.body):
            name = {"VERSION": "__version__"}.get(name, name)
            if name in bm.__all__:
                found[name] = Name(name, statement, doc)
    return found


NAMES = public_names()


def test_every_public_name_is_documented() -> None:
    assert set(bm.__all__) <= set(NAMES), set(bm.__all__) - set(NAMES)
    assert len(NAMES) > 180
    classes = [getattr(bm, name) for name in bm.__all__ if inspect.isclass(getattr(bm, name))]
    # Exceptions are made by the package only.
    own = [f"{error.__name__}.__init__" for error in classes if issubclass(error, BaseException)]
    bare = [name for name, each in NAMES.items() if not each.doc and name not in own]
    assert bare == []


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    spec = function.args
    each = [*spec.posonlyargs, *spec.args, *([spec.vararg] if spec.vararg else []), *spec.kwonlyargs]
    return [arg for arg in [*each, *([spec.kwarg] if spec.kwarg else [])] if arg.arg not in ("self", "cls")]


def section(doc: str, head: str) -> dict[str, str]:
    """The entries of a section of a docstring."""
    found = re.search(rf"^{head}:\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", found[1], re.MULTILINE) if found else []
    return {name: " ".join(text.split()) for name, text in entries}


def is_number(annotation: ast.expr | None) -> bool:
    return annotation is not None and re.search(r"\b(int|float)\b", ast.unparse(annotation)) is not None


def test_parameters_and_units_are_said() -> None:
    lacking = []
    for name, each in NAMES.items():
        if isinstance(each.node, ast.AnnAssign) and is_number(each.node.annotation) and not UNIT.search(each.doc):
            lacking.append(f"{name}: no unit")
        if not isinstance(each.node, ast.FunctionDef) or not each.doc:
            continue
        said = section(each.doc, "Args")
        for arg in arguments(each.node):
            if arg.arg not in said:
                lacking.append(f"{name}: says nothing of {arg.arg}")
            elif is_number(arg.annotation) and not UNIT.search(said[arg.arg]):
                lacking.append(f"{name}({arg.arg}): no unit")
        lacking.extend(f"{name}: has no parameter {arg}" for arg in set(said) - {a.arg for a in arguments(each.node)})
        if is_number(each.node.returns) and not UNIT.search(each.doc):
            lacking.append(f"{name}: no unit")
    assert lacking == []


def test_shapes_are_said() -> None:
    """Of tables what a row is, of lists of lists what is inside."""
    lacking = []
    for name, each in NAMES.items():
        gives = each.node.returns if isinstance(each.node, ast.FunctionDef) else getattr(each.node, "annotation", None)
        text = ast.unparse(gives) if gives is not None else ""
        if re.search(r"\b(Table|DataFrame)$", text) and "row" not in each.doc:
            lacking.append(name)
        if re.search(r"(tuple|list)\[(tuple|list)", text) and not re.search(r":|\beach\b", each.doc):
            lacking.append(name)
    assert lacking == [] and "trials" in {name.split(".")[-1] for name in NAMES}


def raises_itself(node: ast.AST) -> set[str]:
    raises = [each.exc for each in ast.walk(node) if isinstance(each, ast.Raise)]
    return {ast.unparse(error.func) for error in raises if isinstance(error, ast.Call)} - {"NotImplementedError"}


def raised() -> dict[str, set[str]]:
    """By function of the package: the errors that it raises directly or through functions of the package."""
    own: dict[str, set[str]] = {}
    calls: dict[str, set[str]] = {}
    for tree in parsed().values():
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            own.setdefault(function.name, set()).update(raises_itself(function))
            called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            names = {f.id if isinstance(f, ast.Name) else getattr(f, "attr", "") for f in called}
            calls.setdefault(function.name, set()).update(name for name in names if name.startswith("_"))
    for _ in own:
        for name, callees in calls.items():
            own[name] |= set().union(*(own.get(callee, set()) for callee in callees if callee != "__init__"))
    return own


def test_errors_are_said() -> None:
    all_raised = raised()
    assert "UsageError" in all_raised["set"] and "TrialError" in all_raised["run"]
    lacking: list[str] = []
    for name, each in NAMES.items():
        if not isinstance(each.node, ast.FunctionDef) or not each.doc:
            continue
        # A property or a constructor counts with what it raises itself: constructors share one name.
        is_told_apart = not each.is_property and each.node.name != "__init__"
        by_all = all_raised[each.node.name] if is_told_apart else raises_itself(each.node)
        lacking.extend(f"{name}: {error}" for error in by_all - set(section(each.doc, "Raises")))
    assert lacking == []
    # What the part in Rust raises, by hand: each method of `Out` refuses something.
    assert all(section(each.doc, "Raises") for name, each in NAMES.items() if name.startswith("Out."))


def test_the_part_in_rust_says_the_same_as_its_stub() -> None:
    compared = 0
    for tree in [parsed()["_bandmaster.pyi"]]:
        for cls in [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in bm.__all__]:
            real = getattr(bm, cls.name)
            if not real.__module__.endswith("_bandmaster"):
                continue
            assert inspect.getdoc(real) == ast.get_docstring(cls), cls.name
            stated = {member.name.split(".")[1]: member for member in members(cls)}
            assert set(stated) == {name for name in vars(real) if not name.startswith("_")}, cls.name
            for name, member in stated.items():
                assert inspect.getdoc(getattr(real, name)) == member.doc, member.name
                compared += 1
    assert compared > 50
