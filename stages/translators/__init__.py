"""Ready translators, one module each; they import only `cbp` and `cbp.errors`."""
