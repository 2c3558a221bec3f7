"""The built-in demo: a scripted model, and the invented tools and role of the packaged workflow `components`.

Only `chatops.wiring` imports this package: the rest of the application sees a model, tools and a role like any other.
"""
