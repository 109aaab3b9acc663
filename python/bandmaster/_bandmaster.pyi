from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias

VERSION: str

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

def overdue() -> list[int]: ...

class Window:
    """The window of a TCP connection, in payload bytes."""

    cwnd: float
    """Congestion window, of at least one segment."""
    ssthresh: float
    """Slow start threshold; infinite before the first loss."""

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
        """Ports: name `from->to`, the node that sends, the node that receives, rate in bit/s."""
    @property
    def routes(self) -> tuple[tuple[str, ...], ...]:
        """Ports on the way of each TCP flow's data."""

class Out:
    """Takes what a role wants done; done in order when the call has ended."""

    def set_window(self, flow: int, window: float | None) -> None:
        """Bound the data in flight of a flow at this node.

        Args:
            flow: Its number.
            window: Payload bytes, rounded down; none lets the flow go.

        Raises:
            ValueError: `window` is negative, infinite or not a number.
        """
    def set_rate(self, flow: int, rate: float, window: float) -> None:
        """Pace a flow from this node: a sender spaces its segments, a receiver its credit.

        Args:
            flow: Its number.
            rate: Payload rate in bit/s, at least 1.
            window: Most payload bytes outstanding.

        Raises:
            ValueError: A value is negative, infinite or not a number.
        """
    def measure_rtt(self, flow: int) -> None:
        """Have the round-trip time of a flow measured, of which this node is the receiver."""
    def send(self, to: str, body: bytes) -> None:
        """Send a message to the roles of this scheme at a node. The simulator delays it, and charges its size.

        Raises:
            ValueError: There is no such node.
        """
    def wake_at(self, at: float) -> None:
        """Ask for the next tick at a time in s, instead of after `interval`.

        Raises:
            ValueError: `at` is not after now.
        """

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
        """Flows that passed since this role's last tick; none where nobody counts them."""
    @property
    def flows_open(self) -> int | None:
        """Flows between their SYN and FIN; none where nobody counts them."""
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
        """Those of them that its queue dropped."""

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

class Tick:
    """The time that was asked for has come."""

    @property
    def ports(self) -> tuple[Port, ...]:
        """Ports of the node, when the role wants them."""
    @property
    def flows(self) -> tuple[Flow, ...]:
        """Open flows that end at the node, when the role wants them."""

class Sent:
    """What the TCP of the node has sent; comes before a tick that brings flows."""

    @property
    def segments(self) -> int:
        """Data segments since the start, those sent again included."""
    @property
    def resent(self) -> int:
        """Data segments sent again."""

class FlowStarted:
    """A flow begins at the node. A window or rate that is set now holds for its first packet."""

    @property
    def flow(self) -> Flow:
        """What is known of it."""
    @property
    def source(self) -> tuple[str, int]:
        """Address and port of its sender."""
    @property
    def destination(self) -> tuple[str, int]:
        """Address and port of its receiver."""
    @property
    def route(self) -> tuple[str, ...]:
        """Ports on the way of its data."""

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
        """What it was about: `flow 3`, or a node."""
    @property
    def why(self) -> str:
        """Why: `Unknown`, `Busy`, `Unable` or `Failed`."""
