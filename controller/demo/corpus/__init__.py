"""The documents of the demo: installed modules as pages."""
