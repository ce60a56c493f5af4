"""This machine: its threads, devices and memory, its terminal, and files that are read up to a limit."""
