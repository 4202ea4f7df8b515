"""Ready translators and dataflows, found by name through entry points; depends only on `cbp`."""
