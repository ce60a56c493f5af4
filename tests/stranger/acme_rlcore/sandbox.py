"""Acme's sandbox: programs run on another machine, behind a small HTTP service. It uses only the standard library.

The service takes POST /run with a job as one JSON object, and answers with the result as another one. Bytes are base64 in both.
"""

from __future__ import annotations

import json
import urllib.request
from base64 import b64decode, b64encode
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api.sandbox import Job, Level, Limit, ProgramResult, Sandbox, SandboxError

__all__ = ["HttpSandbox", "HttpSandboxOptions"]


class HttpSandboxOptions(BaseModel):
    """The address of the service, and how long to wait for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"https?://.+", description="address of the service, http://host:port")
    patience: float = Field(default=10.0, gt=0, description="seconds that the service may take beyond the wall limit of a program")


class HttpSandbox(Sandbox):
    """Sends each job to the service and waits for the answer. A request that fails is sent once more."""

    level = Level.REMOTE

    def __init__(self, options: HttpSandboxOptions) -> None:
        self._options, self._closed = options, False
        try:
            with urllib.request.urlopen(f"{options.url}/health", timeout=options.patience) as answer:
                self._facts = answer.read(200).decode()
        except (OSError, ValueError) as error:
            raise SandboxError(f"the service at {options.url} does not answer ({error}); start it, or set backend_options.url") from error

    def run(self, job: Job) -> ProgramResult:
        if self._closed:
            raise SandboxError("the sandbox is closed; open a new one")
        if sum(map(len, job.files.values())) > job.limits.disk_bytes:
            raise ValueError(f"the job's {len(job.files)} files do not fit: disk_bytes is {job.limits.disk_bytes}")
        request = urllib.request.Request(
            f"{self._options.url}/run", json.dumps(_written(job)).encode(), {"Content-Type": "application/json"}
        )
        try:
            return self._asked(request, job)
        except (OSError, ValueError, KeyError):
            try:
                return self._asked(request, job)
            except (OSError, ValueError, KeyError) as error:
                raise SandboxError(f"the service at {self._options.url} failed twice ({type(error).__name__}: {error})") from error

    def _asked(self, request: urllib.request.Request, job: Job) -> ProgramResult:
        with urllib.request.urlopen(request, timeout=job.limits.wall_seconds + self._options.patience) as answer:
            return _read(json.load(answer))

    def describe(self) -> str:
        return f"{self.level} ({self._facts} at {self._options.url})"

    def close(self) -> None:
        self._closed = True


def _written(job: Job) -> dict[str, Any]:
    source = job.source.encode("utf-8", "surrogatepass") if isinstance(job.source, str) else job.source
    return {
        "source": None if source is None else b64encode(source).decode(),
        "argv": [b64encode(word.encode("utf-8", "surrogateescape")).decode() for word in job.argv],
        "stdin": b64encode(job.stdin).decode(),
        "files": {
            b64encode(name.encode("utf-8", "surrogateescape")).decode(): b64encode(content).decode() for name, content in job.files.items()
        },
        "limits": asdict(job.limits),
    }


def _read(answer: dict[str, Any]) -> ProgramResult:
    return ProgramResult(
        exit_code=answer["exit_code"],
        signal=answer["signal"],
        stdout=b64decode(answer["stdout"]),
        stderr=b64decode(answer["stderr"]),
        limit=None if answer["limit"] is None else Limit(answer["limit"]),
        wall_seconds=answer["wall_seconds"],
        cpu_seconds=answer["cpu_seconds"],
        memory_bytes=answer["memory_bytes"],
    )
