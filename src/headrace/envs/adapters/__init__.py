"""Steppers of each kind of environment: a file for each library and form."""
