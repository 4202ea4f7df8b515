"""The tables of the metadata store, and how records become rows and back."""
