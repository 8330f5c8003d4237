"""The measurements behind the budgets."""
