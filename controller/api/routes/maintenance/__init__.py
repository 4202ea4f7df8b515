"""Routes for operators of the service: what is wrong with it, what it keeps, what it has."""
