"""The service as its users meet it: files that are renamed in, results that are read over REST."""
