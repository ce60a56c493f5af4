"""The supervisor of a session starts with few imports, and its parts that replace asyncio do their work."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

from kit_sandbox import FUSE
from kit_sessions import LIMITS, job
from rlcore_plugin_sandbox import bubblewrap
from rlcore_plugin_sandbox.interpreter import executable

from rlcore.api.sandbox import Limit, Sandbox

_PACKAGE = bubblewrap.__file__.rpartition("/")[0]


def ran_in_jail_code(source: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds only the package ``jail``, as a supervisor does."""
    begin = "import sys, types\nsys.modules['rlcore_plugin_sandbox'] = package = types.ModuleType('package')\n"
    source = f"{begin}package.__path__ = [{_PACKAGE!r}]\n{source}"
    command = [str(executable()), "-S", "-s", "-P", "-B", "-X", "utf8", "-c", source]
    return subprocess.run(command, capture_output=True, text=True, timeout=FUSE, check=False)


def test_the_supervisor_imports_nothing_slow_before_it_has_an_address_to_relay() -> None:
    ran = ran_in_jail_code("import json, rlcore_plugin_sandbox.jail.supervisor\nprint(json.dumps(list(sys.modules)))")
    assert not {"asyncio", "dataclasses", "inspect", "pathlib", "platform", "subprocess", "threading"} & set(json.loads(ran.stdout))


def test_an_error_of_the_relay_ends_the_session() -> None:
    source = """
import time
from rlcore_plugin_sandbox.jail import relay
async def broken(listener, address):
    raise LookupError("of the relay")
relay._relay = broken
relay.start(None, "")
time.sleep(9)
"""
    ran = ran_in_jail_code(source)
    assert ran.returncode == 1
    assert "LookupError: of the relay" in ran.stderr


def test_a_session_that_always_writes_errors_is_watched_too(sandbox: Sandbox) -> None:
    source = "import os\nheld = []\nwhile True:\n    os.write(2, b'x' * 1000)\n    held.append(bytearray(b'x' * 4096))"
    limits = replace(LIMITS, memory_bytes=64 << 20, address_bytes=8 << 30, cpu_seconds=60.0)
    with sandbox.session(job(source, limits=limits)) as session:
        assert session.wait(FUSE).limit == Limit.MEMORY
