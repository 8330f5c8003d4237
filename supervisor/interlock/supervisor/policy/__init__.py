"""Who may call what: tickets."""
