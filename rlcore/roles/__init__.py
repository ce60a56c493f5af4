"""The parts that a runtime composes: producer, consumer, evaluator. Plain objects: no Ray, no threads, no files of their own."""
