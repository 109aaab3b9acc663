"""Congestion controls in Python."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_same

import bandmaster as bm


class MyReno(bm.CongestionControl):
    """RFC 5681, counting bytes (RFC 3465)."""

    time_limit = 1.0

    def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
        acked = float(ack.acked)
        if window.cwnd < window.ssthresh:
            slow = min(acked, window.ssthresh - window.cwnd)
            window.cwnd += slow
            acked -= slow
        if acked:
            window.cwnd += self.mss * acked / window.cwnd

    def on_loss(self, window: bm.Window, in_flight: int) -> float:
        return max(in_flight / 2, 2 * self.mss)


def scenario(control: str, controls: list[type[bm.CongestionControl]], **tcp: Any) -> bm.Scenario:
    """Four uploads of different distance share 10 Mbit/s."""
    net = bm.dumbbell(
        4, 1, access=bm.link("1gbit", "uniform(1ms, 20ms)"), bottleneck=bm.link("10mbit", "5ms", queue="30pkt")
    )
    net.add_flows("uploads", "left", "right")
    net.add("tcp", congestion_control=control, **tcp)
    return net.scenario("reno", duration="20s", trials=4, controls=controls)


def metrics(scenario: bm.Scenario) -> dict[str, Any]:
    found: dict[str, Any] = scenario.run().summary["rows"][0]["metrics"]
    return found


def test_reno_in_python_does_what_the_built_in_does() -> None:
    ours, theirs = (metrics(scenario(name, [MyReno])) for name in ("myreno", "newreno"))
    assert ours["throughput"]["mean"] == pytest.approx(theirs["throughput"]["mean"], rel=0.01)
    for metric in ("jain", "drops", "retransmits", "queue"):
        apart = abs(ours[metric]["mean"] - theirs[metric]["mean"])
        assert apart <= ours[metric]["ci95"] + theirs[metric]["ci95"] + 1e-9, metric


class Answering(MyReno):
    """Counts what it is asked."""

    marks = losses = timeouts = 0

    def on_mark(self, window: bm.Window, in_flight: int) -> float:
        Answering.marks += 1
        return super().on_mark(window, in_flight)

    def on_loss(self, window: bm.Window, in_flight: int) -> float:
        Answering.losses += 1
        return super().on_loss(window, in_flight)

    def on_timeout(self) -> None:
        Answering.timeouts += 1


def test_marks_and_timeouts_come() -> None:
    net = bm.dumbbell(
        4,
        1,
        access=bm.link("1gbit", "1ms"),
        bottleneck=bm.link("10mbit", "5ms", queue={"discipline": "codel", "limit": "100pkt", "ecn": True}),
    )
    net.add_flows("uploads", "left", "right")
    net.add("tcp", congestion_control="answering", ecn=True)
    marked = net.scenario("marks", duration="5s", controls=[Answering])
    assert metrics(marked)["marks"]["mean"] > 0 and Answering.marks > 0
    lossy = marked.set("tcp.ecn", False).set("network.bottleneck.loss", 0.2)
    assert metrics(lossy)["rtos"]["mean"] > 0 and Answering.losses > 0 and Answering.timeouts > 0


def test_what_ran_before_changes_no_byte(tmp_path: Path) -> None:
    some = scenario("myreno", [MyReno]).set("run.duration", "1s")
    some.run(out=tmp_path / "first")
    others = [scenario("fixed-window", [Fixed]), scenario("myreno", [type("MyReno", (MyReno,), {})])]
    again = scenario("myreno", [MyReno, Fixed]).set("run.duration", "1s")
    again.run(out=tmp_path / "again")
    assert_same(tmp_path / "again", tmp_path / "first")
    assert '"myreno"' in (tmp_path / "first/manifest.json").read_text() and len(others) == 2


class Fixed(bm.CongestionControl):
    """A window that nothing changes, by a name of its own."""

    name = "fixed-window"

    def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
        assert ack.now > 0 and ack.acked > 0 and (ack.srtt is None or ack.srtt > 0.01)
        window.cwnd = 4 * self.mss

    def on_loss(self, window: bm.Window, in_flight: int) -> float:
        return 1e9


def test_groups_of_flows_may_have_their_own() -> None:
    text = scenario("fixed-window", [Fixed]).set("run.duration", "10s").text
    text = text.replace("[tcp]", '[[flows]]\nname = "others"\nfrom = "left"\nto = "right"\n[flows.tcp]\n')
    text = text.replace('congestion-control = "fixed-window"', 'congestion-control = "myreno"')
    text += '\n[tcp]\ncongestion-control = "fixed-window"\n'
    flows = bm.Scenario(text, controls=[Fixed, MyReno]).options(trials=1).run().flows.to_pandas()
    sent = flows.groupby("group")["bytes"].sum()
    # Four segments of 1,448 bytes a round trip of 12 to 50 ms and what waits.
    assert 0 < sent["uploads"] < sent["others"]


def test_executors_and_threads_give_the_same_bytes(tmp_path: Path) -> None:
    some = scenario("myreno", [MyReno]).set("run.duration", "2s")
    some.run(out=tmp_path / "threads", jobs=2)
    with ProcessPoolExecutor(2) as pool:
        some.run(out=tmp_path / "pool", executor=pool, shards=3)
    assert_same(tmp_path / "pool", tmp_path / "threads")


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(bm.ScenarioError, match='or "balia", or "myreno"') as error:
        scenario("none-of-these", [MyReno])
    assert error.value.key == "tcp.congestion-control"
    with pytest.raises(bm.UsageError, match="no subclass"):
        scenario("reno", [int])  # type: ignore[list-item]
    with pytest.raises(bm.UsageError, match="not positive"):
        scenario("never", [type("Never", (MyReno,), {"time_limit": 0.0})])
    with pytest.raises(ValueError, match="already"):
        scenario("cubic", [type("Cubic", (MyReno,), {})])
    with pytest.raises(bm.ScenarioError):
        scenario("myreno", [])


@pytest.mark.parametrize(
    ("method", "body", "why"),
    [
        ("on_ack", "raise KeyError('as asked')", "KeyError: 'as asked'"),
        ("on_ack", "a.cwnd = float('nan')", "cwnd: NaN is not a number from a segment"),
        ("on_ack", "a.cwnd = -1.0", "cwnd: -1"),
        ("on_ack", "a.cwnd = 100", "cwnd: 100 is not"),
        ("on_ack", "a.cwnd = float('inf')", "cwnd: inf is not"),
        ("on_ack", "\n        while True: pass", "TimeLimit"),
        ("on_loss", "return float('nan')", "the new ssthresh: NaN is not"),
        ("on_loss", "return float('inf')", "the new ssthresh: inf is not"),
        ("on_loss", "return None", "TypeError"),
        ("on_loss", "return -5", "the new ssthresh: -5 is not"),
        ("__init__", "raise OSError('no file')", "OSError: no file"),
    ],
)
def test_a_wrong_one_ends_its_trial_with_its_traceback(method: str, body: str, why: str) -> None:
    arguments = "self" if method == "__init__" else "self, a, b"
    program = f"class Wrong(MyReno):\n    time_limit = 0.2\n    def {method}({arguments}):\n        {body}\n"
    namespace: dict[str, Any] = {"MyReno": MyReno}
    exec(compile(program, "wrong.py", "exec"), namespace)
    some = scenario("wrong", [namespace["Wrong"], MyReno]).options(trials=2)
    with pytest.warns(bm.TrialWarning, match="2 of 4 trials failed"):
        result = some.run(sweep={"tcp.congestion-control": ["wrong", "myreno"]}, jobs=2)
    assert len(result.trials) == 2
    for failure in result.failures:
        assert why in failure.why and not failure.is_bug, failure.why


class Raises(MyReno):
    name = "raises"

    def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
        raise ValueError("as asked")


class Undefined(MyReno):
    name = "undefined"

    def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
        window.cwnd = float("nan")


class Negative(MyReno):
    name = "negative"

    def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
        window.cwnd = -1.0


class Loops(MyReno):
    name = "loops"
    time_limit = 0.3

    def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
        while True:
            pass


WRONG: dict[type[bm.CongestionControl], str] = {
    Raises: "ValueError: as asked",
    Undefined: "cwnd: NaN is not a number from a segment",
    Negative: "cwnd: -1 is not a number from a segment",
    Loops: "TimeLimit",
}


@pytest.mark.parametrize("where", ["threads", "processes", "dask"])
def test_a_wrong_one_loses_its_trials_alone_wherever_they_run(where: str) -> None:
    some = scenario("myreno", [MyReno, *WRONG]).options(trials=2).set("run.duration", "2s")
    sweep = {"tcp.congestion-control": [wrong.name for wrong in WRONG]}
    with pytest.warns(bm.TrialWarning, match="8 of 10 trials failed"):
        if where == "threads":
            result = some.run(sweep=sweep, jobs=2)
        elif where == "processes":
            with ProcessPoolExecutor(2) as pool:
                result = some.run(sweep=sweep, executor=pool, shards=5)
        else:
            distributed = pytest.importorskip("distributed")
            with (
                distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
                distributed.Client(cluster) as client,
            ):
                result = some.run(sweep=sweep, executor=client)
    assert len(result.trials) == 2 and not result.complete
    for wrong, why in WRONG.items():
        failures = [failure for failure in result.failures if failure.case.endswith(f"= {wrong.name}")]
        assert [failure.trial for failure in failures] == [0, 1], result.failures
        for failure in failures:
            assert why in failure.why and "in on_ack" in failure.why and not failure.is_bug


@pytest.mark.timing
def test_an_acknowledgement_costs_less_than_20_microseconds() -> None:
    class Counting(MyReno):
        calls = 0

        def on_ack(self, window: bm.Window, ack: bm.Ack) -> None:
            Counting.calls += 1
            super().on_ack(window, ack)

    spent = []
    for name in ("counting", "newreno"):
        began = time.perf_counter()
        scenario(name, [Counting]).run(jobs=1)
        spent.append(time.perf_counter() - began)
    cost = (spent[0] - spent[1]) / Counting.calls
    print(f"{cost * 1e6:.1f} us an acknowledgement, of {Counting.calls}")
    assert Counting.calls > 10_000 and cost < 20e-6
