"""Where workers run: without the main script, in the folder and the environment of the main process.

Scripts run as users run them: as files, as modules, piped and interactive.
"""

import importlib
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType

import flow_workers as w
import pytest
from flow_checks import Script

PLAIN = """
import json
from functools import partial
import flow_workers as w
sources = [partial(w.numbers_named, name, 9) for name in ["lib/__main__.py", "__main__"]]
print(json.dumps([list(w.simple_pipeline(source, w.check_main_script).run()) for source in sources]))
"""

FUNCTION_IN_MAIN = """
from functools import partial
import flow_workers as w

def double(items):
    for item in items:
        yield 2 * item

if __name__ == "__main__":
    print(sorted(w.simple_pipeline(partial(w.numbers, 5), double).run("threads")), flush=True)
    list(w.simple_pipeline(partial(w.numbers, 5), double).run())
"""


@pytest.mark.slow
@pytest.mark.parametrize("run_as", ["file", "stdin", "-c", "-i"])
def test_a_plain_script_needs_no_guard_and_is_not_imported_by_workers(run_as: str, tmp_path: Path) -> None:
    """Neither does one whose arguments happen to contain the name of `__main__`."""
    (tmp_path / "plain.py").write_text(PLAIN)
    arguments = {"file": [str(tmp_path / "plain.py")], "stdin": ["-"], "-c": ["-c", PLAIN], "-i": ["-i", "-q"]}[run_as]
    with Script(tmp_path, *arguments) as script:
        output, errors = script.end(PLAIN)
    assert errors.replace(">>> ", "").strip() == ""
    assert [[imported_main for _, imported_main in results] for results in json.loads(output)] == [[False] * 2] * 2


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["script.py"], ["-m", "script"], ["-"]], ids=str)
def test_a_stage_function_in_the_main_script_is_refused_with_the_remedy(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FUNCTION_IN_MAIN)
    with Script(tmp_path, *arguments) as script:
        output, errors = script.end(FUNCTION_IN_MAIN)
    assert script.process.returncode == 1
    assert output == "[0, 2, 4, 6, 8]\n", "threads need no import"
    assert errors.splitlines()[-1] == (
        "bpeflow.flow.errors.FlowError: stage 'stage 0' cannot be sent to its workers: double is defined in the main "
        "script (__main__): define its functions in a module that they can import, or run the pipeline in threads"
    )


def test_workers_have_the_folder_the_environment_and_the_path_of_the_main_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that have changed since the fork server started."""
    monkeypatch.setenv("REMOVED", "early")
    assert list(w.simple_pipeline(partial(w.numbers, 3)).run()) == [0, 1, 2]  # the fork server runs now
    (tmp_path / "late.py").write_text(
        "import flow_workers\n\ndef run(items): yield from flow_workers.describe_process(items)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ADDED", "late")
    monkeypatch.delenv("REMOVED")
    monkeypatch.delitem(sys.modules, "late", raising=False)
    stage = importlib.import_module("late").run
    [result] = w.simple_pipeline(partial(w.numbers, 1), stage).run()
    assert result[:3] == (str(tmp_path), "late", None)


# ---- main processes that are children of others


@pytest.mark.slow
def test_a_pipeline_runs_in_a_daemonic_process() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(w.squares_of_five) == [0, 1, 4, 9, 16]
        pool.close()
        pool.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_pipeline_runs_in_a_child_process(method: str) -> None:
    """A forked child must not use the fork server of its parent."""
    assert w.squares_of_five() == [0, 1, 4, 9, 16]
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as executor:
        assert executor.submit(w.squares_of_five).result() == [0, 1, 4, 9, 16]
    assert w.squares_of_five() == [0, 1, 4, 9, 16]


def test_a_pipeline_runs_where_a_tool_has_replaced_the_main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `runpy`, a debugger or a notebook does. `multiprocessing` has kept the one before as `__mp_main__`."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert list(w.simple_pipeline(partial(w.numbers, 3)).run()) == [0, 1, 2]


def test_a_stage_function_that_workers_cannot_import_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_up")
    exec("def function(item): return item", vars(module))
    monkeypatch.setitem(sys.modules, "made_up", module)
    with pytest.raises(ModuleNotFoundError, match="made_up"):
        list(w.simple_pipeline(partial(w.numbers, 3), partial(w.map_each, module.function)).run())
