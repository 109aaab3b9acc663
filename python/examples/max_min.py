"""Max-min fair sharing as a scheme in Python, compared with the built-in BAS and plain TCP.

Receivers tell the allocator when a flow begins or ends. The allocator fills the links evenly until one is full,
takes out the flows of that link, and goes on with the others (Bertsekas and Gallager, Data Networks, section 6.5.2).
Receivers pace each flow at its share.

Run it in the root of the repository: `python python/examples/max_min.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import bandmaster as bm

ALLOCATOR = "r1"
PAYLOAD = 0.95
"""Part of a link's rate that is shared: headers and room for queues to drain take the rest."""


def max_min(routes: dict[str, list[str]], capacities: dict[str, float]) -> dict[str, float]:
    """Give each flow its max-min fair rate in bit/s."""
    left = dict(capacities)
    open_flows = dict(routes)
    rates: dict[str, float] = {}
    while open_flows:
        users = {port: [flow for flow, route in open_flows.items() if port in route] for port in left}
        share, port = min((left[port] / len(flows), port) for port, flows in users.items() if flows)
        for flow in users[port]:
            rates[flow] = share
            for passed in open_flows.pop(flow):
                left[passed] -= share
    return rates


class Receiver(bm.Controller):
    """Reports flows, and paces each at the rate that the allocator sends."""

    wants = ()

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        """Tell the allocator of flows, and do what it says."""
        match observation:
            case bm.FlowStarted(flow=flow, route=route) if flow.end == "receiver":
                out.send(ALLOCATOR, json.dumps([flow.flow, route]).encode())
            case bm.FlowEnded(flow=number):
                out.send(ALLOCATOR, json.dumps([number, []]).encode())
            case bm.Message(body=body):
                number, rate = json.loads(body)
                out.set_rate(number, rate, max(3_000.0, rate / 8 * 0.05))


class Allocator(bm.Controller):
    """Knows all flows, and gives each its share."""

    wants = ()

    @classmethod
    def nodes(cls, parameters: bm.Parameters, network: bm.Network) -> list[str]:
        """Run at one router."""
        return [ALLOCATOR]

    def __init__(self) -> None:
        """Begin without flows."""
        self.capacities = {name: PAYLOAD * rate for name, _, _, rate in self.network.ports}
        self.routes: dict[str, list[str]] = {}
        self.told: dict[str, float] = {}

    def on(self, now: float, observation: bm.Observation, out: bm.Out) -> None:
        """Share the links again when a flow begins or ends."""
        if not isinstance(observation, bm.Message):
            return
        number, route = json.loads(observation.body)
        flow = f"{observation.sender} {number}"
        self.routes.pop(flow, None)
        if route:
            self.routes[flow] = route
        rates = max_min(self.routes, self.capacities)
        for other, rate in rates.items():
            if self.told.get(other) != rate:
                receiver, number = other.split()
                out.send(receiver, json.dumps([int(number), rate]).encode())
        self.told = rates


SCHEME = bm.Scheme("python-max-min", [Receiver, Allocator], about="Max-min fair rates, in Python")


def scenario(path: str | os.PathLike[str] = "scenarios/examples/dumbbell.toml") -> bm.Scenario:
    """Give the example of the repository, with this scheme as a third variant."""
    text = Path(path).read_text(encoding="utf-8")
    off = '"schemes.python-max-min.enabled" = false'
    text = text.replace('set = { "schemes.bas.enabled" = false }', f'set = {{ "schemes.bas.enabled" = false, {off} }}')
    text = text.replace('title = "BAS, max-min"\n', f'title = "BAS, max-min"\nset = {{ {off} }}\n')
    mine = 'name = "python"\ntitle = "Max-min in Python"\nset = { "schemes.bas.enabled" = false }\n'
    text = text.replace("[[sweeps]]", f"[[compare]]\n{mine}\n[[sweeps]]", 1)
    return bm.Scenario(text.replace("[measure]", "[schemes.python-max-min]\n\n[measure]", 1), schemes=[SCHEME])


if __name__ == "__main__":
    result = scenario().run()
    for row in result.summary["rows"]:
        if row["base"]:
            metrics = {name: round(row["metrics"][name]["mean"], 3) for name in ("throughput", "jain", "queue")}
            print(row["variant"], metrics)
