"""Commands other than the chat: one module per group, each with ``run(arguments) -> exit code``.

`chatops.cli` imports a module when its command is used, so that ``chatops --help`` loads none of them.
"""
