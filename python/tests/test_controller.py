"""Schemes in Python."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, assert_same

import bandmaster as bm

SCENARIO = SMALL + "\n[schemes.mine]\n"


def scenario(role: type[bm.Controller], **parameters: Any) -> bm.Scenario:
    return bm.Scenario(SCENARIO, schemes=[bm.Scheme("mine", [role], parameters, time_limit=1.0)])


class Halves(bm.Controller):
    """Windows of half of the path, for two flows."""

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        if isinstance(observation, bm.FlowStarted):
            rate = self.parameters["rate"]
            assert isinstance(rate, int)
            out.set_rate(observation.flow.flow, rate, 64_000)


def throughput(scenario: bm.Scenario) -> list[float]:
    """By trial, in Mbit/s."""
    values: list[float] = scenario.run().trials.to_arrow()["throughput"].to_pylist()
    return values


def test_a_role_paces_flows() -> None:
    slow = scenario(Halves, rate="1mbit")
    assert max(throughput(slow)) < 2.0
    assert min(throughput(slow.set("schemes.mine.rate", "4mbit"))) > 4.0
    with pytest.raises(bm.ScenarioError) as error:
        slow.set("schemes.mine.rate", "4ms")
    assert error.value.key == "schemes.mine.rate"


def test_it_runs_beside_a_built_in_scheme() -> None:
    example = Path(__file__).parents[2] / "scenarios/examples/dumbbell.toml"
    text = example.read_text().replace("[schemes.bas]", "[schemes.mine]\n\n[schemes.bas]")
    mine = bm.Scheme("mine", [Halves], {"rate": "100mbit"})
    result = bm.Scenario(text, schemes=[mine]).options(quick=True, trials=1).run()
    assert result.complete and not result.failures


class Asks(bm.Controller):
    """Tells the teller how many bytes have come."""

    interval = 0.1

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        match observation:
            case bm.Tick(flows=flows):
                out.send("r1", struct.pack("<q", sum(flow.delivered for flow in flows)))
            case bm.Message(sender="r1", body=body):
                Heard.answers.append((now, self.node, body))


class Heard(bm.Controller):
    wants = ()
    heard: list[tuple[float, str, int]] = []
    answers: list[tuple[float, str, bytes]] = []

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return [node for node in network.nodes if node == "r1"]

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        if isinstance(observation, bm.Message):
            self.heard.append((now, observation.sender, struct.unpack("<q", observation.body)[0]))
            out.send(observation.sender, b"thanks")


def test_roles_talk_over_the_network() -> None:
    Heard.heard.clear()
    Heard.answers.clear()
    mine = bm.Scheme("mine", [Asks, Heard])
    bm.Scenario(SCENARIO, schemes=[mine]).options(trials=1).run()
    assert {sender for _, sender, _ in Heard.heard} == {"right.0", "right.1"}
    assert max(delivered for _, _, delivered in Heard.heard) > 10_000
    assert all(abs(now % 0.1 - 0.001) < 1e-9 for now, _, _ in Heard.heard), "the delay of a message"
    assert {node for _, node, _ in Heard.answers} == {"right.0", "right.1"}
    assert all(body == b"thanks" for _, _, body in Heard.answers)


class Watches(bm.Controller):
    seen: list[tuple[float, bm.Tick]] = []

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return ["r1"]

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        if isinstance(observation, bm.Tick):
            self.seen.append((now, observation))
            out.wake_at(now + 0.2)


def test_ticks_bring_ports_when_they_are_asked_for() -> None:
    Watches.seen.clear()
    scenario(Watches).options(trials=1).run()
    assert [round(now, 3) for now, _ in Watches.seen] == [0.0, 0.2, 0.4, 0.6]
    port = next(port for port in Watches.seen[-1][1].ports if port.port == "r1->r2")
    assert port.capacity == 10_000_000 and port.flows_open == 2 and port.sent > 100_000


def wrong(body: str, where: str = "FlowStarted") -> type[bm.Controller]:
    """A role that does `body` at observations of a kind."""
    names: dict[str, Any] = {"bm": bm}
    code = f"def on(self, now, observation, out):\n    if isinstance(observation, bm.{where}):\n        {body}\n"
    exec(compile(code, "wrong.py", "exec"), names)
    return type("Wrong", (bm.Controller,), {"on": names["on"]})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("out.set_window(observation.flow.flow, float('nan'))", "window: NaN is not a finite number"),
        ("out.set_window(observation.flow.flow, -1)", "window: -1 is not a finite number of at least 0"),
        ("out.set_rate(observation.flow.flow, float('inf'), 1)", "rate: inf is not"),
        ("out.wake_at(now)", "is not after now"),
        ("out.send('nowhere', b'')", 'there is no node "nowhere"'),
        ("while True: pass", "TimeLimit"),
    ],
)
def test_a_wrong_role_ends_its_trial_with_its_traceback(body: str, why: str) -> None:
    with pytest.raises(bm.TrialError) as error:
        scenario(wrong(body)).options(trials=2).run(jobs=2)
    assert [failure.trial for failure in error.value.failures] == [0, 1]
    for failure in error.value.failures:
        assert why in failure.why and not failure.is_bug
        assert 'File "wrong.py", line 3, in on' in failure.why


class Sometimes(bm.Controller):
    """Fails in the case with the small buffer only."""

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        if isinstance(observation, bm.FlowStarted) and self.parameters["fails"]:
            raise ValueError("as asked")


def test_other_trials_are_kept() -> None:
    some = scenario(Sometimes, fails=False).options(trials=2)
    with pytest.warns(bm.TrialWarning, match="2 of 4 trials failed"):
        result = some.run(sweep={"schemes.mine.fails": [False, True]})
    assert [failure.trial for failure in result.failures] == [0, 1]
    assert "ValueError: as asked" in result.failures[0].why
    assert not result.complete and len(result.trials) == 2


class Wrong(bm.Controller):
    """Does one thing that a role must not."""

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        if not isinstance(observation, bm.FlowStarted):
            return
        flow = observation.flow.flow
        match self.parameters["how"]:
            case "raise":
                raise ValueError("as asked")
            case "undefined":
                out.set_window(flow, float("nan"))
            case "negative":
                out.set_window(flow, -1)
            case "loop":
                while True:
                    pass


WRONG = {
    "raise": "ValueError: as asked",
    "undefined": "window: NaN is not a finite number",
    "negative": "window: -1 is not a finite number of at least 0",
    "loop": "TimeLimit",
}


@pytest.mark.parametrize("where", ["threads", "processes", "dask"])
def test_a_wrong_role_loses_its_trials_alone_wherever_they_run(where: str) -> None:
    scheme = bm.Scheme("mine", [Wrong], {"how": "nothing"}, time_limit=0.3)
    some = bm.Scenario(SCENARIO, schemes=[scheme]).options(trials=2)
    sweep = {"schemes.mine.how": list(WRONG)}
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
    for how, why in WRONG.items():
        failures = [failure for failure in result.failures if failure.case.endswith(f"= {how}")]
        assert [failure.trial for failure in failures] == [0, 1], result.failures
        for failure in failures:
            assert why in failure.why and "in on" in failure.why and not failure.is_bug


@pytest.mark.parametrize("method", ["nodes", "peers", "__init__"])
def test_what_loops_before_the_run_ends_too(method: str) -> None:
    def loops(*_: Any) -> Any:
        while True:
            pass

    role = type("Early", (bm.Controller,), {method: loops if method == "__init__" else classmethod(loops)})
    with pytest.raises(bm.TrialError, match="TimeLimit"):
        bm.Scenario(SCENARIO, schemes=[bm.Scheme("mine", [role], time_limit=0.2)]).options(trials=1).run()


@pytest.mark.parametrize("method", ["nodes", "peers", "__init__"])
def test_what_fails_before_the_run_fails_its_trials(method: str) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError(method)

    role = type("Early", (bm.Controller,), {method: fails if method == "__init__" else classmethod(fails)})
    with pytest.raises(bm.TrialError, match="KeyError: '" + method):
        scenario(role).options(trials=1).run()


def test_schemes_go_to_executors(tmp_path: Path) -> None:
    mine = scenario(Halves, rate="2mbit")
    mine.run(out=tmp_path / "threads")
    with ProcessPoolExecutor(2) as pool:
        mine.run(out=tmp_path / "pool", executor=pool, shards=3)
    assert_same(tmp_path / "pool", tmp_path / "threads")


def test_dask_takes_classes_of_a_notebook(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    program = f"""
import bandmaster as bm, distributed

