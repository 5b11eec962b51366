"""Tasks on a cluster: a window of them under way, results in order, and again whatever a dead worker took along."""

import contextlib
import dataclasses
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, NoReturn

from manifoldrf._optional import require
from manifoldrf.distributed._tasks import Held, size_of
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels._spectra import AnyGraph
from manifoldrf.signatures._engines import Progress

_ARRIVAL = 60  # seconds until a worker must have come: one that is started again takes a few
# Tasks for each thread that are sent at once: while one is computed the next waits beside it.
_AHEAD = 2
_MOST_LOSSES = 5  # of the same task or data, each with its worker: the fault is probably its own
_PAUSE = 0.5  # seconds, for the scheduler to learn of a worker that died while something was sent to it

_NO_SCHEDULER = "The connection to the scheduler of the cluster was lost."


def n_threads(client: Any) -> int:
    """Threads of all workers that are there now, at least 1."""
    with _reaching(client):
        return max(1, sum(map(int, client.nthreads().values())))


@contextlib.contextmanager
def _reaching(client: Any) -> Iterator[None]:
    """A call to the scheduler; the many errors of one that is gone become one."""
    _check_running(client)  # a call without a connection would wait half a minute for it
    try:
        yield
    except OSError as error:
        raise ConnectionError(_NO_SCHEDULER) from error
    except Exception as error:
        _check_running(client, error)
        raise


def _check_running(client: Any, error: BaseException | None = None) -> None:
    if client.status != "running":
        raise ConnectionError(_NO_SCHEDULER) from error


def _give_up(what: str, n_losses: int, error: BaseException) -> NoReturn:
    raise ConnectionError(
        f"{what} was lost {n_losses} times, each time with its worker. Causes: (a) workers with too little memory "
        "for the graph and a batch, (b) machines that go away. Remedies: a smaller `batch`, fewer threads for each "
        "worker, more memory."
    ) from error


class Sent:
    """Something large that all tasks read: sent to the workers once, and again if all that had it are gone."""

    def __init__(self, client: Any, value: Any, future: Any = None) -> None:
        self._client = client
        self._value = value
        self.place = future

    def future(self, lost: Any = None) -> Any:
        """Where it is; if that is the lost place, a new one."""
        if self.place is None or self.place is lost or self.place.status != "finished":
            self.place = self._scatter()
        return self.place

    def _scatter(self) -> Any:
        held = Held(self._value, size_of(self._value))
        n_losses = 0
        while True:
            try:
                self._client.wait_for_workers(1, _ARRIVAL)
                # To one, from which others take it: a broadcast would never end if a worker died meanwhile.
                return self._client.scatter(held, hash=False, timeout=_ARRIVAL)
            except TimeoutError as error:
                where = self._client.scheduler.address
                text = f"No worker came to the scheduler at {where} in {_ARRIVAL} seconds."
                raise ConnectionError(text) from error
            except (OSError, KeyError) as error:  # its worker died: connection closed, or its address not known
                _check_running(self._client, error)
                n_losses += 1
                if n_losses >= _MOST_LOSSES:
                    _give_up("What the tasks read", n_losses, error)
            time.sleep(_PAUSE)


class Kept:
    """The graph that the workers hold, as long as it is used."""

    def __init__(self) -> None:
        self._graph: weakref.ref[AnyGraph] | None = None
        self._whole = False
        self._future: Any = None

    def forget(self) -> None:
        """Take it off the workers."""
        self._graph = self._future = None

    @contextlib.contextmanager
    def sent(self, client: Any, graph: AnyGraph, *, whole: bool) -> Iterator[Sent]:
        """The graph on the workers; without its points unless it is wanted whole."""
        if self._graph is None or self._graph() is not graph or self._whole != whole:
            self.forget()
        found = Sent(client, graph if whole else _bare(graph), self._future)
        yield found
        self._graph, self._whole, self._future = self._watch(graph), whole, found.place

    def _watch(self, graph: AnyGraph) -> "weakref.ref[AnyGraph]":
        """A reference that forgets the graph when nobody has it any more, and keeps neither of the two alive."""
        me = weakref.ref(self)

        def gone(reference: "weakref.ref[AnyGraph]") -> None:
            kept = me()
            if kept is not None and kept._graph is reference:
                kept.forget()

        return weakref.ref(graph, gone)


