"""Code that runtimes with worker processes share. It registers no plugin; the runtimes that use it do.

A runtime gives ``worker_runtime.WorkerRuntime`` a ``deployment.Deployment``: a ``workers.Launcher`` that starts workers, a
``workers.Placement`` for each worker, and the services that a producer calls. ``driver_runtime`` runs the services in the driver's process.
"""
