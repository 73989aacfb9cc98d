"""`Cluster`: runs tasks on a Ray cluster.

Ray carries calls and their small results. Data travels in files on storage that all nodes share, so Ray's object store
plays no part. Ray repeats a task whose worker or node died (`max_retries`), but not one that raises an error. Tasks are
idempotent: each attempt writes a file with a name of its own, and only the caller, to whom the task returns that name,
uses it.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from secrets import token_hex
from time import monotonic, perf_counter, process_time, sleep
from typing import Any, TypeVar

import regex

from bpeflow import __version__
from bpeflow._util.atomic import hold_part, is_unlocked, name_errors
from bpeflow._util.native import ABI
from bpeflow._util.text import format_count, format_size
from bpeflow.config import EngineSettings
from bpeflow.errors import (
    BpeflowError,
    EngineError,
    EngineUnavailableError,
    NativeUnavailableError,
    OutOfMemoryError,
    TaskLostError,
    is_memory_error,
    out_of_memory,
)
from bpeflow.flow import peak_memory
from bpeflow.pretokenize.native import native_unicode_version

#: The remedy if a node has another file than the machine that distributes the work.
OTHER_FILE_REMEDY = "every node must see the same files under the same paths, and nothing may change them meanwhile"

_SHARE = "the output folder must be on storage that all nodes share, under the same path"

#: Tasks submitted per slot, so that a worker that has finished one need not wait for the next.
PER_SLOT = 2

#: Seconds after which a wait for tasks is interrupted, to report progress and to look after the cluster.
_INTERVAL = 0.5

#: Seconds for which the head node may not answer, as it may be restarting, and those to wait for one answer. Ray itself
#: would wait for a minute, and then end this process.
_GONE_SECONDS, _ANSWER_SECONDS = 10.0, 3.0

#: Object store of a cluster that bpeflow starts, about the minimum that Ray accepts: it stays empty.
_OBJECT_STORE = 100_000_000


#: What the caller knows a task by.
Key = TypeVar("Key")


@dataclass(frozen=True)
class TaskReport:
    """The outcome of a task that has succeeded.

    Attributes:
        value: the result.
        node: host name of the node.
        process: id of the process there.
        seconds: wall time.
        cpu_seconds: processor time, of all threads.
        peak_memory: the most memory that the process has taken so far, in bytes.
    """

    value: Any
    node: str
    process: int
    seconds: float
    cpu_seconds: float
    peak_memory: int


class Cluster:
    """A Ray cluster that this process is connected to; see `connect`.

    Attributes:
        settings: the settings.
        slots: the number of tasks that run at the same time. It changes while nodes come and go.
        in_flight: the number of tasks submitted that have not ended.

    Raises:
        EngineError: no node has room for a task.
    """

    def __init__(self, ray: Any, settings: EngineSettings) -> None:
        self.settings = settings
        self.in_flight = 0
        self._ray = ray
        self._head: str = ray.get_runtime_context().gcs_address
        self._silent_since: float | None = None
        self.slots = self._count_slots()
        self._remote = ray.remote(
            num_cpus=settings.cpus_per_task, memory=int(settings.task_memory), max_retries=settings.retries
        )(_run_task)

    def _count_slots(self) -> int:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cpus, memory = self.settings.cpus_per_task, int(self.settings.task_memory)
        room = sum(int(min(node.get("CPU", 0) // cpus, node.get("memory", 0) // memory)) for node in nodes)
        if not room:
            cores, most = (max((node.get(key, 0) for node in nodes), default=0) for key in ("CPU", "memory"))
            raise EngineError(
                f"no node of the Ray cluster has room for a task of {format_count(cpus, 'core')} and "
                f"{format_size(memory)}: at most {cores:.0f} and {format_size(int(most))}; lower "
                "engine.cpus_per_task or engine.task_memory"
            )
        return min(room, self.settings.workers or room)

    def run(
        self,
        work: Any,
        function: Callable[..., Any],
        calls: Iterable[tuple[Key, str, tuple[Any, ...]]],
        folder: Path,
        on_wait: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[Key, TaskReport]]:
        """Call a function with `work` and further arguments, in tasks. Yields keys and reports as the tasks end.

        Args:
            work: the first argument of all calls. It is passed in a file.
            function: the function, of a module that nodes can import.
            calls: for each task, a key for the caller, the name in messages and in Ray's dashboard, and the other
                arguments, which are small.
            folder: an existing folder that all nodes share, for the file with `work`.
            on_wait: called whenever a task has ended, and twice a second.

        Raises:
            TaskLostError: a task was lost more often than Ray was to repeat it.
            EngineError: the cluster is gone, or a node cannot take part.
            BpeflowError: the error of a task, which names the node.
        """
        file = folder / f".work-{token_hex(8)}.part"
        waiting = iter(calls)
        running: dict[Any, tuple[Key, str]] = {}
        try:
            with name_errors(file):
                file.write_bytes(pickle.dumps(work))
            while True:
                if self._answers():
                    self.slots = self._count_slots()
                    room = (self.settings.workers or PER_SLOT * self.slots) - len(running)
                    for key, name, arguments in islice(waiting, max(room, 0)):
                        task = self._remote.options(name=f"bpeflow {name}")
                        running[task.remote(_versions(), file, function, arguments)] = key, name
                    if not running:
                        return
                self.in_flight = len(running)
                on_wait()
                ended, _ = self._ray.wait([*running], timeout=_INTERVAL, fetch_local=False)
                for reference in ended:
                    key, name = running.pop(reference)
                    yield key, self._result(reference, name)
        finally:
            for reference in running:
                with suppress(Exception):  # it has ended, or the cluster is gone
                    self._ray.cancel(reference, force=True)
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def _answers(self) -> bool:
        """Return whether the head node answers now. Raises `EngineError` if it has not for some time."""
        try:
            _reach(self._head)
        except OSError as error:
            self._silent_since = self._silent_since or monotonic()
            if monotonic() - self._silent_since > _GONE_SECONDS:
                raise EngineError(
                    f"the Ray cluster is gone: its head node {self._head} does not answer ({error.strerror or error})"
                ) from None
            sleep(_INTERVAL)
            return False
        self._silent_since = None
        return True

    def _result(self, reference: Any, name: str) -> TaskReport:
        try:
            outcome = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # `_run_task` raises nothing, so it could not be called
            raise EngineError(
                f"a node cannot run bpeflow's tasks: {error.cause!r}; install the same version of bpeflow on all nodes"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise TaskLostError(
                f"{name} was lost {format_count(self.settings.retries + 1, 'time')}: {_first_line(error)} If memory is "
                "short, lower engine.task_memory, or use smaller segments or fewer workers per node; otherwise look "
                "after the nodes"
            ) from error
        if isinstance(outcome, BpeflowError):
            raise outcome
        report: TaskReport = outcome
        return report


# ---- on the nodes ----


def _versions() -> dict[str, str]:
    """Return the versions that results depend on, in the order in which to compare them."""
    try:
        unicode = native_unicode_version()
    except NativeUnavailableError:
        unicode = "none"
    return {
        "bpeflow": __version__,
        "native libraries": f"version {ABI}",
        "Unicode of native code": unicode,
        "regex": regex.__version__,
        "byte order": sys.byteorder,
    }


def _run_task(
    versions: dict[str, str], file: Path, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> TaskReport | BpeflowError:
    """Run a task on this node. An error is returned, not raised, and names the node."""
    began, cpu = perf_counter(), process_time()
    node = socket.gethostname()
    try:
        for name, here in _versions().items():
            if here != versions[name]:
                raise EngineError(
                    f"{name} is {here}, but {versions[name]} on the machine that distributes the work: install the "
                    "same version of bpeflow and of its dependencies on all nodes"
                )
        if not file.exists():
            raise EngineError(f"{file.parent} does not exist, or has other files: {_SHARE}")
        value = function(_read(file), *arguments)
    except BpeflowError as error:
        return type(error)(f"on node {node}: {error}")
    except Exception as error:
        where = f"on node {node}, {function.__name__}"
        if is_memory_error(error):
            return OutOfMemoryError(f"{where}: {out_of_memory(error)}; give tasks more memory, or use smaller segments")
        if isinstance(error, OSError):
            return EngineError(f"{where}: {error.filename or 'input/output'}: {error.strerror or error}")
        place = traceback.extract_tb(error.__traceback__)[-1]
        return EngineError(f"{where}: {error!r}, raised in {place.filename}, line {place.lineno} (please report this)")
    return TaskReport(value, node, os.getpid(), perf_counter() - began, process_time() - cpu, peak_memory())


@lru_cache(maxsize=1)
def _read(file: Path) -> Any:
    """Read the work; once in each process, as making a tokenizer takes a while."""
    return pickle.loads(file.read_bytes())  # noqa: S301 -- of this run's own folder


@contextmanager
def task_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new folder for temporary files, and remove it at the end. It is locked while it is in use.

    Also removes the folders of the same name that killed processes left there.

    Args:
        parent: where to make it.
        name: beginning of its name.
    """
    for path in parent.iterdir():
        if path.name.startswith(f"{name}.") and path.name.endswith(".tasks") and is_unlocked(path / "lock"):
            shutil.rmtree(path, ignore_errors=True)
    folder = parent / f"{name}.{token_hex(8)}.new"
    try:
        folder.mkdir(mode=0o700)
        with (folder / "lock").open("w") as lock:
            hold_part(lock)
            folder = folder.rename(folder.with_suffix(".tasks"))  # it has this name when it is locked
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- connecting ----


