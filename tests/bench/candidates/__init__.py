"""The candidates, one module each; each is imported only when it is used."""
