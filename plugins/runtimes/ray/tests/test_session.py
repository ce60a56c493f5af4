"""The connection to Ray: what it says of the dashboard, what it keeps Ray from printing, and what it says if there is none."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_ray import session
from rlcore_plugin_ray.session import RaySession

from rlcore.api import ConfigError
from rlcore.api.runtime import RunSection, install_line

SECONDS = 20.0
NONE = f"Ray runs without its dashboard, which is not installed: {install_line('rlcore[ray]')}"
DOWN = "Ray runs without its dashboard, which did not start"


@pytest.mark.parametrize(
    ("url", "absent", "said"),
    [
        ("10.1.2.3:8265", [], "Ray dashboard: http://10.1.2.3:8265"),
        ("10.1.2.3:8265", ["aiohttp"], "Ray dashboard: http://10.1.2.3:8265"),  # of a cluster that runs elsewhere
        (None, ["aiohttp"], NONE),
        ("", ["opencensus"], NONE),
        (None, [], DOWN),
        ("", [], DOWN),
    ],
)
def test_the_dashboard_s_address_is_said_or_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, url: str | None, absent: list[str], said: str
) -> None:
    monkeypatch.setattr(session.ray, "init", lambda **options: SimpleNamespace(dashboard_url=url))
    monkeypatch.setattr(session, "find_spec", lambda name: None if name in absent else find_spec(name))
    lines: list[str] = []
    with RaySession(None, RunSection(), lines.append):
        assert lines == [said]


def test_what_ray_s_own_threads_print_is_dropped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ray prints what nodes report of dead workers on standard output, between the lines of --json."""
    go = threading.Event()
    speaks = threading.Thread(target=lambda: (go.wait(SECONDS), print("(raylet) A worker died")))

    def init(**options: Any) -> SimpleNamespace:
        speaks.start()
        return SimpleNamespace(dashboard_url="")

    monkeypatch.setattr(session.ray, "init", init)
    monkeypatch.setattr(session.ray, "shutdown", lambda: print("(raylet) [repeated 2x]"))
    before = sys.stdout
    with RaySession("host:1", RunSection(), lambda line: None):
        go.set()
        speaks.join()
        print("ours")
    assert sys.stdout is before
    assert capsys.readouterr().out == "ours\n"


def test_a_cluster_that_cannot_be_joined_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise ConnectionError("no raylet here\nand more")

    monkeypatch.setattr(session.ray, "init", init)
    with pytest.raises(ConfigError, match=r"^the Ray cluster at host:1 cannot be joined: no raylet here; type --master_address"):
        RaySession("host:1", RunSection(), lambda line: None).__enter__()
    with pytest.raises(ConfigError, match=r"^a Ray cluster cannot be started here: no raylet here; .* --ray-dir"):
        RaySession("local", RunSection(), lambda line: None).__enter__()
