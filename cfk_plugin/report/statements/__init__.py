"""What the report says by itself: definitions, limits, controls, presets, and words that it may not use."""
