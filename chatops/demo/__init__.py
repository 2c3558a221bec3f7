"""The built-in demo: a scripted model that needs no key and no network.

Only `chatops.wiring` imports this package: the rest of the application sees a model like any other.
"""
