"""New weights and their versions: from the call of the learner to the policies that act."""
