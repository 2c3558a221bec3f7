"""Readers of the formats of tool calls: the opening mark, the content, the closing mark."""
