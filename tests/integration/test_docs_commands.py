"""The command of docs/authors/commands.md, installed: it conforms, as the page's own test says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from rlcore.testing import RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "commands.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- test: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def test_the_command_of_the_page_conforms_by_the_test_of_the_page(tmp_path: Path) -> None:
    tester = RunTester(tmp_path / "project", in_process=True)
    tester.plugins.install("acme", target="acme_report")
    for name, text in FILES.items():
        (tester.plugins.root / name).parent.mkdir(exist_ok=True)
        (tester.plugins.root / name).write_text(text, encoding="utf-8")
    tester.write("run/metrics.jsonl", "{}\n{}\n")
    assert tester.run("acme-steps", "run").assert_ok().stdout == "2 updates\n"
    (tmp_path / "test_steps.py").write_text(FILES["test_steps.py"], encoding="utf-8")
    with tester.plugins:
        test = runpy.run_path(str(tmp_path / "test_steps.py"))["test_the_command_conforms"]
    site = tmp_path / "again"
    site.mkdir()
    (site / ".plugins").symlink_to(tester.plugins.root)
    test(site)
