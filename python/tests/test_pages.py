"""Runs every block of the tutorials and of the cookbook, as a reader would.

A page of `docs/tutorials` is one run in an empty folder; so is each second-level section of a page of `docs/cookbook`.
A block after a paragraph that ends with a file name in backticks and a colon is that file. A block of `sh` is run.
A block of `text` after it is what it prints: these lines in this order, where `...` stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None

DOCS = ROOT / "docs"
FROM = ("flent", "mininet", "ns3", "tc")
PAGES = ["start.md", *(f"from-{name}.md" for name in FROM), "choose.md", "peers.md", "gallery.md"]
BLOCK = re.compile(r"^([ ]*)```([\w-]*)\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([^`\s]+)`[^`\n]*:$")

Kind = Literal["file", "sh", "prints", "rust", "part", "console"]


@dataclass
class Part:
    kind: Kind
    text: str
    file: str = ""
    line: int = 0


def parts(page: str) -> Iterator[Part]:
    """What a page's blocks are, in their order."""
    end, last = 0, ""
    for block in BLOCK.finditer(page):
        between = page[end : block.start()]
        named = FILE.search(between.rstrip().rsplit("\n\n", 1)[-1].replace("\n", " "))
        file = named[1] if named else ""
        indent, language, text = block.groups()
        text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        line = page.count("\n", 0, block.start()) + 2
        kind: Kind
        if language in ("sh", "console"):
            kind = "sh" if language == "sh" else "console"
        elif language == "rust":
            kind = "rust"
        elif language == "text" and last == "sh" and not file:
            kind = "prints"
        elif file:
            kind = "file"
        elif language == "text" and last == "console":
            kind = "console"
        elif language == "toml":
            kind = "part"
        else:
            raise AssertionError(f"line {line}: a block of `{language}`: what is it?")
        yield Part(kind, text, file, line)
        end, last = block.end(), language


def missing(shown: str, printed: str) -> str | None:
    """The first line of what is shown that was not printed, in its order."""
    lines, skips = iter(printed.splitlines()), True
    for line in shown.splitlines():
        if line.strip() == "...":
            skips = True
            continue
        for printed_line in lines:
            if printed_line.rstrip() == line.rstrip():
                break
            if not skips:
                return f"{line!r}, but {printed_line!r}"
        else:
            return repr(line)
        skips = False
    return None


def runs() -> list[tuple[str, str, str]]:
    """Page, title and text of each run."""
    found = []
    for path in sorted([*DOCS.glob("tutorials/*.md"), *(DOCS / page for page in PAGES)]):
        found.append((str(path.relative_to(DOCS)), "", path.read_text()))
    reference = (DOCS / "scenarios.md").read_text()
    begin, end = reference.index("## Example 1"), reference.index("## Example 3")
    found.append(("scenarios.md", "examples", "\n" * reference.count("\n", 0, begin) + reference[begin:end]))
    for path in sorted(DOCS.glob("cookbook/*.md")):
        page = path.read_text()
        heads = list(re.finditer(r"^## (.*)\n", page, re.MULTILINE))
        starts = [head.start() for head in heads] + [len(page)]
        for head, start, end in zip(heads, starts, starts[1:], strict=False):
            # Lines are counted from the page's first.
            text = "\n" * page.count("\n", 0, start) + page[start:end]
            found.append((str(path.relative_to(DOCS)), head[1], text))
    return found


@pytest.mark.parametrize(("page", "title", "text"), [pytest.param(*run, id=f"{run[0]}:{run[1]}") for run in runs()])
def test_blocks_run(page: str, title: str, text: str, program: str, tmp_path: Path) -> None:
    del title
    if "Needs root." in text and (os.geteuid() != 0 or os.environ.get("BANDMASTER_NO_LAB")):
        pytest.skip("skipped: needs root")
    home = tmp_path / "home"
    folder = tmp_path / "folder"
    for made in (home, folder, tmp_path / "bin"):
        made.mkdir()
    (tmp_path / "bin/bandmaster").symlink_to(program)
    (tmp_path / "bin/python").symlink_to(sys.executable)
    # A link of its own would not find the venv's packages.
    (tmp_path / "bin/python").unlink()
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "BANDMASTER_SOURCES": str(ROOT),
        "MPLBACKEND": "agg",
    }
    printed = ""
    for part in parts(text):
        place = f"docs/{page}:{part.line}"
        if part.kind == "file":
            file = folder / part.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(part.text)
        elif part.kind == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", part.text],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
                check=False,
            )
            printed = done.stdout
            assert done.returncode == 0, f"{place}: exit code {done.returncode}\n{printed}"
        elif part.kind == "prints":
            lacks = missing(part.text, printed)
            assert lacks is None, f"{place}: not printed: {lacks}\nIn:\n{printed}"
        elif part.kind == "rust":
            source = ROOT / part.file
            assert part.file and source.is_file(), f"{place}: no such file: {part.file}"
            assert part.text in source.read_text(), f"{place}: not in {part.file}"
        elif part.kind == "part" and tomllib is not None:
            tomllib.loads(part.text)
