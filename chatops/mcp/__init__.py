"""MCP servers: connections to them, and their tools as tools of chatops.

Imported only for a registry that names servers. The SDK itself (the extra ``mcp``) is imported by `connection`
and what that imports, in a thread and before the first connection.
"""
