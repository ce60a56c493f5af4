"""The commands ``score`` and ``audit``: rewards judge a file of completions, or hostile texts."""
