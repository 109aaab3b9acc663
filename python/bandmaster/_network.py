"""Networks and traffic built in Python, written as the TOML of a scenario file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ._congestion import CongestionControl
from ._controller import Controller, Scheme
from ._errors import UsageError
from ._scenario import Scenario


def _key(name: str) -> str:
    """`frame_overhead` is `frame-overhead` in TOML."""
    return name.strip("_").replace("_", "-")


def _toml_key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(of)}" for key, of in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(of) for of in value) + "]"
    raise UsageError(f"{value!r} cannot be written: give numbers, texts, truth values, lists and dictionaries")


def _table(head: str, content: Mapping[str, Any]) -> str:
    return "\n".join([head, *(f"{_toml_key(key)} = {_toml(of)}" for key, of in content.items()), ""])


def _content(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {_key(key): value for key, value in keys.items() if value is not None}


class Net:
    """A network and its traffic, to be made a `Scenario`.

    Everything is a key of a scenario file: keyword arguments with `_` are keys with `-`, quantities are texts with a
    unit, and nothing is checked before `scenario`.

    >>> import bandmaster as bm
    >>> net = bm.dumbbell(2, 2, access=bm.link("100mbit", "1ms"), bottleneck=bm.link("10mbit", "5ms"))
    >>> net.add_flows("up", "left", "right", start="uniform(0s, 50ms)")
    >>> print(net.scenario("mine", duration="1s").text)
    version = 1
    name = "mine"
    <BLANKLINE>
    [run]
    duration = "1s"
    <BLANKLINE>
    [network]
    builder = "dumbbell"
    left = 2
    right = 2
    access = { rate = "100mbit", delay = "1ms" }
    bottleneck = { rate = "10mbit", delay = "5ms" }
    <BLANKLINE>
    [[flows]]
    name = "up"
    from = "left"
    to = "right"
    start = "uniform(0s, 50ms)"
    <BLANKLINE>
    """

    def __init__(self, builder: str | None = None, **keys: Any) -> None:
        """Begin with what a builder makes; without one, with `hosts`, `routers` and `add_link`.

        Args:
            builder: Its name: `dumbbell`, `star`, ...
            keys: Keys of `[network]`.
        """
        self._network = _content({"builder": builder, **keys})
        self._tables: list[str] = []
        self._links: list[str] = []

    def add_link(self, a: str, b: str, link: Mapping[str, Any]) -> None:
        """Link two nodes.

        Args:
            a: Name of a node.
            b: Name of another.
            link: What the function `link` gives.

        Raises:
            UsageError: A value cannot be written in TOML.
        """
        self._links.append(_table("[[network.links]]", {"ends": [a, b], **link}))

    def add_flows(self, name: str, source: str | Sequence[str], destination: str | Sequence[str], **keys: Any) -> None:
        """Add a flow group (`[[flows]]`), such as `count=4`, `start="1s"`, `size="1MB"`.

        Args:
            name: Its name.
            source: Sending hosts or groups: `from` of the file.
            destination: Receiving hosts or groups: `to` of the file.
            keys: Further keys.

        Raises:
            UsageError: A value cannot be written in TOML.
        """
        ends = {"name": name, "from": source, "to": destination}
        self._tables.append(_table("[[flows]]", {**ends, **_content(keys)}))

    def add_scheme(self, name: str, **parameters: Any) -> None:
        """Put a scheme in charge (`[schemes.NAME]`), built-in or in Python.

        Args:
            name: Its name.
            parameters: Its parameters; quantities are texts with a unit.

        Raises:
            UsageError: A value cannot be written in TOML.
        """
        self._tables.append(_table(f"[schemes.{_toml_key(name)}]", _content(parameters)))

    def add(self, table: str, **keys: Any) -> None:
        """Add any table.

        Args:
            table: Its name: `"tcp"` is `[tcp]`, and `"[sweeps]"` an element of a list, `[[sweeps]]`.
            keys: Its keys.

        Raises:
            UsageError: A value cannot be written in TOML.
        """
        self._tables.append(_table(f"[{table}]", _content(keys)))

    def scenario(
        self,
        name: str,
        *,
        duration: str,
        schemes: Sequence[Scheme | type[Controller]] = (),
        controls: Sequence[type[CongestionControl]] = (),
        **run: Any,
    ) -> Scenario:
        """Give the scenario.

        Args:
            name: Its name.
            duration: Simulated time, such as `"10s"`.
            schemes: Schemes in Python that it names.
            controls: Congestion controls in Python that it names.
            run: Further keys of `[run]`: `trials=10`, `warm_up="2s"`, `seed=1`.

        Raises:
            ScenarioError: Something is wrong; its line is one of the TOML.
            UsageError: A value cannot be written in TOML, or a scheme or control does not fit.
        """
        head = {"version": 1, "name": name}
        tables = [
            "\n".join(f"{key} = {_toml(value)}" for key, value in head.items()) + "\n",
            _table("[run]", {"duration": duration, **_content(run)}),
            _table("[network]", self._network),
            *self._links,
            *self._tables,
        ]
        return Scenario("\n".join(tables), schemes=schemes, controls=controls)


def link(rate: str, delay: str, **keys: Any) -> dict[str, Any]:
    """Give a link: `link("10mbit", "5ms", queue="60pkt")`.

    Args:
        rate: Rate with a unit.
        delay: One-way delay, or a draw such as `"uniform(1ms, 8ms)"`.
        keys: Further keys of links: `queue`, `loss`, `qdisc`, ...
    """
    return {"rate": rate, "delay": delay, **_content(keys)}


def dumbbell(left: int, right: int, *, access: Mapping[str, Any], bottleneck: Mapping[str, Any], **keys: Any) -> Net:
    """Give hosts `left` at router `r1` and hosts `right` at `r2`, with one shared link.

    Args:
        left: Number of hosts of the group `left`.
        right: Number of hosts of the group `right`.
        access: Links of hosts, made by `link`.
        bottleneck: The shared link.
        keys: Further keys of `[network]`.
    """
    return Net("dumbbell", left=left, right=right, access=access, bottleneck=bottleneck, **keys)


def star(size: int, *, link: Mapping[str, Any], **keys: Any) -> Net:
    """Give hosts at one router `hub`.

    Args:
        size: Number of hosts, the group `hosts`.
        link: Links of hosts, made by the function `link`.
        keys: Further keys of `[network]`.
    """
    return Net("star", size=size, link=link, **keys)


def parking_lot(hops: int, size: int, *, access: Mapping[str, Any], bottleneck: Mapping[str, Any], **keys: Any) -> Net:
    """Give shared links in a row, with hosts `h1`, `h2`, ... at the routers `r1`, `r2`, ...

    Args:
        hops: Number of shared links.
        size: Number of hosts at each router.
        access: Links of hosts, made by `link`.
        bottleneck: The shared links.
        keys: Further keys of `[network]`.
    """
    return Net("parking-lot", hops=hops, size=size, access=access, bottleneck=bottleneck, **keys)


def leaf_spine(
    leaves: int, spines: int, size: int, *, access: Mapping[str, Any], fabric: Mapping[str, Any], **keys: Any
) -> Net:
    """Give routers `leaf1`, ... with hosts, linked to every router `spine1`, ...; the group `hosts` are all hosts.

    Args:
        leaves: Number of leaves.
        spines: Number of spines.
        size: Number of hosts at each leaf.
        access: Links of hosts, made by `link`.
        fabric: Links between routers.
        keys: Further keys of `[network]`.
    """
    return Net("leaf-spine", leaves=leaves, spines=spines, size=size, access=access, fabric=fabric, **keys)


def fat_tree(k: int, *, access: Mapping[str, Any], fabric: Mapping[str, Any], **keys: Any) -> Net:
    """Give a fat tree of k^3/4 hosts, the group `hosts`.

    Args:
        k: Number of ports per router, even.
        access: Links of hosts, made by `link`.
        fabric: Links between routers.
        keys: Further keys of `[network]`.
    """
    return Net("fat-tree", k=k, access=access, fabric=fabric, **keys)
