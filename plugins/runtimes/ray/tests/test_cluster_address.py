"""Is there a head at the address, and does it want a token: a stand-in for the process that asks."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_ray import cluster_address
from rlcore_plugin_ray.cluster_address import head_address

from rlcore.api import ConfigError

REFUSED = "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect."


@pytest.fixture(autouse=True)
def somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_address.socket, "create_connection", lambda place, timeout: SimpleNamespace(close=lambda: None))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments that a head was asked in; it wants a token. Ray is not imported."""
    seen: list[dict[str, str]] = []

    def run(command: list[str], *, env: dict[str, str], **other: Any) -> SimpleNamespace:
        seen.append(env)
        with_token = env.get("RAY_AUTH_MODE") == "token" and env.get("HAS_TOKEN")
        return SimpleNamespace(returncode=0 if with_token else 1, stderr="" if with_token else REFUSED)

    monkeypatch.setattr(cluster_address.subprocess, "run", run)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    return seen


def test_a_token_at_home_is_sent_to_a_head_that_wants_one(asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ["HAS_TOKEN"] = "1"
    assert head_address("host:6400") == "host:6400"
    assert [env.get("RAY_AUTH_MODE") for env in asked] == [None, "token"]
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_without_a_token_the_sentence_says_where_it_is(asked: list[dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match=r"the Ray cluster at host:6379 asks for a token, .* copy ~/.ray/auth_token"):
        head_address("host")
    assert "RAY_AUTH_MODE" not in os.environ


def test_a_program_that_has_imported_ray_must_choose_the_token_mode_itself(
    asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray reads the mode once, at its import."""
    os.environ["HAS_TOKEN"] = "1"
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    with pytest.raises(ConfigError, match="has imported ray without one; set RAY_AUTH_MODE=token before it starts"):
        head_address("host:6400")
    assert "RAY_AUTH_MODE" not in os.environ


def test_a_head_of_another_version_of_ray_is_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = "RuntimeError: Ray version mismatch: cluster has Ray version 2.1.0 but local Ray version is 2.60.0"
    monkeypatch.setattr(cluster_address.subprocess, "run", lambda *command, **other: SimpleNamespace(returncode=1, stderr=stderr))
    assert head_address("host:6400") == "host:6400"


def test_what_was_chosen_is_left_alone(asked: list[dict[str, str]]) -> None:
    os.environ |= {"RAY_AUTH_MODE": "disabled", "HAS_TOKEN": "1"}
    with pytest.raises(ConfigError, match="asks for a token"):
        head_address("host:6400")
    assert len(asked) == 1


@pytest.mark.parametrize("silent", [True, False])
def test_nobody_there_is_no_head(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **other: Any) -> SimpleNamespace:
        if silent:
            raise subprocess.TimeoutExpired(command, 20.0)
        return SimpleNamespace(returncode=1, stderr="connection refused")

    monkeypatch.setattr(cluster_address.subprocess, "run", run)
    with pytest.raises(ConfigError, match="does not answer as the head of a Ray cluster"):
        head_address("host:6400")


def test_where_nobody_listens_ray_is_not_asked(asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(place: tuple[str, int], timeout: float) -> None:
        assert place == ("::1", 6400)
        raise ConnectionRefusedError

    monkeypatch.setattr(cluster_address.socket, "create_connection", refused)
    with pytest.raises(ConfigError, match="does not answer as the head of a Ray cluster"):
        head_address("[::1]:6400")
    assert asked == []


@pytest.mark.parametrize("typed", ["host:0", "host:70000", "http://host:1", "", "a b:1"])
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        head_address(typed)
