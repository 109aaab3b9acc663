"""The examples of docs/python.md and of docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
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


def test_every_public_name_is_documented() -> None:
    bare = []
    for name in bm.__all__:
        thing = getattr(bm, name)
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            continue
        if not (thing.__doc__ or "").strip():
            bare.append(name)
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            is_own = inspect.isfunction(value) or isinstance(value, (property, classmethod))
            if not member.startswith("_") and is_own and not (value.__doc__ or "").strip():
                bare.append(f"{name}.{member}")
    assert bare == []
