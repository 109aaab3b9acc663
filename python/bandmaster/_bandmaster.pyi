from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias

VERSION: str
"""Version of the package, which workers of executors share."""

Ended: TypeAlias = tuple[int, int, list[tuple[str, int, str, bool]]]

class Run:
    name: str
    planned: int
    def __init__(
        self,
        path: str,
        text: str,
        folder: str | None,
        overrides: list[tuple[str, str]],
        sweeps: list[tuple[str, list[str]]],
        grid: bool,
        variants: list[str],
        base: bool,
        trials: int | None,
        seed: int | None,
        quick: bool,
        schemes: Sequence[object],
        controls: Sequence[object],
    ) -> None: ...
    @staticmethod
    def from_bytes(bytes: bytes, schemes: Sequence[object], controls: Sequence[object]) -> Run: ...
    def to_bytes(self) -> bytes: ...
    def run(
        self, out: str | PathLike[str], force: bool, jobs: int | None, progress: bool
    ) -> tuple[Ended, BaseException | None]: ...
    def shard(self, number: int, count: int, file: str | PathLike[str]) -> None: ...

class Gathering:
    def __init__(self, run: Run, out: str | PathLike[str], force: bool) -> None: ...
    def take(self, file: str | PathLike[str]) -> None: ...
    def finish(self) -> Ended: ...

class Table:
    def __init__(self, path: str | PathLike[str]) -> None: ...
    num_rows: int
    columns: list[tuple[str, str, str]]
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

def metric_axis(name: str) -> tuple[str, float, float]: ...
def overdue() -> list[int]: ...

class Window:
    """The window of a TCP connection, in payload bytes."""

    cwnd: float
    """Congestion window, in payload bytes: at least a segment."""
    ssthresh: float
    """Slow start threshold, in payload bytes; infinite before the first loss."""

class Ack:
    """An acknowledgement of new data."""

    @property
    def now(self) -> float:
        """The simulated time, in s."""
    @property
    def acked(self) -> int:
        """Payload bytes newly acknowledged."""
    @property
    def srtt(self) -> float | None:
        """Smoothed round-trip time (RFC 6298), in s."""
    @property
    def rtt(self) -> float | None:
        """Round-trip time that this acknowledgement measured, in s."""

class Network:
    """What is known of the network of a trial."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of hosts and routers."""
    @property
    def ports(self) -> tuple[tuple[str, str, str, int], ...]:
        """Ports: name, the node that sends, the node that receives, rate in bit/s.

        A name is `from->to`, and `from->to#2` for the second of parallel links.
        """
    @property
    def routes(self) -> tuple[tuple[str, ...], ...]:
        """By TCP flow: the ports on the way of its data."""

