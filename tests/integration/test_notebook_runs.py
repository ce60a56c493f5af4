"""``rlcore.train`` in a real Jupyter kernel: one output that is replaced, the stop button, and a second run in the same kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET
from tests.quickstart_folder import quickstart_in

ROOT = Path(__file__).parents[2]
PATIENCE = 200.0
SLOW = """
import time

def slow(item):
    time.sleep(0.02)
    return float(item.columns["gt_answer"] in item.text)
"""
LONG = {"run": {"max_steps": 1000, "num_episodes": 2000}, "sampling": {"num_generations": 8, "max_new_tokens": 2}}
NAMES = "TrainingRun OneProcess Coordinator ProducerThread EngineGuard FakeTraining FakeInference TorchBackend TransformersBackend"
ALIVE = f"""
import gc
def alive():
    return sorted(type(one).__name__ for one in gc.get_objects() if type(one).__name__ in {NAMES.split()!r})
"""


class Kernel:
    """A kernel in the folder of a tester, and the outputs of its cells."""

    def __init__(self, tester: RunTester) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(cwd=str(tester.folder), env={**tester.plugins.environment, **QUIET})
        self._client: BlockingKernelClient = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE)
        self.outputs: list[dict[str, Any]] = []

    def run(self, code: str, *, presses: int = 0) -> str:
        """Run a cell. Press the stop button so many times: first when the run makes steps, then when it has answered.

        Return the text of its value, or of its error. ``outputs`` then holds the messages of the cell."""
        self._client.execute(code)
        self.outputs, value = [], ""
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE)
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data", "stream"):
                self.outputs.append({"kind": kind, **content})
                if presses and self._due(content):
                    self._manager.interrupt_kernel()
                    presses -= 1
            elif kind == "execute_result":
                value = content["data"]["text/plain"]
            elif kind == "error":
                value = f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle" and message["parent_header"]["msg_type"] == "execute_request":
                assert not presses, f"the run has ended before the stop button was pressed\n{value}"
                return value

    def _due(self, content: dict[str, Any]) -> bool:
        html = content.get("data", {}).get("text/html", "")
        wanted = "interrupted:" if self._pressed else "tokens/s"
        found = wanted in html
        self._pressed |= found
        return found

    _pressed = False

    def end(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path).with_fakes()
    made.write("mine.py", SLOW)
    return made


@pytest.fixture
def kernel(tester: RunTester) -> Iterator[Kernel]:
    made = Kernel(tester)
    yield made
    made.end()


def test_a_run_is_one_output_that_is_replaced_and_ends_as_a_summary(tester: RunTester, kernel: Kernel) -> None:
    config = tester.fake_run(
        run={"max_steps": 300, "num_episodes": 200}, eval={"eval_dataset": {"say": str(tester.folder / "train.jsonl")}}
    )
    value = kernel.run(f"import rlcore\nrlcore.train({config!r})")
    assert value.startswith("run                 done\ntraining            300 updates")
    shown = [output for output in kernel.outputs if output["kind"] != "stream"]
    assert shown == kernel.outputs, "no other output"
    assert [output["kind"] for output in shown][:1] == ["display_data"]
    assert {output["kind"] for output in shown[1:]} == {"update_display_data"}
    assert len({output["transient"]["display_id"] for output in shown}) == 1
    last = shown[-1]["data"]
    assert last["text/plain"].startswith("done: step 300 of 300, reward ")
    assert "Answers at the last evaluation" in last["text/html"]
    assert len(last["text/html"]) < 20_000


def test_the_stop_button_finishes_the_step_and_the_kernel_trains_again(tester: RunTester, kernel: Kernel) -> None:
    config = tester.fake_run(**LONG)
    value = kernel.run(f"import rlcore, mine\nsummary = rlcore.train({config!r}, reward=mine.slow)\nsummary", presses=1)
    assert value.startswith("run                 stopped early, and saved\n"), value
    assert "to resume           rlcore.train(resume=" in value
    assert kernel.outputs[-1]["data"]["text/plain"].startswith("stopped early, and saved: step ")
    assert kernel.run("summary.interrupted, summary.steps > 0, summary.checkpoint.is_dir()") == "(True, True, True)"
    assert kernel.run(f"rlcore.train({config!r}, max_steps=2).steps") == "2"


def test_a_second_press_stops_at_once(tester: RunTester, kernel: Kernel) -> None:
    config = tester.fake_run(**LONG)
    tester.write("mine.py", SLOW.replace("0.02", "1"))
    assert kernel.run(f"import rlcore, mine\nrlcore.train({config!r}, reward=mine.slow)", presses=2).startswith("KeyboardInterrupt")
    assert kernel.outputs[-1]["data"]["text/plain"].startswith("stopped: ")
    assert kernel.run("1 + 1") == "2"


def test_no_part_of_a_run_is_alive_after_it(tester: RunTester, kernel: Kernel) -> None:
    config = tester.fake_run()
    assert kernel.run(f"{ALIVE}\ngc.disable()\nimport rlcore\nrlcore.train({config!r}).steps, alive()") == "(3, [])"


@pytest.mark.full
def test_the_first_steps_train_a_model(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook as it is in the repository; its model is made before, as if the notebook were run again."""
    quickstart_in(tmp_path / "demo", tmp_path_factory)
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    notebook: Any = nbformat.read(ROOT / "examples" / "first_steps.ipynb", as_version=4)
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    assert not any(cell.outputs or cell.execution_count for cell in cells.values()), "git has no outputs"
    NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}}).execute()
    print([output.text for output in cells["train"].outputs if output.output_type == "stream"])  # warnings of libraries
    (shown,) = [output for output in cells["train"].outputs if output.output_type != "stream"]
    assert shown["data"]["text/plain"].startswith("done: step 40 of 40")
    before, after = map(float, re.findall(r"[\d.]+", cells["accuracy"].outputs[0]["text"])[:2])
    assert after > before + 0.1
    first, last = map(float, re.findall(r"\d\.\d+", cells["folder"].outputs[0]["text"])[:2])
    assert last > first + 0.1
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
