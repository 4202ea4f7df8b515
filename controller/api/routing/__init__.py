"""The router, what a caller needs for each route, and the parts that a route can ask for."""