class Out:
    """Takes what a role wants done; done in order when the call has ended."""

    def set_window(self, flow: int, window: float | None) -> None:
        """Bound the data in flight of a flow at this node.

        Args:
            flow: Its number.
            window: Payload bytes, rounded down; none lets the flow go.

        Raises:
            ValueError: `window` is negative, infinite or not a number, or `acts` lacks `set_window`.
        """
    def set_rate(self, flow: int, rate: float, window: float) -> None:
        """Pace a flow from this node: a sender spaces its segments, a receiver its credit.

        Args:
            flow: Its number.
            rate: Payload rate in bit/s, at least 1.
            window: Most payload bytes outstanding.

        Raises:
            ValueError: A value is negative, infinite or not a number, or `acts` lacks `set_rate`.
        """
    def measure_rtt(self, flow: int) -> None:
        """Have the round-trip time of a flow measured, of which this node is the receiver.

        Args:
            flow: Its number.

        Raises:
            ValueError: `acts` lacks `measure_rtt`.
        """
    def send(self, to: str, body: bytes) -> None:
        """Send a message to the roles of this scheme at a node. The simulator delays it, and charges its size.

        Args:
            to: Name of the node.
            body: What to say.

        Raises:
            ValueError: There is no such node, or `acts` lacks `send`.
        """
    def probe(self, to: str, payload: bytes) -> None:
        """Send a datagram to a peer over the data path, behind the data sent before it.

        It takes part in queues as a packet of UDP with DSCP CS6, and may be lost. `ProbeLeft` comes when it leaves this
        node, `ProbeCame` at the peer.

        Args:
            to: Name of the peer's node, one of `Controller.peers`; to another the probe is `Refused`.
            payload: UDP payload, at most 1,472 bytes.

        Raises:
            ValueError: There is no such node, the payload is too long, or `acts` lacks `probe`.
        """
    def set_class(self, port: str, number: int | None, rate: float, ceil: float) -> None:
        """Change a class of the shaper (`htb`) at a port of this node. The simulator refuses what the port has not.

        Args:
            port: Name of the port, `from->to`.
            number: Position of the class in the scenario, from 0; none: the root.
            rate: What the class has in any case, in bit/s of frames, at least 1.
            ceil: What it never exceeds, in bit/s, at least `rate`.

        Raises:
            ValueError: This node has no such port, a rate is out of range, or `acts` lacks `set_class`.
        """
    def tune(
        self,
        *,
        initial_window: int | None = None,
        min_rto: float | None = None,
        initial_rto: float | None = None,
        variant: str | None = None,
        pacing: bool | None = None,
        idle_restart: bool | None = None,
        window_cap: int | None = None,
    ) -> None:
        """Change the TCP of this host for connections that it opens from now on. Each call stands for all before it.

        Args:
            initial_window: Initial congestion window, 1 to 1,000 segments. None, as for all others: the scenario's.
            min_rto: Least retransmission timeout, in s.
            initial_rto: Retransmission timeout before the first measurement, in s.
            variant: Congestion control: `tahoe`, `reno`, `newreno`, `bic`, `cubic` or `dctcp`, not one in Python.
            pacing: Pace segments over the round-trip time.
            idle_restart: Begin with the initial window after idle time (RFC 5681).
            window_cap: Most segments in the congestion window, 1 to 1,000,000.

        Raises:
            ValueError: A value is out of range, or `acts` lacks `tune`.
        """
    def show(self, gauge: str, value: float) -> None:
        """Show a value in results from now on.

        It is a column of `Result.series`; `measure.gauges` and `measure.tracking` of the scenario take it too.

        Args:
            gauge: One of `Controller.shows`.
            value: Its value in the unit of the gauge: `estimate` in Mbit/s. NaN: none.

        Raises:
            ValueError: `shows` lacks the gauge, or the value is infinite.
        """
    def wake_at(self, at: float) -> None:
        """Ask for the next tick at a time, instead of after `interval`.

        Args:
            at: Time since the start of the trial, in s.

        Raises:
            ValueError: `at` is not after now.
        """

class Tick:
    """The time that was asked for has come."""

    @property
    def ports(self) -> tuple[Port, ...]:
        """Statistics of ports of the node, one for each, when the role wants them."""
    @property
    def flows(self) -> tuple[Flow, ...]:
        """Statistics of open flows that end at the node, one for each, when the role wants them."""

class Port:
    """Statistics of a port of the node."""

    @property
    def port(self) -> str:
        """Its name, `from->to`."""
    @property
    def capacity(self) -> int:
        """Its rate in bit/s."""
    @property
    def flows_seen(self) -> int | None:
        """Number of flows that passed since this role's last tick; none where nobody counts them."""
    @property
    def flows_open(self) -> int | None:
        """Number of flows between their SYN and FIN; none where nobody counts them."""
    @property
    def backlog(self) -> int | None:
        """Bytes that wait; none where nobody tells."""
    @property
    def sent(self) -> int:
        """Bytes of packets that have begun transmission, since the start."""
    @property
    def offered(self) -> int:
        """Packets offered to the port, since the start."""
    @property
    def dropped(self) -> int:
        """Packets that its queue dropped, or that were lost because the link is down or went down, of those offered."""

