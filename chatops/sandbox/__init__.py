"""How commands and servers run confined: sandbox, processes, network, and what they are not shown."""
