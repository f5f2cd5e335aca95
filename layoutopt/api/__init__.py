"""The functions of the Python interface, and what runs their tasks."""
