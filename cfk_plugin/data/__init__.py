"""The declared table and the model: schema, codes, population, desired outcome and policy."""
