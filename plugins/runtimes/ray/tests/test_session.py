"""What a run says of Ray's dashboard: its address, or why there is none."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from rlcore_plugin_ray import session
from rlcore_plugin_ray.session import Session

from rlcore.api.runtime import RunSection, install_line

NONE = f"Ray runs without its dashboard, which is not installed: {install_line('rlcore[ray]')}"
DOWN = "Ray runs without its dashboard, which did not come up"


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
    with Session(None, RunSection(), lines.append):
        assert lines == [said]
