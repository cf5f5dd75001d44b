"""The weekly report: what happened, what it cost, what to do, and whether last week's advice held."""
