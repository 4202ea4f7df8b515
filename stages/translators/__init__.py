"""Ready translators, one module each, written only with what `cbp` exports."""