@contextmanager
def connect(settings: EngineSettings) -> Iterator[Cluster]:
    """Connect to the cluster at the address or on this machine, or start one. All tasks end with the block.

    If the calling process is already connected to a cluster, that cluster is used, and stays connected.

    Raises:
        EngineUnavailableError: Ray is not installed.
        EngineError: there is no cluster at the address, it has another version of Ray or Python, or no room for a task.
    """
    address = settings.address or os.environ.get("RAY_ADDRESS") or ""
    # Ray reads these when it is imported. By default it prints a page about each node that is lost, repeats without end
    # what is killed because memory is short, and takes ten minutes to give up if another service is at the address.
    values = {"DEDUP_LOGS_SKIP_REGEX": ".", "task_oom_retries": settings.retries}
    patience = {"NUM_REDIS_GET_RETRIES": 5, "py_gcs_connect_timeout_s": 3} if ":" in address else {}
    for name, value in (values | patience).items():
        os.environ.setdefault(f"RAY_{name}", str(value))
    try:
        import ray

        connected_here = not ray.is_initialized()
    except (ModuleNotFoundError, AttributeError) as error:  # without Ray, any folder named ray is imported
        raise EngineUnavailableError(f"engine ray needs Ray: pip install 'bpeflow[ray]' ({error})") from error
    try:
        if connected_here:
            with _signal_handlers_kept():
                _connect(ray, address, settings)
        yield Cluster(ray, settings)
    finally:
        if connected_here:
            with _signal_handlers_kept():
                ray.shutdown()


