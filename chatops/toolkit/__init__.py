"""The basis of every tool: its protocol and context, paths inside the workspace, limits of output."""
