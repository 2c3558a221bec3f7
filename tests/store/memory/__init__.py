"""The topics of the store in memory, each over its tables, as the modules of `chatops.store` are over rows."""
