"""Reading: queries that chain store and derive for people to look at."""
