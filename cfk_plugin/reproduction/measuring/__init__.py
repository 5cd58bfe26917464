"""Measuring one method on one table: what certificates say, distances to training rows, and choosing candidates."""
