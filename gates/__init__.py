"""Judges of an endpoint. Imports nothing of `controller` or `launch`."""
