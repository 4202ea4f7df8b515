"""A client of the service: requests over REST, and files put into a drop folder."""
