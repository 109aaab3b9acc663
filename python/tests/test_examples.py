"""The programs of python/examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_max_min_in_python_shares_as_the_built_in_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "python/examples"))
    monkeypatch.chdir(ROOT)
    import max_min

    text = (ROOT / "python/examples/max_min.py").read_text()
    scheme = text[text.index("def max_min") : text.index("SCHEME =")]
    assert len([line for line in scheme.splitlines() if line.strip()]) < 80
    result = max_min.scenario().run()
    assert result.complete and result.claims.ok
    rows: dict[tuple[str, str], Any] = {
        (row["variant"], row["points"]["buffer"]): row["metrics"] for row in result.summary["rows"]
    }
    for buffer in ("15pkt", "30pkt", "60pkt", "120pkt"):
        ours, theirs = rows["python", buffer], rows["bas", buffer]
        for metric in ("jain", "queue"):
            apart = abs(ours[metric]["mean"] - theirs[metric]["mean"])
            assert apart <= ours[metric]["ci95"] + theirs[metric]["ci95"], (metric, buffer)
        # It shares 95 % of the link; BAS allows for the headers exactly.
        assert ours["throughput"]["mean"] == pytest.approx(theirs["throughput"]["mean"], rel=0.01)
        assert ours["jain"]["mean"] > rows["tcp", buffer]["jain"]["mean"] + 0.05
    # A figure has the variants that it is asked for, in this order.
    legend = result.plot("jain", variants=["python", "tcp"]).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["Max-min in Python", "TCP NewReno"]
    sys.modules.pop("max_min", None)


NOTEBOOKS = sorted((ROOT / "python/examples").glob("*.ipynb"))


def test_notebooks_have_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    nbformat = pytest.importorskip("nbformat")
    for notebook in NOTEBOOKS:
        cells = nbformat.read(notebook, as_version=4).cells
        code = "\n\n".join(cell.source for cell in cells if cell.cell_type == "code")
        (tmp_path / f"{notebook.stem}.py").write_text(code)
    config = ["--config-file", str(ROOT / "python/pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    words = [sys.executable, "-m", "mypy", "--strict", *config, *map(str, sorted(tmp_path.glob("*.py")))]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    content = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in content.cells), "notebooks are kept without results"
    nbclient.NotebookClient(content, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code[1:])
