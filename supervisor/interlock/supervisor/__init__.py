"""The one long-lived process: lifecycle, catalog, policy, events, turn logs and the journal."""
