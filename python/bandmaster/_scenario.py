"""Scenarios, and where they are run."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from . import _bandmaster
from ._congestion import CongestionControl
from ._controller import Controller, Scheme, time_limits
from ._errors import ExecutorError, Failure, Interrupted, TrialError, TrialWarning, UsageError
from ._results import Result

Value: TypeAlias = "bool | int | float | str | list[Any]"
"""A value of a key: a number, a truth value, a quantity such as `"5mbit"`, a text, or a list of them."""

SHARDS = 64
"""Most shards that a run is cut into on an executor that does not tell its threads, unless `shards` says otherwise."""

SHARDS_PER_THREAD = 8
"""Most shards for each thread of an executor that tells how many it has, as Dask's does."""


class Future(Protocol):
    """What `submit` of an executor gives."""

    def result(self) -> Any:
        """Wait for the value of the call.

        Raises:
            Exception: What the call raised, or why it cannot be made.
        """


class Executor(Protocol):
    """Anything that calls functions elsewhere: `concurrent.futures`, `dask.distributed.Client`."""

    def submit(self, fn: Any, /, *args: Any) -> Future:
        """Call a function on some worker.

        Args:
            fn: The function, which can be pickled.
            args: Its arguments.
        """


def _written(value: Any) -> str:
    """Write a value as `--set` takes it."""
    if isinstance(value, str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(v) if isinstance(v, str) else _written(v) for v in value) + "]"
    raise UsageError(f"{value!r} is no value of a key: give a number, a text, a truth value or a list")


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise UsageError(f"{name}: {value} is not a whole number from {least} to {most}")


