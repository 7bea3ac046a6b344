"""A small DQN that uses all of Headrace: worker process, prioritized replay, n-step views, weights sent back.

The learner is double DQN (H. van Hasselt et al., "Deep Reinforcement Learning with Double Q-learning", 2016) with
prioritized replay (T. Schaul et al., 2016) and n-step returns, as in Rainbow (M. Hessel et al., 2018).
"""
