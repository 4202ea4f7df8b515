"""Ready dataflows: how translators are wired, as Python and as the document to register."""
