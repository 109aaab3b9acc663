"""The same results as the command line, and what else `run` promises."""

from __future__ import annotations

import os
import pickle
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SMALL, SWEPT, assert_same

import bandmaster as bm


def test_run_leaves_the_bytes_of_the_command_line(small: Path, command: Callable[..., None]) -> None:
    command("run", "small.toml", "--set", "run.trials=3", "--seed", "7", "--out", "theirs")
    result = bm.Scenario(small).set("run.trials", 3).options(seed=7).run(out="ours", jobs=2)
    assert_same(Path("ours"), Path("theirs"))
    assert result.complete and result.failures == []


def test_a_sweep_leaves_the_bytes_of_the_command_line(small: Path, command: Callable[..., None]) -> None:
    key = "network.bottleneck.rate"
    command("sweep", "swept.toml", "--key", f"{key}=5mbit,8mbit", "--trials", "2", "--out", "theirs")
    bm.Scenario("swept.toml").options(trials=2).run(sweep={key: ["5mbit", "8mbit"]}, out="ours")
    assert_same(Path("ours"), Path("theirs"))


GRID: dict[str, list[str | bool]] = {"network.bottleneck.rate": ["5mbit", "8mbit"], "tcp.sack": [True, False]}


def test_a_grid_leaves_the_bytes_of_the_command_line(small: Path, command: Callable[..., None]) -> None:
    keys = ["--key", "network.bottleneck.rate=5mbit,8mbit", "--key", "tcp.sack=true,false"]
    command("sweep", "small.toml", "--grid", *keys, "--trials", "2", "--out", "theirs")
    scenario = bm.Scenario("small.toml").options(trials=2)
    result = scenario.run(sweep=GRID, grid=True, out="ours")
    assert_same(Path("ours"), Path("theirs"))
    # The base point and four of the grid.
    assert len(result.trials) == 2 * 5
    with ProcessPoolExecutor(2) as pool:
        scenario.run(sweep=GRID, grid=True, out="pool", executor=pool, shards=3)
    assert_same(Path("pool"), Path("theirs"))
    assert len(scenario.run(sweep=GRID).trials) == 2 * 4, "without it, one key at a time: each has the base value too"
    with pytest.raises(bm.UsageError, match="two or more keys"):
        scenario.run(sweep={"tcp.sack": [True, False]}, grid=True)


COMPARED = (
    SWEPT
    + """
[[compare]]
name = "base"

[[compare]]
name = "cubic"
set = { "tcp.congestion-control" = "cubic" }
"""
)


def test_some_variants_leave_the_bytes_of_the_command_line(small: Path, command: Callable[..., None]) -> None:
    Path("compared.toml").write_text(COMPARED)
    scenario = bm.Scenario("compared.toml").options(trials=2)
    assert scenario.trials == 2 * 2 * 2
    some = scenario.options(variants=["cubic"], base=True)
    assert some.trials == 2
    command("run", "compared.toml", "--variant", "cubic", "--base", "--trials", "2", "--out", "theirs")
    result = some.run(out="ours")
    assert_same(Path("ours"), Path("theirs"))
    assert set(result.trials.to_arrow()["variant"].to_pylist()) == {"cubic"}
    assert len(result.claims) == 0, "the claim is about the other"
    key = "network.bottleneck.rate"
    words = ["--variant", "base", "--base", "--key", f"{key}=5mbit", "--trials", "2"]
    command("sweep", "compared.toml", *words, "--out", "theirs-swept")
    again = some.options(variants=["base"])
    again.run(sweep={key: ["5mbit"]}, out="swept")
    assert_same(Path("swept"), Path("theirs-swept"))
    with ProcessPoolExecutor(2) as pool:
        again.run(sweep={key: ["5mbit"]}, out="pool", executor=pool)
    assert_same(Path("pool"), Path("swept"))
    assert again.options(variants=[], base=False).trials == scenario.trials
    with pytest.raises(bm.UsageError, match="no variant `reno`; allowed: base, cubic"):
        scenario.options(variants=["reno"])
    with pytest.raises(bm.UsageError, match="give a list of names"):
        scenario.options(variants="cubic")


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_executors_leave_the_same_bytes(small: Path, pool: Any) -> None:
    scenario = bm.Scenario("swept.toml")
    scenario.run(out="threads")
    with pool(2) as executor:
        scenario.run(out="pool", executor=executor, shards=5)
    assert_same(Path("pool"), Path("threads"))


