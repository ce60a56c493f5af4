"""What runtimes with worker processes share. It registers nothing: the runtimes that use it do.

A runtime gives ``worker_crew.WorkerRuntime`` a ``deployment.Deployment``: a ``workers.Launcher`` that starts workers, a
``workers.Placement`` for each, and the services that a producer talks to. ``driver_crew`` has the services in the driver's process.
"""
