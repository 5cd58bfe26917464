"""The privacy report: what was released and at what risk, from logged runs alone.

One direction: `runs` are the evidence, `figures` and `checks` compute and judge it,
`statements` and `inputs` add the words, `privacy_report` puts it together as `data`, and `page`
writes it.
"""
