"""The SDK is imported without its types, and they are there when somebody asks for them."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_connecting_loads_none_of_the_endpoints_types() -> None:
    loaded = run("import sys, chatops.models.chat; print('\\n'.join(sys.modules))").split()
    assert "openai" in loaded
    assert not {"openai.types.beta", "openai.types.fine_tuning", "openai.types.responses.response"} & {*loaded}


@pytest.mark.more
def test_a_program_that_uses_the_sdk_itself_finds_its_types() -> None:
    code = """
import chatops.models.chat, openai
from openai.types.chat import ChatCompletion
from openai.types.beta import Thread
from openai.types import *
print(ChatCompletion.__name__, Thread.__name__, Batch.__name__)
print(openai.types.responses.Response.__name__, hasattr(openai.types, "Nothing"))
"""
    assert run(code) == "ChatCompletion Thread Batch\nResponse False"
