"""One task of a run: it reads its share, calls the kernel, and writes outputs and state."""
