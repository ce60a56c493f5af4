"""The words, variables and files of known command line agents. The page on agents names the versions with which each was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PRESETS", "Preset"]

_CODEX = """\
model = "{model}"
model_provider = "rlcore"
check_for_update_on_startup = false
web_search = "disabled"
[model_providers.rlcore]
name = "rlcore"
base_url = "{base_url}"
env_key = "RLCORE_KEY"
wire_api = "responses"
request_max_retries = 0
[features]
multi_agent = false
apps = false
plugins = false
[analytics]
enabled = false
"""
_OPENCODE = """\
{"$schema": "https://opencode.ai/config.json", "model": "rlcore/{model}", "small_model": "rlcore/{model}", "share": "disabled",
 "autoupdate": false, "agent": {"title": {"disable": true}}, "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
 "provider": {"rlcore": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{base_url}", "apiKey": "{env:RLCORE_KEY}"},
  "models": {"{model}": {"limit": {"context": 1000000, "output": 32000}}}}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A command line agent. All texts may have the placeholders of ``CommandOptions``.

    ``files``: files of its home, by path.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


PRESETS: Mapping[str, Preset] = {
    "mini-swe-agent": Preset(
        command=("mini", "--yolo", "--exit-immediately", "--model", "openai/{model}", "--cost-limit", "0", "--task", "{prompt}"),
        env={
            "OPENAI_API_KEY": "{key}",
            "OPENAI_BASE_URL": "{base_url}",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        },
    ),
    "claude-code": Preset(
        command=("claude", "--print", "--model", "{model}", "--permission-mode", "acceptEdits", "--allowedTools", "Bash", "--", "{prompt}"),
        env={
            "ANTHROPIC_BASE_URL": "{root_url}",
            "ANTHROPIC_API_KEY": "{key}",
            "ANTHROPIC_SMALL_FAST_MODEL": "{model}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        },
    ),
    "codex": Preset(
        command=("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--", "{prompt}"),
        env={"RLCORE_KEY": "{key}"},
        files={".codex/config.toml": _CODEX},
    ),
    "opencode": Preset(
        command=("opencode", "run", "--", "{prompt}"),
        env={"RLCORE_KEY": "{key}", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        files={".config/opencode/opencode.json": _OPENCODE},
    ),
    "qwen-code": Preset(
        command=("qwen", "--yolo", "--auth-type", "openai", "--model", "{model}", "--prompt={prompt}"),
        env={"OPENAI_API_KEY": "{key}", "OPENAI_BASE_URL": "{base_url}", "OPENAI_MODEL": "{model}"},
        files={
            ".qwen/settings.json": '{"telemetry": {"enabled": false}, "privacy": {"usageStatisticsEnabled": false}, '
            '"general": {"enableAutoUpdate": false}, "tools": {"shell": {"enableInteractiveShell": false}}}'
        },
    ),
}
