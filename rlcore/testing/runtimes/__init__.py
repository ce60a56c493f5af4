"""The suite for runtimes. It runs the fakes of the other kinds."""
