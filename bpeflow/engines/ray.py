"""`RayEngine`: tasks on a Ray cluster.

Ray carries calls and their small outcomes. Data is in files, so the object store, its spilling and its reconstruction
play no part, and neither do Ray's own retries: the coordinator repeats what is lost.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from time import monotonic
from typing import Any

from bpeflow._util.text import format_size
from bpeflow.config import EngineSettings
from bpeflow.engines.engine import Call, Handle, TaskReport, run_call
from bpeflow.errors import BpeflowError, EngineError, EngineUnavailableError, TaskLostError

#: Seconds to wait for a connection to the head node, and for the probes of all nodes, which start a worker on each.
_CONNECT_SECONDS, _PROBE_SECONDS = 5.0, 60.0

#: Ray's own settings of how often and how long it tries to connect, which it reads when it is imported. By default it
#: takes half a minute to give up where the token is wrong, and ten minutes where there is another service.
_IMPATIENCE = {"RAY_NUM_REDIS_GET_RETRIES": "5", "RAY_py_gcs_connect_timeout_s": "3"}

#: Ray's own setting of messages to leave out, likewise. Otherwise it prints a page about each node that is lost, on
#: standard output. The coordinator says in one line what was lost and with which node.
_NO_MESSAGES = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": r"^(A worker died or was killed|Raylet is terminated|The node with node id"
    r"|\d+ Workers \(tasks / actors\) killed)"
}

#: Seconds for which the list of nodes is taken as current.
_NODES_SECONDS = 2.0

#: Ray's names of the resources that tasks take.
_RESOURCES = "CPU", "memory"

#: Object store of a cluster that this engine starts, about the least that Ray accepts: there is no data in it.
_OBJECT_STORE = 100_000_000

#: Words for losses, by the error that Ray reports. All other errors are failures of the cluster.
_LOSSES = {
    "OutOfMemoryError": "its node ran low on memory, so Ray killed it",
    "WorkerCrashedError": "its worker process died",
    "NodeDiedError": "its node was lost",
    "LocalRayletDiedError": "Ray's process on its node died",
    "TaskUnschedulableError": "its node was lost before it began",
    "TaskCancelledError": "it was cancelled",
    "ObjectLostError": "its outcome was lost with its node",
}


#: How Ray names a node in its messages about losses.
_NODE = re.compile(r"\bIP: ([^\s,()]+)")


class RayEngine:
    """Tasks on a Ray cluster: that of the address, the one that this machine belongs to, or one of this machine alone.

    If the calling process is connected to a cluster already, that one is used, and stays connected.
    """

    def __init__(self, settings: EngineSettings) -> None:
        """Connect to the cluster, or start one.

        Raises:
            EngineUnavailableError: Ray is not installed.
            EngineError: there is no cluster at the address, or it has another version of Ray or Python.
        """
        self._ray = _load_ray(_address(settings))
        self._remote = _remote_run_call()
        self._workers = settings.workers
        self._cpus, self._memory = settings.cpus_per_task, int(settings.task_memory)
        self._connected_here = not self._ray.is_initialized()
        self._queued: deque[tuple[int, Call, dict[str, Any]]] = deque()
        self._running: dict[Handle, Any] = {}
        self._submitted = 0
        self._nodes: list[dict[str, Any]] = []
        self._nodes_read = -_NODES_SECONDS
        if self._connected_here:
            with _signal_handlers_kept():
                try:
                    _connect(settings)
                except BaseException:
                    self._ray.shutdown()
                    raise

    @property
    def slots(self) -> int:
        """The number of tasks that the cluster, or the setting `workers`, lets run at the same time."""
        room = sum(self._room(node["Resources"], self._cpus, self._memory) for node in self._alive())
        return max(min(room, self._workers or room), 1)

    def nodes(self, probe: Call) -> Sequence[TaskReport | BpeflowError]:
        """Run `probe` once on each node that has cores for tasks, and return the outcomes."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = self._alive()
        if not nodes:
            raise EngineError("the Ray cluster has no node with CPUs; add worker nodes (ray start --address HEAD:PORT)")
        self._check_room(self._cpus, self._memory)  # now, before there is anything to resume
        probes = {}
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"name": f"bpeflow {probe.name}", "num_cpus": 0, "scheduling_strategy": there}
            probes[self._remote.options(**options).remote(probe)] = node["NodeManagerHostname"]
        _, silent = self._ray.wait([*probes], num_returns=len(probes), timeout=_PROBE_SECONDS, fetch_local=False)
        if silent:
            names = ", ".join(sorted({probes[probe] for probe in silent}))
            raise EngineError(f"no answer within {_PROBE_SECONDS:.0f} s from node(s) {names}; see `ray status`")
        return [_outcome_or_error(reference, name) for reference, name in probes.items()]

    def submit(self, call: Call, cpus: int, memory: int) -> Handle:
        """Start a task as soon as there is room for it."""
        self._check_room(cpus, memory)
        self._submitted += 1
        self._queued.append((self._submitted, call, {"num_cpus": cpus, "memory": memory}))
        self._start_queued()
        return self._submitted

    def wait(self, handles: Collection[Handle], timeout: float) -> Sequence[Handle]:
        """Wait until at least one of these tasks has ended or been lost, and return those that have."""
        waited = {self._running[handle]: handle for handle in handles if handle in self._running}
        ready, _ = self._ray.wait([*waited], num_returns=1, timeout=timeout, fetch_local=False)
        return [waited[reference] for reference in ready]

    def result(self, handle: Handle) -> TaskReport | BpeflowError:
        """Return the outcome of a task that `wait` has returned."""
        reference = self._running.pop(handle)
        self._start_queued()
        return _outcome(reference)

    def stop(self) -> None:
        """Cancel all tasks, and disconnect or end the cluster if this engine connected or started it."""
        self._queued.clear()
        while self._running:
            _, reference = self._running.popitem()
            with suppress(Exception):  # it has ended, or the cluster is gone
                self._ray.cancel(reference, force=True)
        if self._connected_here:
            with _signal_handlers_kept():
                self._ray.shutdown()

    def _start_queued(self) -> None:
        """Start tasks as far as the setting `workers` allows. Ray itself waits for room on the nodes."""
        while self._queued and (self._workers is None or len(self._running) < self._workers):
            number, call, room = self._queued.popleft()
            remote = self._remote.options(name=f"bpeflow {call.name}", **room)
            self._running[number] = remote.remote(call)

    def _alive(self) -> list[dict[str, Any]]:
        """Return the nodes that have cores for tasks."""
        if monotonic() - self._nodes_read > _NODES_SECONDS:
            try:
                found = self._ray.nodes()
            except Exception as error:
                raise _cluster_error(error) from error
            self._nodes = [node for node in found if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
            self._nodes_read = monotonic()
        return self._nodes

    def _check_room(self, cpus: int, memory: int) -> None:
        """Raise `EngineError` if no node will ever have room for such a task."""
        nodes = self._alive()
        if not any(self._room(node["Resources"], cpus, memory) for node in nodes):
            cores, most = (max((node["Resources"].get(key, 0) for node in nodes), default=0) for key in _RESOURCES)
            raise EngineError(
                f"no node of the Ray cluster has room for a task of {cpus} core(s) and {format_size(memory)}: at most "
                f"{cores:.0f} and {format_size(int(most))}; lower engine.cpus_per_task or engine.task_memory"
            )

    @staticmethod
    def _room(resources: dict[str, float], cpus: int, memory: int) -> int:
        """Return how many tasks fit a node at the same time."""
        return int(min(resources.get("CPU", 0) // cpus, resources.get("memory", 0) // max(memory, 1)))


def _address(settings: EngineSettings) -> str:
    return settings.address or os.environ.get("RAY_ADDRESS") or ""


def _load_ray(address: str) -> Any:
    for name, value in (_NO_MESSAGES | _IMPATIENCE if ":" in address else _NO_MESSAGES).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise EngineUnavailableError(f"engine ray needs Ray: pip install 'bpeflow[ray]' ({error})") from error
    return ray


@cache
def _remote_run_call() -> Any:
    """Return `run_call` as a function of Ray, which sends it to the cluster once."""
    import ray

    return ray.remote(max_retries=0)(run_call)


def _connect(settings: EngineSettings) -> None:
    """Connect this process to the cluster of the address, or start a cluster. Raises `EngineError`."""
    import ray

    address = _address(settings)
    if "://" in address:
        raise EngineError(
            f"engine.address: {address} is an address of the Ray Client, and this process must be part of the cluster; "
            "run bpeflow on one of its machines, for example with ray job submit"
        )
    if address and address not in ("auto", "local"):
        _check_reachable(address)
    if address != "local":
        try:
            ray.init(address=address or "auto", log_to_driver=False, logging_level="CRITICAL")
            return
        except ConnectionError as error:
            if address or "find any running" not in str(error):
                raise _no_connection(error, address) from error
        except Exception as error:
            raise _no_connection(error, address) from error
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default workers wait for every other program
    try:
        ray.init(
            address="local",
            num_cpus=settings.workers and settings.workers * settings.cpus_per_task,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="CRITICAL",
            object_store_memory=_OBJECT_STORE,
        )
    except Exception as error:
        raise EngineError(f"Ray could not start a cluster on this machine: {_first_line(error)}") from error


def _check_reachable(address: str) -> None:
    """Raise `EngineError` at once if no process listens at an address: Ray would try for a long time."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except ValueError:
        raise EngineError(f"engine.address: {address!r} is not of the form host:port, such as 10.0.0.1:6379") from None
    except OSError as error:
        raise EngineError(
            f"no Ray cluster at {address} ({error.strerror or error}); is its head node running at this address?"
        ) from error


def _outcome(reference: Any) -> TaskReport | BpeflowError:
    """Return the outcome of a task that has ended. Raises `TaskLostError`, or `EngineError` if Ray failed otherwise."""
    import ray
    from ray import exceptions

    try:
        outcome: TaskReport | BpeflowError = ray.get(reference)
    except exceptions.RayTaskError as error:  # `run_call` raises nothing, so it could not be called
        raise EngineError(
            f"a node cannot run bpeflow's tasks: {error.cause!r}; install the same version of bpeflow on all nodes"
        ) from error
    except exceptions.RayError as error:
        reasons = (_LOSSES.get(kind.__name__) for kind in type(error).__mro__)
        if reason := next(filter(None, reasons), None):
            node = _NODE.search(str(error))
            raise TaskLostError(f"{reason} (node {node[1]})" if node else reason) from error
        raise _cluster_error(error) from error
    return outcome


def _outcome_or_error(reference: Any, node: str) -> TaskReport | BpeflowError:
    try:
        return _outcome(reference)
    except EngineError as error:
        return type(error)(f"on node {node}: {error}")


def _no_connection(error: Exception, address: str) -> EngineError:
    where = f" at {address}" if address else ""
    return EngineError(
        f"no connection to the Ray cluster{where}: {_first_line(error)}; is its head node there, with the same "
        "versions of Ray and Python, and does this process have its token (RAY_AUTH_TOKEN)?"
    )


def _cluster_error(error: Exception) -> EngineError:
    return EngineError(f"the Ray cluster failed: {_first_line(error)}; see `ray status` on its head node")


def _first_line(error: Exception) -> str:
    """Return the first line of Ray's message that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore the handlers of signals that Ray replaces: the exit status after a signal is up to the caller."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
