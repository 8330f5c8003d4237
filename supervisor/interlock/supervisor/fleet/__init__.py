"""All workers as the supervisor keeps them: lifecycles, what they say and what they use."""
