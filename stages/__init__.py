"""Ready translators and dataflows, found by name through entry points; rests on `cbp` only."""
