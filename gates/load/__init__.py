"""The parts of the load client: connections, tapes, what the client itself cost, and worker processes."""
