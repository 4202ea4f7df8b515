"""What every route is made with: the router, and the parts of the service that it asks for."""
