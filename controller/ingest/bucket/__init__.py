"""Objects of a bucket: listed, remembered, and handed on like uploads."""
