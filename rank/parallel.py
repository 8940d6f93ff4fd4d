"""Tasks in this process, in several, or on a Dask cluster: the same results in the same order."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from rank.exceptions import InputError

__all__ = ["map_tasks", "one_thread"]

Task = TypeVar("Task")
Result = TypeVar("Result")

#: How often a task that raised an error of the machine (not of the input) is tried again on a cluster.
RETRIES = 3

#: Tasks handed to a cluster ahead of the one whose result is next.
_AHEAD = 1_000

_CONNECT_SECONDS = 5.0


def map_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    n_jobs: int = 1,
    dask: str | Any | None = None,
) -> Iterator[Result]:
    """Apply a function to tasks and yield the results in the order of the tasks.

    Nothing about a result may depend on where or when a task runs: seeds belong into the task, and work is
    cut into tasks by its size, never by the number of workers. Then numbers are the same for any number.

    Parameters
    ----------
    function : callable
        Of one task; it and the tasks must be picklable when there are workers.
    tasks : sequence
    n_jobs : int
        Local processes; 1 runs the tasks here, one by one, as their results are asked for.
    dask : str or distributed.Client, optional
        Address of a Dask scheduler (``"tcp://host:8786"``) or a client of one; goes before `n_jobs`. The
        workers need rankgap installed. When a worker dies, its tasks run on another.

    Yields
    ------
    result
        An error of a task is raised instead; with local processes it may come before earlier results.

    Raises
    ------
    InputError
        When ``n_jobs`` is not positive, the extra ``dask`` is not installed, or there is no such scheduler.

    Notes
    -----
    Every task, also here, runs with one BLAS thread: the processes are the parallelism, and no sum depends on
    how many threads took it.

    Examples
    --------
    >>> list(map_tasks(abs, [-2, 1]))
    [2, 1]
    """
    if n_jobs < 1:
        raise InputError(f"jobs must be at least 1, found {n_jobs}")
    function = _OneThread(function)
    if dask is not None:
        return _map_on_cluster(function, tasks, dask)
    if n_jobs == 1 or len(tasks) < 2:
        return map(function, tasks)
    return _map_in_processes(function, tasks, min(n_jobs, len(tasks)))


class _OneThread:
    """A function of one argument that runs in `one_thread`; picklable if the function is."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, task: Any) -> Any:
        with one_thread():
            return self.function(task)


def _map_in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_jobs: int
) -> Iterator[Result]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        yield from Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(task) for task in tasks)


def _map_on_cluster(function: Callable[[Task], Result], tasks: Sequence[Task], dask: Any) -> Iterator[Result]:
    client = _connect(dask) if isinstance(dask, str) else dask
    waiting: deque[Any] = deque()
    try:
        for task in tasks:
            # Not pure: equal tasks of two calls must not share a result that is being released.
            waiting.append(client.submit(function, task, pure=False, retries=RETRIES))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        client.cancel(list(waiting))
        if isinstance(dask, str):
            client.close()


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which matrix products use one thread.

    For many small products: threads that wait for each other cost more than they save, and several times more
    when the cores are busy with something else.
    """
    # SciPy brings a library of its own, which is found once it is loaded.
    return _thread_controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@lru_cache(maxsize=2)
def _thread_controller(with_scipy: bool) -> Any:
    import numpy as np
    from threadpoolctl import ThreadpoolController

    np.zeros(1)  # its library must be there to be found
    return ThreadpoolController()


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "a Dask cluster was asked for, but the packages for it are missing; install rankgap[dask]"
        ) from None
    client = Client.__new__(Client)
    try:
        # In two steps: a client that fails to connect must be closed, or it waits and complains when it is
        # deleted.
        client.__init__(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        return client
    except (OSError, ValueError) as error:
        client.close(timeout=1)
        raise InputError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}); give its address as in tcp://host:8786"
        ) from None
