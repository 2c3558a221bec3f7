"""Workflows for tests: definitions as people write them, a registry for a scripted server, replies of its model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.command_line import CommandLine, Ran
from tests.support.fake_openai import Completion, FakeOpenAI, says

GATED = ("file_read", "file_write", "shell_exec")


def answer(result: Any, **more: Any) -> Completion:
    """A final answer that claims success."""
    return says(json.dumps({"success": True, "result": result, **more}))


def gave_up(reason: str) -> Completion:
    """A final answer that says itself that it has failed."""
    return says(json.dumps({"success": False, "result": None, "reasoning": reason}))


def step(name: str, **more: Any) -> dict[str, Any]:
    """A step without tools, unless `more` says otherwise."""
    return {"name": name, "system_prompt": f"Do {name}.", "tools": [], **more}


def checking(*checked: Any) -> dict[str, Any]:
    """A validation by shell_exec: the answer's `checked` names the command, one of those that the step lists."""
    return {
        "validation_tools": [{"tool": "shell_exec", "subject": {"command": "/checked"}}],
        "output_schema": {"type": "object", "properties": {"checked": {"enum": list(checked)}}},
    }


class WorkflowInstallation:
    """Commands in a workspace whose registry names a scripted server and workflows."""

    def __init__(self, chatops: CommandLine, url: str) -> None:
        self.chatops = chatops
        self.workspace = chatops.workspace
        self.file = self.workspace.parent / "registry.json"
        self._url = url
        self._workflows: dict[str, Any] = {}
        self.permit(*GATED)

    def define(self, *steps: dict[str, Any], name: str = "flow") -> None:
        """A workflow in the registry."""
        self._workflows[name] = {"description": "A test", "steps": list(steps)}
        self._write()

    def permit(self, *tools: str) -> None:
        """The tools of role coder from now on."""
        self._tools = list(tools)
        self._write()

    def _write(self) -> None:
        model = {
            "type": "openai",
            "api_url": self._url,
            "model_name": "m",
            "timeout_s": {"connect": 5, "first_token": 60},
        }
        value = {
            "version": 3,
            "default_role": "coder",
            "models": {"fake": model},
            "roles": {
                "coder": {"primary": "fake", "tools": self._tools},
                "reader": {"primary": "fake", "tools": ["file_read"]},
            },
            "users": {"*": {"access_level": "operator"}},
            "workflows": self._workflows,
        }
        self.file.write_text(json.dumps(value, indent=1))

    def __call__(self, *arguments: str) -> Ran:
        """One command with this registry."""
        return self.chatops("--registry", str(self.file), *arguments)

    def run(self, *arguments: str, query: str = "build it", name: str = "flow") -> Ran:
        """Run a workflow; stdout is the documented object."""
        return self("workflow", "run", name, query, "--output-format", "json", *arguments)

    def resume(self, run: str, *arguments: str) -> Ran:
        """Go on with a run; stdout is the documented object."""
        return self("workflow", "resume", run, "--output-format", "json", *arguments)

    def made(self, name: str) -> Path:
        """A file of the workspace."""
        return self.workspace / name


Scripted = tuple[Callable[..., WorkflowInstallation], FakeOpenAI]
"""What makes an installation of the replies of its server, and that server."""
