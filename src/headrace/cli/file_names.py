"""Names of the files in the folders that commands write."""

# Of `headrace collect`, a dataset.
DATASET = "episodes.npz"
# Of `headrace collect` and `headrace train`, one line per episode that ended.
EPISODES = "episodes.csv"
# Of `headrace train`.
POLICY = "policy.pt"
CURVE = "learning-curve.png"