def test_processes_of_joblib_leave_the_same_bytes(small: Path) -> None:
    loky = pytest.importorskip("joblib.externals.loky")
    scenario = bm.Scenario("swept.toml")
    scenario.run(out="threads")
    pool = loky.get_reusable_executor(2)
    scenario.run(out="joblib", executor=pool, shards=5)
    pool.shutdown()
    assert_same(Path("joblib"), Path("threads"))


def test_tasks_of_ray_leave_the_same_bytes(small: Path) -> None:
    ray = pytest.importorskip("ray")

    class OnRay:
        def submit(self, fn: Any, /, *args: Any) -> Any:
            return ray.remote(fn).remote(*args).future()

    scenario = bm.Scenario("swept.toml")
    scenario.run(out="threads")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        scenario.run(out="ray", executor=OnRay(), shards=5)
    finally:
        ray.shutdown()
    assert_same(Path("ray"), Path("threads"))


def test_a_worker_of_dask_may_be_killed(small: Path) -> None:
    distributed = pytest.importorskip("distributed")
    scenario = bm.Scenario("swept.toml").set("run.duration", "3s")
    scenario.run(out="threads")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        killed: list[int] = []

        class Killing:
            """Kills a worker as soon as the first shard has come back."""

            def __init__(self, future: Any) -> None:
                self.future = future

            def result(self) -> Any:
                value = self.future.result()
                if not killed:
                    os.kill(victim, signal.SIGKILL)
                    killed.append(sum(not future.done() for future in futures))
                return value

        futures: list[Any] = []

        class Executor:
            def submit(self, fn: Any, /, *args: Any) -> Killing:
                futures.append(client.submit(fn, *args))
                return Killing(futures[-1])

        scenario.run(out="dask", executor=Executor())
    assert killed[0] > 2, "shards were to be run when the worker was killed"
    assert_same(Path("dask"), Path("threads"))


def test_shards_that_do_not_come_back_lose_no_others(small: Path) -> None:
    class Future:
        def __init__(self, call: Callable[[], bytes]) -> None:
            self.call = call

        def result(self) -> bytes:
            return self.call()

    class Executor:
        def submit(self, fn: Any, /, *args: Any) -> Future:
            def lost() -> bytes:
                raise OSError("the worker is gone")

            return Future(lost if args[-2] == 2 else lambda: fn(*args))

    with pytest.raises(bm.ExecutorError, match="1 shards did not come back: shard 2/3: OSError") as error:
        bm.Scenario(small).run(out="out", executor=Executor(), shards=3)
    result = error.value.result
    assert result is not None and not result.complete
    assert len(result.trials) == 4
    assert (Path("out") / "INCOMPLETE").exists() and (Path("out") / "trials.records").exists()


def test_a_pool_whose_worker_dies_loses_no_finished_shards(small: Path) -> None:
    with ProcessPoolExecutor(1) as pool:
        victims: list[int] = [pool.submit(os.getpid).result()]

        class Executor:
            def submit(self, fn: Any, /, *args: Any) -> Any:
                if args[-2] == 3:
                    time.sleep(0.5)
                    os.kill(victims[0], signal.SIGKILL)
                    time.sleep(0.5)
                return pool.submit(fn, *args)

        with pytest.raises(bm.ExecutorError, match="BrokenProcessPool") as error:
            bm.Scenario(small).run(out="out", executor=Executor(), shards=6)
    result = error.value.result
    assert result is not None and len(result.trials) == 2
    with pytest.raises(bm.UsageError, match="shards: 0 is not a whole number from 1"):
        bm.Scenario(small).run(executor=Executor(), shards=0)


