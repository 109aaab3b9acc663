"""Schemes in Python, which run in the simulator like the built-in ones."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from . import _bandmaster
from ._bandmaster import (
    Carried,
    Counted,
    Flow,
    FlowEnded,
    FlowMoved,
    FlowStarted,
    Joined,
    Left,
    Message,
    Network,
    Out,
    Port,
    ProbeCame,
    ProbeLeft,
    Refused,
    Sent,
    Tick,
)
from ._congestion import CongestionControl
from ._errors import UsageError

Observation: TypeAlias = (
    Tick
    | Sent
    | Counted
    | FlowStarted
    | FlowMoved
    | Carried
    | FlowEnded
    | Message
    | ProbeLeft
    | ProbeCame
    | Joined
    | Left
    | Refused
)
"""What a role observes."""

Parameters: TypeAlias = dict[str, Any]
"""Values of a scheme's parameters, of the types of their defaults. Quantities are numbers: rates in bit/s, times in s,
sizes in bytes, queues in packets."""

__all__ = [
    "Carried",
    "Controller",
    "Counted",
    "Flow",
    "FlowEnded",
    "FlowMoved",
    "FlowStarted",
    "Joined",
    "Left",
    "Message",
    "Network",
    "Observation",
    "Out",
    "Parameters",
    "Port",
    "ProbeCame",
    "ProbeLeft",
    "Refused",
    "Scheme",
    "Sent",
    "Tick",
    "TimeLimit",
]


class TimeLimit(BaseException):
    """A call of a role or a congestion control took longer than its `time_limit`. No `except Exception` catches it."""


class Controller:
    """One role of a scheme at one node.

    The simulator makes an object for each node of `nodes` and each trial. Its only clock is `now`. Seed a generator
    of random numbers from `self.node`, or trials differ from run to run. An exception ends the trial;
    `Result.failures` has its traceback.

    `__init__` takes no arguments; `node`, `network` and `parameters` are set before it is called.

    >>> import bandmaster as bm
    >>> class Halve(bm.Controller):
    ...     def on(self, now, observation, out):
    ...         if isinstance(observation, bm.FlowStarted):
    ...             out.set_rate(observation.flow.flow, rate=2.5e6, window=64_000)
    >>> net = bm.dumbbell(2, 2, access=bm.link("1gbit", "1ms"), bottleneck=bm.link("5mbit", "10ms"))
    >>> net.add_flows("uploads", "left", "right")
    >>> net.add_scheme("halve")
    >>> result = net.scenario("two", duration="5s", schemes=[Halve]).run()
    >>> round(result.summary["rows"][0]["metrics"]["jain"]["mean"], 2)
    1.0
    """

    interval: ClassVar[float | None] = None
    """Time between two ticks in s; none: ticks come only when `Out.wake_at` asks for them. The first comes at 0 s."""

    wants: ClassVar[Sequence[str]] = ("ports", "flows")
    """What ticks bring: statistics of the node's `ports`, of the `flows` that end there, and the data that has `left`
    for the first peer or that `came` from it (`Counted`), which takes a peer (`peers`). Fewer cost less."""

    acts: ClassVar[Sequence[str]] = ("set_window", "set_rate", "measure_rtt", "send")
    """What the role does, by methods of `Out`: these four, `probe`, `set_class`, `tune`. Some scenarios refuse some:
    flows of an exchange have no windows of their own, and multipath TCP is not tuned."""

    shows: ClassVar[Sequence[str]] = ()
    """Gauges that `Out.show` gives values: `estimate`, `classes` and others of docs/simulator.md, in their units."""

    node: str
    """Name of the node."""
    network: Network
    """The network: names of nodes, ports, routes of flows."""
    parameters: Parameters
    """Values of the scheme's parameters in this case: rates in bit/s, times in s, sizes in bytes, queues in packets."""

    @classmethod
    def nodes(cls, parameters: Parameters, network: Network) -> Iterable[str]:
        """Give the names of the nodes at which this role runs. Default: every host that receives a TCP flow.

        Args:
            parameters: Values of the scheme's parameters, as in `Controller.parameters`.
            network: The network of the trial.
        """
        ends = {port[0]: port[2] for port in network.ports}
        return list(dict.fromkeys(ends[route[-1]] for route in network.routes if route))

    @classmethod
    def peers(cls, node: str, parameters: Parameters, network: Network) -> Iterable[str]:
        """Give the names of the nodes with which the role at a node exchanges probes. Default: none.

        The scheme has a role at each of them. A role that wants `left` or `came` has at least one.

        Args:
            node: Name of the node.
            parameters: As for `nodes`.
            network: As for `nodes`.
        """
        return ()

    def on(self, now: float, observation: Observation, out: Out) -> None:
        """Take an observation.

        Args:
            now: Time since the start of the trial, in s.
            observation: What happened.
            out: Takes what is to be done, in order.
        """
        raise NotImplementedError(f"{type(self).__name__}.on")


