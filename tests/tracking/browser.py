"""Headless Chromium through its DevTools protocol over a pipe: no package beside the browser.

https://chromedevtools.github.io/devtools-protocol/: JSON messages, each ended by a zero byte; the
browser reads file descriptor 3 and writes 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser")
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--force-color-profile=srgb",
)
# A shell could do it, but Debian's knows descriptors below ten only.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def find_chromium() -> str | None:
    """The path of Debian's Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of one headless browser. ``errors`` are the errors of its console, in order."""

    def __init__(self, profile: Path, *, width: int = 1600, height: int = 1000) -> None:
        chromium = find_chromium()
        assert chromium is not None
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (child_in, child_out)]
        flags = [*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, ends), chromium, *flags, "about:blank"],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (child_in, child_out, *ends):
            os.close(end)
        self._buffer = b""
        self._last_id = 0
        self._session = ""
        self.errors: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note_error(message.get("method", ""), message.get("params", {}))
        return message

    def _note_error(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            said = [str(a.get("value", a.get("description", ""))) for a in params["args"]]
            self.errors.append("console: " + " ".join(said))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            self.errors.append(f"exception: {text}")
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            self.errors.append(f"log: {entry['text']} {entry.get('url', '')}")

    def open(self, url: str) -> None:
        """Go to a page; a change behind ``#`` alone loads it anew as well."""
        self.command("Page.navigate", url="about:blank")
        self.command("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, (expression, answer)
        return answer["result"].get("value")

    def text(self) -> str:
        """What the page says."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, expression: str, secs: float = 45.0) -> Any:
        """The value of ``expression`` as soon as it is true.

        Raises:
            TimeoutError: it was not, in time; with what the page says.
        """
        deadline = time.monotonic() + secs
        while time.monotonic() < deadline:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.2)
        raise TimeoutError(f"{expression}\n{self.text()[:3000]}")

    def wait_for_text(self, text: str, secs: float = 45.0) -> None:
        """Wait until the page says ``text``."""
        self.wait_for(
            f"document.body && document.body.innerText.includes({json.dumps(text)})", secs
        )

    def click(self, expression: str) -> None:
        """Click the element that ``expression`` finds, once it is there."""
        self.wait_for(f"Boolean({expression})")
        self.evaluate(f"({expression}).click()")

    def screenshot(self, path: Path) -> None:
        """Take a picture of what is visible, when the page is quiet."""
        time.sleep(1.5)
        picture = self.command("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(picture))

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        try:
            self.command("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._in)
        os.close(self._out)
