"""The table as declared and the model as asked; nothing here decides anything."""
