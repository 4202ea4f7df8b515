"""Executes one run of one stage; the only package that knows Spark and Delta."""
