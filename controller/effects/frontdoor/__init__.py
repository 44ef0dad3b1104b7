"""The front door: HAProxy in a process of its own, driven over its runtime socket."""
