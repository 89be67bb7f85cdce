"""The web page of an account and of recorded runs."""
