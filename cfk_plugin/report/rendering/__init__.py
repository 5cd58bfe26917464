"""From report data to pages: a document first, then HTML, Markdown, PDF, tables."""
