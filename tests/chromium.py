"""A real headless Chromium, driven over a pipe by its DevTools protocol: what a reader of the report has, without a package for it.

>>> with Chromium() as browser, browser.open("file:///tmp/report.html", width=390) as page:
...     page.wait("document.documentElement.dataset.ready")
...     page.screenshot(Path("page.png"))
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

__all__ = ["BrowserPage", "Chromium", "browser_of_a_test", "chromium_program"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the tests run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_LAUNCH = """
import os, sys
ends = [os.dup(int(end)) for end in sys.argv[1:3]]
while min(ends) < 5:
    ends = [os.dup(end) for end in ends]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads its orders from descriptor 3 and answers on 4."""
_DEADLINE = 60.0


def chromium_program() -> str | None:
    """Where it is installed; None if it is not."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Chromium:
    """One browser. RuntimeError if it does not answer in a minute, or ends."""

    def __init__(self) -> None:
        program = chromium_program()
        if program is None:
            raise RuntimeError("there is no Chromium; on Debian and Ubuntu: apt-get install chromium")
        self._profile = tempfile.mkdtemp(prefix="rlcore-chromium-")
        orders, self._write = os.pipe()
        self._read, answers = os.pipe()
        words = [sys.executable, "-c", _LAUNCH, str(orders), str(answers), program, *_FLAGS, f"--user-data-dir={self._profile}"]
        self._process = subprocess.Popen(
            words, pass_fds=(orders, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(orders)
        os.close(answers)
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session: nobody else's browser
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One order, and its answer; what the browser tells meanwhile goes to ``events``."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(order).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + _DEADLINE
        while True:
            message = self._message(end)
            if message.get("id") != self._number:
                self.events.append(message)
                continue
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            result: dict[str, Any] = message["result"]
            return result

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise RuntimeError(f"Chromium does not answer in {_DEADLINE:.0f} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    @contextmanager
    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[BrowserPage]:
        """A window of its own at ``url``."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = BrowserPage(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.navigate", url=url)
        try:
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)


class BrowserPage:
    """One window: ``evaluate`` runs a script in it."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """An order to this window."""
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Of the part that shows the page, in CSS pixels; a narrow one is a phone's."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def evaluate(self, script: str) -> Any:
        """The value of an expression, awaited; AssertionError if it throws."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        """The value of an expression once it is true; what it throws before then (the page is not there yet) counts as false."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.evaluate(f"(() => {{ try {{ return {script}; }} catch {{ return false; }} }})()"):
                return value
            time.sleep(0.05)
        raise AssertionError(f"not true in {seconds:.0f} s: {script}\n{self.problems()}")

    def press(self, key: str) -> None:
        """A key, as named by ``KeyboardEvent.key``."""
        text = {"text": key} if len(key) == 1 else {}
        code = {"ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36, "Escape": 27, "Tab": 9, "Enter": 13}.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is in sight, or of the whole page."""
        if whole:
            height = self.evaluate("document.documentElement.scrollHeight")
            width = self.evaluate("innerWidth")
            self.resize(width, height)  # also draws what is drawn only when it comes near
            self.evaluate("new Promise((done) => setTimeout(done, 600))")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def problems(self) -> list[str]:
        """Exceptions, errors of the console and of the policy, and requests for anything but the page itself."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            told = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(told["exceptionDetails"].get("exception", told["exceptionDetails"]).get("description", told)))
                case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                    found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
                case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning"):
                    found.append(json.dumps(told["args"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that the window has asked for."""
        told = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"]["request"]["url"] for event in told if event["method"] == "Network.requestWillBeSent"]


def browser_of_a_test() -> Iterator[Chromium]:
    """Yield a Chromium for a fixture. Without one, skip its tests, unless ``RLCORE_TEST_BROWSER`` says that it must be there."""
    if chromium_program() is None and not os.environ.get("RLCORE_TEST_BROWSER"):
        pytest.skip("there is no Chromium: apt-get install chromium")
    with Chromium() as browser:
        yield browser
