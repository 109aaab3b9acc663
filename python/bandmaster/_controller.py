"""Schemes in Python, in the simulator beside the built-in ones."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from . import _bandmaster
from ._bandmaster import (
    Carried,
    Flow,
    FlowEnded,
    FlowStarted,
    Joined,
    Left,
    Message,
    Network,
    Out,
    Port,
    Refused,
    Sent,
    Tick,
)
from ._congestion import CongestionControl
from ._errors import UsageError

Observation: TypeAlias = Tick | Sent | FlowStarted | Carried | FlowEnded | Message | Joined | Left | Refused
"""What a role is told."""

Parameters: TypeAlias = "dict[str, bool | int | float | str | list[str]]"
"""Values of a scheme's parameters: rates in bit/s, times in s, sizes in bytes, queues in packets."""

__all__ = [
    "Carried",
    "Controller",
    "Flow",
    "FlowEnded",
    "FlowStarted",
    "Joined",
    "Left",
    "Message",
    "Network",
    "Observation",
    "Out",
    "Parameters",
    "Port",
    "Refused",
    "Scheme",
    "Sent",
    "Tick",
    "TimeLimit",
]


class TimeLimit(BaseException):
    """A call of a role took longer than `Scheme.time_limit`. No `except Exception` catches it."""


class Controller:
    """One role of a scheme at one node.

    The simulator makes an object for each node of `nodes` and each trial. Its only clock is `now`. Seed a generator
    of random numbers from `self.node`, or trials differ from run to run. An exception ends the trial;
    `Result.failures` has its traceback.

    `__init__` takes no arguments; `node`, `network` and `parameters` are set before it is called.
    """

    interval: ClassVar[float | None] = None
    """Time between two ticks in s; none: ticks come only when `Out.wake_at` asks for them. The first comes at 0 s."""

    wants: ClassVar[Sequence[str]] = ("ports", "flows")
    """What ticks bring: statistics of the node's `ports`, of the `flows` that end there. Fewer cost less."""

    node: str
    """Name of the node."""
    network: Network
    """The network: names of nodes, ports, routes of flows."""
    parameters: Parameters
    """Values of the scheme's parameters in this case."""

    @classmethod
    def nodes(cls, parameters: Parameters, network: Network) -> Iterable[str]:
        """Give the names of the nodes at which this role runs. Default: every host that receives a TCP flow."""
        ends = {port[0]: port[2] for port in network.ports}
        return list(dict.fromkeys(ends[route[-1]] for route in network.routes if route))

    def on(self, now: float, observation: Observation, out: Out) -> None:
        """Take an observation.

        Args:
            now: Time since the start of the trial, in s.
            observation: What happened.
            out: Takes what is to be done, in order.
        """
        raise NotImplementedError


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
            UsageError: There is no role, or `time_limit` is not positive.
        """
        if not roles:
            raise UsageError(f"the scheme {name!r} has no roles")
        if not time_limit > 0:
            raise UsageError(f"time_limit: {time_limit} s is not positive")
        self.name = name
        self.roles = tuple(roles)
        self.parameters = dict(parameters or {})
        self.about = about
        self.time_limit = time_limit

    def __repr__(self) -> str:
        return f"<Scheme {self.name!r}, roles {', '.join(role.__name__ for role in self.roles)}>"

    @classmethod
    def of(cls, scheme: Scheme | type[Controller]) -> Scheme:
        """Give a scheme; of a role its own, without parameters, which is called as the class in lower case."""
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
