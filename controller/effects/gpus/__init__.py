"""The GPU inventory: NVML where it is, else what the configuration declares. Reads; never signals anybody."""

from .card import Card, Process, Sheet
from .host import Host, look_at_host
from .inventory import DeclaredInventory, Inventory, NvmlInventory, open_inventory

__all__ = [
    "Card",
    "DeclaredInventory",
    "Host",
    "Inventory",
    "NvmlInventory",
    "Process",
    "Sheet",
    "look_at_host",
    "open_inventory",
]
