"""The product as a service of systemd: its units made for this box, written, checked, removed."""