class Flow:
    """Statistics of a flow at this node."""

    @property
    def flow(self) -> int:
        """Its number."""
    @property
    def end(self) -> str:
        """`sender` when its data leave here, `receiver` when they arrive."""
    @property
    def delivered(self) -> int:
        """Payload bytes delivered in order (receiver) or acknowledged (sender)."""
    @property
    def srtt(self) -> float | None:
        """Smoothed round-trip time in s, once measured."""
    @property
    def min_rtt(self) -> float | None:
        """Least round-trip time in s, once measured."""
    @property
    def last_rtt(self) -> float | None:
        """Latest round-trip time in s, once measured."""
    @property
    def mss(self) -> int:
        """Payload bytes of a full segment."""
    @property
    def frame(self) -> int:
        """Bytes that a full segment takes on a link."""

class Sent:
    """What the TCP of the node has sent; comes before a tick that brings flows."""

    @property
    def segments(self) -> int:
        """Data segments since the start, those sent again included."""
    @property
    def resent(self) -> int:
        """Data segments sent again."""

class Counted:
    """The data at this end of the way of probes; comes before a tick of a role that wants `left` or `came`."""

    @property
    def data_packets(self) -> int:
        """Data packets that have passed it, probes not included."""
    @property
    def data_bytes(self) -> int:
        """Their bytes of IP."""

class ProbeLeft:
    """A probe from this node leaves it."""

    @property
    def payload(self) -> bytes:
        """Its UDP payload."""
    @property
    def data_packets(self) -> int:
        """Data packets that left the same port before, probes not included."""
    @property
    def data_bytes(self) -> int:
        """Their bytes of IP."""

class ProbeCame:
    """A probe has come. Every role at the node hears of it, of other schemes too."""

    @property
    def sender(self) -> str:
        """Name of the node that sent it."""
    @property
    def payload(self) -> bytes:
        """Its UDP payload."""
    @property
    def data_packets(self) -> int:
        """Data packets that came over the same link before, probes not included."""
    @property
    def data_bytes(self) -> int:
        """Their bytes of IP."""

class FlowStarted:
    """A flow begins at the node. A window or rate that is set now holds for its first packet."""

    @property
    def flow(self) -> Flow:
        """What is known of it."""
    @property
    def source(self) -> tuple[str, int]:
        """Address and port number of its sender."""
    @property
    def destination(self) -> tuple[str, int]:
        """Address and port number of its receiver."""
    @property
    def route(self) -> tuple[str, ...]:
        """Names of the ports on the way of its data, in order."""

class FlowMoved:
    """The data of a flow at the node take another way, because a link or a node has failed or is back."""

    @property
    def flow(self) -> Flow:
        """What is known of it."""
    @property
    def route(self) -> tuple[str, ...]:
        """Names of the ports on the way of its data, in order."""

class Carried:
    """The last statistics of a flow; comes just before `FlowEnded`."""

    @property
    def flow(self) -> Flow:
        """The statistics."""

class FlowEnded:
    """A flow at the node has ended."""

    @property
    def flow(self) -> int:
        """Its number."""

class Message:
    """Another role of the scheme says something."""

    @property
    def sender(self) -> str:
        """Name of its node."""
    @property
    def body(self) -> bytes:
        """What it says."""

class Joined:
    """A node is in the network again."""

    @property
    def node(self) -> str:
        """Its name."""

class Left:
    """A node has gone, and with it its roles and flows."""

    @property
    def node(self) -> str:
        """Its name."""

class Refused:
    """The simulator did not do what the role wanted."""

    @property
    def subject(self) -> str:
        """What it was about: `flow 3`, a node, `class 0 of r1->r2`, `root of r1->r2`, or `tcp`."""
    @property
    def why(self) -> str:
        """Why: `Unknown`, `Busy`, `Unable` or `Failed`."""
