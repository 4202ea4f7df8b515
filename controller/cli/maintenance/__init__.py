"""Commands that check this machine and its folders, and mend or clear them."""
