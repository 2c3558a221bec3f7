"""Commands other than the chat: one function each, which takes the arguments and returns the exit code.

The parser names it; its module is imported when the command is used, so that ``chatops --help`` loads none of them.
"""