def _bare(graph: AnyGraph) -> AnyGraph:
    """The matrix of a graph: what rows of a series need."""
    if not isinstance(graph, Graph):
        return graph
    return dataclasses.replace(graph, points=None, metric=None, extension=None, weights=None)


class Counter:
    """Tells progress of the sizes of tasks that are done, in whatever order."""

    def __init__(self, progress: Progress, what: str, total: int, done: int = 0) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, done

    def add(self, n: int) -> None:
        """So many more are done."""
        self._done += n
        self._progress(self._what, self._done, self._total)


@dataclass(frozen=True, eq=False)
class _Task:
    number: int
    item: Any
    shared: Any  # future of what it reads
    n_losses: int = 0


class Flow:
    """Results of ``function(shared, item)`` for many items.

    Parameters
    ----------
    client : dask.distributed.Client
    function : callable
        Pickles.
    shared : Sent
    finished : callable (item), optional
        Called as results arrive, in whatever order.
    most : int, optional
        Of tasks under way together with results that wait for their turn, where those are not wanted all at once.
    """

    def __init__(
        self,
        client: Any,
        function: Callable[[Any, Any], Any],
        shared: Sent,
        finished: Callable[[Any], None] = lambda item: None,
        *,
        most: int | None = None,
    ) -> None:
        distributed = require("distributed", "dask")
        self._client = client
        self._function = function
        self._shared = shared
        self._finished = finished
        self._most = most
        self._pending: dict[Any, _Task] = {}
        self._ready: dict[int, Any] = {}
        self._completed = distributed.as_completed(loop=client.loop)
        self._closed = distributed.comm.CommClosedError
        self._killed = distributed.KilledWorker

    def results(self, items: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the items; an error of a task, or Ctrl-C, drops what has not been done."""
        numbered = enumerate(items)
        expected = 0
        try:
            while True:
                self._fill(numbered)
                if expected in self._ready:
                    yield self._ready.pop(expected)
                    expected += 1
                elif self._pending:
                    self._collect()
                else:
                    return
        except self._closed as error:
            raise ConnectionError(_NO_SCHEDULER) from error
        finally:
            self._drop()

    def _fill(self, numbered: Iterator[tuple[int, Any]]) -> None:
        room = _AHEAD * n_threads(self._client) - len(self._pending)
        if self._most is not None:
            room = min(room, self._most - len(self._pending) - len(self._ready))
        for _ in range(room):
            number, item = next(numbered, (-1, None))
            if number < 0:
                return
            self._submit(_Task(number, item, self._shared.future()))

    def _submit(self, task: _Task) -> None:
        with _reaching(self._client):
            future = self._client.submit(self._function, task.shared, task.item, pure=False)
        self._pending[future] = task
        self._completed.add(future)

    def _collect(self) -> None:
        """Wait for one result."""
        future = next(self._completed)
        task = self._pending.pop(future)
        try:
            result = future.result()
        except self._killed as error:  # after several deaths: Dask has given it to others by itself
            _give_up("A task", error.allowed_failures + 1, error)
        except (CancelledError, self._closed) as error:
            self._again(task, error)
            return
        finally:
            # Clients keep the error of a task as long as its future is there, and the error, by its traceback, the
            # future: what the tasks read would stay on the workers for good.
            future.release()
        self._ready[task.number] = result
        self._finished(task.item)

    def _again(self, task: _Task, error: BaseException) -> None:
        """Give a task that was lost with its worker, or with what it reads, to another."""
        _check_running(self._client, error)
        n_losses = task.n_losses + 1
        if n_losses >= _MOST_LOSSES:
            _give_up("A task", n_losses, error)
        # Cancelled is what reads data that is gone. Where only the connection failed they are still there.
        lost = task.shared if isinstance(error, CancelledError) else None
        self._submit(dataclasses.replace(task, shared=self._shared.future(lost), n_losses=n_losses))

    def _drop(self) -> None:
        pending, self._pending = list(self._pending), {}
        self._ready.clear()
        if pending:
            # Whatever the error of a connection that is gone, it must not hide the one that led here.
            with contextlib.suppress(Exception):
                self._client.cancel(pending, force=True)
