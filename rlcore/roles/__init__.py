"""The parts that a runtime composes: producer, consumer and evaluator. They are plain objects without Ray, threads or files."""
