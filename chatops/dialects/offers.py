"""The tools on offer, under the names that a model may write."""

from collections.abc import Mapping, Sequence

from chatops.dialects.reading import Schema, Tools

_NAMES_IN_A_MESSAGE = 12


class Offers:
    """The tools on offer, and aliases that mean one of them (`brave_search` → `web_search`)."""

    __slots__ = ("aliases", "are_read", "tools")

    def __init__(self, tools: Tools | None, aliases: Mapping[str, str]) -> None:
        self.tools: Tools = {} if tools is None else tools
        self.aliases = aliases
        self.are_read = tools is not None
        """True if calls are read; otherwise everything that looks like one is text."""

    def named(self, written: str) -> str | None:
        """Return the tool that `written` names, exactly or as an alias; surrounding white space is ignored."""
        name = written.strip()
        if name in self.tools:
            return name
        meant = self.aliases.get(name)
        return meant if meant in self.tools else None

    def schema(self, name: str) -> Schema:
        """Return the schema of a tool on offer."""
        return self.tools[name]

    def begins_a_name(self, text: str) -> bool:
        """Return True if a name that a model may write begins with `text`."""
        return any(name.startswith(text) for names in (self.tools, self.aliases) for name in names)

    def required(self, name: str) -> Sequence[str]:
        """Return the required arguments of a tool on offer."""
        required = self.tools[name].get("required")
        if not isinstance(required, Sequence) or isinstance(required, str):
            return ()
        return [each for each in required if isinstance(each, str)]

    def listed(self) -> str:
        """Return a clause that lists the first 12 tools on offer, for a message to the model."""
        if not self.tools:
            return "no tool is on offer"
        names = list(self.tools)
        shown = ", ".join(names[:_NAMES_IN_A_MESSAGE])
        more = len(names) - _NAMES_IN_A_MESSAGE
        return f"on offer are {shown}" + (f" and {more} more" if more > 0 else "")
