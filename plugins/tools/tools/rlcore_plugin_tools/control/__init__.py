"""Controllers: early stopping, an adaptive KL coefficient, and a learning rate that follows the reward."""
