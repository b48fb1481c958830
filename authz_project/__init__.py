"""Wires the parts: settings, paths, keys, errors, the admin's frame, the command line. Nothing imports it."""

__version__ = "0.1.0"
