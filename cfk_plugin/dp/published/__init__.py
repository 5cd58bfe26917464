"""DPC as Yang et al. published it in 2022, to compare with and to audit. Nothing in here is differentially private."""