def test_what_a_handler_raises_ends_the_run_and_comes_as_it_is(small: Path) -> None:
    class Alarmed(Exception):
        pass

    def handler(*_: object) -> None:
        raise Alarmed

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Alarmed):
            bm.Scenario("small.toml").set("run.duration", "60s").options(trials=400).run(jobs=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_table_that_is_gone_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        bm.Table(tmp_path / "none.parquet")


def test_what_was_interrupted_goes_on_by_resume(small: Path, command: Callable[..., None]) -> None:
    program = """
import bandmaster as bm, sys
try:
    bm.Scenario("small.toml").set("run.duration", "60s").set("run.trials", 40).run(out="out", jobs=1)
except KeyboardInterrupt as stopped:
    assert isinstance(stopped, bm.Interrupted)
    print(len(stopped.result.trials), stopped.result.complete)
    sys.exit(7)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    records = Path("out/trials.records")
    began = time.monotonic()
    while not records.exists() or records.stat().st_size < 20_000:
        assert child.poll() is None and time.monotonic() - began < 60
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    sent = time.monotonic()
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 7, out
    assert time.monotonic() - sent < 10
    finished, complete = out.split()
    assert 0 < int(finished) < 40 and complete == "False"
    loaded = bm.load("out")
    assert not loaded.complete and len(loaded.trials) == int(finished)


def test_an_error_has_its_place() -> None:
    with pytest.raises(bm.ScenarioError) as error:
        bm.Scenario(SMALL.replace('"10mbit"', '"10mbps"').replace("trials = 6", "trials = -6"))
    first, second = error.value.problems
    assert (error.value.file, error.value.line, error.value.key) == ("scenario.toml", 7, "run.trials")
    assert (first.line, second.key) == (7, "network.bottleneck.rate")
    assert str(error.value).startswith("scenario.toml:7:")
    with pytest.raises(bm.ScenarioError) as error:
        bm.Scenario(SMALL).set("run.trialz", 3)
    assert error.value.line == 0 and error.value.key == "run" and "`trialz`" in str(error.value)
    assert isinstance(error.value, ValueError)
    with pytest.raises(FileNotFoundError):
        bm.Scenario("nothing.toml")


def test_exceptions_and_scenarios_go_between_processes() -> None:
    scenario = bm.Scenario(SMALL).options(trials=3)
    assert pickle.loads(pickle.dumps(scenario)).trials == 3
    with pytest.raises(bm.ScenarioError) as error:
        bm.Scenario("version = 9\n")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_an_earlier_result_is_not_replaced_unasked(small: Path) -> None:
    bm.Scenario(small).options(trials=1).run(out="out")
    before = (Path("out") / "manifest.json").read_bytes()
    with pytest.raises(bm.UsageError, match="not empty"):
        bm.Scenario(small).run(out="out")
    assert (Path("out") / "manifest.json").read_bytes() == before
    assert len(bm.Scenario(small).options(trials=2).run(out="out", force=True).trials) == 2


def test_a_result_without_a_folder_goes_with_its_last_reference(small: Path) -> None:
    result = bm.Scenario(small).options(trials=1).run()
    path, flows = result.path, result.flows
    del result
    assert path.exists() and len(flows) == 2
    del flows
    assert not path.exists()


def test_other_threads_of_python_run_meanwhile(small: Path) -> None:
    scenario = bm.Scenario(small).set("run.duration", "100s")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(scenario.run, jobs=1)
        turns = 0
        while not future.done():
            time.sleep(0.001)
            turns += 1
        future.result()
    assert turns > 20


@pytest.mark.timing
def test_dask_costs_at_most_a_tenth_more_than_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 trials of BAS in both directions, on a cluster of two started workers and with two threads, in turns.

    A trial takes a fifth of a second. Where one takes 20 ms, a run of 3.6 s takes half a second longer on Dask.
    """
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(ROOT)
    scenario = bm.Scenario("scenarios/bas/directions.toml").options(trials=50, base=True)
    assert scenario.trials == 400

    def timed(**how: Any) -> float:
        began = time.perf_counter()
        result = scenario.run(**how)
        assert len(result.trials) == 400
        return time.perf_counter() - began

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        # Workers import the package.
        scenario.options(trials=1).run(executor=client)
        ratios = []
        for number in range(4):
            if number % 2:
                threads, dask = timed(jobs=2), timed(executor=client)
            else:
                dask, threads = timed(executor=client), timed(jobs=2)
            ratios.append(dask / threads)
            print(f"Dask {dask:.2f} s, two threads {threads:.2f} s, ratio {dask / threads:.3f}")
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f} of {len(ratios)} pairs")
    assert median <= 1.1, ratios


@pytest.mark.timing
def test_import_is_fast(tmp_path: Path) -> None:
    program = "import time; t = time.perf_counter(); import bandmaster; print(time.perf_counter() - t)"
    took = [float(subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path)) for _ in range(3)]
    assert min(took) < 0.3, took


def test_values_are_written_as_the_command_line_takes_them(small: Path) -> None:
    scenario = bm.Scenario(SWEPT).set("flows.up.from", ["left.0"]).set("flows.up.to", ["right.0"])
    assert scenario.set("run.trials", True + 1).trials == 4
    with pytest.raises(bm.UsageError, match="no value of a key"):
        scenario.set("run.trials", {})  # type: ignore[arg-type]
    with pytest.raises(bm.UsageError, match="has no values"):
        scenario.run(sweep={"run.seed": []})
    for trials, seed in ((0, 1), (2**40, 1), (1, -1)):
        with pytest.raises(bm.UsageError, match="is not a whole number from"):
            scenario.options(trials=trials, seed=seed)
    with pytest.raises(bm.UsageError, match="jobs: 0 is not"):
        scenario.run(jobs=0)
