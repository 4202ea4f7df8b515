"""Random dataflows through the whole service: REST, drop folder, controller, engine.

python -m tests.service --seeds 50 --from 0
"""
