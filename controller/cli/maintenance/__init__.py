"""Commands that check this machine and its folders, and repair or clear them."""
