"""Use without a UI: prompts, output formats, exit codes."""
