"""Every figure of the thesis from one command, beside its own numbers."""
