"""Congestion controls in Python, which run in the simulator like the built-in ones."""

from __future__ import annotations

from typing import Any, ClassVar

from ._bandmaster import Ack, Window

__all__ = ["Ack", "CongestionControl", "Window"]


class CongestionControl:
    """The congestion control of a TCP connection. A scenario names it: `congestion-control = "NAME"`.

    Each connection has an object of the class. Connections find and repair losses as with the built-in controls
    (SACK, RFC 6675); the class says how large the window is. All windows are in payload bytes.

    >>> import bandmaster as bm
    >>> class Reno(bm.CongestionControl):
    ...     def on_ack(self, window, ack):
    ...         if window.cwnd < window.ssthresh:
    ...             window.cwnd += ack.acked
    ...         else:
    ...             window.cwnd += self.mss * ack.acked / window.cwnd
    ...     def on_loss(self, window, in_flight):
    ...         return max(in_flight / 2, 2 * self.mss)
    >>> net = bm.dumbbell(1, 1, access=bm.link("1gbit", "1ms"), bottleneck=bm.link("5mbit", "10ms", queue="30pkt"))
    >>> net.add_flows("uploads", "left", "right")
    >>> net.add("tcp", congestion_control="reno-in-python")
    >>> Reno.name = "reno-in-python"
    >>> result = net.scenario("reno", duration="5s", controls=[Reno]).run()
    >>> round(result.summary["rows"][0]["metrics"]["throughput"]["mean"], 1)
    4.7
    """

    name: ClassVar[str]
    """How scenario files call it. Default: the class in lower case."""

    time_limit: ClassVar[float] = 10.0
    """Longest time that a call may take, in s. A longer one is ended by `TimeLimit`, as soon as Python runs in it."""

    mss: int
    """Maximum segment size of the connection, in payload bytes. Set before `__init__`, which takes no arguments."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    def on_ack(self, window: Window, ack: Ack) -> None:
        """Change `window` after an acknowledgement of new data.

        Not called during fast recovery, nor while the application or the receiver limits the connection.

        Args:
            window: `cwnd` of at least one segment and `ssthresh`, which is infinite before the first loss. Fractions of
                bytes are kept. Setting one below a segment, above 2^50 bytes or to no number raises `ValueError`.
            ack: The time, bytes newly acknowledged, and round-trip times.
        """
        raise NotImplementedError(f"{type(self).__name__}.on_ack")

    def on_loss(self, window: Window, in_flight: int) -> float:
        """Give the new slow start threshold, in payload bytes, after a loss or a timeout.

        Fast recovery ends with a window of this size. After a timeout the window is one segment. A threshold that is
        below a segment, above 2^50 bytes or no number ends the trial.

        Args:
            window: The window before the loss. What is changed in it does not count.
            in_flight: Payload bytes outstanding.
        """
        raise NotImplementedError(f"{type(self).__name__}.on_loss")

    def on_mark(self, window: Window, in_flight: int) -> float:
        """Give the new slow start threshold, in payload bytes, after an ECN echo. Default: that of a loss.

        Args:
            window: As for `on_loss`.
            in_flight: Payload bytes outstanding.
        """
        return self.on_loss(window, in_flight)

    def on_timeout(self) -> None:
        """Note that a retransmission timeout has set the window to one segment. Default: nothing."""
