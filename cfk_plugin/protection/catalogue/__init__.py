"""The entries that explanations are made of, fixed before the first query.

`catalogue` has the `Catalogue` that answers are searched in, and `entries` how its entries are
found. `crowds` and `value_book` choose private values for them, from those that `scales` and
`shared_values` permit. `required_combinations` says what moved answers must keep. `sealing` writes
a catalogue without rows.
"""
