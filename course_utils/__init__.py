"""What the course's notebooks import: small modules, one subject each, imported by name.

`data` and `models` make what is trained, `training.fit` trains it with a slot for every seam,
`comparing.compare` measures over paired seeds, and `claims.claim` states what was found.
"""
