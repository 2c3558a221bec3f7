"""Values shared by all other packages. They have no behaviour that needs anything but the value itself."""

__version__ = "0.1.0"
