"""Results for people: tables on a terminal, Markdown, pictures."""
