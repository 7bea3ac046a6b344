"""Names of the files in the folders that commands write."""

# Of `headrace collect`, a dataset.
DATASET = "episodes.npz"
# Of `headrace collect` and `headrace train`, one line per episode that ended.
EPISODES = "episodes.csv"
# Of `headrace collect --profile`: the trace of each worker, and the picture.
TRACE = "profile_{worker_idx}.json"
TRACE_PICTURE = "profile.png"
# Of all commands that write a folder: command line, seed and versions.
RUN = "run.json"
# Of `headrace train`.
POLICY = "policy.pt"
CURVE = "learning-curve.png"
# The folder of its event files, with --tensorboard.
TENSORBOARD = "tensorboard"
# Of a run of `headrace train` that has not ended: the folder from which `--resume` goes on.
RESUME = "resume"
