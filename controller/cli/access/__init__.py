"""The commands about who may do what, and who did what: link, tokens, audit."""
