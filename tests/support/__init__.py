"""Helpers shared by several test areas: servers, builders, fixtures."""
