"""The table as it is declared, and the model as it is asked: nothing here decides anything."""
