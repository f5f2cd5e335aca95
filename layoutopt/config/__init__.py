"""Settings of every verb, from flags, files and the environment."""
