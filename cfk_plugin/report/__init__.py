"""The privacy report: what was released and at what risk, from logged runs alone.

One direction: `runs` are the evidence, `figures` and `checks` compute and judge it, `disclosure`
hides what an edition must not show, `statements` and `inputs` add the words, `privacy_report` puts
it together as `data`, `compose` lays that out, `render` writes it, and `delivery` takes it to where
it is read. Each is a pure function of the data.
"""