def _connect(ray: Any, address: str, settings: EngineSettings) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
    if "://" in address:
        raise EngineError(
            f"engine.address: {address} is an address of the Ray Client, and this process must be part of the cluster; "
            "run bpeflow on one of its machines, for example with ray job submit"
        )
    if address not in ("", "auto", "local"):
        try:
            _reach(address)  # Ray would try for a long time
        except ValueError:
            raise EngineError(
                f"engine.address: {address!r} is not of the form host:port, such as 10.0.0.1:6379"
            ) from None
        except OSError as error:
            raise EngineError(
                f"no Ray cluster at {address} ({error.strerror or error}); is its head node running at this address?"
            ) from error
    if address != "local":
        try:
            ray.init(address=address or "auto", **options)
            return
        except Exception as error:
            if address or not isinstance(error, ConnectionError) or "find any running" not in str(error):
                raise EngineError(
                    f"no connection to the Ray cluster{address and f' at {address}'}: {_first_line(error)}; is its "
                    "head node there, with the same versions of Ray and Python, and does this process have its token "
                    "(RAY_AUTH_TOKEN)?"
                ) from error
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default workers wait for every other program
    cpus = settings.workers and settings.workers * settings.cpus_per_task
    try:
        ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=_OBJECT_STORE, **options)
    except Exception as error:
        raise EngineError(f"Ray could not start a cluster on this machine: {_first_line(error)}") from error


def _reach(address: str) -> None:
    """Raise `OSError` if no process listens at an address, and `ValueError` if it is none."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()


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
