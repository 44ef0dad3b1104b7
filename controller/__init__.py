"""The daemon: decides what is live."""
