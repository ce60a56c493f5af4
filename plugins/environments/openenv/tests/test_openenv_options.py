"""Options, registration and rows of the environment ``openenv``. The package openenv is not needed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_openenv import rlcore_register_environments
from rlcore_plugin_openenv.options import OpenEnvOptions

from rlcore.api import PluginKind
from rlcore.testing import Registry


def test_it_is_registered_with_the_environment_that_it_needs() -> None:
    (spec,) = rlcore_register_environments()
    assert (spec.environment, spec.episodes_per_process) == ("openenv", 1)
    assert Registry.discover().owner(PluginKind.ENVIRONMENT, "openenv") == "rlcore-plugin-openenv"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "interface steps needs a server: address, app or command"),
        ({"interface": "tools"}, "interface tools needs a server: address, app or command"),
        ({"address": "http://a:1", "app": "m:app"}, "address and app name two servers; an environment has one"),
        ({"address": "localhost:8000"}, "'localhost:8000' is not an address; write it with its protocol, such as http://127.0.0.1:8000"),
        ({"app": "server.py"}, "'server.py' is not a name of the form module:name, such as guessing.server:app"),
        ({"app": "m:app", "prompt": "a-b"}, "'a-b' is not a name of the form module:name"),
        ({"command": "serve --port 8000"}, "command never receives its port: write {port} where the server reads it"),
        ({"interface": "session"}, "interface session needs the option factory, module:name"),
        ({"interface": "session", "factory": "m:F", "app": "m:app"}, "interface session has no server, but app names one"),
        ({"interface": "agent", "app": "m:app"}, "interface agent needs the option agent, module:name"),
        ({"app": "m:app", "max_steps": 0}, "greater than or equal to 1"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said.replace("{", r"\{")):
        OpenEnvOptions(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"app": "guessing.server:app", "prompt": "hint", "action": "guess"},
        {"address": "ws://127.0.0.1:8000/", "action": "parsers:guess"},
        {"command": "python -m server --port {port}"},
        {"interface": "session", "factory": "m:Factory"},
        {"interface": "agent", "agent": "m:play"},
    ],
)
def test_options_that_work(options: dict[str, Any]) -> None:
    made = OpenEnvOptions(**options)
    assert not made.address.endswith("/")
    assert all(isinstance(word, str) for word in made.command)


def test_what_a_run_configures_imports_nothing_of_openenv() -> None:
    code = (
        "import sys, rlcore_plugin_openenv, rlcore_plugin_openenv.options; print([m for m in sys.modules if m.split('.')[0] == 'openenv'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
