"""The kernel for vectorised translators: calls them with Arrow tables of many groups."""