class Scenario:
    """A scenario: a network, its traffic, the schemes in charge, sweeps and claims.

    A `Scenario` does not change: `set` and its like give another one.

    >>> import bandmaster as bm
    >>> quick = bm.Scenario("scenarios/examples/dumbbell.toml").set("run.trials", 1)
    >>> quick.name, quick.trials
    ('dumbbell', 8)
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        folder: str | os.PathLike[str] | None = None,
        schemes: Sequence[Scheme | type[Controller]] = (),
        controls: Sequence[type[CongestionControl]] = (),
    ) -> None:
        """Read a scenario file, or take the text of one.

        Args:
            source: Path of a file, or TOML of several lines.
            folder: Where the files are that the text names; without it, of a path its folder, of a text the
                working directory.
            schemes: Schemes in Python that the scenario names. Of a role alone, the scheme is called as its class
                in lower case.
            controls: Congestion controls in Python that the scenario names.

        Raises:
            ScenarioError: Something in it is wrong; the error says where.
            UsageError: A scheme or a congestion control does not fit: its name is taken, or what it states is no word.
            FileNotFoundError: There is no such file.
        """
        text = os.fspath(source)
        if "\n" in text:
            self._path, self._text = "scenario.toml", text
            self._folder = os.fspath(folder or ".")
        else:
            self._path, self._text = text, Path(text).read_text(encoding="utf-8")
            self._folder = os.fspath(folder or Path(text).parent)
        self._schemes = [Scheme.of(scheme) for scheme in schemes]
        self._controls = list(controls)
        for control in self._controls:
            if not (isinstance(control, type) and issubclass(control, CongestionControl)):
                raise UsageError(f"controls: {control!r} is no subclass of bandmaster.CongestionControl")
            if not isinstance(control.name, str) or not control.name:
                raise UsageError(f"{control.__name__}.name: {control.name!r} is no name")
            if not control.time_limit > 0:
                raise UsageError(f"{control.__name__}.time_limit: {control.time_limit} s is not positive")
        self._overrides: list[tuple[str, str]] = []
        self._trials: int | None = None
        self._seed: int | None = None
        self._quick = False
        self._variants: list[str] = []
        self._base = False
        self._checked: _bandmaster.Run | None = None
        self._run({})

    def _run(self, sweep: Mapping[str, Iterable[Any]], grid: bool = False) -> _bandmaster.Run:
        if grid and len(sweep) < 2:
            raise UsageError("grid: joins the values of two or more keys of `sweep`")
        if not sweep and self._checked:
            return self._checked
        sweeps = [(key, [_written(value) for value in values]) for key, values in sweep.items()]
        for key, values in sweeps:
            if not values:
                raise UsageError(f"the sweep of {key} has no values")
        run = _bandmaster.Run(
            self._path,
            self._text,
            self._folder,
            self._overrides,
            sweeps,
            grid,
            self._variants,
            self._base,
            self._trials,
            self._seed,
            self._quick,
            self._schemes,
            self._controls,
        )
        if not sweep:
            self._checked = run
        return run

    def _with(self, **changes: Any) -> Scenario:
        other = object.__new__(Scenario)
        other.__dict__.update(self.__dict__, _checked=None, **changes)
        other._run({})
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": None}

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r}, {self.trials} trials>"

    @property
    def name(self) -> str:
        """Its name."""
        return self._run({}).name

    @property
    def trials(self) -> int:
        """Number of trials of a run, over all variants and points of sweeps."""
        return self._run({}).planned

    @property
    def text(self) -> str:
        """Its TOML, without the changes of `set`."""
        return self._text

    def set(self, key: str, value: Value) -> Scenario:
        """Replace the value of a key, as `--set` does: over the file's and its variants' values.

        Args:
            key: Dotted path; elements of lists by name or position: `flows.uploads.count`.
            value: A number, a truth value, a list or a text; quantities are texts: `"5mbit"`, `"25ms"`.

        Raises:
            ScenarioError: There is no such key, or it does not take the value.
            UsageError: The value is none of these types.
        """
        return self._with(_overrides=[*self._overrides, (key, _written(value))])

    def options(
        self,
        *,
        trials: int | None = None,
        seed: int | None = None,
        quick: bool | None = None,
        variants: Sequence[str] | None = None,
        base: bool | None = None,
    ) -> Scenario:
        """Change what the options of a command line change. Options that are not given stay as they are.

        Args:
            trials: Number of trials per case, instead of `run.trials`.
            seed: Seed of every random stream, a whole number of at least 0, instead of `run.seed`.
            quick: Take `run.quick-trials` trials and the `quick` values of sweeps: a look, not a result.
            variants: Names of the variants to run, as `--variant`; `[]` for all. Claims and figures about others are
                left out.
            base: Leave out the sweeps of the file, as `--base`; those of `run` stay.

        Raises:
            UsageError: A number is out of range, or the scenario has no such variant.
        """
        _check_range("trials", trials, 1, 2**32 - 1)
        _check_range("seed", seed, 0, 2**63 - 1)
        if isinstance(variants, str):
            raise UsageError(f"variants: {variants!r} is a text: give a list of names")
        return self._with(
            _trials=self._trials if trials is None else trials,
            _seed=self._seed if seed is None else seed,
            _quick=self._quick if quick is None else quick,
            _variants=self._variants if variants is None else list(variants),
            _base=self._base if base is None else base,
        )

    def run(
        self,
        *,
        sweep: Mapping[str, Iterable[Value]] | None = None,
        grid: bool = False,
        out: str | os.PathLike[str] | None = None,
        force: bool = False,
        jobs: int | None = None,
        executor: Executor | None = None,
        shards: int | None = None,
        progress: bool | None = None,
    ) -> Result:
        """Run every variant, point of sweeps and trial.

        The result does not depend on where it is computed: the folder has the bytes that `bandmaster run` with the
        same options leaves.

        Args:
            sweep: Keys and the values that each takes, one key at a time, in addition to the sweeps of the file.
            grid: Make `sweep` one sweep, `grid`, of all combinations of its values, 10,000 points at most.
            out: Folder for the report, new or empty. Without it the result is in a temporary folder, which goes
                with the last reference to the result.
            force: Replace an earlier report in `out`.
            jobs: Number of trials at the same time, 1 to 1,024, in threads. Default: one for each processor.
            executor: Anything with `submit(fn, *args)`. Each call runs a shard on one thread of a worker, which needs
                this version of the package.
            shards: Number of shards into which a run on an executor is cut, at most one for each trial. Default: 8 for
                each thread of a Dask cluster, 64 on other executors.
            progress: Show a progress bar on stderr. Default: when stderr is a terminal.

        Raises:
            ScenarioError: A key or a value of `sweep` is wrong, or a grid has too many points.
            UsageError: A key of `sweep` has no values, a `grid` has fewer than two keys, a number is out of range, or
                `out` is a file, or has content and `force` is not given.
            TrialError: Every trial failed. When only some did, a `TrialWarning` says so.
            ExecutorError: Shards did not come back from the executor; its `result` has the others.
            Interrupted: Ctrl-C was pressed (a `KeyboardInterrupt`); its `result` has the finished trials.

        What the handler of another signal raises ends the run too, and comes as it is.
        """
        _check_range("jobs", jobs, 1, 1024)
        _check_range("shards", shards, 1, 2**32 - 1)
        run = self._run(dict(sweep or {}), grid)
        shows = sys.stderr.isatty() if progress is None else progress
        temporary = None
        if out is None:
            temporary = tempfile.TemporaryDirectory(prefix="bandmaster-")
            path = Path(temporary.name) / run.name
        else:
            path = Path(out)
        lost: list[str] = []
        if executor is None:
            with time_limits([*self._schemes, *self._controls]):
                ended, interrupted = run.run(path, force, jobs, shows)
        else:
            ended, interrupted, lost = _on_executor(
                run, (self._schemes, self._controls), path, force, executor, shards, shows
            )
        finished, planned, failed = ended
        failures = [Failure(*failure) for failure in failed]
        result = Result(path, failures, temporary) if finished else None
        kept = f"{finished} of {planned} trials finished"
        if isinstance(interrupted, KeyboardInterrupt):
            raise Interrupted(kept, result) from interrupted
        if interrupted:
            raise interrupted
        if lost:
            raise ExecutorError(f"{kept}; {len(lost)} shards did not come back: {lost[0]}", result)
        if result is None:
            raise TrialError(failures)
        if failures:
            text = f"{len(failures)} of {planned} trials failed; the result is of the others: {failures[0]}"
            warnings.warn(text, TrialWarning, stacklevel=2)
        return result


Brought: TypeAlias = "tuple[list[Scheme], list[type[CongestionControl]]]"


def _shard(run: bytes, brought: Brought, number: int, count: int) -> bytes:
    """Run a shard: what workers of executors call. The bytes are those of its record file."""
    with tempfile.TemporaryDirectory(prefix="bandmaster-") as folder:
        file = Path(folder) / "shard.records"
        schemes, controls = brought
        with time_limits([*schemes, *controls]):
            _bandmaster.Run.from_bytes(run, schemes, controls).shard(number, count, file)
        return file.read_bytes()


class _Refused:
    """A call that an executor did not take."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def result(self) -> Any:
        raise self.error


