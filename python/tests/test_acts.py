"""What roles in Python do besides windows, rates and messages: probes, classes, settings of TCP, gauges."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest
from conftest import SMALL

import bandmaster as bm

LARGE_QUEUE = SMALL.replace('"30pkt"', '"1000pkt"') + "\n[schemes.mine]\n"


def scenario(*roles: type[bm.Controller], text: str = LARGE_QUEUE, **parameters: Any) -> bm.Scenario:
    return bm.Scenario(text, schemes=[bm.Scheme("mine", roles, parameters)]).options(trials=1)


class Prober(bm.Controller):
    """Sends the other end a probe every 50 ms."""

    interval = 0.05
    wants = ("left",)
    acts = ("probe",)
    left: ClassVar[dict[bytes, tuple[float, int, int]]] = {}
    came: ClassVar[dict[bytes, tuple[float, int, int]]] = {}
    counted: ClassVar[list[tuple[float, int, int]]] = []
    refused: ClassVar[list[tuple[str, str]]] = []

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return ["left.0", "right.0"]

    @classmethod
    def peers(cls, node: str, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return ["right.0" if node == "left.0" else "left.0"]

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        match observation:
            case bm.Tick() if self.node == "left.0":
                out.probe("right.0", f"{now:.2f}".encode())
                out.probe("left.1", b"astray")
            case bm.Counted(data_packets=packets, data_bytes=size) if self.node == "left.0":
                self.counted.append((now, packets, size))
            case bm.ProbeLeft(payload=payload, data_packets=packets, data_bytes=size):
                self.left[payload] = now, packets, size
            case bm.ProbeCame(sender="left.0", payload=payload, data_packets=packets, data_bytes=size):
                assert self.node == "right.0"
                self.came[payload] = now, packets, size
            case bm.Refused(subject=subject, why=why):
                self.refused.append((subject, why))


def test_probes_come_behind_the_data_that_left_before() -> None:
    for seen in (Prober.left, Prober.came, Prober.counted, Prober.refused):
        seen.clear()
    scenario(Prober).run()
    assert len(Prober.left) >= 12 and len(Prober.came) >= 5
    for payload, (came, *data) in Prober.came.items():
        left, *before = Prober.left[payload]
        # 7 ms, and the time of the packets on three links and in the queue.
        assert 0.007 < came - left < 1.0
        # Nothing is dropped, and all data of left.0 goes to right.0: what left before came before.
        assert data == before
    counts = [packets for _, packets, _ in Prober.counted]
    assert counts == sorted(counts) and counts[-1] > 100
    assert all(packets == 0 or 50 < size / packets <= 1500 for _, packets, size in Prober.counted)
    assert set(Prober.refused) == {("left.1", "Unknown")}, "it is no peer"


HTB = """
version = 1
name = "classes"

[run]
duration = "3s"
warm-up = "1s"

[network]
builder = "dumbbell"
left = 1
right = 1
access = { rate = "100mbit", delay = "1ms" }

[network.bottleneck]
rate = "100mbit"
delay = "5ms"

[network.bottleneck.queue]
discipline = "htb"
rate = "10mbit"
limit = "50pkt"
default = "slow"

[[network.bottleneck.queue.classes]]
name = "slow"
rate = "1mbit"
ceil = "1mbit"

[[flows]]
name = "up"
from = "left"
to = "right"

