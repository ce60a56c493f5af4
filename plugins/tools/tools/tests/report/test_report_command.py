"""``rlcore report``: where it writes, what it says, what it refuses; and what the file is made of."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import rlcore_plugin_tools.report
from rlcore_plugin_tools.report.page_text import _MODULES, page, script

from rlcore.testing import RunTester
from tests.synthetic_runs import SyntheticRun

PAGE = Path(rlcore_plugin_tools.report.__file__).parent / "page"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True)


def data_of(file: Path, name: str) -> dict[str, Any]:
    """What the page was given."""
    block = re.search(rf'id="data-{name}">([^<]*)<', file.read_text(encoding="utf-8"))
    assert block is not None
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(block[1])))
    return found


def test_one_run_goes_into_its_folder(tester: RunTester) -> None:
    SyntheticRun(steps=4).write(tester.folder / "run")
    done = tester.run("report", "run").assert_ok()
    assert done.written == (Path("run/report.html"),)
    assert re.fullmatch(r"run/report\.html \(\d.* [kM]B, 1216 rollouts and answers\); open it in a browser", done.lines[0])


def test_json_says_where_and_how_large(tester: RunTester) -> None:
    SyntheticRun(steps=4).write(tester.folder / "a")
    SyntheticRun(steps=4, seed=1).write(tester.folder / "b")
    told = tester.run("report", "a", "b", "--json").assert_ok().json
    assert told["report"] == "report.html"
    assert told["bytes"] == (tester.folder / "report.html").stat().st_size
    assert [(Path(run["run"]).name, run["state"], run["steps"]) for run in told["runs"]] == [("a", "finished", 4), ("b", "finished", 4)]
    figures = data_of(tester.folder / "report.html", "figures")
    assert figures["groups"] == [[0, 1]]
    assert figures["differences"] == ["run.seed"]


def test_other_files_of_a_glob_are_left_out_with_a_note(tester: RunTester) -> None:
    SyntheticRun(steps=2).write(tester.folder / "a")
    SyntheticRun(steps=2, seed=1).write(tester.folder / "b")
    tester.write("report.html", "an old one")
    done = tester.run("report", "a", "b", "report.html", "-o", "all.html", "--json").assert_ok()
    assert [run["run"].rpartition("/")[2] for run in done.json["runs"]] == ["a", "b"]
    assert "left out, because they are not run folders: report.html" in done.stderr
    tester.run("report", "report.html", "nowhere").assert_refused("report.html is not a run folder")


def test_a_project_means_its_newest_run(tester: RunTester) -> None:
    for name in ("20260131-120000-aaaaaa", "20260131-130000-bbbbbb"):
        SyntheticRun(steps=2).write(tester.folder / "project" / name)
    done = tester.run("report", "project", "--json").assert_ok()
    assert [run["run"].rpartition("/")[2] for run in done.json["runs"]] == ["20260131-130000-bbbbbb"]
    assert done.json["report"] == "project/20260131-130000-bbbbbb/report.html"


def test_what_is_no_run_is_refused_in_one_sentence(tester: RunTester) -> None:
    SyntheticRun(steps=1).write(tester.folder / "project" / "20260131-120000-aaaaaa")
    (tester.folder / "empty").mkdir()
    tester.run("report", "empty").assert_refused("empty is not a run folder, since it has no run.toml")
    tester.run("report", "absent").assert_refused("absent is not there")
    tester.run("report", "project/20260131-120000-aaaaaa", "--rollouts", "-3").assert_refused("-3")
    tester.run("report", "project/20260131-120000-aaaaaa", "--characters", "0").assert_refused("'0' is not a number of 1 or more")


def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(tester: RunTester) -> None:
    SyntheticRun(steps=1).write(tester.folder / "run")
    tester.run("report", "run", "-o", "no/such/folder.html").assert_refused(
        "no/such/folder.html cannot be written (No such file", "-o FILE"
    )
    (tester.folder / "taken").mkdir()
    tester.run("report", "run", "-o", "taken").assert_refused("-o taken: is a folder; name a file")
    os.mkfifo(tester.folder / "pipe")
    tester.run("report", "run", "-o", "pipe").assert_refused("-o pipe: is not a regular file; name a file")
    assert (tester.folder / "pipe").is_fifo()


def test_a_run_without_an_update_has_a_report(tester: RunTester) -> None:
    SyntheticRun(steps=0, ends="killed", eval_every=9, failures=0).write(tester.folder / "run")
    (tester.folder / "run" / "manifest.json").unlink()
    told = tester.run("report", "run", "--json").assert_ok().json
    assert (told["runs"][0]["state"], told["runs"][0]["steps"]) == ("ended", 0)


def test_a_damaged_file_costs_its_own_part_only(tester: RunTester) -> None:
    run = SyntheticRun(steps=4).write(tester.folder / "run")
    (run / "rollouts" / "step-2.jsonl.gz").write_bytes(b"no gzip")
    (run / "times.jsonl").write_text("{]\n{}\n")
    tester.run("report", "run").assert_ok()
    assert "step-2.jsonl.gz cannot be read" in data_of(run / "report.html", "rollouts")["problems"][0]
    figures = data_of(run / "report.html", "figures")
    assert "times.jsonl:1 is not JSON" in figures["runs"][0]["problems"][0]
    assert len(figures["runs"][0]["steps"]) == 4


# --- the file -----------------------------------------------------------------------------------------------------------

HOSTILE = '</script><script>window.owned = 1</script><img src=x onerror="window.owned=1">{{SCRIPT}}]]>-->\0\ud800\u202e\U0001f600'


def test_no_text_of_a_run_is_part_of_the_page(tester: RunTester) -> None:
    run = SyntheticRun(
        steps=2, edit=lambda row: row | {"text": HOSTILE, "prompt_id": HOSTILE, "reason": HOSTILE, "outcome": HOSTILE}
    ).write(tester.folder / "run")
    tester.run("report", "run").assert_ok()
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "owned" not in text
    assert data_of(run / "report.html", "rollouts")["columns"]["text"][0] == HOSTILE
    assert text.count("<script") == 4


def test_the_policy_allows_the_scripts_of_the_page_alone() -> None:
    text = page({"runs": []}, {}).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    executed = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", text, re.DOTALL)
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in executed]
    assert len(hashes) == 2
    assert re.search(r"script-src ([^;]*);", policy[1])[1].split() == hashes  # type: ignore[index]


def test_the_modules_are_whole_and_can_be_one_script() -> None:
    named = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)
    exported: dict[str, set[str]] = {}
    seen: dict[str, str] = {}
    imported: set[str] = set()
    for name in _MODULES:
        text = (PAGE / name).read_text(encoding="utf-8")
        exported[name] = set(re.findall(r"^export (?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE))
        for one in named.findall(text):
            assert one not in seen, f"{one} is in {seen[one]} and in {name}"
            seen[one] = name
        for names, module in re.findall(r"^import \{ ([^}]*) \} from \"\./(\w+\.js)\";$", text, re.MULTILINE):
            assert set(names.split(", ")) <= exported[module], f"{name} imports from {module}, which must stand before it"
            imported |= set(names.split(", "))
            rest = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
            unused = [one for one in names.split(", ") if not re.search(rf"\b{one}\b", rest)]
            assert not unused, f"{name} imports {unused} and does not use it"
    assert set().union(*exported.values()) == imported, "exported for nobody"
    assert {path.name for path in PAGE.glob("*.js")} == set(_MODULES)
    assert "import " not in re.sub(r"//.*", "", script())
    assert "innerHTML" not in script()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_text_have_contrast(theme: str) -> None:
    """4.5 to 1, as WCAG asks for."""
    css = (PAGE / "base.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", css)
    assert blocks[1].split() == blocks[2].split(), "the dark theme is there twice, and once otherwise"
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[theme == "dark"]))
    on = {"ink": "bg card sunk mark", "muted": "bg card sunk mark", "accent": "bg card mark", "gone-ink": "gone", "new-ink": "new"}
    on |= {name: f"{name}-bg" for name in ("good", "warn", "bad", "run")}
    low = {(ink, ground): _contrast(colors[ink], colors[ground]) for ink, grounds in on.items() for ground in grounds.split()}
    assert {pair: round(contrast, 2) for pair, contrast in low.items() if contrast < 4.5} == {}


def _contrast(one: str, other: str) -> float:
    lights = sorted(_light(color) for color in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _light(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