def _submit(executor: Executor, *args: Any) -> Future:
    try:
        return executor.submit(_shard, *args)
    except Exception as error:
        return _Refused(error)


def _shards(executor: Executor) -> int:
    """Count shards that keep all of an executor busy: each costs some milliseconds."""
    threads = getattr(executor, "nthreads", None)
    try:
        return SHARDS_PER_THREAD * sum(threads().values()) or SHARDS if callable(threads) else SHARDS
    except Exception:
        return SHARDS


def _on_executor(
    run: _bandmaster.Run,
    brought: Brought,
    out: Path,
    force: bool,
    executor: Executor,
    shards: int | None,
    shows: bool,
) -> tuple[_bandmaster.Ended, BaseException | None, list[str]]:
    """Run shards on an executor. When a shard comes back, its trials are kept at once."""
    count = min(_shards(executor) if shards is None else shards, run.planned)
    gathering = _bandmaster.Gathering(run, out, force)
    content = run.to_bytes()
    futures = [_submit(executor, content, brought, number, count) for number in range(1, count + 1)]
    interrupted: BaseException | None = None
    lost: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bandmaster-") as folder:
        file = Path(folder) / "shard.records"
        try:
            for number, future in enumerate(futures, 1):
                try:
                    records = future.result()
                except Exception as error:
                    lost.append(f"shard {number}/{count}: {type(error).__name__}: {error}")
                    continue
                file.write_bytes(records)
                gathering.take(file)
                if shows:
                    print(f"\r{number} of {count} shards", end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt as raised:
            interrupted = raised
            for future in futures:
                cancel = getattr(future, "cancel", None)
                if cancel is not None:
                    cancel()
        finally:
            if shows:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return gathering.finish(), interrupted, lost
