"""Many runs in a row: does anything grow?"""
