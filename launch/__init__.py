"""From a topology to a running, owned process tree. Imports nothing of `controller`."""