class Slow(bm.Controller):
    def on(self, now, observation, out):
        if isinstance(observation, bm.FlowStarted):
            out.set_rate(observation.flow.flow, 1e6, 64_000)

if __name__ == "__main__":
    s = bm.Scenario({SMALL!r} + "[schemes.slow]\\n", schemes=[Slow])
    s.run(out="threads")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            s.run(out="dask", executor=client)
"""
    (tmp_path / "program.py").write_text(program)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=120)
    assert_same(tmp_path / "dask", tmp_path / "threads")


def test_many_scenarios_share_a_scheme() -> None:
    mine = bm.Scheme("mine", [Halves], {"rate": "1mbit"})
    kept = [bm.Scenario(SCENARIO, schemes=[mine]) for _ in range(100)]
    others = [
        bm.Scenario(SCENARIO, schemes=[bm.Scheme("mine", [Halves], {"rate": "1mbit"})]).trials for _ in range(100)
    ]
    assert len(kept) == len(others) == 100
    with pytest.raises(bm.UsageError, match="no roles"):
        bm.Scheme("none", [])


class Idle(bm.Controller):
    interval = 20e-6
    wants = ()
    calls = 0

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        Idle.calls += 1


@pytest.mark.timing
def test_a_call_costs_less_than_20_microseconds() -> None:
    costs = []
    for _ in range(3):
        Idle.calls = 0
        began = time.perf_counter()
        scenario(Idle).options(trials=1).run(jobs=1)
        costs.append((time.perf_counter() - began) / Idle.calls)
    print(f"{min(costs) * 1e6:.1f} us a call, of {Idle.calls}")
    assert Idle.calls > 50_000 and min(costs) < 20e-6, costs
