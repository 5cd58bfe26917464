"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SchemaFile = Annotated[
    Path,
    typer.Option("--schema", "-s", help="JSON with quasi_identifiers, sensitive, target, ...; see the docs."),
]
Model = Annotated[str, typer.Option("--model", "-m", help="joblib or pickle file that you trust, or an MLflow URI.")]
Desired = Annotated[str, typer.Option("--desired", "-d", help="The outcome wanted, or 'opposite'.")]
LedgerUrl = Annotated[str, typer.Argument(metavar="URL", envvar="CFK_LEDGER", help="SQLite file or postgresql URL.")]
KeyFile = Annotated[Path | None, typer.Option(help="Key of the ledger; else CFK_LEDGER_KEY, else URL.key.")]
Guarantee = Annotated[
    str | None, typer.Option(help="catalogue, reciprocal or nominal.", show_default="the policy's, catalogue")
]
Method = Annotated[str, typer.Option(help="auto; for a nominal guarantee exact, grasp, mondrian, or a plugin's.")]
Objective = Annotated[
    str | None, typer.Option(help="pureness, ncp or weighted.", show_default="the policy's, pureness")
]
MinPureness = Annotated[float | None, typer.Option(help="Withhold what is less pure.", show_default="the guarantee's")]
MaxNcp = Annotated[float | None, typer.Option(help="Withhold what loses more information.")]
Effort = Annotated[str, typer.Option(help="For --rerun: fast, balanced or thorough, as for the release.")]
K = Annotated[
    int | None,
    typer.Option("--k", help="Least number of people behind an explanation.", show_default="the policy's, 10"),
]
Train = Annotated[Path, typer.Argument(help="Training rows, CSV or Parquet.")]
Counterfactuals = Annotated[Path, typer.Argument(help="Raw counterfactuals, CSV or Parquet.")]
Factuals = Annotated[Path | None, typer.Option(help="The instance behind each counterfactual.")]
Policy = Annotated[
    Path | None,
    typer.Option(help="JSON with the settings of a policy; options win.", show_default="PrivacyPolicy()"),
]
Ledger = Annotated[str | None, typer.Option(help="Ledger of releases: SQLite file or postgresql URL.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)]
Track = Annotated[bool, typer.Option("--track", help="Log to MLflow.")]
Experiment = Annotated[str | None, typer.Option(help="MLflow experiment; implies --track.")]
