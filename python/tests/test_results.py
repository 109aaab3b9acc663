"""Tables, claims, figures."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import SWEPT

import bandmaster as bm


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> bm.Result:
    return bm.Scenario(SWEPT).run(out=tmp_path_factory.mktemp("results") / "out")


def test_tables_are_those_of_the_files(result: bm.Result) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for table in (result.trials, result.flows, result.series):
        read = parquet.read_table(table.path)
        assert table.to_arrow().equals(read)
        assert len(table) == read.num_rows > 0
        assert [column.name for column in table.columns] == read.column_names


def test_columns_say_what_they_are(result: bm.Result) -> None:
    columns = {column.name: column for column in result.flows.columns}
    assert columns["fct_s"].unit == "s"
    assert columns["size"].description.startswith("Payload that it has to carry")


def test_frames_have_the_rows(result: bm.Result) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    pandas, polars = result.trials.to_pandas(), result.trials.to_polars()
    assert pandas.shape == polars.shape == (12, len(result.trials.columns))
    assert pandas["throughput"].tolist() == polars["throughput"].to_list()
    assert set(pandas["sweep.buffer"]) == {10, 30}


@pytest.mark.timing
def test_a_million_rows_take_less_than_a_second(result: bm.Result, tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("polars")
    few = parquet.read_table(result.flows.path)
    copies = 10**6 // few.num_rows + 1
    many = pyarrow.concat_tables([few] * copies).slice(0, 10**6)
    parquet.write_table(many, tmp_path / "flows.parquet", compression="snappy", row_group_size=1 << 16)
    table = bm.Table(tmp_path / "flows.parquet")
    for convert in (table.to_polars, table.to_pandas):
        took = []
        for _ in range(3):
            began = time.perf_counter()
            assert len(convert()) == 10**6
            took.append(time.perf_counter() - began)
        print(convert.__name__, took)
        assert min(took) < 1.0, took


def test_claims_are_judged(result: bm.Result) -> None:
    assert result.claims.ok and [claim.status for claim in result.claims] == ["holds"]
    assert result.claims[0]["metric"] == "throughput"
    assert "The link carries something" in result._repr_html_()
    assert repr(result).endswith("12 of 12 trials, 1 of 1 claims hold>")


def test_a_figure_has_a_point_for_each_value(result: bm.Result) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    ax = result.plot("jain")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10pkt", "30pkt"]
    means = [row["metrics"]["jain"]["mean"] for row in result.summary["rows"]]
    assert sorted(ax.get_lines()[0].get_ydata()) == sorted(means)
    assert ax.get_ylabel() == "Jain\N{RIGHT SINGLE QUOTATION MARK}s index"
    with pytest.raises(bm.UsageError, match=r"no metric 'jian'; there are: .*jain"):
        result.plot("jian")
    with pytest.raises(bm.UsageError, match="no sweep"):
        result.plot("jain", sweep="n")
    with pytest.raises(bm.UsageError, match="no variant 'third'; there are: "):
        result.plot("jain", variants=["third"])


def test_intervals_of_a_figure_end_where_the_metric_does(result: bm.Result) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    result = bm.load(result.path)
    for row in result.summary["rows"]:
        row["metrics"]["jain"].update(mean=0.9, ci95=0.2)
        row["metrics"]["queue"].update(mean=1.0, ci95=3.0)
    for metric, expected in (("jain", [0.7, 1.0]), ("queue", [0.0, 4.0])):
        (bars,) = result.plot(metric).containers[0].lines[2]
        for segment in bars.get_segments():
            assert [y for _, y in segment] == pytest.approx(expected)
    # A mean that is rounded to more than its most is drawn too.
    result.summary["rows"][0]["metrics"]["jain"].update(mean=1.0000000000000002)
    result.plot("jain")


def test_sweeps_of_numbers_stand_at_their_places(result: bm.Result) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    result = bm.load(result.path)
    values = result.summary["studies"][0]["sweeps"][0]["values"]
    for row in result.summary["rows"]:
        row["points"] = {name: {"10pkt": "0.1", "30pkt": "0.7"}[value] for name, value in row["points"].items()}
    values[:] = ["0.1", "0.7"]
    assert list(result.plot("jain").get_lines()[0].get_xdata()) == [0.1, 0.7]


def test_a_folder_is_loaded(result: bm.Result, tmp_path: Path) -> None:
    again = bm.load(result.path)
    assert again.summary == result.summary and again.manifest["command"][0] == "run"
    with pytest.raises(bm.UsageError, match="no result folder"):
        bm.load(tmp_path)


def test_flows_that_are_not_recorded_say_so() -> None:
    result = bm.Scenario(SWEPT + '\n[measure]\nflow-table = "none"\n').options(trials=1).run()
    with pytest.raises(bm.UsageError, match="flow-table"):
        _ = result.flows
