"""What goes wrong, as exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._results import Result


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a scenario, and where."""

    file: str
    """The file, as it was named."""
    line: int
    """Number of the line from 1; 0 when `set`, `sweep` or another argument brought the value."""
    column: int
    """Number of the column from 1, in characters; 0 as for the line."""
    key: str
    """Dotted path of the key or table, as `Scenario.set` takes it; empty for the whole file."""
    message: str
    """What is wrong, with the value."""
    hint: str | None
    """What to write instead."""


@dataclass(frozen=True)
class Failure:
    """A trial without a record."""

    case: str
    """Variant, and points of sweeps: `bas, buffer = 60pkt`."""
    trial: int
    """Number of the trial, from 0."""
    why: str
    """The reason; of a scheme in Python, its traceback."""
    is_bug: bool
    """The simulator panicked: please report it."""

    def __str__(self) -> str:
        bug = "a bug of bandmaster, please report it: " if self.is_bug else ""
        return f"{self.case}, trial {self.trial}: {bug}{self.why}"


class BandmasterError(Exception):
    """What all errors of bandmaster are."""


class UsageError(BandmasterError, ValueError):
    """An argument or a folder does not fit; nothing was touched."""


class ScenarioError(UsageError):
    """A scenario is wrong. `file`, `line`, `column` and `key` are those of the first problem."""

    file: str
    """The file, as it was named."""
    line: int
    """Number of the line from 1; 0 as in `Problem`."""
    column: int
    """Number of the column from 1, in characters; 0 as for the line."""
    key: str
    """Dotted path of the key or table."""
    problems: list[Problem]
    """Everything that is wrong, in the order of the file."""

    def __init__(self, text: str, problems: list[tuple[str, int, int, str, str, str | None]]) -> None:
        super().__init__(text, problems)
        self.problems = [Problem(*problem) for problem in problems]
        first = self.problems[0]
        self.file, self.line, self.column, self.key = first.file, first.line, first.column, first.key

    def __str__(self) -> str:
        return str(self.args[0])


class RunError(BandmasterError, RuntimeError):
    """Reading, writing or running failed."""


class TrialError(RunError):
    """All trials failed, so that there is no result."""

    failures: list[Failure]
    """Why, for each trial."""

    def __init__(self, failures: list[Failure]) -> None:
        more = f"\nand {len(failures) - 3} more" if len(failures) > 3 else ""
        super().__init__("\n".join(str(failure) for failure in failures[:3]) + more)
        self.failures = failures


class ExecutorError(RunError):
    """Shards did not come back."""

    result: Result | None
    """The trials of the others; none when nothing came back."""

    def __init__(self, text: str, result: Result | None) -> None:
        super().__init__(text)
        self.result = result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a run."""

    result: Result | None
    """The trials that had finished; none when none had."""

    def __init__(self, text: str, result: Result | None) -> None:
        super().__init__(text)
        self.result = result


class TrialWarning(UserWarning):
    """Some trials failed; the result has the others, and `Result.failures` the reasons."""
