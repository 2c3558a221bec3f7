"""Calls spelled in every format, by hand and not by the writers of the product; and the corpus."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Arguments = Mapping[str, Any]
Wanted = tuple[str, dict[str, Any]]

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "toolcalls.jsonl").read_text(encoding="utf-8").splitlines()
]
TOOLS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
    "list_files": {"type": "object", "properties": {}},
    "run_shell": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "send_email": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "body": {"type": "string"}},
        "required": ["to", "body"],
    },
    "set_config": {
        "type": "object",
        "properties": {
            "config": {"type": "object"},
            "enabled": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "ratio": {"type": "number"},
            "note": {"type": ["string", "null"]},
        },
    },
}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _objects(template: str, between: str, arguments: str = "arguments") -> Callable[[Sequence[Wanted]], str]:
    def spell(calls: Sequence[Wanted]) -> str:
        return template % between.join(_json({"name": name, arguments: given}) for name, given in calls)

    return spell


def _each(
    spell_one: Callable[[str, Arguments], str], between: str = "\n", around: str = "%s"
) -> Callable[[Sequence[Wanted]], str]:
    def spell(calls: Sequence[Wanted]) -> str:
        return around % between.join(spell_one(name, given) for name, given in calls)

    return spell


def _object_between(opening: str, closing: str, arguments: str = "arguments") -> Callable[[str, Arguments], str]:
    return lambda name, given: f"{opening}{_json({'name': name, arguments: given})}{closing}"


def _tags(
    call: str, parameter: str, close_parameter: str, close: str, line: str = ""
) -> Callable[[str, Arguments], str]:
    def spell(name: str, given: Arguments) -> str:
        inside = "".join(
            parameter.format(key=key) + line + _raw(value) + line + close_parameter for key, value in given.items()
        )
        return call.format(name=name) + inside + close

    return spell


def _python(name: str, given: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def _dsml(space: str) -> Callable[[str, Arguments], str]:
    def spell(name: str, given: Arguments) -> str:
        inside = "".join(
            f'<｜DSML｜{space}parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{_raw(value)}</｜DSML｜{space}parameter>\n"
            for key, value in given.items()
        )
        return f'<｜DSML｜{space}invoke name="{name}">\n{inside}</｜DSML｜{space}invoke>\n'

    return spell


def _pairs(name: str, given: Arguments, prefix: str = "", behind: str = "", line: str = "\n") -> str:
    inside = "".join(
        f"{line}<{prefix}arg_key>{key}</{prefix}arg_key>{line}<{prefix}arg_value>{_raw(value)}</{prefix}arg_value>"
        for key, value in given.items()
    )
    return f"<{prefix}tool_call>{name}{behind}{inside}{line}</{prefix}tool_call>"


def _kimi_k3(name: str, given: Arguments) -> str:
    def kind(value: Any) -> str:
        kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
        return kinds.get(type(value), "null")

    inside = "".join(
        f'<|open|>argument key="{key}" type="{kind(value)}"<|sep|>{_raw(value)}<|close|>argument<|sep|>'
        for key, value in given.items()
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{inside}<|close|>call<|sep|>'


_M = "]<]minimax[>["


def _minimax_m3(name: str, given: Arguments) -> str:
    inside = "".join(f"{_M}<{key}>{_raw(value)}{_M}</{key}>" for key, value in given.items())
    return f'{_M}<invoke name="{name}">{inside}{_M}</invoke>\n'


def _gemma(opening: str, closing: str, quote: str) -> Callable[[str, Arguments], str]:
    def value_of(value: Any) -> str:
        match value:
            case str():
                return f"{quote}{value}{quote}"
            case dict():
                return "{" + ",".join(f"{key}:{value_of(each)}" for key, each in value.items()) + "}"
            case list():
                return "[" + ",".join(map(value_of, value)) + "]"
            case _:
                return _json(value)

    return lambda name, given: (
        f"{opening}call:{name}{{{','.join(f'{key}:{value_of(value)}' for key, value in given.items())}}}{closing}"
    )


def _plamo(name: str, given: Arguments) -> str:
    return (
        f"<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
        f"<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{_json(given)}"
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
    )


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """Spelling of calls in one format."""

    spell: Callable[[Sequence[Wanted]], str]
    marked: bool = True
    """True if text may be around the calls."""
    several: bool = True


SPELLINGS: dict[str, Spelling] = {
    "hermes": Spelling(spell=_each(_object_between("<tool_call>\n", "\n</tool_call>"))),
    "longcat": Spelling(spell=_each(_object_between("<longcat_tool_call>\n", "\n</longcat_tool_call>"))),
    "granite20b_fc": Spelling(spell=_each(_object_between("<function_call> ", ""))),
    "granite3": Spelling(spell=_objects("<|tool_call|>[%s]", ", ")),
    "tool_calls_array": Spelling(spell=_objects("<tool_calls>[%s]</tool_calls>", ", ")),
    "nemotron_toolcall": Spelling(spell=_objects("<TOOLCALL>[%s]</TOOLCALL>", ", ")),
    "functools": Spelling(spell=_objects("functools[%s]", ", ")),
    "mistral_json": Spelling(spell=_objects("[TOOL_CALLS][%s]", ", ")),
    "mistral_v11": Spelling(spell=_each(lambda name, given: f"[TOOL_CALLS]{name}[ARGS]{_json(given)}", between="")),
    "cohere_action": Spelling(
        spell=_each(
            lambda name, given: _json({"tool_call_id": "0", "tool_name": name, "parameters": given}),
            between=",\n",
            around="<|START_ACTION|>[\n%s\n]<|END_ACTION|>",
        )
    ),
    "commandr_action": Spelling(
        spell=_each(
            lambda name, given: _json({"tool_name": name, "parameters": given}),
            between=",\n",
            around="Action:\n```json\n[\n%s\n]\n```",
        )
    ),
    "internlm2": Spelling(
        spell=_each(_object_between("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters")), several=False
    ),
    "gigachat3": Spelling(
        spell=_each(_object_between("<|message_sep|>\n\nfunction call<|role_sep|>\n", "")), several=False
    ),
    "gigachat31": Spelling(spell=_each(_object_between("<|function_call|>", "")), several=False),
    "inkling": Spelling(
        spell=_each(_object_between("<|content_invoke_tool_json|>", "<|end_message|>", "args"), between="")
    ),
    "apertus": Spelling(
        spell=_each(
            lambda name, given: _json({name: given}), between=", ", around="<|tools_prefix|>[%s]<|tools_suffix|>"
        )
    ),
    "k2_horizon": Spelling(
        spell=_each(
            lambda name, given: _pairs(name, given, prefix="ifm|", line=""),
            between="",
            around="<ifm|tool_calls>%s</ifm|tool_calls>",
        ),
    ),
    "glm_argkey": Spelling(spell=_each(_pairs)),
    "hy_v3": Spelling(
        spell=_each(
            lambda name, given: _pairs(name, given, behind="<tool_sep>"), around="<tool_calls>\n%s\n</tool_calls>"
        ),
    ),
    "qwen3_xml": Spelling(
        spell=_each(
            _tags(
                "<tool_call>\n<function={name}>\n",
                "<parameter={key}>",
                "</parameter>\n",
                "</function>\n</tool_call>",
                line="\n",
            )
        ),
    ),
    "seed_oss": Spelling(
        spell=_each(
            _tags(
                "<seed:tool_call>\n<function={name}>\n",
                "<parameter={key}>",
                "</parameter>\n",
                "</function>\n</seed:tool_call>",
            )
        ),
    ),
    "llama3_function_tag": Spelling(
        spell=_each(lambda name, given: f"<function={name}>{_json(given)}</function>", between="")
    ),
    "minicpm5": Spelling(
        spell=_each(_tags('<function name="{name}">', '<param name="{key}">', "</param>", "</function>")),
    ),
    "minimax_m2": Spelling(
        spell=_each(
            _tags('<invoke name="{name}">\n', '<parameter name="{key}">', "</parameter>\n", "</invoke>"),
            around="<minimax:tool_call>\n%s\n</minimax:tool_call>",
        ),
    ),
    "anthropic_invoke": Spelling(
        spell=_each(
            _tags('<invoke name="{name}">\n', '<parameter name="{key}">', "</parameter>\n", "</invoke>"),
            around="<function_calls>\n%s\n</function_calls>",
        ),
    ),
    "dots": Spelling(
        spell=_each(
            _tags('<invoke name="{name}">', '<parameter name="{key}">', "</parameter>", "</invoke>"),
            between="",
            around="<dots_function_call>%s</dots_function_call>",
        ),
    ),
    "atem": Spelling(
        spell=_each(
            _tags(
                '<atem:invoke name="{name}">\n',
                '<atem:parameter name="{key}">',
                "</atem:parameter>\n",
                "</atem:invoke>",
            ),
            around="<atem:function_calls>\n%s\n</atem:function_calls>",
        ),
    ),
    "step3": Spelling(
        spell=_each(
            _tags(
                '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
                '<steptml:parameter name="{key}">',
                "</steptml:parameter>",
                "</steptml:invoke><｜tool_call_end｜>",
            ),
            between="",
            around="<｜tool_calls_begin｜>%s<｜tool_calls_end｜>",
        ),
    ),
    "dsml_v32": Spelling(
        spell=_each(_dsml(""), between="", around="<｜DSML｜function_calls>\n%s</｜DSML｜function_calls>"),
    ),
    "dsml_v4": Spelling(spell=_each(_dsml(""), between="", around="<｜DSML｜tool_calls>\n%s</｜DSML｜tool_calls>")),
    "dsml_v41": Spelling(spell=_each(_dsml(" "), between="", around="<｜DSML｜ calls>\n%s</｜DSML｜ calls>")),
    "deepseek_v3": Spelling(
        spell=_each(
            lambda name, given: (
                f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(given)}\n```<｜tool▁call▁end｜>"
            ),
            around="<｜tool▁calls▁begin｜>%s<｜tool▁calls▁end｜>",
        )
    ),
    "deepseek_v31": Spelling(
        spell=_each(
            lambda name, given: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(given)}<｜tool▁call▁end｜>",
            between="",
            around="<｜tool▁calls▁begin｜>%s<｜tool▁calls▁end｜>",
        )
    ),
    "kimi_k2": Spelling(
        spell=_each(
            lambda name, given: (
                f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{_json(given)}<|tool_call_end|>"
            ),
            between="",
            around="<|tool_calls_section_begin|>%s<|tool_calls_section_end|>",
        )
    ),
    "kimi_k3": Spelling(spell=_each(_kimi_k3, between="", around="<|open|>tools<|sep|>%s<|close|>tools<|sep|>")),
    "minimax_m3": Spelling(
        spell=_each(_minimax_m3, between="", around=f"{_M}<tool_call>\n%s{_M}</tool_call>"),
    ),
    "gemma4": Spelling(spell=_each(_gemma("<|tool_call>", "<tool_call|>", '<|"|>'), between="")),
    "functiongemma": Spelling(
        spell=_each(_gemma("<start_function_call>", "<end_function_call>", "<escape>"), between=""),
    ),
    "plamo3": Spelling(
        spell=_each(_plamo, between="", around="<|plamo:begin_tool_requests:plamo|>%s<|plamo:end_tool_requests:plamo|>")
    ),
    "harmony": Spelling(
        spell=_each(
            lambda name, given: (
                f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
                f"{_json(given)}<|call|>"
            ),
            between="",
        )
    ),
    "lfm2": Spelling(spell=_each(_python, between=", ", around="<|tool_call_start|>[%s]<|tool_call_end|>")),
    "llama4_pythonic": Spelling(spell=_each(_python, between=", ", around="<|python_start|>[%s]<|python_end|>")),
    "olmo3": Spelling(spell=_each(_python, around="<function_calls>%s</function_calls>")),
    "llama3_python_tag": Spelling(spell=_objects("<|python_tag|>%s", "; ", "parameters")),
    "react": Spelling(spell=_each(lambda name, given: f"Action: {name}\nAction Input: {_json(given)}"), several=False),
    "functionary_v32": Spelling(spell=_each(lambda name, given: f">>>{name}\n{_json(given)}", between="")),
    "llama3_json": Spelling(spell=_objects("%s", "; ", "parameters"), marked=False),
    "json_array": Spelling(spell=_objects("[%s]", ", "), marked=False),
    "openai_tool_calls_obj": Spelling(spell=_objects('{"tool_calls": [%s]}', ", "), marked=False),
    "bare_json_alt": Spelling(
        spell=_each(lambda name, given: _json({"tool": name, "args": given})), marked=False, several=False
    ),
    "json_fenced": Spelling(spell=_objects("```json\n[%s]\n```", ",\n"), marked=False),
    "pythonic": Spelling(spell=_each(_python, between=", ", around="[%s]"), marked=False),
}
"""Every format with a spelling of its own; `llama3_builtin` takes no more than a query and is tested by itself."""
