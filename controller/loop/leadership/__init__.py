"""Leadership: the lease, and the terms in which an instance leads."""
