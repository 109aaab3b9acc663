"""Runs every block of the tutorials and of the cookbook, as a reader would.

A page of `docs/tutorials` is one run in an empty folder; so is each second-level section of a page of `docs/cookbook`.
A block after a paragraph that ends with a file name in backticks and a colon is that file. A block of `sh` is run.
A block of `text` after it is what it prints: these lines in this order, where `...` stands for any lines. More lines
may stand before the first and after the last. Where real time passes (`Needs root.`), a number's last decimal may
differ by one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from conftest import ROOT

DOCS = ROOT / "docs"
FROM = ("flent", "mininet", "ns3", "tc")
PAGES = ["start.md", *(f"from-{name}.md" for name in FROM), "choose.md", "peers.md", "gallery.md"]
BLOCK = re.compile(r"^([ ]*)```([\w-]*)\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([^`\s]+)`[^`\n]*:$")

Kind = Literal["file", "sh", "prints", "rust", "console"]


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
        else:
            raise AssertionError(f"line {line}: a block of `{language}`: what is it?")
        yield Part(kind, text, file, line)
        end, last = block.end(), language


DECIMAL = re.compile(r"\d+\.\d+")


def same(shown: str, printed: str, *, measured: bool) -> bool:
    """Whether a line was printed as it is shown. Decimals that were measured may differ by one in the last place."""
    shown, printed = shown.rstrip(), printed.rstrip()
    if shown == printed or not measured:
        return shown == printed
    pairs = list(zip(DECIMAL.findall(shown), DECIMAL.findall(printed), strict=False))
    places = all(len(a.partition(".")[2]) == len(b.partition(".")[2]) for a, b in pairs)
    near = all(abs(int(a.replace(".", "")) - int(b.replace(".", ""))) <= 1 for a, b in pairs)
    return DECIMAL.sub("", shown) == DECIMAL.sub("", printed) and places and near


def missing(shown: str, printed: str, *, measured: bool = False) -> str | None:
    """The first line of what is shown that was not printed, in its order."""
    lines, skips = iter(printed.splitlines()), True
    for line in shown.splitlines():
        if line.strip() == "...":
            skips = True
            continue
        for printed_line in lines:
            if same(line, printed_line, measured=measured):
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


def ended(script: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a script. What it leaves running is ended."""
    output = folder.parent / "output"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(300)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
                time.sleep(0.5)
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    return code, output.read_text()


def remove_namespaces(text: str) -> None:
    """Removes the network namespaces that a page made and did not come to remove."""
    for name in re.findall(r"ip netns add (\S+)", text):
        within = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        if within.returncode == 0:
            for process in within.stdout.split():
                os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


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
    # A link would not find the venv's packages.
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "BANDMASTER_SOURCES": str(ROOT),
        "MPLBACKEND": "agg",
    }
    try:
        run_blocks(page, text, folder, environment)
    finally:
        remove_namespaces(text)


def run_blocks(page: str, text: str, folder: Path, environment: dict[str, str]) -> None:
    printed = ""
    for part in parts(text):
        place = f"docs/{page}:{part.line}"
        if part.kind == "file":
            file = folder / part.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(part.text)
        elif part.kind == "sh":
            code, printed = ended(part.text, folder, environment)
            assert code == 0, f"{place}: exit code {code}\n{printed}"
        elif part.kind == "prints":
            lacks = missing(part.text, printed, measured="Needs root." in text)
            assert lacks is None, f"{place}: not printed: {lacks}\nIn:\n{printed}"
        elif part.kind == "rust":
            source = ROOT / part.file
            assert part.file and source.is_file(), f"{place}: no such file: {part.file}"
            assert part.text in source.read_text(), f"{place}: not in {part.file}"


def test_a_measured_number_may_differ_in_its_last_place() -> None:
    shown = "orders: has 0.807 Mbit/s of 0.800 Mbit/s, sent 10 packets"
    for printed, agrees in [
        (shown, True),
        (shown.replace("0.807", "0.808"), True),
        (shown.replace("0.807", "0.809"), False),
        (shown.replace("0.807", "0.81"), False),
        (shown.replace("10 packets", "11 packets"), False),
        (f"{shown}, 1.0 s ago", False),
    ]:
        assert (missing(shown, printed, measured=True) is None) == agrees, printed
    assert missing(shown, shown.replace("0.807", "0.808")) is not None
