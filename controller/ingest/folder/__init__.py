"""The folders of one source: they are checked and listed; files are opened, moved, removed."""
