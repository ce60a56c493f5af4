"""What a run says of Ray's dashboard: its address, or why there is none."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_ray import session
from rlcore_plugin_ray.session import Session

from rlcore.api.runtime import RunSection, install_line

NONE = f"Ray runs without its dashboard, which is not installed: {install_line('rlcore[ray]')}"
DOWN = "Ray runs without its dashboard, which did not come up"


@pytest.mark.parametrize(
    ("info", "absent", "said"),
    [
        ({"webui_url": "10.1.2.3:8265"}, [], "Ray dashboard: http://10.1.2.3:8265"),
        ({"webui_url": "10.1.2.3:8265"}, ["aiohttp"], "Ray dashboard: http://10.1.2.3:8265"),  # of a cluster that runs elsewhere
        ({"webui_url": None}, ["aiohttp"], NONE),
        ({}, ["opencensus"], NONE),
        ({"webui_url": None}, [], DOWN),
        ({}, [], DOWN),
    ],
)
def test_the_dashboard_s_address_is_said_or_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, info: dict[str, Any], absent: list[str], said: str
) -> None:
    node = SimpleNamespace(address_info=info)
    context = SimpleNamespace(worker=SimpleNamespace(node=node))
    monkeypatch.setattr(session, "ray", SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context))
    monkeypatch.setattr(session, "find_spec", lambda name: None if name in absent else find_spec(name))
    lines: list[str] = []
    with Session(RunSection(), lines.append):
        assert lines == [said]
