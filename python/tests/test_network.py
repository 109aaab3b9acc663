"""Networks built in Python are the TOML that they are."""

from __future__ import annotations

import pytest
from conftest import SMALL

import bandmaster as bm

FAST, SLOW = bm.link("100mbit", "1ms"), bm.link("10mbit", "5ms", queue="30pkt")


def test_a_network_gives_the_results_of_its_file() -> None:
    net = bm.dumbbell(2, 2, access=FAST, bottleneck=SLOW)
    net.add_flows("up", "left", "right", start="uniform(0s, 50ms)")
    built = net.scenario("small", duration="600ms", trials=6, sample="100ms").run()
    written = bm.Scenario(SMALL).run()
    assert built.summary["rows"] == written.summary["rows"]


@pytest.mark.parametrize(
    ("net", "ends"),
    [
        (bm.star(4, link=FAST), ("hosts.0", "hosts.1")),
        (bm.parking_lot(2, 1, access=FAST, bottleneck=SLOW), ("h1", "h3")),
        (bm.leaf_spine(2, 2, 2, access=FAST, fabric=SLOW), ("leaf1-hosts", "leaf2-hosts")),
        (bm.fat_tree(4, access=FAST, fabric=SLOW), ("pod1", "pod2")),
    ],
)
def test_every_builder_runs(net: bm.Net, ends: tuple[str, str]) -> None:
    net.add_flows("all", *ends)
    assert net.scenario("mine", duration="200ms").run().complete


def test_links_and_further_tables() -> None:
    net = bm.Net(hosts=["a", "b"], routers=["r"])
    net.add_link("a", "r", FAST)
    net.add_link("r", "b", SLOW)
    net.add_flows("one", "a", "b", size="100kB")
    net.add("tcp", congestion_control="cubic")
    net.add("[sweeps]", name="delay", key="network.links.r-b.delay", values=["5ms", "2ms"])
    scenario = net.scenario("mine", duration="2s", trials=2)
    assert scenario.trials == 4
    flows = scenario.run().flows.to_polars()
    assert flows["size"].to_list() == [100_000] * 4 and flows["fct_s"].null_count() == 0


def test_what_is_wrong_has_its_line_in_the_toml() -> None:
    net = bm.dumbbell(2, 2, access=FAST, bottleneck=bm.link("10", "5ms"))
    net.add_flows("up", "left", "right")
    with pytest.raises(bm.ScenarioError) as error:
        net.scenario("mine", duration="1s")
    assert error.value.key == "network.bottleneck.rate" and error.value.line == 12
    with pytest.raises(bm.UsageError, match="cannot be written"):
        bm.star(2, link={"rate": object()}).scenario("mine", duration="1s")
