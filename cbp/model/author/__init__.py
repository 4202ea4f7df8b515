"""The author's code: its fingerprint, and checks for values kept between calls."""
