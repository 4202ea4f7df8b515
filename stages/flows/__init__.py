"""Ready dataflows: the wiring of translators, as Python and as the document to register."""
