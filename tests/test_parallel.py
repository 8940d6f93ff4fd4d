"""The same numbers from one process, several, and a real Dask cluster whose workers die."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from difficulty.study import StudyOptions, study_groups
from rank.exceptions import InputError, NoMaximumError
from rank.gold import check_gold
from rank.parallel import map_tasks, one_thread
from rank.streaming import tally_files
from simulate.planning import plan_designs
from simulate.sweep import sweep

ROOT = Path(__file__).resolve().parents[1]

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="needs the extra dask: pip install rankgap[dask]"
)
# What distributed itself leaves open when a worker is killed.
ignore_dask_leftovers = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:distributed"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:tornado"),
]


def slow_square(seconds: float, number: int) -> tuple[int, int]:
    time.sleep(seconds)
    return number * number, os.getpid()


def fail_on_three(number: int) -> int:
    if number == 3:
        raise NoMaximumError("item 3 never wins", never_win=["3"])
    return number


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_come_in_order_and_errors_keep_what_they_carry(n_jobs: int) -> None:
    assert list(map_tasks(abs, [-3, 2, -1], n_jobs=n_jobs)) == [3, 2, 1]
    results = map_tasks(fail_on_three, range(6), n_jobs=n_jobs)
    with pytest.raises(NoMaximumError) as caught:
        list(results)
    assert caught.value.never_win == ("3",)


def test_local_tasks_run_as_they_are_asked_for() -> None:
    done: list[int] = []
    results = map_tasks(done.append, range(5))
    next(results)
    assert done == [0]


def test_bad_requests_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="jobs must be at least 1, found 0"):
        map_tasks(abs, [1], n_jobs=0)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"install rankgap\[dask\]"):
        list(map_tasks(abs, [1], dask="tcp://127.0.0.1:1"))


def test_one_thread_limits_and_restores_blas() -> None:
    from threadpoolctl import threadpool_info

    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    np.ones((2, 2)) @ np.ones((2, 2))
    before = threads()
    with one_thread():
        assert set(threads()) <= {1}
    assert threads() == before


def make_files(folder: Path) -> tuple[Path, Any]:
    """A partitioned folder of verdicts of two judges, and gold."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(11)
    low, high = np.triu_indices(8, 1)
    strength = rng.normal(size=8)
    rows = []
    for judge in ("a", "b"):
        for run in range(3):
            for first, second in (*zip(low, high), *zip(high, low)):
                wins = rng.random() < 1 / (1 + np.exp(strength[second] - strength[first]))
                rows.append((judge, f"i{first}", f"i{second}", run, "first" if wins else "second"))
    frame = pd.DataFrame(rows, columns=["judge", "item_first", "item_second", "run", "verdict"])
    parquet.write_to_dataset(
        pa.Table.from_pandas(frame, preserve_index=False), folder, partition_cols=["judge", "run"]
    )
    gold = check_gold(pd.DataFrame({"item": [f"i{k}" for k in range(8)], "score": strength}))
    return folder, gold


def everything(folder: Path, gold: Any, **workers: Any) -> str:
    """Return all numbers of reading, study, sweep and plan as text, unrounded."""
    tally = tally_files(folder, batch_rows=10, **workers)
    options = StudyOptions(n_resamples=50)
    studies = [study.to_dict() for study in study_groups(tally, gold, options, rng=3, **workers)]
    swept = sweep([0.0, 0.5], n_reps=12, population={"n_items": 20}, rng=5, **workers)
    plan = plan_designs(
        0.2,
        population={"n_items": 12},
        pairs_per_item=[3],
        orders=[1],
        runs=[1],
        n_reps=6,
        rng=7,
        **workers,
    )
    parts = [tally.counts.tolist(), studies, swept.to_dict(), vars(plan)]
    return json.dumps(parts, default=str)


@pytest.mark.slow
def test_numbers_are_the_same_for_any_number_of_processes(tmp_path: Path) -> None:
    folder, gold = make_files(tmp_path / "verdicts")
    alone = everything(folder, gold)
    assert everything(folder, gold, n_jobs=2) == alone
    assert everything(folder, gold, n_jobs=3) == alone


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    # Tests as the main module of a worker would be imported by name: let workers find this folder.
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(Path(__file__).parent), path) if p)
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit=0,
        silence_logs=50,
    ) as local:
        yield local
    os.environ.pop("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = path


@needs_dask
@pytest.mark.slow
class TestCluster:
    """On worker processes of a real scheduler."""

    pytestmark = ignore_dask_leftovers

    def test_numbers_are_those_of_one_process(self, cluster: Any, tmp_path: Path) -> None:
        folder, gold = make_files(tmp_path / "verdicts")
        alone = everything(folder, gold)
        assert everything(folder, gold, dask=cluster.scheduler_address) == alone

    def test_killed_worker_loses_nothing(self, cluster: Any) -> None:
        victims: list[int] = []

        def kill_one() -> None:
            time.sleep(0.5)
            process = next(iter(cluster.workers.values())).pid
            victims.append(process)
            os.kill(process, signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        results = list(map_tasks(partial(slow_square, 0.1), list(range(30)), dask=cluster.scheduler_address))
        killer.join()
        assert [square for square, _ in results] == [k * k for k in range(30)]
        pids = {pid for _, pid in results}
        assert victims
        assert pids - set(victims)

    def test_errors_of_tasks_come_back(self, cluster: Any) -> None:
        with pytest.raises(NoMaximumError) as caught:
            list(map_tasks(fail_on_three, range(6), dask=cluster.scheduler_address))
        assert caught.value.never_win == ("3",)

    def test_client_that_never_connected_is_closed_at_once(self) -> None:
        code = (
            "import sys; from rank.command import run; from rank.parallel import map_tasks\n"
            "sys.exit(run(lambda argv: list(map_tasks(abs, [1], dask=argv[0])), ['nohost']))"
        )
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert time.monotonic() - start < 15
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "no Dask scheduler answers at nohost" in done.stderr

    def test_no_scheduler_is_one_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import rank.parallel

        monkeypatch.setattr(rank.parallel, "_CONNECT_SECONDS", 0.5)
        with pytest.raises(InputError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
            list(map_tasks(abs, [1], dask="tcp://127.0.0.1:9"))
