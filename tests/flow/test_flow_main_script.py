"""Where workers run: with the main script or without it, in the folder and the environment of the main process.

Scripts are written as users write them: with and without a guard, as files, modules, piped and interactive.
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
stages = [(source, method) for method in ["forkserver", "spawn"] for source in sources]
run = lambda source, method: list(w.simple_pipeline(source, w.check_main_script, start_method=method).run())
print(json.dumps([run(source, method) for source, method in stages]))
"""

FUNCTION_IN_MAIN = """
import sys
from functools import partial
import flow_workers as w

FACTOR = int(sys.argv[1])

class Number:
    def __init__(self, value):
        self.value = value

def multiply(items):
    for item in items:
        yield Number(item * FACTOR)

def main():
    for start_method in sys.argv[2:]:
        pipeline = w.simple_pipeline(partial(w.numbers, 5), multiply, start_method=start_method)
        print(sorted(number.value for number in pipeline.run()))

"""
GUARD = 'if __name__ == "__main__":\n    '


@pytest.mark.slow
@pytest.mark.parametrize("run_as", ["file", "stdin", "-c", "-i"])
def test_a_plain_script_needs_no_guard_and_is_not_imported_by_workers(run_as: str, tmp_path: Path) -> None:
    """Neither does one whose arguments happen to contain the name of `__main__`."""
    (tmp_path / "plain.py").write_text(PLAIN)
    arguments = {"file": [str(tmp_path / "plain.py")], "stdin": ["-"], "-c": ["-c", PLAIN], "-i": ["-i", "-q"]}[run_as]
    with Script(tmp_path, *arguments) as script:
        output, errors = script.end(PLAIN)
    assert errors.replace(">>> ", "").strip() == ""
    assert [[imported_main for _, imported_main in results] for results in json.loads(output)] == [[False] * 2] * 4


@pytest.mark.slow
@pytest.mark.parametrize("run_as", ["file", "module"])
def test_a_stage_function_in_the_main_script_works_with_the_guard(run_as: str, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "guarded.py").write_text(FUNCTION_IN_MAIN + GUARD + "main()\n")
    start = ["-m", "package.guarded"] if run_as == "module" else [str(folder / "guarded.py")]
    with Script(tmp_path, *start, "3", "forkserver", "spawn") as script:
        output, errors = script.end()
    assert errors == ""
    assert output == "[0, 3, 6, 9, 12]\n" * 2


@pytest.mark.slow
def test_the_error_for_a_stage_function_in_an_unguarded_main_script_explains_the_guard(
    start_method: str, tmp_path: Path
) -> None:
    (tmp_path / "unguarded.py").write_text(FUNCTION_IN_MAIN + "main()\n")
    with Script(tmp_path, str(tmp_path / "unguarded.py"), "3", start_method) as script:
        output, errors = script.end()
    assert script.process.returncode == 1
    assert output == ""
    assert "FlowError: a pipeline was started while a worker was importing the main script" in errors
    assert GUARD.strip() in errors


@pytest.mark.slow
def test_a_stage_function_in_a_piped_script_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    with Script(tmp_path, "-", "3", "spawn") as script:
        _, errors = script.end(FUNCTION_IN_MAIN + "main()\n")
    assert script.process.returncode == 1
    assert "move it to a module" in errors.splitlines()[-1]


def test_workers_have_the_folder_the_environment_and_the_path_of_the_main_process(
    start_method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    [result] = w.simple_pipeline(partial(w.numbers, 1), stage, start_method=start_method).run()
    assert result[:3] == (str(tmp_path), "late", None)


# ---- main processes that are children of others


@pytest.mark.slow
def test_a_pipeline_runs_in_a_daemonic_process() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(w.squares_of_five, ("forkserver",)) == [0, 1, 4, 9, 16]
        pool.close()
        pool.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_pipeline_runs_in_a_child_process(method: str) -> None:
    """A forked child must not use the fork server of its parent."""
    assert w.squares_of_five("forkserver") == [0, 1, 4, 9, 16]
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as executor:
        assert executor.submit(w.squares_of_five, "forkserver").result() == [0, 1, 4, 9, 16]
    assert w.squares_of_five("forkserver") == [0, 1, 4, 9, 16]


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
