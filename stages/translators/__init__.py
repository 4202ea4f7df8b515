"""Ready translators, one module each; they import only `cbp` and `cbp.errors`.

`stages/bags.py` has what the joins share, `stages/propagate.py` what spreads along edges.
"""
