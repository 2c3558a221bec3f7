"""Families of models: the format that a model was trained to write, found by its name as servers spell it.

The first row of `_FAMILIES` whose pattern begins a word of the name decides. So narrower names come first: a fine-tune
before its base model, a release before its family. Names look like `qwen2.5-coder:7b`,
`Qwen/Qwen3-Coder-30B-A3B-Instruct`, `openrouter/openai/gpt-oss-20b:free`, `bartowski_Llama-3.3-70B-Q4_K_M.gguf`. They
are compared in lower case, with every run of characters other than letters, digits and points replaced by `-`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import field

from chatops.dialects.writing import WRITABLE
from chatops.domain.frozen_dataclass import frozen_dataclass

DEFAULT_FORMAT = "hermes"
"""Format for unknown models: one JSON object between two tags, the easiest to get right."""
_TRAINED_TOOLS: Mapping[str, Mapping[str, str]] = {
    "llama": {"brave_search": "web_search", "code_interpreter": "python_exec"},
}
"""By family: the tools that its models were trained with, and the tools of ours that they mean."""
_FAMILIES: tuple[tuple[str, str, str], ...] = (
    # Pattern in the name, family, format (empty if unknown). Fine-tunes first: their names contain the name of the base
    # model.
    (r"(deep|open)?hermes", "hermes", "hermes"),
    (r"functionary.*v?3\.1", "functionary", "llama3_function_tag"),
    (r"functionary", "functionary", "functionary_v32"),
    (r"firefunction", "firefunction", "functools"),
    (r"toolace", "toolace", "pythonic"),
    (r"watt-tool", "watt-tool", "pythonic"),
    (r"xlam", "xlam", "json_array"),
    (r"hammer", "hammer", "json_array"),
    (r"nemotron.*nano-(v2|9b|12b)", "nemotron", "nemotron_toolcall"),
    (r"nemotron-?3", "nemotron", "qwen3_xml"),
    (r"nemotron", "nemotron", "llama3_json"),
    # Before Qwen and Llama: `DeepSeek-R1-Distill-Qwen-7B` is a Qwen that was trained to write as DeepSeek does.
    (r"deepseek.*v4\.1", "deepseek", "dsml_v41"),
    (r"deepseek.*v4", "deepseek", "dsml_v4"),
    (r"deepseek.*v3\.2", "deepseek", "dsml_v32"),
    (r"deepseek.*v3\.1", "deepseek", "deepseek_v31"),
    (r"deepseek.*(v3|r1)", "deepseek", "deepseek_v3"),
    (r"deepseek", "deepseek", ""),
    (r"qwen-?3-coder|qwen-?3\.[5-9]", "qwen", "qwen3_xml"),
    (r"qwen|qwq", "qwen", "hermes"),
    (r"llama-?4", "llama", "llama4_pythonic"),
    (r"llama-?3\.([13]|2.*vision)", "llama", "llama3_json"),
    (r"llama-?3\.2", "llama", "pythonic"),
    (r"llama-?3", "llama", ""),
    (r"functiongemma", "functiongemma", "functiongemma"),
    (r"gemma-?4", "gemma", "gemma4"),
    (r"gemma", "gemma", ""),
    (
        r"devstral|magistral|ministral-3|mistral-(small-?3\.[1-9]|small.*250[36]|large-3|medium)",
        "mistral",
        "mistral_v11",
    ),
    (r"mistral|mixtral|ministral|codestral|pixtral", "mistral", "mistral_json"),
    (r"gpt-oss", "gpt-oss", "harmony"),
    (r"kimi-k3", "kimi", "kimi_k3"),
    (r"kimi", "kimi", "kimi_k2"),
    (r"glm-?(4\.[5-9]|[5-9])", "glm", "glm_argkey"),
    (r"ling-?3|poolside", "glm-like", "glm_argkey"),
    (r"minimax-m3", "minimax", "minimax_m3"),
    (r"minimax-m2", "minimax", "minimax_m2"),
    (r"minicpm-?5", "minicpm", "minicpm5"),
    (r"granite-20b-function", "granite", "granite20b_fc"),
    (r"granite-?3", "granite", "granite3"),
    (r"granite", "granite", "hermes"),
    (r"(c4ai-)?command-(r7b|a)", "command", "cohere_action"),
    (r"(c4ai-)?command-r", "command", "commandr_action"),
    (r"lfm-?2", "lfm", "lfm2"),
    (r"olmo-?3", "olmo", "olmo3"),
    (r"seed-oss", "seed-oss", "seed_oss"),
    (r"phi-?4-mini", "phi", "functools"),
    (r"(hunyuan|hy)-v?3", "hunyuan", "hy_v3"),
    (r"hunyuan", "hunyuan", "tool_calls_array"),
    (r"jamba", "jamba", "tool_calls_array"),
    (r"apriel", "apriel", "tool_calls_array"),
    (r"internlm-?2|intern-s1", "internlm", "internlm2"),
    (r"longcat", "longcat", "longcat"),
    (r"ernie", "ernie", "hermes"),
    (r"reka", "reka", "hermes"),
    (r"mimo", "mimo", "qwen3_xml"),
    (r"step-?3\.[5-7]", "step", "qwen3_xml"),
    (r"step-?3", "step", "step3"),
    (r"gigachat-?3\.1", "gigachat", "gigachat31"),
    (r"gigachat", "gigachat", "gigachat3"),
    (r"apertus", "apertus", "apertus"),
    (r"plamo-?3", "plamo", "plamo3"),
    (r"claude", "claude", "anthropic_invoke"),
)


@frozen_dataclass
class Family:
    """Models that write calls in the same way."""

    name: str
    format: str
    """The format it was trained to write; empty if unknown."""
    prompted: str = DEFAULT_FORMAT
    """The format of `WRITABLE` to ask for where the tools are described in the prompt."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Built-in tools it was trained with: its name → ours."""

    def their_name(self, name: str, offered: Collection[str]) -> str:
        """Return the name under which to describe our tool `name` to this model.

        `read_calls` reads it back as `name` if it gets `aliases`.
        """
        for theirs, ours in self.aliases.items():
            if ours == name and name in offered and theirs not in offered:
                return theirs
        return name


def family_of(model_name: str) -> Family:
    """Return the family of a model, or one with an empty name if it is unknown."""
    name = re.sub(r"[^a-z0-9.]+", "-", model_name.lower())
    for pattern, family, format in _FAMILIES:
        if re.search(rf"(?<![a-z])(?:{pattern})", name):
            return Family(
                name=family,
                format=format,
                prompted=format if format in WRITABLE else DEFAULT_FORMAT,
                aliases=_TRAINED_TOOLS.get(family, {}),
            )
    return Family(name="", format="")