class Scheme:
    """A scheme of several roles, or one with parameters.

    >>> import bandmaster as bm
    >>> class Nothing(bm.Controller):
    ...     def on(self, now, observation, out):
    ...         pass
    >>> bm.Scheme("nothing", [Nothing], {"gain": 0.5, "rate": "5mbit"})
    <Scheme 'nothing', roles Nothing>
    """

    def __init__(
        self,
        name: str,
        roles: Sequence[type[Controller]],
        parameters: Mapping[str, bool | int | float | str | list[str]] | None = None,
        *,
        about: str = "A scheme in Python",
        time_limit: float = 10.0,
    ) -> None:
        """Describe a scheme.

        Args:
            name: Its name in scenario files: `[schemes.NAME]`.
            roles: Its kinds of roles. They send each other messages.
            parameters: Keys of `[schemes.NAME]` and their defaults, which say what values a key takes: a number, a
                truth value, a text, a quantity such as `"5mbit"`, or `[]` for a list of texts.
            about: One line about it.
            time_limit: Longest time that a call may take, in s. A longer one is ended by `TimeLimit`, as soon as Python
                code runs in it.

        Raises:
            UsageError: There is no role, or `time_limit` is not positive. Words of a role that there are not (`wants`,
                `acts`, `shows`) are refused when a scenario takes the scheme.
        """
        if not roles:
            raise UsageError(f"the scheme {name!r} has no roles")
        if not time_limit > 0:
            raise UsageError(f"time_limit: {time_limit} s is not positive")
        self.name = name
        """Its name in scenario files."""
        self.roles = tuple(roles)
        """Its kinds of roles."""
        self.parameters = dict(parameters or {})
        """Its parameters and their defaults, as given; quantities are texts with a unit."""
        self.about = about
        """One line about it."""
        self.time_limit = time_limit
        """Longest time that a call may take, in s."""

    def __repr__(self) -> str:
        return f"<Scheme {self.name!r}, roles {', '.join(role.__name__ for role in self.roles)}>"

    @classmethod
    def of(cls, scheme: Scheme | type[Controller]) -> Scheme:
        """Give a scheme.

        Args:
            scheme: A scheme, or a role: its scheme has no parameters, and is called as the class in lower case.
        """
        return scheme if isinstance(scheme, Scheme) else _of_role(scheme)


_SCHEMES: dict[type[Controller], Scheme] = {}


def _of_role(role: type[Controller]) -> Scheme:
    return _SCHEMES.setdefault(role, Scheme(role.__name__.lower(), [role]))


@contextmanager
def time_limits(called: Sequence[Scheme | type[CongestionControl]]) -> Iterator[None]:
    """Raise `TimeLimit` in calls that take too long, of roles and congestion controls."""
    if not called:
        yield
        return
    limit = min(each.time_limit for each in called)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(min(limit / 4, 0.25)):
            for thread in _bandmaster.overdue():
                _raise_in(thread, TimeLimit)

    threading.Thread(target=watch, name="bandmaster-time-limits", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _raise_in(thread: int, error: type[BaseException]) -> Any:
    return ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
