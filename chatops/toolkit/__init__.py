"""What every tool is made of: its protocol and context, paths inside the workspace, limits of output."""
