from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SMALL = """
version = 1
name = "small"

[run]
duration = "600ms"
trials = 6
sample = "100ms"

[network]
builder = "dumbbell"
left = 2
right = 2
access = { rate = "100mbit", delay = "1ms" }
bottleneck = { rate = "10mbit", delay = "5ms", queue = "30pkt" }

[[flows]]
name = "up"
from = "left"
to = "right"
start = "uniform(0s, 50ms)"
"""

SWEPT = (
    SMALL
    + """
[[sweeps]]
name = "buffer"
key = "network.bottleneck.queue"
values = ["10pkt", "30pkt"]

[[claims]]
text = "The link carries something"
metric = "throughput"
variant = "base"
id = "carries"
low = 1.0
because = "A test"
"""
)


@pytest.fixture
def program() -> str:
    """The command line program; ci.sh builds it."""
    for path in (os.environ.get("BANDMASTER"), ROOT / "target/release/bandmaster"):
        if path and Path(path).exists():
            return str(path)
    pytest.skip("skipped: no program; BANDMASTER names one")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "swept.toml").write_text(SWEPT)
    return Path("small.toml")


@pytest.fixture
def command(program: str) -> Callable[..., None]:
    def run(*words: str) -> None:
        subprocess.run([program, *words, "-q"], check=False, stdout=subprocess.DEVNULL)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_same(ours: Path, theirs: Path) -> None:
    a, b = contents(ours), contents(theirs)
    assert list(a) == list(b)
    assert "flows.parquet" in a
    assert [name for name in a if a[name] != b[name]] == []
