"""A bare script as a recipe: its imports, its framework, its packages and its environment."""