[schemes.mine]
"""


class Shaper(bm.Controller):
    """Gives the class another rate at once."""

    wants = ()
    acts = ("set_class",)
    refused: ClassVar[list[tuple[str, str]]] = []

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return ["r1"]

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        match observation:
            case bm.Tick():
                out.set_class("r1->r2", 0, 4e6, 4e6)
                out.set_class("r1->r2", 7, 1e6, 1e6)
                out.set_class("r1->left.0", None, 1e6, 1e6)
                with pytest.raises(ValueError, match=r'"r2->r1" is a port of another node'):
                    out.set_class("r2->r1", None, 1e6, 1e6)
                with pytest.raises(ValueError, match="there is no port"):
                    out.set_class("r1->r9", None, 1e6, 1e6)
                with pytest.raises(ValueError, match="ceil: 1000000 bit/s is less than rate, 2000000 bit/s"):
                    out.set_class("r1->r2", 0, 2e6, 1e6)
                with pytest.raises(ValueError, match="rate: must be at least 1 bit/s"):
                    out.set_class("r1->r2", 0, 0, 1e6)
            case bm.Refused(subject=subject, why=why):
                self.refused.append((subject, why))


def throughput(result: bm.Result) -> float:
    """In Mbit/s."""
    found: float = result.summary["rows"][0]["metrics"]["throughput"]["mean"]
    return found


def test_classes_have_the_rates_that_a_role_sets() -> None:
    Shaper.refused.clear()
    shaped = scenario(Shaper, text=HTB)
    assert throughput(shaped.set("schemes.mine.enabled", False).run()) == pytest.approx(0.957, rel=0.03)
    assert throughput(shaped.run()) == pytest.approx(4 * 0.957, rel=0.03)
    assert Shaper.refused == [("class 7 of r1->r2", "Unknown"), ("root of r1->left.0", "Unknown")]


class Tuner(bm.Controller):
    """Bounds the congestion windows of hosts before flows begin."""

    wants = ()
    acts = ("tune",)
    refused: ClassVar[list[tuple[str, str]]] = []

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return [node for node in network.nodes if node.startswith("left") or node == "r1"]

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        match observation:
            case bm.Tick():
                out.tune(window_cap=2, variant="cubic", min_rto=0.2, initial_rto=1.0, pacing=False, idle_restart=True)
                with pytest.raises(ValueError, match='variant: "vegas" is none of tahoe, reno, newreno'):
                    out.tune(variant="vegas")
                with pytest.raises(ValueError, match="initial_window: 0 is not a number from 1 to 1000"):
                    out.tune(initial_window=0)
                with pytest.raises(ValueError, match="min_rto: must be longer than 0 s"):
                    out.tune(min_rto=0.0)
                with pytest.raises(ValueError, match="initial_rto: NaN is not"):
                    out.tune(initial_rto=float("nan"))
            case bm.Refused(subject=subject, why=why):
                self.refused.append((subject, why))


def test_hosts_have_the_settings_that_a_role_sets() -> None:
    Tuner.refused.clear()
    text = SMALL.replace('duration = "600ms"', 'duration = "3s"') + "\n[schemes.mine]\n"
    tuned = scenario(Tuner, text=text)
    assert throughput(tuned.set("schemes.mine.enabled", False).run()) > 9.0
    # Two flows of two segments of 1,448 bytes a round trip of a little more than 14 ms.
    assert throughput(tuned.run()) == pytest.approx(2 * 2 * 1448 * 8 / 0.0175 * 1e-6, rel=0.15)
    assert Tuner.refused == [("tcp", "Unknown")], "a router has none"


def test_multipath_tcp_is_not_tuned() -> None:
    text = SMALL.replace('to = "right"', 'to = "right"\nsubflows = 2')
    text += "\n[schemes.mine]\n"
    scenario(Prober, text=text)
    with pytest.raises(bm.ScenarioError, match="mine changes plain TCP"):
        scenario(Tuner, text=text)


class Shows(bm.Controller):
    """Shows what it says to know."""

    interval = 0.1
    wants = ()
    shows = ("estimate", "spare")

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        return ["r1"]

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        if isinstance(observation, bm.Tick):
            out.show("estimate", 5.0 if now < 0.25 else 7.0)
            with pytest.raises(ValueError, match="classes: the role's `shows` lack it"):
                out.show("classes", 1.0)
            with pytest.raises(ValueError, match="estimate: inf is infinite"):
                out.show("estimate", float("inf"))


def test_gauges_are_in_the_results() -> None:
    result = scenario(Shows, text=LARGE_QUEUE + '\n[measure]\ngauges = ["r1.estimate"]\n').run()
    series = result.series.to_polars()
    own = series.filter(series["entity"] == "r1")
    assert own["estimate"].to_list() == [5.0, 5.0, 5.0, 7.0, 7.0, 7.0]
    assert own["spare"].is_null().all() or own["spare"].is_nan().all()
    metrics = result.summary["rows"][0]["metrics"]
    assert metrics["r1.estimate.min"]["mean"] == 5.0 and metrics["r1.estimate.max"]["mean"] == 7.0


@pytest.mark.parametrize(
    ("attribute", "words", "why"),
    [
        ("wants", ("port",), '"port" is none of "ports", "flows", "left", "came"'),
        ("wants", ("left", "came"), 'a role counts at one end, "left" or "came"'),
        ("wants", "ports", "is no list of texts"),
        ("acts", ("set-window",), '"set-window" is none of "set_window", "set_rate"'),
        ("acts", ("watch",), '"watch" is a call for each packet'),
        ("acts", ("rewrite",), '"rewrite" is a call for each packet'),
        ("shows", ("gain",), '"gain" is none of "estimate", "step"'),
        ("shows", ("estimate", "spare", "estimate"), '"estimate" is there twice'),
    ],
)
def test_a_role_that_states_what_there_is_not_is_refused(attribute: str, words: Any, why: str) -> None:
    role = type("Wrong", (bm.Controller,), {attribute: words})
    with pytest.raises(bm.UsageError, match=f"Wrong.{attribute}: {why}"):
        scenario(role)


def test_peers_have_a_role() -> None:
    lonely = type("Lonely", (Prober,), {"nodes": classmethod(lambda cls, parameters, network: ["left.0"])})
    with pytest.raises(bm.TrialError, match=r'peers: no role of the scheme runs at "right\.0"'):
        scenario(lonely).run()


@pytest.mark.parametrize("word", ["left", "came"])
def test_who_counts_has_a_peer(word: str) -> None:
    deaf = type("Deaf", (bm.Controller,), {"wants": (word,), "nodes": classmethod(lambda *_: ["r1"])})
    why = rf'Deaf.wants: "{word}" counts on the way to the first peer, and `peers` gives none at "r1"'
    with pytest.raises(bm.TrialError, match=why):
        scenario(deaf).run()


def test_the_time_limit_is_of_each_call() -> None:
    class Slow(bm.Controller):
        wants = ()

        @classmethod
        def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
            return ["left.0", "left.1", "r1"]

        @classmethod
        def peers(cls, node: str, parameters: bm.Parameters, network: bm.Network) -> list[str]:
            time.sleep(0.4)
            return []

        def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None: ...

    scheme = bm.Scheme("mine", [Slow], {}, time_limit=1.0)
    bm.Scenario(LARGE_QUEUE, schemes=[scheme]).options(trials=1).run()


def test_parallel_links_have_names_of_their_own() -> None:
    names: list[str] = []

    class Looks(bm.Controller):
        @classmethod
        def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
            names.extend(name for name, *_ in network.ports if name.startswith("a->b"))
            return []

        def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None: ...

    text = """
        version = 1
        name = "parallel"
        run = { duration = "100ms" }
        network.hosts = ["a", "b"]
        network.links = [
            { ends = ["a", "b"], rate = "10mbit", delay = "1ms", queue = "30pkt" },
            { ends = ["a", "b"], rate = "20mbit", delay = "1ms", queue = "30pkt", parallel = true },
        ]
        flows = [{ name = "up", from = "a", to = "b" }]
        schemes.mine = {}
    """
    scenario(Looks, text=text).run()
    assert names == ["a->b", "a->b#2"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("out.probe('left.1', b'')", "probe: the role's `acts` do not have it"),
        ("out.tune(pacing=True)", "tune: the role's `acts` do not have it"),
        ("out.set_class('right.0->r2', None, 1, 1)", "set_class: the role's `acts` do not have it"),
        ("out.probe('left.1', b' ' * 1473)", "payload: 1473 bytes are more than 1472"),
        ("out.probe('nowhere', b'')", 'there is no node "nowhere"'),
    ],
)
def test_acts_that_a_role_does_not_state_end_its_trial(call: str, why: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(f"def on(self, now, observation, out):\n    {call}\n", "wrong.py", "exec"), names)
    with pytest.raises(bm.TrialError) as error:
        scenario(type("Wrong", (bm.Controller,), {"on": names["on"]})).run()
    assert why in error.value.failures[0].why and 'File "wrong.py", line 2, in on' in error.value.failures[0].why
