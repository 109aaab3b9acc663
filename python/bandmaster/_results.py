"""Result folders and what is in them."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _bandmaster
from ._errors import Failure, UsageError

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import polars
    import pyarrow

FORMAT = 3
"""Version of `summary.json` that this package reads."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    """Its name."""
    unit: str
    """Unit of its values; empty for texts, counts and ratios."""
    description: str
    """What it holds."""


class Table:
    """Rows of results, which pandas, Polars, DuckDB and PyArrow take by the Arrow PyCapsule interface.

    Rows are read from the Parquet file of the result folder each time, 65,536 at once, and never become Python objects.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: object = None) -> None:
        """Open a Parquet file.

        Args:
            path: The file.
            keep: What must not go before the table, such as a temporary folder.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: It is no Parquet file.
        """
        self._table = _bandmaster.Table(path)
        self._path = Path(path)
        self._keep = keep

    def __len__(self) -> int:
        return self._table.num_rows

    def __repr__(self) -> str:
        return f"<Table {self._path.name}, {len(self)} rows, {len(self.columns)} columns>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the rows as an Arrow C stream in a capsule.

        Args:
            requested_schema: Not followed, as the interface allows.

        Raises:
            OSError: The file is gone.
        """
        return self._table.__arrow_c_stream__(requested_schema)

    @property
    def path(self) -> Path:
        """The Parquet file."""
        return self._path

    @property
    def columns(self) -> list[Column]:
        """Name, unit and meaning of every column, in order."""
        return [Column(*column) for column in self._table.columns]

    def to_arrow(self) -> pyarrow.Table:
        """Give a `pyarrow.Table`: a row for each row, a column for each of `columns`.

        Raises:
            ImportError: PyArrow is not installed.
        """
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Give a `pandas.DataFrame`: a row for each row, a column for each of `columns`; nulls are `NaN` or `None`.

        Raises:
            ImportError: pandas or PyArrow is not installed.
        """
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Give a `polars.DataFrame`: a row for each row, a column for each of `columns`.

        Raises:
            ImportError: Polars is not installed.
        """
        import polars

        return polars.DataFrame(self)


class Claim(dict[str, Any]):
    """A claim of the scenario and what became of it, with the members that `summary.json` has."""

    @property
    def ok(self) -> bool:
        """The claim holds."""
        return bool(self["ok"])

    @property
    def status(self) -> str:
        """`holds`, `fails`, `undecided`, `missing`, or one of claims that are known not to be reproduced."""
        return str(self["status"])


class Claims(Sequence[Claim]):
    """All claims of a result; a table in a notebook."""

    def __init__(self, claims: list[Claim]) -> None:
        """Take claims; `Result.claims` gives them.

        Args:
            claims: The claims.
        """
        self._claims = claims

    def __len__(self) -> int:
        return len(self._claims)

    def __getitem__(self, index: Any) -> Any:
        return self._claims[index]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims)

    @property
    def ok(self) -> bool:
        """Every claim holds."""
        return all(claim.ok for claim in self)

    def __repr__(self) -> str:
        return "\n".join(f"{claim.status}: {claim['text']}" for claim in self) or "no claims"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'✓' if claim.ok else '✗'} {html.escape(claim.status)}</td>"
            f"<td style='text-align:left'>{html.escape(claim['text'])}</td>"
            f"<td>{'' if claim['value'] is None else format(claim['value'], '.4g')} "
            f"{html.escape(claim['unit'])}</td></tr>"
            for claim in self
        )
        return f"<table><tr><th></th><th>claim</th><th>value</th></tr>{rows}</table>"


class Result:
    """What a run gave: a result folder."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        failures: list[Failure] | None = None,
        temporary: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        """Open a result folder; `Scenario.run` and `load` do.

        Args:
            path: The folder.
            failures: Trials that failed.
            temporary: Goes with the last reference to the result and its tables.

        Raises:
            UsageError: The folder is of another version of the format.
        """
        self._path = Path(path)
        self._temporary = temporary
        self.failures: list[Failure] = failures or []
        """Trials that failed in this run, and why; of a loaded folder, none."""
        self.summary: dict[str, Any] = json.loads((self._path / "summary.json").read_text(encoding="utf-8"))
        """The content of `summary.json`: statistics of every metric, and the claims."""
        if self.summary.get("version") != FORMAT:
            raise UsageError(
                f"{self._path}: has format version {self.summary.get('version')}; this package reads {FORMAT}"
            )

    @property
    def path(self) -> Path:
        """The folder; without `out` it is temporary, and goes with the last reference to the result and its tables."""
        return self._path

    @property
    def complete(self) -> bool:
        """Every planned trial finished."""
        return bool(self.summary["complete"])

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of `manifest.json`: each scenario with all defaults, seed, version."""
        manifest: dict[str, Any] = json.loads((self._path / "manifest.json").read_text(encoding="utf-8"))
        return manifest

    def _table(self, name: str) -> Table:
        return Table(self._path / name, keep=self._temporary)

    @property
    def trials(self) -> Table:
        """A row for each case and trial, a column for each sweep (`sweep.NAME`) and each metric."""
        return self._table("trials.parquet")

    @property
    def flows(self) -> Table:
        """A row for each flow that started: size, start, end, completion time, slowdown, drops.

        Raises:
            UsageError: `measure.flow-table` is `none`.
        """
        if not (self._path / "flows.parquet").exists():
            raise UsageError(f"{self._path}: has no flows; set measure.flow-table to counts or rtt")
        return self._table("flows.parquet")

    @property
    def series(self) -> Table:
        """A row for each sampling interval and entity, a column for each series."""
        return self._table("series.parquet")

    @property
    def claims(self) -> Claims:
        """The claims of the scenario, judged, in the order of the file."""
        return Claims([Claim(claim) for claim in self.summary["claims"]])

    def __repr__(self) -> str:
        trials = self.summary["trials"]
        held = sum(claim.ok for claim in self.claims)
        return (
            f"<Result {self.summary['title']!r}, {trials['finished']} of {trials['planned']} trials, "
            f"{held} of {len(self.claims)} claims hold>"
        )

    def _repr_html_(self) -> str:
        trials = self.summary["trials"]
        rows = [row for row in self.summary["rows"] if row["base"]]
        names = list(dict.fromkeys(name for row in rows for name in row["metrics"]))[:8]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr><td style='text-align:left'>{html.escape(row['variant'])}</td>"
            + "".join(f"<td>{_estimate(row['metrics'].get(name))}</td>" for name in names)
            + "</tr>"
            for row in rows
        )
        title = html.escape(self.summary["title"])
        return (
            f"<h4>{title}</h4><p>{trials['finished']} of {trials['planned']} trials</p>"
            f"<table><tr><th>variant</th>{head}</tr>{body}</table>{self.claims._repr_html_()}"
        )

    def plot(
        self,
        metric: str,
        *,
        sweep: str | None = None,
        variants: Iterable[str] | None = None,
        ax: matplotlib.axes.Axes | None = None,
    ) -> Any:
        """Draw a metric with its 95 % confidence intervals: over the values of a sweep, or for each variant.

        Intervals end where the metric does: Jain's index at 1, a time at 0. Values of a sweep that are numbers stand
        at their places, others at equal distances.

        Args:
            metric: A metric of `summary.json`, such as `"jain"` or `"throughput"`.
            sweep: Name of the sweep. Default: the first one, if there is any.
            variants: Names of the variants to draw, in this order. Default: all of them.
            ax: Axes of matplotlib to draw on. Default: new ones.

        Returns:
            The `matplotlib.axes.Axes`.

        Raises:
            ImportError: matplotlib is not installed.
            UsageError: There is no such metric, sweep or variant.
        """
        rows = [row for row in self.summary["rows"] if metric in row["metrics"]]
        if not rows:
            known = dict.fromkeys(name for row in self.summary["rows"] for name in row["metrics"])
            raise UsageError(f"no metric {metric!r}; there are: {', '.join(known)}")
        sweeps = {each["name"]: each for study in self.summary["studies"] for each in study["sweeps"]}
        if sweep is not None and sweep not in sweeps:
            raise UsageError(f"no sweep {sweep!r}; there are: {', '.join(sweeps) or 'none'}")
        chosen = sweeps[sweep] if sweep else next(iter(sweeps.values()), None)
        if ax is None:
            import matplotlib.pyplot

            _, ax = matplotlib.pyplot.subplots()
        titles = {each["name"]: each["title"] for study in self.summary["studies"] for each in study["variants"]}
        if variants is not None:
            order = list(variants)
            for variant in order:
                if variant not in titles:
                    raise UsageError(f"no variant {variant!r}; there are: {', '.join(titles)}")
            rows = [row for row in rows if row["variant"] in order]
            rows.sort(key=lambda row: order.index(row["variant"]))
        if chosen is None:
            rows = [row for row in rows if row["base"]]
            labels = [titles[row["variant"]] for row in rows]
            ax.bar(labels, [row["metrics"][metric]["mean"] for row in rows], yerr=_bars(rows, metric), capsize=3)
            ax.tick_params(axis="x", labelrotation=30)
        else:
            name, values = chosen["name"], list(chosen["values"])
            places = _numbers(values) or list(range(len(values)))
            for variant in dict.fromkeys(row["variant"] for row in rows):
                own = [row for row in rows if row["variant"] == variant and name in row["points"]]
                own.sort(key=lambda row: values.index(row["points"][name]))
                positions = [places[values.index(row["points"][name])] for row in own]
                means = [row["metrics"][metric]["mean"] for row in own]
                ax.errorbar(positions, means, yerr=_bars(own, metric), label=titles[variant], marker="o", capsize=3)
            ax.set_xticks(places, values)
            ax.set_xlabel(chosen["title"])
            ax.legend()
        ax.set_ylabel(_bandmaster.metric_axis(metric)[0])
        return ax


def _numbers(values: list[str]) -> list[float] | None:
    try:
        return [float(value) for value in values]
    except ValueError:
        return None


def _bars(rows: list[dict[str, Any]], metric: str) -> list[list[float]]:
    """How far each interval goes below the mean, and above it."""
    _, least, most = _bandmaster.metric_axis(metric)
    estimates = [row["metrics"][metric] for row in rows]
    ends = [(each["mean"], each.get("ci95") or 0.0) for each in estimates]
    below = [max(0.0, min(half, mean - least)) for mean, half in ends]
    return [below, [max(0.0, min(half, most - mean)) for mean, half in ends]]


def _estimate(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return ""
    half = estimate.get("ci95")
    return f"{estimate['mean']:.4g}" + ("" if half is None else f" ±{half:.2g}")


def load(path: str | os.PathLike[str]) -> Result:
    """Load a result folder that a run left, from Python or the command line.

    >>> import bandmaster as bm
    >>> bm.load("nothing-here")
    Traceback (most recent call last):
    bandmaster._errors.UsageError: nothing-here: is no result folder, or its run did not end

    Args:
        path: The folder.

    Raises:
        UsageError: It is no result folder, or of another version.
    """
    if not (Path(path) / "summary.json").is_file():
        raise UsageError(f"{os.fspath(path)}: is no result folder, or its run did not end")
    return Result(path)
