"""The privacy report: what was released and at what risk, from logged runs alone.

One direction: `runs` are the evidence, `figures` and `checks` compute and judge it, `disclosure` hides what an edition
must not show, `statements` and `inputs` are what is said besides, by us and by people, and `privacy_report` puts it
together as `data`, which is JSON. `compose` lays that out as a first page, checks and annexes, which `render` writes as
HTML and `forms` in other forms. Each is a pure function of the data. `delivery` takes them to where they are read.
"""
