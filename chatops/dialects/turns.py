"""Headers of turns in chat templates, and the roles that they name."""

import re
from functools import cache

LONGEST_TURN = 120
"""Maximum length of such a header in characters."""
TURN = re.compile(
    r"<(?:\|im_start\||start_of_turn|seed:bos|\|turn)>\s?(?P<role1>\w{0,24})[ \t]*\n?"
    r"|<\|(?:start_header_id|header_start|start_of_role)\|>\s?(?P<role2>\w{0,24})[^<\n]{0,60}"
    r"(?:<\|(?:end_header_id|header_end|end_of_role)\|>\s*)?"
    r"|<[|｜](?P<role3>user|assistant|system|observation|tool|ipython|developer)[|｜]>\s?"
    r"|<\|im_(?P<role4>user|assistant|system)\|>[\w ]{0,40}(?:<\|im_middle\|>)?"
    r"|<\|START_OF_TURN_TOKEN\|>(?:<\|(?P<role5>USER|CHATBOT|SYSTEM)_TOKEN\|>)?"
    r"|<\|message_(?P<role6>user|tool|system)\|>"
    r"|<\|message_model\|>[\w.-]{0,80}|<\|(?:content_text|start_response|assistant_start)\|>",
    re.IGNORECASE,
)
"""The header of a turn. A group `role…` matches the role if it names one."""
_ROLES = ("user", "assistant", "system", "observation", "tool", "ipython", "developer")
TURNS = frozenset(
    {
        *("|im_start|", "start_of_turn", "seed:bos", "|turn", "|start_header_id|", "|header_start|", "|start_of_role|"),
        *(f"|{role}|" for role in _ROLES),
        *("｜user｜", "｜assistant｜", "|im_user|", "|im_assistant|", "|im_system|", "|start_of_turn_token|"),
        *("|message_user|", "|message_tool|", "|message_system|", "|message_model|", "|content_text|"),
        *("|start_response|", "|assistant_start|"),
    }
)
"""Words of the tags that begin a turn."""
OWN_ROLES = frozenset({"assistant", "model", "gpt", "chatbot", ""})
"""Names of the model's own role; empty where the header names none."""
CHANNELS = "<|start|>"
"""Token that begins a message in a channel."""
_OWN = {
    "<|user|>": "<|assistant|>",
    "<｜user｜>": "<｜assistant｜>",
    "<|im_user|>": "<|im_assistant|>",
    "<|im_system|>": "<|im_assistant|>",
    "<|start_of_turn_token|>": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
}


@cache
def own_turn(token: str) -> re.Pattern[str]:
    """Return the pattern of the model's own turn in the template of another role's turn that began with `token`."""
    token = token.lower()
    if token.startswith("<|message_"):
        own = re.escape("<|message_model|>")
    elif token in _OWN:
        own = re.escape(_OWN[token])
    elif token[1:-1] in TURNS and token.strip("<>|") in _ROLES:
        own = re.escape("<|assistant|>")
    else:
        own = rf"{re.escape(token)}\s?(?:assistant|model)"
    return re.compile(rf"(?={own})", re.IGNORECASE)
