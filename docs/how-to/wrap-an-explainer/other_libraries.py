"""Functions that ask CARLA, and ProtoDash of AIX360, for `protect`."""


def ask_carla(recourse_method, catalog):
    def explain(queries):
        found = recourse_method.get_counterfactuals(catalog.transform(queries))
        return catalog.inverse_transform(found)[list(queries)]

    return explain


def ask_protodash(explainer, people):  # a table of people who have the outcome
    def explain(queries):
        table = people.to_numpy(dtype=float)
        rows = queries.to_numpy(dtype=float)
        chosen = [explainer.explain(row[None], table, m=1)[1][0] for row in rows]
        return people.iloc[chosen].set_index(queries.index)

    explain.instance_based = True
    return explain
